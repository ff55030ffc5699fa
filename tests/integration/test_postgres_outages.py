"""Servers that crash, lines that break, workers that stop: nothing is lost."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from penstock.adapters.postgres.database import PostgresDatabase, PostgresTransaction
from penstock.domain.dataset import Dataset
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import JobStatus, Lease, Mode
from penstock.errors import LeaseLost, PenstockError, StoreRefused, StoreUnavailable
from penstock.ports import JobFilter, Stores
from tests.services.private import PrivatePostgres
from tests.support.builders import (
    SECOND,
    TIMEOUT,
    batch,
    budget,
    claim,
    claim_any,
    dataset,
    ids,
    job_of,
    known_page,
    last,
    per_second,
    plan,
    record,
    repeated,
    run,
)
from tests.support.postgres import Place, opened, own_schema
from tests.support.proxy import Proxy
from tests.support.racing import in_threads

POI = dataset()
# as the driver sends it: a kind, a length, the text
COMMIT = b"Q\x00\x00\x00\x0bcommit\x00"
# and of the statements that need none, a part
STORE, REPEAT = b"insert into penstock_change_page", b"insert into penstock_page"
LIMIT = timedelta(seconds=2)


@pytest.fixture(scope="module")
def server() -> Iterator[PrivatePostgres]:
    """Start a server that may be crashed, once for all that do so."""
    with PrivatePostgres() as server:
        yield server


@pytest.fixture
def place(server: PrivatePostgres) -> Iterator[Place]:
    with own_schema(server.url) as place:
        yield place


@pytest.fixture
def proxy(server: PrivatePostgres) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", server.port) as proxy:
        yield proxy


@pytest.fixture
def stores(place: Place) -> Iterator[Stores]:
    """Open the stores without any trouble on the way."""
    with opened(place) as (stores, _):
        stores.schema.migrate()
        yield stores


@pytest.fixture
def by_proxy(
    stores: Stores, place: Place, proxy: Proxy
) -> Iterator[tuple[Stores, PostgresDatabase]]:
    """Open the same stores by way of the proxy."""
    with opened(Place(proxy.via(place.url), place.schema), limit=LIMIT) as both:
        yield both


@pytest.fixture
def led(by_proxy: tuple[Stores, PostgresDatabase]) -> Stores:
    return by_proxy[0]


def committed(stores: Stores, lease: Lease) -> list[int]:
    return [page.page_seq for _, page in stores.jobs.pages([lease.job])]


class TestACrash:
    def test_pages_are_committed_once_across_crashes(
        self, server: PrivatePostgres, stores: Stores, place
    ):
        shards, pages = 3, 60
        plan(stores, POI, *map(str, range(shards)))
        leases = [claim(stores, POI) for _ in range(shards)]
        done = [0] * shards

        def commit(shard: int) -> None:
            with opened(place, limit=timedelta(seconds=30)) as (own, _):
                lease = before = leases[shard]
                number = 0
                while number < pages:
                    page = batch(record(shard * 1000 + number, f"{number}"))
                    try:
                        following, counts = own.ledger.commit_page(POI, lease, page)
                    except LeaseLost:
                        # a crash gave the number of its last transaction to another,
                        # which was taken for a yes: that page is to be asked for again
                        assert lease is not before
                        lease, number = before, number - 1
                        continue
                    assert counts.inserted == 1
                    before, lease, number = lease, following, number + 1
                    done[shard] = number

        def crash() -> None:
            for part in (1, 2):
                while sum(done) < part * shards * pages // 3:
                    time.sleep(0.01)
                server.restart("immediate")

        crashing = threading.Thread(target=crash, daemon=True)
        crashing.start()
        results = in_threads(*(lambda n=n: commit(n) for n in range(shards)))
        crashing.join(60)

        assert results == [None] * shards
        for lease in leases:
            assert committed(stores, lease) == list(range(1, pages + 1))
        known, _ = stores.imports.get(leases[0].import_id)
        assert known.counts.inserted == known.counts.pages == shards * pages
        assert len(ids(stores, POI)) == shards * pages
        numbers = place.ask("select seq from penstock_change order by seq")
        assert [seq for (seq,) in numbers] == list(range(1, shards * pages + 1))

    def test_a_server_that_is_away_is_reported_and_comes_back(
        self, server: PrivatePostgres, stores: Stores, place
    ):
        with opened(place, limit=SECOND) as (hurried, _):
            plan(hurried, POI)
            lease = claim(hurried, POI)
            server.stop("fast")
            began = time.monotonic()

            with pytest.raises(StoreUnavailable):
                hurried.ledger.commit_page(POI, lease, batch(record(1)))

            assert time.monotonic() - began < 30
            server.start()
            hurried.ledger.commit_page(POI, lease, batch(record(1)))
        assert ids(stores, POI) == [1]

    def test_the_bell_rings_again_after_a_restart(
        self, server: PrivatePostgres, stores: Stores
    ):
        plan(stores, POI, mode=Mode.DELTA)
        # a listener that has just begun tells of what may have been before
        heard(stores, after=0)
        server.restart("immediate")
        heard(stores, after=stores.notifier.notification_count)
        settled(stores)
        before = stores.notifier.notification_count

        plan(stores, POI)

        heard(stores, after=before)


def heard(stores: Stores, *, after: int) -> None:
    deadline = time.monotonic() + 20
    while stores.notifier.notification_count <= after:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def settled(stores: Stores) -> None:
    """Wait until it has not rung for a while."""
    rings = -1
    while rings != stores.notifier.notification_count:
        rings = stores.notifier.notification_count
        time.sleep(1.2)


class TestTheBell:
    def test_it_rings_when_there_is_work(self, stores: Stores):
        heard(stores, after=0)
        settled(stores)
        before = stores.notifier.notification_count
        plan(stores, POI)
        heard(stores, after=before)
        lease = claim(stores, POI)
        stores.ledger.fail(lease, TIMEOUT)
        settled(stores)
        before = stores.notifier.notification_count

        stores.jobs.retry(lease.job)

        heard(stores, after=before)

    def test_it_rings_when_an_import_has_ended(self, stores: Stores):
        import_id = plan(stores, POI)
        stores.ledger.commit_page(POI, claim(stores, POI), last(record(1)))
        heard(stores, after=0)
        settled(stores)
        before = stores.notifier.notification_count

        stores.imports.close(POI, import_id, failed=None)

        heard(stores, after=before)

    def test_it_does_not_ring_for_another_schema(self, stores: Stores, server):
        heard(stores, after=0)
        settled(stores)
        before = stores.notifier.notification_count
        with own_schema(server.url) as elsewhere, opened(elsewhere) as (other, _):
            other.schema.migrate()
            plan(other, POI)

        time.sleep(0.5)

        assert stores.notifier.notification_count == before


@dataclass
class Swallow:
    """A trap that the first message with some bytes does not leave."""

    part: bytes
    times: int = 0

    def __call__(self, chunk: bytes) -> bool:
        if self.part in chunk and not self.times:
            self.times += 1
            raise ConnectionResetError
        return False


class TestALostReply:
    def test_a_commit_that_took_effect_is_known_to_have(
        self, led: Stores, stores: Stores, proxy: Proxy
    ):
        plan(stores, POI)
        lease = claim(led, POI)
        proxy.lose_reply_after(COMMIT)

        lease, counts = led.ledger.commit_page(POI, lease, batch(record(1)))

        assert proxy.lost_replies == 1
        assert (lease.page_seq, counts.inserted) == (1, 1)
        assert committed(stores, lease) == [1]
        led.ledger.commit_page(POI, lease, last(record(2)))
        assert stores.imports.get(lease.import_id)[0].counts.inserted == 2

    def test_a_commit_that_never_arrived_is_repeated(
        self, led: Stores, stores: Stores, proxy: Proxy
    ):
        plan(stores, POI)
        lease = claim(led, POI)
        swallow = Swallow(COMMIT)
        proxy.lose_reply_after(swallow)

        lease, counts = led.ledger.commit_page(POI, lease, batch(record(1)))

        assert swallow.times == 1
        assert counts.inserted == 1
        assert committed(stores, lease) == [1]

    def test_new_rows_that_took_effect_are_known_to_have(
        self, led: Stores, stores: Stores, proxy: Proxy, place: Place
    ):
        plan(stores, POI)
        lease = claim(led, POI)
        proxy.lose_reply_after(STORE)

        lease, counts = led.ledger.commit_page(POI, lease, batch(record(1), record(2)))

        assert proxy.lost_replies == 1
        assert (lease.page_seq, counts.inserted) == (1, 2)
        assert committed(stores, lease) == [1]
        assert stores.imports.peek(lease.import_id).counts.inserted == 2
        response = place.ask("select first_seq, last_seq from penstock_change_page")
        assert response == [(1, 2)]

    def test_new_rows_that_never_arrived_are_sent_again(
        self, led: Stores, stores: Stores, proxy: Proxy
    ):
        plan(stores, POI)
        lease = claim(led, POI)
        swallow = Swallow(STORE)
        proxy.lose_reply_after(swallow)

        lease, counts = led.ledger.commit_page(POI, lease, batch(record(1), record(2)))

        assert swallow.times == 1
        assert counts.inserted == 2
        assert committed(stores, lease) == [1]

    def test_new_rows_that_took_effect_are_known_to_have_though_others_met_known_ones(
        self, by_proxy: tuple[Stores, PostgresDatabase], stores: Stores, proxy: Proxy
    ):
        led, database = by_proxy
        plan(stores, POI)
        lease = claim(led, POI)

        def lose(chunk: bytes) -> bool:
            if STORE in chunk:
                # as a page of another thread does
                database.table_state(POI).expects_new_rows = False
            return STORE in chunk

        proxy.lose_reply_after(lose)

        lease, counts = led.ledger.commit_page(POI, lease, batch(record(1), record(2)))

        assert proxy.lost_replies == 1
        assert (lease.page_seq, counts.inserted) == (1, 2)
        assert committed(stores, lease) == [1]

    def test_a_known_page_that_took_effect_is_known_to_have_though_its_rows_changed(
        self, led: Stores, stores: Stores, proxy: Proxy, place: Place
    ):
        plan(stores, POI)
        page = known_page(record(1), cursor="there")
        lease, _ = led.ledger.commit_page(POI, claim(led, POI), page)
        proxy.lose_reply_after(REPEAT)

        def change() -> None:
            while not proxy.lost_replies:
                time.sleep(0.001)
            # before it is sent again, which is after a pause
            place.ask("update poi set _digest = 'another'")

        again, _ = in_threads(lambda: repeated(led, lease), change)

        assert again is not None
        assert again.lease.page_seq == job_of(stores, lease).page_seq == 2
        assert again.lease.cursor == "there"

    def test_a_known_page_that_took_effect_is_known_to_have(
        self, led: Stores, stores: Stores, proxy: Proxy
    ):
        plan(stores, POI)
        page = known_page(record(1), cursor="there")
        lease, _ = led.ledger.commit_page(POI, claim(led, POI), page)
        proxy.lose_reply_after(REPEAT)

        again = repeated(led, lease)

        assert proxy.lost_replies == 1
        assert again is not None
        assert again.lease.page_seq == job_of(stores, lease).page_seq == 2
        assert stores.imports.peek(lease.import_id).counts.seen == 2

    def test_a_known_page_of_a_job_that_others_took_meanwhile_is_refused(
        self, led: Stores, stores: Stores, proxy: Proxy, place: Place
    ):
        plan(stores, POI)
        page = known_page(record(1), cursor="there")
        lease, _ = led.ledger.commit_page(POI, claim(led, POI), page)
        # they have committed this very page, under a fence of their own
        place.ask("update penstock_job set fence = fence + 1, page_seq = page_seq + 1")
        place.ask(
            "insert into penstock_page (job_id, page_seq, fence, seen, memo, "
            "committed_at) select job_id, page_seq + 1, fence + 1, seen, memo, "
            "committed_at from penstock_page"
        )
        proxy.lose_reply_after(REPEAT)

        with pytest.raises(LeaseLost):
            repeated(led, lease)

        assert proxy.lost_replies == 1
        assert stores.imports.peek(lease.import_id).counts.pages == 1

    def test_a_claim_is_not_lost(self, led: Stores, stores: Stores, proxy: Proxy):
        plan(stores, POI)
        proxy.lose_reply_after(COMMIT)

        lease = claim(led, POI)

        assert proxy.lost_replies == 1
        assert lease.fence == job_of(stores, lease).fence == 1
        assert job_of(stores, lease).status is JobStatus.LEASED

    def test_a_token_is_taken_once(self, led: Stores, stores: Stores, proxy: Proxy):
        slow = budget(per_second(1), burst=9)
        led.budgets.take(slow, longest=SECOND)
        proxy.lose_reply_after(COMMIT)

        led.budgets.take(slow, longest=SECOND)

        assert proxy.lost_replies == 1
        assert stores.budgets.state(slow).taken == 2

    def test_a_planner_gets_its_import(self, led: Stores, stores: Stores, proxy: Proxy):
        stores.schema.ensure_table(POI)
        proxy.lose_reply_after(COMMIT)

        begun, resumed = led.imports.begin(
            POI, ImportScope(mode=Mode.FULL), declaration="d1"
        )

        assert proxy.lost_replies == 1
        assert not resumed
        assert stores.imports.peek(begun.id) == begun


def test_nothing_is_stored_if_the_numbers_of_changes_are_refused(
    stores: Stores, place: Place
):
    plan(stores, POI)
    lease = claim(stores, POI)
    full = "alter table penstock_change_page add constraint full_up check (false)"
    mended = "alter table penstock_change_page drop constraint full_up"

    place.ask(full)
    with pytest.raises(StoreRefused, match="full_up"):
        stores.ledger.commit_page(POI, lease, batch(record(1)))
    place.ask(mended)

    assert committed(stores, lease) == ids(stores, POI) == []
    stores.ledger.commit_page(POI, lease, batch(record(1)))
    assert committed(stores, lease) == ids(stores, POI) == [1]


class TestSilence:
    """A line on which nothing comes, not even that it is broken."""

    def test_nobody_waits_longer_than_a_commit_may_take(
        self, led: Stores, stores: Stores, proxy: Proxy
    ):
        plan(stores, POI)
        lease = claim(led, POI)
        proxy.black_hole()
        began = time.monotonic()

        results = in_threads(
            lambda: led.ledger.commit_page(POI, lease, batch(record(1))),
            lambda: led.ledger.renew(lease),
            led.jobs.now,
            lambda: claim_any(led, {"poi": "d1"}),
        )

        assert all(isinstance(each, StoreUnavailable) for each in results)
        assert time.monotonic() - began < LIMIT.total_seconds() + 30
        proxy.mend()
        led.ledger.commit_page(POI, lease, batch(record(1)))
        assert ids(stores, POI) == [1]

    def test_a_commit_that_is_never_answered_is_reported(
        self, led: Stores, stores: Stores, proxy: Proxy
    ):
        """It may have taken effect; the ledger knows, and the fence protects it."""
        plan(stores, POI)
        lease = claim(led, POI)

        def silence(chunk: bytes) -> bool:
            if COMMIT in chunk:
                proxy.is_black_hole = True
                for link in proxy._links:
                    link.is_silent = True
            return False

        proxy.lose_reply_after(silence)
        began = time.monotonic()

        with pytest.raises(StoreUnavailable):
            led.ledger.commit_page(POI, lease, batch(record(1)))

        assert time.monotonic() - began < 2 * LIMIT.total_seconds() + 30
        proxy.mend()
        assert committed(stores, lease) == [1]
        with pytest.raises(LeaseLost):
            led.ledger.commit_page(POI, lease, batch(record(2)))
        assert ids(stores, POI) == [1]

    def test_new_rows_whose_line_falls_silent_are_known_to_be_stored(
        self, led: Stores, stores: Stores, proxy: Proxy
    ):
        plan(stores, POI)
        lease = claim(led, POI)

        def silence(chunk: bytes) -> bool:
            if STORE in chunk:
                proxy.trap = None
                for link in proxy._links:
                    link.is_silent = True
            return False

        proxy.lose_reply_after(silence)

        lease, counts = led.ledger.commit_page(POI, lease, batch(record(1), record(2)))

        assert counts.inserted == 2
        assert committed(stores, lease) == [1]

    def test_silence_that_ends_soon_enough_is_not_noticed(
        self, led: Stores, stores: Stores, proxy: Proxy
    ):
        plan(stores, POI)
        lease = claim(led, POI)
        proxy.delay(0.05)

        lease, _ = led.ledger.commit_page(POI, lease, batch(record(1)))

        assert committed(stores, lease) == [1]


def stop_in_mid_transaction(place: Place, lease: Lease, result: Any) -> None:
    """Hold a job's row, be stopped, and go on as if nothing had happened."""
    with opened(place, limit=LIMIT) as (stores, database):

        def stop_once(transaction: PostgresTransaction) -> None:
            transaction.execute("count_page", job=lease.job, **NOTHING)
            if not stopped:
                stopped.append(True)
                result.put(os.getpid())
                os.kill(os.getpid(), signal.SIGSTOP)

        stopped: list[bool] = []
        for deed in (
            lambda: database.write(stop_once),
            lambda: stores.ledger.commit_page(POI, lease, batch(record(2))),
        ):
            try:
                deed()
                result.put(None)
            except PenstockError as error:
                result.put(type(error))


