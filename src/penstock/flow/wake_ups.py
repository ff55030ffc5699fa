"""Wake workers up that wait for messages of a broker, as long as jobs are due.

A message names a region and a job, but the ledger decides: whoever receives it claims
that job, else the next due one of its region. So a message that is lost, late or
doubled costs next to nothing.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.domain.jobs import JobId
from penstock.ports import Declarations, DueJob, Outbox, Stores
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

    def message(self, region: str | None, job: DueJob | None) -> NewMessage:
        return NewMessage(
            kind=WAKE_UP,
            destination=self.of(region),
            payload={
                "region": region,
                **(
                    name_job(None) if job is None else name_job(job.id, job.traceparent)
                ),
            },
            most=self.outstanding,
        )


def name_job(job: JobId | None, traceparent: str | None = None) -> dict[str, Any]:
    """Return what a message says of a job, and of the trace of its import if any."""
    traced = {} if traceparent is None else {"traceparent": traceparent}
    return {"job": job, **traced}


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
    due: Sequence[DueJob],
    *,
    unsettled: Sequence[Message],
) -> Sequence[NewMessage]:
    """Return a message for each due job, up to `outstanding` of them for a region.

    A message that names another job counts as well: it finds one of these.
    """
    out = Counter(message.destination for message in unsettled)
    named = {message.payload["job"] for message in unsettled}
    jobs: dict[str | None, list[DueJob]] = {}
    for job in due:
        jobs.setdefault(job.region, []).append(job)
    return [
        queues.message(region, job)
        for region, listed in jobs.items()
        for job in [job for job in listed if job.id not in named][
            : max(min(len(listed), queues.outstanding) - out[queues.of(region)], 0)
        ]
    ]


class SelectLost:
    """Selects what is sent again: as many messages as the broker has lost.

    A message that nobody receives may still be in its queue, because the workers are
    slow or there are none. Copies would gather there, and none is needed: it does not
    matter which of the messages of a queue are in it.
    """

    def __init__(self, outbox: Outbox, *, count_waiting: Callable[[str], int]) -> None:
        self._outbox = outbox
        self._count_waiting = count_waiting

    def __call__(self, batch: Sequence[Message]) -> Sequence[Message]:
        """Return what is to be sent.

        Raises `TransportUnavailable` if the broker does not say what it has.
        """
        if all(map(is_new, batch)):
            return batch
        lost = self._count_lost(batch)
        selected = list[Message]()
        for message in batch:
            if not is_new(message):
                lost[message.destination] -= 1
            if is_new(message) or lost[message.destination] >= 0:
                selected.append(message)
        return selected

    def _count_lost(self, batch: Sequence[Message]) -> Counter[str]:
        """Return by destination how many messages were sent, and are not there."""
        repeated = {message.id for message in batch if not is_new(message)}
        # one may have been sent by a process that was killed before it could mark it
        lost = Counter(
            message.destination
            for message in self._outbox.unsettled(WAKE_UP)
            if message.sends or message.id in repeated
        )
        for name in {each.destination for each in batch if not is_new(each)}:
            lost[name] -= self._count_waiting(name)
        return lost


def is_new(message: Message) -> bool:
    """Return whether nobody has tried to send a message before."""
    return message.attempts == 1
