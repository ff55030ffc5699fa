"""A dataset's table as clients read and change it."""

import json
import sqlite3
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import msgspec
from typing_extensions import override

from penstock.adapters.sqlite.table_sql import (
    Row,
    SqliteTableSql,
    read_all,
    value_reader,
)
from penstock.adapters.sqlstore import table_protocols as sql
from penstock.adapters.sqlstore.key_encoding import plain_value, quote
from penstock.adapters.sqlstore.table_protocols import (
    ByteAllowance,
    VisibleRow,
    by_local_fields,
    key_fields,
    local_fields,
    local_values,
    version_of,
)
from penstock.adapters.sqlstore.where_builder import SqlDialect, Where, build_select
from penstock.domain.dataset import Field, FieldType
from penstock.domain.pages import Key
from penstock.domain.search.query import KeysetPosition, KeysetSegment, Query
from penstock.ports.record_access import (
    Count,
    CountKind,
    LockedRow,
    StoredRecord,
    Write,
)

# counting more rows would take too long
MAX_COUNTED = 10_000

encode = msgspec.json.Encoder().encode


class SqliteDialect(SqlDialect):
    @override
    def parameter(self, name: str) -> str:
        return f":{name}"

    @override
    def value(self, value: object) -> object:
        return plain_value(value)

    @override
    def among(self, column: str, parameter: str) -> str:
        return f"{column} in (select value from json_each({parameter}))"

    @override
    def choices(self, values: Sequence[object]) -> object:
        return json.dumps([*map(plain_value, values)], ensure_ascii=False)

    @override
    def differs(self, column: str, parameter: str) -> str:
        return f"{column} is not {parameter}"


DIALECT = SqliteDialect()


@dataclass(frozen=True, slots=True)
class SqliteRecordTable(sql.RecordTable):
    of: SqliteTableSql
    connection: sqlite3.Connection
    now: int

    @override
    def rows(
        self, query: Query, part: KeysetSegment, *, limit: int, room: ByteAllowance
    ) -> Sequence[VisibleRow]:
        select = build_select(query, part, DIALECT)
        columns = ", ".join(quote(field.name) for field in query.fields)
        found = self.connection.execute(
            f"select {', '.join(select.position)}, {columns} from {self._name} "
            f"where {select.where} order by {select.order} limit {limit:d}",
            select.given,
        )
        width = len(select.position)
        encode_row = row_encoder(query.fields)
        decode_position = row_decoder(query.order)
        rows = []
        with closing(found):
            for row in map(tuple, found):
                body = encode_row(row[width:])
                if not room.take(len(body)):
                    break
                rows.append(VisibleRow(body, decode_position(row[:width])))
        return rows

    @override
    def one(self, key: Key, fields: Sequence[Field]) -> StoredRecord | None:
        where = Where(DIALECT)
        where.is_key(self.of.dataset, key)
        local = local_fields(self.of.dataset)
        columns = ", ".join(quote(field.name) for field in (*local, *fields))
        row = self.connection.execute(
            f"select _digest, _updated_at, {columns} from {self._name} where {where}",
            where.given,
        ).fetchone()
        if row is None:
            return None
        digest, updated_at, *values = row
        stored = row_decoder(local)(values[: len(local)])
        version = version_of(digest, updated_at, stored)
        return StoredRecord(row_encoder(fields)(values[len(local) :]), version)

    @override
    def count(self, query: Query) -> int:
        return self._count(query, cap="")

    @override
    def estimate(self, query: Query) -> Count:
        # there are no statistics: count a bounded number of rows instead
        counted = self._count(query, cap=f"limit {MAX_COUNTED + 1}")
        if counted > MAX_COUNTED:
            return Count(MAX_COUNTED, CountKind.CAPPED)
        return Count(counted, CountKind.EXACT)

    def _count(self, query: Query, *, cap: str) -> int:
        where = Where(DIALECT)
        where.add(*query.conditions)
        found = self.connection.execute(
            f"select count(*) from (select 1 from {self._name} where {where} {cap})",
            where.given,
        )
        return int(found.fetchone()[0])

    @override
    def lock_rows(self, keys: Sequence[Key]) -> Mapping[Key, bool]:
        found = self._stored_rows(keys, key_fields(self.of.dataset))
        return {key: is_deleted for _, _, is_deleted, key in found}

    @override
    def locked_row(self, key: Key) -> LockedRow:
        dataset = self.of.dataset
        ((digest, updated_at, _, values),) = self._stored_rows([key], dataset.fields)
        local = local_values(dataset, values)
        return LockedRow(values, version_of(digest, updated_at, local))

    @override
    def store(self, writes: Sequence[Write], locked: Container[Key]) -> None:
        existing = [write.record for write in writes if write.record.key in locked]
        new = [write.record for write in writes if write.record.key not in locked]
        # no import has stored them
        self.of.insert(self.connection, new, import_id=0, now=self.now)
        later = self._later([record.key for record in existing])
        self.of.update(self.connection, existing, import_id=0, now=later)
        for names, group in by_local_fields(writes).items():
            self.of.set_local(
                self.connection,
                names,
                [(write.record.key, write.local) for write in group],
            )

    @override
    def remove(self, keys: Sequence[Key]) -> None:
        self.of.remove(self.connection, keys, now=self._later(keys))

    @override
    def mark_edited(self, keys: Sequence[Key]) -> None:
        self.of.mark_edited(self.connection, keys, now=self.now)

    @override
    def versions(self, keys: Sequence[Key]) -> Mapping[Key, str]:
        dataset = self.of.dataset
        width = len(dataset.key)
        fields = [*key_fields(dataset), *local_fields(dataset)]
        return {
            values[:width]: version_of(digest, updated_at, values[width:])
            for digest, updated_at, _, values in self._stored_rows(keys, fields)
        }

    def _later(self, keys: Sequence[Key]) -> int:
        """Return a time of change that none of these rows has had before."""
        found = self._stored_rows(keys, key_fields(self.of.dataset))
        return max([self.now, *(updated_at + 1 for _, updated_at, _, _ in found)])

    def _stored_rows(
        self, keys: Sequence[Key], fields: Sequence[Field]
    ) -> Iterator[tuple[bytes, int, bool, Row]]:
        return self.of.stored_rows(self.connection, keys, fields)

    @property
    def _name(self) -> str:
        return quote(self.of.dataset.name)


def row_decoder(order: Sequence[Field]) -> Callable[[Sequence[object]], KeysetPosition]:
    """Return a function that converts stored values to the domain's types."""
    readers = [value_reader(field) for field in order]
    return lambda values: read_all(readers, values)


def row_encoder(fields: Sequence[Field]) -> Callable[[Sequence[object]], bytes]:
    """Return a function that encodes stored values as a JSON object."""
    names = [field.name for field in fields]
    converters = [JSON_CONVERTERS.get(field.type) for field in fields]

    def encode_row(values: Sequence[object]) -> bytes:
        return encode(
            {
                name: value if value is None or convert is None else convert(value)
                for name, convert, value in zip(names, converters, values, strict=True)
            }
        )

    return encode_row


def format_time(stored: object) -> str:
    # without a fraction of zero
    return str(stored).replace(".000000Z", "Z")


def embed_json(stored: object) -> msgspec.Raw:
    """Embed a JSON document or a number as it is stored."""
    return msgspec.Raw(str(stored).encode())


JSON_CONVERTERS: Mapping[FieldType, Callable[[object], object]] = {
    FieldType.BOOL: bool,
    FieldType.DECIMAL: embed_json,
    FieldType.TIMESTAMP: format_time,
    FieldType.JSON: embed_json,
}
