"""Schedules in real processes: each fire begins one import, or says why it did not."""

import os
import signal
from datetime import datetime, timedelta

import pytest

from tests.e2e.conftest import OpenWorkshop
from tests.support.stores import Row, everywhere
from tests.support.workshop import Workshop, wait_until

SECOND = timedelta(seconds=1)
EVERY_SECOND = 'every = "1s"'


def fires(workshop: Workshop) -> list[Row]:
    return workshop.ask("select * from penstock_fire order by fire_at")


def started(workshop: Workshop) -> int:
    if not workshop.store.has("penstock_fire"):
        return 0
    return sum(fire["outcome"] == "started" for fire in fires(workshop))


def covered(workshop: Workshop) -> list[datetime]:
    """Return all times that the rows of fires stand for."""
    times: list[datetime] = []
    for fire in fires(workshop):
        first = workshop.store.instant(fire["fire_at"])
        last = workshop.store.instant(fire["last_fire_at"])
        assert first is not None
        assert last is not None
        assert (last - first) / SECOND == fire["count"] - 1
        times += [first + n * SECOND for n in range(fire["count"])]
    return times


@pytest.fixture
def scheduled(open_workshop: OpenWorkshop) -> Workshop:
    workshop = open_workshop(records=60)
    workshop.declare(workshop.by_country(dataset=EVERY_SECOND))
    return workshop


@everywhere
def test_every_fire_is_there_once_although_a_scheduler_is_killed(scheduled):
    workers = [scheduled.worker("--with-scheduler") for _ in range(2)]
    wait_until(lambda: started(scheduled) >= 2)
    workers[0].kill()
    seen = started(scheduled)
    wait_until(lambda: started(scheduled) >= seen + 2)
    workers[1].terminate()
    assert workers[1].wait(60) == 0

    times = covered(scheduled)
    assert times == [times[0] + n * SECOND for n in range(len(times))]
    begun = [fire["import_id"] for fire in fires(scheduled) if fire["import_id"]]
    assert len(set(begun)) == len(begun)
    assert all(fire["reason"] or fire["import_id"] for fire in fires(scheduled))


def test_a_scheduler_begins_what_workers_import(scheduled):
    scheduler = scheduled.start("scheduler")
    scheduled.worker()

    wait_until(lambda: started(scheduled) >= 1 and scheduled.status() == "done")

    scheduler.terminate()
    assert scheduler.wait(60) == 0
    (first, *_) = scheduled.ask("select * from penstock_import order by id")
    assert first["proven"]
    assert len(scheduled.rows()) == 60


def test_one_command_serves_schedules_and_imports(scheduled):
    server = scheduled.start(
        "serve", "--port", "0", "--grace", "0", "--with-scheduler", "--with-worker"
    )
    wait_until(lambda: started(scheduled) >= 1 and scheduled.status() == "done")
    (worker,) = scheduled.ask("select pid from penstock_worker")

    os.kill(worker["pid"], signal.SIGKILL)
    wait_until(lambda: other_workers(scheduled, worker["pid"]))

    server.terminate()
    assert server.wait(60) == 0
    live = scheduled.penstock("status", "--json").json["workers"]
    # the killed one is listed until its announcement expires
    assert {each["pid"] for each in live} <= {worker["pid"]}
    assert "process_restarted" in {line["event"] for line in scheduled.log_of(server)}


def other_workers(workshop: Workshop, pid: int) -> list[Row]:
    return workshop.ask("select pid from penstock_worker where pid <> ?", pid)


def test_a_paused_schedule_is_run_by_hand_and_stays_paused(open_workshop: OpenWorkshop):
    workshop = open_workshop(records=60)
    # no fire comes by itself
    workshop.declare(workshop.by_country(dataset='every = "3650d"'))
    first = workshop.worker("--with-scheduler")
    wait_until(lambda: workshop.penstock("schedules", "pause", "poi").code == 0)

    begun = workshop.penstock("schedules", "run", "poi", "--json")
    wait_until(lambda: workshop.status(begun.json["import_id"]) == "done")
    first.terminate()
    assert first.wait(60) == 0
    declared = workshop.ask("select declared_at from penstock_schedule")
    workshop.worker("--with-scheduler")
    wait_until(
        lambda: workshop.ask("select declared_at from penstock_schedule") != declared
    )

    shown = workshop.penstock("schedules", "show", "poi", "--json").json
    assert (shown["status"], shown["conflict"]) == ("paused", None)
    assert [fire["requested"] for fire in shown["fires"]] == [True]
    assert len(workshop.rows()) == 60
