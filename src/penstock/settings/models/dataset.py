"""The [datasets.*] tables."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, Field
from typing_extensions import override

from penstock.domain.dataset import (
    MAX_INDEXED_LENGTH,
    WHOLE_ROW,
    FieldType,
    LostFiles,
    WhenMissing,
)
from penstock.settings.models.axes import AxisTable
from penstock.settings.models.base import (
    LARGEST_INT,
    TRANSFORM,
    CountOrNone,
    DurationOrNone,
    Name,
    OwnName,
    Ratio,
    RecordPath,
    Stored,
    Text,
    Texts,
    TimeFormat,
    TomlModel,
)
from penstock.settings.models.field import FieldTable
from penstock.settings.models.schedule import Cron, Interval
from penstock.settings.models.source import CsvTable, SourceTable
from penstock.settings.validation_errors import Problem


def as_field_table(value: object) -> object:
    """Accept the short form: a path alone."""
    return {"path": value} if isinstance(value, str) else value


class MissingTable(TomlModel):
    do: Annotated[WhenMissing, Field(strict=False)] = WhenMissing.KEEP
    max_drop: Ratio = 0.2
    lost_files: Annotated[LostFiles, Field(strict=False)] = LostFiles.KEEP


class BadTable(TomlModel):
    max: CountOrNone | None = None
    # more than half means a wrong declaration
    max_ratio: Ratio | None = 0.5


class ArchiveTable(TomlModel):
    after: Stored
    every: Stored = timedelta(days=30)


class DeltaTable(TomlModel):
    send: Text
    field: RecordPath
    format: TimeFormat = "%Y-%m-%dT%H:%M:%SZ"
    overlap: DurationOrNone = timedelta()


class AnyDatasetTable(TomlModel):
    """What datasets of all sources have in common."""

    key: Annotated[Texts, Field(min_length=1)]
    fields: Annotated[
        dict[OwnName, Annotated[FieldTable, BeforeValidator(as_field_table)]],
        Field(min_length=1),
    ]
    source: SourceTable | CsvTable
    shards: dict[Name, AxisTable] = Field(default_factory=dict)
    delta: DeltaTable | None = None
    search: Texts = Field(default_factory=list)
    geo: Annotated[list[Text], Field(min_length=2, max_length=2)] | None = None
    filter: Texts = Field(default_factory=list)
    missing: MissingTable = MissingTable()
    archive: ArchiveTable | None = None
    bad: BadTable = BadTable()
    # by default a tenth, and all where equal rows are one
    max_duplicates: Ratio | None = None
    version: Text | None = None
    partition: Text | None = None
    transform: Text | None = None
    priority: Annotated[int, Field(ge=-LARGEST_INT, le=LARGEST_INT)] = 0
    region: Text | None = None
    cache: DurationOrNone = timedelta(seconds=60)
    # the short form of a schedule of the same name
    every: Interval | None = None
    cron: Cron | None = None

    @property
    def has_row_key(self) -> bool:
        """Whether the whole row is the key."""
        return WHOLE_ROW in self.key

    def max_text_length(self, name: str) -> int | None:
        """Return the maximum length of an indexed text; None if it is not indexed.

        The text fields of the key and the partition share one index.
        """
        partition = [] if self.partition is None else [self.partition]
        indexed = [
            field_name
            for field_name in dict.fromkeys([*self.key, *partition])
            if field_name in self.fields
            and self.fields[field_name].type is FieldType.TEXT
        ]
        if name in indexed:
            return MAX_INDEXED_LENGTH // len(indexed)
        is_text = self.fields[name].type is FieldType.TEXT
        return MAX_INDEXED_LENGTH if is_text and name in self.filter else None

    def rules(self) -> Iterator[Problem]:
        if self.transform is not None and TRANSFORM.fullmatch(self.transform) is None:
            yield ("transform",), f"{self.transform!r} is not 'module:function'"
        if self.every is not None and self.cron is not None:
            yield ("cron",), "a schedule has one trigger, and every is given"


class DatasetTable(AnyDatasetTable):
    source: SourceTable

    @override
    def rules(self) -> Iterator[Problem]:
        yield from super().rules()
        for name, field in self.fields.items():
            if field.column is not None:
                message = "is for csv; give 'path', the path in the JSON record"
                yield ("fields", name, "column"), message


class CsvDatasetTable(AnyDatasetTable):
    source: CsvTable

    @override
    def rules(self) -> Iterator[Problem]:
        yield from super().rules()
        for key in ("shards", "delta", "transform"):
            if key in self.model_fields_set:
                yield (key,), "has no meaning for files"
        for name, field in self.fields.items():
            if field.path is not None:
                message = "is for http; give 'column', the name in the header"
                yield ("fields", name, "path"), message
