"""Hooks: which systems are told of which facts, and when that is tried again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias

# after each failed delivery; about a day in all, so that a weekday's fix is in time
RETRY_DELAYS = (
    timedelta(seconds=5),
    timedelta(seconds=30),
    timedelta(minutes=2),
    timedelta(minutes=10),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=6),
    timedelta(hours=14),
)
MAX_DELIVERIES = len(RETRY_DELAYS) + 1


class HookFact(StrEnum):
    """What a hook can be told of."""

    IMPORT_FAILED = "import_failed"
    IMPORT_DONE = "import_done"
    BUDGET_STOPPED = "budget_stopped"
    SCHEDULE_MISSED = "schedule_missed"
    SHARD_DEAD = "shard_dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A URL that receives signed messages; it may contain a secret, too."""

    url: str = field(repr=False)
    secret: bytes = field(repr=False)
    # whether it may have an address that is not public
    allow_private: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFunction:
    """A function that is called with each message: `module:function`."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    name: str
    on: frozenset[HookFact]
    target: Webhook | HookFunction


# the names of the hooks of each fact
Subscribers: TypeAlias = Mapping[HookFact, Sequence[str]]


def find_subscribers(hooks: Iterable[Hook]) -> Subscribers:
    found: dict[HookFact, list[str]] = {}
    for hook in hooks:
        for fact in hook.on:
            found.setdefault(fact, []).append(hook.name)
    return {fact: sorted(names) for fact, names in found.items()}


def retry_delay(attempts: int) -> timedelta | None:
    """Return when a delivery is tried again that failed so often; None: never."""
    if attempts > len(RETRY_DELAYS):
        return None
    return RETRY_DELAYS[attempts - 1]