NOTHING = dict.fromkeys(
    (
        *("requests", "seen", "inserted", "updated"),
        *("unchanged", "quarantined", "dropped", "duplicates"),
    ),
    0,
)


class TestAStoppedWorker:
    def test_it_does_not_hold_others_up_for_long(self, stores: Stores, place):
        plan(stores, POI)
        lease = claim(stores, POI)
        context = multiprocessing.get_context("forkserver")
        results = context.SimpleQueue()
        zombie = context.Process(
            target=stop_in_mid_transaction, args=(place, lease, results)
        )
        zombie.start()
        # its own time is up, too, when it wakes
        pid = results.get()
        began = time.monotonic()

        stores.ledger.commit_page(POI, lease, batch(record(1)))

        waited = time.monotonic() - began
        os.kill(pid, signal.SIGCONT)
        assert waited < LIMIT.total_seconds() + 2
        assert [results.get(), results.get()] == [StoreUnavailable, LeaseLost]
        zombie.join()
        assert ids(stores, POI) == [1]


def test_a_worker_that_stops_while_it_sends_rows_does_not_hold_others_up_for_long(
    stores: Stores, place: Place
):
    plan(stores, POI)
    lease = claim(stores, POI)
    with opened(place, limit=LIMIT) as (_, database):
        frozen = database.connections.open_connection()
        frozen.execute("begin")
        frozen.execute("select 1 from penstock_job for update")
        # the beginning of a message whose rest never comes
        os.write(frozen.fileno(), b"B" + (100_000).to_bytes(4, "big") + b"rows")
        began = time.monotonic()

        stores.ledger.renew(lease)

        assert time.monotonic() - began < LIMIT.total_seconds() + 20
        frozen.close()


