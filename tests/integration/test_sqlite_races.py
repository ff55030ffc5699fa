"""Real threads and real processes on one SQLite file never step on each other."""

import sqlite3
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import JobStatus, Mode, WorkerId
from penstock.domain.sharding.axes import RangeAxis
from penstock.errors import BudgetClosed, LeaseLost
from penstock.ports import Stores
from tests.support.builders import (
    SECOND,
    batch,
    budget,
    claim,
    claim_any,
    dataset,
    ids,
    jobs_of,
    last,
    open_sqlite,
    per_second,
    plan,
    planner,
    record,
    run,
)
from tests.support.racing import (
    PAGES,
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
PROCESSES = 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "penstock.db"


@pytest.fixture
def stores(path: Path) -> Stores:
    stores = open_sqlite(path)
    stores.schema.migrate()
    return stores


def import_all(path: Path, worker: str) -> Results:
    return work_off(open_sqlite(path), worker)


def workers(path: Path) -> list[tuple[Path, str]]:
    return [(path, f"w{number}") for number in range(PROCESSES)]


def spend(path: Path, worker: str) -> Results:
    """Take whatever is granted within a second; tell the slots."""
    stores = open_sqlite(path)
    slots: Results = []
    while True:
        try:
            grant = stores.budgets.take(FAST, longest=2 * SECOND)
        except BudgetClosed:
            return slots
        slots.append(grant.slot)


FAST = budget(per_second(50), burst=20)


def test_many_processes_commit_each_page_once(stores: Stores, path):
    shards = 40
    plan(stores, POI, *map(str, range(shards)))

    result = in_processes(import_all, workers(path))

    assert_each_once(stores, (each for done in result for each in done), shards)


def test_many_threads_commit_each_page_once(stores: Stores, path):
    shards = 40
    plan(stores, POI, *map(str, range(shards)))

    results = in_threads(*(lambda n=n: import_all(path, f"t{n}") for n in range(8)))

    assert_each_once(stores, (each for done in results for each in done), shards)


def test_one_store_may_be_used_by_many_threads(stores: Stores):
    plan(stores, POI, *map(str, range(64)))

    leases = in_threads(*[lambda: [claim(stores, POI) for _ in range(8)]] * 8)

    jobs = [lease.job for some in leases for lease in some]
    assert len(set(jobs)) == 64


def test_processes_together_stay_within_the_budget(stores: Stores, path):
    result = in_processes(spend, workers(path))

    slots = sorted(slot for some in result for slot in some)

    period, rate, burst = 1_000_000, 50, FAST.burst
    assert len(slots) > 2 * rate
    assert all(
        (later - earlier + 1) * period
        <= (slots[later] - slots[earlier]) * rate + burst * period
        for earlier in range(len(slots))
        for later in range(earlier, len(slots))
    )


def test_of_many_commits_of_one_page_one_is_accepted(stores: Stores):
    plan(stores, POI)
    lease = claim(stores, POI)

    results = in_threads(
        *[lambda: stores.ledger.commit_page(POI, lease, batch(record(1)))] * 8
    )

    assert sum(1 for each in results if isinstance(each, LeaseLost)) == 7
    assert stores.jobs.get(lease.job).page_seq == 1
    assert stores.imports.get(lease.import_id)[0].counts.inserted == 1


def test_cancelling_and_committing_at_once_leaves_one_truth(stores: Stores):
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


def test_two_planners_at_once_get_the_same_import(stores: Stores):
    stores.schema.ensure_table(POI)

    def planned():
        plan = planner(stores, NUMBERS)
        return plan(NUMBERS, FULL, declaration="d1").planned.id

    import_id, other = in_threads(planned, planned)

    assert import_id == other
    assert len(jobs_of(stores, import_id)) == 300


def test_of_many_finishers_one_ends_the_import(stores: Stores):
    import_id = plan(stores, POI)
    stores.ledger.commit_page(POI, claim(stores, POI), last(record(1)))

    results = in_threads(
        *[lambda: stores.imports.close(POI, import_id, failed=None)] * 8
    )

    assert sum(1 for each in results if each is not None) == 1


def test_many_processes_may_migrate_and_prepare_at_once(path):
    def prepared():
        stores = open_sqlite(path)
        applied = stores.schema.migrate()
        stores.schema.ensure_table(POI)
        return applied

    results = in_threads(*[prepared] * 8)

    assert sum(1 for applied in results if applied) == 1


def test_a_reader_sees_whole_pages_only(stores: Stores, path):
    run(stores, POI, last())
    plan(stores, POI, mode=Mode.DELTA)
    lease = claim(stores, POI)
    is_over = threading.Event()
    seen: list[int] = []

    def read():
        reader = open_sqlite(path)
        while not is_over.is_set():
            seen.append(reader.records.count(POI))

    def write():
        held = lease
        for number in range(30):
            page = batch(*(record(number * 10 + n) for n in range(10)))
            held, _ = stores.ledger.commit_page(POI, held, page)
        is_over.set()

    assert not errors_in(in_threads(read, write))

    assert {count % 10 for count in seen} == {0}


def test_change_events_of_many_writers_have_no_gaps(stores: Stores, path):
    plan(stores, POI, *map(str, range(30)))

    results = in_threads(*(lambda n=n: import_all(path, f"t{n}") for n in range(6)))
    assert not errors_in(results)

    connection = sqlite3.connect(path)
    found = connection.execute("select seq from penstock_change order by seq")
    numbers = [row[0] for row in found]
    connection.close()
    assert numbers == list(range(1, 30 * PAGES + 1))


def test_a_lease_is_lost_by_the_clock_of_the_database(path):
    hurried = open_sqlite(path, lease=timedelta(milliseconds=20))
    hurried.schema.migrate()
    plan(hurried, POI)
    stale = claim(hurried, POI)
    lease = None
    while lease is None:
        lease = claim_any(hurried, {"poi": "d1"}, owner=WorkerId("ben"))

    assert lease.fence == stale.fence + 1
    with pytest.raises(LeaseLost):
        hurried.ledger.commit_page(POI, stale, batch(record(1)))
