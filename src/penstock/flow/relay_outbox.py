"""Send the due messages of the outbox."""

from datetime import timedelta

from penstock.errors import TransportUnavailable
from penstock.ports import Outbox, Redact, Transport

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
    ) -> None:
        self._kind = kind
        self._transport = transport
        self._outbox = outbox
        self._confirm_within = confirm_within
        self._redact = redact

    def __call__(self) -> None:
        """Send all due messages.

        Raises `TransportUnavailable`; then the messages wait.
        """
        while True:
            batch = self._outbox.take(self._kind, most=MAX_MESSAGES, lasting=SEND_TIME)
            if not batch:
                return
            try:
                self._transport.send(batch)
            except TransportUnavailable as error:
                self._outbox.postpone(
                    batch, delay=RETRY_INTERVAL, error=self._redact(str(error))
                )
                raise
            # only now: a message that is sent twice does no harm, a lost one does
            self._outbox.mark_sent(batch, confirm_within=self._confirm_within)
            if len(batch) < MAX_MESSAGES:
                return
