"""Requests that are known again: what was done once is not done twice."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol, TypeAlias

from penstock.domain.dataset import Dataset
from penstock.domain.job import Import, ImportId
from penstock.domain.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a client asks for, and how it is known again."""

    # who asks for what; the same key elsewhere is another request
    scope: str
    key: str
    # of all that was asked
    digest: bytes
    # what came with it, and has to be kept as long as it is needed
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to do what was asked, as long as nobody takes it over."""

    ask: Ask
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What was done: an import begun, or an unfinished one taken up."""

    begun: Import
    resumed: bool


# an unfinished import of the same kind, and the shards it was planned with
Approve: TypeAlias = Callable[[Import, Callable[[], Iterable[str]]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """An import as it shall be stored."""

    scope: Scope
    declaration: str
    # raises where an unfinished import is not what was asked for
    approve: Approve = field(repr=False)
    # all of its shards; without any they are stored later, by whoever plans it
    shard_keys: Sequence[str] = ()


class Requests(Protocol):
    """The requests of clients, each known by its scope and key."""

    @abstractmethod
    def claim(self, ask: Ask) -> Claim | Begun:
        """Take a request up, or return what came of it when it was asked before.

        Raises `KeyReused` if its key was used for something else, and `StillAtWork`
        while somebody else has it. One that was taken up long ago and never answered
        is taken over.
        """
        ...

    @abstractmethod
    def begin(self, claim: Claim, dataset: Dataset, wanted: Wanted) -> Begun:
        """Store an import and the answer to its request in one transaction.

        Or take up the unfinished import of the same kind, if `approve` lets it. With
        shards they are stored as well, and workers may begin. Raises `StillAtWork`, and
        stores nothing, if somebody has taken the request over.
        """
        ...

    @abstractmethod
    def give_up(self, claim: Claim) -> None:
        """Forget a request that came to nothing, so that it can be made again."""
        ...

    @abstractmethod
    def unplanned(self) -> Sequence[ImportId]:
        """Return the imports of requests that are not planned to the end.

        Without those that somebody is planning right now.
        """
        ...

    @abstractmethod
    def hold_planning(
        self, import_id: ImportId, planner: str, *, longest: timedelta
    ) -> bool:
        """Take the planning of an import, or keep it, for so long; or end it with none.

        False while somebody else has it.
        """
        ...

    @abstractmethod
    def forget(self, *, most: int) -> int:
        """Forget so many requests that nobody asks for again; return how many were.

        These are answers of a day ago, and what was never answered.
        """
        ...
