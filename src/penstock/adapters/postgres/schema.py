"""Create and update the tables of the ledger and of every dataset, online."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from psycopg import errors as postgres
from psycopg import sql
from psycopg.rows import DictRow
from typing_extensions import override

from penstock.adapters.postgres.connections import Connection
from penstock.adapters.postgres.database import Database, Transaction
from penstock.adapters.postgres.locks import lock_number
from penstock.adapters.postgres.tables import RANK, VIEW_MARK, column, live_view
from penstock.adapters.postgres.tending import Tending
from penstock.adapters.sql.datasets import SqlDatasets, replace_history
from penstock.adapters.sql.keys import quoted
from penstock.adapters.sql.schema import (
    REMEDY,
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
from penstock.domain.dataset import LIVE, Dataset
from penstock.errors import Misconfigured, StoreUnavailable
from penstock.ports import Schema

OLDEST_SERVER = 15
MIGRATIONS = migrations("penstock.adapters.postgres")


class PostgresSchema(Schema):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._tending = Tending(database)

    @property
    @override
    def is_shared(self) -> bool:
        return True

    @property
    @override
    def datasets(self) -> SqlDatasets:
        # few commands need it
        from penstock.adapters.postgres.retyping import PostgresTableChanges

        return SqlDatasets(self._database, PostgresTableChanges())

    @override
    def is_there(self) -> bool:
        return bool(self._database.read(self._version))

    @override
    def tend(self, dataset: Dataset) -> Sequence[str]:
        return self._tending(dataset)

    @override
    def lacks_indexes(self, dataset: Dataset) -> bool:
        return bool(self.untended(dataset))

    @override
    def untended(self, dataset: Dataset) -> Sequence[str]:
        is_there = self._database.read(
            lambda look: stored_columns(look.connection, dataset)
        )
        return self._tending.due(dataset) if is_there else []

    @override
    def pending(self) -> Sequence[str]:
        missing = missing_migrations(
            MIGRATIONS,
            known=self._database.read(self._version),
            schema=f"{self._database.place}: schema {self._database.schema}",
        )
        return [each.name for each in missing]

    @override
    def migrate(self) -> Sequence[str]:
        # look before taking the lock for which others may wait
        return self._database.write(self._migrate, slow=True) if self.pending() else []

    def _migrate(self, transaction: Transaction) -> Sequence[str]:
        connection = transaction.connection
        hold(connection, f"migrate:{self._database.schema}")
        known = self._version(transaction)
        if not known:
            create_schema(connection, self._database.schema)
        applied = []
        for number, name, text in MIGRATIONS[known:]:
            connection.execute(text.encode())
            connection.execute(
                "insert into penstock_migration (number, name) values (%s, %s)",
                (number, name),
            )
            applied.append(name)
        return applied

    def _version(self, transaction: Transaction) -> int:
        connection = transaction.connection
        refuse_old(connection, self._database.place)
        if not exists(connection, self._database.schema, "penstock_migration"):
            return 0
        # by its whole name: a schema that we may not use would be passed over
        row = connection.execute(
            sql.SQL("select coalesce(max(number), 0) as known from {}").format(
                sql.Identifier(self._database.schema, "penstock_migration")
            )
        ).fetchone()
        return 0 if row is None else int(row["known"])

    @override
    def prepare(self, dataset: Dataset) -> Sequence[str]:
        if not self.unprepared(dataset):
            return []
        return self._database.write(
            lambda each: self._prepare(each, dataset), slow=True
        )

    @override
    def unprepared(self, dataset: Dataset) -> Sequence[str]:
        return self._database.read(lambda look: steps(look, dataset))

    def _prepare(self, transaction: Transaction, dataset: Dataset) -> Sequence[str]:
        connection = transaction.connection
        hold(connection, f"prepare:{self._database.schema}:{dataset.name}")
        transaction.execute("add_dataset", dataset=dataset.name)
        done = steps(transaction, dataset)
        stored = stored_columns(connection, dataset)
        known = declared_types(transaction, dataset)
        table = transaction.table(dataset).of
        if done == replaces_empty(dataset):
            drop_empty(transaction, dataset)
            stored, known = set(), {}
        if stored:
            # whoever waits for a table makes all others wait behind: only a moment
            connection.execute("set local lock_timeout = '1s'")
            for field in missing_fields(dataset, stored):
                connection.execute(
                    f"alter table {table.name} "
                    f"add column {column(field, dataset)}".encode()
                )
            if lacks_rank(dataset, stored):
                connection.execute(
                    f"alter table {table.name} add column {RANK}".encode()
                )
        else:
            connection.execute(table.create.encode())
        declared = {field.name: field.type for field in dataset.fields}
        transaction.execute(
            "set_fields", dataset=dataset.name, fields=json.dumps(known | declared)
        )
        update_view(connection, dataset)
        return done


def steps(transaction: Transaction, dataset: Dataset) -> list[str]:
    """Say what has to be created for a dataset."""
    if relation(transaction.connection, dataset.name)["kind"] == "v":
        raise refuse_view(dataset)
    stored = stored_columns(transaction.connection, dataset)
    known = declared_types(transaction, dataset)
    if not stored or not known:
        return [f"create table {dataset.name}"]
    try:
        refuse(transaction.connection, dataset, stored, known)
    except Misconfigured:
        if not transaction.table(dataset).is_empty():
            raise
        refuse_unfinished(transaction, dataset.name)
        return replaces_empty(dataset)
    # a view follows its table without a word
    return columns_to_add(dataset, stored) or view_steps(
        dataset, shown_columns(transaction.connection, dataset.live_view)
    )


def drop_empty(transaction: Transaction, dataset: Dataset) -> None:
    """Drop a table that has no rows, and gets none meanwhile."""
    name = dataset.name
    transaction.connection.execute("set local lock_timeout = '1s'")
    lock_table(transaction, name, mode="access exclusive")
    if not transaction.table(dataset).is_empty():
        raise StoreUnavailable(f"dataset {name} gets its first rows just now")
    # no import begins from here on
    transaction.one("hold_dataset", dataset=name)
    refuse_unfinished(transaction, name)
    drop_table(transaction.connection, name)
    replace_history(transaction, name)
    transaction.execute("forget_rejection_keys", dataset=name)


def lock_table(transaction: Transaction, name: str, *, mode: str) -> None:
    """Hold a table in the order of those who end imports or commit pages.

    That is: an import, then the table, and the dataset's row last.
    """
    transaction.all("hold_failed_imports", dataset=name)
    if has_table(transaction.connection, name):
        lock = f"lock table {quoted(name)} in {mode} mode"
        transaction.connection.execute(lock.encode())


def has_table(connection: Connection, name: str) -> bool:
    return relation(connection, name)["kind"] in {"r", "p"}


def drop_table(connection: Connection, name: str) -> None:
    """Drop the table of a dataset, and its view."""
    drop_view(connection, name)
    with naming_views(name):
        connection.execute(f"drop table {quoted(name)}".encode())


def drop_view(connection: Connection, name: str) -> list[str]:
    """Drop the live view, if it is ours; return its columns."""
    view = f"{name}{LIVE}"
    shown = shown_columns(connection, view) or []
    if shown:
        with naming_views(name):
            connection.execute(f"drop view {quoted(view)}".encode())
    return shown


@contextmanager
def naming_views(name: str) -> Iterator[None]:
    """Say what an operator has to do where views of others stand in the way."""
    try:
        yield
    except (
        postgres.DependentObjectsStillExist,
        postgres.FeatureNotSupported,
    ) as error:
        message = (error.diag.message_detail or str(error)).partition("\n")[0]
        raise Misconfigured(
            f"dataset {name}: {message}; drop that view first, and make it again"
        ) from error


def update_view(connection: Connection, dataset: Dataset) -> None:
    """Let the live view show all declared fields, unless its name is not ours."""
    shown = shown_columns(connection, dataset.live_view)
    if view_steps(dataset, shown):
        for statement in live_view(dataset, view_columns(dataset, shown or ())):
            connection.execute(statement.encode())


def shown_columns(connection: Connection, view: str) -> list[str] | None:
    """Return what a live view shows; None if something else has its name."""
    found = relation(connection, view)
    if found["kind"] is None:
        return []
    return found["columns"] if found["comment"] == VIEW_MARK else None


def relation(connection: Connection, name: str) -> DictRow:
    """Return what a name means in our schema."""
    row = connection.execute(
        "select named.oid, relkind::text as kind, "
        "obj_description(named.oid, 'pg_class') as comment, "
        "array(select attname::text from pg_attribute where attrelid = named.oid "
        "and attnum > 0 and not attisdropped order by attnum) as columns "
        "from (select to_regclass(quote_ident(current_schema()) || '.' "
        "|| quote_ident(%s)) as oid) as named "
        "left join pg_class on pg_class.oid = named.oid",
        (name,),
    ).fetchone()
    if row is None:
        raise LookupError("one row is always returned")
    return row


def refuse_old(connection: Connection, place: str) -> None:
    server = connection.info.server_version // 10_000
    if server < OLDEST_SERVER:
        raise Misconfigured(
            f"{place}: is PostgreSQL {server}; Penstock needs {OLDEST_SERVER} or newer"
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise Misconfigured(
            f"{place}: the database has the encoding {encoding}, which does not hold "
            "the words of every script; create one with: "
            "createdb --template template0 --encoding UTF8"
        )


def hold(connection: Connection, what: str) -> None:
    """Let one process at a time change the tables; the others wait for it."""
    connection.execute("set local lock_timeout = '60s'")
    connection.execute("select pg_advisory_xact_lock(%s)", (lock_number(what),))


def create_schema(connection: Connection, schema: str) -> None:
    found = connection.execute("select to_regnamespace(%s) as found", (quoted(schema),))
    row = found.fetchone()
    # asked first: whoever may not create schemas may still use one that exists
    if row is None or row["found"] is None:
        connection.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
    connection.execute(
        "create table if not exists penstock_migration (number integer primary key, "
        "name text not null, applied_at timestamptz not null default now())"
    )


def exists(connection: Connection, schema: str, table: str) -> bool:
    row = connection.execute(
        "select 1 as found from pg_catalog.pg_class "
        "join pg_catalog.pg_namespace on pg_namespace.oid = relnamespace "
        "where nspname = %s and relname = %s",
        (schema, table),
    ).fetchone()
    return row is not None


def stored_columns(connection: Connection, dataset: Dataset) -> set[str]:
    found = connection.execute(
        "select column_name from information_schema.columns "
        "where table_schema = current_schema() and table_name = %s",
        (dataset.name,),
    )
    return {row["column_name"] for row in found.fetchall()}


def stored_key(connection: Connection, dataset: Dataset) -> list[str]:
    found = connection.execute(
        "select attname from pg_index "
        "cross join lateral unnest(indkey) with ordinality as part (number, place) "
        "join pg_attribute on attrelid = indrelid and attnum = part.number "
        "where indisprimary and indrelid = to_regclass(quote_ident(current_schema()) "
        "|| '.' || quote_ident(%s)) order by part.place",
        (dataset.name,),
    )
    return [row["attname"] for row in found.fetchall()]


def stored_partition(connection: Connection, dataset: Dataset) -> str | None:
    row = connection.execute(
        "select attname from pg_partitioned_table join pg_attribute "
        "on attrelid = partrelid and attnum = partattrs[0] "
        "where partrelid = to_regclass(quote_ident(current_schema()) "
        "|| '.' || quote_ident(%s))",
        (dataset.name,),
    ).fetchone()
    return None if row is None else str(row["attname"])


def refuse(
    connection: Connection,
    dataset: Dataset,
    stored: set[str],
    known: dict[str, str],
) -> None:
    partition = stored_partition(connection, dataset)
    if partition != dataset.partition:
        raise Misconfigured(
            f"datasets.{dataset.name}.partition: the stored table is partitioned by "
            f"{partition or 'nothing'}; rename the dataset, {REMEDY}"
        )
    key = [
        name
        for name in stored_key(connection, dataset)
        if name != partition or partition in dataset.key
    ]
    refuse_changes(dataset, key=key, stored=stored, known=known)
