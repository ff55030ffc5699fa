"""Complaints about rows of files: where they stand tells which are settled.

The shards of a file are committed in any order, and two of them at the same time do not
see each other. So what one import complains of is compared with what it has stored when
all of its pages have come.
"""

from penstock.adapters.sql.database import Row, Transaction
from penstock.domain.dataset import Dataset
from penstock.domain.parts import Slice


def settle_outdone(transaction: Transaction, dataset: Dataset, import_id: int) -> None:
    """Settle what an import complains of if a good row of the key stands later."""
    if not dataset.is_ranked:
        return
    table = transaction.table(dataset)
    told = {"dataset": dataset.name, "import_id": import_id}
    for job in transaction.all("complaining_jobs", **told):
        if job["is_of_file"]:
            start = Slice.of_key(job["shard_key"]).rank(0)
            table.outdo(job=job["id"], start=start)


def last_first(look: Transaction, dataset: Dataset) -> list[int]:
    """Return the jobs with open complaints, those that stand last in files first."""
    found = look.all("complaining_jobs", dataset=dataset.name, import_id=None)
    return [job["id"] for job in sorted(found, key=order_of, reverse=True)]


def order_of(job: Row) -> tuple[int, int, int]:
    # a dataset may have been one of an API before
    is_of_file = job["is_of_file"]
    part = Slice.of_key(job["shard_key"]) if is_of_file else None
    rank = 0 if part is None else part.rank(part.start)
    return job["import_id"], rank, job["id"]
