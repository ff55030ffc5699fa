"""Workers, PostgreSQL, Redis and the lines between them fail while an import runs."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import psycopg
import pytest

from penstock.sandbox import peak_over
from tests.conftest import StartPostgres, StartRedis
from tests.e2e.conftest import OpenWorkshop
from tests.support.evidence import LATE, repeated, requests_after_commit, truth
from tests.support.fleet import Fleet
from tests.support.proxy import Proxy
from tests.support.shops import lines, shops, some_shops, stored, write
from tests.support.stores import PostgresStore, SqliteStore, Store
from tests.support.workshop import Workshop, wait_until

RATE, BURST = 20, 8
ALLOWED = BURST + int(RATE * LATE)
WORKERS, THREADS = 4, 2
# what may be in the hands of a fleet, and is asked for again when all is lost
IN_HAND = WORKERS * THREADS
# a worker that cannot reach a store says so to nobody: it takes so long, in seconds,
# until it knows, until its token is worthless, and until its request arrives
STILL_SENDING = 0.2

# nobody listens there
NO_REDIS = "redis://127.0.0.1:9/0"

Lead = Callable[[str], Proxy]


@pytest.fixture
def lead() -> Iterator[Lead]:
    """Put proxies before servers."""
    with ExitStack() as running:

        def through(url: str) -> Proxy:
            server = urlsplit(url)
            assert server.hostname is not None
            assert server.port is not None
            return running.enter_context(Proxy(server.hostname, server.port))

        yield through


def begin(
    open_workshop: OpenWorkshop, store: Store, *, records: int = 900
) -> tuple[Workshop, Fleet]:
    workshop = open_workshop(stored_in=store, records=records, rate=RATE, burst=ALLOWED)
    workshop.declare(workshop.by_country(size=6), rate=RATE, burst=BURST)
    assert workshop.penstock("plan", "poi").code == 0
    fleet = Fleet(workshop, size=WORKERS, threads=THREADS)
    # who starts while a server is down says so and ends, as every command does
    wait_until(fleet.is_at_work)
    return workshop, fleet


def let_work(workshop: Workshop, *, pages: int) -> None:
    """Wait until so many more pages are committed."""
    enough = workshop.pages() + pages
    wait_until(lambda: workshop.pages() >= enough or workshop.is_finished())
    assert not workshop.is_finished(), "it was over before anything could happen to it"


def check_the_end(workshop: Workshop, fleet: Fleet, *, cost: int) -> None:
    """Nothing is lost, doubled, blamed or over the rate; `cost` pages came twice."""
    wait_until(workshop.is_finished, within=60)
    assert fleet.ended() == []
    assert set(fleet.stop()) == {0}

    requests = workshop.sandbox.requests
    jobs = workshop.ask(
        "select status, attempts, proof from penstock_job where kind = 'shard'"
    )
    blamed = [each for each in fleet.logged("job_postponed") if each["attempts"]]
    audit = workshop.penstock("audit", "poi", "--json")
    assert workshop.status() == "done"
    assert {job["status"] for job in jobs} == {"done"}
    assert None not in {job["proof"] for job in jobs}
    assert blamed == fleet.logged("job_failed") == []
    assert fleet.stumbles() == []
    assert workshop.rows() == truth(workshop)
    assert requests_after_commit(workshop) == []
    assert repeated(requests) <= cost
    assert {request.status for request in requests} == {200}
    assert peak_over(requests, RATE) <= ALLOWED
    assert audit.json["complete"] is True


def test_half_of_the_workers_killed_again_and_again(
    postgres_database, redis_url, open_workshop
):
    store = PostgresStore(postgres_database, redis=redis_url)
    workshop, fleet = begin(open_workshop, store)

    lost = 0
    for _ in range(4):
        let_work(workshop, pages=20)
        lost += fleet.kill_half()

    check_the_end(workshop, fleet, cost=lost)


def test_a_crash_of_postgresql_costs_only_what_was_in_hand(
    own_postgres: StartPostgres, redis_url, open_workshop
):
    postgres = own_postgres()
    store = PostgresStore(postgres.url, redis=redis_url)
    workshop, fleet = begin(open_workshop, store)

    for _ in range(2):
        let_work(workshop, pages=40)
        postgres.restart("immediate")

    check_the_end(workshop, fleet, cost=2 * IN_HAND)


def test_a_crash_of_postgresql_that_keeps_the_budgets_costs_no_more(
    own_postgres: StartPostgres, open_workshop
):
    postgres = own_postgres()
    workshop, fleet = begin(open_workshop, PostgresStore(postgres.url))

    let_work(workshop, pages=40)
    postgres.stop("immediate")
    gone = time.monotonic()
    time.sleep(2)
    back = time.monotonic()
    postgres.start()

    check_the_end(workshop, fleet, cost=IN_HAND)
    assert sent_between(workshop, gone + STILL_SENDING, back) == 0


def test_a_redis_that_forgets_everything_breaks_no_limit(
    postgres_database, own_redis: StartRedis, open_workshop
):
    redis = own_redis()
    store = PostgresStore(postgres_database, redis=redis.url)
    workshop, fleet = begin(open_workshop, store)

    absences = []
    for _ in range(3):
        let_work(workshop, pages=30)
        redis.kill()
        gone = time.monotonic()
        time.sleep(1.5)
        absences.append((gone, time.monotonic()))
        redis.start()

    check_the_end(workshop, fleet, cost=0)
    for gone, back in absences:
        assert sent_between(workshop, gone + STILL_SENDING, back) == 0


def sent_between(workshop: Workshop, begin: float, end: float) -> int:
    return sum(begin < request.at < end for request in workshop.sandbox.requests)


def test_a_bad_line_to_postgresql_loses_and_doubles_nothing(
    postgres_database, redis_url, lead: Lead, open_workshop
):
    line = lead(postgres_database)
    store = PostgresStore(
        postgres_database, redis=redis_url, detour=line.via(postgres_database)
    )
    workshop, fleet = begin(open_workshop, store)

    disturb(line, workshop)

    # a cut, a silence that lasted longer than a commit may, and lines that lay idle
    # then: they look alive until a commit tries them
    check_the_end(workshop, fleet, cost=3 * IN_HAND)


@pytest.mark.slow
def test_a_bad_line_to_redis_loses_and_doubles_nothing(
    postgres_database, redis_url, lead: Lead, open_workshop
):
    line = lead(redis_url)
    store = PostgresStore(postgres_database, redis=line.via(redis_url))
    workshop, fleet = begin(open_workshop, store)

    disturb(line, workshop)

    check_the_end(workshop, fleet, cost=0)


def disturb(line: Proxy, workshop: Workshop) -> None:
    """Delay, cut and black-hole a line, and mend it each time."""
    let_work(workshop, pages=20)
    line.delay(0.01)
    let_work(workshop, pages=10)
    line.mend()
    let_work(workshop, pages=10)
    line.cut()
    time.sleep(2)
    line.mend()
    let_work(workshop, pages=20)
    line.black_hole()
    time.sleep(3)
    line.mend()
    # what was silenced stays silent: all have to find new lines by themselves
    let_work(workshop, pages=20)


def test_files_need_no_redis(tmp_path, open_workshop):
    workshop = open_workshop(stored_in=SqliteStore(tmp_path, redis=NO_REDIS))
    write(workshop.folder / "a.csv", lines(some_shops(10)))
    workshop.declare(shops())

    ran = workshop.penstock("run", "shops")
    write(workshop.folder / "b.csv", lines(some_shops(10, first=11)))
    planned = workshop.penstock("plan", "shops")
    worker = workshop.penstock("worker", "--until-idle")

    assert (ran.code, planned.code, worker.code) == (0, 0, 0), worker.err
    assert stored(workshop) == some_shops(20)


def test_a_run_that_needs_a_budget_says_that_redis_is_away(tmp_path, open_workshop):
    workshop = open_workshop(stored_in=SqliteStore(tmp_path, redis=NO_REDIS))
    workshop.declare(workshop.by_country())
    running = workshop.start("run", "poi")
    text = workshop.folder / "0.err"
    sentence = "waiting for an unavailable store: redis://127.0.0.1:9/0: "

    wait_until(lambda: sentence in text.read_text())
    running.send_signal(signal.SIGINT)

    ran = workshop.output_of(running)
    assert ran.err.count(sentence) == 1
    assert "check that it runs and that penstock.redis is its address" in ran.err
    assert workshop.sandbox.requests == []


def test_a_run_says_that_a_page_is_tried_again_because_the_database_is_slow(
    postgres_database, open_workshop
):
    workshop = open_workshop(stored_in=PostgresStore(postgres_database))
    write(workshop.folder / "a.csv", lines(some_shops(2)))
    write(workshop.folder / "b.csv", lines(some_shops(2, first=11)))
    workshop.declare(shops())
    output = workshop.folder / "0.err"

    with psycopg.connect(postgres_database) as other:
        other.execute("lock table penstock.shops in exclusive mode")
        running = workshop.start("run", "shops", "--workers", "2")
        wait_until(lambda: "retrying (attempt 2)" in output.read_text())

    ran = workshop.output_of(running)
    assert ran.code == 0, ran.err
    assert "a page of job " in ran.err
    assert stored(workshop) == {**some_shops(2), **some_shops(2, first=11)}
