"""Columns in the server's binary array format: a page is one parameter a column.

The driver encodes arrays value by value in Python. Here a column is encoded by
functions that iterate in C, which takes a fifth of the time.
"""

import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import chain
from typing import Any, TypeAlias

from psycopg import Connection
from psycopg.adapt import Dumper
from psycopg.pq import Format
from typing_extensions import override

from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.formats import EPOCH, MICROSECOND, times_to_numbers
from penstock.domain.mapping.columnar import ColumnarRecords
from penstock.domain.mapping.mapper import DIGEST_BYTES
from penstock.domain.pages import Key

Column: TypeAlias = Sequence[Any]

# dimensions, whether there are nulls, the element type, length, and lower bound
HEADER = struct.Struct("!iiiii")
LENGTH = struct.Struct("!i")
NULL = LENGTH.pack(-1)
# the length prefixes of short texts, as bytes and as ASCII text
PREFIXES = [LENGTH.pack(length) for length in range(128)]
ASCII_PREFIXES = [prefix.decode("ascii") for prefix in PREFIXES]
LONG, DOUBLE, INTEGER = struct.Struct("!iq"), struct.Struct("!id"), struct.Struct("!ii")
BOOLS = {True: b"\0\0\0\1\1", False: b"\0\0\0\1\0"}
# the server's epoch
POSTGRES_EPOCH = (datetime(2000, 1, 1, tzinfo=UTC) - EPOCH) // MICROSECOND
POSTGRES_EPOCH_DAY = date(2000, 1, 1).toordinal()


class Encoded(bytes):
    """An array in the wire format; the driver finds its type by its class."""

    __slots__ = ()


class EncodedDumper(Dumper):
    format = Format.BINARY

    @override
    def dump(self, obj: Encoded) -> bytes:
        return obj


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A type of column: its encoder, and its types on the server and in the driver."""

    element: int
    write: Callable[[Column], bytes]
    encoded: type[Encoded]
    dumper: type[EncodedDumper]
    # its values (times, dates) are encoded as numbers
    is_numeric: bool = False

    def __call__(self, column: Column) -> Encoded:
        return self.of(times_to_numbers(column) if self.is_numeric else column)

    def of(self, column: Column) -> Encoded:
        """Encode a column whose times and days are numbers already."""
        # the flag says that there may be nulls, so they need not be searched for
        header = HEADER.pack(1, 1, self.element, len(column), 1)
        return self.encoded(header + self.write(column))


def array_type(
    name: str,
    element: int,
    oid: int,
    write: Callable[[Column], bytes],
    *,
    is_numeric: bool = False,
) -> ArrayType:
    dumper = type(f"{name}Dumper", (EncodedDumper,), {"oid": oid})
    return ArrayType(element, write, type(name, (Encoded,), {}), dumper, is_numeric)


def fixed_width(typecode: str, layout: struct.Struct) -> Callable[[Column], bytes]:
    """Return an encoder of eight-byte values, each with its length prefix."""
    pack, size = layout.pack, layout.size - LENGTH.size

    def write(column: Column) -> bytes:
        try:
            values = array(typecode, column)
        except TypeError:
            return b"".join([NULL if v is None else pack(size, v) for v in column])
        if sys.byteorder == "little":
            values.byteswap()
        halves = array("i", values.tobytes())
        encoded = array("i", LENGTH.pack(size)) * (3 * len(column))
        encoded[1::3] = halves[0::2]
        encoded[2::3] = halves[1::2]
        return encoded.tobytes()

    return write


write_ints = fixed_width("q", LONG)


def write_times(column: Column) -> bytes:
    return write_ints([None if at is None else at - POSTGRES_EPOCH for at in column])


def write_days(column: Column) -> bytes:
    pack = INTEGER.pack
    return b"".join(
        [NULL if day is None else pack(4, day - POSTGRES_EPOCH_DAY) for day in column]
    )


def write_bools(column: Column) -> bytes:
    return b"".join([BOOLS.get(value, NULL) for value in column])


def write_texts(column: Column) -> bytes:
    """Encode texts; all in one pass where they are short."""
    try:
        if "".join(column).isascii():
            return "".join(with_prefixes(ASCII_PREFIXES, column)).encode("ascii")
        return b"".join(with_prefixes(PREFIXES, [*map(str.encode, column)]))
    except (TypeError, IndexError):
        return b"".join(
            [NULL if v is None else with_length(v.encode()) for v in column]
        )


def with_prefixes(prefixes: Sequence[Any], column: Column) -> Iterable[Any]:
    """Put its length before each value; raise `IndexError` if one is long."""
    lengths = map(prefixes.__getitem__, map(len, column))
    return chain.from_iterable(zip(lengths, column, strict=True))


def with_length(value: bytes) -> bytes:
    return LENGTH.pack(len(value)) + value


def write_digests(column: Column) -> bytes:
    """Encode digests, which all have the same length."""
    prefix = LENGTH.pack(DIGEST_BYTES)
    return prefix + prefix.join(column) if column else b""


TEXTS = array_type("Texts", 25, 1009, write_texts)
DIGESTS = array_type("Digests", 17, 1001, write_digests)
ARRAYS: Mapping[FieldType, ArrayType] = {
    FieldType.TEXT: TEXTS,
    FieldType.INT: array_type("Ints", 20, 1016, write_ints),
    FieldType.FLOAT: array_type("Floats", 701, 1022, fixed_width("d", DOUBLE)),
    FieldType.BOOL: array_type("Bools", 16, 1000, write_bools),
    FieldType.DATE: array_type("Days", 1082, 1182, write_days, is_numeric=True),
    FieldType.TIMESTAMP: array_type("Times", 1184, 1185, write_times, is_numeric=True),
    # cast to json by the statement
    FieldType.JSON: TEXTS,
}


def key_arrays(dataset: Dataset, keys: Sequence[Key]) -> dict[str, object]:
    """Return keys as the numbered parameters of a statement."""
    types = [dataset.columns[dataset.column(name)].type for name in dataset.key]
    columns = zip(types, zip(*keys, strict=True), strict=True)
    return {
        f"key_{at}": ARRAYS[kind](column) for at, (kind, column) in enumerate(columns)
    }


def page_arrays(dataset: Dataset, columnar: ColumnarRecords) -> dict[str, object]:
    """Return rows as the numbered parameters of a statement."""
    arrays: dict[str, object] = {}
    for at, (field, column) in enumerate(
        zip(dataset.columns, columnar.columns, strict=True)
    ):
        encode, numbers = ARRAYS[field.type], columnar.counted.get(at)
        arrays[f"column_{at}"] = (
            encode(column) if numbers is None else encode.of(numbers)
        )
    return {**arrays, "digests": DIGESTS(columnar.digests)}


def register_array_dumpers(connection: Connection[Any]) -> None:
    """Register the dumpers of the encoded arrays."""
    for kind in {*ARRAYS.values(), DIGESTS}:
        connection.adapters.register_dumper(kind.encoded, kind.dumper)
