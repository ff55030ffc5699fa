"""A declared dataset: its fields, source, shards and limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import NewType

from penstock.domain.sharding.axes import Axis
from penstock.domain.source import CsvSource, HttpSource, Path, Source

DatasetName = NewType("DatasetName", str)

# suffix of the view that shows the live rows of a dataset
LIVE_VIEW_SUFFIX = "_live"
# suffix of the table of rows that were archived; no declared name has a colon
ARCHIVE_SUFFIX = ":archive"
# columns that every PostgreSQL table already has
SYSTEM_COLUMNS = frozenset({"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"})
# the default share of the rows of a full import that may lose to another of their key
MAX_DUPLICATES = 0.1
# declared as the key, it makes all values of a row its identity
WHOLE_ROW = "*"
# the name of the field that then is the key
ROW_KEY = "row_key"
# a PostgreSQL b-tree entry holds 2,704 bytes, a character takes up to four, and a
# filtered field shares its index with the key
MAX_INDEXED_LENGTH = 300


class FieldType(StrEnum):
    TEXT = "text"
    INT = "int"
    FLOAT = "float"
    DECIMAL = "decimal"
    BOOL = "bool"
    DATE = "date"
    TIMESTAMP = "timestamp"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Reference:
    """A field of another dataset whose stored values are the allowed ones."""

    dataset: str
    field: str

    def __str__(self) -> str:
        return f"{self.dataset}.{self.field}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One column of a dataset, and the path of its value in a raw record."""

    name: str
    path: Path = ()
    type: FieldType = FieldType.TEXT
    required: bool = False
    default: object = None
    min: float | Decimal | None = None
    max: float | Decimal | None = None
    max_length: int | None = None
    pattern: str | None = None
    choices: tuple[object, ...] | None = None
    # strptime format of dates and timestamps; None is ISO 8601
    format: str | None = None
    trim: bool = True
    # decimal separator of numbers that are written as text
    decimal: str = "."
    # equal decimals have one form: of a key there cannot be two
    is_normalized: bool = False
    # a text that its type cannot write back as it stands is bad
    exact: bool = False
    references: Reference | None = None
    # edited through the API only, never written by an import
    local: bool = False
    # the content hash of the other columns, read from no record
    is_row_key: bool = False


# the content hash of a row as hex
ROW_KEY_FIELD = Field(name=ROW_KEY, required=True, max_length=32, is_row_key=True)


class WhenMissing(StrEnum):
    """What happens to rows that a proven full import did not contain."""

    KEEP = "keep"
    MARK = "mark"


class LostFiles(StrEnum):
    """What happens to missing rows of files that no longer exist."""

    KEEP = "keep"
    ACCEPT = "accept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    do: WhenMissing = WhenMissing.KEEP
    # the largest share of live rows that one import may mark as deleted
    max_drop: float = 0.2
    lost_files: LostFiles = LostFiles.KEEP


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePolicy:
    """When rows are archived."""

    # how long they must not have been seen in the source
    after: timedelta
    # how often maintenance archives
    every: timedelta = timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How many bad rows an import may have before it fails."""

    max: int | None = None
    max_ratio: float | None = None

    # over fewer rows the ratio is checked only at the end of an import
    min_rows_for_ratio = 1000

    def exceeded(self, *, bad: int, seen: int, at_end: bool) -> str | None:
        """Return why an import with this many bad rows must fail, or None."""
        if self.max is not None and bad > self.max:
            return f"{bad} bad rows are more than bad.max = {self.max}"
        checks_ratio = at_end or seen >= self.min_rows_for_ratio
        if self.max_ratio is not None and checks_ratio and bad > self.max_ratio * seen:
            share = bad / max(seen, 1)
            return (
                f"{bad} of {seen} rows are bad ({share:.1%}), "
                f"more than bad.max_ratio = {self.max_ratio:g}"
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """How requests of a delta import ask for changes since a lower bound."""

    send: str
    field: Path
    format: str = "%Y-%m-%dT%H:%M:%SZ"
    overlap: timedelta = timedelta()


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One declared dataset, with everything that a worker needs to import it."""

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
    # the largest share of the rows of a full import that may lose to another row of
    # their key
    max_duplicates: float = MAX_DUPLICATES
    version: str | None = None
    # the field that PostgreSQL partitions the table by; no effect on SQLite
    partition: str | None = None
    transform: str | None = None
    priority: int = 0
    region: str | None = None
    # how long the API may serve a cached response
    cache: timedelta = timedelta(seconds=60)
    # None: no row is archived
    archive: ArchivePolicy | None = None

    @cached_property
    def columns(self) -> tuple[Field, ...]:
        """The fields that an import writes, in declared order."""
        return tuple(field for field in self.fields if not field.local)

    @cached_property
    def read_columns(self) -> tuple[Field, ...]:
        """The columns whose values are read from a raw record."""
        return tuple(column for column in self.columns if not column.is_row_key)

    @cached_property
    def hashed_columns(self) -> tuple[int, ...]:
        """The positions of the columns that the content hash covers, in its order.

        Where the hash is the key, it must not depend on the order of the declaration.
        """
        positions = range(len(self.columns))
        if not self.has_row_key:
            return tuple(positions)
        names = [column.name for column in self.columns]
        hashed = (at for at in positions if not self.columns[at].is_row_key)
        return tuple(sorted(hashed, key=names.__getitem__))

    @cached_property
    def has_row_key(self) -> bool:
        """Whether a row is identified by all of its values."""
        return any(field.is_row_key for field in self.fields)

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """The distinct paths that are read from a raw record, in a stable order."""
        paths = [column.path for column in self.read_columns]
        for axis in self.axes:
            paths.extend(axis.checked)
        if self.delta is not None:
            paths.append(self.delta.field)
        if self.source.order is not None:
            paths.append(self.source.order)
        return tuple(dict.fromkeys(paths))

    @cached_property
    def path_index(self) -> Mapping[Path, int]:
        """The index of each path in the values of a raw row."""
        return {path: index for index, path in enumerate(self.paths)}

    @property
    def live_view(self) -> str:
        """The name of the database view that shows its live rows."""
        return f"{self.name}{LIVE_VIEW_SUFFIX}"

    @cached_property
    def archived(self) -> "Dataset":
        """Its archive as a dataset, with a table of the same columns.

        No import writes to it, and it is read by key and by filter only.
        """
        return replace(
            self,
            name=DatasetName(f"{self.name}{ARCHIVE_SUFFIX}"),
            search=(),
            geo=None,
            partition=None,
            archive=None,
        )

    @property
    def has_references(self) -> bool:
        return any(column.references is not None for column in self.columns)

    @property
    def pages_by_key(self) -> bool:
        """Whether no two records share a value of the field that pages are ordered by.

        Only the whole key is known to be unique.
        """
        key = [field.path for field in self.fields if field.name in self.key]
        return key == [self.source.order]

    @property
    def is_ranked(self) -> bool:
        """Whether the order in the source decides which of two rows of a key wins.

        The shards of a file are imported in any order, but its last row wins.
        """
        return isinstance(self.source, CsvSource)

    @property
    def http(self) -> HttpSource:
        """Its source, which must be HTTP; raises `TypeError` otherwise."""
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
        return [column.name for column in self.columns].index(name)
