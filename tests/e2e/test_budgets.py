"""The shared allowance, judged by the provider's own log."""

import time
from datetime import timedelta

import pytest

from penstock.sandbox import peak_over
from tests.e2e.conftest import OpenWorkshop
from tests.support.evidence import LATE, repeated, truth
from tests.support.fleet import Fleet
from tests.support.stores import Kind, everywhere, on
from tests.support.workshop import Workshop, wait_until

WRONG = "wrong-key-4c1b"


def check_allowance(
    open_workshop: OpenWorkshop, *, processes: int, seconds: float, late: float
) -> None:
    """Never exceeded; how much of it is used is measured by `make bench`."""
    rate, burst = 50, 10
    allowed = burst + int(rate * late)
    # more than can be asked for, so that no worker is ever short of shards
    records = int(5 * rate * (seconds + 10))
    workshop = open_workshop(records=records, rate=rate, burst=allowed)
    workshop.declare(workshop.by_country(size=2), lease="10s", rate=rate, burst=burst)
    workshop.penstock("plan", "poi")

    fleet = Fleet(workshop, size=processes, threads=max(16 // processes, 1))
    wait_until(fleet.is_at_work)
    begun = time.monotonic()
    time.sleep(seconds)
    codes = fleet.stop()

    requests = workshop.sandbox.requests
    used = sum(begun < request.at < begun + seconds for request in requests)
    assert set(codes) == {0}
    assert used > 0
    assert {request.status for request in requests} == {200}
    assert peak_over(requests, rate) <= allowed


@on(*Kind)
def test_four_processes_use_one_allowance_and_never_exceed_it(open_workshop):
    check_allowance(open_workshop, processes=4, seconds=8, late=LATE)


@pytest.mark.slow
@on(*Kind)
@pytest.mark.parametrize("processes", [4, 8, 16])
def test_many_processes_never_exceed_an_allowance(open_workshop, processes):
    check_allowance(open_workshop, processes=processes, seconds=60, late=0)


@everywhere
def test_one_answer_of_429_stops_all_processes_for_as_long_as_it_says(open_workshop):
    # after a dozen requests the provider asks for a pause of some seconds
    workshop = open_workshop(records=400, rate=0.15, burst=12)
    workshop.declare(workshop.by_country(size=5), rate=12, burst=2)
    workshop.penstock("plan", "poi")

    workers = [workshop.worker(threads=2) for _ in range(3)]
    wait_until(lambda: refused(workshop))
    closed = workshop.penstock("budgets", "--json").json["budgets"][0]
    wait_until(lambda: pause_after_refusal(workshop) is not None)
    for worker in workers:
        worker.terminate()
    codes = [workshop.output_of(worker).code for worker in workers]

    pause, in_flight = pause_after_refusal(workshop) or (0.0, 0)
    attempts = workshop.ask("select max(attempts) as most from penstock_job")
    assert closed["state"] == "closed"
    assert "429" in closed["reason"]
    assert pause >= 2.5
    assert in_flight <= 6
    assert attempts[0]["most"] == 0
    assert codes == [0, 0, 0]


def refused(workshop: Workshop) -> list[float]:
    return [each.at for each in workshop.sandbox.requests if each.status == 429]


def pause_after_refusal(workshop: Workshop) -> tuple[float, int] | None:
    """Return the first pause of a second after a 429, and what came before it."""
    times = [request.at for request in workshop.sandbox.requests]
    first = times.index(refused(workshop)[0])
    for number in range(first, len(times) - 1):
        if times[number + 1] - times[number] > 1:
            return times[number + 1] - times[number], number - first
    return None


@everywhere
def test_a_refused_key_ends_a_run_and_nothing_more_is_sent(open_workshop):
    workshop = open_workshop(records=300)
    workshop.declare(workshop.by_country())

    first = workshop.penstock("run", "poi", PRACTICE_KEY=WRONG)
    sent = len(workshop.sandbox.requests)
    second = workshop.penstock("run", "poi", "--json")
    still_sent = len(workshop.sandbox.requests)
    state = workshop.penstock("budgets", "--json").json["budgets"][0]
    opened = workshop.penstock("budgets", "open", "practice")
    third = workshop.penstock("run", "poi", "--json")

    assert first.code == 1
    assert "penstock budgets open practice" in first.err
    assert WRONG not in first.out + first.err
    assert 1 <= sent <= 4
    assert second.code == 1
    assert "penstock budgets open practice" in second.json["stopped"]
    assert still_sent == sent
    assert state["state"] == "stopped"
    assert "403" in state["reason"]
    assert opened.code == 0
    assert third.code == 0
    assert third.json["import_id"] == 1
    assert workshop.rows() == truth(workshop)


@everywhere
def test_the_refusal_of_one_process_stops_the_others(open_workshop):
    # enough to do for as long as a busy machine takes to start the next command
    workshop = open_workshop(records=4000, latency=timedelta(milliseconds=40))
    workshop.declare(workshop.by_country(size=5), rate=20, burst=5)
    workshop.penstock("plan", "poi")
    workers = [workshop.worker(threads=2) for _ in range(2)]
    wait_until(lambda: workshop.pages() >= 3)

    ended = workshop.penstock("run", "poi", PRACTICE_KEY=WRONG)
    for worker in workers:
        worker.terminate()
        assert workshop.output_of(worker).code == 0

    requests = workshop.sandbox.requests
    refused_at = next(each.at for each in requests if each.status == 403)
    assert ended.code == 1
    assert [each for each in requests if each.at > refused_at + 1.5] == []

    workshop.penstock("budgets", "open", "practice")
    # the rest at once
    workshop.declare(workshop.by_country(size=5), rate=1000, burst=100)
    done = workshop.penstock("run", "poi", "--json")
    assert done.code == 0
    assert done.json["import_id"] == 1
    assert repeated(workshop.sandbox.requests) == 0
    assert workshop.rows() == truth(workshop)


def test_a_run_with_worker_processes_says_that_the_budget_was_stopped(open_workshop):
    workshop = open_workshop(records=100)
    workshop.declare(workshop.by_country())

    ended = workshop.penstock("run", "poi", "--workers", "2", PRACTICE_KEY=WRONG)

    assert ended.code == 1
    assert "penstock budgets open practice" in ended.err


def test_a_sample_request_waits_for_its_token(open_workshop):
    workshop = open_workshop(records=20)
    names = ["one", "two", "three", "four"]
    workshop.declare(*(workshop.poi(name=name) for name in names), rate=4, burst=1)

    checked = workshop.penstock("check", "--connect")

    assert checked.code == 0, checked.out
    assert len(workshop.sandbox.requests) == 4
    assert peak_over(workshop.sandbox.requests, 4) <= 1 + 4 * LATE


def test_a_run_and_its_import_say_what_they_wait_for(workshop):
    text = workshop.config.read_text("utf-8")
    quota = text.replace('rate = "5000/s"', 'rate = ["5000/s", "3/h"]')
    workshop.config.write_text(quota, encoding="utf-8")

    workshop.start("run", "poi")
    screen = workshop.folder / "0.err"
    wait_until(lambda: "has used up its 3/h, until " in screen.read_text("utf-8"))
    shown = workshop.penstock("imports")
    body = workshop.penstock("imports", "1", "--json").json

    assert "Import 1 is waiting: budget 'practice' has used up its 3/h" in shown.out
    assert body["waiting"]["reason"] == "budget_used_up"
    assert body["waiting"]["until"] > body["created_at"]
