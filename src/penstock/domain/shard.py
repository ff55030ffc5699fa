"""Cut a dataset into shards: same declaration and bounds in, same shards out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from penstock.domain.axes import Axis, Bounds
from penstock.domain.dataset import Dataset
from penstock.domain.parts import Part, Slice
from penstock.domain.text import format_instant, parse_instant, shorten

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
    checks = [
        (axis, part, tuple(dataset.place[path] for path in axis.checked))
        for axis, part in shard
        if axis.checked
    ]
    delta = None if since is None or dataset.delta is None else dataset.delta
    delta_place = None if delta is None else dataset.place[delta.field]
    if not checks and delta_place is None:
        return never_outside

    def outside(values: Sequence[object]) -> str | None:
        for axis, part, places in checks:
            found = [values[place] for place in places]
            if not part.holds(*found):
                shown = ", ".join(shorten(each) for each in found)
                return f"{axis.name} is {shown}, not in {part.text}"
        if delta_place is not None and since is not None:
            changed = parse_instant(values[delta_place])
            if changed is None or changed < since:
                told = shorten(values[delta_place])
                return f"changed at {told}, before {format_instant(since)}"
        return None

    return outside
