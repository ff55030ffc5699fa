"""List, drop and convert whole datasets."""

import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from typing_extensions import override

from penstock.adapters.sqlstore.database import Database, SqlRow, Transaction
from penstock.adapters.sqlstore.import_removal import (
    SMALL_DELETE_BATCH,
    ImportRemoval,
)
from penstock.adapters.sqlstore.row_mappers import RowMappers, decode_json
from penstock.adapters.sqlstore.schema import (
    declared_types,
    refuse_other_rows,
    refuse_unfinished,
)
from penstock.domain.dataset import Dataset
from penstock.domain.retyping import Conversion, TypeChange, changed_types, with_types
from penstock.errors import Misconfigured, NotFound, StoreRefused
from penstock.ports.datasets import (
    Datasets,
    DatasetSummary,
    RetypeResult,
    StoredDataset,
)

# the note of imports that failed before the table was dropped or converted
OUTDATED_NOTE = "the dataset was dropped or converted since; import it again"


class ValuesLost(Exception):
    """Values cannot be converted: neither the table nor its archive is."""

    def __init__(self, result: RetypeResult) -> None:
        super().__init__(result)
        self.result = result


class TableChanges(Protocol):
    """Changes of a dataset's table that differ by kind of database."""

    @abstractmethod
    def lock(self, transaction: Any, name: str, *, readable: bool) -> None:
        """Lock the table against writes and schema changes until the commit.

        Pages and edits lock the table before the dataset's row, and so does this.
        `readable` says whether reads are still allowed.
        """
        ...

    @abstractmethod
    def count(self, transaction: Any, name: str) -> tuple[int, int] | None:
        """Count live and deleted rows; None if there is no such table."""
        ...

    @abstractmethod
    def drop(self, transaction: Any, name: str) -> None:
        """Drop the table, its view and its search tables."""
        ...

    @abstractmethod
    def refuse(self, transaction: Any, stored: Dataset) -> None:
        """Raise `Misconfigured` if the key or the partitioning differs."""
        ...

    @abstractmethod
    def convert(
        self, transaction: Any, stored: Dataset, dataset: Dataset, by: Conversion
    ) -> int:
        """Convert the table and all its rows; return how many rows there are.

        Nothing is changed if a value would be lost.
        """
        ...


