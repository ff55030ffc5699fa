"""Pass raw records through the user's own function before they are mapped."""

from collections.abc import Callable
from typing import Any, TypeAlias

from penstock.adapters.http.decode import decode_object, kind, walk
from penstock.domain.dataset import Dataset
from penstock.domain.page import Row

# a raw record in; a raw record out, or None to drop it
Transform: TypeAlias = Callable[[dict[str, Any]], dict[str, Any] | None]

LONGEST = 120


class RowTransform:
    """Replaces the columns of a row by those of the transformed record.

    Values that only shard checks and paging read stay as the provider sent them.
    """

    def __init__(self, dataset: Dataset, transform: Transform) -> None:
        self._transform = transform
        self._places = tuple(
            (dataset.place[path], path)
            for path in dict.fromkeys(each.path for each in dataset.columns)
        )

    def __call__(self, row: Row) -> Row | None:
        """Return the changed row, or None if it is dropped on purpose."""
        if row.unreadable is not None:
            return row
        record = decode_object(row.raw)
        if isinstance(record, str):
            return row._replace(unreadable=record)
        try:
            changed: object = self._transform(record)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (foreign code; the row says what it did)
            told = f"{type(error).__name__}: {error}"[:LONGEST]
            return row._replace(unreadable=f"transform raised {told}")
        if changed is None:
            return None
        if not isinstance(changed, dict):
            told = f"transform returned {kind(changed)}, not an object"
            return row._replace(unreadable=told)
        values = list(row.values)
        for place, path in self._places:
            values[place] = walk(changed, path)
        return row._replace(values=tuple(values))
