"""How far an import is, in parts that can be drawn, however many shards it has."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.domain.jobs import ImportId, Shards


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCoverage:
    """The shards of one value of the first axis, such as `country:DE`."""

    part: str
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
