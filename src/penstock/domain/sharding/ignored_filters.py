"""Notice that a provider ignores filters whose records are not checked.

Shards that it does not tell apart begin with the same records.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from penstock.domain.pages import Key
from penstock.domain.sharding.axes import (
    Axis,
    BboxAxis,
    FileAxis,
    ListAxis,
    RangeAxis,
    TimeAxis,
)
from penstock.domain.sharding.shard import Shard

# shards may share the records at their edges
MIN_FIRST_KEYS = 10
DIGEST_BYTES = 16


def digest_keys(keys: Iterable[Key | None]) -> bytes | None:
    """Digest the keys of a page in any order; None if there are too few."""
    found = sorted({repr(key) for key in keys if key is not None})
    if len(found) < MIN_FIRST_KEYS:
        return None
    return blake2b("\n".join(found).encode(), digest_size=DIGEST_BYTES).digest()


def unchecked_parameters(axis: Axis) -> tuple[str, ...]:
    """Return the parameters that an axis sends, if no check compares its records."""
    if axis.checked:
        return ()
    sent: tuple[str | None, ...]
    match axis:
        case ListAxis():
            sent = (axis.send,)
        case TimeAxis() | RangeAxis():
            sent = (axis.send_from, axis.send_until)
        case BboxAxis():
            send = axis.send
            if send is None or isinstance(send, str):
                sent = (send,)
            else:
                sent = tuple(send.values())
        case FileAxis():
            sent = ()
    return tuple(name for name in sent if name is not None)


def has_unchecked_filters(axes: Sequence[Axis]) -> bool:
    return any(map(unchecked_parameters, axes))


def name_ignored_filters(one: Shard, other: Shard) -> str:
    """Name the filters without a check in which two shards differ; "" if there is none.

    Where only checked filters differ, each record is compared with its shard instead.
    """
    return " and ".join(
        f"{', '.join(names)} of axis {axis.name!r}"
        for (axis, part), (_, theirs) in zip(one, other, strict=True)
        if (names := unchecked_parameters(axis)) and part != theirs
    )
