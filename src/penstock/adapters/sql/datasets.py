"""Datasets as a whole: what is stored of them, removed and converted."""

import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from typing_extensions import override

from penstock.adapters.sql.database import Database, Row, Transaction
from penstock.adapters.sql.rows import Rows, decoded
from penstock.adapters.sql.schema import declared_types, refuse_unfinished
from penstock.domain.dataset import Dataset
from penstock.domain.retyping import (
    Conversion,
    TypeChange,
    changed_types,
    with_types,
)
from penstock.errors import Misconfigured, NotFound, StoreRefused
from penstock.ports.datasets import Datasets, Retyped, StoredDataset

# entries of the ledger that are removed in one transaction: others get a turn
AT_ONCE = 2_000
# of what may have many entries of its own
FEW_AT_ONCE = 200
# the note of imports that failed before the table was another one
OUTDATED = "the dataset was dropped or converted since; import it again"


class TableChanges(Protocol):
    """What only one kind of database can do with the table of a dataset."""

    @abstractmethod
    def lock(self, transaction: Any, name: str, *, readable: bool) -> None:
        """Let nobody else change the table or its form until the commit.

        Pages and edits hold the table before the dataset's row, and so do we.
        `readable` says whether readers go on.
        """
        ...

    @abstractmethod
    def count(self, transaction: Any, name: str) -> tuple[int, int] | None:
        """Count live and deleted rows; None if there is no such table."""
        ...

    @abstractmethod
    def drop(self, transaction: Any, name: str) -> None:
        """Drop the table, its view, and what is searched by."""
        ...

    @abstractmethod
    def refuse(self, transaction: Any, stored: Dataset) -> None:
        """Raise `Misconfigured` if the key or the partition is another one."""
        ...

    @abstractmethod
    def convert(
        self, transaction: Any, stored: Dataset, dataset: Dataset, by: Conversion
    ) -> int:
        """Convert every row, and the table; return how many rows there are.

        Nothing is changed if a value would be lost.
        """
        ...


