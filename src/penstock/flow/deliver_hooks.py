"""Deliver the messages of hooks: at least once, and each hook for itself."""

import time
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from penstock.domain.events import (
    HookDelivered,
    HookDeliveryFailed,
    HookMessageGivenUp,
    HookMessagesDropped,
)
from penstock.domain.hooks import MAX_DELIVERIES, retry_delay
from penstock.ports import Emit, Outbox, Redact
from penstock.ports.hooks import HOOK, DeliveryFailed, HookTarget
from penstock.ports.outbox import Message

# a process that has not delivered a message for so long is gone, and another does
SEND_TIME = timedelta(minutes=1)
# a run ends after so long, so that a stopping process does not deliver a long queue
MAX_RUN = timedelta(seconds=5)
# Messages of a hook that nobody declares any more are dropped after so long. Not at
# once: a process that started before the hook was declared does not know it.
OVERDUE = timedelta(hours=1)
KILLED = "the processes that delivered it ended before it was confirmed"


class DeliverHook:
    """Delivers the due messages of one hook; many may do so at the same time."""

    def __init__(
        self,
        hook: str,
        target: HookTarget,
        *,
        outbox: Outbox,
        redact: Redact,
        emit: Emit,
    ) -> None:
        self._hook = hook
        self._target = target
        self._outbox = outbox
        self._redact = redact
        self._emit = emit

    def __call__(self) -> None:
        """Deliver one message after the other, until none is due or one fails.

        After a failure the rest waits for the next run: a receiver that is away costs
        one timeout, not one for each message, and uses up one attempt only.
        """
        until = time.monotonic() + MAX_RUN.total_seconds()
        while time.monotonic() < until:
            taken = self._outbox.take(
                HOOK, most=1, lasting=SEND_TIME, destination=self._hook
            )
            if not taken or not self._deliver(taken[0]):
                return

    def _deliver(self, message: Message) -> bool:
        if message.attempts > MAX_DELIVERIES:
            self._give_up(message, KILLED)
            return True
        try:
            self._target.deliver(redact_document(message.payload, self._redact))
        except DeliveryFailed as error:
            self._retry_later(message, self._redact(str(error)))
            return False
        # only now: a message that is delivered twice has the same id, a lost one none
        self._outbox.mark_sent([message], confirm_within=None)
        self._emit(
            HookDelivered(
                hook=self._hook,
                fact=message.payload["type"],
                message=message.payload["id"],
                attempts=message.attempts,
            )
        )
        return True

    def _retry_later(self, message: Message, error: str) -> None:
        delay = retry_delay(message.attempts)
        if delay is None:
            self._give_up(message, error)
            return
        self._outbox.postpone([message], delay=delay, error=error)
        self._emit(
            HookDeliveryFailed(
                hook=self._hook,
                fact=message.payload["type"],
                message=message.payload["id"],
                attempts=message.attempts,
                error=error,
                delay=delay,
            )
        )

    def _give_up(self, message: Message, error: str) -> None:
        self._outbox.give_up([message], error=error)
        self._emit(
            HookMessageGivenUp(
                hook=self._hook,
                fact=message.payload["type"],
                message=message.payload["id"],
                attempts=min(message.attempts, MAX_DELIVERIES),
                error=error,
            )
        )


def drop_undeclared(outbox: Outbox, *, hooks: Collection[str], emit: Emit) -> None:
    """Remove the messages of hooks that are no longer declared."""
    dropped = outbox.drop_overdue(HOOK, known=hooks, overdue=OVERDUE)
    for hook, count in sorted(dropped.items()):
        emit(HookMessagesDropped(hook=hook, count=count))


def redact_document(document: Mapping[str, Any], redact: Redact) -> dict[str, Any]:
    """Return a document without secrets in its texts."""
    return {key: redact_value(value, redact) for key, value in document.items()}


def redact_value(value: object, redact: Redact) -> object:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return redact_document(value, redact)
    if isinstance(value, list):
        return [redact_value(item, redact) for item in value]
    return value
