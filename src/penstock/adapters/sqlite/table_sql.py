"""Build the SQL of a dataset's own table, whose columns users declare.

Identifiers are quoted; values are always parameters.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import NamedTuple, TypeAlias

from penstock.adapters.sqlstore.composed_sql import (
    archive_statement,
    dataset_statements,
    distinct_values,
    ranked_statement,
    statement,
)
from penstock.adapters.sqlstore.key_encoding import plain_value, quote
from penstock.adapters.sqlstore.row_origins import (
    FILE_NUMBER,
    read_origins,
    write_origins,
)
from penstock.adapters.sqlstore.schema import TIME_COLUMNS, view_columns
from penstock.domain.dataset import Dataset, Field, FieldType, Reference
from penstock.domain.lost_files import RowOrigin
from penstock.domain.pages import Key, Record
from penstock.ports import SqlStatement

# orders decimals as numbers; not `decimal`, which the shell of SQLite has, but there
# 1.10 and 1.1 differ
DECIMAL_COLLATION = "penstock_decimal"
COLUMN_TYPES: Mapping[FieldType, str] = {
    FieldType.TEXT: "text",
    FieldType.INT: "integer",
    FieldType.FLOAT: "real",
    # not numeric: that has the digits of a float
    FieldType.DECIMAL: f"text collate {DECIMAL_COLLATION}",
    FieldType.BOOL: "integer",
    FieldType.DATE: "text",
    FieldType.TIMESTAMP: "text",
    FieldType.JSON: "text",
}

Reader: TypeAlias = Callable[[object], object]
Row: TypeAlias = tuple[object, ...]

# internal columns, beside the declared ones
INTERNAL_COLUMNS = (
    "_digest blob not null",
    "_import integer not null",
    "_created_at integer not null",
    "_updated_at integer not null",
    "_deleted_at integer",
)


# the rows that clients see
IS_LIVE = "_deleted_at is null"
# the rows that an import has not seen, and that nobody has written since it started
MISSING = f"where {IS_LIVE} and _import < :import_id and _updated_at <= :started"
# with so many deleted rows, the live rows get an index of their own by key
LIVE_INDEX_THRESHOLD = 1_000
# the position of a row in the files of its import
RANK_COLUMN = "_rank integer not null default 0"
# when a client wrote a row: it is never archived
EDITED_COLUMN = "_edited_at integer"
# the live rows that no import has brought since a cut; import 0 are clients
EXPIRED = (
    f"{IS_LIVE} and _import between 1 and :last_seen_by "
    "and _updated_at <= :written_before and _edited_at is null"
)


# marks a view as created by Penstock
VIEW_MARK = "/* penstock */"
# formats an internal time like the times of fields
FORMAT_TIME = (
    "strftime('%Y-%m-%dT%H:%M:%S', {0} / 1000000, 'unixepoch') "
    "|| printf('.%06dZ', {0} % 1000000) as {0}"
)


class ExistingRows(NamedTuple):
    """The row that is stored under a key."""

    digest: bytes
    is_deleted: bool
    updated_at: int
    version: object
    import_id: int
    rank: int


class ReservedChanges(NamedTuple):
    """The number before the reserved ones, their tag, and the tag of that number."""

    before: int
    tag: int
    previous_tag: int


@dataclass(frozen=True, eq=False)
class SqliteTableSql:
    """The compiled statements of one dataset's table."""

    dataset: Dataset

    @cached_property
    def deleted_index(self) -> str:
        return f"{self._prefix}:deleted"

    @cached_property
    def live_index(self) -> str:
        return f"{self._prefix}:live"

    @cached_property
    def indexes(self) -> Mapping[str, str]:
        """The definitions of the indexes beside the primary key, by name.

        The first tells whether many rows are deleted; the others hold only live rows,
        so deleted ones do not make them grow.
        """
        definitions = {
            self.deleted_index: f"{self._table} ({self._keys}) "
            "where _deleted_at is not null",
            **{
                f"{self._prefix}{name}": f"{self._table} ({quote(name)}) "
                f"where {IS_LIVE}"
                for name in self.dataset.filter
                if [name] != list(self.dataset.key)
            },
        }
        if self.dataset.geo is not None:
            geo = ", ".join(map(quote, self.dataset.geo))
            definitions[f"{self._prefix}:place"] = (
                f"{self._table} ({geo}) where {IS_LIVE}"
            )
        return definitions

    def definition(self, index: str) -> str:
        """Return the table, columns and condition of an index."""
        if index == self.live_index:
            return f"{self._table} ({self._keys}) where {IS_LIVE}"
        return self.indexes[index]

    @statement
    def create(self) -> str:
        """Create the table: `penstock migrate`, and the first import."""
        return create_statement(self.dataset)

    @statement
    def _existing(self) -> str:
        """Read the stored rows of a page's keys, to compare them."""
        dataset = self.dataset
        version = "null" if dataset.version is None else quote(dataset.version)
        rank = "_rank" if dataset.is_ranked else "0"
        return (
            f"select {self._keys}, _digest, _deleted_at is not null, _updated_at, "
            f"{version}, _import, {rank} from {self._table} where {self._key_in_list}"
        )

    @statement
    def _between(self) -> str:
        """Read the rows between the keys of a page that was fetched before."""
        bound = f"({', '.join('?' * len(self.dataset.key))})"
        return (
            f"select _digest, _deleted_at is not null from {self._table} "
            f"where ({self._keys}) >= {bound} and ({self._keys}) <= {bound} "
            f"order by {self._keys} limit ?"
        )

    @statement
    def _insert(self) -> str:
        """Insert the new rows of a page, or of a client."""
        placeholders = ", ".join("?" * (len(self._names) + 4))
        return (
            f"insert into {self._table} ({', '.join(self._names)}, _digest, _import, "
            f"_created_at, _updated_at) values ({placeholders})"
        )

    @statement
    def _update(self) -> str:
        """Update the changed rows of a page, or of a client."""
        sets = ", ".join(f"{name} = ?" for name in self._names)
        return (
            f"update {self._table} set {sets}, _digest = ?, _import = max(_import, ?), "
            f"_updated_at = ?, _deleted_at = null where {self._matches_key}"
        )

    @statement
    def _touch(self) -> str:
        """Mark unchanged rows as seen by an import that deletes missing rows.

        An older, slower import must not undo that a newer one has seen a row.
        """
        reset_rank = (
            ", _rank = case when _import < ?1 then 0 else _rank end"
            if self.dataset.is_ranked
            else ""
        )
        return (
            f"update {self._table} set _import = max(_import, ?1){reset_rank} "
            f"where {self._key_in_list.replace('?', '?2')}"
        )

    @ranked_statement
    def _set_rank(self) -> str:
        """Store the position of a page's rows in their file."""
        return f"update {self._table} set _rank = ? where {self._key_in_list}"

    @ranked_statement
    def _supersede(self) -> str:
        """Resolve bad rows of a file whose key has a stored row that wins over them."""
        return supersede_statement(self.dataset)

    @ranked_statement
    def _missing_by_file(self) -> str:
        """Count missing rows by import and file, before they are deleted."""
        return (
            f"select _import as import_id, {FILE_NUMBER} as file, count(*) as rows "
            f"from {self._table} {MISSING} group by 1, 2"
        )

    @statement
    def _count_missing(self) -> str:
        """Count the rows that a finished import has not seen."""
        return f"select count(*) from {self._table} {self._missing}"

    @statement
    def _note_missing(self) -> str:
        """Add the deletions of `mark_missing` to the changes, before it runs."""
        return (
            "insert into penstock_change "
            "(dataset, seq, kind, key, import_id, at, tag, previous_tag) "
            "select :dataset, :before + row_number() over (), 'deleted', "
            f"json_array({self._keys}), :import_id, :now, :tag, "
            "case when row_number() over () = 1 then :previous_tag end "
            f"from {self._table} {self._missing}"
        )

    @statement
    def _mark_missing(self) -> str:
        """Mark the rows that a finished import has not seen as deleted."""
        return (
            f"update {self._table} set _deleted_at = :now, _updated_at = :now "
            f"{self._missing}"
        )

    @statement
    def _remove(self) -> str:
        """Mark rows as deleted for a client."""
        return (
            f"update {self._table} set _deleted_at = ?1, _updated_at = ?1 "
            f"where {self._key_in_list.replace('?', '?2')}"
        )

    @archive_statement
    def _mark_edited(self) -> str:
        """Mark rows as written by a client, so that they are never archived."""
        return (
            f"update {self._table} set _edited_at = ?1 "
            f"where {self._key_in_list.replace('?', '?2')}"
        )

    @archive_statement
    def _first_expired(self) -> str:
        """Find the first rows that are to be archived."""
        return self._find_expired("")

    @archive_statement
    def _next_expired(self) -> str:
        """Find the rows after a key that are to be archived."""
        after = ", ".join(f":after_{index}" for index in range(len(self._key)))
        return self._find_expired(f" and ({self._keys}) > ({after})")

    @archive_statement
    def _still_expired(self) -> str:
        """Check rows again that are to be archived, before they are moved."""
        return (
            f"select {self._keys} from {self._table} where {self._expired} "
            f"and {self._key_in_list.replace('?', ':keys')}"
        )

    @archive_statement
    def _copy_to_archive(self) -> str:
        """Copy rows to the archive, with the time as that of their change."""
        names = [self._all_names, "_digest", "_import", "_created_at"]
        if self.dataset.is_ranked:
            names.append("_rank")
        columns = ", ".join(names)
        return (
            f"insert into {quote(self.dataset.archived.name)} ({columns}, _updated_at) "
            f"select {columns}, ?1 from {self._table} "
            f"where {self._key_in_list.replace('?', '?2')}"
        )

    @archive_statement
    def _delete(self) -> str:
        """Delete rows that were archived."""
        return delete_statement(self.dataset)

    @archive_statement
    def _delete_archived(self) -> str:
        """Delete rows from the archive that were stored again."""
        return delete_statement(self.dataset.archived)

    @statement
    def _rows(self) -> str:
        """Read all rows by key: `penstock export`."""
        return (
            f"select {self._all_names} from {self._table} where _deleted_at is null "
            f"order by {self._keys}"
        )

    @statement
    def _count(self) -> str:
        """Count the rows when an import ends."""
        return f"select count(*) from {self._table} where _deleted_at is null"

    @statement
    def _has_many_deleted(self) -> str:
        """Find out whether live rows need an index of their own: `penstock migrate`."""
        return (
            f"select 1 from {self._table} where _deleted_at is not null "
            f"limit 1 offset {LIVE_INDEX_THRESHOLD - 1:d}"
        )

    @cached_property
    def _table(self) -> str:
        return quote(self.dataset.name)

    @cached_property
    def _prefix(self) -> str:
        # declared names have no colon, so these cannot be a user's tables
        return f"penstock:{self.dataset.name}:"

    @cached_property
    def _key(self) -> Sequence[str]:
        return [quote(name) for name in self.dataset.key]

    @cached_property
    def _keys(self) -> str:
        return ", ".join(self._key)

    @cached_property
    def _names(self) -> Sequence[str]:
        return [quote(field.name) for field in self.dataset.columns]

    @cached_property
    def _all_names(self) -> str:
        return ", ".join(quote(field.name) for field in self.dataset.fields)

    @cached_property
    def _matches_key(self) -> str:
        return " and ".join(f"{name} = ?" for name in self._key)

    @cached_property
    def _key_in_list(self) -> str:
        return in_json_list(self._key)

    @cached_property
    def _missing(self) -> str:
        if not self.dataset.is_ranked:
            return MISSING
        return (
            f"{MISSING} and (_import, {FILE_NUMBER}) not in (select "
            "json_extract(value, '$[0]'), json_extract(value, '$[1]') "
            "from json_each(:retained))"
        )

    @cached_property
    def _expired(self) -> str:
        local = [field for field in self.dataset.fields if field.local]
        unset = (f" and {quote(field.name)} is null" for field in local)
        return EXPIRED + "".join(unset)

    def _find_expired(self, after: str) -> str:
        return (
            f"select {self._keys} from {self._table} where {self._expired}{after} "
            f"order by {self._keys} limit :limit"
        )

    @cached_property
    def _has_converted(self) -> bool:
        return any(
            field.type in {FieldType.DATE, FieldType.TIMESTAMP, FieldType.DECIMAL}
            for field in self.dataset.columns
        )

    @cached_property
    def _version(self) -> Reader | None:
        return None if self.dataset.version is None else version_reader(self.dataset)

    def missing_indexes(self, connection: sqlite3.Connection) -> list[str]:
        """Return the indexes that do not exist, or contain deleted rows as well."""
        found = connection.execute(
            "select name from sqlite_schema where type = 'index' and tbl_name = ? "
            "and sql like '% where _deleted_at is %'",
            (self.dataset.name,),
        )
        stored = {row[0] for row in found}
        missing = [name for name in self.indexes if name not in stored]
        if (
            self.deleted_index in stored
            and self.live_index not in stored
            and connection.execute(self._has_many_deleted).fetchone() is not None
        ):
            missing.append(self.live_index)
        return missing

    def build_indexes(self, connection: sqlite3.Connection) -> list[str]:
        done: list[str] = []
        # again after each one: whether the live index is needed is only known from the
        # index of deleted rows
        while missing := [
            name for name in self.missing_indexes(connection) if name not in done
        ]:
            name = missing[0]
            connection.execute(f"drop index if exists {quote(name)}")
            connection.execute(f"create index {quote(name)} on {self.definition(name)}")
            done.append(name)
        return done

    def find_existing(
        self, connection: sqlite3.Connection, keys: Iterable[Key]
    ) -> dict[Key, ExistingRows]:
        """Return the rows that are stored under these keys, in one statement."""
        width = len(self.dataset.key)
        read_version = self._version
        found = {}
        for row in connection.execute(self._existing, (self._key_list(keys),)):
            version = None if read_version is None else read_version(row[width + 3])
            found[tuple(row[:width])] = ExistingRows(
                row[width],
                bool(row[width + 1]),
                row[width + 2],
                version,
                row[width + 4],
                row[width + 5],
            )
        return found

    def between(
        self, connection: sqlite3.Connection, first: Key, last: Key, *, limit: int
    ) -> list[tuple[bytes, bool]]:
        """Return digest and deletion of the rows from one key to another."""
        found = connection.execute(self._between, (*first, *last, limit))
        return [(digest, bool(is_deleted)) for digest, is_deleted in found]

    def insert(
        self,
        connection: sqlite3.Connection,
        records: Iterable[Record],
        *,
        import_id: int,
        now: int,
    ) -> None:
        connection.executemany(
            self._insert,
            [(*self.stored(r.values), r.digest, import_id, now, now) for r in records],
        )

    def update(
        self,
        connection: sqlite3.Connection,
        records: Iterable[Record],
        *,
        import_id: int,
        now: int,
    ) -> None:
        stored = self.stored
        connection.executemany(
            self._update,
            [
                (*stored(r.values), r.digest, import_id, now, *stored(r.key))
                for r in records
            ],
        )

    def touch(
        self, connection: sqlite3.Connection, keys: Iterable[Key], *, import_id: int
    ) -> None:
        """Mark these keys as seen by an import, even if their rows are unchanged."""
        connection.execute(self._touch, (import_id, self._key_list(keys)))

    def set_rank(
        self, connection: sqlite3.Connection, keys: Iterable[Key], rank: int
    ) -> None:
        connection.execute(self._set_rank, (rank, self._key_list(keys)))

    def supersede_rejections(
        self, connection: sqlite3.Connection, *, job: int, start: int
    ) -> None:
        """Resolve the rejections of a job whose keys have stored rows that win."""
        connection.execute(self._supersede, {"job": job, "start": start})

    def stored_rows(
        self,
        connection: sqlite3.Connection,
        keys: Sequence[Key],
        fields: Sequence[Field],
    ) -> Iterator[tuple[bytes, int, bool, Row]]:
        """Yield stored rows: digest, time of change, whether deleted, these fields."""
        readers = [value_reader(field) for field in fields]
        statement = self.lock_records(fields)
        for row in connection.execute(statement, (self._key_list(keys),)):
            digest, updated_at, is_deleted, *values = row
            yield digest, updated_at, bool(is_deleted), read_all(readers, values)

    def set_local(
        self,
        connection: sqlite3.Connection,
        names: Sequence[str],
        rows: Iterable[tuple[Key, Mapping[str, object]]],
    ) -> None:
        """Set local fields, which imports never change."""
        fields = {field.name: field for field in self.dataset.fields}
        connection.executemany(
            self.set_local_fields([fields[name] for name in names]),
            [
                [*map(plain_value, (*(local[name] for name in names), *key))]
                for key, local in rows
            ],
        )

    def lock_records(self, fields: Sequence[Field]) -> str:
        """Return the select of these fields; whoever writes has locked the database."""
        names = ", ".join(quote(field.name) for field in fields)
        return (
            f"select _digest, _updated_at, _deleted_at is not null, {names} "
            f"from {self._table} where {self._key_in_list}"
        )

    def set_local_fields(self, fields: Sequence[Field]) -> str:
        sets = ", ".join(f"{quote(field.name)} = ?" for field in fields)
        return f"update {self._table} set {sets} where {self._matches_key}"

    def remove(
        self, connection: sqlite3.Connection, keys: Sequence[Key], *, now: int
    ) -> None:
        connection.execute(self._remove, (now, self._key_list(keys)))

    def mark_edited(
        self, connection: sqlite3.Connection, keys: Sequence[Key], *, now: int
    ) -> None:
        connection.execute(self._mark_edited, (now, self._key_list(keys)))

    def expired(
        self,
        connection: sqlite3.Connection,
        parameters: Mapping[str, object],
        *,
        after: Key | None,
        limit: int,
    ) -> list[Key]:
        """Return keys of live rows that no import has brought since a cut."""
        given = {**parameters, "limit": limit}
        if after is None:
            return self._read_keys(connection.execute(self._first_expired, given))
        for index, part in enumerate(after):
            given[f"after_{index}"] = plain_value(part)
        return self._read_keys(connection.execute(self._next_expired, given))

    def archive(
        self,
        connection: sqlite3.Connection,
        parameters: Mapping[str, object],
        keys: Sequence[Key],
        *,
        now: int,
    ) -> list[Key]:
        """Move those of the rows that are still expired; return their keys."""
        given = {**parameters, "keys": self._key_list(keys)}
        expired = self._read_keys(connection.execute(self._still_expired, given))
        moved = self._key_list(expired)
        connection.execute(self._delete_archived, (moved,))
        connection.execute(self._copy_to_archive, (now, moved))
        connection.execute(self._delete, (moved,))
        return expired

    def restore(self, connection: sqlite3.Connection, keys: Sequence[Key]) -> None:
        """Delete rows from the archive that were stored again."""
        connection.execute(self._delete_archived, (self._key_list(keys),))

    def _read_keys(self, found: Iterable[Row]) -> list[Key]:
        fields = {field.name: field for field in self.dataset.fields}
        readers = [value_reader(fields[name]) for name in self.dataset.key]
        return [read_all(readers, row) for row in found]

    def rows(self, connection: sqlite3.Connection) -> Iterator[Row]:
        readers = [value_reader(field) for field in self.dataset.fields]
        for row in connection.execute(self._rows):
            yield read_all(readers, row)

    def count(self, connection: sqlite3.Connection) -> int:
        return int(connection.execute(self._count).fetchone()[0])

    def distinct(self, connection: sqlite3.Connection, field: str) -> Iterator[str]:
        for row in connection.execute(distinct_values(self.dataset.name, field)):
            yield str(row[0])

    def count_missing(
        self,
        connection: sqlite3.Connection,
        *,
        import_id: int,
        started: int,
        retained: Sequence[RowOrigin],
    ) -> int:
        """Count the live rows that an import has not seen, except of some origins."""
        parameters = {
            "import_id": import_id,
            "started": started,
            "retained": write_origins(retained),
        }
        found = connection.execute(self._count_missing, parameters)
        return int(found.fetchone()[0])

    def missing_by_file(
        self, connection: sqlite3.Connection, *, import_id: int, started: int
    ) -> dict[RowOrigin, int]:
        """Count all missing rows by where they were last seen."""
        parameters = {"import_id": import_id, "started": started}
        return read_origins(connection.execute(self._missing_by_file, parameters))

    def mark_missing(
        self,
        connection: sqlite3.Connection,
        *,
        import_id: int,
        started: int,
        retained: Sequence[RowOrigin],
        changes: ReservedChanges,
        now: int,
    ) -> None:
        """Mark the missing rows as deleted, with change events, inside the database."""
        parameters = {
            "dataset": self.dataset.name,
            "import_id": import_id,
            "started": started,
            "retained": write_origins(retained),
            **changes._asdict(),
            "now": now,
        }
        connection.execute(self._note_missing, parameters)
        connection.execute(self._mark_missing, parameters)

    def stored(self, values: Sequence[object]) -> Sequence[object]:
        """Convert values to their stored form."""
        if not self._has_converted:
            return values
        return [plain_value(value) for value in values]

    def _key_list(self, keys: Iterable[Key]) -> str:
        if len(self.dataset.key) == 1:
            return json.dumps([plain_value(key[0]) for key in keys])
        return json.dumps([[plain_value(part) for part in key] for key in keys])


