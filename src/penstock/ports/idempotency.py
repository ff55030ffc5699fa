"""Idempotent requests: a repeated request returns the first result."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from penstock.domain.dataset import Dataset
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import Import, ImportId


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentRequest:
    """A client's request and its idempotency key."""

    # client and route; the same key in another scope is another request
    scope: str
    key: str
    # of the whole request
    digest: bytes
    # the uploaded file, which is retained while it is needed
    file: str | None = None


@dataclass(frozen=True, slots=True)
class RequestClaim:
    """The exclusive right to process a request, until another process takes it over."""

    ask: IdempotentRequest
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedImport:
    """The import that was created, or the unfinished one that was resumed."""

    import_: Import
    resumed: bool


# an unfinished import of the same kind, and the shards it was planned with
Approve: TypeAlias = Callable[[Import, Callable[[], Iterable[str]]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSpec:
    """An import to be stored."""

    scope: ImportScope
    declaration: str
    # raises if an unfinished import does not match the request
    approve: Approve = field(repr=False)
    # all of its shards; empty if they are planned later
    shard_keys: Sequence[str] = ()
    # the import whose bad rows it corrects
    corrects: ImportId | None = None
    # of the trace that begins it
    traceparent: str | None = None


class IdempotencyStore(Protocol):
    """The requests of clients, identified by scope and key."""

    @abstractmethod
    def claim(self, request: IdempotentRequest) -> RequestClaim | StartedImport:
        """Claim a request, or return the result of its first execution.

        Raises `IdempotencyKeyReused` if its key was used for another request, and
        `RequestInProgress` while another process has it. An old claim without a result
        is taken over.
        """
        ...

    @abstractmethod
    def begin(
        self, claim: RequestClaim, dataset: Dataset, spec: ImportSpec
    ) -> StartedImport:
        """Store an import and the result of its request in one transaction.

        Or resume the unfinished import of the same kind, if `approve` does not raise.
        Shards are stored as well if there are any, and workers may start. Raises
        `RequestInProgress`, and stores nothing, if the request was taken over.
        """
        ...

    @abstractmethod
    def give_up(self, claim: RequestClaim) -> None:
        """Delete a claim without a result, so that the request can be repeated."""
        ...

    @abstractmethod
    def forget(self, *, most: int) -> int:
        """Delete up to `most` expired requests; return how many were deleted.

        Expired are results older than a day, and old claims without a result.
        """
        ...
