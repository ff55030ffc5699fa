"""The ledger as an operator sees it."""

import json
from array import array
from collections.abc import Iterator, Sequence
from datetime import datetime

from typing_extensions import override

from penstock.adapters.sql.database import Database, Row, Transaction, counted, instant
from penstock.adapters.sql.ledger import bury_lost_jobs
from penstock.adapters.sql.rows import Rows, read_page
from penstock.domain.job import MAX_RESCUES, ImportId, Job, JobId, PageEntry
from penstock.domain.waiting import Outlook
from penstock.errors import Misconfigured, NotFound
from penstock.ports import Declarations, JobFilter, Jobs

# jobs and pages read at a time
JOBS_AT_ONCE, AT_ONCE = 1_000, 10_000


class SqlJobs(Jobs):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = Rows(database.instant)

    @override
    def now(self) -> datetime:
        return self._database.read(read_clock)

    @override
    def find(
        self, wanted: JobFilter, *, after: JobId | None, limit: int
    ) -> Sequence[Job]:
        found = self._database.read(
            lambda look: look.all(
                "find_jobs",
                after=0 if after is None else after,
                status=wanted.status,
                import_id=wanted.import_id,
                dataset=wanted.dataset,
                limit=limit,
            )
        )
        return [self._rows.read_job(row) for row in found]

    @override
    def of_import(self, import_id: ImportId) -> Iterator[Sequence[Job]]:
        found = self._database.read(
            lambda transaction: transaction.all("import_job_ids", import_id=import_id)
        )
        ids = array("q", (row["id"] for row in found))
        for start in range(0, len(ids), JOBS_AT_ONCE):
            some = ids[start : start + JOBS_AT_ONCE].tolist()
            yield [self._rows.read_job(row) for row in self._get_all(some)]

    def _get_all(self, jobs: Sequence[int]) -> Sequence[Row]:
        ids = json.dumps(jobs)
        return self._database.read(
            lambda transaction: transaction.all("get_jobs", jobs=ids)
        )

    @override
    def outlook(self, import_id: ImportId) -> Outlook:
        def work(transaction: Transaction) -> Outlook:
            row = transaction.one("job_outlook", import_id=import_id)
            if row is None:
                raise LookupError("a select without a table has returned no row")
            first = row["next_job"]
            job = None if first is None else transaction.one("get_job", job=first)
            return Outlook(
                now=read_clock(transaction),
                leased_until=self._rows.instant_or_none(row["leased_until"]),
                next_job=None if job is None else self._rows.read_job(job),
            )

        return self._database.read(work)

    @override
    def get(self, job: JobId) -> Job:
        row = self._database.read(lambda look: look.one("get_job", job=job))
        if row is None:
            raise NotFound(f"there is no job {job}", among="jobs")
        return self._rows.read_job(row)

    @override
    def retry(self, job: JobId) -> bool:
        def work(transaction: Transaction) -> bool:
            # before the job's row, as whoever ends the import does
            owner = transaction.one("hold_import_of", job=job)
            if owner is None or transaction.one("retry_job", job=job) is None:
                return False
            reopen(transaction, owner["id"], job)
            return True

        return self._database.write(work)

    @override
    def retry_failed(
        self, import_id: ImportId, *, after: JobId | None, most: int
    ) -> Sequence[JobId]:
        def work(transaction: Transaction) -> Sequence[JobId]:
            # before the rows of its jobs, as whoever ends the import does
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
        asked = json.dumps(sorted(jobs))
        found = self._pages(asked, 0, 0)
        while found:
            for row in found:
                yield JobId(row["job_id"]), read_page(row)
            if len(found) < AT_ONCE:
                return
            found = self._pages(asked, found[-1]["job_id"], found[-1]["page_seq"])

    def _pages(self, jobs: str, job: int, page: int) -> Sequence[Row]:
        return self._database.read(
            lambda look: look.all(
                "job_pages", jobs=jobs, job=job, page=page, limit=AT_ONCE
            )
        )

    @override
    def outstanding(self, *, declarations: Declarations, region: str | None) -> int:
        row = self._database.read(
            lambda look: look.one(
                "count_outstanding",
                declarations=json.dumps(dict(declarations)),
                region=region,
            )
        )
        return counted(row)

    @override
    def sweep(self) -> Sequence[ImportId]:
        # asked often, and there is seldom anything to do: look before writing
        lost = self._database.read(
            lambda look: look.one("count_lost_jobs", max_rescues=MAX_RESCUES)
        )
        if counted(lost):
            self._database.write(bury_lost_jobs)
        settled = self._database.read(lambda look: look.all("settled_imports"))
        return [ImportId(row["id"]) for row in settled]


def read_clock(transaction: Transaction) -> datetime:
    row = transaction.one("now")
    if row is None:
        raise LookupError("the database did not tell its time")
    return instant(row["now"])


def reopen(transaction: Transaction, import_id: int, job: JobId) -> None:
    """Let the import of a job run again; raises `Misconfigured` where another runs."""
    if transaction.one("find_rival_import", import_id=import_id):
        raise Misconfigured(
            f"job {job} belongs to import {import_id}, and a newer "
            "import of the same kind is still running; let it finish, or "
            "cancel it: penstock imports cancel"
        )
    transaction.execute("reopen_import", import_id=import_id)
    transaction.execute("ring")
