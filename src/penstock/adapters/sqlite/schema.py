"""Create and update the tables of the ledger and of every dataset."""

import json
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from typing_extensions import override

from penstock.adapters.sqlite.database import SqliteDatabase, SqliteTransaction
from penstock.adapters.sqlite.table_sql import (
    COLUMN_TYPES,
    EDITED_COLUMN,
    RANK_COLUMN,
    VIEW_MARK,
    SqliteTableSql,
    is_empty,
    live_view,
)
from penstock.adapters.sqlstore.datasets import SqlDatasets, replace_history
from penstock.adapters.sqlstore.key_encoding import quote
from penstock.adapters.sqlstore.schema import (
    columns_to_add,
    declared_types,
    lacks_edited,
    lacks_rank,
    later_migrations,
    load_migrations,
    missing_fields,
    missing_migrations,
    refuse_changes,
    refuse_unfinished,
    refuse_view,
    replacement_steps,
    view_columns,
    view_steps,
)
from penstock.domain.dataset import ARCHIVE_SUFFIX, LIVE_VIEW_SUFFIX, Dataset
from penstock.errors import Misconfigured
from penstock.ports import Schema

# "PENS", the application id that SQLite stores in the file
APPLICATION_ID = 0x50454E53
MIGRATIONS = load_migrations("penstock.adapters.sqlite")


class SqliteSchema(Schema):
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    @property
    @override
    def is_shared(self) -> bool:
        return False

    @property
    @override
    def is_read_only(self) -> bool:
        return self._database.is_read_only

    @property
    @override
    def datasets(self) -> SqlDatasets:
        # few commands need it: imported on first use
        from penstock.adapters.sqlite.retyping import SqliteTableChanges

        return SqlDatasets(self._database, SqliteTableChanges())

    @override
    def exists(self) -> bool:
        return bool(
            self._database.read(
                lambda transaction: schema_version(transaction.connection)
            )
        )

    @override
    def migrate(self) -> Sequence[str]:
        # every command calls this: read before taking the writers' lock
        return self._database.write(self._migrate, slow=True) if self.pending() else []

    @override
    def pending(self) -> Sequence[str]:
        def work(transaction: SqliteTransaction) -> Sequence[str]:
            refuse_foreign_file(transaction.connection, self._database.path)
            missing = missing_migrations(
                MIGRATIONS,
                known=schema_version(transaction.connection),
                schema=f"{self._database.path}: the schema",
            )
            return [migration.name for migration in missing]

        return self._database.read(work)

    def _migrate(self, transaction: SqliteTransaction) -> Sequence[str]:
        connection = transaction.connection
        applied = []
        connection.execute(f"pragma application_id = {APPLICATION_ID:d}")
        for number, name, text in later_migrations(
            MIGRATIONS, schema_version(connection)
        ):
            run_script(connection, text)
            # pragmas take no parameters; the number is our own
            connection.execute(f"pragma user_version = {number:d}")
            applied.append(name)
        return applied

    @override
    def ensure_table(self, dataset: Dataset) -> Sequence[str]:
        if not self.pending_table_changes(dataset):
            return []
        table = SqliteTableSql(dataset)
        return self._database.write(
            lambda transaction: prepare_table(transaction, dataset, table), slow=True
        )

    @override
    def pending_table_changes(self, dataset: Dataset) -> Sequence[str]:
        table = SqliteTableSql(dataset)
        return self._database.read(
            lambda transaction: pending_steps(transaction, dataset, table)
        )

    @override
    def maintain(self, dataset: Dataset) -> Sequence[str]:
        """Bring the search index up to date, so that no search has to do it.

        SQLite maintains other indexes with each write. If many rows are deleted, the
        live rows get an index of their own, while no import is running.
        """
        done = self._index_live_rows(dataset)
        # an SQLite without FTS5 can still import
        with suppress(Misconfigured):
            while self._is_behind(dataset):
                has_more = self._database.write(
                    lambda transaction: transaction.search_table(dataset).catch_up()
                )
                # a running import waits for this transaction: do the rest later
                if not has_more or not self._is_at_rest(dataset):
                    break
        return done

    def _index_live_rows(self, dataset: Dataset) -> list[str]:
        def is_due(transaction: SqliteTransaction) -> bool:
            table = transaction.search_table(dataset).of
            return table.live_index in table.missing_indexes(transaction.connection)

        def build(transaction: SqliteTransaction) -> list[str]:
            table = transaction.search_table(dataset).of
            return table.build_indexes(transaction.connection)

        if self._database.read(is_due) and self._is_at_rest(dataset):
            return build_steps(self._database.write(build))
        return []

    def _is_behind(self, dataset: Dataset) -> bool:
        return self._database.read(
            lambda transaction: transaction.search_table(dataset).is_behind()
        )

    def _is_at_rest(self, dataset: Dataset) -> bool:
        return self._database.read(
            lambda transaction: transaction.search_table(dataset).is_at_rest()
        )

    @override
    def lacks_indexes(self, dataset: Dataset) -> bool:
        with suppress(Misconfigured):
            return self._is_behind(dataset)
        return False

    @override
    def pending_maintenance(self, dataset: Dataset) -> Sequence[str]:
        return []


