"""How far an import is, in parts that can be drawn, however many shards it has."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from penstock.domain.jobs import ImportId, Job, JobId, Shards


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCoverage:
    """The shards of one value of the first axis, such as `country:DE`."""

    part: str
    shards: Shards


class JobRange(NamedTuple):
    """Jobs in the order of the plan, from the first to the last of them."""

    first: JobId
    last: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCell:
    """The shards of one value of the first axis, and of some of the others."""

    row: int
    column: int
    # such as `country:DE`
    down: str
    # the first and the last of them
    across: tuple[str, str]
    # without those of splits, which come later
    jobs: JobRange
    # with those of splits
    shards: Shards


class ImportCoverage(Protocol):
    """The states of an import's shards, aggregated by the database."""

    @abstractmethod
    def parts(self, import_id: ImportId, *, limit: int) -> Sequence[PartCoverage]:
        """Return the values of the first axis; those with failed, then with open
        shards come first.
        """  # noqa: D205 (one sentence that needs two lines)
        ...

    @abstractmethod
    def buckets(self, import_id: ImportId, *, count: int) -> Sequence[Shards]:
        """Return the shards in the order of the plan, in at most `count` buckets."""
        ...

    @abstractmethod
    def matrix(self, import_id: ImportId, *, cells: int) -> Sequence[MatrixCell]:
        """Return the first axis down and the others across, in at most so many cells.

        Shards that were split count where they were planned. Empty: the plan has one
        axis, or is not each value of one with each of the others.
        """
        ...

    @abstractmethod
    def jobs(
        self,
        import_id: ImportId,
        *,
        within: JobRange | None,
        only_missing: bool,
        after: JobId | None,
        limit: int,
    ) -> Sequence[Job]:
        """Return jobs in the order of their ids, with those of splits of a range.

        With `only_missing` those that failed, were cancelled or are pending.
        """
        ...
