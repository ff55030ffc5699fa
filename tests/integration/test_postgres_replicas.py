"""Replicas answer, and never with less than a client may know of."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from penstock.adapters.postgres.connection_pool import CLIENT_SESSION, REPLICA_SESSION
from penstock.adapters.postgres.database import PostgresDatabase
from penstock.adapters.postgres.replicas import MIN_BACKOFF, Replica, ReplicatedDatabase
from penstock.adapters.sqlstore.stores import build_api_stores
from penstock.domain.search.filter_params import read_query
from penstock.ports import Stores
from penstock.ports.record_access import ApiStores, Write, WriteResult
from tests.conftest import StartPostgres, StartStandby
from tests.services.private import PrivatePostgres, PrivateStandby
from tests.support.builders import batch, claim, dataset, last, plan, record, run
from tests.support.postgres import Place, opened
from tests.support.proxy import Proxy
from tests.support.workshop import happens

POI = dataset()
# as the driver sends it: a kind, a length, the text, whatever follows in the same go
COMMIT = re.compile(rb"Q.{4}commit", re.DOTALL)


def commits(chunk: bytes) -> bool:
    return COMMIT.search(chunk) is not None


@dataclass
class Set:
    """A primary and its replica, and an API process that reads from both."""

    primary: PrivatePostgres
    # on which the process reaches the primary
    line: Proxy
    standby: PrivateStandby
    stores: Stores
    served: ApiStores
    database: ReplicatedDatabase
    clock: list[float]

    @property
    def replica(self) -> Replica:
        return self.database.replicas[0]

    def ask_standby(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.standby.url, autocommit=True) as server:
            answer = server.execute(statement.encode())
            return answer.fetchall() if answer.description else []

    def hold_back(self) -> None:
        self.ask_standby("select pg_wal_replay_pause()")

    def release(self) -> None:
        self.ask_standby("select pg_wal_replay_resume()")

    def cut_after_commit(self) -> None:
        """Let nothing more reach the primary once it was asked to commit something."""
        requests: list[bytes] = []

        def is_over(chunk: bytes) -> bool:
            if requests:
                raise ConnectionResetError
            if commits(chunk):
                requests.append(chunk)
            return False

        self.line.lose_reply_after(is_over)

    def write(self, *numbers: int) -> WriteResult:
        """Store rows as a client does."""
        keys = [(number,) for number in numbers]
        wanted = [Write(record(number)) for number in numbers]
        return self.served.edits.change(POI, keys, lambda _: wanted)

    def ids(self) -> list[int]:
        query, _ = read_query(POI, [("limit", "200")])
        listing = self.served.reads.page(query)
        return [int(row.split(b":")[1].split(b",")[0]) for row in listing.rows]

    def requests(self) -> int:
        """Return how many statements the replica has answered for us."""
        (row,) = self.ask_standby(
            "select coalesce(sum(calls), 0) from pg_stat_statements "
            "where query like '%row_to_json%'"
        )
        return int(row[0])


@pytest.fixture
def of(own_postgres: StartPostgres, own_standby: StartStandby) -> Iterator[Set]:
    counting = {"shared_preload_libraries": "pg_stat_statements"}
    primary = own_postgres(**counting)
    with psycopg.connect(primary.url, autocommit=True) as server:
        server.execute("create extension pg_stat_statements")
    standby = own_standby(primary, **counting)
    place = Place(primary.url, "penstock")
    clock = [0.0]
    with ExitStack() as stack:
        line = stack.enter_context(Proxy("127.0.0.1", primary.port))
        stores, _ = stack.enter_context(opened(place))
        stores.schema.migrate()
        databases = [
            PostgresDatabase(url, place=url, schema="penstock", manner=manner)
            for url, manner in (
                (line.via(primary.url), CLIENT_SESSION),
                (standby.url, REPLICA_SESSION),
            )
        ]
        for each in databases:
            stack.callback(each.close)
        replica = Replica(databases[1], clock=lambda: clock[0])
        database = ReplicatedDatabase(databases[0], [replica])
        served = build_api_stores(
            database,
            primary=databases[0],
            on_news=database.raise_floor,
            on_lost=database.doubt,
        )
        yield Set(primary, line, standby, stores, served, database, clock)


def wait_for(standby: Set, ids: list[int]) -> None:
    """Wait until the replica itself has these rows."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            found = standby.ask_standby("select id from penstock.poi order by id")
        except psycopg.errors.UndefinedTable:
            found = []
        if [row[0] for row in found] == ids:
            return
        time.sleep(0.05)
    pytest.fail("the replica does not follow")


def test_a_replica_answers_what_it_has(of: Set):
    run(of.stores, POI, last(record(1), record(2)))
    of.served.reads.dataset_versions()
    wait_for(of, [1, 2])
    before = of.requests()

    assert of.ids() == [1, 2]

    assert of.requests() > before


def test_a_client_reads_its_write_although_the_replica_lags(of: Set):
    run(of.stores, POI, last(record(1)))
    wait_for(of, [1])
    of.hold_back()

    of.write(2)

    assert of.ids() == [1, 2]
    of.release()


def test_what_was_committed_is_reported_although_the_primary_is_gone(of: Set):
    run(of.stores, POI, last(record(1)))
    wait_for(of, [1])
    of.hold_back()
    of.cut_after_commit()

    assert of.write(2).created == 1

    of.line.mend()
    assert of.ids() == [1, 2]
    of.release()


