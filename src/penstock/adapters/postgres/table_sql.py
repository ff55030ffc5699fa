"""The SQL of a dataset's own table, whose columns users declare.

Identifiers are quoted; values are always parameters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from penstock.adapters.postgres.identifiers import own_name
from penstock.adapters.postgres.page_writes import TableState
from penstock.adapters.postgres.search.sql import (
    has_coordinates,
    in_sample,
    point_of,
    words_of,
)
from penstock.adapters.sqlstore.composed_sql import (
    archive_statement,
    ranked_statement,
    statement,
)
from penstock.adapters.sqlstore.key_encoding import quote
from penstock.adapters.sqlstore.page_summaries import (
    CURSOR,
    DIGEST,
    DROPPED,
    FIRST,
    LAST,
    PROOF,
    RECORDS,
    SEEN,
)
from penstock.adapters.sqlstore.row_origins import FILE_NUMBER
from penstock.domain.dataset import Dataset, Field, FieldType, Reference
from penstock.domain.pages import MAX_KEY_EXAMPLES

COLUMN_TYPES: Mapping[FieldType, str] = {
    FieldType.TEXT: "text",
    FieldType.INT: "bigint",
    FieldType.FLOAT: "double precision",
    FieldType.DECIMAL: "numeric",
    FieldType.BOOL: "boolean",
    FieldType.DATE: "date",
    FieldType.TIMESTAMP: "timestamptz",
    # not jsonb: the provider's text is stored unchanged
    FieldType.JSON: "json",
}
# added to the declared columns
SYSTEM_COLUMNS = (
    "_digest bytea not null",
    "_import bigint not null",
    "_created_at timestamptz not null",
    "_updated_at timestamptz not null",
    "_deleted_at timestamptz",
)
# the comment that marks a view as ours
VIEW_COMMENT = "penstock: live rows"
# leaves room on each page for HOT updates, which do not touch the indexes
FILL_FACTOR = 80
# the system columns that an insert sets
INSERTED_COLUMNS = "_digest, _import, _created_at, _updated_at"
# the position of a row in its page
POSITION = "generate_series(1, cardinality(%(digests)s)) as _position"
# the physical location of a stored row, by which an update finds it again: the only
# possible plan is a TID lookup, since no index has it and sequential scans are off
ROW_LOCATION = "stored.ctid as _ctid, stored.tableoid as _tableoid"
SAME_LOCATION = "stored.ctid = incoming._ctid and stored.tableoid = incoming._tableoid"
# the position of a row in the source of its import
RANK_COLUMN = "_rank bigint not null default 0"
# when a client wrote a row: it is never archived
EDITED_COLUMN = "_edited_at timestamptz"
# kilobytes that a GIN index may have pending before a writer has to merge them
MAX_PENDING_LIST = 16_384
# the rows that clients see; an index of these only does not grow by deleted rows
LIVE = "_deleted_at is null"
# the rows that an import has not seen, and that nobody has written since it started
MISSING = f"where {LIVE} and _import < %(import_id)s and _updated_at <= %(started)s"
# the live rows that no import has brought since a cut; import 0 are clients
EXPIRED = (
    "stored._deleted_at is null and stored._import between 1 and %(last_seen_by)s "
    "and stored._updated_at <= %(written_before)s and stored._edited_at is null"
)
# deleted rows from which on the live ones get an index by key of their own
LIVE_INDEX_THRESHOLD = 1_000


@dataclass(frozen=True, eq=False)
class PostgresTableSql:
    """The compiled statements of one dataset's table.

    Nothing in it changes, so threads and databases may share it.
    """

    dataset: Dataset
    # the named statements, of which some are completed for the dataset
    statements: Mapping[str, str]
    # the expression for the time
    now: str

    @cached_property
    def name(self) -> str:
        return quote(self.dataset.name)

    @cached_property
    def indexes(self) -> Mapping[str, str]:
        """The definitions of the indexes beside the primary key, by name."""
        return indexes(self.dataset)

    # names for the time while an index is replaced by another of the same name
    @cached_property
    def new_index(self) -> str:
        return self._own_name("new")

    @cached_property
    def replaced_index(self) -> str:
        return self._own_name("replaced")

    @cached_property
    def old_indexes(self) -> Sequence[str]:
        return [self._own_name("search")]

    @cached_property
    def deleted_index(self) -> str:
        return deleted_index(self.dataset)

    @cached_property
    def live_index(self) -> str:
        return self._own_name("live")

    @cached_property
    def words_index(self) -> str:
        return self._own_name("words")

    @cached_property
    def sample_index(self) -> str:
        return self._own_name("sample")

    @cached_property
    def geo_index(self) -> str:
        return self._own_name("place")

    def _own_name(self, what: str) -> str:
        return own_name("penstock", self.dataset.name, "", what)

    @statement
    def create(self) -> str:
        """Create the table: `penstock migrate`."""
        return create_table(self.dataset)

    @statement
    def store_page(self) -> str:
        """Commit a page whose rows are expected to be new, as its own transaction.

        For pages without bad rows, of imports that do not track which rows they see;
        not for partitioned tables.
        """
        return self.statements["store_page"].replace("{insert}", self.insert)

    @statement
    def insert(self) -> str:
        """Insert rows that are expected to be new: other such pages, and clients."""
        return f"""
