"""Create and update the tables of the ledger and of every dataset, online."""

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from psycopg import errors as postgres
from psycopg import sql
from psycopg.rows import DictRow
from typing_extensions import override

from penstock.adapters.postgres.connection_pool import Connection
from penstock.adapters.postgres.database import PostgresDatabase, PostgresTransaction
from penstock.adapters.postgres.identifiers import lock_number
from penstock.adapters.postgres.index_maintenance import IndexMaintenance
from penstock.adapters.postgres.table_sql import (
    EDITED_COLUMN,
    RANK_COLUMN,
    VIEW_COMMENT,
    PostgresTableSql,
    column,
    live_view,
)
from penstock.adapters.sqlstore.datasets import SqlDatasets, replace_history
from penstock.adapters.sqlstore.key_encoding import quote
from penstock.adapters.sqlstore.schema import (
    REMEDY,
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
from penstock.errors import Misconfigured, StoreUnavailable
from penstock.ports import Schema

MIN_SERVER_VERSION = 15
MIGRATIONS = load_migrations("penstock.adapters.postgres")


class PostgresSchema(Schema):
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._indexes = IndexMaintenance(database)

    @property
    @override
    def is_shared(self) -> bool:
        return True

    @property
    @override
    def is_read_only(self) -> bool:
        return False

    @property
    @override
    def datasets(self) -> SqlDatasets:
        # loaded late: few commands need it
        from penstock.adapters.postgres.retyping import PostgresTableChanges

        return SqlDatasets(self._database, PostgresTableChanges())

    @override
    def exists(self) -> bool:
        return bool(self._database.read(self._version))

    @override
    def maintain(self, dataset: Dataset) -> Sequence[str]:
        return [
            step
            for table in with_archive(dataset)
            for step in self._indexes.maintain(table)
        ]

    @override
    def lacks_indexes(self, dataset: Dataset) -> bool:
        return bool(self.pending_maintenance(dataset))

    @override
    def pending_maintenance(self, dataset: Dataset) -> Sequence[str]:
        columns = self._database.read(
            lambda transaction: stored_columns(transaction.connection, dataset)
        )
        if not columns:
            return []
        return [
            step for table in with_archive(dataset) for step in self._indexes.due(table)
        ]

    @override
    def pending(self) -> Sequence[str]:
        missing = missing_migrations(
            MIGRATIONS,
            known=self._database.read(self._version),
            schema=f"{self._database.place}: schema {self._database.schema}",
        )
        return [migration.name for migration in missing]

    @override
    def migrate(self) -> Sequence[str]:
        # checked first, so that the lock is only taken when needed
        return self._database.write(self._migrate, slow=True) if self.pending() else []

    def _migrate(self, transaction: PostgresTransaction) -> Sequence[str]:
        connection = transaction.connection
        lock(connection, f"migrate:{self._database.schema}")
        version = self._version(transaction)
        if not version:
            create_schema(connection, self._database.schema)
        applied = []
        for number, name, text in later_migrations(MIGRATIONS, version):
            connection.execute(text.encode())
            connection.execute(
                "insert into penstock_migration (number, name) values (%s, %s)",
                (number, name),
            )
            applied.append(name)
        return applied

    def _version(self, transaction: PostgresTransaction) -> int:
        connection = transaction.connection
        refuse_unsupported(connection, self._database.place)
        if not exists(connection, self._database.schema, "penstock_migration"):
            return 0
        # by its qualified name: the search path skips a schema without usage rights
        row = connection.execute(
            sql.SQL("select coalesce(max(number), 0) as version from {}").format(
                sql.Identifier(self._database.schema, "penstock_migration")
            )
        ).fetchone()
        return 0 if row is None else int(row["version"])

    @override
    def ensure_table(self, dataset: Dataset) -> Sequence[str]:
        if not self.pending_table_changes(dataset):
            return []
        return self._database.write(
            lambda transaction: self._prepare(transaction, dataset), slow=True
        )

    @override
    def pending_table_changes(self, dataset: Dataset) -> Sequence[str]:
        return self._database.read(
            lambda transaction: pending_steps(transaction, dataset)
        )

    def _prepare(
        self, transaction: PostgresTransaction, dataset: Dataset
    ) -> Sequence[str]:
        connection = transaction.connection
        lock(connection, f"prepare:{self._database.schema}:{dataset.name}")
        transaction.execute("add_dataset", dataset=dataset.name)
        steps = pending_steps(transaction, dataset)
        stored = stored_columns(connection, dataset)
        types = declared_types(transaction, dataset)
        table = transaction.table(dataset).of
        if steps == replacement_steps(dataset):
            drop_empty(transaction, dataset)
            stored, types = set(), {}
        create_or_extend(connection, table, stored)
        if dataset.archive is not None:
            archive = transaction.table(dataset.archived).of
            create_or_extend(
                connection, archive, stored_columns(connection, dataset.archived)
            )
        declared = {field.name: field.type for field in dataset.fields}
        transaction.execute(
            "set_fields", dataset=dataset.name, fields=json.dumps(types | declared)
        )
        update_view(connection, dataset)
        return steps


def with_archive(dataset: Dataset) -> Sequence[Dataset]:
    return [dataset] if dataset.archive is None else [dataset, dataset.archived]


def pending_steps(transaction: PostgresTransaction, dataset: Dataset) -> list[str]:
    """Return what has to be created for a dataset."""
    if relation(transaction.connection, dataset.name)["kind"] == "v":
        raise refuse_view(dataset)
    stored = stored_columns(transaction.connection, dataset)
    types = declared_types(transaction, dataset)
    if not stored or not types:
        return [f"create table {dataset.name}"]
    try:
        refuse(transaction.connection, dataset, stored, types)
    except Misconfigured:
        if not is_empty(transaction, dataset):
            raise
        refuse_unfinished(transaction, dataset.name)
        return replacement_steps(dataset)
    # adding columns updates the view as well, so its steps are not listed then
    added = columns_to_add(dataset, stored) or view_steps(
        dataset, view_columns_of(transaction.connection, dataset.live_view)
    )
    return [*added, *archive_steps(transaction.connection, dataset)]


def create_or_extend(
    connection: Connection, table: PostgresTableSql, stored: Collection[str]
) -> None:
    """Create a table, or add the columns that it lacks."""
    dataset = table.dataset
    if not stored:
        connection.execute(table.create.encode())
        return
    added = [column(field, dataset) for field in missing_fields(dataset, stored)]
    if lacks_rank(dataset, stored):
        added.append(RANK_COLUMN)
    if lacks_edited(dataset, stored):
        added.append(EDITED_COLUMN)
    # short, since all others queue behind a transaction that waits for a table
    connection.execute("set local lock_timeout = '1s'")
    for definition in added:
        statement = f"alter table {table.name} add column {definition}"
        connection.execute(statement.encode())


def archive_steps(connection: Connection, dataset: Dataset) -> list[str]:
    """Describe what has to be created for the archive of a dataset."""
    if dataset.archive is None:
        return []
    stored = stored_columns(connection, dataset.archived)
    if not stored:
        return [f"create table {dataset.archived.name}"]
    return columns_to_add(dataset.archived, stored)


def is_empty(transaction: PostgresTransaction, dataset: Dataset) -> bool:
    """Return whether neither the dataset nor its archive has rows."""
    if not transaction.table(dataset).is_empty():
        return False
    archived = dataset.archived
    return (
        not has_table(transaction.connection, archived.name)
        or transaction.table(archived).is_empty()
    )


def drop_empty(transaction: PostgresTransaction, dataset: Dataset) -> None:
    """Drop a table that has no rows, locked so that it gets none meanwhile."""
    name = dataset.name
    transaction.connection.execute("set local lock_timeout = '1s'")
    lock_table(transaction, name, mode="access exclusive")
    if not is_empty(transaction, dataset):
        raise StoreUnavailable(f"dataset {name} is getting its first rows right now")
    # no import can start from here on
    transaction.one("hold_dataset", dataset=name)
    refuse_unfinished(transaction, name)
    drop_table(transaction.connection, name)
    replace_history(transaction, name)
    transaction.execute("forget_rejection_keys", dataset=name)


def lock_table(transaction: PostgresTransaction, name: str, *, mode: str) -> None:
    """Lock a table in the same order as ending an import or committing a page.

    That is: an import, then the table, and the dataset's row last.
    """
    transaction.all("hold_failed_imports", dataset=name)
    if has_table(transaction.connection, name):
        statement = f"lock table {quote(name)} in {mode} mode"
        transaction.connection.execute(statement.encode())


def has_table(connection: Connection, name: str) -> bool:
    return relation(connection, name)["kind"] in {"r", "p"}


def drop_table(connection: Connection, name: str) -> None:
    """Drop the table of a dataset, its archive, and its view."""
    drop_view(connection, name)
    with naming_views(name):
        connection.execute(f"drop table {quote(name)}".encode())
        archive = quote(name + ARCHIVE_SUFFIX)
        connection.execute(f"drop table if exists {archive}".encode())


def drop_view(connection: Connection, name: str) -> list[str]:
    """Drop the live view, if it is ours; return its columns."""
    view = f"{name}{LIVE_VIEW_SUFFIX}"
    columns = view_columns_of(connection, view) or []
    if columns:
        with naming_views(name):
            connection.execute(f"drop view {quote(view)}".encode())
    return columns


@contextmanager
def naming_views(name: str) -> Iterator[None]:
    """Raise what an operator has to do where other views depend on the table."""
    try:
        yield
    except (
        postgres.DependentObjectsStillExist,
        postgres.FeatureNotSupported,
    ) as error:
        message = (error.diag.message_detail or str(error)).partition("\n")[0]
        raise Misconfigured(
            f"dataset {name}: {message}; drop that view first, and create it "
            "again afterwards"
        ) from error


def update_view(connection: Connection, dataset: Dataset) -> None:
    """Add new fields to the live view, unless something else has its name."""
    columns = view_columns_of(connection, dataset.live_view)
    if view_steps(dataset, columns):
        for statement in live_view(dataset, view_columns(dataset, columns or ())):
            connection.execute(statement.encode())


def view_columns_of(connection: Connection, view: str) -> list[str] | None:
    """Return the columns of a live view; None if something else has its name."""
    found = relation(connection, view)
    if found["kind"] is None:
        return []
    return found["columns"] if found["comment"] == VIEW_COMMENT else None


def relation(connection: Connection, name: str) -> DictRow:
    """Return the table, view or index of this name in our schema."""
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
        raise LookupError("no row was returned")
    return row


def refuse_unsupported(connection: Connection, place: str) -> None:
    server = connection.info.server_version // 10_000
    if server < MIN_SERVER_VERSION:
        raise Misconfigured(
            f"{place}: is PostgreSQL {server}; "
            f"Penstock needs {MIN_SERVER_VERSION} or newer"
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise Misconfigured(
            f"{place}: the database has the encoding {encoding}, which does not hold "
            "the words of every script; create one with: "
            "createdb --template template0 --encoding UTF8"
        )


def lock(connection: Connection, what: str) -> None:
    """Let one process at a time change the tables; the others wait."""
    connection.execute("set local lock_timeout = '60s'")
    connection.execute("select pg_advisory_xact_lock(%s)", (lock_number(what),))


def create_schema(connection: Connection, schema: str) -> None:
    found = connection.execute("select to_regnamespace(%s) as found", (quote(schema),))
    row = found.fetchone()
    # checked first: a user without the right to create one may use an existing schema
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
        "cross join lateral unnest(indkey) with ordinality as part (number, position) "
        "join pg_attribute on attrelid = indrelid and attnum = part.number "
        "where indisprimary and indrelid = to_regclass(quote_ident(current_schema()) "
        "|| '.' || quote_ident(%s)) order by part.position",
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
    types: dict[str, str],
) -> None:
    """Raise `Misconfigured` if the declaration contradicts the stored table."""
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
    refuse_changes(dataset, key=key, stored=stored, known=types)
