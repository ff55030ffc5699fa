"""The same import by local workers and by those of Celery, whatever a broker does."""

import itertools
import os
import signal
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import amqp
import pytest
import redis
from typing_extensions import override

from tests.e2e.conftest import OpenWorkshop
from tests.services.private import PrivateRedis
from tests.support.evidence import requests_after_commit, truth
from tests.support.stores import Kind, on
from tests.support.workshop import (
    COUNTRIES,
    Process,
    Workshop,
    countries_of,
    keyset,
    wait_until,
)

pytestmark = on(Kind.POSTGRES)
QUEUE = "penstock"
SHARDS = 20
PAGES_BEFORE = 6
REPOSITORY = Path(__file__).parents[2]


def engine(broker: str, **celery: Any) -> str:
    table = {"slice": "400ms", "resend_after": "2s", "outstanding": 8, **celery}
    lines = (f"{name} = {value!r}" for name, value in table.items())
    return (
        f'engine = "celery"\nbroker = "{broker}"\n\n[celery]\n'
        + "\n".join(lines)
        + "\n"
    )


class BrokerQueue(Protocol):
    """What the broker has, seen past Penstock."""

    def take(self) -> list[Any]:
        """Remove all messages."""
        ...

    def put(self, messages: list[Any]) -> None: ...

    def close(self) -> None: ...


class RedisQueue(BrokerQueue):
    def __init__(self, url: str, name: str) -> None:
        self._redis = redis.Redis.from_url(url)
        self._name = name

    @override
    def take(self) -> list[Any]:
        messages = self._redis.lrange(self._name, 0, -1)
        self._redis.delete(self._name)
        return list(messages)

    @override
    def put(self, messages: list[Any]) -> None:
        if messages:
            self._redis.lpush(self._name, *messages)

    @override
    def close(self) -> None:
        self._redis.close()


class RabbitQueue(BrokerQueue):
    def __init__(self, url: str, name: str) -> None:
        address = urlsplit(url)
        self._connection = amqp.Connection(
            f"{address.hostname}:{address.port}",
            userid=address.username,
            password=address.password,
        )
        self._connection.connect()
        self._channel = self._connection.channel()
        self._name = name

    @override
    def take(self) -> list[Any]:
        messages = []
        while (message := self._channel.basic_get(self._name, no_ack=True)) is not None:
            messages.append(message)
        return messages

    @override
    def put(self, messages: list[Any]) -> None:
        for message in messages:
            again = amqp.Message(message.body, **message.properties)
            self._channel.basic_publish(again, routing_key=self._name)

    @override
    def close(self) -> None:
        self._connection.close()


def planned(workshop: Workshop, more: str = "", *, shards: int = SHARDS) -> Workshop:
    countries = countries_of(workshop.sandbox)
    # and some that have no points
    values = [*countries, *range(9000, 9000 + shards - len(countries))]
    poi = workshop.poi(pages=keyset(4), shards=COUNTRIES % values)
    workshop.declare(poi, lease="4s", more=more)
    assert workshop.penstock("plan", "poi").code == 0
    assert (
        len(workshop.ask("select id from penstock_job where kind = 'shard'")) == shards
    )
    return workshop


def worker(workshop: Workshop, *more: str, queue: str = QUEUE) -> Process:
    options = ("--concurrency", "2", "--without-gossip", "--without-mingle")
    return workshop.celery("worker", "-Q", queue, "-l", "warning", *options, *more)


def kill(running: Process) -> None:
    """Kill a worker with all of its processes, which have jobs and messages."""
    os.killpg(running.pid, signal.SIGKILL)


def done(workshop: Workshop) -> int:
    return len(workshop.ask("select * from penstock_import where status = 'done'"))


def check_import(workshop: Workshop, *, within: float = 60) -> None:
    wait_until(workshop.is_finished, within=within)
    assert workshop.status() == "done"
    assert workshop.rows() == truth(workshop)
    assert requests_after_commit(workshop) == []
    assert workshop.penstock("audit", "poi").code == 0


@pytest.fixture
def slow(open_workshop: OpenWorkshop) -> Workshop:
    return open_workshop(records=400, latency=timedelta(milliseconds=30))


def test_local_workers_import_twenty_shards(slow: Workshop):
    planned(slow)
    slow.worker(threads=2)

    check_import(slow)