insert into {self.name} ({self._inserted_columns})
select {self._values()} from {self._incoming()}"""

    @statement
    def merge(self) -> str:
        """Compare a page with the stored rows, and write the changes.

        For all pages that may contain existing rows.
        """
        return self._merge(track=False)

    @statement
    def merge_and_track(self) -> str:
        """Do the same for imports that delete missing rows: mark all rows as seen."""
        return self._merge(track=True)

    @statement
    def lock_rows(self) -> str:
        """Lock stored rows: before a retried page is compared, before `mark_seen`."""
        return f"select count(*) as locked from {self._locked()}"

    @statement
    def mark_seen(self) -> str:
        """Mark stored rows as seen by an import that read bad rows with their keys."""
        unranked = ", _rank = 0" if self.dataset.is_ranked else ""
        touched = self._update(
            f"_import = %(import_id)s{unranked}", self._incoming_keys()
        )
        return f"{touched} and stored._import < %(import_id)s"

    @statement
    def repeat_page(self) -> str:
        """Commit a page that was fetched before, if just its rows are still stored."""
        return self.statements["repeat_page"].replace(
            "{stored_page}", self._stored_page()
        )

    @ranked_statement
    def supersede_rejections(self) -> str:
        """Resolve bad rows of a file whose key has a stored row that wins over them.

        When all rows of the file are in. A row that was only seen has rank 0.
        """
        same = " and ".join(
            f"stored.{quote(field.name)} = "
            f"(bad.key::json ->> {at})::{COLUMN_TYPES[field.type]}"
            for at, field in enumerate(self._key_fields)
        )
        wins = "stored._import > bad.import_id"
        if self.dataset.version is None:
            wins += (
                " or (stored._import = bad.import_id "
                "and stored._rank > %(start)s + bad.byte_offset)"
            )
        return f"""
