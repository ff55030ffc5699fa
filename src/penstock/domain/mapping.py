"""Turn raw rows into records; total on any input.

Nothing else can come out of a row than a record or a rejection, so a bad row never
stops a page.
"""

import marshal
from collections.abc import Iterable, Sequence
from datetime import date
from hashlib import blake2b
from typing import Any

from penstock.domain.casts import BadValue, compile_cast
from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.page import Reason, Record, Rejection, Row

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
        self._key = tuple(dataset.column(name) for name in dataset.key)
        self._key_casts = tuple(self._casts[index] for index in self._key)
        self._dates = tuple(
            place
            for place, each in enumerate(columns)
            if each.type in {FieldType.DATE, FieldType.TIMESTAMP}
        )
        version = dataset.version
        self._version = None if version is None else dataset.column(version)

    def __call__(self, row: Row) -> Record | Rejection:
        """Map one row; any row gives a record or a rejection."""
        if row.unreadable is not None:
            return Rejection(
                position=row.position,
                reason=Reason.UNREADABLE,
                detail=row.unreadable,
                raw=row.raw,
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
        return Record(key, values, digest_of(values, self._dates))

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
        )

    def key_of(self, row: Row) -> tuple[object, ...] | None:
        """Read the key of a row that may be bad elsewhere."""
        if row.unreadable is not None:
            return None
        try:
            return tuple(cast(row.values[place]) for _, place, cast in self._key_casts)
        except BadValue:
            return None

    def resolve(self, records: Iterable[Record]) -> list[Record]:
        """Keep one record of each key: the newest version, else the last."""
        kept: dict[tuple[object, ...], Record] = {}
        for record in records:
            known = kept.get(record.key)
            if known is None or not self._is_older(record, known):
                kept[record.key] = record
        return list(kept.values())

    def _is_older(self, record: Record, known: Record) -> bool:
        if self._version is None:
            return False
        mine, theirs = record.values[self._version], known.values[self._version]
        if mine is None or theirs is None:
            return mine is None and theirs is not None
        return bool(mine < theirs)  # type: ignore[operator]


def content_digest(values: Sequence[object]) -> bytes:
    """Hash the declared fields only, the same in every process."""
    dates = [place for place, value in enumerate(values) if isinstance(value, date)]
    return digest_of(values, dates)


def digest_of(values: Sequence[Any], dates: Sequence[int]) -> bytes:
    """Hash values of which these places may hold a day or a time.

    Written by `marshal` in the old form that depends on nothing but the values: it is
    an eighth of the cost of JSON, and hashing is what a record costs most.
    """
    if dates:
        plain = list(values)
        for place in dates:
            value = plain[place]
            if isinstance(value, date):
                plain[place] = value.isoformat()
        values = plain
    return blake2b(
        marshal.dumps(tuple(values), PLAIN_FORM), digest_size=DIGEST_BYTES
    ).digest()
