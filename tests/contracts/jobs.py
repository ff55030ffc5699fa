"""What every ledger promises an operator who looks at jobs and acts on them."""

from dataclasses import replace

import pytest

from penstock.domain.jobs import ImportId, ImportStatus, JobId, JobStatus, Lease, Mode
from penstock.errors import LeaseLost, Misconfigured, NotFound
from penstock.ports import JobFilter, Stores
from tests.support.builders import (
    A_MOMENT,
    ANN,
    BEN,
    LEASE,
    MINUTE,
    TIMEOUT,
    batch,
    claim,
    dataset,
    idle,
    job_of,
    jobs_of,
    last,
    plan,
    record,
    rejection,
)

POI = dataset()
SHOPS = dataset("shops")


def keys(found) -> list[str]:
    return [job.shard_key for job in found]


def lose_three_leases(stores: Stores, pass_time) -> Lease:
    """Claim the only job three times without a word, and return the last lease."""
    leases = []
    for _ in range(3):
        leases.append(claim(stores, POI))
        pass_time(LEASE + A_MOMENT)
    return leases[-1]


class JobsContract:
    """Subclasses bring `stores` and `pass_time`."""

    def test_jobs_are_found_in_the_order_they_were_planned(self, stores: Stores):
        plan(stores, POI, "b", "a")

        assert keys(stores.jobs.find(JobFilter(), after=None, limit=9)) == ["b", "a"]

    def test_jobs_are_found_page_by_page(self, stores: Stores):
        plan(stores, POI, "a", "b", "c")
        first = stores.jobs.find(JobFilter(), after=None, limit=2)

        second = stores.jobs.find(JobFilter(), after=first[-1].id, limit=2)

        assert keys(first) + keys(second) == ["a", "b", "c"]

    def test_jobs_are_found_by_status_import_and_dataset(self, stores: Stores):
        poi = plan(stores, POI, "a", "b")
        plan(stores, SHOPS, "x")
        claim(stores, POI)

        def found(**wanted):
            return keys(stores.jobs.find(JobFilter(**wanted), after=None, limit=9))

        assert found(status=JobStatus.LEASED) == ["a"]
        assert found(import_id=poi) == ["a", "b"]
        assert found(dataset="shops") == ["x"]
        assert found(status=JobStatus.PENDING, import_id=poi) == ["b"]
        assert found(status=JobStatus.DONE) == []

    def test_a_new_job_has_no_past(self, stores: Stores):
        import_id = plan(stores, replace(POI, region="eu"), "a")

        (job,) = jobs_of(stores, import_id)

        assert stores.jobs.get(job.id) == job
        assert (job.status, job.fence, job.page_seq) == (JobStatus.PENDING, 0, 0)
        assert (job.parent, job.cursor, job.proof, job.errors) == (None, None, None, ())
        assert (job.dataset, job.region) == ("poi", "eu")
        assert job.run_at == job.created_at

    def test_a_job_that_does_not_exist_is_not_found(self, stores: Stores):
        with pytest.raises(NotFound):
            stores.jobs.get(JobId(404))

    def test_a_job_without_pages_has_none(self, stores: Stores):
        import_id = plan(stores, POI)

        assert list(stores.jobs.pages([jobs_of(stores, import_id)[0].id])) == []

    # what becomes of an import

    def test_the_outlook_of_an_import_is_its_leases_and_its_next_job(
        self, stores: Stores, pass_time
    ):
        import_id = plan(stores, POI, "a", "b", "c")
        first, second = claim(stores, POI), claim(stores, POI)
        stores.ledger.postpone(first, TIMEOUT, delay=2 * MINUTE, blame=True)
        pass_time(MINUTE / 2)
        stores.ledger.renew(second)

        during = stores.jobs.waiting_facts(import_id)
        claim(stores, POI)
        after = stores.jobs.waiting_facts(import_id)

        assert during.now == stores.jobs.now()
        assert during.holders == {ANN: during.now + LEASE}
        assert during.next_job is not None
        assert during.next_job.shard_key == "c"
        assert after.next_job == job_of(stores, first)

    def test_leases_of_a_worker_that_has_ended_expire_at_once(self, stores: Stores):
        plan(stores, POI, "a", "b", "c")
        lost = claim(stores, POI, owner=ANN)
        held = claim(stores, POI, owner=BEN)
        owners = stores.jobs.lease_owners()

        stores.jobs.expire_leases([ANN])
        taken = claim(stores, POI, owner=BEN)

        assert sorted(owners) == [ANN, BEN]
        assert stores.jobs.lease_owners() == [BEN]
        assert (taken.job, taken.fence) == (lost.job, lost.fence + 1)
        with pytest.raises(LeaseLost):
            stores.ledger.renew(lost)
        stores.ledger.renew(held)

    def test_a_worker_that_still_runs_restores_its_lease(self, stores: Stores):
        plan(stores, POI, "a")
        lease = claim(stores, POI, owner=ANN)

        stores.jobs.expire_leases([ANN])
        stores.ledger.renew(lease)

        assert stores.jobs.lease_owners() == [ANN]

    # retrying

    def test_a_failed_job_is_retried_from_its_cursor(self, stores: Stores):
        plan(stores, POI)
        lease, _ = stores.ledger.commit_page(
            POI, claim(stores, POI), batch(record(1), cursor="after 1")
        )
        stores.ledger.fail(lease, TIMEOUT)

        assert stores.jobs.retry(lease.job)

        job = job_of(stores, lease)
        assert (job.status, job.finished_at) == (JobStatus.PENDING, None)
        assert (job.attempts, job.rescues, job.snoozes) == (0, 0, 0)
        assert len(job.errors) == 1
        again = claim(stores, POI)
        assert (again.cursor, again.page_seq) == ("after 1", 1)

    def test_only_a_failed_job_is_retried(self, stores: Stores):
        plan(stores, POI, "pending", "leased", "done", "split")
        leases = [claim(stores, POI) for _ in range(4)]
        stores.ledger.release(leases[0])
        stores.ledger.commit_page(POI, leases[2], last())
        stores.ledger.split(leases[3], ["half"])
        before = jobs_of(stores, leases[0].import_id)

        assert [stores.jobs.retry(lease.job) for lease in leases] == [False] * 4

        assert jobs_of(stores, leases[0].import_id) == before

    def test_a_job_is_retried_once(self, stores: Stores):
        plan(stores, POI)
        lease = claim(stores, POI)
        stores.ledger.fail(lease, TIMEOUT)

        assert stores.jobs.retry(lease.job)
        assert not stores.jobs.retry(lease.job)

    def test_a_job_that_does_not_exist_is_not_retried(self, stores: Stores):
        assert not stores.jobs.retry(JobId(404))

    def test_failed_jobs_of_an_import_are_retried_together(self, stores: Stores):
        import_id = plan(stores, POI, *"abcd")
        leases = [claim(stores, POI) for _ in range(3)]
        for lease in leases:
            stores.ledger.fail(lease, TIMEOUT)
        assert stores.jobs.count_failed(import_id) == 3

        first = stores.jobs.retry_failed(import_id, after=None, most=2)
        # a worker is fast, and fails one of them again
        stores.ledger.fail(claim(stores, POI), TIMEOUT)
        rest = stores.jobs.retry_failed(import_id, after=first[-1], most=2)

        assert [*first, *rest] == [lease.job for lease in leases]
        _, shards = stores.imports.get(import_id)
        assert (shards.failed, shards.pending) == (1, 3)
        assert stores.jobs.count_failed(import_id) == 1

    def test_retrying_all_jobs_reopens_their_failed_import(self, stores: Stores):
        import_id = plan(stores, POI, "a")
        stores.ledger.fail(claim(stores, POI), TIMEOUT)
        stores.imports.close(POI, import_id, failed=None)

        assert stores.jobs.retry_failed(import_id, after=None, most=9)

        assert stores.imports.peek(import_id).status is ImportStatus.RUNNING

    def test_jobs_of_a_cancelled_import_are_not_retried(self, stores: Stores):
        import_id = plan(stores, POI, "a")
        stores.ledger.fail(claim(stores, POI), TIMEOUT)
        stores.imports.cancel(import_id, reason="no more")

        assert stores.jobs.retry_failed(import_id, after=None, most=9) == []

    def test_jobs_of_one_import_are_walked_in_the_order_of_their_ids(
        self, stores: Stores
    ):
        import_id = plan(stores, POI, "b", "a", "c")
        plan(stores, SHOPS, "aa", "bb")

        found = [job for some in stores.jobs.of_import(import_id) for job in some]

        assert keys(found) == ["b", "a", "c"]
        assert [*stores.jobs.of_import(ImportId(404))] == []

    def test_retrying_a_job_reopens_its_failed_import(self, stores: Stores):
        import_id = plan(stores, POI)
        lease = claim(stores, POI)
        stores.ledger.fail(lease, TIMEOUT)
        stores.imports.close(POI, import_id, failed=None)

        stores.jobs.retry(lease.job)

        found, _ = stores.imports.get(import_id)
        assert (found.status, found.note) == (ImportStatus.RUNNING, None)
        assert (found.finished_at, found.proven) == (None, False)

    def test_a_reopened_import_can_be_done(self, stores: Stores):
        import_id = plan(stores, POI)
        lease = claim(stores, POI)
        stores.ledger.fail(lease, TIMEOUT)
        stores.imports.close(POI, import_id, failed=None)
        stores.jobs.retry(lease.job)
        stores.ledger.commit_page(POI, claim(stores, POI), last(record(1)))

        ended = stores.imports.close(POI, import_id, failed=None)

        assert ended is not None
        assert (ended.status, ended.proven) == (ImportStatus.DONE, True)

    def test_a_retry_is_refused_while_a_newer_import_of_the_kind_runs(
        self, stores: Stores
    ):
        import_id = plan(stores, POI)
        lease = claim(stores, POI)
        stores.ledger.fail(lease, TIMEOUT)
        stores.imports.close(POI, import_id, failed=None)
        plan(stores, POI)

        with pytest.raises(Misconfigured, match="newer import"):
            stores.jobs.retry(lease.job)

        assert job_of(stores, lease).status is JobStatus.FAILED
        assert stores.imports.get(import_id)[0].status is ImportStatus.FAILED

    def test_a_job_of_a_cancelled_import_is_not_retried(self, stores: Stores):
        import_id = plan(stores, POI, "a", "b")
        lease = claim(stores, POI)
        stores.ledger.fail(lease, TIMEOUT)
        stores.imports.cancel(import_id, reason="no longer wanted")

        assert not stores.jobs.retry(lease.job)

        assert job_of(stores, lease).status is JobStatus.FAILED

    def test_problems_are_counted_by_dataset(self, stores: Stores):
        plan(stores, POI, "failed", "worse", "bad")
        for _ in range(2):
            stores.ledger.fail(claim(stores, POI), TIMEOUT)
        stores.ledger.commit_page(
            POI, claim(stores, POI), last(rejections=[rejection()])
        )
        plan(stores, SHOPS, "fine", "lost")
        stores.ledger.commit_page(SHOPS, claim(stores, SHOPS), last())

        assert stores.jobs.problems() == [("poi", 2, 1)]

    def test_failed_jobs_of_a_cancelled_import_are_no_problem(self, stores: Stores):
        import_id = plan(stores, POI)
        stores.ledger.fail(claim(stores, POI), TIMEOUT)
        assert stores.jobs.problems() == [("poi", 1, 0)]

        stores.imports.cancel(import_id, reason="no longer wanted")

        assert stores.jobs.problems() == []

    # waiting and sweeping

    def test_outstanding_counts_what_is_pending_or_leased(self, stores: Stores):
        plan(stores, POI, "pending", "leased", "done", "failed", "late")
        leases = [claim(stores, POI) for _ in range(5)]
        stores.ledger.release(leases[0])
        stores.ledger.commit_page(POI, leases[2], last())
        stores.ledger.fail(leases[3], TIMEOUT)
        stores.ledger.postpone(leases[4], None, delay=MINUTE, blame=False)

        assert stores.jobs.outstanding(declarations={"poi": "d1"}, region=None) == 3

    def test_outstanding_counts_what_this_worker_may_take(self, stores: Stores):
        plan(stores, replace(POI, region="eu"), "a", "b")
        plan(stores, SHOPS, "x")
        both = ["poi", "shops"]

        assert (
            stores.jobs.outstanding(declarations=dict.fromkeys(both, "d1"), region=None)
            == 3
        )
        assert (
            stores.jobs.outstanding(declarations=dict.fromkeys(both, "d1"), region="eu")
            == 3
        )
        assert (
            stores.jobs.outstanding(declarations=dict.fromkeys(both, "d1"), region="us")
            == 1
        )
        assert stores.jobs.outstanding(declarations={"poi": "d1"}, region="us") == 0

    def test_nothing_of_a_cancelled_import_is_outstanding(self, stores: Stores):
        import_id = plan(stores, POI, "a", "b")
        claim(stores, POI)

        stores.imports.cancel(import_id, reason="no")

        assert stores.jobs.outstanding(declarations={"poi": "d1"}, region=None) == 0

    def test_sweeping_fails_a_job_whose_third_lease_ended(
        self, stores: Stores, pass_time
    ):
        import_id = plan(stores, POI)
        lease = lose_three_leases(stores, pass_time)

        assert list(stores.jobs.sweep()) == [import_id]

        assert job_of(stores, lease).status is JobStatus.FAILED

    def test_sweeping_leaves_living_and_rescuable_jobs_alone(
        self, stores: Stores, pass_time
    ):
        import_id = plan(stores, POI, "lost", "held", "pending")
        claim(stores, POI)
        pass_time(LEASE + A_MOMENT)
        stores.ledger.release(claim(stores, POI))
        claim(stores, POI)
        before = jobs_of(stores, import_id)

        assert list(stores.jobs.sweep()) == []

        assert jobs_of(stores, import_id) == before

    def test_sweeping_finds_imports_that_nobody_closed(self, stores: Stores):
        settled = plan(stores, POI, mode=Mode.FULL)
        stores.ledger.commit_page(POI, claim(stores, POI), last())
        plan(stores, POI, mode=Mode.DELTA)

        assert list(stores.jobs.sweep()) == [settled]

        stores.imports.close(POI, settled, failed=None)
        assert list(stores.jobs.sweep()) == []

    def test_sweeping_finds_the_oldest_import_first(self, stores: Stores):
        older = plan(stores, POI, mode=Mode.FULL)
        lease = claim(stores, POI)
        stores.ledger.fail(lease, TIMEOUT)
        stores.imports.close(POI, older, failed=None)
        newer = plan(stores, POI, mode=Mode.DELTA)
        stores.ledger.commit_page(POI, claim(stores, POI), last())
        # its row is written again, behind that of the newer one
        stores.jobs.retry(lease.job)
        stores.ledger.commit_page(POI, claim(stores, POI), last())

        assert list(stores.jobs.sweep()) == [older, newer]

    def test_a_swept_job_can_be_retried(self, stores: Stores, pass_time):
        plan(stores, POI)
        lease = lose_three_leases(stores, pass_time)
        stores.jobs.sweep()

        assert stores.jobs.retry(lease.job)

        assert claim(stores, POI).fence == 4
        assert idle(stores, POI)
