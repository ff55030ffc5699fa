"""Real threads and real processes on one PostgreSQL never step on each other."""

import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from typing_extensions import override

from penstock.adapters.postgres.database import PostgresDatabase, PostgresTransaction
from penstock.adapters.sqlstore.stores import build_api_stores
from penstock.domain.dataset import Dataset
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import ImportStatus, JobStatus, Lease, Mode, WorkerId
from penstock.domain.pages import Counts, Key
from penstock.domain.record_validation import Precondition
from penstock.domain.sharding.axes import RangeAxis
from penstock.errors import (
    BadRequest,
    BudgetClosed,
    LeaseLost,
    Misconfigured,
    PenstockError,
    VersionChanged,
)
from penstock.flow.edit_records import EditRecords
from penstock.ports import Stores
from penstock.ports.record_access import (
    Decide,
    LockedRow,
    RecordWriter,
    Removal,
    Write,
    WriteResult,
)
from tests.support.builders import (
    ANN,
    SECOND,
    TIMEOUT,
    batch,
    begin,
    budget,
    claim,
    claim_any,
    dataset,
    ids,
    int_field,
    jobs_of,
    last,
    per_second,
    plan,
    planner,
    record,
    rows,
    run,
)
from tests.support.postgres import Place, deadlocks, opened, own_schema
from tests.support.racing import (
    Results,
    assert_each_once,
    errors_in,
    in_processes,
    in_threads,
    work_off,
)

POI = dataset()
NUMBERS = dataset(axes=(RangeAxis(name="ids", start=0, until=300, step=1),))
FULL = ImportScope(mode=Mode.FULL)
D1 = {"poi": "d1"}
PAGES = 4
PROCESSES = 4
FAST = budget(per_second(50), burst=20)
THREADS = 8


@pytest.fixture
def place(postgres_url: str) -> Iterator[Place]:
    with own_schema(postgres_url) as place:
        yield place


@pytest.fixture
def opened_here(place: Place) -> Iterator[tuple[Stores, PostgresDatabase]]:
    with opened(place, most_connections=THREADS) as both:
        both[0].schema.migrate()
        yield both


@pytest.fixture
def stores(opened_here: tuple[Stores, PostgresDatabase]) -> Stores:
    return opened_here[0]


def import_all(place: Place, worker: str) -> Results:
    """Work until nothing is left; tell each claim, and each page committed."""
    with opened(place) as (stores, _):
        return work_off(stores, worker)


class TestPages:
    def test_many_processes_commit_each_page_once(self, stores: Stores, place):
        shards = 24
        plan(stores, POI, *map(str, range(shards)))

        result = in_processes(import_all, [(place, f"w{n}") for n in range(PROCESSES)])

        assert_each_once(stores, (each for done in result for each in done), shards)

    def test_many_threads_commit_each_page_once(self, stores: Stores):
        shards = 24
        plan(stores, POI, *map(str, range(shards)))

        results = in_threads(
            *(lambda n=n: work_off(stores, f"t{n}") for n in range(THREADS))
        )

        assert_each_once(stores, (each for done in results for each in done), shards)

    def test_of_many_commits_of_one_page_one_is_accepted(self, stores: Stores):
        plan(stores, POI)
        lease = claim(stores, POI)

        results = in_threads(
            *[lambda: stores.ledger.commit_page(POI, lease, batch(record(1)))] * THREADS
        )

        assert sum(isinstance(each, LeaseLost) for each in results) == THREADS - 1
        assert stores.jobs.get(lease.job).page_seq == 1
        assert stores.imports.get(lease.import_id)[0].counts.inserted == 1

    def test_a_reader_sees_whole_pages_only(self, stores: Stores):
        run(stores, POI, last())
        plan(stores, POI, mode=Mode.DELTA)
        lease = claim(stores, POI)
        is_over = threading.Event()
        seen: list[int] = []

        def read():
            while not is_over.is_set():
                seen.append(stores.records.count(POI))

        def write():
            held = lease
            for number in range(20):
                page = batch(*(record(number * 10 + n) for n in range(10)))
                held, _ = stores.ledger.commit_page(POI, held, page)
            is_over.set()

        assert not errors_in(in_threads(read, write))

        assert {count % 10 for count in seen} == {0}


