"""A Redis that forgets lets nobody send more than rate x time + one burst."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis
from typing_extensions import override

from penstock.adapters.redis.budget_state import (
    BudgetStateReader,
    KnownBudget,
    UnknownBudget,
)
from penstock.adapters.redis.budgets import RedisBudgets
from penstock.adapters.redis.client import connect
from penstock.adapters.redis.lua_scripts import LuaScripts, key_of
from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.adapters.sqlite.schema import SqliteSchema
from penstock.adapters.sqlstore.budgets import SqlBudgets
from penstock.domain.budget import MAX_RESERVATION_AHEAD, Budget, Grant, Usage
from penstock.domain.formats import EPOCH, MICROSECOND
from penstock.errors import BudgetClosed, BudgetStopped, StoreUnavailable
from tests.contracts.budgets import BUDGETS, SPANS, holds
from tests.services.private import PrivateRedis
from tests.support.builders import (
    HOUR,
    MINUTE,
    SECOND,
    Clock,
    budget,
    per_hour,
    per_second,
)

DAY = timedelta(days=1)
AT_ONCE = timedelta()

StartRedis = Callable[[], PrivateRedis]
Dial = Callable[[str], Redis]


class Notes(SqlBudgets):
    """The database's notes; it may be down, and its clock may be another."""

    is_down = False
    notes = 0

    @override
    def remember(self, budget: Budget, usage: Usage, *, ahead: int) -> None:
        if self.is_down:
            raise StoreUnavailable("the database is down")
        self.notes += 1
        super().remember(budget, usage, ahead=ahead)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(tmp_path: Path, clock: Clock) -> Iterator[SqliteDatabase]:
    database = SqliteDatabase(tmp_path / "penstock.db", clock=clock)
    SqliteSchema(database).migrate()
    yield database
    database.close()


@pytest.fixture
def notes(database: SqliteDatabase) -> Notes:
    return Notes(database)


@pytest.fixture
def dial() -> Iterator[Dial]:
    """Connect to servers for the time of a test."""
    with ExitStack() as connected:
        yield lambda url: connected.enter_context(connect(url))


@pytest.fixture
def client(redis_url: str, dial: Dial) -> Redis:
    return dial(redis_url)


@pytest.fixture
def budgets(client: Redis, notes: Notes, clock: Clock) -> RedisBudgets:
    return RedisBudgets(client, notes, clock=clock)


def waits(budgets: RedisBudgets, of: Budget, takes: int) -> list[timedelta]:
    return [budgets.take(of, longest=DAY).wait for _ in range(takes)]


def left(budgets: RedisBudgets, of: Budget) -> list[int]:
    return [each.remaining for each in budgets.state(of).limits]


# reservations


def test_a_token_of_a_lost_memory_is_void(budgets, client, clock):
    once = budget(per_second(1))
    waits(budgets, once, 1)
    grant = budgets.take(once, longest=DAY)
    clock.pass_time(grant.wait)
    assert budgets.confirm(grant)

    client.flushdb()

    assert not budgets.confirm(grant)


def test_a_token_of_another_incarnation_is_void(budgets, client, clock):
    once = budget(per_second(1))
    waits(budgets, once, 1)
    grant = budgets.take(once, longest=DAY)
    client.flushdb()
    fresh = budgets.take(once, longest=DAY)
    clock.pass_time(grant.wait)

    assert fresh.slot == grant.slot
    assert budgets.confirm(fresh)
    assert not budgets.confirm(grant)


def test_a_token_of_another_incarnation_cannot_be_given_back(budgets, client):
    once = budget(per_second(1), per_hour(500))
    waits(budgets, once, 1)
    old = budgets.take(once, longest=DAY)
    client.flushdb()
    fresh = budgets.take(once, longest=DAY)
    before = budgets.state(once)

    budgets.give_back(once, old)
    assert budgets.state(once) == before
    budgets.give_back(once, fresh)
    assert budgets.state(once) != before


def test_after_a_loss_no_burst_is_left(budgets, client):
    bursting = budget(per_second(1), burst=5)
    assert waits(budgets, bursting, 4) == [AT_ONCE] * 4

    client.flushdb()

    assert left(budgets, bursting) == [0]
    assert waits(budgets, bursting, 2) == [SECOND, 2 * SECOND]


def test_a_budget_that_was_only_closed_still_has_its_burst(budgets, client):
    bursting = budget(per_second(1), burst=5)
    budgets.close(bursting.name, wait=MINUTE, reason="429")
    client.flushdb()
    budgets.open(bursting.name)

    assert waits(budgets, bursting, 4) == [AT_ONCE] * 4


