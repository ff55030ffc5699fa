"""Rejected rows of files: their positions decide which are superseded.

The shards of a file are committed in any order, and concurrent ones do not see each
other. So the rejections of an import are compared with its stored rows after all of its
pages are committed.
"""

from penstock.adapters.sqlstore.database import SqlRow, Transaction
from penstock.domain.dataset import Dataset
from penstock.domain.sharding.parts import Slice


def supersede_file_rejections(
    transaction: Transaction, dataset: Dataset, import_id: int
) -> None:
    """Resolve the rejections of an import that later good rows of the files replace."""
    if not dataset.is_ranked:
        return
    table = transaction.table(dataset)
    jobs = transaction.all(
        "complaining_jobs", dataset=dataset.name, import_id=import_id
    )
    for job in jobs:
        if job["is_of_file"]:
            start = Slice.of_key(job["shard_key"]).rank(0)
            table.supersede_rejections(job=job["id"], start=start)


def jobs_with_rejections(transaction: Transaction, dataset: Dataset) -> list[int]:
    """Return the jobs with open rejections, the last in their files first."""
    found = transaction.all("complaining_jobs", dataset=dataset.name, import_id=None)
    return [job["id"] for job in sorted(found, key=file_position, reverse=True)]


def file_position(job: SqlRow) -> tuple[int, int, int]:
    # the dataset may have been imported from an API before
    is_of_file = job["is_of_file"]
    part = Slice.of_key(job["shard_key"]) if is_of_file else None
    rank = 0 if part is None else part.rank(part.start)
    return job["import_id"], rank, job["id"]
