"""What an endpoint declares: its address, who may call it, and by which lane."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.access import Scope
from penstock.domain.dataset import Dataset
from penstock.domain.lanes import Lane
from penstock.entrypoints.api.answers import Answer, Asked
from penstock.entrypoints.api.service import Api

__all__ = ["Endpoint", "Handle", "Lane", "Read"]

Handle: TypeAlias = Callable[[Api, Request], Awaitable[Response]]
# asked in a thread; what it returns may be kept and given to others
Read: TypeAlias = Callable[[Api, Asked], Answer]


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
    # reads the parameters alone, so that what is malformed takes no thread
    check: Callable[[Api, Asked], object] | None = None
    # whether what it reads is one record, which any change may be one of
    follows_changes: bool = False
    # its name in generated clients; unless given, that of its function
    operation: str = ""
    # what OpenAPI says of it beyond its path: its Parameter Objects, and the schema of
    # JSON that it reads and answers with, or a whole Request Body or Response Object
    parameters: Sequence[Mapping[str, Any]] = ()
    body: Mapping[str, Any] | None = None
    answers: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    # all of that, where it is another for each dataset; None of those that have no such
    describe: Callable[[Dataset], "Described | None"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What OpenAPI says of an endpoint of one dataset."""

    parameters: Sequence[Mapping[str, Any]] = ()
    body: Mapping[str, Any] | None = None
    answers: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
