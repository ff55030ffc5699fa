"""A dataset's table as clients read and change it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import errors as postgres
from psycopg.rows import tuple_row
from typing_extensions import override

from penstock.adapters.postgres.arrays import ARRAYS, key_arrays, page_arrays
from penstock.adapters.postgres.conflicts import stored_by_others
from penstock.adapters.postgres.connections import Connection
from penstock.adapters.postgres.partitions import ensure_partitions, hold_merges
from penstock.adapters.postgres.tables import Table, readable
from penstock.adapters.sql import served as sql
from penstock.adapters.sql.keys import quoted
from penstock.adapters.sql.selects import Dialect, Where, run_of
from penstock.adapters.sql.served import (
    Held,
    Room,
    ShownRow,
    TookTooLong,
    by_local_fields,
    key_of,
    local_fields,
    local_values,
    version_of,
)
from penstock.domain.dataset import Field, FieldType
from penstock.domain.page import Key, Record
from penstock.domain.queries.query import Part, Query
from penstock.domain.sheet import Sheet
from penstock.domain.times import EPOCH, MICROSECOND
from penstock.ports.serving import Count, CountKind, Found, Write

# fields whose values may be long, and bytes that any other has in JSON at most
LONG_TYPES = (FieldType.TEXT, FieldType.JSON)
SHORT_VALUE = 32
# how long an exact count may take before an estimate is told instead
LONGEST_COUNT = "500ms"


class PostgresDialect(Dialect):
    @override
    def parameter(self, name: str) -> str:
        return f"%({name})s"

    @override
    def value(self, value: object) -> object:
        return value

    @override
    def among(self, column: str, parameter: str) -> str:
        return f"{column} = any({parameter})"

    @override
    def choices(self, values: Sequence[object]) -> object:
        return list(values)

    @override
    def differs(self, column: str, parameter: str) -> str:
        return f"{column} is distinct from {parameter}"


DIALECT = PostgresDialect()


@dataclass(frozen=True, slots=True)
class ServedTable(sql.ServedTable):
    of: Table
    connection: Connection

    @override
    def rows(
        self, query: Query, part: Part, *, limit: int, room: Room
    ) -> Sequence[ShownRow]:
        run = run_of(query, part, DIALECT)
        columns = dict.fromkeys([*(quoted(f.name) for f in query.fields), *run.placed])
        # the sizes of rows are known before any of them is read whole
        found = self._tuples(
            f"select _all, {shown(query.fields)}, {', '.join(run.placed)} from ("
            "select *, row_number() over () as _number, count(*) over () as _all, "
            "sum(_size) over (rows unbounded preceding) as _bytes from ("
            f"select {', '.join(columns)}, {size_of(query.fields)} as _size "
            f"from {self.of.name} where {run.where} "
            f"order by {run.order} limit {limit:d}) as _page) as _sized "
            f"where _bytes <= {room.left:d} or _number = 1 order by _number",
            run.given,
        )
        rows = [ShownRow(row[1].encode(), row[2:]) for row in found]
        rows = [row for row in rows if room.take(len(row.body))]
        room.is_full |= bool(found) and len(rows) < found[0][0]
        return rows

    @override
    def one(self, key: Key, fields: Sequence[Field]) -> Found | None:
        where = Where(DIALECT)
        where.is_key(self.of.dataset, key)
        local = [readable(each) for each in local_fields(self.of.dataset)]
        columns = ", ".join([shown(fields), "_digest", "_updated_at", *local])
        found = self._tuples(
            f"select {columns} from {self.of.name} where {where}", where.given
        )
        for body, digest, updated_at, *values in found:
            version = version_of(digest, microseconds(updated_at), values)
            return Found(body.encode(), version)
        return None

    @override
    def count(self, query: Query) -> int:
        where = Where(DIALECT)
        where.add(*query.conditions)
        statement = f"select count(*) from {self.of.name} where {where}"
        return int(self._in_a_moment(statement, where.given))

    @override
    def estimate(self, query: Query) -> Count:
        where = Where(DIALECT)
        where.add(*query.conditions)
        statement = f"explain (format json) select from {self.of.name} where {where}"
        # even this waits for whoever holds the whole table
        plan = self._in_a_moment(statement, where.given)
        return Count(int(plan[0]["Plan"]["Plan Rows"]), CountKind.PLANNED)

    def _in_a_moment(self, statement: str, given: Mapping[str, Any]) -> Any:
        try:
            with self.connection.transaction():
                limit = f"set local statement_timeout = '{LONGEST_COUNT}'"
                self.connection.execute(limit.encode())
                return self._tuples(statement, given)[0][0]
        except postgres.QueryCanceled as error:
            raise TookTooLong from error

    @override
    def held(self, keys: Sequence[Key]) -> Mapping[Key, Held]:
        hold_merges(self.connection, self.of.dataset)
        return self._held(keys)

    def _held(self, keys: Sequence[Key]) -> Mapping[Key, Held]:
        if not keys:
            return {}
        names = ", ".join(readable(each, "kept.") for each in self.of.dataset.fields)
        found = self._tuples(self.of.held(names), key_arrays(self.of.dataset, keys))
        return {
            key_of(self.of.dataset, values): Held(
                tuple(values),
                version_of(
                    digest,
                    microseconds(updated_at),
                    local_values(self.of.dataset, values),
                ),
                is_deleted,
            )
            for digest, updated_at, is_deleted, *values in found
        }

    @override
    def store(self, writes: Sequence[Write], held: Mapping[Key, Held]) -> None:
        records = [each.record for each in writes]
        self._write(self.of.rewrite, [each for each in records if each.key in held])
        try:
            self._write(
                self.of.insert, [each for each in records if each.key not in held]
            )
        except postgres.UniqueViolation as error:
            # a page or another client has created one since we looked
            raise stored_by_others(error) from error
        for names, of_same in by_local_fields(writes).items():
            self._store_local(names, of_same)

    def _write(self, statement: str, records: Sequence[Record]) -> None:
        if not records:
            return
        # in the order of keys, as pages are: so they wait for each other in one way
        sheet = Sheet.of(records).by_key()
        ensure_partitions(self.connection, self.of.dataset, sheet)
        page = page_arrays(self.of.dataset, sheet)
        # no import has brought them
        self._execute(statement, {**page, "import_id": 0, "rank": 0})

    def _store_local(self, names: Sequence[str], writes: Sequence[Write]) -> None:
        fields = {field.name: field for field in self.of.dataset.fields}
        arrays = {
            f"local_{at}": ARRAYS[fields[name].type](
                [write.local[name] for write in writes]
            )
            for at, name in enumerate(names)
        }
        keys = key_arrays(self.of.dataset, [write.record.key for write in writes])
        statement = self.of.set_local([fields[name] for name in names])
        self._execute(statement, {**arrays, **keys})

    @override
    def remove(self, keys: Sequence[Key]) -> None:
        if keys:
            self._execute(self.of.remove, key_arrays(self.of.dataset, keys))

    @override
    def versions(self, keys: Sequence[Key]) -> Mapping[Key, str]:
        return {key: row.version for key, row in self._held(keys).items()}

    def _tuples(
        self, statement: str, given: Mapping[str, Any]
    ) -> Sequence[tuple[Any, ...]]:
        with self.connection.cursor(row_factory=tuple_row) as cursor:
            return cursor.execute(statement.encode(), given).fetchall()

    def _execute(self, statement: str, given: Mapping[str, Any]) -> None:
        self.connection.execute(statement.encode(), given)


def size_of(fields: Sequence[Field]) -> str:
    """Compose about how long a row is as JSON; of a text, without reading it."""
    sizes = [
        f"coalesce(octet_length({quoted(field.name)}::text), 0)"
        for field in fields
        if field.type in LONG_TYPES
    ]
    names = sum(len(field.name.encode()) + SHORT_VALUE for field in fields)
    return f"({' + '.join([f'{names}::bigint', *sizes])})"


def shown(fields: Sequence[Field]) -> str:
    """Compose a row as a JSON object with these fields."""
    columns = ", ".join(f"{told(field)} as {quoted(field.name)}" for field in fields)
    return f"(select row_to_json(shown) from (select {columns}) as shown)::text"


def told(field: Field) -> str:
    name = quoted(field.name)
    if field.type is FieldType.TIMESTAMP:
        # a fraction only where there is one
        form = """'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'"""
        return f"replace(to_char({name}, {form}), '.000000Z', 'Z')"
    return name


def microseconds(instant: datetime) -> int:
    return (instant - EPOCH) // MICROSECOND
