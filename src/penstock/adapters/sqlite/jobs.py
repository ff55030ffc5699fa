"""The ledger as an operator sees it, on SQLite."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime

from typing_extensions import override

from penstock.adapters.sqlite.database import Database, instant
from penstock.adapters.sqlite.ledger import bury_lost_jobs
from penstock.adapters.sqlite.rows import read_job, read_page
from penstock.domain.job import MAX_RESCUES, ImportId, Job, JobId, PageEntry
from penstock.errors import Misconfigured, NotFound
from penstock.ports import Declarations, JobFilter, Jobs


class SqliteJobs(Jobs):
    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    def now(self) -> datetime:
        with self._database.read() as transaction:
            return instant(transaction.now)

    @override
    def find(
        self, wanted: JobFilter, *, after: JobId | None, limit: int
    ) -> Sequence[Job]:
        with self._database.read() as transaction:
            rows = transaction.execute(
                "find_jobs",
                after=0 if after is None else after,
                status=wanted.status,
                import_id=wanted.import_id,
                dataset=wanted.dataset,
                limit=limit,
            )
            return [read_job(row) for row in rows.fetchall()]

    @override
    def get(self, job: JobId) -> Job:
        with self._database.read() as transaction:
            row = transaction.one("get_job", job=job)
        if row is None:
            raise NotFound(f"there is no job {job}; see: penstock jobs")
        return read_job(row)

    @override
    def retry(self, job: JobId) -> bool:
        with self._database.write() as transaction:
            row = transaction.one("retry_job", job=job)
            if row is None:
                return False
            try:
                transaction.execute("reopen_import", import_id=row["import_id"])
            except sqlite3.IntegrityError as error:
                raise Misconfigured(
                    f"job {job} belongs to import {row['import_id']}, and a newer "
                    "import of the same kind is still running; let it finish, or "
                    "cancel it: penstock imports cancel"
                ) from error
            return True

    @override
    def pages(self, job: JobId) -> Iterator[PageEntry]:
        with self._database.read() as transaction:
            for row in transaction.execute("job_pages", job=job):
                yield read_page(row)

    @override
    def outstanding(self, *, declarations: Declarations, region: str | None) -> int:
        with self._database.read() as transaction:
            row = transaction.one(
                "count_outstanding",
                declarations=json.dumps(dict(declarations)),
                region=region,
            )
        return row["outstanding"] if row else 0

    @override
    def sweep(self) -> Sequence[ImportId]:
        # asked often, and there is seldom anything to do: look before writing
        with self._database.read() as look:
            lost = look.one("count_lost_jobs", max_rescues=MAX_RESCUES)
        if lost is not None and lost["lost"]:
            with self._database.write() as transaction:
                bury_lost_jobs(transaction)
        with self._database.read() as transaction:
            settled = transaction.execute("settled_imports").fetchall()
        return [ImportId(row["id"]) for row in settled]
