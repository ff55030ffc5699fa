"""Cut a dataset into shards: same declaration and bounds in, same shards out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from penstock.domain.axes import Axis, Bounds, TimeAxis
from penstock.domain.dataset import Dataset, Delta
from penstock.domain.parts import Part, Slice
from penstock.domain.source import Path
from penstock.domain.text import format_instant, shorten
from penstock.domain.time_formats import (
    format_unit,
    hint_of,
    reader_of_any,
    round_down,
)

# the key of the only shard of a dataset without axes
WHOLE = "all"

# says why the values of a raw row lie outside, or None
Outside: TypeAlias = Callable[[Sequence[object]], str | None]


@dataclass(frozen=True, slots=True)
class Shard:
    """One deterministic part of a dataset: a part of each axis, in declared order."""

    axes: tuple[Axis, ...]
    parts: tuple[Part, ...]

    @property
    def key(self) -> str:
        named = zip(self.axes, self.parts, strict=True)
        return "|".join(f"{axis.name}:{part.text}" for axis, part in named) or WHOLE

    @property
    def slice(self) -> Slice:
        """The slice of a file that this shard is; raises where it is something else."""
        (part,) = self.parts
        if not isinstance(part, Slice):
            raise TypeError("a shard of files is a slice")
        return part

    def __iter__(self) -> Iterator[tuple[Axis, Part]]:
        return zip(self.axes, self.parts, strict=True)


def split(axes: tuple[Axis, ...], bounds: Bounds) -> Iterator[Shard]:
    """Yield the product of the axes in a stable order, holding one shard at a time."""
    for parts in product(axes, bounds):
        yield Shard(axes, parts)


def product(axes: Sequence[Axis], bounds: Bounds) -> Iterator[tuple[Part, ...]]:
    # itertools.product would hold every part of every axis in memory
    if not axes:
        yield ()
        return
    for part in axes[0].parts(bounds):
        for rest in product(axes[1:], bounds):
            yield (part, *rest)


def parse_key(axes: tuple[Axis, ...], key: str) -> Shard:
    """Read a shard back from its key."""
    if not axes:
        return Shard((), ())
    texts = [each.partition(":")[2] for each in key.split("|")]
    return Shard(
        axes, tuple(axis.parse(text) for axis, text in zip(axes, texts, strict=True))
    )


def divide(shard: Shard) -> tuple[Shard, ...]:
    """Replace a shard by smaller ones that cover it exactly.

    It is cut along the first axis whose pieces are not too small; none means that it
    cannot be divided.
    """
    for index, axis in enumerate(shard.axes):
        pieces = divide_along(shard, index)
        if pieces and not any(axis.is_small(each.parts[index]) for each in pieces):
            return pieces
    return ()


def divide_along(shard: Shard, index: int) -> tuple[Shard, ...]:
    """Cut a shard along one axis, however small the pieces are."""
    before, after = shard.parts[:index], shard.parts[index + 1 :]
    return tuple(
        Shard(shard.axes, (*before, piece, *after))
        for piece in shard.axes[index].cut(shard.parts[index])
    )


def never_outside(values: Sequence[object]) -> str | None:
    """Take every row for one of the shard, where nothing in it could tell."""
    del values
    return None


def predicate(dataset: Dataset, shard: Shard, since: datetime | None) -> Outside:
    """Compile the check that a raw row belongs to a shard."""
    checks = [axis_check(dataset, axis, part) for axis, part in shard if axis.checked]
    if since is not None and dataset.delta is not None:
        checks.append(delta_check(dataset, dataset.delta, since))
    if not checks:
        return never_outside

    def outside(values: Sequence[object]) -> str | None:
        for check in checks:
            reason = check(values)
            if reason is not None:
                return reason
        return None

    return outside


def axis_check(dataset: Dataset, axis: Axis, part: Part) -> Outside:
    places = tuple(dataset.place[path] for path in axis.checked)
    read = hint = None
    if isinstance(axis, TimeAxis):
        forms = formats_of(dataset, axis.checked[0], axis.format)
        read, hint = reader_of_any(*forms), unread_hint(forms)

    def outside(values: Sequence[object]) -> str | None:
        found = [values[place] for place in places]
        known = found if read is None else [*map(read, found)]
        if part.holds(*known):
            return None
        shown = ", ".join(shorten(each) for each in found)
        if hint is not None and known == [None]:
            return f"{axis.name} is {shown}, {hint(found[0])}"
        return f"{axis.name} is {shown}, not in {part.text}"

    return outside


def delta_check(dataset: Dataset, delta: Delta, since: datetime) -> Outside:
    place = dataset.place[delta.field]
    forms = formats_of(dataset, delta.field, delta.format)
    read, hint = reader_of_any(*forms), unread_hint(forms)
    # records that are stamped with whole seconds may have changed later in theirs
    earliest = round_down(since, format_unit(forms[0]))

    def outside(values: Sequence[object]) -> str | None:
        changed = read(values[place])
        if changed is not None and changed >= earliest:
            return None
        shown = shorten(values[place])
        if changed is None:
            return f"changed at {shown}, {hint(values[place])}"
        return f"changed at {shown}, before {format_instant(since)}"

    return outside


def formats_of(dataset: Dataset, path: Path, sent: str) -> tuple[str, ...]:
    """Return how times at a path may be written: as its field says, or as is sent."""
    declared = [
        field.format
        for field in dataset.columns
        if field.path == path and field.format is not None
    ]
    return (*declared, sent)


def unread_hint(forms: Sequence[str]) -> Callable[[object], str]:
    named = " or ".join(map(repr, dict.fromkeys(forms)))
    return lambda value: f"no time in format {named} or ISO 8601{hint_of(value)}"
