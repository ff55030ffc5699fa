"""The state of budgets in Redis: typed calls of the Lua scripts."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from penstock.adapters.redis.lua_scripts import LuaScripts
from penstock.domain.budget import (
    MAX_RESERVATION_AHEAD,
    Budget,
    Grant,
    Limit,
    Usage,
    bucket_depth,
    bucket_width,
    request_interval,
)
from penstock.domain.formats import MICROSECOND
from penstock.errors import BudgetClosed
from penstock.ports import BudgetSnapshot

# longer waits are cut to this; numbers in Lua are exact up to there
MAX_WAIT = timedelta(days=3650)
# a key expires two periods of its longest limit after its last use, at least after this
MIN_KEY_LIFETIME = timedelta(days=7)

# what was read from the database before may be outdated: another incarnation may have
# been created and lost meanwhile
MAX_CREATION_DELAY = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownBudget:
    """The server has no state of a budget, or one of another server run."""

    now: int
    server: str
    changes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBudget:
    now: int
    incarnation: str
    fields: Mapping[str, str | None]

    def number(self, field: str) -> int:
        return int(self.fields[field] or 0)

    def usage(self, budget: Budget) -> Usage:
        smooth, quotas = split(budget)
        return Usage(
            full_at={
                limit.window: self.number(field_of(limit))
                for limit in smooth
                if self.fields[field_of(limit)]
            },
            buckets={
                limit.window: parse_buckets(self.fields[field_of(limit)] or "")
                for limit in quotas
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedBudget:
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetReply:
    """A grant or a refusal for each request, in order."""

    incarnation: str
    # tokens that are not recorded in the database; below zero, none ever was
    unnoted: int
    results: Sequence[Grant | BudgetClosed]

    @property
    def grants(self) -> list[Grant]:
        return [result for result in self.results if isinstance(result, Grant)]


TakeResult: TypeAlias = BudgetReply | StoppedBudget | UnknownBudget


class BudgetStateReader:
    """One hash for each budget; each method is one atomic script."""

    def __init__(self, scripts: LuaScripts) -> None:
        self._scripts = scripts

    def take(self, budget: Budget, longest: Sequence[timedelta]) -> TakeResult:
        request = {
            "limits": script_limits(budget),
            "max_waits": [min(wait, MAX_WAIT) // MICROSECOND for wait in longest],
            "max_ahead": MAX_RESERVATION_AHEAD // MICROSECOND,
            "lifetime": lifetime(budget),
        }
        reply = self._scripts.run("take", budget.name, json.dumps(request))
        if reply[0] == "unknown":
            return parse_unknown(reply)
        if reply[0] == "stopped":
            return StoppedBudget(reason=reply[1])
        _, now, incarnation, unnoted, results = reply
        return BudgetReply(
            incarnation=incarnation,
            unnoted=unnoted,
            results=[
                parse_result(budget, result, now, incarnation) for result in results
            ],
        )

    def read(self, name: str, *fields: str) -> KnownBudget | UnknownBudget:
        reply = self._scripts.run("read", name, *fields)
        if reply[0] == "unknown":
            return parse_unknown(reply)
        _, now, incarnation, values = reply
        found = dict(zip(fields, values, strict=True))
        return KnownBudget(now=now, incarnation=incarnation, fields=found)

    def create(
        self,
        budget: Budget,
        lost: UnknownBudget,
        usage: Usage,
        snapshot: BudgetSnapshot | None,
    ) -> bool:
        """Create the state, unless it was created or the budget changed meanwhile."""
        closed_for = snapshot.closed_for if snapshot else None
        texts = {
            "closed_reason": snapshot.closed_reason if snapshot else None,
            "stopped": snapshot.stopped if snapshot else None,
        }
        initial = {
            "read_at": lost.now,
            "max_delay": MAX_CREATION_DELAY // MICROSECOND,
            "server": lost.server,
            "changes": lost.changes,
            "random": secrets.token_hex(8),
            "fields": {
                **{name: text for name, text in texts.items() if text is not None},
                **format_usage(usage),
            },
            "closed_for": min(closed_for or timedelta(), MAX_WAIT) // MICROSECOND,
            "lifetime": lifetime(budget),
        }
        return bool(self._scripts.run("create", budget.name, json.dumps(initial)))

    def give_back(self, budget: Budget, grant: Grant) -> None:
        smooth, _ = split(budget)
        arguments = {
            "limits": script_limits(budget),
            "incarnation": grant.incarnation,
            "slot": grant.slot,
            "full_at": {
                field_of(limit): grant.full_at.get(limit.window) for limit in smooth
            },
        }
        self._scripts.run("give_back", budget.name, json.dumps(arguments))

    def note_recorded(self, name: str, known: KnownBudget) -> bool:
        """Note that the database recorded this usage; False if the state was lost."""
        reserved = known.number("reserved")
        return bool(
            self._scripts.run("note_recorded", name, known.incarnation, reserved)
        )

    def close(self, name: str, *, wait: timedelta, reason: str) -> None:
        wait_us = min(wait, MAX_WAIT) // MICROSECOND
        self._scripts.run("close", name, wait_us, reason, lifetime())

    def stop(self, name: str, *, reason: str) -> None:
        self._scripts.run("stop", name, reason, lifetime())

    def open(self, name: str) -> None:
        self._scripts.run("open", name, lifetime())


def usage_fields(budget: Budget) -> list[str]:
    return [field_of(limit) for limit in budget.limits]


def field_of(limit: Limit) -> str:
    return f"{'quota' if limit.is_quota else 'full_at'}:{limit.window}"


def split(budget: Budget) -> tuple[list[Limit], list[Limit]]:
    """Separate the smooth limits from the quotas."""
    smooth = [limit for limit in budget.limits if not limit.is_quota]
    return smooth, [limit for limit in budget.limits if limit.is_quota]


def script_limits(budget: Budget) -> list[dict[str, str | int]]:
    """Return the limits for a script in integers, as computed by the domain."""
    return [
        {
            "field": field_of(limit),
            "requests": limit.requests,
            "period": limit.period // MICROSECOND,
            "width": bucket_width(limit),
        }
        if limit.is_quota
        else {
            "field": field_of(limit),
            "interval": request_interval(limit),
            "depth": bucket_depth(budget, limit),
        }
        for limit in budget.limits
    ]


def lifetime(budget: Budget | None = None) -> int:
    """Return after how many milliseconds an unused key expires."""
    periods = [limit.period for limit in budget.limits] if budget else []
    longest = max(periods, default=timedelta())
    return max(2 * longest, MIN_KEY_LIFETIME) // timedelta(milliseconds=1)


def parse_unknown(reply: Sequence[Any]) -> UnknownBudget:
    _, now, server, changes = reply
    return UnknownBudget(now=now, server=server, changes=changes)


def parse_result(
    budget: Budget, reply: Sequence[int], now: int, incarnation: str
) -> Grant | BudgetClosed:
    is_granted, slot, *full_at = reply
    wait = timedelta(microseconds=slot - now)
    if not is_granted:
        return BudgetClosed(budget.name, wait=wait)
    smooth, _ = split(budget)
    windows = [limit.window for limit in smooth]
    return Grant(
        budget=budget.name,
        slot=slot,
        wait=wait,
        full_at=dict(zip(windows, full_at, strict=True)),
        incarnation=incarnation,
    )


def format_usage(usage: Usage) -> dict[str, str]:
    """Format a usage as the scripts parse it."""
    return {
        **{f"full_at:{window}": str(at) for window, at in usage.full_at.items()},
        **{
            f"quota:{window}": " ".join(f"{n}:{count}" for n, count in counted.items())
            for window, counted in usage.buckets.items()
        },
    }


def parse_buckets(text: str) -> dict[int, int]:
    pairs = (pair.split(":") for pair in text.split())
    return {int(number): int(count) for number, count in pairs}
