"""Turn raw rows into records; total on any input.

Nothing else can come out of a row than a record or a rejection, so a bad row never
stops a page.
"""

import marshal
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import compress
from typing import Any

from penstock.domain.casts import BadValue, compile_cast
from penstock.domain.columns import compile_column
from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.page import Key, Reason, Record, Rejection, Row
from penstock.domain.sheet import Columns, Sheet
from penstock.domain.times import plain_time, plain_times

DIGEST_BYTES = 16
# the last form of marshal in which equal values are always equal bytes
PLAIN_FORM = 2


class Mapper:
    """The compiled mapping of one dataset."""

    def __init__(self, dataset: Dataset) -> None:
        columns = dataset.columns
        self._casts = tuple(
            (each.name, dataset.place[each.path], compile_cast(each))
            for each in columns
        )
        self._column_casts = tuple(
            (dataset.place[each.path], compile_column(each)) for each in columns
        )
        self._key = tuple(dataset.column(name) for name in dataset.key)
        self._key_casts = tuple(self._casts[index] for index in self._key)
        self._dates = tuple(
            place
            for place, each in enumerate(columns)
            if each.type in {FieldType.DATE, FieldType.TIMESTAMP}
        )
        self._places = {each.name: place for place, each in enumerate(columns)}
        # the fields whose values other datasets have to know
        self.references = tuple(
            (each.name, each.references)
            for each in columns
            if each.references is not None
        )
        version = dataset.version
        self._version = None if version is None else dataset.column(version)

    def __call__(self, row: Row) -> Record | Rejection:
        """Map one row; any row gives a record or a rejection."""
        if row.unreadable is not None:
            return Rejection(
                position=row.position,
                reason=row.flaw,
                detail=row.unreadable,
                raw=row.raw,
                place=row.place,
            )
        raw = row.values
        mapped: list[object] = []
        name = ""
        try:
            for name, place, cast in self._casts:  # noqa: B007 (named in the rejection)
                mapped.append(cast(raw[place]))
        except BadValue as bad:
            return self.reject(row, bad.reason, bad.detail, field=name)
        values = tuple(mapped)
        key = tuple([values[index] for index in self._key])
        return Record(key, values, digest_of(plain(values, self._dates)))

    def map_all(self, raw: Columns) -> tuple[Sheet, Sequence[int]]:
        """Map rows by column; return the good ones, and the places of the others."""
        cast = [cast(raw[place]) for place, cast in self._column_casts]
        columns: Columns = [column for column, _ in cast]
        bad = sorted({place for _, places in cast for place in places})
        if bad:
            dropped = set(bad)
            rows = range(len(columns[0]))
            kept = [place not in dropped for place in rows]
            columns = [[*compress(column, kept)] for column in columns]
        keys = [*zip(*(columns[index] for index in self._key), strict=True)]
        counted = {place: plain_times(columns[place]) for place in self._dates}
        hashed = [counted.get(place, column) for place, column in enumerate(columns)]
        digests = digests_of(zip(*hashed, strict=True))
        return Sheet(keys, columns, digests, counted), bad

    @property
    def has_version(self) -> bool:
        """Whether the newest of the rows of a key wins, wherever it stands."""
        return self._version is not None

    def column(self, name: str) -> int:
        """Return the place of a field in the values of a record."""
        return self._places[name]

    def reject(
        self, row: Row, reason: Reason, detail: str, *, field: str | None = None
    ) -> Rejection:
        """Describe a bad row, with its key if the key can be read."""
        return Rejection(
            position=row.position,
            reason=reason,
            detail=detail,
            raw=row.raw,
            field=field,
            key=self.key_of(row),
            place=row.place,
        )

    def key_of(self, row: Row) -> Key | None:
        """Read the key of a row that may be bad elsewhere."""
        if row.unreadable is not None:
            return None
        try:
            return tuple(cast(row.values[place]) for _, place, cast in self._key_casts)
        except BadValue:
            return None

    def resolve(self, records: Iterable[Record]) -> Sheet:
        """Keep one record of each key: the newest version, else the last."""
        sheet = Sheet.of(records)
        if len(set(sheet.keys)) == len(sheet):
            return sheet
        kept: dict[Key, int] = {}
        for place, key in enumerate(sheet.keys):
            known = kept.get(key)
            if known is None or not self._is_older(sheet, place, known):
                kept[key] = place
        return sheet.at([*kept.values()])

    def _is_older(self, sheet: Sheet, place: int, known: int) -> bool:
        if self._version is None:
            return False
        versions = sheet.columns[self._version]
        mine, theirs = versions[place], versions[known]
        if mine is None or theirs is None:
            return mine is None and theirs is not None
        return bool(mine < theirs)


def content_digest(values: Sequence[object]) -> bytes:
    """Hash the declared fields only, the same in every process."""
    return digest_of(plain(values, range(len(values))))


def plain(values: Sequence[object], dates: Sequence[int]) -> tuple[object, ...]:
    """Return values of which these places may hold a day or a time, without either."""
    if not dates:
        return tuple(values)
    known = list(values)
    for place in dates:
        known[place] = plain_time(known[place])
    return tuple(known)


def digest_of(values: tuple[Any, ...]) -> bytes:
    """Hash plain values."""
    return digests_of([values])[0]


def digests_of(rows: Iterable[tuple[Any, ...]]) -> list[bytes]:
    """Hash rows of plain values.

    Written by `marshal` in the old form that depends on nothing but the values: it is
    an eighth of the cost of JSON, and hashing is what a record costs most.
    """
    dumps = marshal.dumps
    return [
        blake2b(dumps(row, PLAIN_FORM), digest_size=DIGEST_BYTES).digest()
        for row in rows
    ]
