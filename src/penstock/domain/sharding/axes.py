"""The axes along which a dataset is sharded: lists, times, ranges, areas and files.

Each axis yields its parts lazily and in a stable order, parses a part from its text,
and cuts a part that turned out too large.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TypeAlias

from penstock.domain.formats import in_utc
from penstock.domain.sharding.parts import Choice, Part, Slice, Span, Tile, Window
from penstock.domain.source import Path
from penstock.domain.time_formats import format_time, format_unit
from penstock.errors import Misconfigured


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The time range of an import; both ends are fixed when it is planned."""

    since: datetime | None = None
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesFrom:
    """The field of another dataset that has the values of a list axis."""

    dataset: str
    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAxis:
    name: str
    values: tuple[str, ...] | ValuesFrom
    send: str | None = None
    check: Path | None = None

    @property
    def checked(self) -> tuple[Path, ...]:
        return () if self.check is None else (self.check,)

    def parts(self, bounds: Bounds) -> Iterator[Choice]:
        del bounds
        if isinstance(self.values, ValuesFrom):
            raise Misconfigured(
                f"the values of shard axis {self.name!r} have not been read "
                f"from dataset {self.values.dataset!r}"
            )
        for value in self.values:
            yield Choice(value)

    def parse(self, text: str) -> Choice:
        return Choice(text.replace("%7C", "|").replace("%25", "%"))

    def cut(self, part: Part) -> tuple[Part, ...]:
        """Cut a part into smaller ones that cover it exactly; empty if it cannot be."""
        del part
        return ()

    def is_small(self, part: Part) -> bool:
        """Return whether a part is smaller than the declaration allows."""
        del part
        return False

    def parameters(self, part: Part) -> Mapping[str, str]:
        if self.send is None or not isinstance(part, Choice):
            return {}
        return {self.send: part.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAxis:
    name: str
    start: datetime
    step: timedelta
    until: datetime | None = None
    send_from: str | None = None
    send_until: str | None = None
    format: str = "%Y-%m-%dT%H:%M:%SZ"
    bounds: str = "[)"
    check: Path | None = None
    smallest: timedelta = timedelta(seconds=1)

    @property
    def checked(self) -> tuple[Path, ...]:
        return () if self.check is None else (self.check,)

    @property
    def unit(self) -> timedelta:
        """The smallest difference that the provider's format can express."""
        return format_unit(self.format)

    @property
    def slack(self) -> timedelta:
        return self.unit if self.bounds.startswith("(") else timedelta()

    def parts(self, bounds: Bounds) -> Iterator[Window]:
        """Yield windows that start at whole steps from the declared start."""
        origin = in_utc(self.start)
        lower = max(bounds.since, origin) if bounds.since else origin
        upper = min(bounds.until, self.until) if self.until else bounds.until
        # a window is complete only up to a time that the format can express
        lower, upper = self._round_down(lower), self._round_down(upper)
        edge = origin + (lower - origin) // self.step * self.step
        while edge < upper:
            following = edge + self.step
            start, end = max(edge, lower), min(following, upper)
            if start < end:
                yield self._window(start, end)
            edge = following

    def _round_down(self, instant: datetime) -> datetime:
        # in UTC, which has no daylight saving time
        origin = in_utc(self.start)
        return origin + (in_utc(instant) - origin) // self.unit * self.unit

    def _window(self, start: datetime, end: datetime) -> Window:
        return Window(start, end, self.slack, self.send_until is None)

    def parse(self, text: str) -> Window:
        start, end = text.split("..")
        return self._window(datetime.fromisoformat(start), datetime.fromisoformat(end))

    def cut(self, part: Part) -> tuple[Part, ...]:
        """Halve a window at a whole unit."""
        if not isinstance(part, Window):
            return ()
        unit = max(self.unit, timedelta(seconds=1))
        half = (part.end - part.start) / 2 // unit * unit
        if not half:
            return ()
        middle = part.start + half
        return self._window(part.start, middle), self._window(middle, part.end)

    def is_small(self, part: Part) -> bool:
        return isinstance(part, Window) and part.end - part.start < self.smallest

    def parameters(self, part: Part) -> Mapping[str, str]:
        if not isinstance(part, Window):
            return {}
        # "(" excludes the lower edge: start one unit earlier, or the edge is lost
        lower = part.start - self.slack
        sent = {}
        if self.send_from is not None:
            sent[self.send_from] = format_time(lower, self.format)
        if self.send_until is not None:
            sent[self.send_until] = format_time(part.end, self.format)
        return sent


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeAxis:
    name: str
    start: int
    until: int
    step: int
    send_from: str | None = None
    send_until: str | None = None
    bounds: str = "[)"
    check: Path | None = None
    smallest: int = 1

    @property
    def checked(self) -> tuple[Path, ...]:
        return () if self.check is None else (self.check,)

    def parts(self, bounds: Bounds) -> Iterator[Span]:
        del bounds
        for start in range(self.start, self.until, self.step):
            yield Span(start, min(start + self.step, self.until))

    def parse(self, text: str) -> Span:
        start, end = text.split("..")
        return Span(int(start), int(end))

    def cut(self, part: Part) -> tuple[Part, ...]:
        if not isinstance(part, Span):
            return ()
        half = (part.end - part.start) // 2
        if not half:
            return ()
        middle = part.start + half
        return Span(part.start, middle), Span(middle, part.end)

    def is_small(self, part: Part) -> bool:
        return isinstance(part, Span) and part.end - part.start < self.smallest

    def parameters(self, part: Part) -> Mapping[str, str]:
        if not isinstance(part, Span):
            return {}
        sent = {}
        if self.send_from is not None:
            sent[self.send_from] = str(part.start - self.bounds.startswith("("))
        if self.send_until is not None:
            sent[self.send_until] = str(part.end - self.bounds.endswith("]"))
        return sent


@dataclass(frozen=True, slots=True, kw_only=True)
class BboxAxis:
    name: str
    # south, west, north, east; west > east crosses the antimeridian
    area: tuple[Decimal, Decimal, Decimal, Decimal]
    step: Decimal
    # one parameter, written by `format`, or one for each edge
    send: str | Mapping[str, str] | None = None
    format: str = "{south},{west},{north},{east}"
    check: tuple[Path, Path] | None = None
    smallest: Decimal = Decimal("0.0001")

    @property
    def checked(self) -> tuple[Path, ...]:
        return self.check or ()

    def parts(self, bounds: Bounds) -> Iterator[Tile]:
        del bounds
        south, west, north, east = self.area
        for bottom, top in steps(south, north, self.step):
            for left, right in self.meridians(west, east):
                yield Tile(bottom, left, top, right)

    def meridians(self, west: Decimal, east: Decimal) -> Iterator[tuple[Decimal, ...]]:
        if west < east:
            yield from steps(west, east, self.step)
        else:
            # an area across the antimeridian is two: providers take no box across it
            yield from steps(west, Decimal(180), self.step)
            yield from steps(Decimal(-180), east, self.step)

    def parse(self, text: str) -> Tile:
        lower, upper = text.split("..")
        south, west = map(Decimal, lower.split(","))
        north, east = map(Decimal, upper.split(","))
        return Tile(south, west, north, east)

    def cut(self, part: Part) -> tuple[Part, ...]:
        """Quarter a tile."""
        if not isinstance(part, Tile):
            return ()
        height, width = (part.north - part.south) / 2, (part.east - part.west) / 2
        middle, centre = part.south + height, part.west + width
        return (
            Tile(part.south, part.west, middle, centre),
            Tile(part.south, centre, middle, part.east),
            Tile(middle, part.west, part.north, centre),
            Tile(middle, centre, part.north, part.east),
        )

    def is_small(self, part: Part) -> bool:
        return (
            isinstance(part, Tile)
            and min(part.north - part.south, part.east - part.west) < self.smallest
        )

    def parameters(self, part: Part) -> Mapping[str, str]:
        if self.send is None or not isinstance(part, Tile):
            return {}
        names = ("south", "west", "north", "east")
        edges = dict(zip(names, part.corners, strict=True))
        if isinstance(self.send, str):
            return {self.send: self.format.format(**edges)}
        return {name: edges[edge] for edge, name in self.send.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAxis:
    """The files of a dataset, cut where rows begin; a file scan finds the slices."""

    name: str = "file"
    slices: tuple[Slice, ...] = ()

    @property
    def checked(self) -> tuple[Path, ...]:
        return ()

    def parts(self, bounds: Bounds) -> Iterator[Slice]:
        del bounds
        yield from self.slices

    def parse(self, text: str) -> Slice:
        return Slice.parse(text)

    def cut(self, part: Part) -> tuple[Part, ...]:
        del part
        return ()

    def is_small(self, part: Part) -> bool:
        del part
        return True

    def parameters(self, part: Part) -> Mapping[str, str]:
        del part
        return {}


Axis: TypeAlias = ListAxis | TimeAxis | RangeAxis | BboxAxis | FileAxis


def steps(
    start: Decimal, end: Decimal, step: Decimal
) -> Iterator[tuple[Decimal, Decimal]]:
    """Yield neighbouring intervals; each edge is computed once, so they meet."""
    edge, count = start, 1
    while edge < end:
        following = min(start + count * step, end)
        yield edge, following
        edge, count = following, count + 1
