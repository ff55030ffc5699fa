"""Create and update the tables of the ledger and of every dataset."""

import re
import sqlite3
from collections.abc import Sequence
from importlib import resources

from typing_extensions import override

from penstock.adapters.sqlite.database import Database
from penstock.adapters.sqlite.tables import COLUMN_TYPES, Table, quoted
from penstock.domain.dataset import Dataset
from penstock.errors import Misconfigured
from penstock.ports import Schema

NUMBERED = re.compile(r"^(\d{4})_\w+\.sql$")


class SqliteSchema(Schema):
    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    def migrate(self) -> Sequence[str]:
        files = migrations()
        applied = []
        with self._database.write() as transaction:
            connection = transaction.connection
            known = connection.execute("pragma user_version").fetchone()[0]
            if known > len(files):
                raise Misconfigured(
                    f"{self._database.path} has schema version {known}, this penstock "
                    f"knows {len(files)}; use a newer one"
                )
            for number, name, text in files[known:]:
                run_script(connection, text)
                # pragmas take no parameters; the number is our own
                connection.execute(f"pragma user_version = {number:d}")
                applied.append(name)
        return applied

    @override
    def prepare(self, dataset: Dataset) -> None:
        table = Table(dataset)
        with self._database.write() as transaction:
            connection = transaction.connection
            transaction.execute("add_dataset", dataset=dataset.name)
            stored = {
                row["name"]: row
                for row in connection.execute(
                    f"pragma table_info({quoted(dataset.name)})"
                )
            }
            if stored:
                add_columns(connection, dataset, stored)
            else:
                connection.execute(table.create)
            for index in table.indexes:
                connection.execute(index)


def migrations() -> list[tuple[int, str, str]]:
    folder = resources.files("penstock.adapters.sqlite") / "migrations"
    found = []
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        numbered = NUMBERED.match(file.name)
        if numbered:
            found.append((int(numbered[1]), file.name, file.read_text("utf-8")))
    return found


def run_script(connection: sqlite3.Connection, text: str) -> None:
    # executescript would commit the transaction that keeps a migration whole
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


def add_columns(
    connection: sqlite3.Connection, dataset: Dataset, stored: dict[str, sqlite3.Row]
) -> None:
    """Add new fields; refuse what would change the meaning of stored rows."""
    key = [
        name
        for name, row in sorted(stored.items(), key=lambda item: item[1]["pk"])
        if row["pk"]
    ]
    if key != list(dataset.key):
        raise Misconfigured(
            f"datasets.{dataset.name}.key: the stored table has the key "
            f"{', '.join(key)}; rename the dataset, or drop the table and import again"
        )
    for field in dataset.fields:
        known = stored.get(field.name)
        wanted = COLUMN_TYPES[field.type]
        if known is None:
            connection.execute(
                f"alter table {quoted(dataset.name)} "
                f"add column {quoted(field.name)} {wanted}"
            )
        elif known["type"].casefold() != wanted:
            raise Misconfigured(
                f"datasets.{dataset.name}.fields.{field.name}: the stored column has "
                f"type {known['type'].casefold()}, the declaration needs {wanted}; "
                "rename the field, or drop the table and import again"
            )
