"""A dataset as it is written."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, Field
from typing_extensions import override

from penstock.domain.dataset import LONGEST_INDEXED, FieldType, LostFiles, WhenMissing
from penstock.settings.declared import (
    LARGEST_INT,
    TRANSFORM,
    CountOrNone,
    Declared,
    DurationOrNone,
    Name,
    OwnName,
    Ratio,
    RecordPath,
    Text,
    Texts,
    TimeFormat,
)
from penstock.settings.declared_axes import AxisTable
from penstock.settings.declared_field import FieldTable
from penstock.settings.declared_source import CsvTable, SourceTable
from penstock.settings.problems import Problem


def as_field_table(value: object) -> object:
    """Read the short form: text at a path."""
    return {"path": value} if isinstance(value, str) else value


class MissingTable(Declared):
    do: Annotated[WhenMissing, Field(strict=False)] = WhenMissing.KEEP
    max_drop: Ratio = 0.2
    lost_files: Annotated[LostFiles, Field(strict=False)] = LostFiles.KEEP


class BadTable(Declared):
    max: CountOrNone | None = None
    # more than half is no bad luck but a wrong declaration
    max_ratio: Ratio | None = 0.5


class DeltaTable(Declared):
    send: Text
    field: RecordPath
    format: TimeFormat = "%Y-%m-%dT%H:%M:%SZ"
    overlap: DurationOrNone = timedelta()


class AnyDatasetTable(Declared):
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
    bad: BadTable = BadTable()
    version: Text | None = None
    partition: Text | None = None
    transform: Text | None = None
    priority: Annotated[int, Field(ge=-LARGEST_INT, le=LARGEST_INT)] = 0
    region: Text | None = None
    cache: DurationOrNone = timedelta(seconds=60)

    def longest_text(self, name: str) -> int | None:
        """Return how much of a text field an index can hold, if there is one.

        The fields of a key share one index, and so does what divides the rows.
        """
        divided = [] if self.partition is None else [self.partition]
        together = [
            each
            for each in dict.fromkeys([*self.key, *divided])
            if each in self.fields and self.fields[each].type is FieldType.TEXT
        ]
        if name in together:
            return LONGEST_INDEXED // len(together)
        is_text = self.fields[name].type is FieldType.TEXT
        return LONGEST_INDEXED if is_text and name in self.filter else None

    def rules(self) -> Iterator[Problem]:
        if self.transform is not None and TRANSFORM.fullmatch(self.transform) is None:
            yield ("transform",), f"{self.transform!r} is not 'module:function'"


class DatasetTable(AnyDatasetTable):
    source: SourceTable

    @override
    def rules(self) -> Iterator[Problem]:
        yield from super().rules()
        for name, field in self.fields.items():
            if field.column is not None:
                told = "is for csv; give 'path', the place in the JSON record"
                yield ("fields", name, "column"), told


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
                told = "is for http; give 'column', the name in the header"
                yield ("fields", name, "path"), told