def test_celery_imports_the_same_with_lost_and_doubled_messages_and_a_killed_worker(
    slow: Workshop, redis_url: str
):
    planned(slow, engine(redis_url))

    import_through_trouble(slow, QUEUE, lambda: RedisQueue(redis_url, QUEUE))


def test_celery_imports_the_same_through_rabbitmq(slow: Workshop, rabbit_url: str):
    # other tests have queues of their own on the same server
    queue = f"penstock-{uuid.uuid4().hex[:8]}"
    password = urlsplit(rabbit_url).password
    assert password
    slow.environ["BROKER_PASSWORD"] = password
    slow.more_secrets.append(password)
    broker = rabbit_url.replace(password, "${BROKER_PASSWORD}")
    planned(slow, engine(broker, queue=queue, queue_type="quorum"))

    import_through_trouble(slow, queue, lambda: RabbitQueue(rabbit_url, queue))


def import_through_trouble(
    slow: Workshop, queue: str, open_queue: Callable[[], BrokerQueue]
) -> None:
    """Lose and double messages, and kill a worker."""
    killed = worker(slow, queue=queue)
    wait_until(lambda: slow.pages() >= PAGES_BEFORE, within=60)
    with closing(open_queue()) as broker:
        messages = broker.take()
        wait_until(lambda: slow.pages() >= 2 * PAGES_BEFORE, within=60)
        broker.put(messages)
        broker.put(messages)
    wait_until(lambda: slow.pages() >= 3 * PAGES_BEFORE, within=60)
    kill(killed)
    running = worker(slow, queue=queue)

    check_import(slow)

    running.send_signal(signal.SIGTERM)
    assert slow.output_of(running).code == 0


def test_celery_works_in_threads(slow: Workshop, redis_url: str):
    planned(slow, engine(redis_url))
    running = worker(slow, "--pool", "threads")

    check_import(slow)

    running.send_signal(signal.SIGTERM)
    assert slow.output_of(running).code == 0
    assert slow.ask("select * from penstock_outbox where sent_at is null") == []


def deaf_worker(workshop: Workshop, how: str, *more: str, queue: str = QUEUE):
    """Start a worker that soon receives nothing more, while it is connected."""
    workshop.environ |= {"PYTHONPATH": str(REPOSITORY), "DEAFNESS": how}
    return worker(workshop, "-I", "tests.support.deaf_consumer", *more, queue=queue)


def finish_after_deaf_worker(workshop: Workshop, deaf: Process, queue: str) -> None:
    ended = workshop.output_of(deaf)
    assert ended.code == 1
    (event,) = [
        event
        for event in workshop.log_of(deaf)
        if event.get("event") == "worker_is_deaf"
    ]
    assert (event["level"], event["queues"]) == ("error", [queue])
    assert not workshop.is_finished()

    # as a supervisor does
    worker(workshop, queue=queue)

    check_import(workshop)


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_worker_whose_consumer_was_cancelled_ends_itself(
    slow: Workshop, redis_url: str, pool: str
):
    planned(slow, engine(redis_url, resend_after="1s"))
    deaf = deaf_worker(slow, "is cancelled", "--pool", pool)

    finish_after_deaf_worker(slow, deaf, QUEUE)


def test_a_worker_whose_consumer_was_cancelled_by_rabbitmq_ends_itself(
    slow: Workshop, rabbit_url: str
):
    queue = f"penstock-{uuid.uuid4().hex[:8]}"
    planned(slow, engine(rabbit_url, queue=queue, resend_after="1s"))
    deaf = deaf_worker(slow, "is cancelled", queue=queue)

    finish_after_deaf_worker(slow, deaf, queue)


def test_a_worker_whose_main_loop_hangs_ends_itself(slow: Workshop, redis_url: str):
    planned(slow, engine(redis_url, resend_after="1s"))
    deaf = deaf_worker(slow, "hangs")

    finish_after_deaf_worker(slow, deaf, QUEUE)


def test_a_worker_without_messages_stays_and_says_when_it_last_claimed_a_job(
    slow: Workshop, redis_url: str
):
    planned(slow, engine(redis_url, resend_after="100ms"))
    idle = worker(slow)
    check_import(slow)

    # many times longer than messages may wait
    time.sleep(3)

    assert idle.poll() is None
    workers = slow.penstock("status", "--json").json["workers"]
    assert any(each["last_claim_at"] for each in workers)


