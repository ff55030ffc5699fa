"""The same import by local workers and by those of Celery, whatever a broker does."""

import os
import signal
from datetime import timedelta
from typing import Any

import pytest
import redis

from tests.e2e.conftest import OpenWorkshop
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


def engine(broker: str, **celery: Any) -> str:
    table = {"slice": "400ms", "resend_after": "2s", "outstanding": 8, **celery}
    lines = (f"{name} = {value!r}" for name, value in table.items())
    return (
        f'engine = "celery"\nbroker = "{broker}"\n\n[celery]\n'
        + "\n".join(lines)
        + "\n"
    )


def planned(workshop: Workshop, more: str = "") -> Workshop:
    countries = countries_of(workshop.sandbox)
    # and some that have no points
    values = [*countries, *range(9000, 9000 + SHARDS - len(countries))]
    poi = workshop.poi(pages=keyset(4), shards=COUNTRIES % values)
    workshop.declare(poi, lease="4s", more=more)
    assert workshop.penstock("plan", "poi").code == 0
    assert len(workshop.ask("select id from penstock_job")) == SHARDS
    return workshop


def worker(workshop: Workshop, *more: str) -> Process:
    options = ("--concurrency", "2", "--without-gossip", "--without-mingle")
    return workshop.celery("worker", "-Q", QUEUE, "-l", "warning", *options, *more)


def kill(running: Process) -> None:
    """Kill a worker with all of its processes, which have jobs and messages."""
    os.killpg(running.pid, signal.SIGKILL)


def done(workshop: Workshop) -> int:
    return len(workshop.ask("select * from penstock_import where status = 'done'"))


def check_import(workshop: Workshop) -> None:
    wait_until(workshop.is_finished, within=60)
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
    killed = worker(slow)
    with redis.Redis.from_url(redis_url) as broker:
        wait_until(lambda: slow.pages() >= PAGES_BEFORE)
        messages = broker.lrange(QUEUE, 0, -1)
        broker.delete(QUEUE)
        wait_until(lambda: slow.pages() >= 2 * PAGES_BEFORE)
        for message in messages:
            broker.lpush(QUEUE, message, message)
        wait_until(lambda: slow.pages() >= 3 * PAGES_BEFORE)
        kill(killed)
        running = worker(slow)

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