update penstock_quarantine as bad set resolved = 'superseded'
where bad.job_id = %(job)s and bad.resolved is null and (
    select stored._rank > 0 and ({wins}) from {self.name} as stored where {same} limit 1
)"""

    @ranked_statement
    def missing_by_file(self) -> str:
        """Count missing rows by import and file, before they are deleted."""
        return (
            f"select _import as import_id, {FILE_NUMBER} as file, count(*) as rows "
            f"from {self.name} {MISSING} group by 1, 2"
        )

    @statement
    def count_missing(self) -> str:
        """Count the rows that a finished import has not seen."""
        return f"select count(*) as counted from {self.name} {self._missing}"

    @statement
    def create_deleted_keys(self) -> str:
        """Create the table of the keys that `mark_missing` deletes."""
        return (
            f"create temp table {self._deleted_keys} "
            "(position bigint generated always as identity, key text) on commit drop"
        )

    @statement
    def mark_missing(self) -> str:
        """Mark the rows that a finished import has not seen as deleted."""
        return (
            f"with _deleted as (update {self.name} set _deleted_at = {self.now}, "
            f"_updated_at = {self.now} {self._missing} "
            f"returning {self._key_text()} as key) "
            f"insert into pg_temp.{self._deleted_keys} (key) select key from _deleted"
        )

    @statement
    def add_missing_changes(self) -> str:
        """Add the deletions of `mark_missing` to the changes."""
        return (
            "insert into penstock_change_page "
            "(dataset, first_seq, last_seq, created, updated, keys, import_id, at, "
            "tag, previous_tag) "
            "select %(dataset)s, %(last_seq)s + min(position), "
            "%(last_seq)s + max(position), 0, 0, "
            "json_agg(key::json order by position), "
            f"%(import_id)s, {self.now}, %(tag)s, "
            "case when min(position) = 1 then %(previous_tag)s::bigint end "
            f"from pg_temp.{self._deleted_keys} "
            "group by (position - 1) / 10000"
        )

    @statement
    def lock_version(self) -> str:
        """Lock a row and read its version: quarantine replay."""
        rank = "_rank" if self.dataset.is_ranked else "0"
        same = " and ".join(
            f"{name} = %(value_{at})s" for at, name in enumerate(self._key)
        )
        return (
            f"select _updated_at, _import, {rank} as rank from {self.name} "
            f"where {same} for update"
        )

    def lock_records(self, fields: Sequence[Field]) -> str:
        """Lock the rows that a client is about to change, and read these fields."""
        columns = ", ".join(readable(field, "stored.") for field in fields)
        return (
            "select stored._digest, stored._updated_at, "
            f"stored._deleted_at is not null, {columns} from {self._locked()}"
        )

    @statement
    def rewrite(self) -> str:
        """Overwrite rows with a client's values."""
        sets = ", ".join(
            f"{name} = incoming.{value}"
            for name, value in zip(self._names, self._cast, strict=True)
        )
        return self._update(
            f"{sets}, _digest = incoming._digest, _deleted_at = null, "
            f"{self._next_updated_at()}",
            self._incoming(),
        )

    @statement
    def remove(self) -> str:
        """Mark rows as deleted for a client."""
        return self._update(
            f"_deleted_at = {self.now}, {self._next_updated_at()}",
            self._incoming_keys(),
        )

    @archive_statement
    def mark_edited(self) -> str:
        """Mark rows as written by a client, so that they are never archived."""
        return self._update(f"_edited_at = {self.now}", self._incoming_keys())

    @archive_statement
    def first_expired(self) -> str:
        """Find the first rows that are to be archived."""
        return self._find_expired("")

    @archive_statement
    def next_expired(self) -> str:
        """Find the rows after a key that are to be archived."""
        after = ", ".join(f"%(value_{at})s" for at in range(len(self._key)))
        return self._find_expired(f" and ({self._keys}) > ({after})")

    @archive_statement
    def still_expired(self) -> str:
        """Lock rows that are to be archived, and check them again."""
        keys = ", ".join(f"stored.{name}" for name in self._key)
        return f"select {keys} from {self._locked()} where {self._expired}"

    @archive_statement
    def copy_to_archive(self) -> str:
        """Copy rows to the archive, with the time as that of their change."""
        names = [quote(field.name) for field in self.dataset.fields]
        names += ["_digest", "_import", "_created_at"]
        if self.dataset.is_ranked:
            names.append("_rank")
        return (
            f"insert into {quote(self.dataset.archived.name)} "
            f"({', '.join(names)}, _updated_at) "
            f"select {', '.join(f'stored.{name}' for name in names)}, {self.now} "
            f"from {self._incoming_keys()} "
            f"cross join lateral ({self._lookup('stored.*')}) as stored"
        )

    @archive_statement
    def delete(self) -> str:
        """Delete rows that were archived."""
        return (
            f"delete from {self.name} as stored using ("
            f"select stored._ctid, stored._tableoid from {self._incoming_keys()} "
            f"cross join lateral ({self._lookup(ROW_LOCATION)}) as stored"
            f") as incoming where {SAME_LOCATION}"
        )

    @archive_statement
    def delete_archived(self) -> str:
        """Delete rows from the archive that were stored again."""
        archive = PostgresTableSql(self.dataset.archived, self.statements, self.now)
        return archive.delete

    @statement
    def rows(self) -> str:
        """Read all rows by key: `penstock export`."""
        columns = ", ".join(readable(field) for field in self.dataset.fields)
        return (
            f"select {columns} from {self.name} where _deleted_at is null "
            f"order by {self._keys}"
        )

    @statement
    def count(self) -> str:
        """Count the rows when an import ends."""
        return f"select count(*) as counted from {self.name} where _deleted_at is null"

    @statement
    def find_many_deleted(self) -> str:
        """Find out whether live rows need an index of their own: index maintenance.

        By an index: the server's estimate may be far off.
        """
        return (
            f"select 1 as found from {self.name} where _deleted_at is not null "
            f"order by {self._keys} limit 1 offset {LIVE_INDEX_THRESHOLD - 1:d}"
        )

    @statement
    def find_any(self) -> str:
        """Find out whether the table has rows: `penstock migrate`, maintenance."""
        return f"select 1 as found from {self.name} limit 1"

    @cached_property
    def _deleted_keys(self) -> str:
        return quote(own_name("penstock", "gone", self.dataset.name))

    @cached_property
    def _key(self) -> Sequence[str]:
        return [quote(name) for name in self.dataset.key]

    @cached_property
    def _keys(self) -> str:
        return ", ".join(self._key)

    @cached_property
    def _key_fields(self) -> Sequence[Field]:
        by_name = {field.name: field for field in self.dataset.fields}
        return [by_name[name] for name in self.dataset.key]

    @cached_property
    def _names(self) -> Sequence[str]:
        return [quote(field.name) for field in self.dataset.columns]

    @cached_property
    def _cast(self) -> Sequence[str]:
        return [f"{quote(field.name)}{cast(field)}" for field in self.dataset.columns]

    @cached_property
    def _inserted_columns(self) -> str:
        rank = ", _rank" if self.dataset.is_ranked else ""
        return f"{', '.join(self._names)}, {INSERTED_COLUMNS}{rank}"

    @cached_property
    def _missing(self) -> str:
        if not self.dataset.is_ranked:
            return MISSING
        return (
            f"{MISSING} and (_import, {FILE_NUMBER}) not in ("
            "select (origin ->> 0)::bigint, (origin ->> 1)::bigint "
            "from json_array_elements(%(retained)s::json) as origin)"
        )

    @cached_property
    def _expired(self) -> str:
        local = [field for field in self.dataset.fields if field.local]
        unset = (f" and stored.{quote(field.name)} is null" for field in local)
        return EXPIRED + "".join(unset)

    def _find_expired(self, after: str) -> str:
        return (
            f"select {self._keys} from {self.name} as stored "
            f"where {self._expired}{after} order by {self._keys} limit %(limit)s"
        )

    def definition(self, index: str) -> str:
        """Return the table, columns and condition of an index."""
        if index == self.live_index:
            # gives live rows in the order of their key where many are deleted
            return f"{self.name} ({self._keys}) where {LIVE}"
        return self.indexes[index]

    def set_local_fields(self, fields: Sequence[Field]) -> str:
        """Return the update of local fields, which only clients change."""
        names = [quote(field.name) for field in fields]
        arrays = ", ".join(f"%(local_{at})s" for at in range(len(fields)))
        sets = ", ".join(
            f"{name} = incoming.{name}{cast(field)}"
            for name, field in zip(names, fields, strict=True)
        )
        return self._update(
            sets,
            f"unnest({arrays}, {self._key_arrays()}) "
            f"as incoming ({', '.join(names)}, {self._keys})",
        )

    def _next_updated_at(self) -> str:
        """Return an assignment of an update time that the row never had before."""
        later = "stored._updated_at + interval '1 microsecond'"
        return f"_updated_at = greatest({self.now}, {later})"

    def _merge(self, *, track: bool) -> str:
        """Return the one statement that compares by hash and writes only changes.

        Each row of the page is compared with the stored one by one index lookup, and
        changed rows are updated by their physical location. No other plan is possible,
        whatever the table's statistics say.

        With `track`, unchanged rows are marked as seen by the import, in ranked
        datasets with the rank of their page.

        `missed` counts rows that were changed between the comparison and the update.
        A row that another transaction inserts at the same moment violates the key. In
        both cases the caller retries.
        """
        older = f"({self._older()}) as _is_older, " if self.dataset.is_ranked else ""
        seen = f"({self._seen()}) is true" if track else "false"
        return f"""
with _compared as materialized (
    select * from (
        select incoming.*, stored._ctid, stored._tableoid, stored._xmin, {older}
            stored._ctid is null as _is_new,
            ({self._differs()}) is true as _is_changed,
            {seen} as _is_seen,
            stored._deleted_at is not null as _is_revived,
            ({self._repeats()}) is true as _is_repeat
        from {self._incoming(POSITION)}
        left join lateral ({self._stored_row()}) as stored on true
    ) as page
    where _is_new or _is_changed or _is_seen or _is_repeat
), _inserted as (
    insert into {self.name} ({self._inserted_columns})
    select {self._values()} from _compared where _is_new order by _position
), _updated as (
    update {self.name} as stored
    set {self._assignments(track=track)}
    from (
        select * from _compared where _is_changed or _is_seen order by _position
    ) as incoming
    where {SAME_LOCATION} and stored.xmin = incoming._xmin
    returning 1
)
select
    array_agg(_position order by _position) filter (where _is_new) as created,
    array_agg(_position order by _position)
        filter (where _is_changed and _is_revived) as revived,
    array_agg(_position order by _position)
        filter (where _is_changed and not _is_revived) as updated,
    count(*) filter (where _is_changed and _is_repeat and not _is_revived) as rewritten,
    count(*) filter (where _is_repeat) as again,
    (array_agg(_position order by _position) filter (where _is_repeat))
        [1:{MAX_KEY_EXAMPLES}] as repeated,
    count(*) filter (where _is_changed or _is_seen) - (select count(*) from _updated)
        as missed
from _compared"""

    def _stored_row(self) -> str:
        """Return the lookup of the stored row that a row of a page is compared with."""
        columns = ["_digest", "_deleted_at", "_import"]
        if self.dataset.is_ranked:
            columns.append("_rank")
        if self.dataset.version is not None:
            columns.append(quote(self.dataset.version))
        return self._lookup(f"{', '.join(columns)}, xmin as _xmin, {ROW_LOCATION}")

    def _assignments(self, *, track: bool) -> str:
        """Return the assignments for a stored row that changed or was only seen."""
        new = {
            **dict(zip(self._names, self._cast, strict=True)),
            "_digest": "_digest",
        }
        values = {name: f"incoming.{value}" for name, value in new.items()}
        values["_updated_at"] = self.now
        if track:
            values = {
                name: f"case when incoming._is_changed then {value} "
                f"else stored.{name} end"
                for name, value in values.items()
            }
        values["_import"] = "greatest(stored._import, %(import_id)s)"
        values["_deleted_at"] = "null"
        if self.dataset.is_ranked:
            # a stored row that stays because it is newer gets the lowest rank: of rows
            # with the same version, the last still wins
            values["_rank"] = (
                "case when incoming._is_older and not incoming._is_changed "
                "then least(1, %(rank)s) else %(rank)s end"
            )
        return ", ".join(f"{name} = {value}" for name, value in values.items())

    def _seen(self) -> str:
        """Return the condition by which an unchanged row is marked as seen."""
        is_first = "stored._import < %(import_id)s"
        if self.dataset.is_ranked:
            is_first += (
                " or (stored._import = %(import_id)s and stored._rank < %(rank)s "
                f"and not ({self._older()}))"
            )
        return f"({self._changes()}) is not true and ({is_first})"

    def _lookup(self, columns: str, *, lock: str = "") -> str:
        """Return the lookup of the stored row of `incoming` by key.

        The limit keeps it a lookup for each incoming row: the planner cannot reverse
        the join and read the page once for each stored row.
        """
        return (
            f"select {columns} from {self.name} as stored "
            f"where {self._same('stored', 'incoming')} limit 1{lock}"
        )

    def _update(self, sets: str, incoming: str) -> str:
        """Return an update of rows by key; the caller has locked them."""
        return (
            f"update {self.name} as stored set {sets} from ("
            f"select incoming.*, stored._ctid, stored._tableoid from {incoming} "
            f"cross join lateral ({self._lookup(ROW_LOCATION)}) as stored"
            f") as incoming where {SAME_LOCATION}"
        )

    def _locked(self) -> str:
        """Return a from-clause of the stored rows of keys, locked in key order."""
        locked = self._lookup("stored.*", lock=" for no key update")
        return (
            f"(select * from {self._incoming_keys()} order by {self._keys}) "
            f"as incoming cross join lateral ({locked}) as stored"
        )

    def _incoming(self, *others: str) -> str:
        """Return a page as rows; its arrays are numbered parameters.

        `unnest` in a select list is streamed; in a from-clause it is materialized.
        """
        columns = [
            f"unnest(%(column_{at})s) as {name}" for at, name in enumerate(self._names)
        ]
        columns += ["unnest(%(digests)s) as _digest", *others]
        return f"(select {', '.join(columns)}) as incoming"

    def _values(self) -> str:
        system = f"_digest, %(import_id)s, {self.now}, {self.now}"
        return f"{', '.join(self._cast)}, {system}" + (
            ", %(rank)s" if self.dataset.is_ranked else ""
        )

    def _changes(self) -> str:
        """Return the condition by which a row is a change.

        The version of a deleted row does not count.
        """
        differs = "stored._digest <> incoming._digest"
        if self.dataset.version is not None:
            version = quote(self.dataset.version)
            differs += (
                f" and (stored.{version} is null "
                f"or incoming.{version} >= stored.{version})"
            )
        return f"stored._deleted_at is not null or ({differs})"

    def _older(self) -> str:
        """Return the condition by which a row is older than the stored one."""
        if self.dataset.version is None:
            return "false"
        version = quote(self.dataset.version)
        return (
            f"(stored.{version} is not null and "
            f"(incoming.{version} is null or incoming.{version} < stored.{version}))"
        )

    def _differs(self) -> str:
        """Return the condition by which a row is a change that wins."""
        if not self.dataset.is_ranked:
            return self._changes()
        # within an import, the later row in its source wins, unless it is older
        wins = "stored._rank <= %(rank)s"
        if self.dataset.version is not None:
            version = quote(self.dataset.version)
            wins += (
                f" or incoming.{version} > stored.{version}"
                f" or (stored.{version} is null and incoming.{version} is not null)"
            )
        return (
            f"({self._changes()}) and (stored._import < %(import_id)s "
            f"or (stored._import = %(import_id)s and ({wins})))"
        )

    def _repeats(self) -> str:
        """Return the condition by which this import has stored the row before.

        In a file, a row that was only seen, with a bad value, has rank 0. From an API,
        an equal row may have been read twice, where pages or shards overlap.
        """
        if not self.dataset.is_ranked:
            return (
                "stored._import = %(import_id)s and stored._deleted_at is null "
                "and stored._digest <> incoming._digest"
            )
        return "stored._import = %(import_id)s and stored._rank > 0"

    def _same(self, one: str, other: str) -> str:
        return " and ".join(f"{one}.{name} = {other}.{name}" for name in self._key)

    def _incoming_keys(self) -> str:
        return f"unnest({self._key_arrays()}) as incoming ({self._keys})"

    def _key_arrays(self) -> str:
        return ", ".join(f"%(key_{index})s" for index in range(len(self._key)))

    def _stored_page(self) -> str:
        """Return the select of an earlier page and of whether just its rows are stored.

        Reading one row more than the page had is enough to see that there are others.
        No dataset has the name of a table of the ledger, so none of these is hidden.
        """
        memo = "penstock_page.memo::json"

        def bound(index: int) -> str:
            values = (
                f"({memo} -> {index} ->> {at})::{COLUMN_TYPES[field.type]}"
                for at, field in enumerate(self._key_fields)
            )
            return f"({', '.join(values)})"

        records = f"({memo} ->> {RECORDS})::bigint"
        return f"""
select penstock_page.memo, penstock_page.cursor_after,
    ({memo} ->> {SEEN})::bigint as seen,
    ({memo} ->> {DROPPED})::bigint as dropped,
    {memo} ->> {CURSOR} as cursor,
    {memo} ->> {PROOF} as proof, (
    select count(*) = {records} and count(_deleted_at) = 0
        and sha256(string_agg(_digest, ''::bytea))
            = decode({memo} ->> {DIGEST}, 'hex')
    from (
        select _digest, _deleted_at from {self.name}
        where ({self._keys}) >= {bound(FIRST)} and ({self._keys}) <= {bound(LAST)}
        order by {self._keys} limit {records} + 1
    ) as stored
) as is_stored
from penstock_page
where imprint = %(imprint)s and not exists (
    select 1 from penstock_quarantine
    where dataset = %(dataset)s and resolved is null
)
limit 1"""

    def _key_text(self) -> str:
        """Return an expression for a key in the format of `encode_key_text`."""
        parts = " || ',' || ".join(json_text(field) for field in self._key_fields)
        return f"'[' || {parts} || ']'"


