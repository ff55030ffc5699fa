"""Kill, freeze and stop real workers; then look at what the provider saw."""

import signal
from datetime import timedelta
from random import Random

import pytest

from penstock.sandbox import peak_over
from tests.e2e.conftest import OpenWorkshop
from tests.support.evidence import LATE, repeated, requests_after_commit, truth
from tests.support.stores import Kind, everywhere, on
from tests.support.workshop import Workshop, happens, keyset, wait_until

FAULTS = {
    "500": 0.02,
    "503": 0.01,
    "reset": 0.02,
    "truncated": 0.02,
    "html": 0.02,
    "empty": 0.02,
    "disorder": 0.02,
    "slow": 0.01,
}
RATE, BURST = 16, 8
ALLOWED = BURST + int(RATE * LATE)


def kill_workers_at_random(workshop: Workshop, *, seed: int, kills: int) -> int:
    """Kill a random worker after a random while and start another; count the kills."""
    random = Random(seed)
    workers = [workshop.worker(threads=2) for _ in range(3)]
    wait_until(lambda: workshop.pages() > 3)
    killed = 0
    while killed < kills:
        if happens(workshop.is_finished, within=random.uniform(0.4, 1.8)):
            break
        number = random.randrange(len(workers))
        workers[number].kill()
        workers[number] = workshop.worker(threads=2)
        killed += 1
    wait_until(workshop.is_finished, within=80)
    give_unlucky_jobs_another_chance(workshop)
    return killed


def give_unlucky_jobs_another_chance(workshop: Workshop) -> None:
    """Retry what was killed three times in a row without a page, and nothing else."""
    lost = workshop.ask("select errors from penstock_job where status = 'failed'")
    codes = {workshop.store.document(job["errors"])[-1]["code"] for job in lost}
    assert codes <= {"lease_lost"}
    if lost:
        assert workshop.penstock("jobs", "retry", "--failed").code == 0
        wait_until(workshop.is_finished, within=80)


def check_crash_run(open_workshop: OpenWorkshop, *, seed: int, kills: int) -> None:
    workshop = open_workshop(
        records=100 * kills,
        seed=seed,
        rate=RATE,
        burst=ALLOWED,
        duplicates=0.05,
        faults=FAULTS,
        slow=timedelta(seconds=3),
        latency=timedelta(milliseconds=20),
    )
    workshop.declare(workshop.by_country(size=6), lease="3s", rate=RATE, burst=BURST)
    assert workshop.penstock("plan", "poi").code == 0

    killed = kill_workers_at_random(workshop, seed=seed, kills=kills)

    requests = workshop.sandbox.requests
    lost = workshop.ask("select * from penstock_job where status = 'failed'")
    assert killed >= 3
    assert lost == []
    assert workshop.status() == "done"
    assert workshop.rows() == truth(workshop)
    assert requests_after_commit(workshop) == []
    assert repeated(requests) <= killed * 2
    assert [request for request in requests if request.status == 429] == []
    assert peak_over(requests, RATE) <= ALLOWED
    assert workshop.penstock("audit", "poi").code == 0


@pytest.mark.parametrize(
    ("store", "seed"),
    [(Kind.SQLITE, 1), (Kind.POSTGRES_AND_REDIS, 2)],
    indirect=["store"],
)
def test_workers_killed_at_random_moments_lose_and_double_nothing(open_workshop, seed):
    check_crash_run(open_workshop, seed=seed, kills=5)


@pytest.mark.slow
@everywhere
@pytest.mark.parametrize("seed", range(10, 30))
def test_many_kills_lose_and_double_nothing(open_workshop, seed):
    check_crash_run(open_workshop, seed=seed, kills=15)