def prepare_table(
    transaction: SqliteTransaction, dataset: Dataset, table: SqliteTableSql
) -> Sequence[str]:
    done = pending_steps(transaction, dataset, table)
    connection = transaction.connection
    transaction.execute("add_dataset", dataset=dataset.name)
    stored = stored_columns(connection, dataset)
    types = declared_types(transaction, dataset)
    if done == replacement_steps(dataset):
        drop_table(connection, dataset.name)
        replace_history(transaction, dataset.name)
        transaction.execute("forget_rejection_keys", dataset=dataset.name)
        stored, types = {}, {}
    create_or_extend(connection, table, stored)
    if dataset.archive is not None:
        archive = SqliteTableSql(dataset.archived)
        create_or_extend(
            connection, archive, stored_columns(connection, dataset.archived)
        )
        archive.build_indexes(connection)
    declared = {field.name: field.type for field in dataset.fields}
    transaction.execute(
        "set_fields", dataset=dataset.name, fields=json.dumps(types | declared)
    )
    table.build_indexes(connection)
    update_view(connection, dataset)
    return done


def create_or_extend(
    connection: sqlite3.Connection, table: SqliteTableSql, stored: Collection[str]
) -> None:
    """Create a table, or add the columns that it lacks."""
    dataset = table.dataset
    if not stored:
        connection.execute(table.create)
        return
    added = [
        f"{quote(field.name)} {COLUMN_TYPES[field.type]}"
        for field in missing_fields(dataset, stored)
    ]
    if lacks_rank(dataset, stored):
        added.append(RANK_COLUMN)
    if lacks_edited(dataset, stored):
        added.append(EDITED_COLUMN)
    for column in added:
        connection.execute(f"alter table {quote(dataset.name)} add column {column}")


def update_view(connection: sqlite3.Connection, dataset: Dataset) -> None:
    """Let the live view show all declared fields, unless it is not ours."""
    shown = shown_columns(connection, dataset.live_view)
    if view_steps(dataset, shown):
        connection.execute(f"drop view if exists {quote(dataset.live_view)}")
        connection.execute(live_view(dataset, view_columns(dataset, shown or ())))


def drop_table(connection: sqlite3.Connection, name: str) -> None:
    """Drop the table of a dataset, its archive, its view and its search tables."""
    drop_view(connection, name)
    connection.execute(f"drop table {quote(name)}")
    connection.execute(f"drop table if exists {quote(name + ARCHIVE_SUFFIX)}")
    for part in ("words", "entries"):
        drop = f"drop table if exists {quote(f'penstock:{name}:{part}')}"
        connection.execute(drop)


