"""How far a dataset has come, as the database tells it."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from penstock.adapters.sql.database import Row, Transaction
from penstock.domain.dataset import Dataset
from penstock.domain.history import Position
from penstock.ports.serving import OBSERVED, State, note_observed


def to_state(
    row: Row, instant: Callable[[Any], datetime | None] = lambda _: None
) -> State:
    return State(
        generation=row["generation"],
        generation_tag=row["generation_tag"],
        change_seq=row["change_seq"],
        change_tag=row["change_tag"],
        watermark=instant(row["watermark"]),
    )


def observe(look: Transaction, dataset: Dataset) -> None:
    """Note how far a dataset is after something was read of it, if anybody asks.

    It is read by the same connection: so what was read before is of this history.
    """
    if OBSERVED.get() is None:
        return
    row = look.one("dataset_state", dataset=dataset.name)
    if row is not None:
        note_observed(to_state(row))


def has_change(look: Transaction, dataset: str, position: Position) -> bool:
    if position.seq <= 0:
        # the beginning, which every history has
        return True
    row = look.one("has_change", dataset=dataset, seq=position.seq, tag=position.tag)
    return row is not None and bool(row["is_known"])
