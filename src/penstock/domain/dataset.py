"""What a user declares: a dataset with its fields, source, shards and limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from typing import NewType

from penstock.domain.axes import Axis
from penstock.domain.source import CsvSource, HttpSource, Path, Source

DatasetName = NewType("DatasetName", str)

# behind the name of a dataset: the view of its live rows
LIVE = "_live"
# the columns that every table of PostgreSQL has already
SYSTEM_COLUMNS = frozenset({"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"})
# a b-tree of PostgreSQL holds 2,704 bytes of a row, a character has up to four, and a
# field that is filtered by stands in one index with the key
LONGEST_INDEXED = 300


class FieldType(StrEnum):
    TEXT = "text"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    DATE = "date"
    TIMESTAMP = "timestamp"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Reference:
    """A field of another dataset whose rows hold the values that are allowed."""

    dataset: str
    field: str

    def __str__(self) -> str:
        return f"{self.dataset}.{self.field}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One column of a dataset, and where its value stands in a raw record."""

    name: str
    path: Path = ()
    type: FieldType = FieldType.TEXT
    required: bool = False
    default: object = None
    min: float | None = None
    max: float | None = None
    max_length: int | None = None
    pattern: str | None = None
    choices: tuple[object, ...] | None = None
    # strptime form of dates and timestamps; ISO 8601 where none is given
    format: str | None = None
    trim: bool = True
    # what stands before the fraction of a number that is written as text
    decimal: str = "."
    references: Reference | None = None
    # ours: edited through the API, never touched by an import
    local: bool = False


class WhenMissing(StrEnum):
    """What happens to rows that a proven full import no longer brought."""

    KEEP = "keep"
    MARK = "mark"


class LostFiles(StrEnum):
    """What happens to missing rows that came from files which are gone."""

    KEEP = "keep"
    ACCEPT = "accept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    do: WhenMissing = WhenMissing.KEEP
    # the greatest share of live rows that one import may mark
    max_drop: float = 0.2
    lost_files: LostFiles = LostFiles.KEEP


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How many bad rows an import may hold before it fails."""

    max: int | None = None
    max_ratio: float | None = None

    # a ratio over fewer rows says nothing yet; the end of an import judges it anyway
    ratio_needs = 1000

    def exceeded(self, *, bad: int, seen: int, at_end: bool) -> str | None:
        """Say why an import with so many bad rows must fail, if it must."""
        if self.max is not None and bad > self.max:
            return f"{bad} bad rows are more than bad.max = {self.max}"
        judged = at_end or seen >= self.ratio_needs
        if self.max_ratio is not None and judged and bad > self.max_ratio * seen:
            share = bad / max(seen, 1)
            return (
                f"{bad} of {seen} rows are bad ({share:.1%}), "
                f"more than bad.max_ratio = {self.max_ratio:g}"
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """The lower bound by which the provider is asked for what changed."""

    send: str
    field: Path
    format: str = "%Y-%m-%dT%H:%M:%SZ"
    overlap: timedelta = timedelta()


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One declared dataset; everything a worker has to know of it."""

    name: DatasetName
    fields: tuple[Field, ...]
    key: tuple[str, ...]
    source: Source
    axes: tuple[Axis, ...] = ()
    delta: Delta | None = None
    search: tuple[str, ...] = ()
    geo: tuple[str, str] | None = None
    filter: tuple[str, ...] = ()
    missing: Missing = field(default_factory=Missing)
    bad: Tolerance = field(default_factory=Tolerance)
    version: str | None = None
    # the field by whose values PostgreSQL divides the rows; no effect elsewhere
    partition: str | None = None
    transform: str | None = None
    priority: int = 0
    region: str | None = None
    # how long the API may serve a kept answer
    cache: timedelta = timedelta(seconds=60)

    @cached_property
    def columns(self) -> tuple[Field, ...]:
        """The fields that an import writes, in declared order."""
        return tuple(each for each in self.fields if not each.local)

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """Every path that is read from a raw record, once each, in a stable order."""
        wanted = [each.path for each in self.columns]
        for axis in self.axes:
            wanted.extend(axis.checked)
        if self.delta is not None:
            wanted.append(self.delta.field)
        if self.source.order is not None:
            wanted.append(self.source.order)
        return tuple(dict.fromkeys(wanted))

    @cached_property
    def place(self) -> Mapping[Path, int]:
        """Where each path stands in the values of a raw row."""
        return {path: index for index, path in enumerate(self.paths)}

    @property
    def live_view(self) -> str:
        """The view that shows its live rows to whoever reads the database."""
        return f"{self.name}{LIVE}"

    @property
    def has_references(self) -> bool:
        return any(each.references is not None for each in self.columns)

    @property
    def is_ranked(self) -> bool:
        """Whether the order in its source decides which of two rows of a key wins.

        The shards of a file are worked in any order, but its last row counts.
        """
        return isinstance(self.source, CsvSource)

    @property
    def http(self) -> HttpSource:
        """Its source, where only one kind makes sense."""
        if not isinstance(self.source, HttpSource):
            raise TypeError(f"the source of {self.name!r} is not http")
        return self.source

    @property
    def csv(self) -> CsvSource:
        if not isinstance(self.source, CsvSource):
            raise TypeError(f"the source of {self.name!r} is not csv")
        return self.source

    def column(self, name: str) -> int:
        """Return the position of a column in the values of a record."""
        return [each.name for each in self.columns].index(name)
