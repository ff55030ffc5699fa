"""Create and update the tables of the ledger and of every dataset."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from typing_extensions import override

from penstock.adapters.sql.datasets import SqlDatasets, replace_history
from penstock.adapters.sql.keys import quoted
from penstock.adapters.sql.schema import (
    columns_to_add,
    declared_types,
    lacks_rank,
    migrations,
    missing_fields,
    missing_migrations,
    refuse_changes,
    refuse_unfinished,
    refuse_view,
    replaces_empty,
    view_columns,
    view_steps,
)
from penstock.adapters.sqlite.database import Database, Transaction
from penstock.adapters.sqlite.tables import (
    COLUMN_TYPES,
    RANK,
    VIEW_MARK,
    Table,
    is_empty,
    live_view,
)
from penstock.domain.dataset import LIVE, Dataset
from penstock.errors import Misconfigured
from penstock.ports import Schema

# "PENS", by which a file is known to be ours
OURS = 0x50454E53
MIGRATIONS = migrations("penstock.adapters.sqlite")


class SqliteSchema(Schema):
    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    @override
    def is_shared(self) -> bool:
        return False

    @property
    @override
    def datasets(self) -> SqlDatasets:
        # few commands need it
        from penstock.adapters.sqlite.retyping import SqliteTableChanges

        return SqlDatasets(self._database, SqliteTableChanges())

    @override
    def is_there(self) -> bool:
        return bool(self._database.read(lambda look: schema_version(look.connection)))

    @override
    def migrate(self) -> Sequence[str]:
        # every command comes by here: look before taking the lock that writers need
        return self._database.write(self._migrate) if self.pending() else []

    @override
    def pending(self) -> Sequence[str]:
        def work(transaction: Transaction) -> Sequence[str]:
            refuse_stranger(transaction.connection, self._database.path)
            missing = missing_migrations(
                MIGRATIONS,
                known=schema_version(transaction.connection),
                schema=f"{self._database.path}: the schema",
            )
            return [each.name for each in missing]

        return self._database.read(work)

    def _migrate(self, transaction: Transaction) -> Sequence[str]:
        connection = transaction.connection
        applied = []
        connection.execute(f"pragma application_id = {OURS:d}")
        for number, name, text in MIGRATIONS[schema_version(connection) :]:
            run_script(connection, text)
            # pragmas take no parameters; the number is our own
            connection.execute(f"pragma user_version = {number:d}")
            applied.append(name)
        return applied

    @override
    def prepare(self, dataset: Dataset) -> Sequence[str]:
        if not self.unprepared(dataset):
            return []
        table = Table(dataset)
        return self._database.write(lambda each: create(each, dataset, table))

    @override
    def unprepared(self, dataset: Dataset) -> Sequence[str]:
        table = Table(dataset)
        return self._database.read(lambda look: steps(look, dataset, table))

    @override
    def tend(self, dataset: Dataset) -> Sequence[str]:
        """Let the index of words follow the rows, while no search waits for it.

        Other indexes SQLite keeps in order while it writes. Where many rows are
        deleted, the others get one of their own, once no import waits for it.
        """
        done = self._index_live_rows(dataset)
        # whoever cannot search can still import
        with suppress(Misconfigured):
            while self._is_behind(dataset):
                has_more = self._database.write(
                    lambda each: each.searched(dataset).catch_up()
                )
                # whoever imports waits for us: the rest comes later
                if not has_more or not self._is_at_rest(dataset):
                    break
        return done

    def _index_live_rows(self, dataset: Dataset) -> list[str]:
        def is_due(look: Transaction) -> bool:
            table = look.searched(dataset).of
            return table.live_index in table.missing_indexes(look.connection)

        def build(transaction: Transaction) -> list[str]:
            table = transaction.searched(dataset).of
            return table.build_indexes(transaction.connection)

        if self._database.read(is_due) and self._is_at_rest(dataset):
            return built(self._database.write(build))
        return []

    def _is_behind(self, dataset: Dataset) -> bool:
        return self._database.read(lambda look: look.searched(dataset).is_behind())

    def _is_at_rest(self, dataset: Dataset) -> bool:
        return self._database.read(lambda look: look.searched(dataset).is_at_rest())

    @override
    def lacks_indexes(self, dataset: Dataset) -> bool:
        with suppress(Misconfigured):
            return self._is_behind(dataset)
        return False

    @override
    def untended(self, dataset: Dataset) -> Sequence[str]:
        return []


def create(transaction: Transaction, dataset: Dataset, table: Table) -> Sequence[str]:
    done = steps(transaction, dataset, table)
    connection = transaction.connection
    transaction.execute("add_dataset", dataset=dataset.name)
    stored = stored_columns(connection, dataset)
    known = declared_types(transaction, dataset)
    if done == replaces_empty(dataset):
        drop_table(connection, dataset.name)
        replace_history(transaction, dataset.name)
        transaction.execute("forget_rejection_keys", dataset=dataset.name)
        stored, known = {}, {}
    if stored:
        for field in missing_fields(dataset, stored):
            connection.execute(
                f"alter table {quoted(dataset.name)} "
                f"add column {quoted(field.name)} {COLUMN_TYPES[field.type]}"
            )
        if lacks_rank(dataset, stored):
            connection.execute(f"alter table {quoted(dataset.name)} add column {RANK}")
    else:
        connection.execute(table.create)
    declared = {field.name: field.type for field in dataset.fields}
    transaction.execute(
        "set_fields", dataset=dataset.name, fields=json.dumps(known | declared)
    )
    table.build_indexes(connection)
    update_view(connection, dataset)
    return done


def update_view(connection: sqlite3.Connection, dataset: Dataset) -> None:
    """Let the live view show all declared fields, unless its name is not ours."""
    shown = shown_columns(connection, dataset.live_view)
    if view_steps(dataset, shown):
        connection.execute(f"drop view if exists {quoted(dataset.live_view)}")
        connection.execute(live_view(dataset, view_columns(dataset, shown or ())))


def drop_table(connection: sqlite3.Connection, name: str) -> None:
    """Drop the table of a dataset, its view, and what is searched by."""
    drop_view(connection, name)
    connection.execute(f"drop table {quoted(name)}")
    for part in ("words", "entries"):
        drop = f"drop table if exists {quoted(f'penstock:{name}:{part}')}"
        connection.execute(drop)


def drop_view(connection: sqlite3.Connection, name: str) -> list[str]:
    """Drop the live view, if it is ours; return its columns."""
    view = f"{name}{LIVE}"
    shown = shown_columns(connection, view) or []
    if shown:
        connection.execute(f"drop view {quoted(view)}")
    return shown


def shown_columns(connection: sqlite3.Connection, view: str) -> list[str] | None:
    """Return what a live view shows; None if something else has its name."""
    found = connection.execute(
        "select sql from sqlite_master where lower(name) = ?", (view,)
    ).fetchone()
    if found is None:
        return []
    if VIEW_MARK not in found["sql"]:
        return None
    columns = connection.execute(f"pragma table_info({quoted(view)})")
    return [row["name"] for row in columns]


def refuse_stranger(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a database whose numbers mean something to another program."""
    # in this order: who migrates at this moment sets both in one commit
    version = schema_version(connection)
    owner = connection.execute("pragma application_id").fetchone()[0]
    if owner != OURS and (owner or version):
        raise Misconfigured(
            f"{path} belongs to another program; "
            "point penstock.database at a file of its own"
        )


