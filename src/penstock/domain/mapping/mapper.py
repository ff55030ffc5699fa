"""Map raw rows to records.

Every row gives a record or a rejection, so a bad row never stops a page.
"""

import marshal
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from hashlib import blake2b
from itertools import compress
from typing import Any

from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.exact_decimals import write_decimal, write_decimals
from penstock.domain.formats import time_to_number, times_to_numbers
from penstock.domain.mapping.column_converters import compile_column
from penstock.domain.mapping.columnar import ColumnarRecords, Columns
from penstock.domain.mapping.converters import BadValue, compile_cast
from penstock.domain.pages import Key, RawRow, Reason, Record, Rejection

DIGEST_BYTES = 16
# the last version of marshal in which equal values are always equal bytes
MARSHAL_VERSION = 2
# the types whose values are encoded before they are hashed
ENCODERS: Mapping[FieldType, Callable[[Sequence[Any]], Sequence[Any]]] = {
    FieldType.DATE: times_to_numbers,
    FieldType.TIMESTAMP: times_to_numbers,
    FieldType.DECIMAL: write_decimals,
}


class Mapper:
    """The compiled mapping of one dataset."""

    def __init__(self, dataset: Dataset) -> None:
        columns = dataset.columns
        self._casts = tuple(
            (column.name, dataset.path_index[column.path], compile_cast(column))
            for column in dataset.read_columns
        )
        self._column_casts = tuple(
            (dataset.path_index[column.path], compile_column(column))
            for column in dataset.read_columns
        )
        self._key = tuple(dataset.column(name) for name in dataset.key)
        self._hashed = dataset.hashed_columns
        self._has_row_key = dataset.has_row_key
        self._key_casts = (
            self._casts
            if self._has_row_key
            else tuple(self._casts[index] for index in self._key)
        )
        # how the values of columns become ones that can be hashed
        self._encoders = {
            index: ENCODERS[column.type]
            for index, column in enumerate(columns)
            if column.type in ENCODERS
        }
        self._indexes = {column.name: index for index, column in enumerate(columns)}
        # the fields whose values must be stored in another dataset
        self.references = tuple(
            (column.name, column.references)
            for column in columns
            if column.references is not None
        )
        version = dataset.version
        self._version = None if version is None else dataset.column(version)

    def __call__(self, row: RawRow) -> Record | Rejection:
        """Map one row."""
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
            for name, index, cast in self._casts:  # noqa: B007 (named in the rejection)
                mapped.append(cast(raw[index]))
        except BadValue as bad:
            return self.reject(row, bad.reason, bad.detail, field=name)
        values = tuple(mapped)
        if self._has_row_key:
            return self._identify(values)
        key = tuple([values[index] for index in self._key])
        return Record(
            key, values, digest_of(with_plain_values(values, [*self._encoders]))
        )

    def map_all(self, raw: Columns) -> tuple[ColumnarRecords, Sequence[int]]:
        """Map rows by column; return the good ones, and the positions of the others."""
        cast = [cast(raw[index]) for index, cast in self._column_casts]
        columns: Columns = [column for column, _ in cast]
        bad = sorted({position for _, positions in cast for position in positions})
        if bad:
            dropped = set(bad)
            is_good = [position not in dropped for position in range(len(columns[0]))]
            columns = [[*compress(column, is_good)] for column in columns]
        if self._has_row_key:
            # its place, until the others are hashed
            columns = [(), *columns]
        counted = {
            index: encode(columns[index]) for index, encode in self._encoders.items()
        }
        hashed = [counted.get(index, columns[index]) for index in self._hashed]
        digests = digests_of(zip(*hashed, strict=True))
        if self._has_row_key:
            columns = [[digest.hex() for digest in digests], *columns[1:]]
        keys = [*zip(*(columns[index] for index in self._key), strict=True)]
        return ColumnarRecords(keys, columns, digests, counted), bad

    @property
    def has_version(self) -> bool:
        """Whether the newest of the rows of a key wins, whatever their order."""
        return self._version is not None

    def column(self, name: str) -> int:
        """Return the index of a field in the values of a record."""
        return self._indexes[name]

    def reject(
        self, row: RawRow, reason: Reason, detail: str, *, field: str | None = None
    ) -> Rejection:
        """Build the rejection of a bad row, with its key if that can be read."""
        return Rejection(
            position=row.position,
            reason=reason,
            detail=detail,
            raw=row.raw,
            field=field,
            key=self.key_of(row),
            place=row.place,
        )

    def key_of(self, row: RawRow) -> Key | None:
        """Return the key of a row, or None if it is bad itself."""
        if row.unreadable is not None:
            return None
        try:
            key = tuple(cast(row.values[index]) for _, index, cast in self._key_casts)
        except BadValue:
            return None
        return self._identify(key).key if self._has_row_key else key

    def _identify(self, read: Sequence[object]) -> Record:
        """Build the record of a row whose key is the hash of its values."""
        digest = row_digest((None, *read), self._hashed)
        key = digest.hex()
        return Record((key,), (key, *read), digest)

    def resolve(self, records: Iterable[Record]) -> ColumnarRecords:
        """Return one record of each key: the newest version, else the last."""
        columnar = ColumnarRecords.of(records)
        if len(set(columnar.keys)) == len(columnar):
            return columnar
        winners: dict[Key, int] = {}
        for position, key in enumerate(columnar.keys):
            winner = winners.get(key)
            if winner is None or not self._is_older(columnar, position, winner):
                winners[key] = position
        return columnar.at([*winners.values()])

    def _is_older(self, records: ColumnarRecords, position: int, other: int) -> bool:
        if self._version is None:
            return False
        versions = records.columns[self._version]
        version, other_version = versions[position], versions[other]
        if version is None or other_version is None:
            return version is None and other_version is not None
        return bool(version < other_version)


def content_digest(values: Sequence[object]) -> bytes:
    """Hash the declared fields only, the same in every process."""
    return digest_of(with_plain_values(values, range(len(values))))


def row_digest(values: Sequence[object], hashed: Sequence[int]) -> bytes:
    """Hash some of the columns of a record, in this order."""
    return content_digest([values[index] for index in hashed])


def with_plain_values(
    values: Sequence[object], indexes: Sequence[int]
) -> tuple[object, ...]:
    """Replace times and dates at these indexes by numbers, and decimals by texts."""
    if not indexes:
        return tuple(values)
    converted = list(values)
    for index in indexes:
        converted[index] = to_plain_value(converted[index])
    return tuple(converted)


def to_plain_value(value: object) -> object:
    """Return a value as it is hashed: times as numbers, decimals as texts."""
    return write_decimal(value) if isinstance(value, Decimal) else time_to_number(value)


def digest_of(values: tuple[Any, ...]) -> bytes:
    """Hash one row of values without times, dates and decimals."""
    return digests_of([values])[0]


def digests_of(rows: Iterable[tuple[Any, ...]]) -> list[bytes]:
    """Hash rows of values without times, dates and decimals.

    The old version of `marshal` depends on nothing but the values. It has an eighth of
    the cost of JSON, and hashing is the main cost of a record.
    """
    dumps = marshal.dumps
    return [
        blake2b(dumps(row, MARSHAL_VERSION), digest_size=DIGEST_BYTES).digest()
        for row in rows
    ]
