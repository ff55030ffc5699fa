"""Checks of a PostgreSQL server: version, privileges and free connections."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from psycopg.rows import DictRow
from typing_extensions import override

from penstock.adapters.postgres.connection_pool import Connection
from penstock.adapters.postgres.database import PostgresDatabase
from penstock.adapters.postgres.error_messages import USE_PRIMARY
from penstock.adapters.postgres.schema import refuse_unsupported
from penstock.adapters.sqlstore.database import Outcome
from penstock.adapters.sqlstore.key_encoding import quote
from penstock.domain.dataset import Dataset
from penstock.errors import StoreUnavailable
from penstock.ports import Diagnostic, ServerDiagnostics

# beside one for each thread: one for the supervisor, one for slow maintenance, and one
# for the listener
EXTRA_CONNECTIONS = 3

SERVER = """
select current_setting('server_version') as version,
    pg_is_in_recovery() as is_standby,
    current_setting('transaction_read_only')::boolean as is_read_only
"""

USER = """
select current_user::text as name,
    current_database()::text as database,
    has_database_privilege(current_database(), 'create') as may_create,
    has_database_privilege(current_database(), 'temporary') as may_stage,
    namespace.oid is not null as has_schema,
    coalesce(has_schema_privilege(namespace.oid, 'usage'), false)
        and coalesce(has_schema_privilege(namespace.oid, 'create'), false)
        as may_use_schema
from (select to_regnamespace(%s)::oid as oid) as namespace
"""

# a view is only read, and a sequence only incremented
RELATIONS = """
select relname::text as name,
    relname like 'penstock\\_%%' as is_ledger,
    pg_has_role(relowner, 'usage') as is_owned,
    case relkind
        when 'S' then has_sequence_privilege(pg_class.oid, 'usage')
        when 'v' then has_table_privilege(pg_class.oid, 'select')
        else has_table_privilege(pg_class.oid, 'select')
            and has_table_privilege(pg_class.oid, 'insert')
            and has_table_privilege(pg_class.oid, 'update')
            and has_table_privilege(pg_class.oid, 'delete')
    end as may_use
from pg_class
where relnamespace = to_regnamespace(%s)
    and (relkind in ('r', 'p', 'v') or relname = 'penstock_turn')
order by relname
"""

# the limits that apply to this user, each with the connections of others
LIMITS = """
select 'max_connections of the server' as name,
    current_setting('max_connections')::integer
        - current_setting('superuser_reserved_connections')::integer
        - coalesce(current_setting('reserved_connections', true), '0')::integer
        as max_connections,
    (select coalesce(sum(numbackends), 0) from pg_stat_database)::integer - 1 as used
union all
select 'the connection limit of database ' || datname, datconnlimit,
    (
        select numbackends from pg_stat_database
        where pg_stat_database.datid = pg_database.oid
    ) - 1
from pg_database
where datname = current_database() and datconnlimit >= 0
union all
select 'the connection limit of role ' || rolname, rolconnlimit,
    (select count(*) from pg_stat_activity where usesysid = pg_roles.oid)::integer - 1
from pg_roles
where rolname = current_user and rolconnlimit >= 0
"""


class PostgresDiagnostics(ServerDiagnostics):
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    @property
    @override
    def server(self) -> str:
        return "database"

    @override
    def about(
        self, datasets: Iterable[Dataset], *, threads: int
    ) -> Iterator[Diagnostic]:
        yield self._read(self._server)
        yield self._read(self._privileges)
        yield self._read(lambda connection: self._connections(connection, threads))

    @override
    def now(self) -> datetime:
        row = self._read(
            lambda connection: fetch_one(connection, "select clock_timestamp() as now")
        )
        now: datetime = row["now"]
        return now

    def _read(self, work: Callable[[Connection], Outcome]) -> Outcome:
        return self._database.read(lambda transaction: work(transaction.connection))

    def _diagnostic(self, what: str, failure: str | None, success: str) -> Diagnostic:
        if failure is None:
            return Diagnostic(what=what, is_ok=True, message=success)
        return Diagnostic(
            what=what, is_ok=False, message=f"{self._database.place}: {failure}"
        )

    def _server(self, connection: Connection) -> Diagnostic:
        refuse_unsupported(connection, self._database.place)
        found = fetch_one(connection, SERVER)
        failure = None
        if found["is_standby"]:
            failure = f"is a standby, which takes no writes; {USE_PRIMARY}"
        elif found["is_read_only"]:
            failure = (
                "takes no writes, since default_transaction_read_only is on; "
                f"switch it off, or {USE_PRIMARY}"
            )
        version = str(found["version"]).partition(" ")[0]
        place, schema = self._database.place, self._database.schema
        return self._diagnostic(
            "database", failure, f"PostgreSQL {version} at {place}, schema {schema}"
        )

    def _privileges(self, connection: Connection) -> Diagnostic:
        """Return which privileges this user lacks, and the statements to grant them."""
        schema = quote(self._database.schema)
        user = fetch_one(connection, USER, schema)
        role = quote(user["name"])
        missing: list[tuple[str, str]] = []
        if not user["has_schema"]:
            if not user["may_create"]:
                grant = f"create schema {schema} authorization {role}"
                missing.append((f"the right to create schema {schema}", grant))
        elif not user["may_use_schema"]:
            grant = f"grant usage, create on schema {schema} to {role}"
            missing.append((f"the right to use and create in schema {schema}", grant))
        if not user["may_stage"]:
            grant = f"grant temporary on database {quote(user['database'])} to {role}"
            missing.append(("the right to create temporary tables", grant))
        relations = connection.execute(RELATIONS, (schema,)).fetchall()
        denied = [row for row in relations if row["is_ledger"] and not row["may_use"]]
        if denied:
            names = ", ".join(row["name"] for row in denied)
            grant = (
                f"grant all on all tables in schema {schema} to {role}; "
                f"grant all on all sequences in schema {schema} to {role}"
            )
            missing.append((f"the right to read and write {names}", grant))
        # only the owner of a table can create its indexes and partitions
        for row in relations:
            if not row["is_ledger"] and not row["is_owned"]:
                grant = f"alter table {schema}.{quote(row['name'])} owner to {role}"
                missing.append((f"the ownership of table {row['name']}", grant))
        failure = None
        if missing:
            failure = (
                f"user {user['name']} lacks {', '.join(what for what, _ in missing)}; "
                f"let an administrator run: {'; '.join(grant for _, grant in missing)}"
            )
        verb = "use" if user["has_schema"] else "create"
        success = f"user {user['name']} may {verb} schema {self._database.schema}"
        return self._diagnostic("rights", failure, success)

    def _connections(self, connection: Connection, threads: int) -> Diagnostic:
        limits = connection.execute(LIMITS).fetchall()
        tightest = min(
            limits, key=lambda row: int(row["max_connections"]) - int(row["used"])
        )
        allowed = int(tightest["max_connections"])
        free = max(allowed - int(tightest["used"]), 0)
        needed = threads + EXTRA_CONNECTIONS
        summary = (
            f"a worker with {threads} threads opens up to {needed} connections, "
            f"and {free} of {allowed} are free"
        )
        remedy = f"run fewer workers or threads, or raise {tightest['name']}"
        return self._diagnostic(
            "connections", f"{summary}; {remedy}" if free < needed else None, summary
        )


def fetch_one(connection: Connection, statement: str, *parameters: object) -> DictRow:
    row = connection.execute(statement.encode(), parameters or None).fetchone()
    if row is None:
        raise StoreUnavailable("the server returned no row about itself")
    return row