def test_the_first_token_is_not_handed_out_before_the_note(budgets, notes, client):
    bursting = budget(per_second(1), burst=5)
    notes.is_down = True
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            budgets.take(bursting, longest=DAY)

    notes.is_down = False

    # what could not be noted was given back
    assert waits(budgets, bursting, 4) == [AT_ONCE] * 4


# quotas


def test_after_a_loss_a_quota_goes_on_from_the_notes(budgets, client, clock):
    quota = budget(per_hour(500))
    waits(budgets, quota, 300)

    client.flushdb()

    # at most a hundredth is not known, and exactly that much is assumed
    assert 195 <= left(budgets, quota)[0] <= 200
    assert waits(budgets, quota, 195) == [AT_ONCE] * 195
    assert HOUR <= waits(budgets, quota, 10)[-1] <= 1.03 * HOUR


def test_a_small_quota_is_known_to_the_token(budgets, client):
    quota = budget(per_hour(7))
    waits(budgets, quota, 5)

    client.flushdb()

    assert left(budgets, quota) == [2]


def test_many_losses_cost_a_hundredth_each(budgets, client):
    quota = budget(per_hour(1000))
    for _ in range(5):
        waits(budgets, quota, 1)
        client.flushdb()

    assert 1000 - 5 * 11 <= left(budgets, quota)[0] <= 1000 - 5


def test_a_loss_that_is_long_ago_costs_nothing_but_its_allowance(
    budgets, client, clock
):
    quota = budget(per_hour(500))
    waits(budgets, quota, 500)
    client.flushdb()
    clock.pass_time(30 * DAY)

    assert left(budgets, quota) == [495]


def test_notes_are_few(budgets, notes):
    quota = budget(per_hour(10_000))
    waits(budgets, quota, 1000)

    assert notes.notes <= 12


def test_a_budget_without_quota_is_noted_once(budgets, notes):
    waits(budgets, budget(per_second(1)), 300)

    assert notes.notes <= 2


def test_a_database_that_is_down_ends_a_quota_within_a_hundredth(budgets, notes):
    quota = budget(per_hour(1000))
    waits(budgets, quota, 1)
    notes.is_down = True
    waits(budgets, quota, 10)

    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            budgets.take(quota, longest=DAY)

    assert budgets.state(quota).taken == 11
    assert left(budgets, quota) == [1000 - 11]


def test_a_database_that_is_down_does_not_end_a_smooth_budget(budgets, notes):
    smooth = budget(per_second(1))
    waits(budgets, smooth, 1)
    notes.is_down = True

    assert len(waits(budgets, smooth, 100)) == 100


def test_clocks_far_apart_do_not_lose_a_count(client, notes, clock):
    ahead = Clock(now=clock.now + 7 * HOUR + 11 * SECOND)
    budgets = RedisBudgets(client, notes, clock=ahead)
    quota = budget(per_hour(500))
    waits(budgets, quota, 500)
    client.flushdb()

    wait = waits(budgets, quota, 1)[0]

    assert HOUR <= wait <= 1.04 * HOUR


# what was said


def test_a_closure_outlives_the_memory(budgets, client, clock):
    once = budget(per_second(1))
    budgets.close(once.name, wait=MINUTE, reason="429")
    waits(budgets, once, 1)
    client.flushdb()
    clock.pass_time(10 * SECOND)

    state = budgets.state(once)
    assert (state.closed_for, state.closed_reason) == (50 * SECOND, "429")
    with pytest.raises(BudgetClosed) as refused:
        budgets.take(once, longest=SECOND)
    assert refused.value.wait == 50 * SECOND


def test_a_stop_outlives_the_memory(budgets, client):
    once = budget(per_second(1))
    budgets.stop(once.name, reason="401")
    client.flushdb()

    assert budgets.state(once).stopped == "401"
    with pytest.raises(BudgetStopped):
        budgets.take(once, longest=SECOND)
    budgets.open(once.name)
    assert waits(budgets, once, 1) == [AT_ONCE]


def test_an_opening_outlives_the_memory(budgets, client):
    once = budget(per_second(1))
    waits(budgets, once, 1)
    budgets.stop(once.name, reason="401")
    budgets.open(once.name)
    client.flushdb()

    assert budgets.take(once, longest=DAY)


@pytest.mark.parametrize("say", ["close", "stop", "open"])
def test_what_is_said_while_a_memory_is_restored_is_not_overlooked(
    budgets, client, clock, say
):
    once = budget(per_second(1))
    memory = BudgetStateReader(LuaScripts(client, namespace="penstock", clock=clock))
    lost = memory.read(once.name)
    assert isinstance(lost, UnknownBudget)

    match say:
        case "close":
            budgets.close(once.name, wait=MINUTE, reason="429")
        case "stop":
            budgets.stop(once.name, reason="401")
        case _:
            budgets.open(once.name)

    # who asked the database before that has to ask again
    assert not memory.create(once, lost, Usage(), None)
    again = memory.read(once.name)
    assert isinstance(again, UnknownBudget)
    assert memory.create(once, again, Usage(), None)


