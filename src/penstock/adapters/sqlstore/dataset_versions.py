"""Generation and change sequence of datasets, read from the database."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from penstock.adapters.sqlstore.database import SqlRow, Transaction
from penstock.domain.dataset import Dataset
from penstock.domain.history import HistoryPosition
from penstock.ports.record_access import OBSERVED, DatasetVersion, note_observed


def read_dataset_version(
    row: SqlRow, instant: Callable[[Any], datetime | None] = lambda _: None
) -> DatasetVersion:
    return DatasetVersion(
        generation=row["generation"],
        generation_tag=row["generation_tag"],
        change_seq=row["change_seq"],
        change_tag=row["change_tag"],
        watermark=instant(row["watermark"]),
    )


def observe(transaction: Transaction, dataset: Dataset) -> None:
    """Report the version of a dataset after a read, if the caller observes it.

    It is read on the same connection, so the earlier read belongs to this history.
    """
    if OBSERVED.get() is None:
        return
    row = transaction.one("dataset_state", dataset=dataset.name)
    if row is not None:
        note_observed(read_dataset_version(row))


def has_change(
    transaction: Transaction, dataset: str, position: HistoryPosition
) -> bool:
    if position.seq <= 0:
        # the start, which every history has
        return True
    row = transaction.one(
        "has_change", dataset=dataset, seq=position.seq, tag=position.tag
    )
    return row is not None and bool(row["is_known"])
