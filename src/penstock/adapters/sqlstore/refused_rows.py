"""Find the rows that a database refuses, so that the others can be stored.

The search starts only after a write was refused, so good pages cost nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from penstock.adapters.sqlstore.database import Database, Transaction
from penstock.domain.dataset import Dataset
from penstock.domain.pages import Record
from penstock.errors import Refused, RowsRefused, StoreRefused

Item = TypeVar("Item")
# in a transaction: returns the rows, and a function that stores some of them
Prepare: TypeAlias = Callable[
    [Transaction], tuple[Sequence[Item], Callable[[Sequence[Item]], object]]
]


class PageRolledBack(Exception, Generic[Item]):
    """Rolls back a transaction that only tried which rows are refused."""

    def __init__(self, refused: Sequence[tuple[Item, Refused]]) -> None:
        super().__init__()
        self.refused = refused


@contextmanager
def identify_refused_rows(
    database: Database,
    dataset: Dataset,
    prepare: Prepare[Item],
    record_of: Callable[[Item], Record],
) -> Iterator[None]:
    """Raise `RowsRefused` with the refused rows, if a write is refused for its rows."""
    try:
        yield
    except StoreRefused as error:
        refused = find_refused(database, dataset, prepare)
        if not refused:
            raise
        by_digest = {record_of(item).digest: why for item, why in refused}
        raise RowsRefused(str(error), by_digest) from error


def find_refused(
    database: Database, dataset: Dataset, prepare: Prepare[Item]
) -> Sequence[tuple[Item, Refused]]:
    """Store rows in ever smaller parts, and roll everything back."""

    def work(transaction: Transaction) -> None:
        items, store = prepare(transaction)
        found: list[tuple[Item, Refused]] = []
        parts = [items]
        while parts:
            part = parts.pop()
            why = transaction.attempt(partial(store, part), dataset)
            if why is None:
                continue
            if len(part) <= 1:
                found.extend((item, why) for item in part)
            else:
                half = len(part) // 2
                # the first half next, so that the first of two rows stays
                parts += [part[half:], part[:half]]
        raise PageRolledBack(found)

    try:
        database.write(work, slow=True)
    except PageRolledBack as rollback:
        return rollback.refused
    return ()
