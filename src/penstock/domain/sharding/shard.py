"""Divide a dataset into shards; the same declaration and bounds give the same ones."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from penstock.domain.dataset import Dataset, Delta
from penstock.domain.formats import format_instant, shorten
from penstock.domain.sharding.axes import Axis, Bounds, TimeAxis
from penstock.domain.sharding.parts import Part, Slice
from penstock.domain.source import Path
from penstock.domain.time_formats import (
    any_time_reader,
    format_unit,
    hint_of,
    round_down,
)

# the key of the only shard of a dataset without axes
WHOLE_KEY = "all"

# returns why the values of a raw row are outside of a shard, or None
OutsideCheck: TypeAlias = Callable[[Sequence[object]], str | None]


@dataclass(frozen=True, slots=True)
class Shard:
    """One deterministic part of a dataset: a part of each axis, in declared order."""

    axes: tuple[Axis, ...]
    parts: tuple[Part, ...]

    @property
    def key(self) -> str:
        named = zip(self.axes, self.parts, strict=True)
        return "|".join(f"{axis.name}:{part.text}" for axis, part in named) or WHOLE_KEY

    @property
    def slice(self) -> Slice:
        """The file slice of this shard; raises `TypeError` if it is not one."""
        (part,) = self.parts
        if not isinstance(part, Slice):
            raise TypeError("a shard of files is a slice")
        return part

    def __iter__(self) -> Iterator[tuple[Axis, Part]]:
        return zip(self.axes, self.parts, strict=True)


def plan_shards(axes: tuple[Axis, ...], bounds: Bounds) -> Iterator[Shard]:
    """Yield the product of the axes lazily and in a stable order."""
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


def parse_shard_key(axes: tuple[Axis, ...], key: str) -> Shard:
    """Parse a shard from its key."""
    if not axes:
        return Shard((), ())
    texts = [part.partition(":")[2] for part in key.split("|")]
    return Shard(
        axes, tuple(axis.parse(text) for axis, text in zip(axes, texts, strict=True))
    )


def divide_shard(shard: Shard) -> tuple[Shard, ...]:
    """Return smaller shards that cover a shard exactly.

    It is cut along the first axis whose parts would not be too small; empty means that
    it cannot be divided.
    """
    for index, axis in enumerate(shard.axes):
        children = divide_along(shard, index)
        if children and not any(
            axis.is_small(child.parts[index]) for child in children
        ):
            return children
    return ()


def divide_along(shard: Shard, index: int) -> tuple[Shard, ...]:
    """Cut a shard along one axis, however small the parts are."""
    before, after = shard.parts[:index], shard.parts[index + 1 :]
    return tuple(
        Shard(shard.axes, (*before, part, *after))
        for part in shard.axes[index].cut(shard.parts[index])
    )


def never_outside(values: Sequence[object]) -> str | None:
    """Accept every row, where a row has nothing to check."""
    del values
    return None


def build_outside_check(
    dataset: Dataset, shard: Shard, since: datetime | None
) -> OutsideCheck:
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


def axis_check(dataset: Dataset, axis: Axis, part: Part) -> OutsideCheck:
    indexes = tuple(dataset.path_index[path] for path in axis.checked)
    read = hint = None
    if isinstance(axis, TimeAxis):
        forms = formats_of(dataset, axis.checked[0], axis.format)
        read, hint = any_time_reader(*forms), unread_hint(forms)

    def outside(values: Sequence[object]) -> str | None:
        raw = [values[index] for index in indexes]
        parsed = raw if read is None else [*map(read, raw)]
        if part.holds(*parsed):
            return None
        shown = ", ".join(shorten(value) for value in raw)
        if hint is not None and parsed == [None]:
            return f"{axis.name} is {shown}, {hint(raw[0])}"
        return f"{axis.name} is {shown}, not in {part.text}"

    return outside


def delta_check(dataset: Dataset, delta: Delta, since: datetime) -> OutsideCheck:
    index = dataset.path_index[delta.field]
    forms = formats_of(dataset, delta.field, delta.format)
    read, hint = any_time_reader(*forms), unread_hint(forms)
    # a record with a timestamp in whole seconds may have changed later in that second
    earliest = round_down(since, format_unit(forms[0]))

    def outside(values: Sequence[object]) -> str | None:
        changed = read(values[index])
        if changed is not None and changed >= earliest:
            return None
        shown = shorten(values[index])
        if changed is None:
            return f"changed at {shown}, {hint(values[index])}"
        return f"changed at {shown}, before {format_instant(since)}"

    return outside


def formats_of(dataset: Dataset, path: Path, sent: str) -> tuple[str, ...]:
    """Return the formats of times at a path: of its field, and of the requests."""
    declared = [
        field.format
        for field in dataset.columns
        if field.path == path and field.format is not None
    ]
    return (*declared, sent)


def unread_hint(forms: Sequence[str]) -> Callable[[object], str]:
    named = " or ".join(map(repr, dict.fromkeys(forms)))
    return lambda value: f"no time in format {named} or ISO 8601{hint_of(value)}"