def end_sessions(place: Place) -> int:
    """Let an administrator end all connections of the schema's users."""
    response = place.ask(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
        "where application_name = 'penstock' and pid <> pg_backend_pid()"
    )
    return len(response)


CALLS: dict[str, Callable[[Stores, Lease], object]] = {
    "claim": lambda stores, lease: claim(stores, POI),
    "commit_page": lambda stores, lease: stores.ledger.commit_page(
        POI, lease, batch(record(9))
    ),
    "renew": lambda stores, lease: stores.ledger.renew(lease),
    "rows": lambda stores, lease: list(stores.records.rows(POI)),
    "count": lambda stores, lease: stores.records.count(POI),
    "find": lambda stores, lease: stores.jobs.find(JobFilter(), after=None, limit=9),
    "take": lambda stores, lease: stores.budgets.take(
        budget(per_second(9)), longest=SECOND
    ),
    "tend": lambda stores, lease: stores.schema.maintain(FILTERED),
}
FILTERED: Dataset = dataset(filter=("title",))


class TestAnEndedSession:
    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
    def test_it_is_not_noticed(self, stores: Stores, place, call):
        run(stores, POI, last(record(1)))
        plan(stores, POI, "a", "b")
        lease = claim(stores, POI)

        assert end_sessions(place)

        call(stores, lease)

    def test_nor_in_the_middle_of_a_transaction(self, stores: Stores, place):
        plan(stores, POI)
        lease = claim(stores, POI)
        with opened(place) as (_, database):
            ended: list[int] = []

            def work(transaction: PostgresTransaction) -> int:
                found = transaction.one("renew_lease", job=lease.job, fence=1, lease=9)
                if not ended:
                    ended.append(end_sessions(place))
                return (
                    0
                    if found is None
                    else transaction.execute("count_page", job=lease.job, **NOTHING)
                )

            assert database.write(work) == 1

        assert ended

    def test_a_commit_goes_through_though_sessions_end_all_the_time(
        self, stores: Stores, place
    ):
        plan(stores, POI)
        lease = claim(stores, POI)
        is_over = threading.Event()

        def end():
            while not is_over.wait(0.2):
                end_sessions(place)

        def commit():
            held = lease
            try:
                for number in range(100):
                    page = batch(record(number))
                    held, _ = stores.ledger.commit_page(POI, held, page)
            finally:
                is_over.set()

        assert in_threads(end, commit) == [None, None]
        assert ids(stores, POI) == list(range(100))
        assert committed(stores, lease) == list(range(1, 101))


