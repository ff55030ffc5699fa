"""Redis keeps every promise of the budgets, and a few that only it can make."""

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis import Redis
from redis.crc import key_slot
from typing_extensions import override

from penstock.adapters.redis.budgets import RedisBudgets
from penstock.adapters.redis.client import connect, describe
from penstock.adapters.redis.lua_scripts import key_of
from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.adapters.sqlite.schema import SqliteSchema
from penstock.adapters.sqlstore.budgets import SqlBudgets
from penstock.domain.budget import Budget, Grant, Limit
from penstock.errors import BudgetClosed, Misconfigured, StoreUnavailable
from penstock.ports import Stores
from tests.contracts.budgets import BudgetsContract, holds
from tests.services.private import PrivateRedis, free_port
from tests.support.builders import (
    HOUR,
    MINUTE,
    SECOND,
    Clock,
    budget,
    per_hour,
    per_minute,
    per_second,
    sqlite_stores,
)
from tests.support.proxy import Proxy

DAY = timedelta(days=1)
FAST = budget(per_second(200), burst=40)
PROCESSES, THREADS = 3, 8

StartRedis = Callable[[], PrivateRedis]
Dial = Callable[[str], Redis]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pass_time(clock: Clock) -> Callable[[timedelta], None]:
    return clock.pass_time


@pytest.fixture
def dial() -> Iterator[Dial]:
    """Connect to servers for the time of a test."""
    with ExitStack() as connected:
        yield lambda url: connected.enter_context(connect(url))


@pytest.fixture
def client(redis_url: str, dial: Dial) -> Redis:
    return dial(redis_url)


@pytest.fixture
def stores(tmp_path: Path, clock: Clock, client: Redis) -> Iterator[Stores]:
    database = SqliteDatabase(tmp_path / "penstock.db", clock=clock)
    stores = sqlite_stores(database)
    stores.schema.migrate()
    budgets = RedisBudgets(client, SqlBudgets(database), clock=clock)
    yield replace(stores, budgets=budgets)
    database.close()


class TestRedisBudgets(BudgetsContract):
    pass


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "notes.db"
    database = SqliteDatabase(path)
    SqliteSchema(database).migrate()
    database.close()
    return path


@pytest.fixture
def open_budgets(path: Path, dial: Dial) -> Iterator[Callable[[str], RedisBudgets]]:
    """Open budgets by the server's own clock."""
    database = SqliteDatabase(path)
    yield lambda url: RedisBudgets(dial(url), SqlBudgets(database))
    database.close()


# many at once


def spend(url: str, path: Path) -> list[int]:
    """Take by many threads whatever comes within two seconds; tell the slots."""
    database = SqliteDatabase(path)
    client = connect(url)
    budgets = RedisBudgets(client, SqlBudgets(database))

    def take_all(_: int) -> list[int]:
        slots = []
        while True:
            try:
                slots.append(budgets.take(FAST, longest=2 * SECOND).slot)
            except BudgetClosed:
                return slots

    with client, ThreadPoolExecutor(THREADS) as pool:
        return list(chain(*pool.map(take_all, range(THREADS))))


def tell(url: str, path: Path, result: Any, start: Any) -> None:
    # a process takes longer to start than to work
    start.wait()
    result.put(spend(url, path))


def test_many_processes_use_the_allowance_and_no_more(redis_url: str, path: Path):
    context = multiprocessing.get_context("spawn")
    results, start = context.SimpleQueue(), context.Barrier(PROCESSES)
    processes = [
        context.Process(target=tell, args=(redis_url, path, results, start))
        for _ in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    slots = sorted(chain(*[results.get() for _ in processes]))
    for process in processes:
        process.join()
    results.close()

    assert holds(FAST.limits[0], FAST.burst, slots)
    span = timedelta(microseconds=slots[-1] - slots[0])
    assert span >= 1.9 * SECOND
    assert len(slots) >= 0.98 * span.total_seconds() * 200


def calls(client: Redis) -> int:
    return int(client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))


