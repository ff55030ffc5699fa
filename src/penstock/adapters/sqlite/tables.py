"""Compose the statements of a dataset's own table, whose columns users declare.

Identifiers are quoted; values are always parameters. Nothing else composes SQL.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import NamedTuple, TypeAlias

from penstock.adapters.sql.keys import plain_value, quoted
from penstock.adapters.sql.origins import FILE_NUMBER, read_origins, write_origins
from penstock.adapters.sql.schema import STAMPS
from penstock.domain.dataset import Dataset, Field, FieldType, Reference
from penstock.domain.lost_files import Origin
from penstock.domain.page import Key, Record

COLUMN_TYPES: Mapping[FieldType, str] = {
    FieldType.TEXT: "text",
    FieldType.INT: "integer",
    FieldType.FLOAT: "real",
    FieldType.BOOL: "integer",
    FieldType.DATE: "text",
    FieldType.TIMESTAMP: "text",
    FieldType.JSON: "text",
}

Reader: TypeAlias = Callable[[object], object]
Row: TypeAlias = tuple[object, ...]

# our own columns, beside the declared ones
OURS = (
    "_digest blob not null",
    "_import integer not null",
    "_created_at integer not null",
    "_updated_at integer not null",
    "_deleted_at integer",
)


# which rows clients see
LIVE = "_deleted_at is null"
# rows that are deleted before those that are not get an index of their own by key
DEEP = 1_000
# where in its source a row of this import stands
RANK = "_rank integer not null default 0"


# by which a view is known to be ours
VIEW_MARK = "/* penstock */"
# a time of ours as times of the fields are written
STAMP = (
    "strftime('%Y-%m-%dT%H:%M:%S', {0} / 1000000, 'unixepoch') "
    "|| printf('.%06dZ', {0} % 1000000) as {0}"
)


class Known(NamedTuple):
    """What is stored under a key already."""

    digest: bytes
    is_deleted: bool
    updated_at: int
    version: object
    import_id: int
    rank: int


class ReservedChanges(NamedTuple):
    """The number after which changes stand, their tag, and that of the one before."""

    before: int
    tag: int
    previous_tag: int


class Table:
    """The compiled statements of one dataset's table."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        names = [quoted(field.name) for field in dataset.columns]
        key = [quoted(name) for name in dataset.key]
        table = quoted(dataset.name)
        self._has_dates = any(
            field.type in {FieldType.DATE, FieldType.TIMESTAMP}
            for field in dataset.columns
        )
        self._version = None if dataset.version is None else version_reader(dataset)
        matches_key = " and ".join(f"{name} = ?" for name in key)
        asked = (
            f"{key[0]} in (select value from json_each(?))"
            if len(key) == 1
            else "({}) in (select {} from json_each(?))".format(
                ", ".join(key),
                ", ".join(f"json_extract(value, '$[{i}]')" for i in range(len(key))),
            )
        )
        version = "null" if dataset.version is None else quoted(dataset.version)
        self.create = create_statement(dataset)
        # a colon stands in no declared name, so these are nobody's tables
        ours = f"penstock:{dataset.name}:"
        self.deleted_index = f"{ours}:deleted"
        self.live_index = f"{ours}:live"
        # by which it is known whether many rows are deleted; an index of those that are
        # not does not grow by them
        self.indexes = {
            self.deleted_index: f"{table} ({', '.join(key)}) "
            "where _deleted_at is not null",
            **{
                f"{ours}{name}": f"{table} ({quoted(name)}) where {LIVE}"
                for name in dataset.filter
                if [name] != list(dataset.key)
            },
        }
        if dataset.geo is not None:
            place = ", ".join(map(quoted, dataset.geo))
            self.indexes[f"{ours}:place"] = f"{table} ({place}) where {LIVE}"
        self._live = f"{table} ({', '.join(key)}) where {LIVE}"
        self._is_deep = (
            f"select 1 from {table} where _deleted_at is not null "
            f"limit 1 offset {DEEP - 1:d}"
        )
        rank = "_rank" if dataset.is_ranked else "0"
        self._known = (
            f"select {', '.join(key)}, _digest, _deleted_at is not null, _updated_at, "
            f"{version}, _import, {rank} from {table} where {asked}"
        )
        bound = f"({', '.join('?' * len(key))})"
        self._between = (
            f"select _digest, _deleted_at is not null from {table} "
            f"where ({', '.join(key)}) >= {bound} and ({', '.join(key)}) <= {bound} "
            f"order by {', '.join(key)} limit ?"
        )
        places = ", ".join("?" * (len(names) + 4))
        self._insert = (
            f"insert into {table} ({', '.join(names)}, _digest, _import, _created_at, "
            f"_updated_at) values ({places})"
        )
        sets = ", ".join(f"{name} = ?" for name in names)
        self._update = (
            f"update {table} set {sets}, _digest = ?, _import = max(_import, ?), "
            f"_updated_at = ?, _deleted_at = null where {matches_key}"
        )
        # a slower, older import must not take back that a newer one has seen a row
        unranked = (
            ", _rank = case when _import < ?1 then 0 else _rank end"
            if dataset.is_ranked
            else ""
        )
        self._touch = (
            f"update {table} set _import = max(_import, ?1){unranked} "
            f"where {asked.replace('?', '?2')}"
        )
        every = ", ".join(quoted(field.name) for field in dataset.fields)
        self._whole = (
            f"select _digest, _updated_at, _deleted_at is not null, {every} "
            f"from {table} where {asked}"
        )
        self._remove = (
            f"update {table} set _deleted_at = ?1, _updated_at = ?1 "
            f"where {asked.replace('?', '?2')}"
        )
        self._matches_key = matches_key
        self._raise = f"update {table} set _rank = ? where {asked}"
        self._outdo = outdo_statement(dataset)
        all_names = ", ".join(quoted(field.name) for field in dataset.fields)
        self._rows = (
            f"select {all_names} from {table} where _deleted_at is null "
            f"order by {', '.join(key)}"
        )
        self._count = f"select count(*) from {table} where _deleted_at is null"
        # what another import or a replay wrote since the start is not missing
        missing = (
            "where _deleted_at is null and _import < :import_id "
            "and _updated_at <= :started"
        )
        self._missing_by_file = (
            f"select _import as import_id, {FILE_NUMBER} as file, count(*) as rows "
            f"from {table} {missing} group by 1, 2"
        )
        if dataset.is_ranked:
            missing += (
                f" and (_import, {FILE_NUMBER}) not in (select "
                "json_extract(value, '$[0]'), json_extract(value, '$[1]') "
                "from json_each(:kept))"
            )
        self._count_missing = f"select count(*) from {table} {missing}"
        self._note_missing = (
            "insert into penstock_change "
            "(dataset, seq, kind, key, import_id, at, tag, previous_tag) "
            "select :dataset, :before + row_number() over (), 'deleted', "
            f"json_array({', '.join(key)}), :import_id, :now, :tag, "
            "case when row_number() over () = 1 then :previous_tag end "
            f"from {table} {missing}"
        )
        self._mark_missing = (
            f"update {table} set _deleted_at = :now, _updated_at = :now {missing}"
        )

    def missing_indexes(self, connection: sqlite3.Connection) -> list[str]:
        """Return the indexes that are not there, or hold deleted rows, too."""
        found = connection.execute(
            "select name from sqlite_schema where type = 'index' and tbl_name = ? "
            "and sql like '% where _deleted_at is %'",
            (self.dataset.name,),
        )
        stored = {row[0] for row in found}
        missing = [name for name in self.indexes if name not in stored]
        if self.deleted_index in stored and self.live_index not in stored:
            is_deep = connection.execute(self._is_deep).fetchone() is not None
            missing += [self.live_index] if is_deep else []
        return missing

    def build_indexes(self, connection: sqlite3.Connection) -> list[str]:
        done: list[str] = []
        # whether many rows are deleted is only known by an index that may be missing
        while missing := [
            name for name in self.missing_indexes(connection) if name not in done
        ]:
            name = missing[0]
            definition = self.indexes.get(name, self._live)
            connection.execute(f"drop index if exists {quoted(name)}")
            connection.execute(f"create index {quoted(name)} on {definition}")
            done.append(name)
        return done

    def known(
        self, connection: sqlite3.Connection, keys: Iterable[Key]
    ) -> dict[Key, Known]:
        """Look up what is stored under these keys, in one statement."""
        width = len(self.dataset.key)
        read_version = self._version
        found = {}
        for row in connection.execute(self._known, (self._asked(keys),)):
            version = None if read_version is None else read_version(row[width + 3])
            found[tuple(row[:width])] = Known(
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
        """Return digests from a key to another, and which rows are deleted."""
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
        """Note that an import has seen these keys, whatever became of their rows."""
        connection.execute(self._touch, (import_id, self._asked(keys)))

    def set_rank(
        self, connection: sqlite3.Connection, keys: Iterable[Key], rank: int
    ) -> None:
        connection.execute(self._raise, (rank, self._asked(keys)))

    def outdo(self, connection: sqlite3.Connection, *, job: int, start: int) -> None:
        """Settle the complaints of a job about keys of which a good row won."""
        connection.execute(self._outdo, {"job": job, "start": start})

    def whole(
        self, connection: sqlite3.Connection, keys: Sequence[Key]
    ) -> Iterator[tuple[bytes, int, bool, tuple[object, ...]]]:
        """Yield stored rows, deleted or not: digest, time of change, all fields."""
        readers = [value_reader(field) for field in self.dataset.fields]
        for row in connection.execute(self._whole, (self._asked(keys),)):
            digest, updated_at, is_deleted, *values = row
            yield digest, updated_at, bool(is_deleted), read_all(readers, values)

    def set_local(
        self,
        connection: sqlite3.Connection,
        names: Sequence[str],
        rows: Iterable[tuple[Key, Mapping[str, object]]],
    ) -> None:
        """Change fields that no import touches."""
        sets = ", ".join(f"{quoted(name)} = ?" for name in names)
        connection.executemany(
            f"update {quoted(self.dataset.name)} set {sets} where {self._matches_key}",
            [
                [*map(plain_value, (*(local[name] for name in names), *key))]
                for key, local in rows
            ],
        )

    def remove(
        self, connection: sqlite3.Connection, keys: Sequence[Key], *, now: int
    ) -> None:
        connection.execute(self._remove, (now, self._asked(keys)))

    def rows(self, connection: sqlite3.Connection) -> Iterator[Row]:
        readers = [value_reader(field) for field in self.dataset.fields]
        for row in connection.execute(self._rows):
            yield read_all(readers, row)

    def count(self, connection: sqlite3.Connection) -> int:
        return int(connection.execute(self._count).fetchone()[0])

    def distinct(self, connection: sqlite3.Connection, field: str) -> Iterator[str]:
        name, table = quoted(field), quoted(self.dataset.name)
        for row in connection.execute(
            f"select distinct {name} from {table} "
            f"where _deleted_at is null and {name} is not null order by {name}"
        ):
            yield str(row[0])

    def count_missing(
        self,
        connection: sqlite3.Connection,
        *,
        import_id: int,
        started: int,
        kept: Sequence[Origin],
    ) -> int:
        """Count the live rows that an import has not seen, but for some origins."""
        told = {
            "import_id": import_id,
            "started": started,
            "kept": write_origins(kept),
        }
        found = connection.execute(self._count_missing, told)
        return int(found.fetchone()[0])

    def missing_by_file(
        self, connection: sqlite3.Connection, *, import_id: int, started: int
    ) -> dict[Origin, int]:
        """Count all of those rows by where they were seen last."""
        told = {"import_id": import_id, "started": started}
        return read_origins(connection.execute(self._missing_by_file, told))

    def mark_missing(
        self,
        connection: sqlite3.Connection,
        *,
        import_id: int,
        started: int,
        kept: Sequence[Origin],
        changes: ReservedChanges,
        now: int,
    ) -> None:
        """Mark those rows as deleted, with their events, without reading them here."""
        told = {
            "dataset": self.dataset.name,
            "import_id": import_id,
            "started": started,
            "kept": write_origins(kept),
            **changes._asdict(),
            "now": now,
        }
        connection.execute(self._note_missing, told)
        connection.execute(self._mark_missing, told)

    def stored(self, values: Sequence[object]) -> Sequence[object]:
        """Give values the form in which SQLite keeps them."""
        if not self._has_dates:
            return values
        return [plain_value(value) for value in values]

    def _asked(self, keys: Iterable[Key]) -> str:
        if len(self.dataset.key) == 1:
            return json.dumps([plain_value(key[0]) for key in keys])
        return json.dumps([[plain_value(part) for part in key] for key in keys])


def create_statement(dataset: Dataset, *, name: str | None = None) -> str:
    columns = []
    # a single whole-number key is the row id itself: no second index to keep
    is_rowid = len(dataset.key) == 1 and (
        {field.name: field.type for field in dataset.fields}[dataset.key[0]]
        is FieldType.INT
    )
    for field in dataset.fields:
        definition = f"{quoted(field.name)} {COLUMN_TYPES[field.type]}"
        if field.name in dataset.key:
            definition += " primary key" if is_rowid else " not null"
        columns.append(definition)
    columns.extend(OURS)
    if dataset.is_ranked:
        columns.append(RANK)
    if not is_rowid:
        columns.append(f"primary key ({', '.join(map(quoted, dataset.key))})")
    tail = "strict" if is_rowid else "strict, without rowid"
    table = quoted(dataset.name if name is None else name)
    return f"create table {table} ({', '.join(columns)}) {tail}"


def live_view(dataset: Dataset, columns: Sequence[str]) -> str:
    """Compose the view that shows these columns of the live rows."""
    shown = ", ".join(
        STAMP.format(name) if name in STAMPS else quoted(name) for name in columns
    )
    return (
        f"create view {quoted(dataset.live_view)} as {VIEW_MARK} select {shown} "
        f"from {quoted(dataset.name)} where _deleted_at is null"
    )


def is_empty(connection: sqlite3.Connection, dataset: Dataset) -> bool:
    found = connection.execute(f"select 1 from {quoted(dataset.name)} limit 1")
    return found.fetchone() is None


def outdo_statement(dataset: Dataset) -> str:
    """Compose how complaints are settled by rows that win over what they are about.

    A row that was only seen, with a bad value, has no rank.
    """
    same = " and ".join(
        f"kept.{quoted(name)} = json_extract(bad.key, '$[{place}]')"
        for place, name in enumerate(dataset.key)
    )
    wins = "kept._import > bad.import_id"
    if dataset.version is None:
        wins += (
            " or (kept._import = bad.import_id and kept._rank > :start + byte_offset)"
        )
    return (
        "update penstock_quarantine as bad set resolved = 'superseded' "
        "where job_id = :job and resolved is null and exists ("
        f"select 1 from {quoted(dataset.name)} as kept "
        f"where {same} and kept._rank > 0 and ({wins}))"
    )


def known_values(reference: Reference) -> str:
    """Compose which of some values the rows have that a field refers to."""
    name, table = quoted(reference.field), quoted(reference.dataset)
    return (
        f"select distinct {name} as value from {table} "
        f"where {name} in (select value from json_each(?)) and _deleted_at is null"
    )


def read_all(readers: Sequence[Reader | None], row: Iterable[object]) -> Row:
    """Give stored values the types that the domain knows."""
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
        case FieldType.TEXT | FieldType.INT | FieldType.FLOAT | FieldType.JSON:
            return None


def version_reader(dataset: Dataset) -> Callable[[object], object]:
    field = next(each for each in dataset.fields if each.name == dataset.version)
    read = value_reader(field)
    return lambda value: value if value is None or read is None else read(value)


class Tables:
    """The compiled tables of a process, each composed once."""

    def __init__(self) -> None:
        self._known: dict[str, Table] = {}

    def of(self, dataset: Dataset) -> Table:
        known = self._known.get(dataset.name)
        if known is None or known.dataset is not dataset:
            known = self._known[dataset.name] = Table(dataset)
        return known
