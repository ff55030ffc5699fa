"""The declaration of an endpoint: its route, its scope, its lane and its schemas."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.dataset import Dataset
from penstock.entrypoints.api.cache.response_cache import ReadResult
from penstock.entrypoints.api.concurrency.thread_shares import Lane
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.params.request_head import RequestHead

__all__ = ["Endpoint", "Handle", "Lane", "Parse", "Read"]

Query = TypeVar("Query")

# parses path, parameters and headers in the event loop, without any query or lock: a
# malformed request is refused before it takes a lane, a thread or a trip to Redis
Parse: TypeAlias = Callable[[AppContext, RequestHead], Query]
Handle: TypeAlias = Callable[[AppContext, Request, Query], Awaitable[Response]]
# runs in a thread; its result may be cached and sent to other clients
Read: TypeAlias = Callable[[AppContext, Query], ReadResult]


def ignore_params(api: AppContext, head: RequestHead) -> None:
    """Parse nothing: the endpoint has no parameters, and accepts any."""
    del api, head


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Generic[Query]):
    """One operation; without a `scope` it needs no token."""

    method: str
    path: str
    scope: AccessScope | None
    lane: Lane
    summary: str
    parse: Parse[Query]
    # exactly one of them
    handle: Handle[Query] | None = None
    read: Read[Query] | None = None
    # whether it reads one record, which any change of the dataset may affect
    follows_changes: bool = False
    # whether it changes nothing, although it is sent by POST
    is_read_only: bool = False
    # its name in generated clients; unless given, that of its function
    operation: str = ""
    # its OpenAPI Parameter Objects, and the schemas of its JSON body and responses, or
    # whole Request Body and Response Objects
    parameters: Sequence[Mapping[str, Any]] = ()
    body: Mapping[str, Any] | None = None
    responses: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    # all of that by dataset, if it differs; None if a dataset lacks the operation
    describe: Callable[[Dataset], "OperationDoc | None"] | None = None

    def operation_of(self, dataset: str = "") -> str:
        """Return its name in a generated client: `listPoi`, `getImport`."""
        if self.operation:
            return self.operation.format(dataset)
        function = self.handle or self.read
        verb, *others = getattr(function, "__name__", self.method.lower()).split("_")
        return verb + dataset + "".join(map(str.capitalize, others))

    @property
    def is_action(self) -> bool:
        """Whether it is an act of an operator, which is logged with who it was."""
        is_read = self.method == "GET" or self.is_read_only
        return self.scope is AccessScope.OPERATE and not is_read


AnyEndpoint: TypeAlias = Endpoint[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationDoc:
    """The OpenAPI documentation of an operation for one dataset."""

    parameters: Sequence[Mapping[str, Any]] = ()
    body: Mapping[str, Any] | None = None
    responses: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