class SqlDatasets(Datasets):
    def __init__(self, database: Database, tables: TableChanges) -> None:
        self._database = database
        self._tables = tables
        self._rows = Rows(database.instant)

    @override
    def stored(self) -> Sequence[StoredDataset]:
        # to count the rows of large tables takes longer than a read may
        with self._database.stream() as look:
            return [self._read(look, row) for row in look.all("list_datasets")]

    def _read(self, look: Transaction, row: Row) -> StoredDataset:
        counted = self._tables.count(look, row["name"])
        known = (
            None
            if row["last_import"] is None
            else look.one("get_import", import_id=row["last_import"])
        )
        return StoredDataset(
            name=row["name"],
            rows=None if counted is None else counted[0],
            deleted=0 if counted is None else counted[1],
            bad_rows=row["bad_rows"],
            last_import=None if known is None else self._rows.read_import(known),
            imported_at=self._rows.instant_or_none(row["done_at"]),
        )

    @override
    def drop(self, name: str) -> Iterator[int]:
        rows, until, imports = self._database.write(
            lambda each: self._drop_rows(each, name), slow=True
        )
        yield rows
        # it may be declared again already: what is of the new one stays
        yield from self._batches(
            "drop_changes", dataset=name, until=until, limit=FEW_AT_ONCE
        )
        for import_id in imports:
            yield from self._drop_import(import_id)

    def _drop_rows(
        self, transaction: Transaction, name: str
    ) -> tuple[int, int, Sequence[int]]:
        """Drop the table; return what is left: changes up to a number, and imports."""
        self._tables.lock(transaction, name, readable=False)
        row = transaction.one("hold_dataset", dataset=name)
        counted = self._tables.count(transaction, name)
        imports = [each["id"] for each in transaction.all("imports_of", dataset=name)]
        if row is None or (counted is None and not imports):
            raise NotFound(f"nothing is stored of dataset {name!r}", among="datasets")
        refuse_unfinished(transaction, name)
        if not decoded(row["fields"]):
            # its rows are gone: a drop that was interrupted goes on
            return 0, row["change_seq"], imports
        if counted is not None:
            self._tables.drop(transaction, name)
        transaction.execute("forget_fields", dataset=name)
        until = begin_history(transaction, name)
        return sum(counted or ()), until, imports

    def _drop_import(self, import_id: int) -> Iterator[int]:
        yield from self._batches("drop_rejections", import_id=import_id, limit=AT_ONCE)
        while removed := self._database.write(lambda each: drop_jobs(each, import_id)):
            yield removed

        def work(transaction: Transaction) -> int:
            for name in ("drop_requests", "drop_planning", "drop_counts"):
                transaction.execute(name, import_id=import_id)
            return transaction.execute("drop_import", import_id=import_id)

        yield self._database.write(work)

    def _batches(self, statement: str, **given: object) -> Iterator[int]:
        while removed := self._database.write(
            lambda each: each.execute(statement, **given)
        ):
            yield removed

    @override
    def type_changes(self, dataset: Dataset) -> Sequence[TypeChange]:
        types = self._database.read(lambda look: declared_types(look, dataset))
        return changed_types(dataset, types)

    @override
    def retype(self, dataset: Dataset) -> Retyped:
        try:
            return self._database.write(
                lambda each: self._retype(each, dataset), slow=True
            )
        except StoreRefused as error:
            raise Misconfigured(
                f"datasets.{dataset.name}: the rows cannot be stored under their new "
                f"types, as where two keys become one ({error})"
            ) from error

    def _retype(self, transaction: Transaction, dataset: Dataset) -> Retyped:
        name = dataset.name
        self._tables.lock(transaction, name, readable=True)
        transaction.one("hold_dataset", dataset=name)
        types = declared_types(transaction, dataset)
        if not types:
            raise NotFound(f"nothing is stored of dataset {name!r}", among="datasets")
        changes = changed_types(dataset, types)
        stored = with_types(dataset, types)
        self._tables.refuse(transaction, stored)
        if not changes:
            return Retyped(changes=(), rows=0)
        refuse_unfinished(transaction, name)
        conversion = Conversion(stored, dataset)
        rows = self._tables.convert(transaction, stored, dataset, conversion)
        if conversion.lost:
            return Retyped(
                changes=changes,
                rows=rows,
                lost=conversion.lost,
                losses=conversion.losses,
            )
        declared = {field.name: str(field.type) for field in dataset.fields}
        known = {each: declared.get(each, kind) for each, kind in types.items()}
        transaction.execute("set_fields", dataset=name, fields=json.dumps(known))
        if any(change.field in dataset.key for change in changes):
            # the keys of bad rows have the old type
            transaction.execute("forget_rejection_keys", dataset=name)
        replace_history(transaction, name)
        return Retyped(changes=changes, rows=rows)


def replace_history(transaction: Transaction, name: str) -> None:
    """Begin a history, and drop all changes of the one before."""
    until = begin_history(transaction, name)
    transaction.execute("drop_changes", dataset=name, until=until, limit=until)


def begin_history(transaction: Transaction, name: str) -> int:
    """Let nothing hold that was told of the rows before; return the number after it.

    The number that no change has makes a gap, which followers of the feed meet. What
    failed before would be run again by processes that know only the old types.
    """
    transaction.execute("cancel_failed_imports", dataset=name, note=OUTDATED)
    row = transaction.one("advance_dataset", dataset=name, changes=1, generations=1)
    for statement in ("forget_shapes", "forget_words", "forget_vocabulary"):
        transaction.execute(statement, dataset=name)
    return 0 if row is None else int(row["change_seq"])


def drop_jobs(transaction: Transaction, import_id: int) -> int:
    """Remove the last jobs of an import with their pages; return how many entries."""
    found = transaction.all("last_jobs", import_id=import_id, limit=FEW_AT_ONCE)
    jobs = json.dumps([row["id"] for row in found])
    pages = transaction.execute("drop_pages", jobs=jobs)
    return pages + transaction.execute("drop_jobs", jobs=jobs)