def commit_forth_and_back(place: Place, shard: int, rounds: int) -> list[Counts]:
    """Commit the same keys as others, in an order of our own."""
    results = []
    with opened(place) as (stores, _):
        lease = claim(stores, POI, WorkerId(f"w{shard}"))
        for number in range(rounds):
            keys = list(range(number * 5, number * 5 + 40))
            random.Random(shard * 100 + number).shuffle(keys)
            found = [record(key, f"{number} by {shard}") for key in keys]
            lease, counts = stores.ledger.commit_page(POI, lease, batch(*found))
            results.append(counts)
        return results


class TestPagesThatMeet:
    """Workers bring the same keys at the same time."""

    @pytest.mark.parametrize("tracked", [False, True])
    def test_each_key_is_stored_once_and_each_row_counted(
        self, stores: Stores, place, tracked
    ):
        rounds = 12
        mode = Mode.FULL if tracked else Mode.DELTA
        import_id = plan(stores, POI, *map(str, range(PROCESSES)), mode=mode)
        # every commit also marks what it saw
        place.ask("update penstock_import set tracked = %s", tracked)

        result = in_processes(
            commit_forth_and_back, [(place, n, rounds) for n in range(PROCESSES)]
        )

        counts = stores.imports.get(import_id)[0].counts
        pages = [page for some in result for page in some]
        keys = (rounds - 1) * 5 + 40
        assert ids(stores, POI) == list(range(keys))
        assert counts.inserted == sum(page.inserted for page in pages) == keys
        assert counts.updated == sum(page.updated for page in pages)
        assert counts.seen == PROCESSES * rounds * 40
        written = counts.inserted + counts.updated + counts.duplicates
        assert counts.seen == written + counts.unchanged
        assert len(events(place)) == written

    def test_known_rows_are_compared_however_many_new_ones_others_bring(
        self, stores: Stores
    ):
        """What one thread sees of its rows, all threads of a process believe."""
        run(stores, POI, last(*map(record, range(100))))
        plan(stores, POI, *"abcd", mode=Mode.DELTA)
        changing, *growing = (claim(stores, POI) for _ in "abcd")
        is_over = threading.Event()

        def change(lease: Lease) -> int:
            updated = 0
            try:
                for number in range(20):
                    page = batch(*(record(key, f"now {number}") for key in range(100)))
                    lease, counts = stores.ledger.commit_page(POI, lease, page)
                    updated += counts.updated + counts.duplicates
            finally:
                is_over.set()
            return updated

        def grow(lease: Lease, start: int) -> None:
            for number in itertools.count(start, 2):
                if is_over.is_set():
                    return
                page = batch(record(number), record(number + 1))
                lease, _ = stores.ledger.commit_page(POI, lease, page)

        results = in_threads(
            lambda: change(changing),
            *(
                lambda lease=lease, n=n: grow(lease, n * 1_000_000)
                for n, lease in enumerate(growing, start=1)
            ),
        )

        assert not errors_in(results)
        assert results[0] == 2_000

    def test_two_pages_in_opposite_order_do_not_fail(self, stores: Stores, place):
        plan(stores, POI, "a", "b", mode=Mode.DELTA)
        leases = [claim(stores, POI), claim(stores, POI)]

        def commit(lease: Lease, keys: Iterable[int], who: str) -> list[int]:
            inserted = []
            for number in range(15):
                page = batch(*(record(key, f"{who} {number}") for key in keys))
                lease, counts = stores.ledger.commit_page(POI, lease, page)
                inserted.append(counts.inserted)
                written = counts.inserted + counts.updated + counts.duplicates
                assert written + counts.unchanged == 60
            return inserted

        forth, back = in_threads(
            lambda: commit(leases[0], range(60), "ann"),
            lambda: commit(leases[1], range(59, -1, -1), "ben"),
        )

        assert sum(forth) + sum(back) == 60
        assert ids(stores, POI) == list(range(60))


