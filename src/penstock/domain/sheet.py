"""Rows and records by column: what is done to all of them is done at once."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias, overload

from typing_extensions import override

from penstock.domain.page import Key, Place, Record, Row

Columns: TypeAlias = Sequence[Sequence[Any]]
NOTHING: Mapping[int, Sequence[Any]] = MappingProxyType({})

# returns the very bytes of the rows at some places, and where in a file they stand
Details: TypeAlias = Callable[[Sequence[int]], Sequence[tuple[bytes, Place | None]]]


class RawSheet(Sequence[Row]):
    """Raw rows that are columns until somebody asks for one of them."""

    def __init__(self, columns: Columns, details: Details) -> None:
        self.columns = columns
        # finding the bytes of each row is only for the bad ones
        self._details = details

    def upto(self, end: int) -> "RawSheet":
        """Return the first rows only."""
        return RawSheet([column[:end] for column in self.columns], self._details)

    def at(self, positions: Sequence[int]) -> list[Row]:
        """Return the rows at some positions."""
        return [
            Row(
                tuple([column[position] for column in self.columns]),
                raw,
                position,
                place=place,
            )
            for position, (raw, place) in zip(
                positions, self._details(positions), strict=True
            )
        ]

    @override
    def __len__(self) -> int:
        return len(self.columns[0])

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Row]: ...
    @override
    def __getitem__(self, place: int | slice) -> Row | Sequence[Row]:
        return self.at(range(len(self)))[place]

    @override
    def __iter__(self) -> Iterator[Row]:
        return iter(self.at(range(len(self))))


def column(rows: Sequence[Row], place: int) -> Sequence[Any]:
    """Return the values of all rows at one place."""
    if isinstance(rows, RawSheet):
        return rows.columns[place]
    return [row.values[place] for row in rows]


class Sheet(Sequence[Record]):
    """Records of different keys, by column."""

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
        # columns of times and days by their place, as the numbers that were hashed:
        # whoever stores them needs not count again
        self.counted = counted

    @classmethod
    def of(cls, records: Iterable[Record]) -> "Sheet":
        if isinstance(records, Sheet):
            return records
        known = list(records)
        columns = [*zip(*(record.values for record in known), strict=True)]
        keys = [record.key for record in known]
        return cls(keys, columns, [record.digest for record in known])

    def at(self, places: Sequence[int]) -> "Sheet":
        """Return the records at some places, in their order."""

        def chosen(column: Sequence[Any]) -> list[Any]:
            return [column[place] for place in places]

        columns = [chosen(column) for column in self.columns]
        counted = {at: chosen(column) for at, column in self.counted.items()}
        return Sheet(chosen(self.keys), columns, chosen(self.digests), counted)

    def by_key(self) -> "Sheet":
        """Return the same records in the order of their keys."""
        keys: Sequence[Any] = self.keys
        # the records of a page are in order already where they come by key
        if sorted(keys) == list(keys):
            return self
        return self.at(sorted(range(len(keys)), key=keys.__getitem__))

    @override
    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Record]: ...
    @override
    def __getitem__(self, place: int | slice) -> Record | Sequence[Record]:
        return list(self)[place]

    @override
    def __iter__(self) -> Iterator[Record]:
        values = zip(*self.columns, strict=True)
        return map(Record, self.keys, values, self.digests)
