"""Failed jobs get another chance, unless nobody would take it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.domain.jobs import Import, JobId, Mode
from penstock.errors import Misconfigured
from penstock.flow.retry_jobs import RetryJobs
from penstock.ports import Stores
from tests.support.builders import TIMEOUT, claim, dataset, plan, sqlite_stores

POI = dataset()


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    database = SqliteDatabase(tmp_path / "retry.db")
    opened = sqlite_stores(database)
    opened.schema.migrate()
    yield opened
    database.close()


class Declared:
    """Says whether an import is declared as it was, and remembers who asked."""

    def __init__(self, *, is_so: bool = True) -> None:
        self.is_so = is_so
        self.requests: list[Import] = []

    def __call__(self, known: Import) -> bool:
        self.requests.append(known)
        return self.is_so


def retry_of(stores: Stores, declared: Declared) -> RetryJobs:
    return RetryJobs(imports=stores.imports, jobs=stores.jobs, is_declared=declared)


def failed(stores: Stores, count: int) -> list[JobId]:
    leases = [claim(stores, POI) for _ in range(count)]
    for lease in leases:
        stores.ledger.fail(lease, TIMEOUT)
    return [lease.job for lease in leases]


def test_all_failed_jobs_are_pending_again(stores: Stores):
    import_id = plan(stores, POI, *"abcd")
    jobs = failed(stores, 3)

    result = retry_of(stores, Declared()).all_of(import_id)

    assert (result.jobs, result.has_more) == (jobs, False)
    _, shards = stores.imports.get(import_id)
    assert (shards.failed, shards.pending) == (0, 4)


def test_only_so_many_are_while_others_wait(stores: Stores):
    import_id = plan(stores, POI, *"abc")
    jobs = failed(stores, 3)
    retry = retry_of(stores, Declared())

    results = [retry.all_of(import_id, most=most) for most in (2, 2, 2)]

    assert [each.jobs for each in results] == [jobs[:2], jobs[2:], []]
    assert [each.has_more for each in results] == [True, False, False]


def test_just_as_many_as_there_are_leaves_no_more(stores: Stores):
    import_id = plan(stores, POI, *"ab")
    failed(stores, 2)

    assert not retry_of(stores, Declared()).all_of(import_id, most=2).has_more


def test_the_import_is_looked_at_once_for_all_of_its_jobs(stores: Stores):
    import_id = plan(stores, POI, *"abcdef")
    failed(stores, 6)
    declared = Declared()

    retry_of(stores, declared).all_of(import_id)

    assert [known.id for known in declared.requests] == [import_id]


def test_nobody_waits_for_who_would_not_take_them(stores: Stores):
    import_id = plan(stores, POI, *"ab")
    job, *_ = failed(stores, 2)
    retry = retry_of(stores, Declared(is_so=False))

    with pytest.raises(Misconfigured, match=f"job {job} belongs to import"):
        retry.all_of(import_id)
    with pytest.raises(Misconfigured, match="another declaration of 'poi'"):
        retry(job)

    assert stores.imports.get(import_id)[1].failed == 2


def test_an_import_without_failed_jobs_may_be_declared_otherwise(stores: Stores):
    import_id = plan(stores, POI, mode=Mode.DELTA)

    assert retry_of(stores, Declared(is_so=False)).all_of(import_id).jobs == []