class TestClaims:
    @pytest.mark.parametrize("most", [1, 3])
    def test_a_job_has_one_owner_and_its_fence_rises_by_one(self, stores: Stores, most):
        plan(stores, POI, *map(str, range(20)))
        held: set[int] = set()
        lock = threading.Lock()

        def claim_and_release(name: str) -> Results:
            result: Results = []
            for _ in range(12):
                leases = stores.ledger.claim(
                    WorkerId(name), declarations=D1, region=None, most=most
                )
                with lock:
                    jobs = {lease.job for lease in leases}
                    assert len(jobs) == len(leases) <= most
                    assert not jobs & held
                    held.update(jobs)
                result += [(lease.job, lease.fence) for lease in leases]
                for lease in leases:
                    with lock:
                        held.discard(lease.job)
                    stores.ledger.release(lease)
            return result

        results = in_threads(
            *(lambda n=n: claim_and_release(f"w{n}") for n in range(6))
        )

        fences = defaultdict(list)
        for job, fence in (each for some in results for each in some):
            fences[job].append(fence)
        assert sum(map(len, fences.values())) > 60
        for given in fences.values():
            assert sorted(given) == list(range(1, len(given) + 1))

    def test_one_store_may_be_used_by_many_threads(self, stores: Stores):
        plan(stores, POI, *map(str, range(64)))

        leases = in_threads(*[lambda: [claim(stores, POI) for _ in range(8)]] * 8)

        jobs = [lease.job for some in leases for lease in some]
        assert len(set(jobs)) == 64

    def test_whoever_comes_late_takes_the_job_of_the_next_import(self, stores: Stores):
        """An import whose last job is taken meanwhile is not the end of the work."""
        others = [dataset(f"d{number}") for number in range(12)]
        declarations = {str(each.name): "d1" for each in others}
        for each in others:
            plan(stores, each)

        results = in_threads(*[lambda: claim_any(stores, declarations)] * 6)

        jobs = [lease.job for lease in results if lease is not None]
        assert len(set(jobs)) == 6

    def test_equals_take_turns(self, stores: Stores):
        equals = [dataset("left"), dataset("right")]
        for each in equals:
            plan(stores, each, *map(str, range(6)))
        declarations = {str(each.name): "d1" for each in equals}

        leases = [claim_any(stores, declarations) for _ in range(12)]

        order = [lease.dataset for lease in leases if lease is not None]
        assert order in (["left", "right"] * 6, ["right", "left"] * 6)

    def test_the_higher_priority_comes_first_for_all_who_claim_at_once(
        self, stores: Stores
    ):
        urgent = dataset("urgent", priority=5)
        equals = [dataset("left"), dataset("right")]
        for each in (*equals, urgent):
            plan(stores, each, *map(str, range(12)))
        declarations = {str(each.name): "d1" for each in (*equals, urgent)}
        order: list[str] = []
        lock = threading.Lock()

        def take() -> None:
            for _ in range(9):
                lease = claim_any(stores, declarations)
                assert lease is not None
                with lock:
                    order.append(lease.dataset)

        assert not errors_in(in_threads(*[take] * 4))

        assert len(order) == 36
        # four claim at once: who is first to tell is not always who was first to claim
        assert order[:8] == ["urgent"] * 8
        assert order.count("left") == order.count("right") == 12

    def test_the_oldest_jobs_come_first(self, stores: Stores):
        plan(stores, POI, *map(str, range(10)))

        leases = stores.ledger.claim(
            WorkerId("ann"), declarations=D1, region=None, most=6
        )

        assert [lease.shard_key for lease in leases] == list("012345")

    def test_a_lease_is_lost_by_the_clock_of_the_database(self, place):
        with opened(place, lease=timedelta(milliseconds=30)) as (hurried, _):
            hurried.schema.migrate()
            plan(hurried, POI)
            stale = claim(hurried, POI)
            lease = None
            while lease is None:
                lease = claim_any(hurried, D1, owner=WorkerId("ben"))

            assert lease.fence == stale.fence + 1
            with pytest.raises(LeaseLost):
                hurried.ledger.commit_page(POI, stale, batch(record(1)))

    def test_a_lost_lease_is_taken_over_once(self, place):
        with opened(place, lease=timedelta(milliseconds=200)) as (hurried, _):
            hurried.schema.migrate()
            plan(hurried, POI, *map(str, range(4)))
            for _ in range(4):
                claim(hurried, POI)
            threading.Event().wait(0.3)

            results = in_threads(
                *[
                    lambda: hurried.ledger.claim(
                        WorkerId("ben"), declarations=D1, region=None, most=4
                    )
                ]
                * 4
            )

            jobs = [lease.job for some in results for lease in some]
            assert len(jobs) == len(set(jobs)) == 4


