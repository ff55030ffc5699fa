"""What many workers on one PostgreSQL and one Redis have to get right together."""

import time
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
import redis
from psycopg import sql

from penstock.entrypoints.worker.pool import API_JOBS, cores, spread
from tests.conftest import StartPostgres, StartRedis
from tests.e2e.conftest import OpenWorkshop
from tests.services.private import PrivatePostgres
from tests.support.evidence import truth
from tests.support.stores import PASSWORD, Kind, PostgresStore, on, with_password
from tests.support.workshop import Process, Workshop, wait_until

ROLE = "importer"
REDIS_SECRET = "practice-redis-2b9f40aa"
WRONG = "wrong-password-91c3"
ONLY_BY_PASSWORD = f"host all {ROLE} 127.0.0.1/32 scram-sha-256\n"


@on(Kind.POSTGRES)
def test_a_worker_takes_the_work_of_its_region_and_of_none(open_workshop):
    workshop = open_workshop(records=60)
    workshop.declare(
        workshop.by_country(name="near", dataset='region = "eu"'),
        workshop.by_country(name="far", dataset='region = "us"'),
        workshop.by_country(name="anywhere"),
    )
    for dataset in ("near", "far", "anywhere"):
        workshop.penstock("plan", dataset)

    in_europe = workshop.worker("--region", "eu", "--until-idle")
    assert workshop.output_of(in_europe).code == 0
    left = workshop.ask(
        "select distinct dataset, status, fence from penstock_job "
        "where status <> 'done'"
    )
    workshop.penstock("plan", "anywhere")
    in_america = workshop.worker("--region", "us", "--until-idle")
    assert workshop.output_of(in_america).code == 0

    assert left == [{"dataset": "far", "status": "pending", "fence": 0}]
    assert claimed_by(workshop, in_europe) == {"near", "anywhere"}
    assert claimed_by(workshop, in_america) == {"far", "anywhere"}
    assert workshop.rows("far") == workshop.rows("near") == truth(workshop)


def claimed_by(workshop: Workshop, worker: Process) -> set[str]:
    log = workshop.log_of(worker)
    return {entry["dataset"] for entry in log if entry["event"] == "job_claimed"}


@on(Kind.POSTGRES)
@pytest.mark.parametrize("is_limited", [False, True])
def test_a_run_has_a_process_a_core_only_where_no_budget_limits_it(
    open_workshop, is_limited
):
    workshop = open_workshop(records=200, latency=timedelta(milliseconds=60))
    result = workshop.by_country(size=5)
    if not is_limited:
        result = result.replace('budget = "practice"', "")
    workshop.declare(result)

    run = workshop.start("run", "poi")
    wait_until(lambda: workshop.pages() >= 1)
    beside = children_of(run)
    ended = workshop.output_of(run)

    processes, _ = spread(API_JOBS, cores=cores())
    assert len(beside) == (0 if is_limited else processes - 1)
    assert ended.code == 0
    assert workshop.rows() == truth(workshop)


def children_of(process: Process) -> list[str]:
    known = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return known.read_text().split()


@on(Kind.POSTGRES)
def test_an_idle_worker_is_woken_by_a_plan(open_workshop):
    workshop = open_workshop(records=20)
    workshop.declare(workshop.poi())
    # one thread, which asks by itself only every five seconds or so
    workshop.worker(threads=1)
    wait_until(lambda: workshop.ask(LISTENERS))

    waits = [woken_after(workshop) for _ in range(3)]

    assert max(waits) < 1.5


LISTENERS = "select 1 from pg_stat_activity where query = 'listen penstock'"


def woken_after(workshop: Workshop) -> float:
    """Plan an import; return the seconds from then to its first request."""
    time.sleep(1.5)
    workshop.sandbox.forget_requests()
    planned = workshop.penstock("plan", "poi", "--json").json["import_id"]
    wait_until(lambda: workshop.status(planned) == "done")
    found = workshop.ask(
        "select max(created_at) as at from penstock_job where import_id = ?", planned
    )
    by_our_clock = workshop.seconds(found[0]["at"]) - time.time() + time.monotonic()
    return workshop.sandbox.requests[0].at - by_our_clock


@on(Kind.POSTGRES_AND_REDIS)
def test_ten_migrations_and_ten_workers_start_at_once(open_workshop):
    workshop = open_workshop(records=100)
    workshop.declare(workshop.by_country(), migrate=False)

    migrations = [workshop.start("migrate", "--json") for _ in range(10)]
    workers = [workshop.worker("--until-idle") for _ in range(10)]
    migrated = [workshop.output_of(each) for each in migrations]
    worked = [workshop.output_of(each) for each in workers]

    numbers = workshop.ask("select number from penstock_migration")
    assert {each.code for each in migrated} == {0}, migrated
    # one may create the ledger and another the dataset, but nothing is done twice
    steps = [step for each in migrated for step in each.json["applied"]]
    assert len(set(steps)) == len(steps) > 1
    assert len({row["number"] for row in numbers}) == len(numbers) > 0
    for each in worked:
        # whoever came too early says what to do
        assert each.code == 0 or (
            each.code == 2 and "run: penstock migrate" in each.err
        ), each
    assert workshop.penstock("run", "poi", "--workers", "2").code == 0
    assert workshop.rows() == truth(workshop)


@pytest.fixture
def guarded(
    own_postgres: StartPostgres, own_redis: StartRedis
) -> tuple[PrivatePostgres, PostgresStore]:
    """Start servers that let nobody in without a password."""
    postgres, cache = own_postgres(), own_redis()
    hba = postgres.folder / "data" / "pg_hba.conf"
    hba.write_text(ONLY_BY_PASSWORD + hba.read_text("utf-8"), "utf-8")
    with psycopg.connect(postgres.url, autocommit=True) as server:
        role = sql.Identifier(ROLE)
        server.execute(
            sql.SQL("create role {} superuser login password {}").format(
                role, sql.Literal(PASSWORD)
            )
        )
        server.execute("select pg_reload_conf()")
    with redis.Redis.from_url(cache.url) as client:
        client.config_set("requirepass", REDIS_SECRET)
    url = with_password(postgres.url.replace("postgres@", f"{ROLE}@"), PASSWORD)
    return postgres, PostgresStore(url, redis=with_password(cache.url, REDIS_SECRET))


def test_no_password_is_reported_or_stored(guarded, open_workshop: OpenWorkshop):
    postgres, store = guarded
    # every command, log and table is searched for the key and for both passwords
    workshop = open_workshop(stored_in=store, records=120, bad=0.05)
    workshop.declare(workshop.by_country())

    assert workshop.penstock("check", "--connect").code == 0
    assert workshop.penstock("run", "poi", "--workers", "2", "--json").code == 0
    assert workshop.penstock("audit", "poi").code == 0
    assert workshop.penstock("budgets", "--json").code == 0
    assert workshop.penstock("imports", "--json").code == 0
    assert workshop.penstock("jobs", "--json").code == 0
    assert workshop.penstock("quarantine", "poi", "--json").code == 0

    for refused in (
        workshop.penstock("run", "poi", PRACTICE_POSTGRES_PASSWORD=WRONG),
        workshop.penstock("run", "poi", PRACTICE_REDIS_PASSWORD=WRONG),
    ):
        assert refused.code == 2, refused
        assert "password" in refused.err.lower()
        assert WRONG not in refused.out + refused.err

    postgres.stop()
    for command in (("run", "poi"), ("check", "--connect"), ("worker", "--until-idle")):
        away = workshop.penstock(*command)
        assert away.code in {1, 2}
        assert "127.0.0.1" in away.out + away.err
    postgres.start()
