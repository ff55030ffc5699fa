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
from penstock.domain.exact_decimals import write_decimals
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
# of a numeric: the digits of a group, the sign, and the length of the header in groups
GROUP_DIGITS, NEGATIVE, NUMERIC_HEADER = 4, 0x4000, 4
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
    # converts a column to the values that are encoded
    convert: Callable[[Column], Column] | None = None

    def __call__(self, column: Column) -> Encoded:
        return self.of(column if self.convert is None else self.convert(column))

    def of(self, column: Column) -> Encoded:
        """Encode a column of times as numbers, or of decimals as texts."""
        # the flag says that there may be nulls, so they need not be searched for
        header = HEADER.pack(1, 1, self.element, len(column), 1)
        return self.encoded(header + self.write(column))


def array_type(
    name: str,
    element: int,
    oid: int,
    write: Callable[[Column], bytes],
    convert: Callable[[Column], Column] | None = None,
) -> ArrayType:
    dumper = type(f"{name}Dumper", (EncodedDumper,), {"oid": oid})
    return ArrayType(element, write, type(name, (Encoded,), {}), dumper, convert)


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


def write_numerics(column: Column) -> bytes:
    return b"".join([NULL if text is None else encode_numeric(text) for text in column])


def encode_numeric(text: str) -> bytes:
    """Encode a number without an exponent: groups of four digits, as base 10,000.

    `weight` is the power of the first group, and `scale` the number of digits after the
    point, zeros at the end included.
    """
    sign = NEGATIVE if text[0] == "-" else 0
    whole, _, fraction = text.lstrip("-").partition(".")
    scale = len(fraction)
    whole = whole.zfill(-(-len(whole) // GROUP_DIGITS) * GROUP_DIGITS)
    fraction = fraction.ljust(-(-scale // GROUP_DIGITS) * GROUP_DIGITS, "0")
    digits = whole + fraction
    groups = [
        int(digits[at : at + GROUP_DIGITS])
        for at in range(0, len(digits), GROUP_DIGITS)
    ]
    weight = len(whole) // GROUP_DIGITS - 1
    while groups and not groups[0]:
        del groups[0]
        weight -= 1
    while groups and not groups[-1]:
        del groups[-1]
    count = len(groups)
    return struct.pack(
        f"!ihhHh{count}h",
        *(
            2 * (NUMERIC_HEADER + count),
            count,
            max(weight, 0) if not groups else weight,
        ),
        *(sign, scale, *groups),
    )


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
    FieldType.DECIMAL: array_type(
        "Decimals", 1700, 1231, write_numerics, write_decimals
    ),
    FieldType.BOOL: array_type("Bools", 16, 1000, write_bools),
    FieldType.DATE: array_type("Days", 1082, 1182, write_days, times_to_numbers),
    FieldType.TIMESTAMP: array_type("Times", 1184, 1185, write_times, times_to_numbers),
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
