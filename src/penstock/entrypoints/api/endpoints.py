"""What an endpoint declares: its address, who may call it, and by which lane."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.access import Scope
from penstock.entrypoints.api.answers import Answer, Asked
from penstock.entrypoints.api.service import Api

Handle: TypeAlias = Callable[[Api, Request], Awaitable[Response]]
# asked in a thread; what it returns may be kept and given to others
Read: TypeAlias = Callable[[Api, Asked], Answer]


class Lane(StrEnum):
    """Requests that wait for each other, and for no others."""

    HEALTH = "health"
    READS = "reads"
    SEARCH = "search"
    WRITES = "writes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One thing that can be asked; `scope` None is open to all."""

    method: str
    path: str
    scope: Scope | None
    lane: Lane
    summary: str
    # exactly one of them
    handle: Handle | None = None
    read: Read | None = None
    # what OpenAPI says of it beyond its path
    parameters: Sequence[Mapping[str, Any]] = ()
    body: Mapping[str, Any] | None = None
    answers: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
