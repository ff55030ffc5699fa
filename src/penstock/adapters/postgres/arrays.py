"""Columns as the server's binary arrays: a page is one parameter a column.

The driver writes arrays value by value in Python. Here a column is written by functions
that walk it in C, which takes a fifth of the time.
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
from penstock.domain.mapping import DIGEST_BYTES
from penstock.domain.page import Key
from penstock.domain.sheet import Sheet
from penstock.domain.times import EPOCH, MICROSECOND, plain_times

Column: TypeAlias = Sequence[Any]

# one dimension, whether it has nulls, the type of its elements, how many, from which
HEAD = struct.Struct("!iiiii")
LENGTH = struct.Struct("!i")
NULL = LENGTH.pack(-1)
# lengths as they stand before short texts, also as the plain letters that they are
PREFIXES = [LENGTH.pack(length) for length in range(128)]
PLAIN_PREFIXES = [prefix.decode("ascii") for prefix in PREFIXES]
LONG, DOUBLE, INTEGER = struct.Struct("!iq"), struct.Struct("!id"), struct.Struct("!ii")
TRUTHS = {True: b"\0\0\0\1\1", False: b"\0\0\0\1\0"}
# the server counts from here
FIRST_INSTANT = (datetime(2000, 1, 1, tzinfo=UTC) - EPOCH) // MICROSECOND
FIRST_DAY = date(2000, 1, 1).toordinal()


class Encoded(bytes):
    """An array as it travels; its class tells the driver the type."""

    __slots__ = ()


class EncodedDumper(Dumper):
    format = Format.BINARY

    @override
    def dump(self, obj: Encoded) -> bytes:
        return obj


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A type of columns: how they are written, and what the server calls them."""

    element: int
    write: Callable[[Column], bytes]
    encoded: type[Encoded]
    dumper: type[EncodedDumper]
    # its values are written as numbers
    is_counted: bool = False

    def __call__(self, column: Column) -> Encoded:
        return self.of(plain_times(column) if self.is_counted else column)

    def of(self, column: Column) -> Encoded:
        """Write a column whose times and days are numbers already."""
        # that there may be nulls is true of every array; it need not be looked for
        head = HEAD.pack(1, 1, self.element, len(column), 1)
        return self.encoded(head + self.write(column))


def array_type(
    name: str,
    element: int,
    oid: int,
    write: Callable[[Column], bytes],
    *,
    is_counted: bool = False,
) -> ArrayType:
    dumper = type(f"{name}Dumper", (EncodedDumper,), {"oid": oid})
    return ArrayType(element, write, type(name, (Encoded,), {}), dumper, is_counted)


def fixed(kind: str, one: struct.Struct) -> Callable[[Column], bytes]:
    """Return how eight-byte values are written, each with its length before it."""
    pack, size = one.pack, one.size - LENGTH.size

    def write(column: Column) -> bytes:
        try:
            values = array(kind, column)
        except TypeError:
            return b"".join([NULL if v is None else pack(size, v) for v in column])
        if sys.byteorder == "little":
            values.byteswap()
        halves = array("i", values.tobytes())
        written = array("i", LENGTH.pack(size)) * (3 * len(column))
        written[1::3] = halves[0::2]
        written[2::3] = halves[1::2]
        return written.tobytes()

    return write


write_ints = fixed("q", LONG)


def write_times(column: Column) -> bytes:
    return write_ints([None if at is None else at - FIRST_INSTANT for at in column])


def write_days(column: Column) -> bytes:
    pack = INTEGER.pack
    return b"".join(
        [NULL if day is None else pack(4, day - FIRST_DAY) for day in column]
    )


def write_truths(column: Column) -> bytes:
    return b"".join([TRUTHS.get(each, NULL) for each in column])


def write_texts(column: Column) -> bytes:
    """Write texts; all at once where they are short."""
    try:
        if "".join(column).isascii():
            return "".join(prefixed(PLAIN_PREFIXES, column)).encode("ascii")
        return b"".join(prefixed(PREFIXES, [*map(str.encode, column)]))
    except (TypeError, IndexError):
        return b"".join([NULL if v is None else written(v.encode()) for v in column])


def prefixed(prefixes: Sequence[Any], column: Column) -> Iterable[Any]:
    """Put its length before each of the pieces, none of which is long."""
    lengths = map(prefixes.__getitem__, map(len, column))
    return chain.from_iterable(zip(lengths, column, strict=True))


def written(piece: bytes) -> bytes:
    return LENGTH.pack(len(piece)) + piece


def write_digests(column: Column) -> bytes:
    """Write digests, which are all of one length."""
    prefix = LENGTH.pack(DIGEST_BYTES)
    return prefix + prefix.join(column) if column else b""


TEXTS = array_type("Texts", 25, 1009, write_texts)
DIGESTS = array_type("Digests", 17, 1001, write_digests)
ARRAYS: Mapping[FieldType, ArrayType] = {
    FieldType.TEXT: TEXTS,
    FieldType.INT: array_type("Ints", 20, 1016, write_ints),
    FieldType.FLOAT: array_type("Floats", 701, 1022, fixed("d", DOUBLE)),
    FieldType.BOOL: array_type("Truths", 16, 1000, write_truths),
    FieldType.DATE: array_type("Days", 1082, 1182, write_days, is_counted=True),
    FieldType.TIMESTAMP: array_type("Times", 1184, 1185, write_times, is_counted=True),
    # JSON is text already
    FieldType.JSON: TEXTS,
}


def key_arrays(dataset: Dataset, keys: Sequence[Key]) -> dict[str, object]:
    """Return keys as the numbered parameters of a statement."""
    types = [dataset.columns[dataset.column(name)].type for name in dataset.key]
    columns = zip(types, zip(*keys, strict=True), strict=True)
    return {
        f"key_{at}": ARRAYS[kind](column) for at, (kind, column) in enumerate(columns)
    }


def page_arrays(dataset: Dataset, sheet: Sheet) -> dict[str, object]:
    """Return rows as the numbered parameters of a statement."""
    arrays: dict[str, object] = {}
    for at, (field, column) in enumerate(
        zip(dataset.columns, sheet.columns, strict=True)
    ):
        write, counted = ARRAYS[field.type], sheet.counted.get(at)
        arrays[f"column_{at}"] = write(column) if counted is None else write.of(counted)
    return {**arrays, "digests": DIGESTS(sheet.digests)}


def teach(connection: Connection[Any]) -> None:
    """Tell a connection what the encoded arrays are."""
    for kind in {*ARRAYS.values(), DIGESTS}:
        connection.adapters.register_dumper(kind.encoded, kind.dumper)
