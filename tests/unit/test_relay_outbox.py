"""Messages of the outbox are sent at least once, and wait for their transport."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.errors import TransportUnavailable
from penstock.flow.relay_outbox import MAX_MESSAGES, SEND_TIME, RelayOutbox
from penstock.ports import Stores, Transport
from penstock.ports.outbox import Message, NewMessage
from tests.support.builders import HOUR, MINUTE, Clock, sqlite_stores

KIND = "wake-up"


class RecordingTransport(Transport):
    def __init__(self) -> None:
        self.sent: list[int] = []
        self.is_away = False

    def send(self, messages: Sequence[Message]) -> None:
        if self.is_away:
            raise TransportUnavailable("no route to token-1234")
        self.sent += [message.payload["number"] for message in messages]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stores(tmp_path: Path, clock: Clock) -> Stores:
    stores = sqlite_stores(SqliteDatabase(tmp_path / "penstock.db", clock=clock))
    stores.schema.migrate()
    return stores


@pytest.fixture
def transport() -> RecordingTransport:
    return RecordingTransport()


@pytest.fixture
def relay(stores: Stores, transport: RecordingTransport) -> RelayOutbox:
    return RelayOutbox(
        KIND,
        transport,
        outbox=stores.outbox,
        confirm_within=MINUTE,
        redact=lambda text: text.replace("1234", "${TOKEN}"),
    )


def add(stores: Stores, count: int) -> None:
    stores.outbox.add(
        [
            NewMessage(kind=KIND, destination="eu", payload={"number": number})
            for number in range(count)
        ]
    )


def test_every_due_message_is_sent_once(
    stores: Stores, relay: RelayOutbox, transport: RecordingTransport
):
    add(stores, MAX_MESSAGES + 1)

    relay()
    relay()

    assert transport.sent == [*range(MAX_MESSAGES + 1)]


def test_a_message_that_was_sent_but_not_marked_is_sent_again(
    stores: Stores, relay: RelayOutbox, transport: RecordingTransport, clock: Clock
):
    add(stores, 1)
    transport.send(stores.outbox.take(KIND, most=1, lasting=SEND_TIME))
    clock.pass_time(SEND_TIME)

    relay()

    assert transport.sent == [0, 0]


def test_messages_wait_while_their_transport_is_away(
    stores: Stores, relay: RelayOutbox, transport: RecordingTransport, clock: Clock
):
    add(stores, 2)
    transport.is_away = True
    with pytest.raises(TransportUnavailable):
        relay()
    transport.is_away = False
    clock.pass_time(MINUTE)

    relay()

    assert transport.sent == [0, 1]


def test_messages_that_are_not_selected_wait_and_do_not_count_as_sent(
    stores: Stores, transport: RecordingTransport, clock: Clock
):
    add(stores, 3)
    relay = RelayOutbox(
        KIND,
        transport,
        outbox=stores.outbox,
        confirm_within=MINUTE,
        redact=str,
        select=lambda batch: batch[1:],
    )

    relay()
    relay()

    assert transport.sent == [1, 2]
    assert [each.sends for each in stores.outbox.unsettled(KIND)] == [0, 1, 1]
    clock.pass_time(MINUTE)
    assert len(stores.outbox.take(KIND, most=9, lasting=SEND_TIME)) == 3


def test_a_message_that_nobody_received_is_sent_again(
    stores: Stores, relay: RelayOutbox, transport: RecordingTransport, clock: Clock
):
    add(stores, 2)
    relay()
    first, _ = stores.outbox.unsettled(KIND)
    stores.outbox.settle([first.id])
    clock.pass_time(HOUR)

    relay()

    assert transport.sent == [0, 1, 1]
