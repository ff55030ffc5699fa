"""What a Redis server knows of the budgets: typed calls of the scripts."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from penstock.adapters.redis.scripts import Scripts
from penstock.domain.budget import (
    MOST_AHEAD,
    Budget,
    Grant,
    Limit,
    Usage,
    bucket_width,
    depth,
    interval,
)
from penstock.domain.times import MICROSECOND
from penstock.errors import BudgetClosed
from penstock.ports import Remembered

# who asks for more is as well off with this; Lua counts exactly as far as that
LONGEST = timedelta(days=3650)
# a key lives two periods of its longest limit after its last use, and at least this
SHORTEST_LIFE = timedelta(days=7)

# what the database said longer ago may no longer be true: a whole memory may have come
# and gone meanwhile
LATEST_CREATION = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The server has no memory of a budget, or one that it did not count itself."""

    now: int
    server: str
    changes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
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
                limit.window: parse(self.fields[field_of(limit)] or "")
                for limit in quotas
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A grant or a refusal for each who asked, in their order."""

    incarnation: str
    # tokens that the database does not know of; below zero, it knows of nothing
    unnoted: int
    answers: Sequence[Grant | BudgetClosed]

    @property
    def grants(self) -> list[Grant]:
        return [each for each in self.answers if isinstance(each, Grant)]


Taken: TypeAlias = Answered | Stopped | Unknown


class Memory:
    """One hash a budget; each method is one call, which happens as a whole or not."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def take(self, budget: Budget, longest: Sequence[timedelta]) -> Taken:
        asked = {
            "limits": told_limits(budget),
            "longest": [min(each, LONGEST) // MICROSECOND for each in longest],
            "most_ahead": MOST_AHEAD // MICROSECOND,
            "lifetime": lifetime(budget),
        }
        told = self._scripts.run("take", budget.name, json.dumps(asked))
        if told[0] == "unknown":
            return unknown(told)
        if told[0] == "stopped":
            return Stopped(reason=told[1])
        _, now, incarnation, unnoted, answers = told
        return Answered(
            incarnation=incarnation,
            unnoted=unnoted,
            answers=[answer(budget, each, now, incarnation) for each in answers],
        )

    def look(self, name: str, *fields: str) -> Known | Unknown:
        told = self._scripts.run("look", name, *fields)
        if told[0] == "unknown":
            return unknown(told)
        _, now, incarnation, values = told
        found = dict(zip(fields, values, strict=True))
        return Known(now=now, incarnation=incarnation, fields=found)

    def create(
        self,
        budget: Budget,
        lost: Unknown,
        usage: Usage,
        remembered: Remembered | None,
    ) -> bool:
        """Begin anew, unless somebody else did, or said something about the budget."""
        closed_for = remembered.closed_for if remembered else None
        said = {
            "closed_reason": remembered.closed_reason if remembered else None,
            "stopped": remembered.stopped if remembered else None,
        }
        begun = {
            "asked_at": lost.now,
            "latest": LATEST_CREATION // MICROSECOND,
            "server": lost.server,
            "changes": lost.changes,
            "random": secrets.token_hex(8),
            "fields": {
                **{name: text for name, text in said.items() if text is not None},
                **written(usage),
            },
            "closed_for": min(closed_for or timedelta(), LONGEST) // MICROSECOND,
            "lifetime": lifetime(budget),
        }
        return bool(self._scripts.run("create", budget.name, json.dumps(begun)))

    def give_back(self, budget: Budget, grant: Grant) -> None:
        smooth, _ = split(budget)
        given = {
            "limits": told_limits(budget),
            "incarnation": grant.incarnation,
            "slot": grant.slot,
            "full_at": {
                field_of(limit): grant.full_at.get(limit.window) for limit in smooth
            },
        }
        self._scripts.run("give_back", budget.name, json.dumps(given))

    def noted(self, name: str, known: Known) -> bool:
        """Tell that the database knows this much; False if it is a lost memory."""
        reserved = known.number("reserved")
        return bool(self._scripts.run("noted", name, known.incarnation, reserved))

    def close(self, name: str, *, wait: timedelta, reason: str) -> None:
        span = min(wait, LONGEST) // MICROSECOND
        self._scripts.run("close", name, span, reason, lifetime())

    def stop(self, name: str, *, reason: str) -> None:
        self._scripts.run("stop", name, reason, lifetime())

    def open(self, name: str) -> None:
        self._scripts.run("open", name, lifetime())


def usage_fields(budget: Budget) -> list[str]:
    return [field_of(limit) for limit in budget.limits]


def field_of(limit: Limit) -> str:
    return f"{'quota' if limit.is_quota else 'full_at'}:{limit.window}"


def split(budget: Budget) -> tuple[list[Limit], list[Limit]]:
    """Tell the smooth limits from the quotas."""
    smooth = [limit for limit in budget.limits if not limit.is_quota]
    return smooth, [limit for limit in budget.limits if limit.is_quota]


def told_limits(budget: Budget) -> list[dict[str, str | int]]:
    """Tell a script each limit in whole numbers, as the domain has worked them out."""
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
            "interval": interval(limit),
            "depth": depth(budget, limit),
        }
        for limit in budget.limits
    ]


def lifetime(budget: Budget | None = None) -> int:
    """Return how many milliseconds an unused key is kept."""
    periods = [limit.period for limit in budget.limits] if budget else []
    longest = max(periods, default=timedelta())
    return max(2 * longest, SHORTEST_LIFE) // timedelta(milliseconds=1)


def unknown(told: Sequence[Any]) -> Unknown:
    _, now, server, changes = told
    return Unknown(now=now, server=server, changes=changes)


def answer(
    budget: Budget, told: Sequence[int], now: int, incarnation: str
) -> Grant | BudgetClosed:
    is_granted, slot, *full_at = told
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


def written(usage: Usage) -> dict[str, str]:
    """Write a usage as the scripts read it."""
    return {
        **{f"full_at:{window}": str(at) for window, at in usage.full_at.items()},
        **{
            f"quota:{window}": " ".join(f"{n}:{count}" for n, count in counted.items())
            for window, counted in usage.buckets.items()
        },
    }


def parse(text: str) -> dict[int, int]:
    pieces = (piece.split(":") for piece in text.split())
    return {int(number): int(count) for number, count in pieces}
