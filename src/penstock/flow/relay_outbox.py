"""Send the due messages of the outbox."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from penstock.errors import TransportUnavailable
from penstock.ports import Outbox, Redact, Transport
from penstock.ports.outbox import Message

# messages that are sent together
MAX_MESSAGES = 100
# a process that has not sent its messages for so long is gone, and another sends them
SEND_TIME = timedelta(seconds=30)
# after an error of the transport
RETRY_INTERVAL = timedelta(seconds=5)


class RelayOutbox:
    """Sends messages of a kind, at least once; many may do so at the same time."""

    def __init__(
        self,
        kind: str,
        transport: Transport,
        *,
        outbox: Outbox,
        confirm_within: timedelta | None,
        redact: Redact,
        # which of the due ones are sent; the others wait as if they were
        select: Callable[[Sequence[Message]], Sequence[Message]] = tuple,
    ) -> None:
        self._kind = kind
        self._transport = transport
        self._outbox = outbox
        self._confirm_within = confirm_within
        self._redact = redact
        self._select = select

    def __call__(self) -> None:
        """Send all due messages.

        Raises `TransportUnavailable`; then the messages wait.
        """
        while True:
            batch = self._outbox.take(self._kind, most=MAX_MESSAGES, lasting=SEND_TIME)
            if not batch:
                return
            try:
                selected = self._select(batch)
                self._transport.send(selected)
            except TransportUnavailable as error:
                self._outbox.postpone(
                    batch, delay=RETRY_INTERVAL, error=self._redact(str(error))
                )
                raise
            # only now: a message that is sent twice does no harm, a lost one does
            self._outbox.mark_sent(selected, confirm_within=self._confirm_within)
            self._leave([message for message in batch if message not in selected])
            if len(batch) < MAX_MESSAGES:
                return

    def _leave(self, waiting: Sequence[Message]) -> None:
        if waiting:
            delay = self._confirm_within or RETRY_INTERVAL
            self._outbox.postpone(waiting, delay=delay, error=None)