def test_threads_share_calls(own_redis: StartRedis, open_budgets, dial: Dial):
    server = own_redis()
    client, threads, takes = dial(server.url), 32, 10
    of = budget(per_second(1000), burst=1000)
    with Proxy("127.0.0.1", server.port) as proxy:
        # or the first call is over before the second thread asks
        proxy.delay(0.005)
        budgets = open_budgets(proxy.via(server.url))
        budgets.take(of, longest=DAY)
        before = calls(client)
        with ThreadPoolExecutor(threads) as pool:
            grants = list(
                pool.map(
                    lambda _: budgets.take(of, longest=DAY), range(threads * takes)
                )
            )
        made = calls(client) - before
        taken = budgets.state(of).taken

    assert made <= threads * takes / 4
    assert holds(of.limits[0], of.burst, [grant.slot for grant in grants])
    # nothing is reserved that nobody asked for
    assert taken == len(grants) + 1


def test_one_thread_asks_once_for_each_token(
    own_redis: StartRedis, open_budgets, dial: Dial
):
    server = own_redis()
    client, budgets = dial(server.url), open_budgets(server.url)
    budgets.take(FAST, longest=DAY)
    before = calls(client)

    for _ in range(10):
        budgets.take(FAST, longest=DAY)

    assert calls(client) - before == 10


def test_each_thread_is_judged_by_its_own_patience(redis_url: str, open_budgets):
    budgets, of = open_budgets(redis_url), budget(per_minute(1))
    patience = [HOUR, SECOND] * 10
    budgets.take(of, longest=HOUR)

    def take(longest: timedelta) -> Grant | BudgetClosed:
        try:
            grant: Grant = budgets.take(of, longest=longest)
        except BudgetClosed as closed:
            return closed
        return grant

    with ThreadPoolExecutor(len(patience)) as pool:
        answers = list(pool.map(take, patience))

    assert [type(each) for each in answers] == [Grant, BudgetClosed] * 10
    assert budgets.state(of).taken == 11
    slots = sorted(each.slot for each in answers if isinstance(each, Grant))
    assert slots[-1] - slots[0] == 9 * 60_000_000


# keys


@pytest.mark.parametrize(
    ("of", "shortest"),
    [
        (budget(per_second(1)), 2 * SECOND),
        (budget(), SECOND),
        (budget(per_hour(5), Limit(requests=9, period=DAY)), 2 * DAY),
        (budget(Limit(requests=9, period=30 * DAY)), 60 * DAY),
    ],
)
def test_every_key_is_forgotten_after_two_periods_at_the_earliest(
    redis_url: str, client: Redis, open_budgets, of: Budget, shortest: timedelta
):
    open_budgets(redis_url).take(of, longest=DAY)

    assert client.keys() == [key_of("penstock", of.name)]
    left = timedelta(milliseconds=int(client.pttl(key_of("penstock", of.name))))
    # it began a moment ago
    assert shortest - MINUTE <= left <= shortest + 8 * DAY


def test_a_key_in_use_is_retained(redis_url: str, client: Redis, open_budgets):
    budgets, key = open_budgets(redis_url), key_of("penstock", FAST.name)
    budgets.take(FAST, longest=DAY)
    client.pexpire(key, MINUTE)

    budgets.take(FAST, longest=DAY)

    assert int(client.pttl(key)) > 2 * MINUTE // timedelta(milliseconds=1)


def test_no_key_is_forgotten_before_its_closure_ends(
    redis_url: str, client: Redis, open_budgets
):
    budgets, of = open_budgets(redis_url), budget(per_second(1))
    budgets.take(of, longest=DAY)
    budgets.close(of.name, wait=40 * DAY, reason="429")

    left = timedelta(milliseconds=int(client.pttl(key_of("penstock", of.name))))
    assert left >= 40 * DAY