def test_a_memory_that_is_there_is_not_made_again(budgets, client, clock):
    once = budget(per_second(1))
    memory = BudgetStateReader(LuaScripts(client, namespace="penstock", clock=clock))
    lost = memory.read(once.name)
    assert isinstance(lost, UnknownBudget)
    assert memory.create(once, lost, Usage(), None)
    assert int(client.pttl(key_of("penstock", once.name))) > 0
    waits(budgets, once, 3)

    assert not memory.create(once, lost, Usage(), None)
    assert waits(budgets, once, 1) == [3 * SECOND]


def test_what_the_database_said_long_ago_is_not_believed(client, clock):
    once = budget(per_second(1))
    memory = BudgetStateReader(LuaScripts(client, namespace="penstock", clock=clock))
    lost = memory.read(once.name)
    assert isinstance(lost, UnknownBudget)
    clock.pass_time(MINUTE)

    assert not memory.create(once, lost, Usage(), None)


def test_a_closure_reaches_the_server_while_the_database_is_down(
    budgets, database, clock
):
    once = budget(per_second(1))
    grant = budgets.take(once, longest=DAY)
    database.path.rename(database.path.with_suffix(".away"))
    database.close()
    with pytest.raises(Exception, match=r"penstock\.db"):
        budgets.close(once.name, wait=MINUTE, reason="429")
    with pytest.raises(Exception, match=r"penstock\.db"):
        budgets.open(once.name)

    with pytest.raises(BudgetClosed):
        budgets.confirm(grant)


# any order of events


@dataclass
class Sender:
    """Sends with tokens whose time has come, as a worker does."""

    budgets: RedisBudgets
    of: Budget
    clock: Clock
    waiting: list[Grant] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)

    def take(self, longest: timedelta) -> None:
        try:
            grant = self.budgets.take(self.of, longest=longest)
        except BudgetClosed:
            return
        if grant.wait:
            self.waiting.append(grant)
        else:
            self.sent.append(grant.slot)

    def wait(self, span: timedelta) -> None:
        until = self.clock.now + span
        due = [each for each in self.waiting if instant(each) <= until]
        for grant in sorted(due, key=lambda each: each.slot):
            self.clock.now = max(self.clock.now, instant(grant))
            self.waiting.remove(grant)
            if self.budgets.confirm(grant):
                self.sent.append(grant.slot)
        self.clock.now = until


def instant(grant: Grant):
    return EPOCH + timedelta(microseconds=grant.slot)


DEEDS = st.one_of(
    # no store keeps a reservation further ahead
    st.tuples(st.just("take"), st.timedeltas(timedelta(), MAX_RESERVATION_AHEAD)),
    st.tuples(st.just("take"), st.just(MAX_RESERVATION_AHEAD)),
    st.tuples(st.just("wait"), SPANS),
    st.tuples(st.just("give_back"), st.integers(0, 3)),
    st.tuples(st.just("lose"), st.none()),
)


@given(of=BUDGETS, deeds=st.lists(DEEDS, max_size=30))
@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_interleaving_with_losses_sends_more_than_the_limits(
    budgets, client, clock, of, deeds
):
    of = Budget(name=str(uuid4()), limits=of.limits, burst=of.burst)
    sender = Sender(budgets, of, clock)
    for deed, result in deeds:
        match deed:
            case "take":
                sender.take(result)
            case "wait":
                sender.wait(result)
            case "lose":
                client.flushdb()
            case _:
                if result < len(sender.waiting):
                    budgets.give_back(of, sender.waiting.pop(-1 - result))

    assert all(holds(limit, of.burst, sender.sent) for limit in of.limits)


# real servers


BUSY = budget(per_second(40), burst=8)
THREADS = 24


def send_until(
    end: threading.Event, budgets: RedisBudgets, sent: list[int], failures: list[str]
) -> None:
    """Take, wait, confirm and send, as a worker does; tell the slots."""
    while not end.is_set():
        try:
            grant = budgets.take(BUSY, longest=5 * SECOND)
            time.sleep(grant.wait.total_seconds())
            if not grant.wait or budgets.confirm(grant):
                sent.append(grant.slot)
        except StoreUnavailable as error:
            failures.append(str(error))
            time.sleep(0.02)