def json_text(field: Field) -> str:
    name = quote(field.name)
    if field.type is FieldType.TIMESTAMP:
        form = """'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'"""
        return f"to_json(to_char({name} at time zone 'UTC', {form}))::text"
    if field.type is FieldType.DECIMAL:
        name = f"{name}::text"
    return f"to_json({name})::text"


def readable(field: Field, table: str = "") -> str:
    name = f"{table}{quote(field.name)}"
    return f"{name}::text" if field.type is FieldType.JSON else name


def cast(field: Field) -> str:
    """Return the cast of a parameter; arrays of JSON are sent as text."""
    return "::json" if field.type is FieldType.JSON else ""


def collation(field: Field) -> str:
    # by bytes: the same order on every server, and faster to compare
    return ' collate "C"' if field.type is FieldType.TEXT else ""


def existing_values(reference: Reference) -> str:
    """Return the select of those values that live rows of the other dataset have."""
    name, table = quote(reference.field), quote(reference.dataset)
    return (
        f"select distinct {name} as value from {table} "
        f"where {name} = any(%(values)s) and _deleted_at is null"
    )


def column(field: Field, dataset: Dataset) -> str:
    is_key = field.name in dataset.key or field.name == dataset.partition
    return (
        f"{quote(field.name)} {COLUMN_TYPES[field.type]}{collation(field)}"
        f"{' not null' if is_key else ''}"
    )


