"""A dataset's table as clients read and change it."""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import msgspec
from typing_extensions import override

from penstock.adapters.sql import served as sql
from penstock.adapters.sql.keys import plain_value, quoted
from penstock.adapters.sql.selects import Dialect, Where, run_of
from penstock.adapters.sql.served import (
    Held,
    Room,
    ShownRow,
    by_local_fields,
    key_of,
    local_fields,
    local_values,
    version_of,
)
from penstock.adapters.sqlite.tables import Table, read_all, value_reader
from penstock.domain.dataset import Field, FieldType
from penstock.domain.page import Key
from penstock.domain.queries.query import Part, Place, Query
from penstock.ports.serving import Count, CountKind, Found, Write

# beyond so many rows, counting would keep others waiting
MOST_COUNTED = 10_000

encode = msgspec.json.Encoder().encode


class SqliteDialect(Dialect):
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
class ServedTable(sql.ServedTable):
    of: Table
    connection: sqlite3.Connection
    now: int

    @override
    def rows(
        self, query: Query, part: Part, *, limit: int, room: Room
    ) -> Sequence[ShownRow]:
        run = run_of(query, part, DIALECT)
        columns = ", ".join(quoted(field.name) for field in query.fields)
        found = self.connection.execute(
            f"select {', '.join(run.placed)}, {columns} from {self._name} "
            f"where {run.where} order by {run.order} limit {limit:d}",
            run.given,
        )
        placed = len(run.placed)
        show = shower(query.fields)
        place = typed(query.order)
        rows = []
        with closing(found):
            for row in map(tuple, found):
                body = show(row[placed:])
                if not room.take(len(body)):
                    break
                rows.append(ShownRow(body, place(row[:placed])))
        return rows

    @override
    def one(self, key: Key, fields: Sequence[Field]) -> Found | None:
        where = Where(DIALECT)
        where.is_key(self.of.dataset, key)
        local = local_fields(self.of.dataset)
        columns = ", ".join(quoted(field.name) for field in (*local, *fields))
        row = self.connection.execute(
            f"select _digest, _updated_at, {columns} from {self._name} where {where}",
            where.given,
        ).fetchone()
        if row is None:
            return None
        digest, updated_at, *values = row
        stored = typed(local)(values[: len(local)])
        version = version_of(digest, updated_at, stored)
        return Found(shower(fields)(values[len(local) :]), version)

    @override
    def count(self, query: Query) -> int:
        return self._count(query, cap="")

    @override
    def estimate(self, query: Query) -> Count:
        # there are no statistics: a look at a bounded number of rows instead
        counted = self._count(query, cap=f"limit {MOST_COUNTED + 1}")
        if counted > MOST_COUNTED:
            return Count(MOST_COUNTED, CountKind.CAPPED)
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
    def held(self, keys: Sequence[Key]) -> Mapping[Key, Held]:
        found = self.of.whole(self.connection, keys)
        return {
            key_of(self.of.dataset, values): Held(
                values,
                version_of(digest, updated_at, local_values(self.of.dataset, values)),
                is_deleted,
            )
            for digest, updated_at, is_deleted, values in found
        }

    @override
    def store(self, writes: Sequence[Write], held: Mapping[Key, Held]) -> None:
        known = [each.record for each in writes if each.record.key in held]
        fresh = [each.record for each in writes if each.record.key not in held]
        # no import has brought them
        self.of.insert(self.connection, fresh, import_id=0, now=self.now)
        keys = [record.key for record in known]
        later = self._later(keys)
        self.of.update(self.connection, known, import_id=0, now=later)
        for names, some in by_local_fields(writes).items():
            self.of.set_local(
                self.connection,
                names,
                [(write.record.key, write.local) for write in some],
            )

    @override
    def remove(self, keys: Sequence[Key]) -> None:
        self.of.remove(self.connection, keys, now=self._later(keys))

    @override
    def versions(self, keys: Sequence[Key]) -> Mapping[Key, str]:
        return {key: row.version for key, row in self.held(keys).items()}

    def _later(self, keys: Sequence[Key]) -> int:
        """Return a time of change that none of these rows ever had before."""
        found = self.of.whole(self.connection, keys)
        return max([self.now, *(updated_at + 1 for _, updated_at, _, _ in found)])

    @property
    def _name(self) -> str:
        return quoted(self.of.dataset.name)


def typed(order: Sequence[Field]) -> Callable[[Sequence[object]], Place]:
    """Return what gives stored values the types that the domain knows."""
    readers = [value_reader(field) for field in order]
    return lambda values: read_all(readers, values)


def shower(fields: Sequence[Field]) -> Callable[[Sequence[object]], bytes]:
    """Return what writes stored values as a JSON object."""
    names = [field.name for field in fields]
    forms = [FORMS.get(field.type) for field in fields]

    def show(values: Sequence[object]) -> bytes:
        shown = {
            name: value if value is None or form is None else form(value)
            for name, form, value in zip(names, forms, values, strict=True)
        }
        return encode(shown)

    return show


def instant_text(stored: object) -> str:
    # a fraction only where there is one
    return str(stored).replace(".000000Z", "Z")


FORMS: Mapping[FieldType, Callable[[object], object]] = {
    FieldType.BOOL: bool,
    FieldType.TIMESTAMP: instant_text,
    FieldType.JSON: lambda stored: msgspec.Raw(str(stored).encode()),
}
