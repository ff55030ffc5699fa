"""What an operator should know of a PostgreSQL server before workers rely on it."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from psycopg.rows import DictRow
from typing_extensions import override

from penstock.adapters.postgres.connections import Connection
from penstock.adapters.postgres.database import Database
from penstock.adapters.postgres.refusals import PRIMARY
from penstock.adapters.postgres.schema import refuse_old
from penstock.adapters.sql.database import Outcome
from penstock.adapters.sql.keys import quoted
from penstock.domain.dataset import Dataset
from penstock.errors import StoreUnavailable
from penstock.ports import Fact, Facts

# beside one for each thread: one for whoever watches them, and the bell's
BESIDE_THREADS = 2

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

# a view is only read, and of a sequence the next number is taken
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

# the limits that hold for this user here, each with what others use of it
LIMITS = """
select 'max_connections of the server' as name,
    current_setting('max_connections')::integer
        - current_setting('superuser_reserved_connections')::integer
        - coalesce(current_setting('reserved_connections', true), '0')::integer
        as most,
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


class PostgresFacts(Facts):
    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    @override
    def server(self) -> str:
        return "database"

    @override
    def about(self, datasets: Iterable[Dataset], *, threads: int) -> Iterator[Fact]:
        yield self._look(self._reached)
        yield self._look(self._rights)
        yield self._look(lambda look: self._connections(look, threads))

    @override
    def now(self) -> datetime:
        found = self._look(lambda look: one(look, "select clock_timestamp() as now"))
        now: datetime = found["now"]
        return now

    def _look(self, work: Callable[[Connection], Outcome]) -> Outcome:
        return self._database.read(lambda transaction: work(transaction.connection))

    def _fact(self, what: str, lacks: str | None, well: str) -> Fact:
        if lacks is None:
            return Fact(what=what, is_well=True, told=well)
        return Fact(what=what, is_well=False, told=f"{self._database.place}: {lacks}")

    def _reached(self, connection: Connection) -> Fact:
        refuse_old(connection, self._database.place)
        found = one(connection, SERVER)
        lacks = None
        if found["is_standby"]:
            lacks = f"is a standby, which takes no writes; {PRIMARY}"
        elif found["is_read_only"]:
            lacks = (
                "takes no writes, since default_transaction_read_only is on; "
                f"switch it off, or {PRIMARY}"
            )
        version = str(found["version"]).partition(" ")[0]
        place, schema = self._database.place, self._database.schema
        return self._fact(
            "database", lacks, f"PostgreSQL {version} at {place}, schema {schema}"
        )

    def _rights(self, connection: Connection) -> Fact:
        """Say what this user lacks, and the statements that would grant it."""
        schema = quoted(self._database.schema)
        user = one(connection, USER, schema)
        who = quoted(user["name"])
        missing: list[tuple[str, str]] = []
        if not user["has_schema"]:
            if not user["may_create"]:
                cure = f"create schema {schema} authorization {who}"
                missing.append((f"the right to create schema {schema}", cure))
        elif not user["may_use_schema"]:
            cure = f"grant usage, create on schema {schema} to {who}"
            missing.append((f"the right to use and create in schema {schema}", cure))
        if not user["may_stage"]:
            cure = f"grant temporary on database {quoted(user['database'])} to {who}"
            missing.append(("the right to make temporary tables", cure))
        relations = connection.execute(RELATIONS, (schema,)).fetchall()
        closed = [row for row in relations if row["is_ledger"] and not row["may_use"]]
        if closed:
            named = ", ".join(row["name"] for row in closed)
            cure = (
                f"grant all on all tables in schema {schema} to {who}; "
                f"grant all on all sequences in schema {schema} to {who}"
            )
            missing.append((f"the right to read and write {named}", cure))
        # indexes and partitions are the owner's to make
        for row in relations:
            if not row["is_ledger"] and not row["is_owned"]:
                cure = f"alter table {schema}.{quoted(row['name'])} owner to {who}"
                missing.append((f"the ownership of table {row['name']}", cure))
        lacks = None
        if missing:
            lacks = (
                f"user {user['name']} lacks {', '.join(what for what, _ in missing)}; "
                f"let an administrator run: {'; '.join(cure for _, cure in missing)}"
            )
        verb = "use" if user["has_schema"] else "create"
        well = f"user {user['name']} may {verb} schema {self._database.schema}"
        return self._fact("rights", lacks, well)

    def _connections(self, connection: Connection, threads: int) -> Fact:
        limits = connection.execute(LIMITS).fetchall()
        tightest = min(limits, key=lambda row: int(row["most"]) - int(row["used"]))
        most = int(tightest["most"])
        free = max(most - int(tightest["used"]), 0)
        needed = threads + BESIDE_THREADS
        told = (
            f"a worker with {threads} threads opens up to {needed} connections, "
            f"and {free} of {most} are free"
        )
        remedy = f"run fewer workers or threads, or raise {tightest['name']}"
        return self._fact(
            "connections", f"{told}; {remedy}" if free < needed else None, told
        )


def one(connection: Connection, statement: str, *given: object) -> DictRow:
    found = connection.execute(statement.encode(), given or None).fetchone()
    if found is None:
        raise StoreUnavailable("the server did not answer a question about itself")
    return found