def live_view(dataset: Dataset, columns: Sequence[str]) -> Sequence[str]:
    """Return the statements that create the view of the live rows."""
    view, selected = quote(dataset.live_view), ", ".join(map(quote, columns))
    live = f"select {selected} from {quote(dataset.name)} where _deleted_at is null"
    return (
        f"create or replace view {view} as {live}",
        f"comment on view {view} is '{VIEW_COMMENT}'",
    )


def create_table(dataset: Dataset) -> str:
    key = list(dataset.key)
    options = f" with (fillfactor = {FILL_FACTOR})"
    if dataset.partition is not None:
        # PostgreSQL enforces unique keys within a partition only
        key += [dataset.partition] if dataset.partition not in key else []
        options = f" partition by list ({quote(dataset.partition)})"
    columns = [*(column(field, dataset) for field in dataset.fields), *SYSTEM_COLUMNS]
    if dataset.is_ranked:
        columns.append(RANK_COLUMN)
    if dataset.archive is not None:
        columns.append(EDITED_COLUMN)
    columns.append(f"primary key ({', '.join(map(quote, key))})")
    name = deleted_index(dataset)
    return (
        f"create table {quote(dataset.name)} ({', '.join(columns)}){options}; "
        # empty and free until the first row is deleted
        f"create index {quote(name)} on {indexes(dataset)[name]}"
    )


