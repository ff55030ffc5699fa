"""Any order of claims, writes, crashes and zombies leaves the ledger true.

A small pure model says what each step must do. The machine takes random steps on the
real stores, keeps every lease that was ever given out, writes with any of them at any
time, and compares the whole ledger with the model after each step.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)
from typing_extensions import override

from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import (
    MAX_RESCUES,
    ImportId,
    ImportStatus,
    Job,
    JobId,
    JobStatus,
    Lease,
    Mode,
    WorkerId,
)
from penstock.domain.pages import Batch, Proof
from penstock.errors import LeaseLost, Misconfigured, PenstockError, StoreRefused
from penstock.ports import Stores
from tests.support.builders import (
    A_MOMENT,
    ANN,
    LEASE,
    NOON,
    SECOND,
    TIMEOUT,
    Clock,
    batch,
    claim_any,
    dataset,
    jobs_of,
    last,
    record,
    rejection,
    sqlite_stores,
)
from tests.support.postgres import Place, opened, own_schema

POI = dataset()
OPEN = {JobStatus.PENDING, JobStatus.LEASED}
UNFINISHED = {ImportStatus.PLANNING, ImportStatus.RUNNING}
DEEDS = ["commit", "commit_last", "renew", "postpone", "release", "fail", "split"]
WORKERS = st.sampled_from([WorkerId("ann"), WorkerId("ben"), WorkerId("cleo")])


@dataclass
class JobModel:
    """What must be true of a job."""

    import_id: ImportId
    run_at: datetime
    status: JobStatus = JobStatus.PENDING
    fence: int = 0
    lease_until: datetime | None = None
    cursor: str | None = None
    proof: Proof | None = None
    attempts: int = 0
    rescues: int = 0
    snoozes: int = 0
    # the fence under which each page was committed
    pages: list[int] = field(default_factory=list)

    @property
    def is_finished(self) -> bool:
        return self.status not in OPEN

    def has_lost_its_lease(self, now: datetime) -> bool:
        return (
            self.status is JobStatus.LEASED
            and self.lease_until is not None
            and self.lease_until < now
        )

    def is_due(self, now: datetime) -> bool:
        is_waiting = self.status is JobStatus.PENDING and self.run_at <= now
        return is_waiting or self.has_lost_its_lease(now)

    def end(self, status: JobStatus) -> None:
        self.status, self.lease_until = status, None


@dataclass
class ImportModel:
    """What must be true of an import."""

    mode: Mode
    status: ImportStatus = ImportStatus.RUNNING
    good: int = 0
    bad: int = 0


class LedgerMachine(RuleBasedStateMachine):
    # every lease that was ever given out, the stale ones too
    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.stores, self.clock = self.open()
        self.jobs: dict[JobId, JobModel] = {}
        self.imports: dict[ImportId, ImportModel] = {}
        # what the committed pages brought
        self.rows: set[int] = set()
        self.pages_made = 0
        # what was last seen of each job, and of those that were finished
        self.before: dict[JobId, Job] = {}
        self.finished: dict[JobId, Job] = {}
        self.claimed: JobId | None = None

    def open(self) -> tuple[Stores, Clock]:
        """Open empty stores, and the clock by which they judge."""
        self.folder = Path(tempfile.mkdtemp())
        clock = Clock(NOON)
        self.database = SqliteDatabase(self.folder / "penstock.db", clock=clock)
        return sqlite_stores(self.database), clock

    def teardown(self) -> None:
        self.database.close()
        shutil.rmtree(self.folder)

    @initialize(shards=st.integers(1, 2))
    def begin(self, shards: int) -> None:
        self.stores.schema.migrate()
        self.stores.schema.ensure_table(POI)
        self.plan(Mode.FULL, shards)

    # planners and operators

    @rule(mode=st.sampled_from([Mode.FULL, Mode.DELTA]), shards=st.integers(0, 3))
    def plan(self, mode: Mode, shards: int) -> None:
        unfinished = self.unfinished(mode)
        begun, resumed = self.stores.imports.begin(
            POI, ImportScope(mode=mode), declaration="d1"
        )
        assert resumed is (unfinished is not None)
        assert unfinished in {None, begun.id}
        keys = [f"shard {number}" for number in range(shards)]
        plan = self.stores.plans.claim(begun.id, ANN)
        assert (plan is None) is resumed
        if plan is not None:
            plan = self.stores.plans.add_shards(plan, keys, cursor="1")
            self.stores.plans.finish(plan)
        self.imports.setdefault(begun.id, ImportModel(mode))
        self.meet_jobs(begun.id)

    @rule(which=st.integers(0, 99))
    def retry(self, which: int) -> None:
        job_id, job = list(self.jobs.items())[which % len(self.jobs)]
        owner = self.imports[job.import_id]
        newer = self.unfinished(owner.mode)
        if job.status is not JobStatus.FAILED or owner.status not in {
            ImportStatus.RUNNING,
            ImportStatus.FAILED,
        }:
            assert not self.stores.jobs.retry(job_id)
        elif owner.status is ImportStatus.FAILED and newer is not None:
            with pytest.raises(Misconfigured):
                self.stores.jobs.retry(job_id)
        else:
            assert self.stores.jobs.retry(job_id)
            job.status, job.run_at = JobStatus.PENDING, self.clock.now
            job.attempts = job.rescues = job.snoozes = 0
            owner.status = ImportStatus.RUNNING
            del self.finished[job_id]

    @rule(which=st.integers(0, 99))
    def cancel(self, which: int) -> None:
        import_id, owner = list(self.imports.items())[which % len(self.imports)]
        self.stores.imports.cancel(import_id, reason="no longer wanted")
        if owner.status in {*UNFINISHED, ImportStatus.FAILED}:
            owner.status = ImportStatus.CANCELLED
            self.cancel_jobs(import_id)

    @rule(which=st.integers(0, 99), failed=st.sampled_from([None, None, "too bad"]))
    def close(self, which: int, failed: str | None) -> None:
        import_id, owner = list(self.imports.items())[which % len(self.imports)]
        statuses = {each.status for each in self.jobs_of(import_id)}
        ended = self.stores.imports.close(POI, import_id, failed=failed)
        if owner.status is not ImportStatus.RUNNING or (
            failed is None and statuses & OPEN
        ):
            assert ended is None
            return
        is_done = failed is None and statuses <= {JobStatus.DONE, JobStatus.SPLIT}
        assert ended is not None
        assert ended.proven is is_done
        owner.status = ImportStatus.DONE if is_done else ImportStatus.FAILED
        if failed is not None:
            self.cancel_jobs(import_id)

    @rule()
    def sweep(self) -> None:
        self.bury()
        assert list(self.stores.jobs.sweep()) == [
            import_id
            for import_id, owner in self.imports.items()
            if owner.status is ImportStatus.RUNNING
            and not {each.status for each in self.jobs_of(import_id)} & OPEN
        ]

    @rule(span=st.sampled_from([A_MOMENT, SECOND, LEASE, LEASE + A_MOMENT, 10 * LEASE]))
    def pass_time(self, span: timedelta) -> None:
        self.clock.pass_time(span)

    # workers

    @rule(target=leases, owner=WORKERS)
    def claim(self, owner: WorkerId):
        lease = claim_any(self.stores, {POI.name: "d1"}, owner=owner)
        self.bury()
        now = self.clock.now
        due = {
            job_id
            for job_id, job in self.jobs.items()
            if job.is_due(now)
            and self.imports[job.import_id].status is ImportStatus.RUNNING
        }
        if lease is None:
            assert not due
            return multiple()
        assert lease.job in due
        job = self.jobs[lease.job]
        job.rescues += job.has_lost_its_lease(now)
        job.status, job.lease_until = JobStatus.LEASED, now + LEASE
        job.fence += 1
        self.claimed = lease.job
        assert (lease.fence, lease.page_seq) == (job.fence, len(job.pages))
        assert (lease.cursor, lease.rescues) == (job.cursor, job.rescues)
        return lease

    @rule(target=leases, owner=WORKERS)
    def take_over(self, owner: WorkerId):
        """Let every lease end, and claim what is due then."""
        self.pass_time(LEASE + A_MOMENT)
        return self.claim(owner)

    @rule(lease=consumes(leases))
    def crash(self, lease: Lease) -> None:
        """Forget a lease without a word."""

    @rule(target=leases, lease=leases, more=st.integers(0, 1), bad=st.integers(0, 2))
    def commit(self, lease: Lease, more: int, bad: int):
        self.pages_made += 1
        rejections = [rejection(position) for position in range(bad)]
        page = batch(
            record(self.pages_made),
            *[record(-self.pages_made)] * more,
            cursor=f"after {self.pages_made}",
            rejections=rejections,
        )
        return self.commit_page(lease, page)

    @rule(target=leases, lease=leases)
    def commit_last(self, lease: Lease):
        self.pages_made += 1
        return self.commit_page(lease, last(record(self.pages_made)))

    def commit_page(self, lease: Lease, page: Batch):
        job = self.jobs[lease.job]
        if not self.may_write(lease) or lease.page_seq != len(job.pages):
            with pytest.raises(LeaseLost):
                self.stores.ledger.commit_page(POI, lease, page)
            return multiple()
        following, counts = self.stores.ledger.commit_page(POI, lease, page)
        assert counts.inserted == len(page.records)
        assert counts.quarantined == len(page.rejections)
        self.rows.update(self.pages_made * sign for sign in (1, -1)[: counts.inserted])
        self.imports[job.import_id].good += len(page.records)
        self.imports[job.import_id].bad += len(page.rejections)
        job.pages.append(lease.fence)
        job.cursor, job.proof = page.cursor, page.proof
        job.attempts = job.rescues = job.snoozes = 0
        job.lease_until = self.clock.now + LEASE
        if page.proof is not None:
            job.end(JobStatus.DONE)
        return following

    @rule(lease=leases)
    def commit_breaks_half_way(self, lease: Lease) -> None:
        """Commit a page that no store can take: two rows in one place."""
        self.pages_made += 1
        broken = batch(record(self.pages_made), rejections=[rejection(), rejection()])
        with pytest.raises(PenstockError) as refused:
            self.stores.ledger.commit_page(POI, lease, broken)
        assert isinstance(refused.value, LeaseLost | StoreRefused)

    @rule(lease=leases)
    def renew(self, lease: Lease) -> None:
        if self.writes(lease, lambda: self.stores.ledger.renew(lease)):
            self.jobs[lease.job].lease_until = self.clock.now + LEASE

    @rule(lease=leases, blame=st.booleans(), delay=st.sampled_from([0, 1, 90]))
    def postpone(self, lease: Lease, *, blame: bool, delay: int) -> None:
        wait = delay * SECOND
        if self.writes(
            lease,
            lambda: self.stores.ledger.postpone(
                lease, TIMEOUT if blame else None, delay=wait, blame=blame
            ),
        ):
            job = self.jobs[lease.job]
            job.end(JobStatus.PENDING)
            job.run_at = self.clock.now + wait
            # a page that the worker did not hear of was progress
            job.attempts += blame and lease.page_seq == len(job.pages)
            job.rescues = 0
            job.snoozes += not blame

    @rule(lease=leases)
    def release(self, lease: Lease) -> None:
        if self.writes(lease, lambda: self.stores.ledger.release(lease)):
            job = self.jobs[lease.job]
            job.end(JobStatus.PENDING)
            job.run_at = self.clock.now
            job.rescues = 0

    @rule(lease=leases)
    def fail(self, lease: Lease) -> None:
        job = self.jobs[lease.job]
        if lease.page_seq != len(job.pages):
            with pytest.raises(LeaseLost):
                self.stores.ledger.fail(lease, TIMEOUT)
        elif self.writes(lease, lambda: self.stores.ledger.fail(lease, TIMEOUT)):
            job.end(JobStatus.FAILED)
            job.attempts += 1

    @precondition(lambda self: len(self.jobs) < 12)
    @rule(lease=leases)
    def split(self, lease: Lease) -> None:
        halves = [f"{lease.shard_key}.{half}" for half in (1, 2)]
        if self.writes(lease, lambda: self.stores.ledger.split(lease, halves)):
            self.jobs[lease.job].end(JobStatus.SPLIT)
            self.meet_jobs(lease.import_id)

    @rule(target=leases, lease=leases, owner=WORKERS, deed=st.sampled_from(DEEDS))
    def wake_up_late(self, lease: Lease, owner: WorkerId, deed: str):
        """Write as if nothing had happened, after somebody may have taken over."""
        taken = self.take_over(owner)
        match deed:
            case "commit":
                self.commit(lease, more=1, bad=0)
            case "postpone":
                self.postpone(lease, blame=True, delay=0)
            case _:
                getattr(self, deed)(lease)
        return taken

    # the model

    def may_write(self, lease: Lease) -> bool:
        job = self.jobs[lease.job]
        return job.status is JobStatus.LEASED and job.fence == lease.fence

    def writes(self, lease: Lease, write: Callable[[], None]) -> bool:
        """Write, which must be refused unless the model allows it."""
        if self.may_write(lease):
            write()
            return True
        with pytest.raises(LeaseLost):
            write()
        return False

    def bury(self) -> None:
        for job in self.jobs.values():
            is_running = self.imports[job.import_id].status is ImportStatus.RUNNING
            is_lost = job.has_lost_its_lease(self.clock.now)
            if is_running and is_lost and job.rescues + 1 >= MAX_RESCUES:
                job.rescues += 1
                job.end(JobStatus.FAILED)

    def unfinished(self, mode: Mode) -> ImportId | None:
        for import_id, owner in self.imports.items():
            if owner.mode is mode and owner.status in UNFINISHED:
                return import_id
        return None

    def jobs_of(self, import_id: ImportId) -> list[JobModel]:
        return [job for job in self.jobs.values() if job.import_id == import_id]

    def cancel_jobs(self, import_id: ImportId) -> None:
        for job in self.jobs_of(import_id):
            if not job.is_finished:
                job.end(JobStatus.CANCELLED)

    def meet_jobs(self, import_id: ImportId) -> None:
        """Take jobs that were just planned into the model."""
        for found in jobs_of(self.stores, import_id):
            if found.id not in self.jobs:
                self.jobs[found.id] = JobModel(import_id, run_at=self.clock.now)

    # what must be true after every step

    @invariant()
    def every_job_is_as_the_model_says(self) -> None:
        found = [
            job for import_id in self.imports for job in jobs_of(self.stores, import_id)
        ]
        assert [job.id for job in sorted(found, key=lambda job: job.id)] == sorted(
            self.jobs
        )
        for job in found:
            model = self.jobs[job.id]
            assert (job.status, job.fence) == (model.status, model.fence)
            assert (job.cursor, job.proof) == (model.cursor, model.proof)
            assert (job.run_at, job.lease_until) == (model.run_at, model.lease_until)
            assert (job.attempts, job.rescues) == (model.attempts, model.rescues)
            assert job.snoozes == model.snoozes
            assert job.page_seq == len(model.pages)
            self.nothing_goes_back(job)
        self.claimed = None

    def nothing_goes_back(self, job: Job) -> None:
        before = self.before.get(job.id, job)
        assert job.fence - before.fence == (self.claimed == job.id and before != job)
        assert before.page_seq <= job.page_seq <= before.page_seq + 1
        self.before[job.id] = job
        if job.status not in OPEN:
            # only a retry opens a finished job, and it says so
            assert job == self.finished.setdefault(job.id, job)
        else:
            assert job.id not in self.finished

    @invariant()
    def each_committed_page_is_there_once(self) -> None:
        if not self.imports:
            return
        for job_id, job in self.jobs.items():
            pages = [page for _, page in self.stores.jobs.pages([job_id])]
            assert [page.page_seq for page in pages] == list(
                range(1, len(job.pages) + 1)
            )
            assert [page.fence for page in pages] == job.pages
            assert job.pages == sorted(job.pages)
        assert {row[0] for row in self.stores.records.rows(POI)} == self.rows

    @invariant()
    def counts_add_up(self) -> None:
        for import_id, owner in self.imports.items():
            found, shards = self.stores.imports.get(import_id)
            jobs = self.jobs_of(import_id)
            pages = sum(len(job.pages) for job in jobs)
            assert found.status is owner.status
            assert (found.counts.pages, found.counts.inserted) == (pages, owner.good)
            assert found.counts.quarantined == owner.bad
            assert found.counts.seen == owner.good + owner.bad
            assert shards.total == len(jobs)
        if self.imports:
            bad = self.stores.records.quarantine(POI, after=0, limit=10_000)
            newest_done = max(
                (
                    import_id
                    for import_id, owner in self.imports.items()
                    if owner.status is ImportStatus.DONE and owner.mode is Mode.FULL
                ),
                default=0,
            )
            assert len(bad) <= sum(owner.bad for owner in self.imports.values())
            if not newest_done:
                assert len(bad) == sum(owner.bad for owner in self.imports.values())

    @invariant()
    def done_means_proven(self) -> None:
        for import_id, owner in self.imports.items():
            if owner.status is ImportStatus.DONE:
                assert all(
                    job.status is JobStatus.SPLIT
                    or (job.status is JobStatus.DONE and job.proof is not None)
                    for job in jobs_of(self.stores, import_id)
                )
            if owner.status not in UNFINISHED:
                assert (
                    not {job.status for job in jobs_of(self.stores, import_id)} & OPEN
                )


class LongLedgerMachine(LedgerMachine):
    pass


@dataclass
class SharedClock(Clock):
    """A clock that a server reads, too."""

    place: Place | None = None

    def pass_time(self, span: timedelta) -> None:
        assert self.place is not None
        super().pass_time(span)
        self.place.pass_time(span)


class PostgresLedgerMachine(LedgerMachine):
    """The same on a server, whose tables are emptied between two runs."""

    place: Place
    opened: Stores

    @override
    def open(self) -> tuple[Stores, Clock]:
        tables = self.place.ask(
            "select string_agg(quote_ident(tablename), ', ') from pg_tables "
            "where schemaname = %s and tablename <> 'penstock_migration'",
            self.place.schema,
        )
        if tables[0][0] is not None:
            self.place.ask(f"truncate {tables[0][0]} restart identity")
            self.opened.schema.ensure_table(POI)
            self.place.set_clock(NOON)
        return self.opened, SharedClock(NOON, self.place)

    @override
    def teardown(self) -> None:
        pass


@pytest.fixture(scope="class")
def postgres_ledger(postgres_url: str) -> Iterator[None]:
    with own_schema(postgres_url) as place:
        place.stop_clock()
        with opened(place, clock=place.clock) as (stores, _):
            PostgresLedgerMachine.place = place
            PostgresLedgerMachine.opened = stores
            yield


# a failure takes its time to be made small
TestLedger = pytest.mark.timeout(900)(LedgerMachine.TestCase)
TestLedger.settings = settings(
    max_examples=200,
    stateful_step_count=30,
    deadline=None,
    report_multiple_bugs=False,
)

TestPostgresLedger = pytest.mark.usefixtures("postgres_ledger")(
    pytest.mark.timeout(900)(PostgresLedgerMachine.TestCase)
)
TestPostgresLedger.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    report_multiple_bugs=False,
)

TestLedgerForLong = pytest.mark.slow(
    pytest.mark.timeout(3600)(LongLedgerMachine.TestCase)
)
TestLedgerForLong.settings = settings(
    max_examples=2000, stateful_step_count=80, deadline=None
)