class SqlDatasets(Datasets):
    def __init__(self, database: Database, tables: TableChanges) -> None:
        self._database = database
        self._tables = tables
        self._rows = RowMappers(database.instant)

    @override
    def stored(self) -> Sequence[StoredDataset]:
        # counting the rows of large tables takes longer than a read may
        with self._database.stream() as transaction:
            return [
                self._read(transaction, row) for row in transaction.all("list_datasets")
            ]

    def _read(self, transaction: Transaction, row: SqlRow) -> StoredDataset:
        counted = self._tables.count(transaction, row["name"])
        last_import = (
            None
            if row["last_import"] is None
            else transaction.one("get_import", import_id=row["last_import"])
        )
        return StoredDataset(
            name=row["name"],
            rows=None if counted is None else counted[0],
            deleted=0 if counted is None else counted[1],
            bad_rows=row["bad_rows"],
            last_import=None
            if last_import is None
            else self._rows.read_import(last_import),
            imported_at=self._rows.instant_or_none(row["done_at"]),
        )

    @override
    def summaries(self) -> Sequence[DatasetSummary]:
        rows = self._database.read(lambda transaction: transaction.all("list_datasets"))
        return [
            DatasetSummary(
                name=row["name"],
                bad_rows=row["bad_rows"],
                imported_at=self._rows.instant_or_none(row["done_at"]),
            )
            for row in rows
        ]

    @override
    def drop(self, name: str) -> Iterator[int]:
        rows, until, imports = self._database.write(
            lambda transaction: self._drop_rows(transaction, name), slow=True
        )
        yield rows
        # the dataset may already be declared again: rows of the new one stay
        removal = ImportRemoval(self._database)
        yield from removal.batches(
            "drop_changes", dataset=name, until=until, limit=SMALL_DELETE_BATCH
        )
        for import_id in imports:
            for _, removed in removal.remove(import_id):
                yield removed

    def _drop_rows(
        self, transaction: Transaction, name: str
    ) -> tuple[int, int, Sequence[int]]:
        """Drop the table; return its rows, and which changes and imports remain."""
        self._tables.lock(transaction, name, readable=False)
        row = transaction.one("hold_dataset", dataset=name)
        counted = self._tables.count(transaction, name)
        imports = [found["id"] for found in transaction.all("imports_of", dataset=name)]
        if row is None or (counted is None and not imports):
            raise NotFound(f"nothing is stored of dataset {name!r}", among="datasets")
        refuse_unfinished(transaction, name)
        if not decode_json(row["fields"]):
            # its rows are gone: this resumes a drop that was interrupted
            return 0, row["change_seq"], imports
        if counted is not None:
            self._tables.drop(transaction, name)
        transaction.execute("forget_fields", dataset=name)
        transaction.execute("forget_all_sightings", dataset=name)
        until = begin_history(transaction, name)
        return sum(counted or ()), until, imports

    @override
    def type_changes(self, dataset: Dataset) -> Sequence[TypeChange]:
        types = self._database.read(
            lambda transaction: declared_types(transaction, dataset)
        )
        return changed_types(dataset, types)

    @override
    def retype(self, dataset: Dataset) -> RetypeResult:
        try:
            return self._database.write(
                lambda transaction: self._retype(transaction, dataset), slow=True
            )
        except ValuesLost as lost:
            return lost.result
        except StoreRefused as error:
            raise Misconfigured(
                f"datasets.{dataset.name}: the rows cannot be stored under their new "
                f"types, for example because two keys become equal ({error})"
            ) from error

    def _retype(self, transaction: Transaction, dataset: Dataset) -> RetypeResult:
        name = dataset.name
        self._tables.lock(transaction, name, readable=True)
        transaction.one("hold_dataset", dataset=name)
        types = declared_types(transaction, dataset)
        if not types:
            raise NotFound(f"nothing is stored of dataset {name!r}", among="datasets")
        changes = changed_types(dataset, types)
        if dataset.has_row_key:
            refuse_other_rows(dataset, types)
        stored = with_types(dataset, types)
        self._tables.refuse(transaction, stored)
        if not changes:
            return RetypeResult(changes=(), rows=0)
        refuse_unfinished(transaction, name)
        conversion = Conversion(stored, dataset)
        rows = self._tables.convert(transaction, stored, dataset, conversion)
        if self._tables.count(transaction, dataset.archived.name) is not None:
            rows += self._tables.convert(
                transaction, stored.archived, dataset.archived, conversion
            )
        if conversion.lost:
            raise ValuesLost(
                RetypeResult(
                    changes=changes,
                    rows=rows,
                    lost=conversion.lost,
                    losses=conversion.losses,
                )
            )
        declared = {field.name: str(field.type) for field in dataset.fields}
        fields = {field: declared.get(field, kind) for field, kind in types.items()}
        transaction.execute("set_fields", dataset=name, fields=json.dumps(fields))
        if any(change.field in dataset.key for change in changes):
            # the keys of bad rows have the old type
            transaction.execute("forget_rejection_keys", dataset=name)
        replace_history(transaction, name)
        return RetypeResult(changes=changes, rows=rows)


def replace_history(transaction: Transaction, name: str) -> None:
    """Begin a new history, and delete all changes of the previous one."""
    until = begin_history(transaction, name)
    transaction.execute("drop_changes", dataset=name, until=until, limit=until)


def begin_history(transaction: Transaction, name: str) -> int:
    """Invalidate everything derived from the previous rows; return the last change.

    No change has this number, so readers of the change feed notice the gap. Failed
    imports are cancelled, because processes that know only the old types could retry
    them.
    """
    transaction.execute("cancel_failed_imports", dataset=name, note=OUTDATED_NOTE)
    row = transaction.one("advance_dataset", dataset=name, changes=1, generations=1)
    for statement in ("forget_shapes", "forget_words", "forget_vocabulary"):
        transaction.execute(statement, dataset=name)
    return 0 if row is None else int(row["change_seq"])
