"""Messages wake workers up while jobs are due, and the ledger decides what is done."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.domain.jobs import JobId
from penstock.flow.job_claimer import JobClaimer, Worker
from penstock.flow.wake_ups import (
    WAKE_UP,
    SendWakeUps,
    WakeUp,
    WakeUpQueues,
    list_missing,
)
from penstock.flow.work_slice import NO_REGION, SliceClaimer, SliceEnd
from penstock.ports import DueJob, Runtime, Stores
from penstock.ports.outbox import Message, MessageId
from tests.support.builders import ANN, dataset, last, plan, sqlite_stores

POI, EU_POI = dataset(), replace(dataset("eu_poi"), region="eu")
DECLARATIONS: dict[str, str] = {POI.name: "d1", EU_POI.name: "d1"}
QUEUES = WakeUpQueues(name="penstock", regions=["eu"], outstanding=3)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    database = SqliteDatabase(tmp_path / "penstock.db")
    stores = sqlite_stores(database)
    stores.schema.migrate()
    yield stores
    database.close()


@pytest.fixture
def claimer(stores: Stores) -> SliceClaimer:
    host = Runtime(halt=threading.Event())
    process = JobClaimer(
        Worker(owner=ANN, region=NO_REGION), ledger=stores.ledger, host=host
    )
    return SliceClaimer(process, ledger=stores.ledger, host=host)


def due(stores: Stores) -> list[JobId]:
    return [job.id for job in stores.jobs.due(declarations=DECLARATIONS, most=99)]


def sent(job: int, *, region: str | None = None, attempts: int = 1) -> Message:
    new = QUEUES.message(region, DueJob(JobId(job), region))
    return Message(
        id=MessageId(job),
        kind=new.kind,
        destination=new.destination,
        payload=new.payload,
        attempts=attempts,
        sends=attempts - 1,
    )


def begin(claimer: SliceClaimer, job: int | None, *, region: str | None = None) -> None:
    claimer.begin(
        WakeUp(region=region, job=None if job is None else JobId(job), message=None),
        continuation=QUEUES.message(region, None),
    )


def take(claimer: SliceClaimer) -> JobId | None:
    claimed = claimer.take(DECLARATIONS)
    return None if claimed is None else claimed.lease.job


def test_each_region_has_a_queue():
    assert QUEUES.names == ["penstock", "penstock.eu"]


def test_a_message_is_missing_for_each_due_job_up_to_the_limit_of_its_region():
    jobs = [DueJob(JobId(number), None) for number in range(5)]

    missing = list_missing(QUEUES, [*jobs, DueJob(JobId(9), "eu")], unsettled=[])

    assert [message.payload["job"] for message in missing] == [0, 1, 2, 9]
    assert missing[-1].destination == "penstock.eu"


def test_messages_that_are_out_count_whatever_they_name():
    jobs = [DueJob(JobId(number), None) for number in range(2)]

    assert list_missing(QUEUES, jobs, unsettled=[sent(7), sent(8)]) == []
    (missing,) = list_missing(QUEUES, jobs, unsettled=[sent(0)])
    assert missing.payload["job"] == 1
    assert len(list_missing(QUEUES, jobs, unsettled=[sent(7, region="eu")])) == 2


def test_messages_are_added_while_jobs_are_due_and_never_more_than_allowed(
    stores: Stores,
):
    plan(stores, POI, "a", "b", "c", "d")
    relayed = list[int]()
    send = SendWakeUps(
        QUEUES,
        stores=stores,
        declarations=lambda: DECLARATIONS,
        relay=lambda: relayed.append(len(stores.outbox.unsettled(WAKE_UP))),
    )

    send()
    send()
    first, *_ = stores.outbox.unsettled(WAKE_UP)
    stores.outbox.settle([first.id])
    send()

    assert relayed == [3, 3, 3]


def test_the_named_job_is_claimed_first_and_then_the_next_due_ones(
    stores: Stores, claimer: SliceClaimer
):
    plan(stores, POI, "a", "b", "c")
    first, second, third = due(stores)
    begin(claimer, second)

    assert [take(claimer) for _ in range(4)] == [second, first, third, None]


def test_a_message_whose_job_is_done_works_on_the_next_due_one(
    stores: Stores, claimer: SliceClaimer
):
    plan(stores, POI, "a", "b")
    done, other = due(stores)
    (lease,) = stores.ledger.claim(
        ANN, declarations=DECLARATIONS, region=None, job=done
    )
    stores.ledger.commit_page(POI, lease, last())
    begin(claimer, done)

    assert take(claimer) == other


def test_a_message_without_a_region_takes_no_job_of_a_region(
    stores: Stores, claimer: SliceClaimer
):
    plan(stores, EU_POI, "a")
    (job,) = due(stores)
    begin(claimer, job)
    assert take(claimer) is None

    begin(claimer, None, region="eu")

    assert take(claimer) == job


def test_a_slice_asks_for_one_message_that_names_its_unfinished_job(
    stores: Stores, claimer: SliceClaimer
):
    plan(stores, POI, "a")
    begin(claimer, None)
    claimed = claimer.take(DECLARATIONS)
    assert claimed is not None

    stores.ledger.release(claimed.lease, messages=claimer.continuation(claimed.lease))
    assert claimer.continuation(None) == ()

    (message,) = stores.outbox.unsettled(WAKE_UP)
    assert message.payload == {"region": None, "job": claimed.lease.job}


def test_a_message_that_was_received_before_asks_for_no_other(claimer: SliceClaimer):
    wake_up = WakeUp(region=None, job=None, message=MessageId(1))

    claimer.begin(wake_up, continuation=None)

    assert claimer.continuation(None) == ()


def test_a_slice_ends_by_its_time_or_with_the_process():
    now, stop = [100.0], threading.Event()
    end = SliceEnd(stop, lambda: now[0])
    end.begin(timedelta(seconds=30))
    assert not end.is_set()
    now[0] += 30
    assert end.is_set()
    assert end.wait(60)

    end.begin(timedelta(seconds=30))
    stop.set()

    assert end.is_set()