@pytest.mark.parametrize(
    ("store", "pages_before"),
    [(Kind.SQLITE, 5), (Kind.POSTGRES_AND_REDIS, 2)],
    indirect=["store"],
)
def test_a_worker_frozen_past_its_lease_writes_nothing_when_it_wakes(
    open_workshop, pages_before
):
    # nearly all of a worker's time goes into waiting for an answer: that is where it
    # is frozen, so that it wakes with a page in its hands
    workshop = open_workshop(records=500, latency=timedelta(milliseconds=200))
    workshop.declare(workshop.poi(pages=keyset(20)), lease="3s")
    workshop.penstock("plan", "poi")
    frozen = workshop.worker(threads=1)
    wait_until(lambda: workshop.pages() >= pages_before)

    frozen.send_signal(signal.SIGSTOP)
    workshop.worker(threads=1)
    wait_until(lambda: pages_of(workshop, fence=2) >= 2, within=20)
    frozen.send_signal(signal.SIGCONT)
    wait_until(lambda: "lease_was_lost" in events(workshop, frozen), within=20)
    wait_until(workshop.is_finished, within=20)

    fences = [
        row["fence"]
        for row in workshop.ask("select fence from penstock_page order by page_seq")
    ]
    assert fences == sorted(fences)
    assert set(fences) == {1, 2}
    assert workshop.rows() == truth(workshop)
    assert requests_after_commit(workshop) == []
    assert repeated(workshop.sandbox.requests) <= 1
    assert workshop.penstock("audit", "poi").code == 0


@everywhere
def test_a_worker_that_wakes_before_its_successor_wrote_writes_nothing_either(
    open_workshop,
):
    # here the page number is still the one that the sleeper expects: only the fence
    # tells that the job is not its own any more
    workshop = open_workshop(records=100, latency=timedelta(milliseconds=600))
    workshop.declare(workshop.poi(pages=keyset(20)), lease="3s")
    workshop.penstock("plan", "poi")
    sleeper = workshop.worker(threads=1)
    wait_until(lambda: workshop.pages() >= 2)

    sleeper.send_signal(signal.SIGSTOP)
    before = workshop.pages()
    successor = workshop.worker(threads=1)
    wait_until(lambda: fence_of(workshop) == 2, within=20)
    successor.send_signal(signal.SIGSTOP)
    while_both_sleep = workshop.pages()
    sleeper.send_signal(signal.SIGCONT)
    wait_until(lambda: "lease_was_lost" in events(workshop, sleeper), within=20)
    after = workshop.pages()
    successor.send_signal(signal.SIGCONT)
    wait_until(workshop.is_finished, within=20)

    assert before == while_both_sleep == after == pages_of(workshop, fence=1)
    assert workshop.rows() == truth(workshop)
    assert workshop.penstock("audit", "poi").code == 0


def fence_of(workshop: Workshop) -> int:
    return int(workshop.ask("select max(fence) as fence from penstock_job")[0]["fence"])


def pages_of(workshop: Workshop, *, fence: int) -> int:
    found = workshop.ask("select 1 from penstock_page where fence = ?", fence)
    return len(found)


def events(workshop: Workshop, worker) -> str:
    return " ".join(str(entry) for entry in workshop.log_of(worker))


@everywhere
def test_a_worker_frozen_before_it_sends_does_not_ask_for_a_page_it_lost(open_workshop):
    # with so little allowance it waits for a token nearly all the time
    workshop = open_workshop(records=120)
    workshop.declare(workshop.poi(pages=keyset(10)), lease="3s", rate=4, burst=1)
    workshop.penstock("plan", "poi")
    frozen = workshop.worker(threads=1)
    wait_until(lambda: workshop.pages() >= 2)

    frozen.send_signal(signal.SIGSTOP)
    other = workshop.worker(threads=1)
    wait_until(workshop.is_finished, within=40)
    frozen.send_signal(signal.SIGCONT)
    frozen.terminate()
    other.terminate()

    assert workshop.output_of(frozen).code == 0
    assert workshop.output_of(other).code == 0
    assert repeated(workshop.sandbox.requests) <= 1
    assert peak_over(workshop.sandbox.requests, 4) <= 2
    assert workshop.rows() == truth(workshop)


