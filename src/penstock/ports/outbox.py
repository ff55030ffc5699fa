"""Messages for others: written with what they are about, and sent at least once."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NewType, Protocol

MessageId = NewType("MessageId", int)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to be sent; stores write it in the transaction that it is about."""

    # decides who sends it
    kind: str
    # a queue, or the name of a receiver
    destination: str
    # what JSON can express
    payload: Mapping[str, Any]
    # not added if so many of this kind and destination are unsettled; none: no limit
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of the outbox."""

    id: MessageId
    kind: str
    destination: str
    payload: Mapping[str, Any]
    # tries to send it, with the current one, and how many of them succeeded
    attempts: int
    sends: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxBacklog:
    """What is left to do for the messages of a kind."""

    # not sent yet, or not settled
    messages: int
    # since when the oldest of them waits that was never sent; none: all were
    unsent_for: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationState:
    """The messages of one receiver that were not sent."""

    destination: str
    # not sent yet
    waiting: int = 0
    # given up lately, until they are forgotten
    given_up: int = 0
    # of the newest of them that has one
    error: str | None = None


class Outbox(Protocol):
    """Messages until they were sent, or until their receiver has confirmed them.

    They may be sent more than once, and in any order. All times are those of the
    database's clock.
    """

    @abstractmethod
    def add(self, messages: Sequence[NewMessage]) -> int:
        """Add messages, due at once; return how many their limits allowed."""
        ...

    @abstractmethod
    def take(
        self,
        kind: str,
        *,
        most: int,
        lasting: timedelta,
        destination: str | None = None,
    ) -> Sequence[Message]:
        """Return due messages, to be sent now, in the order of their ids.

        With `destination`, only those of one receiver. They are due again after a
        while, unless they are marked as sent until then: a process that is killed
        meanwhile loses none.
        """
        ...

    @abstractmethod
    def mark_sent(
        self, messages: Sequence[Message], *, confirm_within: timedelta | None
    ) -> None:
        """Mark messages as sent, after the transport has confirmed that.

        Unless they are settled within `confirm_within`, they are due again; each time
        the wait doubles, up to 64 times as long. With None, nobody settles them.
        """
        ...

    @abstractmethod
    def postpone(
        self, messages: Sequence[Message], *, delay: timedelta, error: str | None
    ) -> None:
        """Make messages that were not sent due again after a while."""
        ...

    @abstractmethod
    def give_up(self, messages: Sequence[Message], *, error: str) -> None:
        """Mark messages that are not sent any more; `forget` removes them later."""
        ...

    @abstractmethod
    def drop_overdue(
        self, kind: str, *, known: Collection[str], overdue: timedelta
    ) -> Mapping[str, int]:
        """Remove messages that nobody has taken for so long, of unknown destinations.

        Returns how many of each were removed.
        """
        ...

    @abstractmethod
    def destinations(self, kind: str) -> Sequence[DestinationState]:
        """Return what waits and what was given up, by destination."""
        ...

    @abstractmethod
    def settle(self, ids: Sequence[MessageId]) -> int:
        """Remove messages that were received or are obsolete; return how many.

        Zero for a message that was received before: it was sent twice.
        """
        ...

    @abstractmethod
    def unsettled(self, kind: str) -> Sequence[Message]:
        """Return the messages that are not sent yet, or not settled, by id."""
        ...

    @abstractmethod
    def unreceived(self, kind: str, destination: str) -> Sequence[timedelta]:
        """Return how long ago each message was last sent that nobody has settled.

        The oldest first; not those that were never sent.
        """
        ...

    @abstractmethod
    def backlog(self, kind: str) -> OutboxBacklog:
        """Return how many messages are not sent or settled yet, and their delay."""
        ...

    @abstractmethod
    def forget(self, *, sent: timedelta, most: int) -> int:
        """Remove some messages that were sent so long ago and nobody settles."""
        ...


class Transport(Protocol):
    """What carries messages to their destinations."""

    @abstractmethod
    def send(self, messages: Sequence[Message]) -> None:
        """Send messages, and return when the other side has confirmed all of them.

        Raises `TransportUnavailable` otherwise; some may have been sent.
        """
        ...
