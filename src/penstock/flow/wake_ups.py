"""Wake workers up that wait for messages of a broker, as long as jobs are due.

A message names a region and a job, but the ledger decides: whoever receives it claims
that job, else the next due one of its region. So a message that is lost, late or
doubled costs next to nothing.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.domain.jobs import JobId
from penstock.ports import Declarations, Stores
from penstock.ports.outbox import Message, MessageId, NewMessage

# the kind of these messages in the outbox
WAKE_UP = "wake-up"


class WakeUp(NamedTuple):
    """A received message."""

    region: str | None
    job: JobId | None
    # none: it was not sent by the outbox
    message: MessageId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeUpQueues:
    """A queue for each region, and one for jobs without a region."""

    name: str
    regions: Sequence[str]
    # messages that were sent to a queue, and not received
    outstanding: int

    @property
    def names(self) -> Sequence[str]:
        return [self.of(region) for region in (None, *self.regions)]

    def of(self, region: str | None) -> str:
        return self.name if region is None else f"{self.name}.{region}"

    def message(self, region: str | None, job: JobId | None) -> NewMessage:
        return NewMessage(
            kind=WAKE_UP,
            destination=self.of(region),
            payload={"region": region, "job": job},
            most=self.outstanding,
        )


class SendWakeUps:
    """Adds messages while jobs are due, and sends what is in the outbox."""

    def __init__(
        self,
        queues: WakeUpQueues,
        *,
        stores: Stores,
        declarations: Callable[[], Declarations],
        relay: Callable[[], None],
    ) -> None:
        self._queues = queues
        self._jobs = stores.jobs
        self._outbox = stores.outbox
        self._declarations = declarations
        self._relay = relay

    def __call__(self) -> None:
        """Add what is missing; raises `TransportUnavailable` if it cannot be sent."""
        due = self._jobs.due(
            declarations=self._declarations(), most=self._queues.outstanding
        )
        missing = list_missing(
            self._queues, due, unsettled=self._outbox.unsettled(WAKE_UP)
        )
        if missing:
            self._outbox.add(missing)
        self._relay()


def list_missing(
    queues: WakeUpQueues,
    due: Sequence[tuple[JobId, str | None]],
    *,
    unsettled: Sequence[Message],
) -> Sequence[NewMessage]:
    """Return a message for each due job, up to `outstanding` of them for a region.

    A message that names another job counts as well: it finds one of these.
    """
    out = Counter(message.destination for message in unsettled)
    named = {message.payload["job"] for message in unsettled}
    jobs: dict[str | None, list[JobId]] = {}
    for job, region in due:
        jobs.setdefault(region, []).append(job)
    return [
        queues.message(region, job)
        for region, listed in jobs.items()
        for job in [job for job in listed if job not in named][
            : max(min(len(listed), queues.outstanding) - out[queues.of(region)], 0)
        ]
    ]
