"""Turn raw rows into records; total on any input.

Nothing else can come out of a row than a record or a rejection, so a bad row never
stops a page.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import blake2b

from penstock.domain.casts import BadValue, compile_cast
from penstock.domain.dataset import Dataset
from penstock.domain.page import Reason, Record, Rejection, Row
from penstock.domain.text import format_instant

DIGEST_BYTES = 16


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
        return Record(key, values, content_digest(values))

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
    """Hash the declared fields only, the same in every process and version."""
    text = encode_canonically(values)
    return blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def canonical(value: object) -> str:
    return format_instant(value) if isinstance(value, datetime) else str(value)


# built once: json.dumps would build an encoder for every record
encode_canonically = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), default=canonical
).encode
