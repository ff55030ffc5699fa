"""Drop the table of a dataset in PostgreSQL, or convert its columns."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from psycopg.rows import tuple_row
from typing_extensions import override

from penstock.adapters.postgres.binary_arrays import ARRAYS, DIGESTS
from penstock.adapters.postgres.connection_pool import Connection
from penstock.adapters.postgres.database import PostgresTransaction
from penstock.adapters.postgres.schema import (
    drop_table,
    drop_view,
    has_table,
    lock,
    lock_table,
    naming_views,
    refuse,
    relation,
    stored_columns,
)
from penstock.adapters.postgres.table_sql import (
    COLUMN_TYPES,
    cast,
    collation,
    live_view,
    readable,
)
from penstock.adapters.sqlstore.datasets import TableChanges
from penstock.adapters.sqlstore.key_encoding import quote
from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.retyping import Conversion
from penstock.errors import Misconfigured

FETCH_SIZE = 2_000
# all rows as they were, and the converted values
BEFORE, CONVERTED = "pg_temp.penstock_before", "pg_temp.penstock_converted"


class PostgresTableChanges(TableChanges):
    @override
    def lock(
        self, transaction: PostgresTransaction, name: str, *, readable: bool
    ) -> None:
        row = transaction.connection.execute(
            "select current_schema() as name"
        ).fetchone()
        schema = "" if row is None else row["name"]
        lock(transaction.connection, f"prepare:{schema}:{name}")
        # `exclusive` lets readers continue, but nobody who locks rows for an edit
        mode = "exclusive" if readable else "access exclusive"
        lock_table(transaction, name, mode=mode)

    @override
    def count(
        self, transaction: PostgresTransaction, name: str
    ) -> tuple[int, int] | None:
        connection = transaction.connection
        if not has_table(connection, name):
            return None
        row = connection.execute(
            "select count(*) - count(_deleted_at) as live, "
            f"count(_deleted_at) as deleted from {quote(name)}".encode()
        ).fetchone()
        return (0, 0) if row is None else (row["live"], row["deleted"])

    @override
    def drop(self, transaction: PostgresTransaction, name: str) -> None:
        drop_table(transaction.connection, name)

    @override
    def refuse(self, transaction: PostgresTransaction, stored: Dataset) -> None:
        connection = transaction.connection
        refuse(connection, stored, stored_columns(connection, stored), {})

    @override
    def convert(
        self,
        transaction: PostgresTransaction,
        stored: Dataset,
        dataset: Dataset,
        by: Conversion,
    ) -> int:
        connection = transaction.connection
        table = quote(dataset.name)
        changed = changed_fields(stored, dataset)
        if dataset.partition in {field.name for field in changed.fields}:
            raise Misconfigured(
                f"datasets.{dataset.name}.partition: the type of the partition field "
                "cannot change; drop the dataset, and import it again"
            )
        connection.execute(
            f"create temp table penstock_before on commit drop as "
            f"select row_number() over () as _position, * from {table}".encode()
        )
        columns = ", ".join(
            f"{quote(field.name)} {COLUMN_TYPES[field.type]}"
            for field in changed.fields
        )
        connection.execute(
            f"create temp table penstock_converted (_position bigint primary key, "
            f"{columns}, _digest bytea) on commit drop".encode()
        )
        rows = 0
        for positions, values, digests in converted_rows(connection, stored, by):
            rows += len(positions)
            if not by.lost:
                self._store(connection, changed, (positions, values, digests), stored)
        if not by.lost:
            with naming_views(dataset.name):
                self._swap(connection, dataset, changed)
        # the archive is converted after its dataset
        connection.execute(f"drop table {BEFORE}, {CONVERTED}".encode())
        return rows

    def _store(
        self,
        connection: Connection,
        changed: Dataset,
        batch: tuple[list[int], list[list[object]], list[bytes]],
        stored: Dataset,
    ) -> None:
        positions, values, digests = batch
        order = [field.name for field in stored.fields]
        arrays: dict[str, object] = {
            "positions": ARRAYS[FieldType.INT](positions),
            "digests": DIGESTS(digests),
        }
        columns = []
        for at, field in enumerate(changed.fields):
            index = order.index(field.name)
            arrays[f"column_{at}"] = ARRAYS[field.type]([row[index] for row in values])
            columns.append(f"unnest(%(column_{at})s){cast(field)}")
        connection.execute(
            f"insert into {CONVERTED} select unnest(%(positions)s), "
            f"{', '.join(columns)}, unnest(%(digests)s)".encode(),
            arrays,
        )

    def _swap(self, connection: Connection, dataset: Dataset, changed: Dataset) -> None:
        """Change the types of the columns, and put the rows back."""
        table = quote(dataset.name)
        connection.execute("set local lock_timeout = '60s'")
        view_columns = drop_view(connection, dataset.name)
        connection.execute(f"truncate {table}".encode())
        for name in own_indexes(connection, dataset.name):
            connection.execute(f"drop index {quote(name)}".encode())
        for field in changed.fields:
            kind = COLUMN_TYPES[field.type]
            connection.execute(
                f"alter table {table} alter column {quote(field.name)} "
                f"type {kind}{collation(field)} using null::{kind}".encode()
            )
        converted = {*(field.name for field in changed.fields), "_digest"}
        columns: Sequence[str] = relation(connection, dataset.name)["columns"]
        values = ", ".join(
            f"{'_converted' if name in converted else '_before'}.{quote(name)}"
            for name in columns
        )
        connection.execute(
            f"insert into {table} ({', '.join(map(quote, columns))}) "
            f"select {values} from {BEFORE} as _before "
            f"join {CONVERTED} as _converted using (_position)".encode()
        )
        if view_columns:
            for statement in live_view(dataset, view_columns):
                connection.execute(statement.encode())


def changed_fields(stored: Dataset, dataset: Dataset) -> Dataset:
    """Return a dataset of only the fields whose type differs."""
    before = {field.name: field.type for field in stored.fields}
    fields = [
        field
        for field in dataset.fields
        if field.name in before and before[field.name] is not field.type
    ]
    return replace(dataset, fields=tuple(fields))


def converted_rows(
    connection: Connection, stored: Dataset, by: Conversion
) -> Iterator[tuple[list[int], list[list[object]], list[bytes]]]:
    names = ", ".join(readable(field) for field in stored.fields)
    with connection.cursor("rows", row_factory=tuple_row) as cursor:
        cursor.itersize = FETCH_SIZE
        cursor.execute(f"select _position, {names} from {BEFORE}".encode())
        while batch := cursor.fetchmany(FETCH_SIZE):
            converted = [by(values) for _, *values in batch]
            yield (
                [row[0] for row in batch],
                [values for values, _ in converted],
                [digest for _, digest in converted],
            )


def own_indexes(connection: Connection, name: str) -> list[str]:
    """Return the indexes that we have created beside the primary key."""
    found = connection.execute(
        "select relname from pg_index join pg_class on pg_class.oid = indexrelid "
        "where not indisprimary and starts_with(relname, %s) "
        "and indrelid = to_regclass(quote_ident(current_schema()) "
        "|| '.' || quote_ident(%s))",
        (f"penstock:{name}:", name),
    )
    return [row["relname"] for row in found.fetchall()]
