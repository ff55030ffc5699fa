"""A dataset's table as clients read and change it."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import errors as postgres
from psycopg.rows import tuple_row
from typing_extensions import override

from penstock.adapters.postgres.binary_arrays import ARRAYS, key_arrays, page_arrays
from penstock.adapters.postgres.connection_pool import Connection
from penstock.adapters.postgres.error_messages import retry_on_conflict
from penstock.adapters.postgres.partitions import ensure_partitions, lock_merges
from penstock.adapters.postgres.table_sql import PostgresTableSql, readable
from penstock.adapters.sqlstore import table_protocols as sql
from penstock.adapters.sqlstore.key_encoding import quote
from penstock.adapters.sqlstore.table_protocols import (
    ByteAllowance,
    StatementTimeout,
    VisibleRow,
    by_local_fields,
    key_fields,
    local_fields,
    local_values,
    version_of,
)
from penstock.adapters.sqlstore.where_builder import SqlDialect, Where, build_select
from penstock.domain.dataset import Field, FieldType
from penstock.domain.formats import EPOCH, MICROSECOND
from penstock.domain.mapping.columnar import ColumnarRecords
from penstock.domain.pages import Key, Record
from penstock.domain.search.query import KeysetSegment, Query
from penstock.ports.record_access import (
    Count,
    CountKind,
    LockedRow,
    StoredRecord,
    Write,
)

# types of unlimited length, and the most bytes that any other value has as JSON
UNLIMITED_TYPES = (FieldType.TEXT, FieldType.DECIMAL, FieldType.JSON)
MAX_SHORT_VALUE = 32
# how long an exact count may take before an estimate is returned instead
COUNT_TIMEOUT = "500ms"


class PostgresDialect(SqlDialect):
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
class PostgresRecordTable(sql.RecordTable):
    of: PostgresTableSql
    connection: Connection

    @override
    def rows(
        self, query: Query, part: KeysetSegment, *, limit: int, room: ByteAllowance
    ) -> Sequence[VisibleRow]:
        run = build_select(query, part, DIALECT)
        columns = dict.fromkeys([*(quote(f.name) for f in query.fields), *run.position])
        # the sizes of rows are computed before any of them is serialized
        found = self._tuples(
            f"select _total, {json_row(query.fields)}, {', '.join(run.position)} from ("
            "select *, row_number() over () as _number, count(*) over () as _total, "
            "sum(_size) over (rows unbounded preceding) as _bytes from ("
            f"select {', '.join(columns)}, {size_of(query.fields)} as _size "
            f"from {self.of.name} where {run.where} "
            f"order by {run.order} limit {limit:d}) as _page) as _sized "
            f"where _bytes <= {room.left:d} or _number = 1 order by _number",
            run.given,
        )
        rows = [VisibleRow(row[1].encode(), row[2:]) for row in found]
        rows = [row for row in rows if room.take(len(row.body))]
        room.is_full |= bool(found) and len(rows) < found[0][0]
        return rows

    @override
    def one(self, key: Key, fields: Sequence[Field]) -> StoredRecord | None:
        where = Where(DIALECT)
        where.is_key(self.of.dataset, key)
        local = [readable(field) for field in local_fields(self.of.dataset)]
        columns = ", ".join([json_row(fields), "_digest", "_updated_at", *local])
        found = self._tuples(
            f"select {columns} from {self.of.name} where {where}", where.given
        )
        for body, digest, updated_at, *values in found:
            version = version_of(digest, microseconds(updated_at), values)
            return StoredRecord(body.encode(), version)
        return None

    @override
    def count(self, query: Query) -> int:
        where = Where(DIALECT)
        where.add(*query.conditions)
        statement = f"select count(*) from {self.of.name} where {where}"
        return int(self._fetch_with_timeout(statement, where.given))

    @override
    def estimate(self, query: Query) -> Count:
        where = Where(DIALECT)
        where.add(*query.conditions)
        statement = f"explain (format json) select from {self.of.name} where {where}"
        # even this waits for a lock of the whole table
        plan = self._fetch_with_timeout(statement, where.given)
        return Count(int(plan[0]["Plan"]["Plan Rows"]), CountKind.PLANNED)

    def _fetch_with_timeout(self, statement: str, parameters: Mapping[str, Any]) -> Any:
        try:
            with self.connection.transaction():
                limit = f"set local statement_timeout = '{COUNT_TIMEOUT}'"
                self.connection.execute(limit.encode())
                return self._tuples(statement, parameters)[0][0]
        except postgres.QueryCanceled as error:
            raise StatementTimeout from error

    @override
    def lock_rows(self, keys: Sequence[Key]) -> Mapping[Key, bool]:
        lock_merges(self.connection, self.of.dataset)
        found = self._locked_rows(keys, key_fields(self.of.dataset))
        return {key: is_deleted for _, _, is_deleted, key in found}

    @override
    def locked_row(self, key: Key) -> LockedRow:
        dataset = self.of.dataset
        ((digest, updated_at, _, values),) = self._locked_rows([key], dataset.fields)
        local = local_values(dataset, values)
        return LockedRow(values, version_of(digest, updated_at, local))

    def _locked_rows(
        self, keys: Sequence[Key], fields: Sequence[Field], *, stream: bool = False
    ) -> Iterator[tuple[bytes, int, bool, tuple[object, ...]]]:
        """Yield locked rows: digest, time of change, whether deleted, these fields.

        With `stream`, no more than one of them is in memory.
        """
        if not keys:
            return
        statement = self.of.lock_records(fields).encode()
        with self.connection.cursor(row_factory=tuple_row) as cursor:
            read = cursor.stream if stream else cursor.execute
            found = read(statement, key_arrays(self.of.dataset, keys))
            for digest, updated_at, is_deleted, *values in found:
                yield digest, microseconds(updated_at), is_deleted, tuple(values)

    @override
    def store(self, writes: Sequence[Write], locked: Container[Key]) -> None:
        records = [write.record for write in writes]
        existing = [record for record in records if record.key in locked]
        new = [record for record in records if record.key not in locked]
        self._write(self.of.rewrite, existing)
        try:
            self._write(self.of.insert, new)
        except postgres.UniqueViolation as error:
            # a page or another client has created one meanwhile
            raise retry_on_conflict(error) from error
        for names, group in by_local_fields(writes).items():
            self._store_local(names, group)

    def _write(self, statement: str, records: Sequence[Record]) -> None:
        if not records:
            return
        # in the order of keys, as pages are, so that the two do not deadlock
        columnar = ColumnarRecords.of(records).by_key()
        ensure_partitions(self.connection, self.of.dataset, columnar)
        page = page_arrays(self.of.dataset, columnar)
        # 0: not from an import
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
        statement = self.of.set_local_fields([fields[name] for name in names])
        self._execute(statement, {**arrays, **keys})

    @override
    def remove(self, keys: Sequence[Key]) -> None:
        if keys:
            self._execute(self.of.remove, key_arrays(self.of.dataset, keys))

    @override
    def mark_edited(self, keys: Sequence[Key]) -> None:
        if keys:
            self._execute(self.of.mark_edited, key_arrays(self.of.dataset, keys))

    @override
    def versions(self, keys: Sequence[Key]) -> Mapping[Key, str]:
        dataset = self.of.dataset
        width = len(dataset.key)
        local = local_fields(dataset)
        found = self._locked_rows(
            keys, [*key_fields(dataset), *local], stream=bool(local)
        )
        return {
            values[:width]: version_of(digest, updated_at, values[width:])
            for digest, updated_at, _, values in found
        }

    def _tuples(
        self, statement: str, parameters: Mapping[str, Any]
    ) -> Sequence[tuple[Any, ...]]:
        with self.connection.cursor(row_factory=tuple_row) as cursor:
            return cursor.execute(statement.encode(), parameters).fetchall()

    def _execute(self, statement: str, parameters: Mapping[str, Any]) -> None:
        self.connection.execute(statement.encode(), parameters)


def size_of(fields: Sequence[Field]) -> str:
    """Return an estimate of the size of a row as JSON, without reading its texts."""
    sizes = [
        f"coalesce(octet_length({quote(field.name)}::text), 0)"
        for field in fields
        if field.type in UNLIMITED_TYPES
    ]
    names = sum(len(field.name.encode()) + MAX_SHORT_VALUE for field in fields)
    return f"({' + '.join([f'{names}::bigint', *sizes])})"


def json_row(fields: Sequence[Field]) -> str:
    """Return an expression for a row as a JSON object with these fields."""
    columns = ", ".join(
        f"{json_value(field)} as {quote(field.name)}" for field in fields
    )
    # a field called like the alias would hide it; none begins with an underscore
    return f"(select row_to_json(_row) from (select {columns}) as _row)::text"


def json_value(field: Field) -> str:
    name = quote(field.name)
    if field.type is FieldType.TIMESTAMP:
        # a fraction only where there is one
        pattern = """'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'"""
        return f"replace(to_char({name}, {pattern}), '.000000Z', 'Z')"
    return name


def microseconds(instant: datetime) -> int:
    return (instant - EPOCH) // MICROSECOND
