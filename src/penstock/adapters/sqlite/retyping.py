"""Drop the table of a dataset in SQLite, or write it anew with other types."""

import sqlite3
from collections.abc import Iterator, Sequence

from typing_extensions import override

from penstock.adapters.sql.datasets import TableChanges
from penstock.adapters.sql.keys import plain_value, quoted
from penstock.adapters.sqlite.database import Transaction
from penstock.adapters.sqlite.schema import (
    drop_table,
    drop_view,
    kind_of,
    refuse,
    stored_columns,
)
from penstock.adapters.sqlite.tables import (
    Table,
    create_statement,
    live_view,
    read_all,
    value_reader,
)
from penstock.domain.dataset import Dataset
from penstock.domain.retyping import Conversion

AT_ONCE = 1_000


class SqliteTableChanges(TableChanges):
    @override
    def lock(self, transaction: Transaction, name: str, *, readable: bool) -> None:
        # whoever writes is alone
        del transaction, name, readable

    @override
    def count(self, transaction: Transaction, name: str) -> tuple[int, int] | None:
        if kind_of(transaction.connection, name) != "table":
            return None
        row = transaction.connection.execute(
            "select count(*) - count(_deleted_at), count(_deleted_at) "
            f"from {quoted(name)}"
        ).fetchone()
        return row[0], row[1]

    @override
    def drop(self, transaction: Transaction, name: str) -> None:
        drop_table(transaction.connection, name)

    @override
    def refuse(self, transaction: Transaction, stored: Dataset) -> None:
        columns = stored_columns(transaction.connection, stored)
        refuse(stored, columns, {})

    @override
    def convert(
        self,
        transaction: Transaction,
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
                    f"alter table {quoted(new)} add column {quoted(name)} {kind}"
                )
        names = [*(field.name for field in stored.fields), "_digest", *others]
        insert = (
            f"insert into {quoted(new)} ({', '.join(map(quoted, names))}) "
            f"values ({', '.join('?' * len(names))})"
        )
        rows = 0
        for batch in converted_rows(connection, stored, list(others), by):
            rows += len(batch)
            if not by.lost:
                connection.executemany(insert, batch)
        if by.lost:
            connection.execute(f"drop table {quoted(new)}")
            return rows
        shown = drop_view(connection, dataset.name)
        connection.execute(f"drop table {quoted(dataset.name)}")
        rename(connection, new, dataset.name)
        Table(dataset).build_indexes(connection)
        if shown:
            connection.execute(live_view(dataset, shown))
        return rows


def converted_rows(
    connection: sqlite3.Connection,
    stored: Dataset,
    others: Sequence[str],
    by: Conversion,
) -> Iterator[list[list[object]]]:
    """Yield rows with their new values and digest, and the other columns as is."""
    readers = [value_reader(field) for field in stored.fields]
    width = len(readers)
    names = [*(field.name for field in stored.fields), *others]
    found = connection.execute(
        f"select {', '.join(map(quoted, names))} from {quoted(stored.name)}"
    )
    while some := found.fetchmany(AT_ONCE):
        batch = []
        for row in some:
            values, digest = by(read_all(readers, row[:width]))
            batch.append([*map(plain_value, values), digest, *row[width:]])
        yield batch


def other_columns(connection: sqlite3.Connection, stored: Dataset) -> dict[str, str]:
    """Return the columns that are not converted: ours, and those of lost fields."""
    declared = {field.name for field in stored.fields} | {"_digest"}
    others = {}
    for row in table_info(connection, stored.name):
        if row["name"] not in declared:
            default = row["dflt_value"]
            tail = "" if default is None else f" not null default {default}"
            others[row["name"]] = f"{row['type']}{tail}"
    return others


def table_info(connection: sqlite3.Connection, name: str) -> list[sqlite3.Row]:
    return connection.execute(f"pragma table_info({quoted(name)})").fetchall()


def rename(connection: sqlite3.Connection, old: str, new: str) -> None:
    # views of others, which name the table that is away for a moment, stay as they are
    connection.execute("pragma legacy_alter_table = on")
    try:
        connection.execute(f"alter table {quoted(old)} rename to {quoted(new)}")
    finally:
        connection.execute("pragma legacy_alter_table = off")