def test_what_is_said_of_an_unknown_budget_is_forgotten_in_time(
    redis_url: str, client: Redis, open_budgets
):
    budgets = open_budgets(redis_url)
    for name, say in [
        ("a", lambda: budgets.close("a", wait=SECOND, reason="429")),
        ("b", lambda: budgets.stop("b", reason="401")),
        ("c", lambda: budgets.open("c")),
    ]:
        say()
        assert int(client.pttl(key_of("penstock", name))) > 0


def test_namespaces_share_nothing(redis_url: str, path: Path, dial: Dial):
    database, of = SqliteDatabase(path), budget(per_second(1))
    one, other = (
        RedisBudgets(dial(redis_url), SqlBudgets(database), namespace=name)
        for name in ("one", "other")
    )
    one.take(of, longest=DAY)

    assert other.state(of).taken == 0
    database.close()


class RedisCluster(PrivateRedis):
    """A cluster of one node, which holds all slots."""

    @override
    def _command(self) -> list[str | Path]:
        # its usual second port lies where the kernel finds ports for clients
        second = str(free_port())
        cluster = "--cluster-enabled", "yes", "--cluster-port", second
        return [*super()._command(), *cluster]


def test_a_cluster_accepts_all_scripts(open_budgets, dial: Dial):
    with RedisCluster() as server, dial(server.url) as client:
        client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        deadline = time.monotonic() + 20
        while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        budgets, of = open_budgets(server.url), budget(per_second(1), per_hour(9))

        grant = budgets.take(of, longest=DAY)
        assert budgets.confirm(grant)
        budgets.give_back(of, grant)
        budgets.close(of.name, wait=SECOND, reason="429")
        budgets.stop(of.name, reason="401")
        assert budgets.state(of).stopped == "401"
        budgets.open(of.name)
        assert budgets.take(of, longest=DAY)
        (key,) = client.keys()
        slot = client.execute_command("CLUSTER KEYSLOT", key)
        assert slot == key_slot(b"penstock:ocm")


def test_a_server_that_forgot_the_scripts_is_sent_them_again(
    redis_url: str, client: Redis, open_budgets
):
    budgets = open_budgets(redis_url)
    budgets.take(FAST, longest=DAY)

    client.script_flush()

    assert budgets.take(FAST, longest=DAY)


# failures


def deeds(budgets: RedisBudgets, of: Budget, grant: Grant) -> list[Callable[[], Any]]:
    return [
        lambda: budgets.take(of, longest=DAY),
        lambda: budgets.confirm(grant),
        lambda: budgets.give_back(of, grant),
        lambda: budgets.close(of.name, wait=SECOND, reason="429"),
        lambda: budgets.stop(of.name, reason="401"),
        lambda: budgets.open(of.name),
        lambda: budgets.state(of),
    ]


def test_a_server_that_is_gone_is_reported_by_every_method(
    own_redis: StartRedis, open_budgets
):
    server = own_redis()
    budgets, of = open_budgets(server.url), budget(per_second(1))
    grant = budgets.take(of, longest=DAY)
    server.kill()

    for deed in deeds(budgets, of, grant):
        with pytest.raises(StoreUnavailable, match=f"{server.url}.*penstock.redis"):
            deed()

    server.start()
    assert budgets.take(of, longest=DAY)


def test_a_server_that_is_silent_is_given_up_soon(redis_url: str, open_budgets):
    port = urlsplit(redis_url).port
    assert port is not None
    of = budget(per_second(1))
    with Proxy("127.0.0.1", port) as proxy:
        known, fresh = (open_budgets(proxy.via(redis_url)) for _ in range(2))
        known.take(of, longest=DAY)
        proxy.black_hole()

        for budgets in (known, fresh):
            began = time.monotonic()
            with pytest.raises(StoreUnavailable, match="Timeout"):
                budgets.take(of, longest=DAY)
            assert time.monotonic() - began < 30


