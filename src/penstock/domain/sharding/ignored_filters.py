"""Find filters whose records are not checked, so that a provider may ignore them."""

from penstock.domain.sharding.axes import (
    Axis,
    BboxAxis,
    FileAxis,
    ListAxis,
    RangeAxis,
    TimeAxis,
)


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