class TestConnections:
    def test_there_are_never_more_than_allowed(self, server: PrivatePostgres, place):
        most, seen = 3, list[int]()
        is_over = threading.Event()
        with opened(place, most_connections=most) as (stores, _):
            stores.schema.migrate()
            plan(stores, POI, *map(str, range(100)))
            heard(stores, after=0)

            def count():
                with psycopg.connect(server.url, autocommit=True) as line:
                    while not is_over.wait(0.01):
                        result = line.execute(
                            "select count(*) from pg_stat_activity "
                            "where application_name = 'penstock'"
                        ).fetchone()
                        assert result is not None
                        seen.append(result[0])

            def work():
                for _ in range(5):
                    lease = claim(stores, POI)
                    stores.ledger.commit_page(POI, lease, last(record(lease.job)))

            watch = threading.Thread(target=count)
            watch.start()
            results = in_threads(*[work] * 16)
            is_over.set()
            watch.join()

        assert results == [None] * 16
        assert max(seen) == most + 1


class TestRefusals:
    def test_what_the_server_will_never_take_is_reported_at_once(
        self, stores: Stores, place
    ):
        """A row that no index can hold is not tried again until time is up."""
        named = dataset(key=("title",))
        with opened(place) as (own, _):
            plan(own, named)
            lease = claim(own, named)
            # neither short nor to be made short
            title = "".join(chr(0x4E00 + n * 7919 % 20000) for n in range(6000))
            began = time.monotonic()

            with pytest.raises(StoreRefused):
                own.ledger.commit_page(named, lease, batch(record(1, title, of=named)))

            assert time.monotonic() - began < 8

    def test_another_default_isolation_changes_nothing(
        self, server: PrivatePostgres, stores: Stores, place
    ):
        database = "alter database postgres set default_transaction_isolation"
        place.ask(f"{database} = 'serializable'")
        try:
            with opened(place) as (own, one):
                plan(own, POI, *map(str, range(8)))
                with one.stream() as read:
                    shown = read.connection.execute(
                        "show transaction_isolation"
                    ).fetchone()
                assert shown == {"transaction_isolation": "read committed"}
        finally:
            place.ask(f"{database} to default")