def in_json_list(columns: Sequence[str]) -> str:
    """Build the condition that columns equal an entry of a JSON array."""
    if len(columns) == 1:
        return f"{columns[0]} in (select value from json_each(?))"
    values = ", ".join(f"json_extract(value, '$[{i}]')" for i in range(len(columns)))
    return f"({', '.join(columns)}) in (select {values} from json_each(?))"


def delete_statement(dataset: Dataset) -> str:
    key = in_json_list([quote(name) for name in dataset.key])
    return f"delete from {quote(dataset.name)} where {key}"


def create_statement(dataset: Dataset, *, name: str | None = None) -> str:
    columns = []
    # a single integer key is the row id itself, so it needs no second index
    types = {field.name: field.type for field in dataset.fields}
    key_types = [types[name] for name in dataset.key]
    is_rowid = key_types == [FieldType.INT]
    # a table that is its own index is unreadable for programs without our collation
    has_rowid = is_rowid or FieldType.DECIMAL in key_types
    for field in dataset.fields:
        definition = f"{quote(field.name)} {COLUMN_TYPES[field.type]}"
        if field.name in dataset.key:
            definition += " primary key" if is_rowid else " not null"
        columns.append(definition)
    columns.extend(INTERNAL_COLUMNS)
    if dataset.is_ranked:
        columns.append(RANK_COLUMN)
    if dataset.archive is not None:
        columns.append(EDITED_COLUMN)
    if not is_rowid:
        columns.append(f"primary key ({', '.join(map(quote, dataset.key))})")
    tail = "strict" if has_rowid else "strict, without rowid"
    table = quote(dataset.name if name is None else name)
    return f"create table {table} ({', '.join(columns)}) {tail}"