def drop_view(connection: sqlite3.Connection, name: str) -> list[str]:
    """Drop the live view, if it is ours; return its columns."""
    view = f"{name}{LIVE_VIEW_SUFFIX}"
    shown = shown_columns(connection, view) or []
    if shown:
        connection.execute(f"drop view {quote(view)}")
    return shown


def shown_columns(connection: sqlite3.Connection, view: str) -> list[str] | None:
    """Return the columns of a live view; None if something else has its name."""
    found = connection.execute(
        "select sql from sqlite_master where lower(name) = ?", (view,)
    ).fetchone()
    if found is None:
        return []
    if VIEW_MARK not in found["sql"]:
        return None
    columns = connection.execute(f"pragma table_info({quote(view)})")
    return [row["name"] for row in columns]


def refuse_foreign_file(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `Misconfigured` for the database of another program."""
    # in this order: a concurrent migration sets both in one commit
    version = schema_version(connection)
    owner = connection.execute("pragma application_id").fetchone()[0]
    if owner != APPLICATION_ID and (owner or version):
        raise Misconfigured(
            f"{path} belongs to another program; "
            "point penstock.database at a file of its own"
        )


def schema_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("pragma user_version").fetchone()[0])


def pending_steps(
    transaction: SqliteTransaction, dataset: Dataset, table: SqliteTableSql
) -> list[str]:
    """Describe what has to be created for a dataset."""
    connection = transaction.connection
    if kind_of(connection, dataset.name) == "view":
        raise refuse_view(dataset)
    stored = stored_columns(connection, dataset)
    types = declared_types(transaction, dataset)
    if not stored or not types:
        return [f"create table {dataset.name}"]
    try:
        refuse_changed_table(dataset, stored, types)
    except Misconfigured:
        if not (
            is_empty(connection, dataset) and is_archive_empty(connection, dataset)
        ):
            raise
        refuse_unfinished(transaction, dataset.name)
        return replacement_steps(dataset)
    # a view that changes with its table is not mentioned
    added = columns_to_add(dataset, stored) or view_steps(
        dataset, shown_columns(connection, dataset.live_view)
    )
    return [
        *added,
        *archive_steps(connection, dataset),
        *build_steps(table.missing_indexes(connection)),
    ]


def archive_steps(connection: sqlite3.Connection, dataset: Dataset) -> list[str]:
    """Describe what has to be created for the archive of a dataset."""
    if dataset.archive is None:
        return []
    archived = dataset.archived
    stored = stored_columns(connection, archived)
    if not stored:
        return [f"create table {archived.name}"]
    missing = SqliteTableSql(archived).missing_indexes(connection)
    return [*columns_to_add(archived, stored), *build_steps(missing)]


def is_archive_empty(connection: sqlite3.Connection, dataset: Dataset) -> bool:
    archived = dataset.archived
    return not stored_columns(connection, archived) or is_empty(connection, archived)


def build_steps(indexes: Sequence[str]) -> list[str]:
    return [f"build index {name}" for name in indexes]


def stored_columns(
    connection: sqlite3.Connection, dataset: Dataset
) -> dict[str, sqlite3.Row]:
    found = connection.execute(f"pragma table_info({quote(dataset.name)})")
    return {row["name"]: row for row in found}


def kind_of(connection: sqlite3.Connection, name: str) -> str | None:
    row = connection.execute(
        "select type from sqlite_master where lower(name) = ?", (name,)
    ).fetchone()
    return None if row is None else str(row["type"])


def run_script(connection: sqlite3.Connection, text: str) -> None:
    # executescript would commit the transaction of the migration
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


def refuse_changed_table(
    dataset: Dataset, stored: dict[str, sqlite3.Row], types: dict[str, str]
) -> None:
    by_position = sorted(stored.items(), key=lambda item: item[1]["pk"])
    key = [name for name, row in by_position if row["pk"]]
    refuse_changes(dataset, key=key, stored=stored, known=types)
