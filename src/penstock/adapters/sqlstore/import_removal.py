"""Remove an import with all that belongs to it, in transactions of a bounded size."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice

from penstock.adapters.sqlstore.database import Database, Transaction

# ledger rows deleted in one transaction, so that other writers are not blocked
DELETE_BATCH = 2_000
# the same for rows that have many dependent rows
SMALL_DELETE_BATCH = 200
# of penstock_import.pages_removed
BEING_REMOVED, REMOVED = 1, 2


class ImportRemoval:
    def __init__(self, database: Database) -> None:
        self._database = database

    def remove(self, import_id: int) -> Iterator[tuple[str, int]]:
        """Remove an import; yield the kind and number of the entries of each batch."""
        for kind, name in (("bad_rows", "drop_rejections"), ("claims", "drop_claims")):
            for removed in self.batches(name, import_id=import_id, limit=DELETE_BATCH):
                yield kind, removed
        # the last ones first: the parts of a split job refer to it
        for jobs in self._jobs(import_id, newest_first=True):
            for removed in self._remove_pages(jobs):
                yield "pages", removed
            yield "jobs", self._execute("drop_jobs", jobs=json.dumps(jobs))

        def work(transaction: Transaction) -> int:
            for name in ("detach_fires", "drop_requests", "drop_correction"):
                transaction.execute(name, import_id=import_id)
            transaction.execute("drop_counts", import_id=import_id)
            return transaction.execute("drop_import", import_id=import_id)

        yield "imports", self._database.write(work)

    def remove_pages(self, import_id: int) -> Iterator[int]:
        """Remove the pages of an import, which notes it; yield how many per batch."""
        self._execute("note_pages_removed", import_id=import_id, state=BEING_REMOVED)
        for jobs in self._jobs(import_id, newest_first=False):
            yield from self._remove_pages(jobs)
        self._execute("note_pages_removed", import_id=import_id, state=REMOVED)

    def batches(self, statement: str, **parameters: object) -> Iterator[int]:
        """Repeat a statement that deletes a batch until nothing is left."""
        while removed := self._execute(statement, **parameters):
            yield removed

    def _remove_pages(self, jobs: Sequence[int]) -> Iterator[int]:
        removed = DELETE_BATCH
        while removed == DELETE_BATCH:
            removed = self._execute(
                "drop_pages", jobs=json.dumps(jobs), limit=DELETE_BATCH
            )
            yield removed

    def _jobs(self, import_id: int, *, newest_first: bool) -> Iterator[Sequence[int]]:
        """Yield the jobs of an import in batches; sorted once, not for each batch."""
        with self._database.stream() as transaction:
            found = transaction.all("import_job_ids", import_id=import_id)
        jobs = [int(row["id"]) for row in found]
        rest = iter(jobs[::-1] if newest_first else jobs)
        while batch := list(islice(rest, SMALL_DELETE_BATCH)):
            yield batch

    def _execute(self, statement: str, **parameters: object) -> int:
        return self._database.write(
            lambda transaction: transaction.execute(statement, **parameters)
        )
