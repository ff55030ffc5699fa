"""Jobs: queries, retries and the sweep of lost leases."""

import json
from array import array
from collections.abc import Iterator, Sequence
from datetime import datetime

from typing_extensions import override

from penstock.adapters.sqlstore.database import (
    Database,
    SqlRow,
    Transaction,
    instant,
    read_count,
)
from penstock.adapters.sqlstore.hook_messages import HookMessages
from penstock.adapters.sqlstore.ledger import fail_lost_jobs
from penstock.adapters.sqlstore.row_mappers import RowMappers, read_page
from penstock.domain.jobs import MAX_RESCUES, ImportId, Job, JobId, PageEntry, WorkerId
from penstock.domain.plan_cursor import traceparent_of
from penstock.domain.waiting import WaitingFacts
from penstock.errors import Misconfigured, NotFound
from penstock.ports import Declarations, DueJob, JobFilter, Jobs, ProblemCounts

# jobs and pages read at once
JOB_BATCH = 1_000
PAGE_BATCH = 10_000


class SqlJobs(Jobs):
    def __init__(self, database: Database, hooks: HookMessages | None = None) -> None:
        self._database = database
        self._hooks = hooks or HookMessages()
        self._rows = RowMappers(database.instant)

    @override
    def now(self) -> datetime:
        return self._database.read(read_clock)

    @override
    def find(
        self, job_filter: JobFilter, *, after: JobId | None, limit: int
    ) -> Sequence[Job]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "find_jobs",
                after=0 if after is None else after,
                status=job_filter.status,
                import_id=job_filter.import_id,
                dataset=job_filter.dataset,
                kind=job_filter.kind,
                limit=limit,
            )
        )
        return [self._rows.read_job(row) for row in found]

    @override
    def of_import(self, import_id: ImportId) -> Iterator[Sequence[Job]]:
        found = self._database.read(
            lambda transaction: transaction.all("shard_job_ids", import_id=import_id)
        )
        ids = array("q", (row["id"] for row in found))
        for start in range(0, len(ids), JOB_BATCH):
            batch = ids[start : start + JOB_BATCH].tolist()
            yield [self._rows.read_job(row) for row in self._get_all(batch)]

    def _get_all(self, jobs: Sequence[int]) -> Sequence[SqlRow]:
        ids = json.dumps(jobs)
        return self._database.read(
            lambda transaction: transaction.all("get_jobs", jobs=ids)
        )

    @override
    def waiting_facts(self, import_id: ImportId) -> WaitingFacts:
        def work(transaction: Transaction) -> WaitingFacts:
            row = transaction.one("job_outlook", import_id=import_id)
            if row is None:
                raise LookupError("a select without a table has returned no row")
            next_job = row["next_job"]
            job = None if next_job is None else transaction.one("get_job", job=next_job)
            return WaitingFacts(
                now=read_clock(transaction),
                holders={
                    WorkerId(holder["lease_owner"]): self._database.instant(
                        holder["leased_until"]
                    )
                    for holder in transaction.all("lease_holders", import_id=import_id)
                },
                next_job=None if job is None else self._rows.read_job(job),
            )

        return self._database.read(work)

    @override
    def get(self, job: JobId) -> Job:
        row = self._database.read(
            lambda transaction: transaction.one("get_job", job=job)
        )
        if row is None:
            raise NotFound(f"there is no job {job}", among="jobs")
        return self._rows.read_job(row)

    @override
    def retry(self, job: JobId) -> bool:
        def work(transaction: Transaction) -> bool:
            # lock it before the job's row, in the order of those who end the import
            locked = transaction.one("hold_import_of", job=job)
            if locked is None or transaction.one("retry_job", job=job) is None:
                return False
            reopen(transaction, locked["id"], job)
            return True

        return self._database.write(work)

    @override
    def retry_failed(
        self, import_id: ImportId, *, after: JobId | None, most: int
    ) -> Sequence[JobId]:
        def work(transaction: Transaction) -> Sequence[JobId]:
            # lock it before its jobs, in the order of those who end the import
            transaction.one("hold_import", import_id=import_id)
            found = transaction.all(
                "retry_failed_jobs", import_id=import_id, after=after or 0, most=most
            )
            jobs = sorted(JobId(row["id"]) for row in found)
            if jobs:
                reopen(transaction, import_id, jobs[0])
            return jobs

        return self._database.write(work)

    @override
    def pages(self, jobs: Sequence[JobId]) -> Iterator[tuple[JobId, PageEntry]]:
        ids = json.dumps(sorted(jobs))
        found = self._pages(ids, 0, 0)
        while found:
            for row in found:
                yield JobId(row["job_id"]), read_page(row)
            if len(found) < PAGE_BATCH:
                return
            found = self._pages(ids, found[-1]["job_id"], found[-1]["page_seq"])

    def _pages(self, jobs: str, job: int, page: int) -> Sequence[SqlRow]:
        return self._database.read(
            lambda transaction: transaction.all(
                "job_pages", jobs=jobs, job=job, page=page, limit=PAGE_BATCH
            )
        )

    @override
    def outstanding(self, *, declarations: Declarations, region: str | None) -> int:
        row = self._database.read(
            lambda transaction: transaction.one(
                "count_outstanding",
                declarations=json.dumps(dict(declarations)),
                region=region,
            )
        )
        return read_count(row)

    @override
    def due(self, *, declarations: Declarations, most: int) -> Sequence[DueJob]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "due_jobs",
                declarations=json.dumps(dict(declarations)),
                region=None,
                most=most,
            )
        )
        return [
            DueJob(JobId(row["id"]), row["region"], traceparent_of(row["plan_cursor"]))
            for row in found
        ]

    @override
    def problems(self) -> Sequence[ProblemCounts]:
        found = self._database.read(
            lambda transaction: transaction.all("count_problems")
        )
        return [
            ProblemCounts(row["dataset"], int(row["failed_jobs"]), int(row["bad_rows"]))
            for row in found
        ]

    @override
    def count_failed(self, import_id: ImportId) -> int:
        (row,) = self._database.read(
            lambda transaction: transaction.all(
                "count_failed_jobs", import_id=import_id
            )
        )
        return int(row["jobs"])

    @override
    def sweep(self) -> Sequence[ImportId]:
        # called often, and there is seldom anything to do: read before writing
        lost = self._database.read(
            lambda transaction: transaction.one(
                "count_lost_jobs", max_rescues=MAX_RESCUES
            )
        )
        if read_count(lost):
            self._database.write(
                lambda transaction: fail_lost_jobs(transaction, self._hooks)
            )
        settled = self._database.read(
            lambda transaction: transaction.all("settled_imports")
        )
        return [ImportId(row["id"]) for row in settled]

    @override
    def lease_owners(self) -> Sequence[WorkerId]:
        found = self._database.read(lambda transaction: transaction.all("lease_owners"))
        return [WorkerId(row["lease_owner"]) for row in found]

    @override
    def expire_leases(self, owners: Sequence[WorkerId]) -> None:
        def work(transaction: Transaction) -> None:
            if transaction.all("expire_leases", owners=json.dumps([*owners])):
                transaction.execute("ring")

        self._database.write(work)


def read_clock(transaction: Transaction) -> datetime:
    row = transaction.one("now")
    if row is None:
        raise LookupError("the database did not return its time")
    return instant(row["now"])


def reopen(transaction: Transaction, import_id: int, job: JobId) -> None:
    """Let the import of a job run again; raise `Misconfigured` if another runs."""
    if transaction.one("find_rival_import", import_id=import_id):
        raise Misconfigured(
            f"job {job} belongs to import {import_id}, and a newer "
            "import of the same kind is still running; let it finish, or "
            "cancel it: penstock imports cancel"
        )
    transaction.execute("reopen_import", import_id=import_id)
    transaction.execute("ring")
