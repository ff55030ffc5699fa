"""What is sent to Celery's broker, and how often."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlsplit

import amqp
import kombu.pools
import pytest
import redis

from penstock.adapters.celery.app import CeleryOptions, build_app
from penstock.adapters.celery.transport import CeleryTransport
from penstock.errors import TransportUnavailable
from penstock.flow.relay_outbox import RelayOutbox
from penstock.flow.wake_ups import WAKE_UP, SelectLost, SendWakeUps, WakeUpQueues
from penstock.ports import Stores
from tests.support.builders import MINUTE, dataset, plan
from tests.support.postgres import Place, opened, own_schema
from tests.support.racing import in_threads
from tests.support.workshop import wait_until

POI = dataset()
OUTSTANDING = 8
QUEUES = WakeUpQueues(name="penstock", regions=["eu"], outstanding=OUTSTANDING)
RESENDS = 5
PROCESSES = 4


@pytest.fixture
def place(postgres_url: str) -> Iterator[Place]:
    with own_schema(postgres_url) as place:
        place.stop_clock()
        yield place


@pytest.fixture
def stores(place: Place) -> Iterator[Stores]:
    with opened(place, clock=place.clock) as (stores, _):
        stores.schema.migrate()
        yield stores


@pytest.fixture
def transport(redis_url: str) -> Iterator[CeleryTransport]:
    with connected(redis_url, QUEUES) as transport:
        yield transport


@contextmanager
def connected(
    broker: str, queues: WakeUpQueues, queue_type: str = "classic"
) -> Iterator[CeleryTransport]:
    options = CeleryOptions(
        broker=broker,
        queues=queues.names,
        queue_type=queue_type,
        time_limit=timedelta(seconds=60),
    )
    yield CeleryTransport(build_app(lambda: options))
    # connections are those of the process
    kombu.pools.reset()


@pytest.fixture
def send(stores: Stores, transport: CeleryTransport) -> Callable[[], None]:
    relay = RelayOutbox(
        WAKE_UP,
        transport,
        outbox=stores.outbox,
        confirm_within=MINUTE,
        redact=str,
        select=SelectLost(stores.outbox, count_waiting=transport.count_waiting),
    )
    return SendWakeUps(
        QUEUES, stores=stores, declarations=lambda: {POI.name: "d1"}, relay=relay
    )


@pytest.fixture
def depth(redis_url: str) -> Iterator[Callable[[], int]]:
    with redis.Redis.from_url(redis_url) as broker:
        yield lambda: int(broker.llen(QUEUES.name))


def test_without_a_worker_the_broker_never_has_more_messages_than_are_outstanding(
    stores: Stores, place: Place, send: Callable[[], None], depth: Callable[[], int]
):
    plan(stores, POI, *map(str, range(100)))

    for _ in range(RESENDS):
        assert in_threads(*[send] * PROCESSES) == [None] * PROCESSES
        assert depth() == OUTSTANDING
        # each wait is twice as long as the one before
        place.pass_time(2**RESENDS * MINUTE)


def test_no_copies_gather_of_the_messages_for_few_jobs(
    stores: Stores, place: Place, send: Callable[[], None], depth: Callable[[], int]
):
    plan(stores, POI, "a", "b", "c")

    for _ in range(RESENDS):
        send()
        assert depth() == 3
        place.pass_time(2**RESENDS * MINUTE)


def test_as_many_messages_are_sent_again_as_the_broker_has_lost(
    stores: Stores,
    place: Place,
    send: Callable[[], None],
    depth: Callable[[], int],
    redis_url: str,
):
    plan(stores, POI, *map(str, range(100)))
    send()
    with redis.Redis.from_url(redis_url) as broker:
        broker.lpop(QUEUES.name, 5)
    place.pass_time(MINUTE)

    send()

    assert depth() == OUTSTANDING


def test_a_purged_queue_is_filled_again(
    stores: Stores,
    place: Place,
    send: Callable[[], None],
    depth: Callable[[], int],
    redis_url: str,
):
    plan(stores, POI, *map(str, range(100)))
    send()
    with redis.Redis.from_url(redis_url) as broker:
        broker.flushdb()
    place.pass_time(MINUTE)

    send()

    assert depth() == OUTSTANDING


def test_each_queue_is_counted_by_itself(stores: Stores, transport: CeleryTransport):
    stores.outbox.add([QUEUES.message("eu", None)] * 2)
    transport.send(stores.outbox.take(WAKE_UP, most=9, lasting=MINUTE))

    assert transport.count_waiting("penstock.eu") == 2
    assert transport.count_waiting("penstock") == 0


@pytest.fixture
def rabbit_queues() -> WakeUpQueues:
    # other tests have queues of their own on the same server
    return replace(QUEUES, name=f"penstock-{uuid.uuid4().hex[:8]}")


def send_to(stores: Stores, transport: CeleryTransport, queues: WakeUpQueues) -> None:
    stores.outbox.add([queues.message(None, None), queues.message(None, None)])
    transport.send(stores.outbox.take(WAKE_UP, most=9, lasting=MINUTE))


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_rabbitmq_stores_messages_that_are_due_at_once(
    stores: Stores, rabbit_url: str, rabbit_queues: WakeUpQueues, queue_type: str
):
    with connected(rabbit_url, rabbit_queues, queue_type) as transport:
        send_to(stores, transport, rabbit_queues)

        wait_until(lambda: transport.count_waiting(rabbit_queues.name) == 2)
        assert transport.count_waiting(rabbit_queues.of("eu")) == 0

    address = urlsplit(rabbit_url)
    with amqp.Connection(
        f"{address.hostname}:{address.port}",
        userid=address.username,
        password=address.password,
    ) as connection:
        message = connection.channel().basic_get(rabbit_queues.name)
    # it outlives the broker, and nobody delays or drops it
    assert message.properties["delivery_mode"] == 2
    headers = message.properties["application_headers"]
    assert (headers["eta"], headers["expires"]) == (None, None)


def test_a_queue_of_another_type_is_unavailable(
    stores: Stores, rabbit_url: str, rabbit_queues: WakeUpQueues
):
    with connected(rabbit_url, rabbit_queues, "classic") as transport:
        send_to(stores, transport, rabbit_queues)

    with (
        connected(rabbit_url, rabbit_queues, "quorum") as transport,
        pytest.raises(TransportUnavailable, match="x-queue-type"),
    ):
        send_to(stores, transport, rabbit_queues)
