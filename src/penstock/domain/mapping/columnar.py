"""Rows and records stored by column, so that they are processed in bulk."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias, overload

from typing_extensions import override

from penstock.domain.pages import Key, RawRow, Record, RowLocation

Columns: TypeAlias = Sequence[Sequence[Any]]
NOTHING: Mapping[int, Sequence[Any]] = MappingProxyType({})

# returns the bytes of the rows at some indexes, and their locations in a file
RowDetails: TypeAlias = Callable[
    [Sequence[int]], Sequence[tuple[bytes, RowLocation | None]]
]


class ColumnarRows(Sequence[RawRow]):
    """Raw rows as columns; row objects are built on access."""

    def __init__(self, columns: Columns, details: RowDetails) -> None:
        self.columns = columns
        # called for bad rows only: finding their bytes is slow
        self._details = details

    def first_rows(self, end: int) -> "ColumnarRows":
        """Return the first rows only."""
        return ColumnarRows([column[:end] for column in self.columns], self._details)

    def at(self, positions: Sequence[int]) -> list[RawRow]:
        """Return the rows at some positions."""
        return [
            RawRow(
                tuple([column[position] for column in self.columns]),
                raw,
                position,
                place=location,
            )
            for position, (raw, location) in zip(
                positions, self._details(positions), strict=True
            )
        ]

    @override
    def __len__(self) -> int:
        return len(self.columns[0])

    @overload
    def __getitem__(self, index: int) -> RawRow: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RawRow]: ...
    @override
    def __getitem__(self, index: int | slice) -> RawRow | Sequence[RawRow]:
        return self.at(range(len(self)))[index]

    @override
    def __iter__(self) -> Iterator[RawRow]:
        return iter(self.at(range(len(self))))


def column_values(rows: Sequence[RawRow], index: int) -> Sequence[Any]:
    """Return the values of one column of all rows."""
    if isinstance(rows, ColumnarRows):
        return rows.columns[index]
    return [row.values[index] for row in rows]


class ColumnarRecords(Sequence[Record]):
    """Records by column."""

    def __init__(
        self,
        keys: Sequence[Key],
        columns: Columns,
        digests: Sequence[bytes],
        counted: Mapping[int, Sequence[Any]] = NOTHING,
    ) -> None:
        self.keys = keys
        self.columns = columns
        self.digests = digests
        # columns of times, dates and decimals by index, as they were hashed, so that
        # stores need not convert them again
        self.counted = counted

    @classmethod
    def of(cls, records: Iterable[Record]) -> "ColumnarRecords":
        if isinstance(records, ColumnarRecords):
            return records
        listed = list(records)
        columns = [*zip(*(record.values for record in listed), strict=True)]
        keys = [record.key for record in listed]
        return cls(keys, columns, [record.digest for record in listed])

    def at(self, positions: Sequence[int]) -> "ColumnarRecords":
        """Return the records at some positions, in that order."""

        def select(column: Sequence[Any]) -> list[Any]:
            return [column[position] for position in positions]

        columns = [select(column) for column in self.columns]
        counted = {index: select(column) for index, column in self.counted.items()}
        return ColumnarRecords(
            select(self.keys), columns, select(self.digests), counted
        )

    def by_key(self) -> "ColumnarRecords":
        """Return the same records in the order of their keys."""
        keys: Sequence[Any] = self.keys
        # pages of keyset pagination are in key order already
        if sorted(keys) == list(keys):
            return self
        return self.at(sorted(range(len(keys)), key=keys.__getitem__))

    @override
    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    @override
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        return list(self)[index]

    @override
    def __iter__(self) -> Iterator[Record]:
        values = zip(*self.columns, strict=True)
        return map(Record, self.keys, values, self.digests)