def test_a_worker_that_is_stopped_finishes_its_pages_and_releases_its_jobs(
    open_workshop: OpenWorkshop, redis_url: str
):
    workshop = open_workshop(records=400, latency=timedelta(milliseconds=100))
    planned(workshop, engine(redis_url, slice="1h"))
    stopped = worker(workshop)
    wait_until(lambda: workshop.pages() >= PAGES_BEFORE, within=60)

    # the main process alone, as `KillMode=mixed` does
    stopped.send_signal(signal.SIGTERM)

    assert workshop.output_of(stopped).code == 0
    assert workshop.ask("select * from penstock_import where status = 'done'") == []
    assert workshop.ask("select * from penstock_job where status = 'leased'") == []
    assert requests_after_commit(workshop) == []


def test_beats_begin_imports_and_write_no_file(
    open_workshop: OpenWorkshop, redis_url: str
):
    workshop = open_workshop(records=60)
    workshop.declare(
        workshop.by_country(dataset='every = "1s"'), more=engine(redis_url)
    )
    beats = [workshop.celery("beat", "-l", "warning") for _ in range(2)]
    worker(workshop)

    wait_until(lambda: done(workshop) >= 1, within=60)
    kill(beats[0])
    before = done(workshop)
    wait_until(lambda: done(workshop) > before + 1, within=60)

    beats[1].send_signal(signal.SIGTERM)
    stopped = workshop.output_of(beats[1])
    assert stopped.code == 0
    assert "scheduler_stopped" in stopped.err
    fires = workshop.ask("select fire_at, import_id from penstock_fire")
    begun = [fire["import_id"] for fire in fires if fire["import_id"]]
    assert len(set(begun)) == len(begun)
    assert workshop.rows() == truth(workshop)
    # an output and an error file of each process that was started
    names = {each.name for each in workshop.folder.iterdir()}
    assert not [name for name in names if "beat" in name]


def test_a_worker_of_celery_needs_celery_as_the_engine(slow: Workshop):
    slow.declare(slow.by_country())

    refused = slow.output_of(worker(slow))

    assert refused.code == 2
    assert "penstock.engine: is not 'celery'; set it, and the broker" in refused.err


MANY_SHARDS = 200
# pages between two faults
PAGES_BETWEEN = 25
SOAK_TIME = 200


def single(workshop: Workshop) -> Process:
    """Start a worker with one slot."""
    return worker(workshop, "--concurrency", "1")


def progress(workshop: Workshop) -> None:
    """Wait until some pages are committed, or all of them."""
    pages = workshop.pages() + PAGES_BETWEEN
    wait_until(
        lambda: workshop.pages() >= pages or workshop.is_finished(), within=SOAK_TIME
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGQUIT])
def test_workers_that_are_ended_again_and_again_import_everything(
    open_workshop: OpenWorkshop, redis_url: str, number: signal.Signals
):
    workshop = open_workshop(records=800, latency=timedelta(milliseconds=30))
    planned(workshop, engine(redis_url), shards=MANY_SHARDS)
    workers = [single(workshop) for _ in range(4)]

    while not workshop.is_finished():
        progress(workshop)
        ended = workers.pop(0)
        if number is signal.SIGKILL:
            kill(ended)
        else:
            ended.send_signal(number)
        workers.append(single(workshop))

    check_import(workshop)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_broker_that_doubles_loses_and_restarts_imports_everything(
    open_workshop: OpenWorkshop,
):
    workshop = open_workshop(records=800, latency=timedelta(milliseconds=30))
    with PrivateRedis() as broker:
        planned(workshop, engine(broker.url), shards=MANY_SHARDS)
        # all of them send messages
        for _ in range(3):
            workshop.celery("beat", "-l", "warning")
        for _ in range(4):
            single(workshop)

        def double() -> None:
            with closing(RedisQueue(broker.url, QUEUE)) as queue:
                messages = queue.take()
                queue.put([*messages, *messages])

        def purge() -> None:
            with closing(RedisQueue(broker.url, QUEUE)) as queue:
                queue.take()

        def restart() -> None:
            broker.kill()
            broker.start()

        faults = itertools.cycle([double, purge, restart])
        while not workshop.is_finished():
            next(faults)()
            progress(workshop)

        check_import(workshop)
