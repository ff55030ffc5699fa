"""Look at the keys of files before their first import: the key may not be unique.

Afterwards it could only be corrected by dropping the dataset.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.domain.completion import describe_repeated_keys
from penstock.domain.dataset import Dataset, Reference
from penstock.domain.formats import EPOCH, format_key
from penstock.domain.mapping.mapper import Mapper
from penstock.domain.mapping.page_mapper import separate_rows
from penstock.domain.pages import MAX_KEY_EXAMPLES, Key, Page
from penstock.domain.sharding.axes import Axis, Bounds
from penstock.domain.sharding.shard import Shard, never_outside, plan_shards
from penstock.domain.source import CsvSource
from penstock.errors import Misconfigured, PenstockError
from penstock.ports import KeepAlive, Records, Source

# shards of which the first page is read: rows with the same key may stand together
MAX_SAMPLED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFirstImport:
    """Refuses the first import of files if too many of their rows share a key."""

    records: Records
    source: Callable[[Dataset], Source]

    def __call__(
        self, dataset: Dataset, axes: tuple[Axis, ...], still_here: KeepAlive
    ) -> None:
        """Raise `Misconfigured` if rows of the sample would overwrite each other."""
        if not isinstance(dataset.source, CsvSource) or self._has_rows(dataset):
            return
        counted: Counter[Key] = Counter()
        for shard in pick_evenly([*plan_shards(axes, Bounds(until=EPOCH))]):
            still_here()
            counted.update(self._keys(dataset, shard))
        rows = counted.total()
        lost = rows - len(counted)
        if lost <= dataset.max_duplicates * rows:
            return
        repeated = [format_key(key) for key, count in counted.items() if count > 1]
        why = describe_repeated_keys(
            dataset, lost=lost, rows=rows, examples=repeated[:MAX_KEY_EXAMPLES]
        )
        raise Misconfigured(
            f"datasets.{dataset.name}.key: nothing was imported: in a sample, {why}"
        )

    def _has_rows(self, dataset: Dataset) -> bool:
        return next(self.records.rows(dataset), None) is not None

    def _keys(self, dataset: Dataset, shard: Shard) -> Sequence[Key]:
        try:
            page = self.source(dataset).fetch(shard, None, since=None)
        except PenstockError:
            # the import reports it
            return ()
        if not isinstance(page, Page):
            raise TypeError("a file source must return pages")
        good, _ = separate_rows(
            Mapper(dataset), page, never_outside, knows_all, shard=shard.key
        )
        return good.records.keys


def pick_evenly(shards: Sequence[Shard]) -> Iterator[Shard]:
    """Yield the first shard, the last, and some between them."""
    last = len(shards) - 1
    steps = min(last, MAX_SAMPLED - 1)
    for step in range(steps + 1):
        yield shards[last * step // max(steps, 1)]


def knows_all(reference: Reference, values: Collection[Any]) -> Collection[Any]:
    """Accept all values: which of them are stored does not matter here."""
    del reference, values
    return ()
