"""Whether a worker of a message broker has stopped receiving messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

# in units of the time after which a message that nobody received is sent again
MAX_WAIT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """A queue that a worker consumes."""

    # of each message that was sent to it and that no worker has received: how long
    # ago it was last sent
    unreceived: Sequence[timedelta]
    # messages that the broker has for whoever can receive them
    waiting: int


def deaf_after(resend_after: timedelta) -> timedelta:
    """Return how long messages wait until a worker that does not receive them ends."""
    return MAX_WAIT * resend_after


def is_deaf(
    receptive_for: timedelta | None,
    queues: Sequence[QueueState],
    *,
    resend_after: timedelta,
) -> bool:
    """Return whether a worker should have received messages, and has not.

    It is receptive since its last delivery, or since it is connected and has an idle
    slot if that was later; None: it is not. Without messages it is healthy.

    Messages that were sent before that may have been lost by the broker. They count if
    it still has messages: a worker may stop receiving when it connects again.
    """
    limit = deaf_after(resend_after)
    if receptive_for is None or receptive_for < limit:
        return False
    return any(
        age <= receptive_for or queue.waiting > 0
        for queue in queues
        for age in queue.unreceived
        if age >= limit
    )
