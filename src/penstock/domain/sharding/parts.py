"""The parts of an axis: a value, a window of time, a span of numbers, a tile, a slice.

Parts are half-open, so that neighbours meet without overlap; `holds` accepts both
edges, because many providers include both, and a duplicate record is upserted once.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import groupby, pairwise
from typing import TypeAlias

from penstock.domain.formats import format_instant, parse_number

# no file is larger than this, so that an offset and the file's number make one rank
MAX_FILE_BYTES = 2**44


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of a list."""

    value: str

    @property
    def text(self) -> str:
        # "|" separates the parts of a shard key, so it is escaped
        return self.value.replace("%", "%25").replace("|", "%7C")

    def holds(self, value: object) -> bool:
        if str(value).strip().casefold() == self.value.strip().casefold():
            return True
        number = parse_number(value)
        return number is not None and number == parse_number(self.value)


@dataclass(frozen=True, slots=True)
class Window:
    """The instants from `start` up to, not including, `end`."""

    start: datetime
    end: datetime
    # how far below `start` records may be, if the provider excludes its lower bound
    slack: timedelta = field(default=timedelta(), compare=False)
    # requests have no upper bound, so the response may have later changes
    is_open: bool = field(default=False, compare=False)

    @property
    def text(self) -> str:
        return f"{format_instant(self.start)}..{format_instant(self.end)}"

    def holds(self, instant: object) -> bool:
        return (
            isinstance(instant, datetime)
            and self.start - self.slack <= instant
            and (self.is_open or instant <= self.end)
        )


@dataclass(frozen=True, slots=True)
class Span:
    """The whole numbers from `start` up to, not including, `end`."""

    start: int
    end: int

    @property
    def text(self) -> str:
        return f"{self.start}..{self.end}"

    def holds(self, value: object) -> bool:
        number = parse_number(value)
        return number is not None and self.start <= number <= self.end


@dataclass(frozen=True, slots=True)
class Tile:
    """The area between two corners, in degrees."""

    south: Decimal
    west: Decimal
    north: Decimal
    east: Decimal

    @property
    def text(self) -> str:
        south, west, north, east = self.corners
        return f"{south},{west}..{north},{east}"

    @property
    def corners(self) -> tuple[str, str, str, str]:
        edges = (self.south, self.west, self.north, self.east)
        return tuple(format_degrees(edge) for edge in edges)  # type: ignore[return-value]

    def holds(self, latitude: object, longitude: object) -> bool:
        north, east = parse_number(latitude), parse_number(longitude)
        return (
            north is not None
            and east is not None
            and float(self.south) <= north <= float(self.north)
            and float(self.west) <= east <= float(self.east)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Whole rows of a file: the bytes from `start` up to, not including, `end`.

    Its text has a fingerprint of the file, so a changed file has another shard key.
    """

    # index of the file in the order of names
    number: int
    file: str
    size: int
    fingerprint: str
    start: int
    # None is the end of the file, where that is unknown before it is read
    end: int | None
    # line number of its first row
    line: int
    # of its own bytes, which a worker verifies; plans of older versions have none
    digest: str = ""

    @property
    def text(self) -> str:
        end = "" if self.end is None else self.end
        span = f"{self.start}-{end}@{self.line}"
        span += f"#{self.digest}" if self.digest else ""
        named = f"{self.number}/{self.size}/{self.fingerprint}/{span}/{self.file}"
        return named.replace("%", "%25").replace("|", "%7C")

    @classmethod
    def parse(cls, text: str) -> "Slice":
        plain = text.replace("%7C", "|").replace("%25", "%")
        number, size, fingerprint, span, file = plain.split("/", 4)
        extent, _, first = span.partition("@")
        line, _, digest = first.partition("#")
        start, _, end = extent.partition("-")
        return cls(
            number=int(number),
            file=file,
            size=int(size),
            fingerprint=fingerprint,
            start=int(start),
            end=int(end) if end else None,
            line=int(line),
            digest=digest,
        )

    @classmethod
    def of_key(cls, shard_key: str) -> "Slice":
        """Parse the slice of a file from the key of its shard."""
        return cls.parse(shard_key.partition(":")[2])

    def rank(self, offset: int) -> int:
        """Return the rank of a row: later rows of the files have higher ones.

        It is never 0, which is the rank of rows without a location.
        """
        return self.number * MAX_FILE_BYTES + offset + 1

    def holds(self, *_: object) -> bool:
        return True


Part: TypeAlias = Choice | Window | Span | Tile | Slice


def format_degrees(value: Decimal) -> str:
    """Format a coordinate without exponent, trailing zeros or a negative zero."""
    text = format(value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in {"-0", ""} else text


def find_coverage_errors(slices: Iterable[Slice]) -> Iterator[tuple[Slice, str]]:
    """Yield slices that do not meet the next one or the end of their file, and why."""
    ordered = sorted(slices, key=lambda part: (part.number, part.start))
    for _, parts in groupby(ordered, key=lambda part: part.number):
        yield from find_file_errors([*parts])


def find_file_errors(parts: list[Slice]) -> Iterator[tuple[Slice, str]]:
    for before, after in pairwise(parts):
        if (before.file, before.size, before.fingerprint) != (
            *(after.file, after.size, after.fingerprint),
        ):
            yield after, f"it is of another file than {before.text}"
        elif before.end != after.start:
            yield after, f"it begins at {after.start}, not at {before.end}"
    last = parts[-1]
    if last.end not in {None, last.size}:
        yield last, f"it ends at {last.end}, and the file at {last.size}"