def schema_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("pragma user_version").fetchone()[0])


def steps(transaction: Transaction, dataset: Dataset, table: Table) -> list[str]:
    """Say what has to be created for a dataset."""
    connection = transaction.connection
    if kind_of(connection, dataset.name) == "view":
        raise refuse_view(dataset)
    stored = stored_columns(connection, dataset)
    known = declared_types(transaction, dataset)
    if not stored or not known:
        return [f"create table {dataset.name}"]
    try:
        refuse(dataset, stored, known)
    except Misconfigured:
        if not is_empty(connection, dataset):
            raise
        refuse_unfinished(transaction, dataset.name)
        return replaces_empty(dataset)
    # a view follows its table without a word
    gained = columns_to_add(dataset, stored) or view_steps(
        dataset, shown_columns(connection, dataset.live_view)
    )
    return [
        *gained,
        *built(table.missing_indexes(connection)),
    ]


def built(indexes: Sequence[str]) -> list[str]:
    return [f"build index {name}" for name in indexes]


def stored_columns(
    connection: sqlite3.Connection, dataset: Dataset
) -> dict[str, sqlite3.Row]:
    found = connection.execute(f"pragma table_info({quoted(dataset.name)})")
    return {row["name"]: row for row in found}


def kind_of(connection: sqlite3.Connection, name: str) -> str | None:
    row = connection.execute(
        "select type from sqlite_master where lower(name) = ?", (name,)
    ).fetchone()
    return None if row is None else str(row["type"])


def run_script(connection: sqlite3.Connection, text: str) -> None:
    # executescript would commit the transaction that keeps a migration whole
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


def refuse(
    dataset: Dataset, stored: dict[str, sqlite3.Row], known: dict[str, str]
) -> None:
    by_place = sorted(stored.items(), key=lambda item: item[1]["pk"])
    key = [name for name, row in by_place if row["pk"]]
    refuse_changes(dataset, key=key, stored=stored, known=known)
