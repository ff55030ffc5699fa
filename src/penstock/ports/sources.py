"""Where pages come from."""

from abc import abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import Protocol, TypeAlias

from penstock.domain.axes import FileAxis
from penstock.domain.dataset import Dataset
from penstock.domain.page import (
    Memo,
    Moved,
    Page,
    Position,
    Row,
)
from penstock.domain.shard import Shard

# looks at the files of a dataset, and says where they can be cut
Survey: TypeAlias = Callable[[Dataset], FileAxis]
# a digest of an answer -> what is known of it
Recall: TypeAlias = Callable[[bytes], Memo | None]


class Source(Protocol):
    """Where the pages of one dataset come from."""

    @abstractmethod
    def get_ready(self) -> None:
        """Do what a request needs that takes time, before a token is taken for it.

        Raises as `fetch` does.
        """
        ...

    @abstractmethod
    def fetch(
        self,
        shard: Shard,
        position: Position | None,
        *,
        since: datetime | None,
        moved: Moved | None = None,
        recall: Recall | None = None,
    ) -> Page | Moved:
        """Send exactly one request, for the page after `position`.

        `recall` is asked whether the answer is known, by a digest of it; if it is, the
        page has its memo instead of rows.

        Raises `Throttled`, `AccessStopped`, `SourceUnavailable` (the same request may
        succeed later) or `Rejected` (it never will). What is not complete, well-formed
        data is never a page.
        """
        ...

    @abstractmethod
    def preview(self, shard: Shard, *, since: datetime | None) -> str:
        """Return the first request of a shard as an operator may see it."""
        ...

    @abstractmethod
    def read(self, raw: bytes) -> Row:
        """Read one raw record again, as `fetch` does."""
        ...
