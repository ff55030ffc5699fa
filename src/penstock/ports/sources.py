"""Where pages come from."""

from abc import abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import Protocol, TypeAlias

from penstock.domain.axes import FileAxis
from penstock.domain.dataset import Dataset
from penstock.domain.page import (
    Moved,
    Page,
    Position,
    Row,
    Unread,
)
from penstock.domain.shard import Shard
from penstock.ports.host import StillHere

# looks at the files of a dataset, and says where they can be cut; reading them may take
# an hour
Survey: TypeAlias = Callable[[Dataset, StillHere], FileAxis]


class Source(Protocol):
    """Where the pages of one dataset come from."""

    @abstractmethod
    def get_ready(
        self, shard: Shard, position: Position | None, still_here: StillHere
    ) -> None:
        """Do what a request needs that takes time, before a token is taken for it.

        What takes longer than a request may, here or in `fetch`, calls `still_here`
        all the while, and lets pass what that raises. Raises as `fetch` does.
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
    ) -> Page | Unread | Moved:
        """Send exactly one request, for the page after `position`.

        Reading an answer that is unread raises as this does.

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