@everywhere
def test_sigterm_finishes_the_page_and_releases_the_job(open_workshop):
    workshop = open_workshop(records=600, latency=timedelta(milliseconds=100))
    workshop.declare(workshop.by_country(size=5))
    workshop.penstock("plan", "poi")
    worker = workshop.worker(threads=3)
    wait_until(lambda: workshop.pages() >= 6)

    worker.terminate()
    ended = workshop.output_of(worker)

    open_jobs = workshop.ask(
        "select status, lease_owner, lease_until, attempts, rescues, snoozes "
        "from penstock_job where status <> 'done'"
    )
    assert ended.code == 0
    assert open_jobs
    assert {tuple(job.values()) for job in open_jobs} == {
        ("pending", None, None, 0, 0, 0)
    }
    assert workshop.penstock("run", "poi").code == 0
    assert repeated(workshop.sandbox.requests) == 0
    assert workshop.rows() == truth(workshop)


@everywhere
def test_a_run_after_all_workers_were_killed_goes_on_with_the_same_import(
    open_workshop,
):
    workshop = open_workshop(records=500, latency=timedelta(milliseconds=60))
    workshop.declare(workshop.by_country(size=5), lease="3s")
    planned = workshop.penstock("plan", "poi", "--json").json
    workers = [workshop.worker(threads=2) for _ in range(2)]
    wait_until(lambda: workshop.pages() >= 10)

    for worker in workers:
        worker.kill()
        worker.wait()
    done = workshop.penstock("run", "poi", "--workers", "2", "--json")

    assert done.code == 0
    assert done.json["import_id"] == planned["import_id"]
    assert done.json["rescues"] >= 1
    assert requests_after_commit(workshop) == []
    assert repeated(workshop.sandbox.requests) <= 4
    assert workshop.rows() == truth(workshop)
    assert workshop.penstock("audit", "poi").code == 0


@pytest.mark.parametrize(
    ("store", "workers"),
    [(Kind.SQLITE, "1"), (Kind.SQLITE, "2"), (Kind.POSTGRES_AND_REDIS, "2")],
    indirect=["store"],
)
def test_ctrl_c_ends_a_run_after_its_page_and_says_how_to_go_on(open_workshop, workers):
    workshop = open_workshop(records=500, latency=timedelta(milliseconds=60))
    workshop.declare(workshop.by_country(size=5))
    run = workshop.start("run", "poi", "--workers", workers)
    wait_until(lambda: workshop.pages() >= 10)

    run.send_signal(signal.SIGINT)
    ended = workshop.output_of(run)
    leased = workshop.ask("select 1 from penstock_job where status = 'leased'")
    again = workshop.penstock("run", "poi", "--json")

    assert ended.code == 1
    assert "resume with: penstock run poi" in ended.err
    assert leased == []
    assert again.code == 0
    assert again.json["import_id"] == 1
    assert again.json["rescues"] == 0
    assert repeated(workshop.sandbox.requests) == 0
    assert workshop.rows() == truth(workshop)


@on(Kind.SQLITE, Kind.POSTGRES)
def test_a_killed_run_goes_on_at_once_on_its_host(open_workshop):
    workshop = open_workshop(records=400, latency=timedelta(milliseconds=60))
    # longer than the next run may take
    workshop.declare(workshop.by_country(size=5), lease="1h")
    run = workshop.start("run", "poi")
    wait_until(lambda: workshop.pages() >= 5)

    run.kill()
    run.wait()
    again = workshop.penstock("run", "poi", "--json")

    assert again.code == 0
    assert again.json["import_id"] == 1
    assert requests_after_commit(workshop) == []
    assert workshop.rows() == truth(workshop)


@everywhere
def test_a_worker_that_ends_when_idle_plans_what_nobody_plans(open_workshop):
    workshop = open_workshop(records=60)
    workshop.declare(workshop.by_country())
    workshop.penstock("plan", "poi")
    # as a planner leaves it that was killed before its first shard
    workshop.tamper("delete from penstock_job where kind = 'shard'")
    workshop.tamper(
        "update penstock_job set status = 'pending', cursor = null, "
        "run_at = created_at, finished_at = null"
    )
    workshop.tamper("update penstock_import set status = 'planning'")

    ended = workshop.penstock("worker", "--until-idle")

    assert ended.code == 0
    assert workshop.status() == "done"
    assert workshop.rows() == truth(workshop)
