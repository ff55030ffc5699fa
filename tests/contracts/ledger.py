"""What every ledger promises a worker."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from itertools import permutations
from typing import overload

import pytest
from typing_extensions import override

from penstock.domain.dataset import FieldType, Missing, WhenMissing
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import (
    MAX_STORED_ERRORS,
    Fence,
    JobError,
    JobId,
    JobStatus,
    Lease,
    Mode,
    WorkerId,
    cursor_fingerprint,
)
from penstock.domain.pages import Batch, Counts, Proof, Record, RowLocation
from penstock.domain.sharding.axes import FileAxis
from penstock.domain.source import CsvSource
from penstock.errors import LeaseLost, PenstockError
from penstock.ports import JobFilter, Stores
from tests.support.builders import (
    A_MOMENT,
    ANN,
    BEN,
    IMPRINT,
    LEASE,
    MINUTE,
    NOON,
    SECOND,
    TIMEOUT,
    add_shards,
    batch,
    begin,
    claim,
    claim_any,
    claim_plan,
    dataset,
    idle,
    ids,
    int_field,
    job_of,
    jobs_of,
    known_page,
    last,
    open_import,
    plan,
    record,
    rejection,
    repeated,
    rows,
    run,
    text_field,
    typed_field,
)
from tests.support.racing import in_threads

POI = dataset()
SHOPS = dataset("shops")
LIST = dataset("list", source=CsvSource(files=("list.csv",)), axes=(FileAxis(),))

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def ranked(rank: int, *records: Record) -> Batch:
    """Return a page that stands at some place of its file."""
    return replace(batch(*records), rank=rank)


# every way in which a worker writes
WRITES: dict[str, Callable[[Stores, Lease], object]] = {
    "renew": lambda stores, lease: stores.ledger.renew(lease),
    "commit_page": lambda stores, lease: stores.ledger.commit_page(
        POI, lease, batch(record(666), rejections=[rejection()])
    ),
    "commit_last_page": lambda stores, lease: stores.ledger.commit_page(
        POI, lease, last(record(666))
    ),
    "commit_new_rows": lambda stores, lease: stores.ledger.commit_page(
        POI, lease, batch(record(666), record(667))
    ),
    "postpone": lambda stores, lease: stores.ledger.postpone(
        lease, TIMEOUT, delay=SECOND, blame=True
    ),
    "release": lambda stores, lease: stores.ledger.release(lease),
    "fail": lambda stores, lease: stores.ledger.fail(lease, TIMEOUT),
    "split": lambda stores, lease: stores.ledger.split(lease, ["a1", "a2"]),
}
every_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())


# every way in which a job is no longer leased
ENDS: dict[str, Callable[[Stores, Lease], object]] = {
    "done": lambda stores, lease: stores.ledger.commit_page(POI, lease, last()),
    "postponed": lambda stores, lease: stores.ledger.postpone(
        lease, None, delay=MINUTE, blame=False
    ),
    "released": lambda stores, lease: stores.ledger.release(lease),
    "failed": lambda stores, lease: stores.ledger.fail(lease, TIMEOUT),
    "split": lambda stores, lease: stores.ledger.split(lease, ["x", "y"]),
    "cancelled": lambda stores, lease: stores.imports.cancel(
        lease.import_id, reason="no"
    ),
    "closed": lambda stores, lease: stores.imports.close(
        POI, lease.import_id, failed="too many bad rows"
    ),
}
every_end = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())


def claim_named(
    stores: Stores, job: JobId, *, declaration: str = "d1", region: str | None = None
) -> Lease | None:
    found = stores.ledger.claim(
        BEN, declarations={POI.name: declaration}, region=region, job=job
    )
    return found[0] if found else None


class Broken(Sequence[str]):
    """Shard keys that cannot be read to their end."""

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    @override
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        raise ConnectionError

    @override
    def __len__(self) -> int:
        return 2

    @override
    def __iter__(self) -> Iterator[str]:
        yield "a1"
        raise ConnectionError


def everything(stores: Stores, lease: Lease) -> object:
    """Return all that a write of this lease could change."""
    return (
        jobs_of(stores, lease.import_id),
        stores.imports.get(lease.import_id),
        [page for _, page in stores.jobs.pages([lease.job])],
        rows(stores, POI),
        stores.records.quarantine(POI, after=0, limit=100),
    )


class LedgerContract:
    """Subclasses bring `stores` and `pass_time`."""

    # claiming

    def test_nothing_planned_is_nothing_to_claim(self, stores: Stores):
        stores.schema.ensure_table(POI)

        assert idle(stores, POI)

    def test_a_claim_tells_all_a_worker_has_to_know(self, stores: Stores):
        stores.schema.ensure_table(POI)
        begun, _ = stores.imports.begin(
            POI, ImportScope(mode=Mode.DELTA, since=NOON), declaration="d1"
        )
        open_import(stores, begun.id, ["country:DE"])

        lease = claim(stores, POI)

        assert lease == Lease(
            job=jobs_of(stores, begun.id)[0].id,
            fence=lease.fence,
            owner=ANN,
            import_id=begun.id,
            dataset=POI.name,
            mode=Mode.DELTA,
            tracked=False,
            shard_key="country:DE",
            since=NOON,
            cursor=None,
            page_seq=0,
            attempts=0,
            rescues=0,
            snoozes=0,
        )

    def test_a_claim_names_the_trace_that_began_the_import(self, stores: Stores):
        stores.schema.ensure_table(POI)
        scope = ImportScope(mode=Mode.FULL, files=("a.csv",))
        begun, _ = stores.imports.begin(
            POI, scope, declaration="d1", traceparent=TRACEPARENT
        )
        planning = claim_plan(stores)(begun.id, threading.Event())
        assert planning is not None
        assert planning.lease.traceparent == TRACEPARENT
        # whatever else the plan stores
        assert not planning.stored_of("first")
        planning.add_shards(["a"], digest="first", stored=1)
        assert not planning.stored_of("other")
        planning.add_shards(["a", "b"], digest="other", stored=2)
        stores.plans.finish(planning.lease)

        leases = [claim(stores, POI), claim(stores, POI)]

        assert [lease.traceparent for lease in leases] == [TRACEPARENT, TRACEPARENT]
        assert planning.cursor.files == ("a.csv",)

    def test_a_claimed_job_is_leased_for_the_length_of_a_lease(self, stores: Stores):
        plan(stores, POI)

        job = job_of(stores, claim(stores, POI))

        assert job.status is JobStatus.LEASED
        assert job.lease_owner == ANN
        assert job.lease_until is not None
        assert job.lease_until - job.created_at == LEASE

    def test_a_claimed_job_is_not_claimed_again(self, stores: Stores):
        plan(stores, POI)
        claim(stores, POI)

        assert idle(stores, POI)

    def test_a_job_is_not_claimed_again_in_the_last_moment_of_its_lease(
        self, stores: Stores, pass_time
    ):
        plan(stores, POI)
        claim(stores, POI)
        pass_time(LEASE)

        assert idle(stores, POI)

    def test_an_import_being_planned_is_not_worked_on(self, stores: Stores):
        stores.schema.ensure_table(POI)
        begun = begin(stores, POI)
        add_shards(stores, begun.id, ["a"])

        assert idle(stores, POI)

    def test_a_postponed_job_waits_for_its_time(self, stores: Stores, pass_time):
        plan(stores, POI)
        stores.ledger.postpone(claim(stores, POI), None, delay=MINUTE, blame=False)
        pass_time(MINUTE - A_MOMENT)
        assert idle(stores, POI)

        pass_time(A_MOMENT)

        assert claim(stores, POI).fence == 2

    def test_jobs_of_an_import_are_taken_oldest_first(self, stores: Stores):
        plan(stores, POI, "b", "c", "a")

        assert [claim(stores, POI).shard_key for _ in range(3)] == ["b", "c", "a"]

    def test_a_lost_job_is_taken_before_those_not_begun(
        self, stores: Stores, pass_time
    ):
        plan(stores, POI, "a", "b")
        claim(stores, POI)
        pass_time(LEASE + A_MOMENT)

        assert claim(stores, POI, BEN).shard_key == "a"

    def test_only_jobs_of_the_datasets_requested_are_taken(self, stores: Stores):
        plan(stores, POI)

        assert idle(stores, SHOPS)

    def test_no_dataset_requested_is_no_job(self, stores: Stores):
        plan(stores, POI)

        assert claim_any(stores, {}) is None

    def test_imports_are_served_in_turn(self, stores: Stores):
        plan(stores, POI, "a", "b", mode=Mode.FULL)
        plan(stores, POI, "c", "d", mode=Mode.DELTA)

        taken = [claim(stores, POI).shard_key for _ in range(4)]

        assert taken == ["a", "c", "b", "d"]

    def test_datasets_are_served_in_turn(self, stores: Stores):
        plan(stores, POI, "a", "b", "c", "d")
        plan(stores, SHOPS, "x", "y")
        both = [POI.name, SHOPS.name]

        taken = [claim_any(stores, dict.fromkeys(both, "d1")) for _ in range(6)]

        assert [lease and lease.shard_key for lease in taken] == [
            *("a", "x", "b", "y"),
            *("c", "d"),
        ]

    def test_an_import_that_comes_late_is_served_next(self, stores: Stores):
        plan(stores, POI, "a", "b", "c")
        claim(stores, POI)
        claim(stores, POI)
        plan(stores, SHOPS, "x")

        lease = claim_any(stores, {"poi": "d1", "shops": "d1"})

        assert lease is not None
        assert lease.shard_key == "x"

    def test_a_higher_priority_is_served_first(self, stores: Stores):
        plan(stores, POI, "a")
        plan(stores, replace(SHOPS, priority=5), "x", "y")
        both = [POI.name, SHOPS.name]

        taken = [claim_any(stores, dict.fromkeys(both, "d1")) for _ in range(3)]

        assert [lease and lease.shard_key for lease in taken] == ["x", "y", "a"]

    def test_a_named_job_is_claimed_before_others(self, stores: Stores):
        import_id = plan(stores, POI, "a", "b", "c")
        *_, third = stores.jobs.find(
            JobFilter(import_id=import_id), after=None, limit=9
        )

        lease = claim_named(stores, third.id)

        assert lease is not None
        assert (lease.shard_key, lease.fence) == ("c", 1)
        assert claim(stores, POI).shard_key == "a"

    def test_a_named_job_whose_lease_has_ended_is_rescued(
        self, stores: Stores, pass_time
    ):
        plan(stores, POI)
        lost = claim(stores, POI)
        assert claim_named(stores, lost.job) is None
        pass_time(LEASE + A_MOMENT)

        lease = claim_named(stores, lost.job)

        assert lease is not None
        assert (lease.fence, lease.rescues) == (lost.fence + 1, 1)
        assert stores.imports.peek(lost.import_id).rescues == 1

    def test_a_named_job_that_this_worker_may_not_have_is_left(
        self, stores: Stores, pass_time
    ):
        plan(stores, replace(POI, region="eu"), "due")
        (due,) = stores.jobs.due(declarations={POI.name: "d1"}, most=9)

        assert claim_named(stores, due.id, declaration="d2") is None
        assert claim_named(stores, due.id, region="us") is None
        assert claim_named(stores, JobId(404)) is None
        lease = claim_named(stores, due.id, region="eu")

        assert lease is not None
        stores.ledger.postpone(lease, TIMEOUT, delay=MINUTE, blame=True)
        assert claim_named(stores, due.id) is None
        pass_time(MINUTE)
        assert claim_named(stores, due.id) is not None

    def test_of_many_claims_of_a_named_job_one_gets_it(self, stores: Stores):
        plan(stores, POI, "a", "b")
        first, _ = stores.jobs.due(declarations={POI.name: "d1"}, most=9)

        leases = in_threads(*[lambda: claim_named(stores, first.id)] * 4)

        assert len([lease for lease in leases if lease is not None]) == 1

    def test_due_jobs_are_listed_in_the_order_of_their_claims(
        self, stores: Stores, pass_time
    ):
        plan(stores, POI, "done", "leased", "lost", "later", "next", "last")
        done, leased, lost, later = [claim(stores, POI) for _ in range(4)]
        pass_time(LEASE)
        stores.ledger.renew(leased)
        stores.ledger.commit_page(POI, done, last())
        stores.ledger.postpone(later, TIMEOUT, delay=MINUTE, blame=True)
        pass_time(A_MOMENT)

        due = stores.jobs.due(declarations={POI.name: "d1"}, most=2)

        assert due[0].id == lost.job
        assert [stores.jobs.get(job.id).shard_key for job in due] == ["lost", "next"]
        assert {job.region for job in due} == {None}
        assert stores.jobs.due(declarations={POI.name: "d2"}, most=2) == []

    @pytest.mark.parametrize(
        ("job_region", "worker_region", "is_taken"),
        [
            (None, None, True),
            (None, "eu", True),
            ("eu", None, True),
            ("eu", "eu", True),
            ("eu", "us", False),
        ],
    )
    def test_a_region_takes_its_own_jobs_and_those_of_none(
        self, stores: Stores, job_region, worker_region, is_taken
    ):
        plan(stores, replace(POI, region=job_region))

        lease = claim_any(stores, {POI.name: "d1"}, region=worker_region)

        assert (lease is not None) is is_taken

    # fences

    def test_the_first_claim_has_the_first_fence(self, stores: Stores):
        plan(stores, POI)

        assert claim(stores, POI).fence == 1

    @pytest.mark.parametrize(
        "give_up",
        [
            lambda stores, lease: stores.ledger.release(lease),
            lambda stores, lease: stores.ledger.postpone(
                lease, TIMEOUT, delay=timedelta(), blame=True
            ),
            lambda stores, lease: (
                stores.ledger.fail(lease, TIMEOUT),
                stores.jobs.retry(lease.job),
            ),
            lambda stores, lease: (
                stores.ledger.fail(lease, TIMEOUT),
                stores.imports.close(POI, lease.import_id, failed=None),
                stores.jobs.retry(lease.job),
            ),
        ],
        ids=["release", "postpone", "retry", "retry of a closed import"],
    )
    def test_the_fence_rises_by_one_at_each_claim(self, stores: Stores, give_up):
        plan(stores, POI)
        first = claim(stores, POI)

        give_up(stores, first)

        assert job_of(stores, first).fence == 1
        assert claim(stores, POI).fence == 2

    def test_the_fence_rises_when_a_job_is_rescued(self, stores: Stores, pass_time):
        plan(stores, POI)
        lost = claim(stores, POI)
        pass_time(LEASE + A_MOMENT)
        assert job_of(stores, lost).fence == 1

        assert claim(stores, POI, BEN).fence == 2

    def test_work_does_not_move_the_fence(self, stores: Stores):
        plan(stores, POI)
        lease = claim(stores, POI)

        stores.ledger.renew(lease)
        lease, _ = stores.ledger.commit_page(POI, lease, batch(record(1)))
        stores.ledger.commit_page(POI, lease, last())

        assert job_of(stores, lease).fence == lease.fence == 1

    @every_write
    def test_a_stale_fence_writes_nothing(self, stores: Stores, pass_time, write):
        plan(stores, POI)
        stale = claim(stores, POI)
        pass_time(LEASE + A_MOMENT)
        claim(stores, POI, BEN)
        before = everything(stores, stale)

        with pytest.raises(LeaseLost):
            write(stores, stale)

        assert everything(stores, stale) == before

    @every_write
    def test_a_fence_from_the_future_writes_nothing(self, stores: Stores, write):
        plan(stores, POI)
        lease = claim(stores, POI)
        before = everything(stores, lease)

        with pytest.raises(LeaseLost):
            write(stores, replace(lease, fence=Fence(lease.fence + 1)))

        assert everything(stores, lease) == before

    @every_write
    @every_end
    def test_a_job_that_is_no_longer_leased_takes_no_write(
        self, stores: Stores, write, end
    ):
        plan(stores, POI)
        lease = claim(stores, POI)
        end(stores, lease)
        before = everything(stores, lease)

        with pytest.raises(LeaseLost):
            write(stores, replace(lease, page_seq=job_of(stores, lease).page_seq))

        assert everything(stores, lease) == before

    @every_write
    def test_a_late_write_is_accepted_while_nobody_took_over(
        self, stores: Stores, pass_time, write
    ):
        plan(stores, POI)
        lease = claim(stores, POI)
        pass_time(10 * LEASE)
        before = everything(stores, lease)

        write(stores, lease)

        assert everything(stores, lease) != before

    def test_renewing_begins_the_lease_anew(self, stores: Stores, pass_time):
        plan(stores, POI)
        lease = claim(stores, POI)
        before = job_of(stores, lease)
        pass_time(LEASE)

        stores.ledger.renew(lease)

        assert before.lease_until is not None
        assert job_of(stores, lease) == replace(
            before, lease_until=before.lease_until + LEASE
        )

    # pages

    def test_a_page_is_stored_with_its_cursor(self, stores: Stores):
        plan(stores, POI)

        lease, counts = stores.ledger.commit_page(
            POI, claim(stores, POI), batch(record(1), record(2), cursor="2")
        )

        assert counts == Counts(pages=1, seen=2, inserted=2)
        assert (lease.cursor, lease.page_seq) == ("2", 1)
        assert ids(stores, POI) == [1, 2]
        job = job_of(stores, lease)
        assert (job.cursor, job.page_seq, job.status) == ("2", 1, JobStatus.LEASED)

    def test_a_page_with_a_proof_ends_its_job(self, stores: Stores, pass_time):
        plan(stores, POI)
        lease = claim(stores, POI)
        pass_time(SECOND)

        stores.ledger.commit_page(POI, lease, last(record(1)))

        job = job_of(stores, lease)
        assert (job.status, job.proof) == (JobStatus.DONE, Proof.EMPTY_PAGE)
        assert (job.lease_owner, job.lease_until) == (None, None)
        assert job.finished_at == job.created_at + SECOND
        assert ids(stores, POI) == [1]

    def test_committing_renews_the_lease(self, stores: Stores, pass_time):
        plan(stores, POI)
        lease = claim(stores, POI)
        pass_time(LEASE)

        stores.ledger.commit_page(POI, lease, batch(record(1)))
        pass_time(LEASE)

        assert idle(stores, POI)

    def test_a_page_committed_twice_changes_nothing(self, stores: Stores):
        plan(stores, POI)
        lease = claim(stores, POI)
        page = batch(record(1), rejections=[rejection(1)])
        stores.ledger.commit_page(POI, lease, page)
        before = everything(stores, lease)

        with pytest.raises(LeaseLost):
            stores.ledger.commit_page(POI, lease, page)

        assert everything(stores, lease) == before

    def test_a_page_cannot_be_left_out(self, stores: Stores):
        plan(stores, POI)
        lease = claim(stores, POI)
        before = everything(stores, lease)

        with pytest.raises(LeaseLost):
            stores.ledger.commit_page(POI, replace(lease, page_seq=1), batch(record(1)))

        assert everything(stores, lease) == before

    def test_the_next_worker_goes_on_after_the_last_page(
        self, stores: Stores, pass_time
    ):
        plan(stores, POI)
        stores.ledger.commit_page(
            POI, claim(stores, POI), batch(record(1), cursor="after 1")
        )
        pass_time(LEASE + A_MOMENT)

        lease = claim(stores, POI, BEN)

        assert (lease.cursor, lease.page_seq) == ("after 1", 1)

    def test_pages_form_a_chain_of_cursors(self, stores: Stores):
        plan(stores, POI)
        lease = claim(stores, POI)
        for number in (1, 2):
            lease, _ = stores.ledger.commit_page(
                POI, lease, batch(record(number), cursor=f"c{number}")
            )
        stores.ledger.commit_page(POI, lease, last())

        pages = [page for _, page in stores.jobs.pages([lease.job])]

        assert [page.page_seq for page in pages] == [1, 2, 3]
        assert [page.seen for page in pages] == [1, 1, 0]
        marks = [None, cursor_fingerprint("c1"), cursor_fingerprint("c2"), None]
        assert [page.cursor_before for page in pages] == marks[:3]
        assert [page.cursor_after for page in pages] == marks[1:]
        assert {page.fence for page in pages} == {lease.fence}

    def test_counts_add_up_to_what_was_seen(self, stores: Stores):
        plan(stores, POI)
        lease, _ = stores.ledger.commit_page(
            POI, claim(stores, POI), batch(record(1, "a"), record(2, "b"))
        )

        # one new, one that replaces another of its import, one the same, a duplicate in
        # the page, one bad, two that the transform dropped
        lease, counts = stores.ledger.commit_page(
            POI,
            replace(lease, sent=3),
            last(
                *(record(1, "a"), record(2, "B"), record(3, "c")),
                rejections=[rejection(9)],
                dropped=2,
                seen=7,
            ),
        )

        assert counts == Counts(
            pages=1,
            requests=3,
            seen=7,
            inserted=1,
            unchanged=1,
            quarantined=1,
            dropped=2,
            duplicates=2,
        )
        total = Counts(
            pages=2,
            requests=3,
            seen=9,
            inserted=3,
            unchanged=1,
            quarantined=1,
            dropped=2,
            duplicates=2,
        )
        assert job_of(stores, lease).counts == total
        assert stores.imports.get(lease.import_id)[0].counts == total

    def test_a_page_that_fails_half_way_leaves_no_trace(self, stores: Stores):
        plan(stores, POI)
        lease = claim(stores, POI)
        before = everything(stores, lease)
        # no page has two rows in one place
        impossible = batch(record(1), rejections=[rejection(0), rejection(0)])

        with pytest.raises(PenstockError):
            stores.ledger.commit_page(POI, lease, impossible)

        assert everything(stores, lease) == before
        stores.ledger.commit_page(POI, lease, batch(record(1)))

    def test_bad_rows_are_retained_with_their_place_reason_and_raw_form(
        self, stores: Stores
    ):
        plan(stores, POI, "country:DE")
        lease = claim(stores, POI)
        bad = rejection(7, key=[12], raw=b'{"id": 12, "\xff": "\\u0000"}')

        stores.ledger.commit_page(POI, lease, batch(record(1), rejections=[bad]))

        (stored,) = stores.records.quarantine(POI, after=0, limit=10)
        assert stored.rejection == bad
        assert (stored.import_id, stored.job) == (lease.import_id, lease.job)
        assert (stored.shard_key, stored.page_seq) == ("country:DE", 1)
        assert stored.at == job_of(stores, lease).created_at
        assert ids(stores, POI) == [1]

    # records

    def test_a_changed_record_replaces_the_stored_one(self, stores: Stores):
        plan(stores, POI)
        lease, _ = stores.ledger.commit_page(
            POI, claim(stores, POI), batch(record(1, "old"))
        )

        stores.ledger.commit_page(POI, lease, batch(record(1, "new")))

        assert rows(stores, POI) == [(1, "new")]

    def test_a_value_that_went_away_goes_away(self, stores: Stores):
        plan(stores, POI)
        lease, _ = stores.ledger.commit_page(
            POI, claim(stores, POI), batch(record(1, "old"))
        )

        stores.ledger.commit_page(POI, lease, batch(record(1, None)))

        assert rows(stores, POI) == [(1, None)]

    @pytest.mark.parametrize(
        ("first", "second", "stored"),
        [
            (1, 2, 2),
            (2, 1, 2),
            (2, 2, "later"),
            (None, 1, 1),
            (1, None, 1),
        ],
    )
    def test_an_older_version_never_replaces_a_newer(
        self, stores: Stores, first, second, stored
    ):
        versioned = dataset(
            fields=(int_field("id"), text_field("title"), int_field("v")), version="v"
        )
        plan(stores, versioned, "a", "b")
        for version, title in ((first, "earlier"), (second, "later")):
            lease = claim(stores, versioned)
            page = last(record(1, title, version, of=versioned))
            stores.ledger.commit_page(versioned, lease, page)

        (row,) = rows(stores, versioned)

        assert stored in row

    def test_an_older_version_counts_as_unchanged(self, stores: Stores):
        versioned = dataset(fields=(int_field("id"), int_field("v")), version="v")
        run(stores, versioned, last(record(1, 2, of=versioned)))
        plan(stores, versioned)

        _, counts = stores.ledger.commit_page(
            versioned, claim(stores, versioned), batch(record(1, 1, of=versioned))
        )

        assert counts == Counts(pages=1, seen=1, unchanged=1)

    # rows of files

    @pytest.mark.parametrize("order", [(1, 2), (2, 1)], ids=["in order", "reversed"])
    @pytest.mark.parametrize("before", [None, "early", "late", "other"])
    @pytest.mark.parametrize("mode", [Mode.FULL, Mode.BACKFILL])
    def test_the_last_row_of_a_file_wins_in_whatever_order_its_shards_come(
        self, stores: Stores, order, before, mode
    ):
        if before is not None:
            plan(stores, LIST)
            lease = claim(stores, LIST)
            stores.ledger.commit_page(LIST, lease, ranked(1, record(7, before)))
            stores.ledger.release(lease)
            stores.imports.cancel(lease.import_id, reason="enough")
        pages = {1: ranked(1, record(7, "early")), 2: ranked(2, record(7, "late"))}
        plan(stores, LIST, "a", "b", mode=mode)

        leases = [claim(stores, LIST) for _ in order]
        counted = [
            stores.ledger.commit_page(LIST, lease, pages[place])[1]
            for lease, place in zip(leases, order, strict=True)
        ]

        assert rows(stores, LIST) == [(7, "late")]
        assert [each.duplicates for each in counted] == [0, 1]
        assert sum(each.seen for each in counted) == sum(
            each.inserted + each.updated + each.unchanged + each.duplicates
            for each in counted
        )

    @pytest.mark.parametrize("order", [*permutations((1, 2, 3))], ids=str)
    @pytest.mark.parametrize("before", [None, "first", "second", "third", "other"])
    def test_what_is_counted_does_not_depend_on_the_order_of_shards(
        self, stores: Stores, order, before
    ):
        if before is not None:
            run(stores, LIST, replace(last(record(7, before)), rank=1))
        titles = {1: "first", 2: "second", 3: "third"}
        plan(stores, LIST, "a", "b", "c")

        leases = [claim(stores, LIST) for _ in order]
        for lease, place in zip(leases, order, strict=True):
            page = ranked(place, record(7, titles[place]))
            stores.ledger.commit_page(LIST, lease, page)

        result = stores.imports.peek(leases[0].import_id).counts
        assert rows(stores, LIST) == [(7, "third")]
        assert (result.seen, result.duplicates) == (3, 2)
        assert result.inserted == int(before is None)
        # which of the two, the first row that came has decided
        assert result.updated + result.unchanged == int(before is not None)

    @pytest.mark.parametrize("order", [*permutations((1, 2, 3))], ids=str)
    @pytest.mark.parametrize("before", [None, 3, 4, 5])
    def test_of_equal_versions_the_last_wins_in_whatever_order_they_come(
        self, stores: Stores, order, before
    ):
        fields = (int_field("id"), int_field("v"), text_field("title"))
        versioned = replace(LIST, fields=fields, version="v")
        if before is not None:
            known = last(record(7, before, "of another import", of=versioned))
            run(stores, versioned, replace(known, rank=9))
        titles = {1: (5, "first"), 2: (5, "the last of the newest"), 3: (4, "older")}
        plan(stores, versioned, "a", "b", "c")

        for place in order:
            page = ranked(place, record(7, *titles[place], of=versioned))
            stores.ledger.commit_page(versioned, claim(stores, versioned), page)

        assert rows(stores, versioned) == [(7, 5, "the last of the newest")]

    def test_duplicates_within_a_page_are_counted(self, stores: Stores):
        plan(stores, LIST)
        page = replace(ranked(1, record(1), record(2)), seen=5, dropped=1)

        _, counts = stores.ledger.commit_page(LIST, claim(stores, LIST), page)

        assert counts == Counts(pages=1, seen=5, inserted=2, dropped=1, duplicates=2)

    @pytest.mark.parametrize("keeps", [True, False], ids=["keeps", "marks"])
    def test_rows_that_an_import_overwrites_are_counted(self, stores: Stores, keeps):
        of = POI if keeps else replace(POI, missing=Missing(do=WhenMissing.MARK))
        run(stores, of, last(record(7, "of another import"), record(8, "b")))
        plan(stores, of, "a", "b")
        first, second = claim(stores, of), claim(stores, of)
        _, changed = stores.ledger.commit_page(
            of, first, batch(record(7, "a"), record(8, "b"), record(9, "c"))
        )

        # the last two have been read twice, as where shards share an edge
        _, counts = stores.ledger.commit_page(
            of, second, batch(record(7, "A"), record(8, "b"), record(9, "c"))
        )

        assert changed == Counts(pages=1, seen=3, inserted=1, updated=1, unchanged=1)
        assert counts == Counts(pages=1, seen=3, unchanged=2, duplicates=1)
        assert rows(stores, of) == [(7, "A"), (8, "b"), (9, "c")]

    def test_an_older_row_that_loses_to_one_of_its_import_is_counted(
        self, stores: Stores
    ):
        fields = (int_field("id"), int_field("v"))
        versioned = replace(POI, fields=fields, version="v")
        plan(stores, versioned)
        lease, _ = stores.ledger.commit_page(
            versioned, claim(stores, versioned), batch(record(7, 2, of=versioned))
        )

        _, counts = stores.ledger.commit_page(
            versioned, lease, batch(record(7, 1, of=versioned))
        )

        assert counts == Counts(pages=1, seen=1, duplicates=1)
        assert rows(stores, versioned) == [(7, 2)]

    def test_a_later_import_wins_over_any_rank_of_an_earlier(self, stores: Stores):
        plan(stores, LIST)
        lease = claim(stores, LIST)
        stores.ledger.commit_page(LIST, lease, ranked(9, record(7, "old")))
        stores.ledger.release(lease)
        stores.imports.cancel(lease.import_id, reason="enough")
        plan(stores, LIST)

        stores.ledger.commit_page(
            LIST, claim(stores, LIST), ranked(1, record(7, "new"))
        )

        assert rows(stores, LIST) == [(7, "new")]

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["in order", "reversed"])
    @pytest.mark.parametrize("version", [1, None])
    def test_an_older_version_in_a_file_gives_way(self, stores: Stores, version, order):
        versioned = replace(LIST, fields=(int_field("id"), int_field("v")), version="v")
        plan(stores, versioned, "a", "b")
        pages = [
            ranked(1, record(7, 2, of=versioned)),
            ranked(2, record(7, version, of=versioned)),
        ]

        for place in order:
            lease = claim(stores, versioned)
            stores.ledger.commit_page(versioned, lease, pages[place])

        assert rows(stores, versioned) == [(7, 2)]

    @pytest.mark.parametrize("marked", [False, True], ids=["live", "deleted"])
    def test_a_bad_row_of_a_key_does_not_stand_in_the_way_of_a_good_one(
        self, stores: Stores, marked
    ):
        listed = replace(LIST, missing=Missing(do=WhenMissing.MARK, max_drop=1.0))
        run(stores, listed, replace(last(record(7, "old"), record(8)), rank=9))
        if marked:
            run(stores, listed, replace(last(record(8)), rank=9))
        plan(stores, listed, "a", "b")
        bad = replace(batch(rejections=[rejection(key=(7,))]), rank=1)

        stores.ledger.commit_page(listed, claim(stores, listed), bad)
        _, counts = stores.ledger.commit_page(
            listed, claim(stores, listed), ranked(2, record(7, "new"))
        )

        assert rows(stores, listed)[0] == (7, "new")
        assert counts == Counts(
            pages=1, seen=1, inserted=int(marked), updated=int(not marked)
        )

    def test_an_older_import_never_replaces_rows_of_a_newer(self, stores: Stores):
        plan(stores, LIST)
        older = claim(stores, LIST)
        stores.ledger.fail(older, TIMEOUT)
        stores.imports.close(LIST, older.import_id, failed=None)
        run(stores, LIST, replace(last(record(7, "newer")), rank=1))
        stores.jobs.retry(older.job)
        lease = claim(stores, LIST)

        stores.ledger.commit_page(LIST, lease, ranked(9, record(7, "older")))

        assert rows(stores, LIST) == [(7, "newer")]

    def test_a_dataset_may_become_one_of_files(self, stores: Stores):
        before = replace(POI, name=LIST.name)
        run(stores, before, last(record(1)))

        assert "add column _rank to list" in stores.schema.pending_table_changes(LIST)
        run(stores, LIST, replace(last(record(1), record(2)), rank=1))

        assert ids(stores, LIST) == [1, 2]
        assert list(stores.schema.pending_table_changes(LIST)) == []

    def test_a_bad_row_of_a_file_is_retained_with_its_place(self, stores: Stores):
        plan(stores, LIST)
        bad = replace(rejection(), place=RowLocation(line=12, offset=345))

        stores.ledger.commit_page(LIST, claim(stores, LIST), batch(rejections=[bad]))

        (found,) = stores.records.quarantine(LIST, after=0, limit=9)
        assert found.rejection == bad

    # pages that come again

    def test_a_page_is_known_while_its_rows_are_stored_as_it_brought_them(
        self, stores: Stores
    ):
        plan(stores, POI)
        page = known_page(record(3), record(1), cursor="there")
        lease, _ = stores.ledger.commit_page(POI, claim(stores, POI), page)

        assert repeated(stores, lease) is not None
        assert repeated(stores, lease, imprint=b"another") is None

    def test_a_page_that_was_never_committed_is_not_known(self, stores: Stores):
        plan(stores, POI)

        assert repeated(stores, claim(stores, POI)) is None

    @pytest.mark.parametrize(
        "after",
        [
            batch(record(1, "changed")),
            batch(record(2)),
            batch(record(9), rejections=[rejection(key=(1,))]),
        ],
        ids=["a row changed", "a row came between", "a row is in quarantine"],
    )
    def test_a_page_is_read_again_after_its_rows_were_touched(
        self, stores: Stores, after
    ):
        plan(stores, POI)
        page = known_page(record(1), record(3))
        lease, _ = stores.ledger.commit_page(POI, claim(stores, POI), page)
        lease, _ = stores.ledger.commit_page(POI, lease, after)
        before = everything(stores, lease)

        assert repeated(stores, lease) is None
        assert everything(stores, lease) == before

    def test_a_page_is_known_again_when_its_rows_are_as_before(self, stores: Stores):
        plan(stores, POI)
        lease = claim(stores, POI)
        for page in (known_page(record(1)), batch(record(1, "x")), batch(record(1))):
            lease, _ = stores.ledger.commit_page(POI, lease, page)

        assert repeated(stores, lease) is not None

    def test_rows_beyond_a_page_are_none_of_its_business(self, stores: Stores):
        plan(stores, POI)
        page = known_page(record(2), record(3))
        lease, _ = stores.ledger.commit_page(POI, claim(stores, POI), page)
        lease, _ = stores.ledger.commit_page(POI, lease, batch(record(1), record(4)))

        assert repeated(stores, lease) is not None

    def test_a_page_with_a_deleted_row_is_not_known(self, stores: Stores):
        marked = dataset(missing=Missing(do=WhenMissing.MARK, max_drop=1.0))
        page = known_page(record(1), proof=Proof.EMPTY_PAGE)
        for each in (page, last()):
            run(stores, marked, each)
        plan(stores, marked)

        assert rows(stores, marked) == []
        assert repeated(stores, claim(stores, marked), of=marked) is None

    @pytest.mark.parametrize(
        ("kind", "keys"),
        [
            (FieldType.TEXT, ["Z", "a", "ä", "\U0001f50c"]),
            (FieldType.TIMESTAMP, [NOON, NOON + A_MOMENT]),
            (FieldType.DATE, [date(1999, 12, 31), date(2000, 1, 1)]),
            (FieldType.FLOAT, [-0.1, 0.1, 1e300]),
            (FieldType.DECIMAL, [*map(Decimal, ("-10", "-9.5", "0.1", "9", "10"))]),
            (FieldType.BOOL, [False, True]),
        ],
    )
    def test_keys_of_any_type_bound_a_page(self, stores: Stores, kind, keys):
        keyed = dataset(
            "keyed",
            fields=(typed_field("a", kind), int_field("b")),
            key=("a", "b"),
        )
        plan(stores, keyed)
        records = [record(key, at, of=keyed) for key in keys for at in (2, 10)]
        page = known_page(*reversed(records))
        lease, _ = stores.ledger.commit_page(keyed, claim(stores, keyed), page)

        assert repeated(stores, lease, of=keyed) is not None

    def test_a_known_page_moves_its_job_on_and_changes_no_row(self, stores: Stores):
        plan(stores, POI)
        page = known_page(record(1), record(2), cursor="there", seen=3, dropped=1)
        lease, _ = stores.ledger.commit_page(POI, claim(stores, POI), page)
        before = rows(stores, POI)
        lease = replace(lease, sent=2)

        again = stores.ledger.repeat_page(POI, lease, IMPRINT, provider_time=NOON)

        assert again is not None
        following, counts, proof = again
        assert counts == Counts(pages=1, requests=2, seen=3, unchanged=2, dropped=1)
        assert (following.cursor, following.page_seq, following.sent) == ("there", 2, 0)
        assert proof is None
        assert rows(stores, POI) == before
        job, of = job_of(stores, lease), stores.imports.peek(lease.import_id)
        assert (job.status, job.cursor, job.page_seq) == (JobStatus.LEASED, "there", 2)
        for result in (job.counts, of.counts):
            assert (result.pages, result.requests, result.seen) == (2, 2, 6)
            assert (result.inserted, result.unchanged, result.dropped) == (2, 2, 2)
        assert of.scan_started_at == NOON
        entries = [entry for _, entry in stores.jobs.pages([lease.job])]
        assert [entry.seen for entry in entries] == [3, 3]
        assert entries[0].cursor_after == entries[1].cursor_before is not None
        assert entries[1].cursor_after == entries[0].cursor_after
        assert repeated(stores, following) is not None

    def test_a_known_last_page_ends_its_job(self, stores: Stores):
        run(stores, POI, known_page(record(1), proof=Proof.SHORT_PAGE))
        plan(stores, POI)
        lease = claim(stores, POI)

        again = repeated(stores, lease)

        assert again is not None
        assert again.proof is Proof.SHORT_PAGE
        job = job_of(stores, lease)
        assert (job.status, job.proof) == (JobStatus.DONE, Proof.SHORT_PAGE)
        assert (job.lease_owner, job.lease_until) == (None, None)
        assert job.finished_at is not None

    def test_a_known_page_renews_the_lease_and_gives_attempts_back(
        self, stores: Stores, pass_time
    ):
        plan(stores, POI)
        lease, _ = stores.ledger.commit_page(
            POI, claim(stores, POI), known_page(record(1), cursor="there")
        )
        stores.ledger.postpone(lease, TIMEOUT, delay=SECOND, blame=True)
        pass_time(SECOND)
        lease = claim(stores, POI)
        assert lease.attempts == 1
        until = job_of(stores, lease).lease_until
        assert until is not None
        pass_time(SECOND)

        again = repeated(stores, lease)

        job = job_of(stores, lease)
        assert again is not None
        assert again.lease.attempts == job.attempts == 0
        assert job.lease_until == until + SECOND

    @pytest.mark.parametrize(
        "wrong",
        [
            lambda lease: replace(lease, fence=Fence(lease.fence - 1)),
            lambda lease: replace(lease, fence=Fence(lease.fence + 1)),
            lambda lease: replace(lease, page_seq=lease.page_seq - 1),
        ],
        ids=["a stale fence", "a fence from the future", "a page twice"],
    )
    def test_a_known_page_is_not_committed_by(self, stores: Stores, wrong):
        plan(stores, POI)
        lease, _ = stores.ledger.commit_page(
            POI, claim(stores, POI), known_page(record(1), cursor="there")
        )
        before = everything(stores, lease)

        with pytest.raises(LeaseLost):
            repeated(stores, wrong(lease))

        assert everything(stores, lease) == before

    @pytest.mark.parametrize("name", ["page", "kept", "come", "told", "advanced"])
    def test_a_dataset_of_any_name_has_known_pages(self, stores: Stores, name):
        of = dataset(name)
        plan(stores, of)
        page = known_page(record(1), record(2))
        lease, _ = stores.ledger.commit_page(of, claim(stores, of), page)

        assert repeated(stores, lease, of=of) is not None

    @every_end
    def test_a_job_that_is_no_longer_leased_takes_no_known_page(
        self, stores: Stores, end
    ):
        plan(stores, POI)
        lease, _ = stores.ledger.commit_page(
            POI, claim(stores, POI), known_page(record(1))
        )
        end(stores, lease)
        before = everything(stores, lease)

        with pytest.raises(LeaseLost):
            repeated(stores, lease)

        assert everything(stores, lease) == before

    # giving up

    def test_a_blamed_delay_costs_an_attempt(self, stores: Stores):
        plan(stores, POI)
        lease = claim(stores, POI)

        stores.ledger.postpone(lease, TIMEOUT, delay=MINUTE, blame=True)

        job = job_of(stores, lease)
        assert (job.status, job.attempts, job.snoozes) == (JobStatus.PENDING, 1, 0)
        assert job.run_at == job.created_at + MINUTE
        assert (job.lease_owner, job.lease_until) == (None, None)

    def test_a_snooze_costs_no_attempt(self, stores: Stores):
        plan(stores, POI)
        lease = claim(stores, POI)

        stores.ledger.postpone(lease, None, delay=MINUTE, blame=False)

        job = job_of(stores, lease)
        assert (job.attempts, job.snoozes, job.errors) == (0, 1, ())

    def test_a_released_job_is_due_at_once_and_without_blame(self, stores: Stores):
        plan(stores, POI)
        lease, _ = stores.ledger.commit_page(
            POI, claim(stores, POI), batch(record(1), cursor="1")
        )

        stores.ledger.release(lease)

        job = job_of(stores, lease)
        assert (job.attempts, job.snoozes, job.rescues) == (0, 0, 0)
        assert (job.errors, job.cursor) == ((), "1")
        assert claim(stores, POI, BEN).job == lease.job

    def test_a_failed_job_keeps_its_cursor_and_is_not_claimed(self, stores: Stores):
        plan(stores, POI)
        lease, _ = stores.ledger.commit_page(
            POI, claim(stores, POI), batch(record(1), cursor="1")
        )

        stores.ledger.fail(lease, TIMEOUT)

        job = job_of(stores, lease)
        assert (job.status, job.cursor, job.attempts) == (JobStatus.FAILED, "1", 1)
        assert job.finished_at is not None
        assert idle(stores, POI)

    @pytest.mark.parametrize(
        "give_up",
        [
            lambda stores, lease: stores.ledger.postpone(
                lease, TIMEOUT, delay=SECOND, blame=True
            ),
            lambda stores, lease: stores.ledger.release(lease),
            lambda stores, lease: stores.ledger.fail(lease, TIMEOUT),
            lambda stores, lease: stores.ledger.split(lease, ["a1"]),
        ],
        ids=["postpone", "release", "fail", "split"],
    )
    def test_requests_that_brought_no_page_are_counted(self, stores: Stores, give_up):
        plan(stores, POI)
        lease = replace(claim(stores, POI), sent=4)

        give_up(stores, lease)

        assert job_of(stores, lease).counts == Counts(requests=4)
        assert stores.imports.get(lease.import_id)[0].counts == Counts(requests=4)

    def test_a_fault_is_remembered_with_all_that_explains_it(
        self, stores: Stores, pass_time
    ):
        plan(stores, POI)
        lease, _ = stores.ledger.commit_page(
            POI, claim(stores, POI), batch(record(1), cursor="c1")
        )
        pass_time(SECOND)

        stores.ledger.postpone(
            lease, JobError(code="odd", message="ü'\"\\"), delay=SECOND, blame=True
        )

        job = job_of(stores, lease)
        (entry,) = job.errors
        assert entry.at == job.created_at + SECOND
        assert (entry.owner, entry.fence, entry.cursor) == (ANN, 1, "c1")
        assert (entry.code, entry.message) == ("odd", "ü'\"\\")

    def test_the_last_twenty_faults_are_retained(self, stores: Stores):
        plan(stores, POI)
        for number in range(MAX_STORED_ERRORS + 3):
            fault = JobError(code="odd", message=str(number))
            stores.ledger.postpone(
                claim(stores, POI), fault, delay=timedelta(), blame=True
            )

        (job,) = stores.jobs.find(JobFilter(), after=None, limit=1)

        assert [entry.message for entry in job.errors] == [
            str(number) for number in range(3, 23)
        ]

    def test_progress_resets_attempts_rescues_and_snoozes(
        self, stores: Stores, pass_time
    ):
        plan(stores, POI)
        stores.ledger.postpone(
            claim(stores, POI), TIMEOUT, delay=timedelta(), blame=True
        )
        stores.ledger.postpone(claim(stores, POI), None, delay=timedelta(), blame=False)
        claim(stores, POI)
        pass_time(LEASE + A_MOMENT)
        lease = claim(stores, POI)
        assert (lease.attempts, lease.rescues, lease.snoozes) == (1, 1, 1)

        lease, _ = stores.ledger.commit_page(POI, lease, batch(record(1)))

        assert (lease.attempts, lease.rescues, lease.snoozes) == (0, 0, 0)
        job = job_of(stores, lease)
        assert (job.attempts, job.rescues, job.snoozes) == (0, 0, 0)

    # lost leases

    def test_a_rescue_is_counted_and_remembered(self, stores: Stores, pass_time):
        import_id = plan(stores, POI)
        claim(stores, POI)
        pass_time(LEASE + A_MOMENT)

        lease = claim(stores, POI, BEN)

        job = job_of(stores, lease)
        assert (lease.rescues, job.rescues, job.attempts) == (1, 1, 0)
        (entry,) = job.errors
        assert (entry.code, entry.owner, entry.fence) == ("lease_lost", ANN, 1)
        assert stores.imports.get(import_id)[0].rescues == 1

    def test_a_claim_that_follows_a_release_is_no_rescue(
        self, stores: Stores, pass_time
    ):
        import_id = plan(stores, POI)
        claim(stores, POI)
        pass_time(LEASE + A_MOMENT)
        stores.ledger.release(claim(stores, POI, BEN))

        claim(stores, POI)

        assert stores.imports.get(import_id)[0].rescues == 1

    def test_the_third_lease_lost_in_a_row_fails_the_job(
        self, stores: Stores, pass_time
    ):
        plan(stores, POI)
        claim(stores, POI, WorkerId("w1"))
        pass_time(LEASE + A_MOMENT)
        claim(stores, POI, WorkerId("w2"))
        pass_time(LEASE + A_MOMENT)
        lease = claim(stores, POI, WorkerId("w3"))
        pass_time(LEASE + A_MOMENT)

        assert idle(stores, POI)

        job = job_of(stores, lease)
        assert (job.status, job.fence) == (JobStatus.FAILED, 3)
        assert [entry.owner for entry in job.errors] == ["w1", "w2", "w3"]
        assert {entry.code for entry in job.errors} == {"lease_lost"}
        assert job.finished_at is not None
        with pytest.raises(LeaseLost):
            stores.ledger.renew(lease)

    def test_a_job_that_makes_progress_is_rescued_for_ever(
        self, stores: Stores, pass_time
    ):
        plan(stores, POI)
        for number in range(6):
            stores.ledger.commit_page(POI, claim(stores, POI), batch(record(number)))
            pass_time(LEASE + A_MOMENT)

        assert claim(stores, POI).page_seq == 6

    # splitting

    def test_a_split_job_is_replaced_by_its_children(self, stores: Stores):
        import_id = plan(stores, replace(POI, region="eu"), "a")
        lease = claim(stores, POI)

        stores.ledger.split(lease, ["a1", "a2"])

        parent, *children = jobs_of(stores, import_id)
        assert (parent.status, parent.lease_owner) == (JobStatus.SPLIT, None)
        assert [child.shard_key for child in children] == ["a1", "a2"]
        assert {child.status for child in children} == {JobStatus.PENDING}
        assert {child.parent for child in children} == {lease.job}
        assert {child.region for child in children} == {"eu"}
        assert [claim(stores, POI).shard_key for _ in children] == ["a1", "a2"]

    def test_shards_that_begin_with_the_same_records_find_each_other(
        self, stores: Stores
    ):
        plan(stores, POI, "a", "b", "c")
        one, other, third = (claim(stores, POI) for _ in range(3))
        note = stores.ledger.note_first_keys

        assert note(one, b"same") is None
        # a page that is fetched again
        assert note(one, b"same") is None
        assert note(third, b"different") is None
        assert note(other, b"same") == "a"

    def test_the_parts_of_a_shard_may_begin_as_it_did(self, stores: Stores):
        plan(stores, POI, "a")
        whole = claim(stores, POI)
        assert stores.ledger.note_first_keys(whole, b"same") is None
        stores.ledger.split(whole, ["a1", "a2"])

        first, second = claim(stores, POI), claim(stores, POI)

        assert stores.ledger.note_first_keys(first, b"same") is None
        assert stores.ledger.note_first_keys(second, b"same") == "a1"

    def test_only_the_holder_of_a_lease_notes_how_its_shard_begins(
        self, stores: Stores, pass_time
    ):
        plan(stores, POI, "a")
        stale = claim(stores, POI)
        pass_time(LEASE + A_MOMENT)
        claim(stores, POI, BEN)

        with pytest.raises(LeaseLost):
            stores.ledger.note_first_keys(stale, b"same")

    def test_a_split_that_fails_half_way_leaves_no_trace(self, stores: Stores):
        plan(stores, POI, "a")
        lease = claim(stores, POI)
        before = everything(stores, lease)

        with pytest.raises(ConnectionError):
            stores.ledger.split(lease, Broken())

        assert everything(stores, lease) == before

    def test_a_split_of_a_lost_job_adds_no_children(self, stores: Stores, pass_time):
        import_id = plan(stores, POI, "a")
        stale = claim(stores, POI)
        pass_time(LEASE + A_MOMENT)
        stores.ledger.split(claim(stores, POI, BEN), ["a1", "a2"])

        with pytest.raises(LeaseLost):
            stores.ledger.split(stale, ["b1", "b2"])

        keys = [job.shard_key for job in jobs_of(stores, import_id)]
        assert keys == ["a", "a1", "a2"]