class TestPlanning:
    def test_two_planners_at_once_get_the_same_import(self, stores: Stores):
        stores.schema.ensure_table(POI)

        def planned():
            plan = planner(stores, NUMBERS)
            return plan(NUMBERS, FULL, declaration="d1").planned.id

        import_id, *others = in_threads(*[planned] * 4)

        assert set(others) == {import_id}
        assert len(jobs_of(stores, import_id)) == 300

    def test_ten_processes_may_migrate_and_prepare_at_once(self, place):
        result = in_processes(migrate_and_prepare, [(place,)] * 10)

        assert sum(bool(applied) for applied in result) == 1


class TestTableLocks:
    """Pages and edits hold a table first, and the dataset's row last."""

    @pytest.mark.parametrize("change", ["grow", "replace", "retype", "drop"])
    def test_whoever_changes_a_table_waits_for_it_before_the_dataset(
        self, stores: Stores, place, change
    ):
        rewritten = replace(POI, fields=(POI.fields[0], int_field("title")))
        grown = replace(POI, fields=(*POI.fields, int_field("points")))
        stores.schema.ensure_table(POI)
        if change != "replace":
            run(stores, POI, last(record(1, "1")))
        changes: Mapping[str, Callable[[], object]] = {
            "grow": lambda: stores.schema.ensure_table(grown),
            "replace": lambda: stores.schema.ensure_table(rewritten),
            "retype": lambda: stores.schema.datasets.retype(rewritten),
            "drop": lambda: sum(stores.schema.datasets.drop("poi")),
        }

        with (
            ThreadPoolExecutor(1) as pool,
            psycopg.connect(place.url) as page,
        ):
            page.execute(f"set search_path = {place.schema}".encode())
            page.execute("lock table poi in row share mode")
            page.execute("select id from poi for no key update")
            changed = pool.submit(changes[change])
            while not place.ask(
                "select 1 from pg_locks where not granted and relation = "
                "to_regclass(%s)",
                f"{place.schema}.poi",
            ):
                assert not changed.done()
                time.sleep(0.01)
            page.execute("lock table poi in row exclusive mode")
            page.execute("select from penstock_dataset for no key update nowait")
            page.commit()
            assert changed.result()


def migrate_and_prepare(place: Place) -> list[str]:
    with opened(place) as (stores, _):
        applied = list(stores.schema.migrate())
        for number in range(3):
            stores.schema.ensure_table(dataset(f"d{number}", search=("title",)))
        return applied


