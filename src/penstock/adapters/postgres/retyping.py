"""Drop the table of a dataset in PostgreSQL, or convert its columns."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from psycopg.rows import tuple_row
from typing_extensions import override

from penstock.adapters.postgres.arrays import ARRAYS, DIGESTS
from penstock.adapters.postgres.connections import Connection
from penstock.adapters.postgres.database import Transaction
from penstock.adapters.postgres.schema import (
    drop_table,
    drop_view,
    has_table,
    hold,
    lock_table,
    naming_views,
    refuse,
    relation,
    stored_columns,
)
from penstock.adapters.postgres.tables import (
    COLUMN_TYPES,
    collation,
    live_view,
    readable,
)
from penstock.adapters.sql.datasets import TableChanges
from penstock.adapters.sql.keys import quoted
from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.retyping import Conversion
from penstock.errors import Misconfigured

AT_ONCE = 2_000
# the rows as they are, and what of them is converted
BEFORE, CONVERTED = "pg_temp.penstock_before", "pg_temp.penstock_converted"


class PostgresTableChanges(TableChanges):
    @override
    def lock(self, transaction: Transaction, name: str, *, readable: bool) -> None:
        row = transaction.connection.execute("select current_schema() as name")
        found = row.fetchone()
        schema = "" if found is None else found["name"]
        hold(transaction.connection, f"prepare:{schema}:{name}")
        # readers go on where they may; whoever holds rows for an edit does not
        mode = "exclusive" if readable else "access exclusive"
        lock_table(transaction, name, mode=mode)

    @override
    def count(self, transaction: Transaction, name: str) -> tuple[int, int] | None:
        connection = transaction.connection
        if not has_table(connection, name):
            return None
        row = connection.execute(
            "select count(*) - count(_deleted_at) as live, "
            f"count(_deleted_at) as deleted from {quoted(name)}".encode()
        ).fetchone()
        return (0, 0) if row is None else (row["live"], row["deleted"])

    @override
    def drop(self, transaction: Transaction, name: str) -> None:
        drop_table(transaction.connection, name)

    @override
    def refuse(self, transaction: Transaction, stored: Dataset) -> None:
        connection = transaction.connection
        refuse(connection, stored, stored_columns(connection, stored), {})

    @override
    def convert(
        self,
        transaction: Transaction,
        stored: Dataset,
        dataset: Dataset,
        by: Conversion,
    ) -> int:
        connection = transaction.connection
        table = quoted(dataset.name)
        changed = changed_fields(stored, dataset)
        if dataset.partition in {field.name for field in changed.fields}:
            raise Misconfigured(
                f"datasets.{dataset.name}.partition: what divides the rows cannot get "
                "another type; drop the dataset, and import it again"
            )
        connection.execute(
            f"create temp table penstock_before on commit drop as "
            f"select row_number() over () as _place, * from {table}".encode()
        )
        columns = ", ".join(
            f"{quoted(field.name)} {COLUMN_TYPES[field.type]}"
            for field in changed.fields
        )
        connection.execute(
            f"create temp table penstock_converted (_place bigint primary key, "
            f"{columns}, _digest bytea) on commit drop".encode()
        )
        rows = 0
        for places, values, digests in converted_rows(connection, stored, by):
            rows += len(places)
            if not by.lost:
                self._store(connection, changed, (places, values, digests), stored)
        if not by.lost:
            with naming_views(dataset.name):
                self._swap(connection, dataset, changed)
        return rows

    def _store(
        self,
        connection: Connection,
        changed: Dataset,
        batch: tuple[list[int], list[list[object]], list[bytes]],
        stored: Dataset,
    ) -> None:
        places, values, digests = batch
        order = [field.name for field in stored.fields]
        arrays: dict[str, object] = {
            "places": ARRAYS[FieldType.INT](places),
            "digests": DIGESTS(digests),
        }
        given = []
        for at, field in enumerate(changed.fields):
            place = order.index(field.name)
            column = [row[place] for row in values]
            arrays[f"column_{at}"] = ARRAYS[field.type](column)
            cast = "::json" if field.type is FieldType.JSON else ""
            given.append(f"unnest(%(column_{at})s){cast}")
        connection.execute(
            f"insert into {CONVERTED} select unnest(%(places)s), "
            f"{', '.join(given)}, unnest(%(digests)s)".encode(),
            arrays,
        )

    def _swap(self, connection: Connection, dataset: Dataset, changed: Dataset) -> None:
        """Give the columns their types, and the rows back, in a moment."""
        table = quoted(dataset.name)
        connection.execute("set local lock_timeout = '60s'")
        shown = drop_view(connection, dataset.name)
        connection.execute(f"truncate {table}".encode())
        for name in own_indexes(connection, dataset.name):
            connection.execute(f"drop index {quoted(name)}".encode())
        for field in changed.fields:
            kind = COLUMN_TYPES[field.type]
            connection.execute(
                f"alter table {table} alter column {quoted(field.name)} "
                f"type {kind}{collation(field)} using null::{kind}".encode()
            )
        converted = {*(field.name for field in changed.fields), "_digest"}
        columns: Sequence[str] = relation(connection, dataset.name)["columns"]
        values = ", ".join(
            f"{'come' if name in converted else 'before'}.{quoted(name)}"
            for name in columns
        )
        connection.execute(
            f"insert into {table} ({', '.join(map(quoted, columns))}) "
            f"select {values} from {BEFORE} as before "
            f"join {CONVERTED} as come using (_place)".encode()
        )
        if shown:
            for statement in live_view(dataset, shown):
                connection.execute(statement.encode())


def changed_fields(stored: Dataset, dataset: Dataset) -> Dataset:
    """Return a dataset of only the fields whose type is another one."""
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
        cursor.itersize = AT_ONCE
        cursor.execute(f"select _place, {names} from {BEFORE}".encode())
        while some := cursor.fetchmany(AT_ONCE):
            converted = [by(values) for _, *values in some]
            yield (
                [row[0] for row in some],
                [values for values, _ in converted],
                [digest for _, digest in converted],
            )


def own_indexes(connection: Connection, name: str) -> list[str]:
    """Return the indexes that we have made beside the key's."""
    found = connection.execute(
        "select relname from pg_index join pg_class on pg_class.oid = indexrelid "
        "where not indisprimary and starts_with(relname, %s) "
        "and indrelid = to_regclass(quote_ident(current_schema()) "
        "|| '.' || quote_ident(%s))",
        (f"penstock:{name}:", name),
    )
    return [row["relname"] for row in found.fetchall()]