def test_threads_that_share_a_call_are_all_reported_soon(redis_url: str, open_budgets):
    port = urlsplit(redis_url).port
    assert port is not None
    start = threading.Barrier(8)
    with Proxy("127.0.0.1", port) as proxy:
        budgets = open_budgets(proxy.via(redis_url))
        budgets.take(FAST, longest=DAY)
        proxy.black_hole()

        def take(_: int) -> str:
            start.wait()
            with pytest.raises(StoreUnavailable) as raised:
                budgets.take(FAST, longest=DAY)
            return str(raised.value)

        began = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(take, range(8)))

    assert time.monotonic() - began < 14
    assert all("Timeout" in each for each in found)


def test_a_token_whose_answer_is_lost_is_not_taken_twice(redis_url: str, open_budgets):
    port = urlsplit(redis_url).port
    assert port is not None
    with Proxy("127.0.0.1", port) as proxy:
        budgets = open_budgets(proxy.via(redis_url))
        budgets.take(FAST, longest=DAY)
        proxy.lose_reply_after(b"evalsha")
        with pytest.raises(StoreUnavailable):
            budgets.take(FAST, longest=DAY)

        assert proxy.lost_replies == 1
        assert budgets.state(FAST).taken == 2


def test_a_wrong_password_is_reported_and_not_repeated(
    own_redis: StartRedis, open_budgets, dial: Dial
):
    server = own_redis()
    dial(server.url).config_set("requirepass", "s3cret")
    wrong = server.url.replace("redis://", "redis://:wr0ng@")
    right = server.url.replace("redis://", "redis://:s3cret@")

    for url in (server.url, wrong):
        with pytest.raises(Misconfigured, match="password") as raised:
            open_budgets(url).take(FAST, longest=DAY)
        assert server.url in str(raised.value)
        assert "wr0ng" not in repr(raised.value)
    assert open_budgets(right).take(FAST, longest=DAY)


@pytest.mark.parametrize("missing", ["-evalsha", "-info", "-hset", "resetkeys"])
def test_a_missing_right_is_reported(
    own_redis: StartRedis, open_budgets, missing: str, dial: Dial
):
    server = own_redis()
    rights = ["on", ">s3cret", "~penstock:*", "+@all", missing]
    dial(server.url).execute_command("ACL SETUSER", "ann", *rights)
    url = server.url.replace("redis://", "redis://ann:s3cret@")

    with pytest.raises(Misconfigured, match="allow this user"):
        open_budgets(url).take(FAST, longest=DAY)


def test_the_rights_that_are_reported_are_enough(
    own_redis: StartRedis, open_budgets, dial: Dial
):
    server = own_redis()
    rights = ["+@hash", "+@scripting", "+info", "+time", "+@keyspace", "+@connection"]
    dial(server.url).execute_command(
        "ACL SETUSER", "ann", "on", ">s3cret", "~penstock:*", *rights
    )
    budgets = open_budgets(server.url.replace("redis://", "redis://ann:s3cret@"))
    grant = budgets.take(FAST, longest=DAY)

    for deed in deeds(budgets, FAST, grant):
        deed()


def test_a_full_server_is_unavailable(own_redis: StartRedis, open_budgets, dial: Dial):
    server = own_redis()
    client, budgets = dial(server.url), open_budgets(server.url)
    budgets.take(FAST, longest=DAY)
    client.config_set("maxmemory", "1mb")
    client.config_set("maxmemory-policy", "noeviction")

    with pytest.raises(StoreUnavailable, match="raise maxmemory"):
        budgets.take(FAST, longest=DAY)


def test_a_number_that_the_server_does_not_have_is_reported(
    own_redis: StartRedis, open_budgets
):
    server = own_redis()

    with pytest.raises(Misconfigured, match="number of a database"):
        open_budgets(f"{server.url}9999").take(FAST, longest=DAY)


# what is worth knowing of a server


def test_a_server_tells_its_version_and_its_clock(client: Redis):
    facts = describe(client)

    assert facts.version[0].isdigit()
    assert abs(facts.now - datetime.now(UTC)) < 10 * SECOND


def test_a_server_that_is_gone_tells_nothing(own_redis: StartRedis, dial: Dial):
    server = own_redis()
    client = dial(server.url)
    server.kill()

    with pytest.raises(StoreUnavailable):
        describe(client)