def test_the_primary_is_read_until_it_says_how_far_it_is(of: Set):
    run(of.stores, POI, last(record(1)))
    of.served.reads.dataset_versions()
    wait_for(of, [1])
    of.hold_back()
    of.line.lose_reply_after(commits)

    assert of.write(2).created == 1

    assert of.line.lost_replies == 1
    before = of.requests()
    assert of.ids() == [1, 2]
    assert of.requests() == before
    # now it is known, and the replica is asked again once it is there
    of.release()
    wait_for(of, [1, 2])
    assert of.ids() == [1, 2]
    assert of.requests() > before


def test_an_older_answer_of_the_primary_settles_no_newer_doubt(of: Set):
    run(of.stores, POI, last(record(1)))
    wait_for(of, [1])

    def write(number: int) -> None:
        of.line.lose_reply_after(commits)
        assert of.write(number).created == 1

    def write_meanwhile(_: object) -> None:
        # the primary has said how far it was, and the replica has got there
        wait_for(of, [1, 2])
        of.hold_back()
        write(3)

    write(2)
    of.database.read(write_meanwhile)

    assert of.line.lost_replies == 2
    assert of.ids() == [1, 2, 3]
    of.release()


def test_who_hears_of_a_change_sees_it_although_the_replica_lags(of: Set):
    run(of.stores, POI, last(record(1)))
    of.served.reads.dataset_versions()
    wait_for(of, [1])
    of.hold_back()
    # by a worker, of which this process knows nothing until it looks
    plan(of.stores, POI)
    of.stores.ledger.commit_page(
        POI, claim(of.stores, POI), batch(record(1), record(3))
    )
    assert of.served.reads.dataset_versions()["poi"].change_seq == 2

    assert of.ids() == [1, 3]
    of.release()


def test_a_replica_that_lags_leaves_the_rotation_and_returns(of: Set):
    run(of.stores, POI, last(record(1)))
    wait_for(of, [1])
    of.hold_back()
    of.write(2)
    assert of.ids() == [1, 2]
    assert not of.replica.is_in_rotation

    of.release()
    wait_for(of, [1, 2])
    of.clock[0] += MIN_BACKOFF
    before = of.requests()
    assert of.ids() == [1, 2]
    assert of.requests() > before


def test_a_dead_replica_costs_no_answer_and_returns(of: Set):
    run(of.stores, POI, last(record(1)))
    of.served.reads.dataset_versions()
    wait_for(of, [1])
    assert of.ids() == [1]
    of.standby.stop("immediate")

    assert of.ids() == [1]
    assert not of.replica.is_in_rotation

    of.standby.start()
    of.clock[0] += MIN_BACKOFF
    before = of.requests()
    assert of.ids() == [1]
    assert of.requests() > before


def test_a_replica_that_is_away_or_lags_is_named_though_nobody_reads(of: Set):
    run(of.stores, POI, last(record(1)))
    of.served.reads.dataset_versions()
    wait_for(of, [1])
    assert of.database.failure() is None

    of.standby.stop("immediate")
    assert str(of.database.failure()).startswith(of.standby.url)
    of.standby.start()
    assert of.database.failure() is not None
    of.clock[0] += MIN_BACKOFF
    assert of.database.failure() is None

    of.hold_back()
    of.write(2)
    assert of.database.failure() is not None
    of.release()
    wait_for(of, [1, 2])
    of.clock[0] += MIN_BACKOFF
    assert of.database.failure() is None


def test_a_replica_of_a_history_that_was_lost_is_not_requested(of: Set):
    run(of.stores, POI, last(record(1)))
    wait_for(of, [1])
    of.primary.stop()
    of.primary.copy_data()
    of.primary.start()
    # the replica has what the primary loses, and nothing to follow any more
    of.write(2)
    lost = of.served.reads.dataset_versions()["poi"].position
    wait_for(of, [1, 2])
    assert of.ids() == [1, 2]
    of.ask_standby("alter system set primary_conninfo = ''")
    of.ask_standby("select pg_reload_conf()")
    of.primary.stop()
    of.primary.put_data_back()
    of.primary.start()

    of.served.reads.dataset_versions()
    assert not of.served.reads.knows("poi", [lost])

    assert of.ids() == [1]
    assert not of.replica.is_in_rotation
    of.write(3)
    of.clock[0] += MIN_BACKOFF
    assert of.ids() == [1, 3]


def test_a_replica_that_was_promoted_is_not_requested(of: Set):
    run(of.stores, POI, last(record(1)))
    wait_for(of, [1])
    of.ask_standby("select pg_promote()")
    of.write(2)

    assert of.ids() == [1, 2]
    assert not of.replica.is_in_rotation


def test_the_state_of_a_replica_says_how_far_it_is_behind(of: Set):
    run(of.stores, POI, last(record(1)))

    def lag() -> int | None:
        (state,) = of.database.states()
        assert state.is_in_rotation
        return state.lag

    assert happens(lambda: lag() == 0, within=30)

    of.hold_back()
    of.write(2)

    assert lag()
    of.release()
    assert happens(lambda: lag() == 0, within=30)

    of.standby.stop("immediate")

    (state,) = of.database.states()
    assert (state.is_in_rotation, state.lag) == (False, None)