class TestEndings:
    def test_of_many_finishers_one_ends_the_import(self, stores: Stores):
        import_id = plan(stores, POI)
        stores.ledger.commit_page(POI, claim(stores, POI), last(record(1)))

        results = in_threads(
            *[lambda: stores.imports.close(POI, import_id, failed=None)] * THREADS
        )

        assert sum(each is not None for each in results) == 1

    def test_cancelling_and_committing_at_once_leaves_one_truth(self, stores: Stores):
        for number in range(20):
            import_id = plan(stores, POI)
            lease = claim(stores, POI)
            page = last(record(number))

            _, committed = in_threads(
                lambda: stores.imports.cancel(import_id, reason="no"),  # noqa: B023
                lambda: stores.ledger.commit_page(POI, lease, page),  # noqa: B023
            )

            is_lost = isinstance(committed, LeaseLost)
            status = stores.jobs.get(lease.job).status
            assert status is (JobStatus.CANCELLED if is_lost else JobStatus.DONE)
            assert (number in ids(stores, POI)) is not is_lost

    def test_no_open_job_is_left_in_an_ended_import(self, stores: Stores, place):
        """Whatever meets: closing, retrying, cancelling, splitting, planning."""
        dice = random.Random(7)
        for _ in range(25):
            import_id = plan(stores, POI, "a", "b", "c")
            failed, split, done = (claim(stores, POI) for _ in range(3))
            stores.ledger.fail(failed, TIMEOUT)
            stores.ledger.commit_page(POI, done, last(record(1)))
            deeds = {
                "close": lambda: stores.imports.close(POI, import_id, failed=None),  # noqa: B023
                "fail": lambda: stores.imports.close(POI, import_id, failed="bad"),  # noqa: B023
                "cancel": lambda: stores.imports.cancel(import_id, reason="no"),  # noqa: B023
                "retry": lambda: stores.jobs.retry(failed.job),  # noqa: B023
                "split": lambda: stores.ledger.split(split, ["b1", "b2"]),  # noqa: B023
                "claim": lambda: claim_any(stores, D1),
            }
            chosen = dice.sample(list(deeds), 5)

            results = in_threads(*(deeds[name] for name in chosen))

            refused = [each for each in results if isinstance(each, PenstockError)]
            assert all(isinstance(e, LeaseLost | Misconfigured) for e in refused)
            known, shards = stores.imports.get(import_id)
            if known.status is not ImportStatus.RUNNING:
                assert shards.open == 0, (chosen, known.status, shards)
            stores.imports.cancel(import_id, reason="next")
            assert orphans(place) == []

    def test_a_job_that_is_planned_while_its_import_ends_is_not_stored(
        self, opened_here: tuple[Stores, PostgresDatabase], place
    ):
        stores, database = opened_here
        stores.schema.ensure_table(POI)
        import_id = begin(stores, POI).id
        lease = stores.plans.claim(import_id, ANN)
        assert lease is not None
        is_ending = threading.Event()

        def end_slowly(transaction: PostgresTransaction) -> None:
            transaction.one("hold_import", import_id=import_id)
            transaction.execute(
                "end_import",
                import_id=import_id,
                status="cancelled",
                proven=False,
                note=None,
                deleted=0,
                terms=None,
                live=None,
            )
            transaction.execute("cancel_jobs", import_id=import_id)
            is_ending.set()
            time.sleep(0.3)

        def add() -> Lease:
            assert is_ending.wait(10)
            return stores.plans.add_shards(lease, ["late"], cursor="1")

        _, refused = in_threads(lambda: database.write(end_slowly), add)
        assert isinstance(refused, LeaseLost)
        assert orphans(place) == []

    def test_a_job_that_is_just_planned_ends_with_its_import(
        self, opened_here: tuple[Stores, PostgresDatabase], place
    ):
        stores, database = opened_here
        import_id = plan(stores, POI)
        is_adding = threading.Event()

        def add_slowly(transaction: PostgresTransaction) -> None:
            transaction.execute(
                "add_jobs", import_id=import_id, parent=None, shard_keys='["late"]'
            )
            is_adding.set()
            time.sleep(0.3)

        def cancel() -> None:
            assert is_adding.wait(10)
            stores.imports.cancel(import_id, reason="no")

        in_threads(lambda: database.write(add_slowly), cancel)

        assert len(jobs_of(stores, import_id)) == 2
        assert orphans(place) == []

    def test_an_ending_and_the_first_pages_do_not_wait_in_a_circle(
        self, postgres_database
    ):
        """A count refers to its import, whose row an ending holds."""
        place = Place(postgres_database, "penstock")
        with opened(place) as (stores, _):
            stores.schema.migrate()
            for number in range(12):
                import_id = plan(stores, POI, *map(str, range(6)))
                pages = [
                    partial(
                        stores.ledger.commit_page,
                        POI,
                        claim(stores, POI),
                        batch(record(4 * number + shard)),
                    )
                    for shard in range(4)
                ]
                halves = ["a", "b"]
                splits = [
                    partial(stores.ledger.split, claim(stores, POI), halves)
                    for _ in range(2)
                ]
                cancel = partial(stores.imports.cancel, import_id, reason="no")

                in_threads(*pages, *splits, cancel)

        # told when its sessions have ended
        assert deadlocks(place) == 0


