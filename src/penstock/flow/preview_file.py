"""Preview a file: which columns are known, and which rows would be bad."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.domain.dataset import Dataset
from penstock.domain.mapping.mapper import Mapper
from penstock.domain.mapping.page_mapper import separate_rows
from penstock.domain.pages import Key, Page, Reason, Rejection
from penstock.domain.sharding.shard import never_outside
from penstock.ports import Records
from penstock.ports.file_preview import FilePreviews, FileStart


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRows:
    """Rows that are bad for one reason in one field, and the first of them."""

    reason: Reason
    field: str | None
    rows: int
    detail: str
    line: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCheck:
    """What would become of the first rows of a file."""

    rows: int
    bad: int
    # good rows that another row of their key would replace
    repeated: int
    reasons: Sequence[BadRows]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePreview:
    start: FileStart
    # by declared column: the fields that it fills, and whether the file has it
    fields: Mapping[str, Sequence[str]]
    # declared columns that the file does not have
    missing: Sequence[str]
    # None if an import would refuse the file
    check: SampleCheck | None


class PreviewFile:
    def __init__(self, *, previews: FilePreviews, records: Records) -> None:
        self._previews = previews
        self._records = records

    def __call__(self, dataset: Dataset, start: bytes, *, name: str) -> FilePreview:
        """Read and map the beginning of a file; nothing is stored."""
        read = self._previews.read(dataset, start, name=name)
        fields: dict[str, list[str]] = {".".join(path): [] for path in dataset.paths}
        for column in dataset.read_columns:
            fields[".".join(column.path)].append(column.name)
        return FilePreview(
            start=read,
            fields=fields,
            missing=[name for name in fields if name not in read.names],
            check=None if read.problems else self._check(dataset, read.pages),
        )

    def _check(self, dataset: Dataset, pages: Iterable[Page]) -> SampleCheck:
        mapper, find_unknown = Mapper(dataset), self._records.unknown
        rows, keys, rejections = 0, Counter[Key](), list[Rejection]()
        for page in pages:
            good, bad = separate_rows(
                mapper, page, never_outside, find_unknown, shard=""
            )
            rows += len(page.rows) + len(page.bad_rows)
            keys.update(good.records.keys)
            rejections += bad
        return SampleCheck(
            rows=rows,
            bad=len(rejections),
            repeated=keys.total() - len(keys),
            reasons=group_by_reason(rejections),
        )


def group_by_reason(rejections: Sequence[Rejection]) -> Sequence[BadRows]:
    """Count rejections by reason and field, the most frequent first."""
    groups: dict[tuple[Reason, str | None], list[Rejection]] = {}
    for rejection in rejections:
        key = rejection.reason, rejection.field
        groups.setdefault(key, []).append(rejection)
    found = [
        BadRows(
            reason=reason,
            field=field,
            rows=len(group),
            detail=group[0].detail,
            line=None if group[0].place is None else group[0].place.line,
        )
        for (reason, field), group in groups.items()
    ]
    return sorted(found, key=lambda bad: -bad.rows)