def test_a_server_killed_at_work_lets_nobody_send_too_much(
    own_redis: StartRedis, tmp_path: Path, dial: Dial
):
    server, database = own_redis(), SqliteDatabase(tmp_path / "real.db")
    SqliteSchema(database).migrate()
    # two processes, as far as the adapter can tell
    pools = [RedisBudgets(dial(server.url), SqlBudgets(database)) for _ in range(2)]
    end, failures = threading.Event(), list[str]()
    sent: list[int] = []
    began = time.monotonic()
    with ThreadPoolExecutor(THREADS) as pool:
        for number in range(THREADS):
            pool.submit(send_until, end, pools[number % 2], sent, failures)
        for _ in range(4):
            time.sleep(0.7)
            server.kill()
            server.start()
        time.sleep(1.5)
        end.set()
    elapsed = time.monotonic() - began
    database.close()

    assert failures
    assert holds(BUSY.limits[0], BUSY.burst, sent)
    assert len(sent) <= 40 * elapsed + BUSY.burst
    # it does go on after each loss
    assert len(sent) >= 40 * (elapsed - 4) / 2


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_server_that_comes_back_with_an_old_copy_is_not_believed(
    own_redis: StartRedis, notes: Notes, clock: Clock, end: str, dial: Dial
):
    server = own_redis()
    client = dial(server.url)
    budgets = RedisBudgets(client, notes, clock=clock)
    of = budget(per_second(1), per_hour(50), burst=5)
    waits(budgets, of, 1)
    client.save()
    grant = [budgets.take(of, longest=DAY) for _ in range(30)][-1]
    budgets.stop(of.name, reason="401")
    budgets.open(of.name)
    budgets.close(of.name, wait=10 * SECOND, reason="429")

    getattr(server, end)()
    server.start()

    # it is there, and it is old
    assert client.exists(key_of("penstock", of.name))
    state = budgets.state(of)
    assert [each.remaining for each in state.limits] == [0, 19]
    assert state.closed_for == 10 * SECOND
    clock.pass_time(grant.wait)
    assert not budgets.confirm(grant)
    assert waits(budgets, of, 2) == [SECOND, 2 * SECOND]


def test_a_replica_that_takes_over_is_not_believed(
    own_redis: StartRedis, notes: Notes, clock: Clock, dial: Dial
):
    primary, replica = own_redis(), own_redis()
    of = budget(per_second(1), burst=5)
    before = RedisBudgets(dial(primary.url), notes, clock=clock)
    waits(before, of, 1)
    # a copy for one need not wait for others
    dial(primary.url).config_set("repl-diskless-sync-delay", 0)
    follower = dial(replica.url)
    follower.replicaof("127.0.0.1", primary.port)
    deadline = time.monotonic() + 20
    while not follower.exists(key_of("penstock", of.name)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    after = RedisBudgets(follower, notes, clock=clock)
    with pytest.raises(StoreUnavailable, match="of the primary"):
        after.take(of, longest=DAY)

    follower.replicaof("NO", "ONE")

    assert waits(after, of, 1) == [SECOND]


def test_of_many_who_restore_a_memory_the_first_one_wins(
    own_redis: StartRedis, tmp_path: Path, dial: Dial
):
    server, database = own_redis(), SqliteDatabase(tmp_path / "real.db")
    SqliteSchema(database).migrate()
    crowd = [RedisBudgets(dial(server.url), SqlBudgets(database)) for _ in range(12)]
    of = budget(per_second(1), per_hour(1000), burst=6)
    start = threading.Barrier(len(crowd))

    def take(budgets: RedisBudgets) -> Grant:
        start.wait()
        return budgets.take(of, longest=DAY)

    with ThreadPoolExecutor(len(crowd)) as pool:
        first = list(pool.map(take, crowd))
        server.kill()
        server.start()
        second = list(pool.map(take, crowd))

    for grants in (first, second):
        assert len({grant.incarnation for grant in grants}) == 1
        assert holds(of.limits[0], of.burst, [grant.slot for grant in grants])
    assert len({grant.slot for grant in second}) == len(crowd)
    # the loss is allowed for once, not by each who saw it
    assert left(crowd[0], of)[1] >= 1000 - 24 - 10
    database.close()


def test_the_memory_names_the_run_of_its_server(budgets, client, clock):
    waits(budgets, budget(per_second(1)), 1)
    memory = BudgetStateReader(LuaScripts(client, namespace="penstock", clock=clock))

    known = memory.read(budget().name, "taken")

    assert isinstance(known, KnownBudget)
    assert known.incarnation.startswith(client.info("server")["run_id"])
    assert known.now == (clock() - EPOCH) // MICROSECOND
