"""Drop the table of a dataset in SQLite, or convert it to other types."""

import sqlite3
from collections.abc import Iterator, Sequence

from typing_extensions import override

from penstock.adapters.sqlite.database import SqliteTransaction
from penstock.adapters.sqlite.schema import (
    drop_table,
    drop_view,
    kind_of,
    refuse_changed_table,
    stored_columns,
)
from penstock.adapters.sqlite.table_sql import (
    SqliteTableSql,
    create_statement,
    live_view,
    read_all,
    value_reader,
)
from penstock.adapters.sqlstore.datasets import TableChanges
from penstock.adapters.sqlstore.key_encoding import plain_value, quote
from penstock.domain.dataset import Dataset
from penstock.domain.retyping import Conversion

ROW_BATCH = 1_000


class SqliteTableChanges(TableChanges):
    @override
    def lock(
        self, transaction: SqliteTransaction, name: str, *, readable: bool
    ) -> None:
        # SQLite has one writer at a time
        del transaction, name, readable

    @override
    def count(
        self, transaction: SqliteTransaction, name: str
    ) -> tuple[int, int] | None:
        if kind_of(transaction.connection, name) != "table":
            return None
        row = transaction.connection.execute(
            "select count(*) - count(_deleted_at), count(_deleted_at) "
            f"from {quote(name)}"
        ).fetchone()
        return row[0], row[1]

    @override
    def drop(self, transaction: SqliteTransaction, name: str) -> None:
        drop_table(transaction.connection, name)

    @override
    def refuse(self, transaction: SqliteTransaction, stored: Dataset) -> None:
        columns = stored_columns(transaction.connection, stored)
        refuse_changed_table(stored, columns, {})

    @override
    def convert(
        self,
        transaction: SqliteTransaction,
        stored: Dataset,
        dataset: Dataset,
        by: Conversion,
    ) -> int:
        connection = transaction.connection
        new = f"penstock:{dataset.name}:new"
        others = other_columns(connection, stored)
        connection.execute(create_statement(dataset, name=new))
        existing = {row["name"] for row in table_info(connection, new)}
        for name, kind in others.items():
            if name not in existing:
                connection.execute(
                    f"alter table {quote(new)} add column {quote(name)} {kind}"
                )
        names = [*(field.name for field in stored.fields), "_digest", *others]
        insert = (
            f"insert into {quote(new)} ({', '.join(map(quote, names))}) "
            f"values ({', '.join('?' * len(names))})"
        )
        rows = 0
        for batch in converted_rows(connection, stored, list(others), by):
            rows += len(batch)
            if not by.lost:
                connection.executemany(insert, batch)
        if by.lost:
            connection.execute(f"drop table {quote(new)}")
            return rows
        shown = drop_view(connection, dataset.name)
        connection.execute(f"drop table {quote(dataset.name)}")
        rename(connection, new, dataset.name)
        SqliteTableSql(dataset).build_indexes(connection)
        if shown:
            connection.execute(live_view(dataset, shown))
        return rows


def converted_rows(
    connection: sqlite3.Connection,
    stored: Dataset,
    others: Sequence[str],
    by: Conversion,
) -> Iterator[list[list[object]]]:
    """Yield rows with converted values, new digests, and the other columns as is."""
    readers = [value_reader(field) for field in stored.fields]
    width = len(readers)
    names = [*(field.name for field in stored.fields), *others]
    found = connection.execute(
        f"select {', '.join(map(quote, names))} from {quote(stored.name)}"
    )
    while rows := found.fetchmany(ROW_BATCH):
        batch = []
        for row in rows:
            values, digest = by(read_all(readers, row[:width]))
            batch.append([*map(plain_value, values), digest, *row[width:]])
        yield batch


def other_columns(connection: sqlite3.Connection, stored: Dataset) -> dict[str, str]:
    """Return the columns that are not converted: internal and undeclared ones."""
    declared = {field.name for field in stored.fields} | {"_digest"}
    others = {}
    for row in table_info(connection, stored.name):
        if row["name"] not in declared:
            default = row["dflt_value"]
            tail = "" if default is None else f" not null default {default}"
            others[row["name"]] = f"{row['type']}{tail}"
    return others


def table_info(connection: sqlite3.Connection, name: str) -> list[sqlite3.Row]:
    return connection.execute(f"pragma table_info({quote(name)})").fetchall()


def rename(connection: sqlite3.Connection, old: str, new: str) -> None:
    # keep the views of users as they are, though their table is missing for a moment
    connection.execute("pragma legacy_alter_table = on")
    try:
        connection.execute(f"alter table {quote(old)} rename to {quote(new)}")
    finally:
        connection.execute("pragma legacy_alter_table = off")