def live_view(dataset: Dataset, columns: Sequence[str]) -> str:
    """Build the view of these columns of the live rows."""
    types = {field.name: field.type for field in dataset.fields}

    def show(name: str) -> str:
        if name in TIME_COLUMNS:
            return FORMAT_TIME.format(name)
        if types.get(name) is FieldType.DECIMAL:
            # programs without our collation could not read the view at all
            return f"{quote(name)} collate binary as {quote(name)}"
        return quote(name)

    shown = ", ".join(map(show, columns))
    return (
        f"create view {quote(dataset.live_view)} as {VIEW_MARK} select {shown} "
        f"from {quote(dataset.name)} where _deleted_at is null"
    )


def list_statements(dataset: Dataset) -> Iterator[SqlStatement]:
    table = SqliteTableSql(dataset)
    return dataset_statements(
        table,
        indexes=table.indexes,
        view=live_view(dataset, view_columns(dataset, ())),
        existing_values=lambda _, reference: existing_values(reference),
    )


def is_empty(connection: sqlite3.Connection, dataset: Dataset) -> bool:
    found = connection.execute(f"select 1 from {quote(dataset.name)} limit 1")
    return found.fetchone() is None


def supersede_statement(dataset: Dataset) -> str:
    """Build the statement that resolves rejections whose stored row wins.

    A row that was only seen, with a bad value, has no rank.
    """
    same = " and ".join(
        f"stored.{quote(name)} = json_extract(bad.key, '$[{position}]')"
        for position, name in enumerate(dataset.key)
    )
    wins = "stored._import > bad.import_id"
    if dataset.version is None:
        wins += (
            " or (stored._import = bad.import_id "
            "and stored._rank > :start + bad.byte_offset)"
        )
    return (
        "update penstock_quarantine as bad set resolved = 'superseded' "
        "where job_id = :job and resolved is null and exists ("
        f"select 1 from {quote(dataset.name)} as stored "
        f"where {same} and stored._rank > 0 and ({wins}))"
    )