def orphans(place: Place) -> list[tuple[Any, ...]]:
    return place.ask(
        "select penstock_job.id from penstock_job "
        "join penstock_import on penstock_import.id = import_id "
        "where penstock_job.status in ('pending', 'leased') "
        "and penstock_import.status not in ('planning', 'running')"
    )


def events(place: Place, name: str = "poi") -> list[tuple[int, str, str]]:
    """Read the change events, which no port shows yet."""
    return place.ask(
        "select seq, kind, key from penstock_change where dataset = %s order by seq",
        name,
    )


class TestChangeEvents:
    def test_a_reader_finds_no_gap_at_any_moment(self, stores: Stores, place):
        """Whoever reads up to a number has read all that will ever be below it."""
        shards = 24
        plan(stores, POI, *map(str, range(shards)))
        is_over = threading.Event()
        gaps: list[Any] = []
        polls = 0

        def read():
            nonlocal polls
            while not is_over.is_set():
                numbers = [number for number, _, _ in events(place)]
                polls += 1
                if numbers != list(range(1, len(numbers) + 1)):
                    gaps.append(numbers)

        def work():
            in_processes(import_all, [(place, f"w{n}") for n in range(PROCESSES)])
            is_over.set()

        assert not errors_in(in_threads(read, work))

        assert gaps == []
        assert polls > 3
        assert len(events(place)) == shards * PAGES

    def test_the_order_of_commits_is_that_of_the_numbers(self, stores: Stores, place):
        plan(stores, POI, "a", "b", "c", mode=Mode.DELTA)
        leases = [claim(stores, POI) for _ in range(3)]

        def commit(lease: Lease, who: int) -> None:
            for number in range(15):
                page = batch(record(1, f"{who}:{number}"), record(2 + who, str(number)))
                lease, _ = stores.ledger.commit_page(POI, lease, page)

        results = in_threads(*(lambda n=n: commit(leases[n], n) for n in range(3)))
        assert not errors_in(results)

        # the same key was changed by all, one after the other
        found = place.ask(
            "select last_seq, at from penstock_change_page order by last_seq"
        )
        assert [at for _, at in found] == sorted(at for _, at in found)
        assert [kind for _, kind, key in events(place) if key == "[1]"] == [
            "created",
            *["updated"] * 44,
        ]


class Pausing(RecordWriter):
    """Edits that let something happen once they have looked, the first time."""

    def __init__(self, edits: RecordWriter, pause: Callable[[], object]) -> None:
        self._edits = edits
        self._pause = pause

    @override
    def change(
        self, dataset: Dataset, keys: Sequence[Key], decide: Decide
    ) -> WriteResult:
        pauses = iter([self._pause])

        def decide_late(current: Mapping[Key, LockedRow]) -> Sequence[Write | Removal]:
            for pause in pauses:
                pause()
            return decide(current)

        return self._edits.change(dataset, keys, decide_late)


