"""Where pages come from."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeAlias

from typing_extensions import override

from penstock.domain.dataset import Dataset
from penstock.domain.pages import LazyPage, Page, Position, RawRow, Redirect
from penstock.domain.sharding.axes import FileAxis
from penstock.domain.sharding.parts import Slice
from penstock.domain.sharding.shard import Shard
from penstock.ports.runtime import KeepAlive


class ScannedSlices(Protocol):
    """The slices of the files that were scanned for a plan, which a rescan skips."""

    @abstractmethod
    def stored(self, sizes: Mapping[str, int]) -> Mapping[int, Sequence[Slice]]:
        """Return the slices by the number of their file.

        None are left if they are not of these files, in this order, of these sizes.
        """
        ...

    @abstractmethod
    def add(self, slices: Sequence[Slice]) -> None:
        """Store all slices of a file."""
        ...


class NoScannedSlices(ScannedSlices):
    @override
    def stored(self, sizes: Mapping[str, int]) -> Mapping[int, Sequence[Slice]]:
        return {}

    @override
    def add(self, slices: Sequence[Slice]) -> None:
        """Store nothing."""


# scans the files of a dataset and splits them into slices; may take an hour
Survey: TypeAlias = Callable[[Dataset, KeepAlive, ScannedSlices], FileAxis]


class Source(Protocol):
    """Where the pages of one dataset come from."""

    @abstractmethod
    def get_ready(
        self, shard: Shard, position: Position | None, still_here: KeepAlive
    ) -> None:
        """Do the slow preparations of a request, before a token is taken for it.

        Work that takes longer than a request may, here or in `fetch`, calls
        `still_here` regularly and propagates what it raises. Raises as `fetch` does.
        """
        ...

    @abstractmethod
    def fetch(
        self,
        shard: Shard,
        position: Position | None,
        *,
        since: datetime | None,
        moved: Redirect | None = None,
    ) -> Page | LazyPage | Redirect:
        """Send exactly one request, for the page after `position`.

        Raises `Throttled`, `AccessRefused`, `SourceUnavailable` (the same request may
        succeed later) or `Rejected` (it never will). So does reading a `LazyPage`.
        Incomplete or malformed data is never returned as a page.
        """
        ...

    @abstractmethod
    def preview(self, shard: Shard, *, since: datetime | None) -> str:
        """Return the first request of a shard, with secrets redacted."""
        ...

    @abstractmethod
    def read(self, raw: bytes) -> RawRow:
        """Parse one raw record again, as `fetch` does."""
        ...
