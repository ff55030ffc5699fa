"""Find the rows that a database refuses, so that the others can be stored.

Nobody looks for them before a write was refused, so good pages cost nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from penstock.adapters.sql.database import Database, Transaction
from penstock.domain.dataset import Dataset
from penstock.domain.page import Record
from penstock.errors import Refused, RowsRefused, StoreRefused

Item = TypeVar("Item")
# looks at the rows in a transaction -> the rows, and how some of them are stored
Storing: TypeAlias = Callable[
    [Transaction], tuple[Sequence[Item], Callable[[Sequence[Item]], object]]
]


class TakenBack(Exception, Generic[Item]):
    """Ends a transaction whose writes were made to see what is refused."""

    def __init__(self, refused: Sequence[tuple[Item, Refused]]) -> None:
        super().__init__()
        self.refused = refused


@contextmanager
def naming_rows(
    database: Database,
    dataset: Dataset,
    storing: Storing[Item],
    record_of: Callable[[Item], Record],
) -> Iterator[None]:
    """Tell which rows were refused, if a write was refused because of its rows."""
    try:
        yield
    except StoreRefused as error:
        refused = find_refused(database, dataset, storing)
        if not refused:
            raise
        named = {record_of(item).digest: why for item, why in refused}
        raise RowsRefused(str(error), named) from error


def find_refused(
    database: Database, dataset: Dataset, storing: Storing[Item]
) -> Sequence[tuple[Item, Refused]]:
    """Store rows in ever smaller parts, and take everything back."""

    def work(transaction: Transaction) -> None:
        items, store = storing(transaction)
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
        raise TakenBack(found)

    try:
        database.write(work, slow=True)
    except TakenBack as taken:
        return taken.refused
    return ()