def existing_values(reference: Reference) -> str:
    """Build the query for those of some values that the referenced rows have."""
    name, table = quote(reference.field), quote(reference.dataset)
    return (
        f"select distinct {name} as value from {table} "
        f"where {name} in (select value from json_each(?)) and _deleted_at is null"
    )


def compare_decimals(one: str, other: str) -> int:
    """Compare the texts of two numbers; a collation must not raise."""
    try:
        left, right = Decimal(one), Decimal(other)
        return (left > right) - (left < right)
    except InvalidOperation:
        # a text that was not written by an import
        return (one > other) - (one < other)


def read_all(readers: Sequence[Reader | None], row: Iterable[object]) -> Row:
    """Convert stored values to the domain's types."""
    return tuple(
        value if value is None or read is None else read(value)
        for read, value in zip(readers, row, strict=True)
    )


def value_reader(field: Field) -> Reader | None:
    match field.type:
        case FieldType.BOOL:
            return bool
        case FieldType.DATE:
            return lambda text: date.fromisoformat(str(text))
        case FieldType.TIMESTAMP:
            return lambda text: datetime.fromisoformat(str(text))
        case FieldType.DECIMAL:
            return lambda text: Decimal(str(text))
        case FieldType.TEXT | FieldType.INT | FieldType.FLOAT | FieldType.JSON:
            return None


def version_reader(dataset: Dataset) -> Callable[[object], object]:
    field = next(field for field in dataset.fields if field.name == dataset.version)
    read = value_reader(field)
    return lambda value: value if value is None or read is None else read(value)


class SqliteTableCatalog:
    """The compiled tables of a process, each built once."""

    def __init__(self) -> None:
        self._tables: dict[str, SqliteTableSql] = {}

    def of(self, dataset: Dataset) -> SqliteTableSql:
        table = self._tables.get(dataset.name)
        if table is None or table.dataset is not dataset:
            table = self._tables[dataset.name] = SqliteTableSql(dataset)
        return table


def imports_of_rows(dataset: str) -> str:
    """Return the query for the imports that live rows name."""
    return f"select distinct _import from {quote(dataset)} where {IS_LIVE}"