class TestClients:
    """Clients store the same new row at once: one creates it, and the others see it."""

    @pytest.fixture
    def edits(self, opened_here: tuple[Stores, PostgresDatabase]) -> RecordWriter:
        stores, database = opened_here
        stores.schema.ensure_table(POI)
        return build_api_stores(database).edits

    def test_of_two_who_store_a_new_row_one_creates_it(
        self, stores: Stores, edits: RecordWriter
    ):
        both_have_looked = threading.Barrier(2)
        client = EditRecords(Pausing(edits, both_have_looked.wait), stores.records)

        results = in_threads(
            *(
                partial(client.put, POI, (1,), {"title": title}, Precondition())
                for title in ("a", "b")
            )
        )

        assert not errors_in(results)
        assert sorted(each.created for each in results) == [0, 1]
        assert len({each.versions[1,] for each in results}) == 2
        later = max(results, key=lambda each: each.state.change_seq)
        assert later.updated == 1
        assert rows(stores, POI) == [(1, "ab"[results.index(later)])]

    def test_who_wants_it_to_be_new_hears_that_it_is_not(
        self, stores: Stores, edits: RecordWriter
    ):
        both_have_looked = threading.Barrier(2)
        client = EditRecords(Pausing(edits, both_have_looked.wait), stores.records)
        is_new = Precondition(must_be_new=True)

        results = in_threads(
            *(
                partial(client.put, POI, (1,), {"title": title}, is_new)
                for title in ("a", "b")
            )
        )

        (refused,) = errors_in(results)
        assert isinstance(refused, VersionChanged)
        assert ids(stores, POI) == [1]

    def test_a_page_may_bring_it_meanwhile(self, stores: Stores, edits: RecordWriter):
        plan(stores, POI)
        bring = partial(
            stores.ledger.commit_page,
            POI,
            claim(stores, POI),
            last(record(1, "of the page")),
        )
        client = EditRecords(Pausing(edits, bring), stores.records)

        written = client.put(POI, (1,), {"title": "ours"}, Precondition())

        assert (written.created, written.updated) == (0, 1)
        assert rows(stores, POI) == [(1, "ours")]

    def test_an_index_of_somebody_else_still_refuses(
        self, stores: Stores, edits: RecordWriter, place
    ):
        place.ask("create unique index theirs on poi (title)")
        client = EditRecords(edits, stores.records)
        client.put(POI, (1,), {"title": "a"}, Precondition())

        with pytest.raises(BadRequest, match="the database refuses it"):
            client.put(POI, (2,), {"title": "a"}, Precondition())

    def test_lists_of_new_rows_do_not_wait_in_a_circle(self, postgres_database):
        place = Place(postgres_database, "penstock")
        with opened(place) as (stores, database):
            stores.schema.migrate()
            stores.schema.ensure_table(POI)
            edits = build_api_stores(database).edits
            for number in range(10):
                both_have_looked = threading.Barrier(2)
                client = EditRecords(
                    Pausing(edits, both_have_looked.wait), stores.records
                )
                some = [{"id": number * 1_000 + n, "title": "t"} for n in range(500)]

                results = in_threads(
                    partial(client.upsert, POI, some),
                    partial(client.upsert, POI, some[::-1]),
                )

                assert not errors_in(results)
                assert sorted(each.created for each in results) == [0, 500]
        # told when its sessions have ended
        assert deadlocks(place) == 0


class TestBudgets:
    def test_processes_together_stay_within_the_budget(self, stores: Stores, place):
        result = in_processes(spend, [(place,)] * PROCESSES)

        slots = sorted(slot for some in result for slot in some)
        period, rate, burst = 1_000_000, 50, FAST.burst
        assert len(slots) > 2 * rate
        assert all(
            (later - earlier + 1) * period
            <= (slots[later] - slots[earlier]) * rate + burst * period
            for earlier in range(len(slots))
            for later in range(earlier, len(slots))
        )


def spend(place: Place) -> Results:
    """Take whatever is granted within two seconds; tell the slots."""
    slots: Results = []
    with opened(place) as (stores, _):
        while True:
            try:
                grant = stores.budgets.take(FAST, longest=2 * SECOND)
            except BudgetClosed:
                return slots
            slots.append(grant.slot)