def deleted_index(dataset: Dataset) -> str:
    return own_name("penstock", dataset.name, "", "deleted")


def indexes(dataset: Dataset) -> dict[str, str]:
    """Return the definitions of the indexes beside the primary key, by name."""
    table = quote(dataset.name)
    key = ", ".join(map(quote, dataset.key))
    # finds out whether many rows are deleted
    definitions = {
        deleted_index(dataset): f"{table} ({key}) where _deleted_at is not null"
    }
    for name in dataset.filter:
        if name != dataset.key[0]:
            # followed by the key, so that it serves keyset pagination
            columns = dict.fromkeys([name, *dataset.key])
            definitions[own_name("penstock", dataset.name, name)] = (
                f"{table} ({', '.join(map(quote, columns))}) where {LIVE}"
            )
    if dataset.search:
        words = f"{table} using gin ({words_of(dataset)})"
        definitions[own_name("penstock", dataset.name, "", "words")] = (
            f"{words} with (fastupdate = on, "
            f"gin_pending_list_limit = {MAX_PENDING_LIST}) where {LIVE}"
        )
        definitions[own_name("penstock", dataset.name, "", "sample")] = (
            f"{words} with (fastupdate = off) where {LIVE} and {in_sample(dataset)}"
        )
    if dataset.geo is not None:
        definitions[own_name("penstock", dataset.name, "", "place")] = (
            f"{table} using gist ({point_of(dataset)}) "
            f"where {LIVE} and {has_coordinates(dataset)}"
        )
    return definitions


class PostgresTableCatalog:
    """The compiled SQL and the state of a process's tables, by dataset."""

    def __init__(self, statements: Mapping[str, str], *, now: str) -> None:
        self._statements = statements
        self._now = now
        self._tables: dict[str, tuple[PostgresTableSql, TableState]] = {}

    def of(self, dataset: Dataset) -> PostgresTableSql:
        return self._table(dataset)[0]

    def state(self, dataset: Dataset) -> TableState:
        return self._table(dataset)[1]

    def _table(self, dataset: Dataset) -> tuple[PostgresTableSql, TableState]:
        table = self._tables.get(dataset.name)
        # a declaration that was read again may differ
        if table is None or table[0].dataset is not dataset:
            compiled = PostgresTableSql(dataset, self._statements, self._now)
            table = self._tables[dataset.name] = compiled, TableState()
        return table


def imports_of_rows(dataset: str) -> str:
    """Return the query for the imports that live rows name."""
    return f"select distinct _import from {quote(dataset)} where {LIVE}"
