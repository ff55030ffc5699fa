"""Apply the user's transform to raw records before they are mapped."""

from collections.abc import Callable
from typing import Any, TypeAlias

from penstock.adapters.http.record_decoder import decode_object, kind, value_at_path
from penstock.domain.dataset import Dataset
from penstock.domain.pages import RawRow

# a raw record in; a raw record out, or None to drop it
Transform: TypeAlias = Callable[[dict[str, Any]], dict[str, Any] | None]

MAX_ERROR_LENGTH = 120


class RowTransform:
    """Replaces the columns of a row with those of the transformed record.

    Values that only shard checks and pagination read stay as the provider sent them.
    """

    def __init__(self, dataset: Dataset, transform: Transform) -> None:
        self._transform = transform
        self._positions = tuple(
            (dataset.path_index[path], path)
            for path in dict.fromkeys(column.path for column in dataset.read_columns)
        )

    def __call__(self, row: RawRow) -> RawRow | None:
        """Return the changed row, or None if it is dropped on purpose."""
        if row.unreadable is not None:
            return row
        record = decode_object(row.raw)
        if isinstance(record, str):
            return row._replace(unreadable=record)
        try:
            changed: object = self._transform(record)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (user code; the row reports the error)
            reason = f"{type(error).__name__}: {error}"[:MAX_ERROR_LENGTH]
            return row._replace(unreadable=f"transform raised {reason}")
        if changed is None:
            return None
        if not isinstance(changed, dict):
            reason = f"transform returned {kind(changed)}, not an object"
            return row._replace(unreadable=reason)
        values = list(row.values)
        for position, path in self._positions:
            values[position] = value_at_path(changed, path)
        return row._replace(values=tuple(values))
