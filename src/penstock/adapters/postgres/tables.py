"""Compose the statements of a dataset's own table, whose columns users declare.

Identifiers are quoted; values are always parameters. Nothing else composes SQL.
"""

from collections.abc import Mapping, Sequence, Sized

from penstock.adapters.postgres.names import own_name
from penstock.adapters.postgres.searched import (
    has_place,
    in_sample,
    place_of,
    words_of,
)
from penstock.adapters.sql.keys import quoted
from penstock.adapters.sql.memos import (
    CURSOR,
    DIGEST,
    DROPPED,
    FIRST,
    LAST,
    PROOF,
    RECORDS,
    SEEN,
)
from penstock.adapters.sql.origins import FILE_NUMBER
from penstock.domain.dataset import Dataset, Field, FieldType, Reference

COLUMN_TYPES: Mapping[FieldType, str] = {
    FieldType.TEXT: "text",
    FieldType.INT: "bigint",
    FieldType.FLOAT: "double precision",
    FieldType.BOOL: "boolean",
    FieldType.DATE: "date",
    FieldType.TIMESTAMP: "timestamptz",
    # not jsonb: what the provider sent is kept as it was
    FieldType.JSON: "json",
}
# our own columns, beside the declared ones
OURS = (
    "_digest bytea not null",
    "_import bigint not null",
    "_created_at timestamptz not null",
    "_updated_at timestamptz not null",
    "_deleted_at timestamptz",
)
# by which a view is known to be ours
VIEW_MARK = "penstock: live rows"
# room for changed rows beside their old form, so that indexes need not be touched
FILL = 80
# what of them is written with a new row
WRITTEN = "_digest, _import, _created_at, _updated_at"
# where in its page a row stands
PLACE = "generate_series(1, cardinality(%(digests)s)) as _place"
# where a stored row is, and by which an update finds it again: nothing but a lookup
# by it can be planned, since no index has it and no table is read from end to end
WHERE_IT_IS = "kept.ctid as _ctid, kept.tableoid as _tableoid"
AT_ITS_PLACE = "kept.ctid = come._ctid and kept.tableoid = come._tableoid"
# where in its source a row of this import stands
RANK = "_rank bigint not null default 0"
# what a search index may hold unsorted, in kilobytes, before a writer has to sort it
PENDING = 16_384
# which rows clients see; an index of these alone does not grow by what is deleted
LIVE = "_deleted_at is null"
# rows that are deleted before those that are not get an index of their own by key
DEEP = 1_000


class Table:
    """The compiled statements of one dataset's table."""

    def __init__(
        self, dataset: Dataset, statements: Mapping[str, str], *, now: str
    ) -> None:
        self.dataset = dataset
        self.name = quoted(dataset.name)
        self.gone = quoted(own_name("penstock", "gone", dataset.name))
        # whether the last page that was stored was new as a whole
        self.grows = True
        self.create = creation(dataset)
        self.indexes = indexes(dataset)
        # while an index is replaced by another one of its name
        self.new_index = own_name("penstock", dataset.name, "", "new")
        self.replaced_index = own_name("penstock", dataset.name, "", "replaced")
        self.old_indexes = [own_name("penstock", dataset.name, "", "search")]
        self.deleted_index = deleted_index(dataset)
        self.live_index = own_name("penstock", dataset.name, "", "live")
        self.words_index = own_name("penstock", dataset.name, "", "words")
        self.sample_index = own_name("penstock", dataset.name, "", "sample")
        self.place_index = own_name("penstock", dataset.name, "", "place")
        # those that a search has found to be there
        self.valid_indexes: set[str] = set()
        by_name = {field.name: field for field in dataset.fields}
        self._key = [quoted(name) for name in dataset.key]
        self._key_fields = [by_name[name] for name in dataset.key]
        self._names = [quoted(field.name) for field in dataset.columns]
        self._cast = [
            quoted(field.name) + ("::json" if field.type is FieldType.JSON else "")
            for field in dataset.columns
        ]
        self._keys = ", ".join(self._key)
        self._written = f"{', '.join(self._names)}, {WRITTEN}" + (
            ", _rank" if dataset.is_ranked else ""
        )
        self._now = now
        self.insert = self._insert()
        self.merge = self._merge(track=False)
        self.merge_and_track = self._merge(track=True)
        self.touch = self._touch()
        self.hold = self._hold()
        self.outdo = self._outdo()
        self.store_page = statements["store_page"].replace("{insert}", self.insert)
        self.repeat_page = statements["repeat_page"].replace("{known}", self._known())
        shown = ", ".join(readable(field) for field in dataset.fields)
        self.rows = (
            f"select {shown} from {self.name} where _deleted_at is null "
            f"order by {', '.join(self._key)}"
        )
        self.rewrite = self._rewrite()
        self.remove = self._update(
            f"_deleted_at = {now}, {self._renewed()}", self._incoming_keys()
        )
        self.count = (
            f"select count(*) as counted from {self.name} where _deleted_at is null"
        )
        # of which an index tells, whatever the server thinks of their number
        self.is_deep = (
            f"select 1 as found from {self.name} where _deleted_at is not null "
            f"order by {self._keys} limit 1 offset {DEEP - 1:d}"
        )
        self.first = f"select 1 as found from {self.name} limit 1"
        rank = "_rank" if dataset.is_ranked else "0"
        self.stamp = (
            f"select _updated_at, _import, {rank} as rank from {self.name} "
            f"where {' and '.join(f'{name} = %s' for name in self._key)} for update"
        )
        missing = (
            "where _deleted_at is null and _import < %(import_id)s "
            "and _updated_at <= %(started)s"
        )
        self.missing_by_file = (
            f"select _import as import_id, {FILE_NUMBER} as file, count(*) as rows "
            f"from {self.name} {missing} group by 1, 2"
        )
        if dataset.is_ranked:
            missing += (
                f" and (_import, {FILE_NUMBER}) not in (select (origin ->> 0)::bigint, "
                "(origin ->> 1)::bigint from json_array_elements(%(kept)s::json) "
                "as origin)"
            )
        self.count_missing = f"select count(*) as counted from {self.name} {missing}"
        self.list_gone = (
            f"create temp table {self.gone} "
            "(place bigint generated always as identity, key text) on commit drop"
        )
        self.mark_missing = (
            f"with gone as (update {self.name} set _deleted_at = {now}, "
            f"_updated_at = {now} {missing} returning {self._key_text()} as key) "
            f"insert into pg_temp.{self.gone} (key) select key from gone"
        )
        self.note_missing = (
            "insert into penstock_change_page "
            "(dataset, first_seq, last_seq, created, updated, keys, import_id, at, "
            "tag, previous_tag) "
            "select %(dataset)s, %(before)s + min(place), %(before)s + max(place), "
            "0, 0, json_agg(key::json order by place), "
            f"%(import_id)s, {now}, %(tag)s, "
            "case when min(place) = 1 then %(previous_tag)s::bigint end "
            f"from pg_temp.{self.gone} "
            "group by (place - 1) / 10000"
        )

    def definition(self, index: str) -> str:
        """Return what an index is built on."""
        if index == self.live_index:
            # where others are deleted, it gives rows in the order of their key
            return f"{self.name} ({self._keys}) where {LIVE}"
        return self.indexes[index]

    def may_grow_by(self, records: Sized) -> bool:
        """Say whether rows are thought to be new, as those before them were.

        Keys are unique within a partition only, so there it cannot be tried. And of a
        single row too little follows for the next to be worth the try.
        """
        return self.grows and len(records) > 1 and self.dataset.partition is None

    def distinct(self, field: str) -> str:
        name = quoted(field)
        return (
            f"select distinct {name} from {self.name} "
            f"where _deleted_at is null and {name} is not null order by {name}"
        )

    def held(self, columns: str) -> str:
        """Compose how rows are held that a client is about to change."""
        return (
            "select kept._digest, kept._updated_at, kept._deleted_at is not null, "
            f"{columns} from {self._locked()}"
        )

    def set_local(self, fields: Sequence[Field]) -> str:
        """Compose how fields that no import touches are changed by a client."""
        names = [quoted(field.name) for field in fields]
        arrays = ", ".join(f"%(local_{at})s" for at in range(len(fields)))
        sets = ", ".join(
            f"{name} = come.{name}{'::json' if field.type is FieldType.JSON else ''}"
            for name, field in zip(names, fields, strict=True)
        )
        return self._update(
            sets,
            f"unnest({arrays}, {self._key_arrays()}) "
            f"as come ({', '.join(names)}, {self._keys})",
        )

    def _rewrite(self) -> str:
        """Compose how rows become what a client says, whatever they were."""
        sets = ", ".join(
            f"{name} = come.{value}"
            for name, value in zip(self._names, self._cast, strict=True)
        )
        return self._update(
            f"{sets}, _digest = come._digest, _deleted_at = null, {self._renewed()}",
            self._incoming(),
        )

    def _renewed(self) -> str:
        """Compose a time of change that this row never had before."""
        later = "kept._updated_at + interval '1 microsecond'"
        return f"_updated_at = greatest({self._now}, {later})"

    def _insert(self) -> str:
        """Compose the statement for pages of which every row is thought to be new."""
        return f"""
insert into {self.name} ({self._written})
select {self._values()} from {self._incoming()}"""

    def _merge(self, *, track: bool) -> str:
        """Compose the one statement that compares by hash and writes only changes.

        Each row of the page is compared with the stored one by one index lookup; what
        to write is decided there, and written by where the stored rows are. No other
        plan is possible, whatever the server believes about the table.

        With `track`, rows that are as they came are marked as seen by the import, and
        with the rank of their page where ranks decide.

        `missed` counts rows that were changed between the comparison and the update.
        A row that another transaction inserts at the same moment violates the key. In
        both cases the caller begins anew.
        """
        older = f"({self._older()}) as _is_older, " if self.dataset.is_ranked else ""
        seen = f"({self._seen()}) is true" if track else "false"
        return f"""
with compared as materialized (
    select * from (
        select come.*, kept._ctid, kept._tableoid, kept._xmin, {older}
            kept._ctid is null as _is_new,
            ({self._differs()}) is true as _is_changed,
            {seen} as _is_seen,
            kept._deleted_at is not null as _is_revived,
            ({self._again()}) is true as _is_again
        from {self._incoming(PLACE)}
        left join lateral ({self._compared()}) as kept on true
    ) as page
    where _is_new or _is_changed or _is_seen or _is_again
), stored as (
    insert into {self.name} ({self._written})
    select {self._values()} from compared where _is_new order by _place
), written as (
    update {self.name} as kept
    set {self._merged(track=track)}
    from (
        select * from compared where _is_changed or _is_seen order by _place
    ) as come
    where {AT_ITS_PLACE} and kept.xmin = come._xmin
    returning 1
)
select
    array_agg(_place order by _place) filter (where _is_new) as created,
    array_agg(_place order by _place) filter (where _is_changed and _is_revived)
        as revived,
    array_agg(_place order by _place) filter (where _is_changed and not _is_revived)
        as updated,
    count(*) filter (where _is_changed and _is_again and not _is_revived) as rewritten,
    count(*) filter (where _is_again) as again,
    count(*) filter (where _is_changed or _is_seen) - (select count(*) from written)
        as missed
from compared"""

    def _compared(self) -> str:
        """Compose the lookup of what a row of a page is compared with."""
        columns = ["_digest", "_deleted_at", "_import"]
        if self.dataset.is_ranked:
            columns.append("_rank")
        if self.dataset.version is not None:
            columns.append(quoted(self.dataset.version))
        return self._lookup(f"{', '.join(columns)}, xmin as _xmin, {WHERE_IT_IS}")

    def _merged(self, *, track: bool) -> str:
        """Compose what becomes of a stored row: that it changed, or was only seen."""
        new = {
            **dict(zip(self._names, self._cast, strict=True)),
            "_digest": "_digest",
        }
        values = {name: f"come.{value}" for name, value in new.items()}
        values["_updated_at"] = self._now
        if track:
            values = {
                name: f"case when come._is_changed then {value} else kept.{name} end"
                for name, value in values.items()
            }
        values["_import"] = "greatest(kept._import, %(import_id)s)"
        values["_deleted_at"] = "null"
        if self.dataset.is_ranked:
            # what stays because it is newer gets the least rank: of rows as new as
            # that, the last still wins
            values["_rank"] = (
                "case when come._is_older and not come._is_changed "
                "then least(1, %(rank)s) else %(rank)s end"
            )
        return ", ".join(f"{name} = {value}" for name, value in values.items())

    def _seen(self) -> str:
        """Compose whether a row that is stored as it came is to be marked as seen."""
        is_first = "kept._import < %(import_id)s"
        if self.dataset.is_ranked:
            is_first += (
                " or (kept._import = %(import_id)s and kept._rank < %(rank)s "
                f"and not ({self._older()}))"
            )
        return f"({self._changes()}) is not true and ({is_first})"

    def _lookup(self, columns: str, *, lock: str = "") -> str:
        """Compose how the stored row of `come` is found.

        With a limit it stays a lookup for each row, which the planner cannot turn
        around: the page is never read once for each stored row.
        """
        return (
            f"select {columns} from {self.name} as kept "
            f"where {self._same('kept', 'come')} limit 1{lock}"
        )

    def _update(self, sets: str, incoming: str) -> str:
        """Compose an update of rows by key; they have been locked before."""
        return (
            f"update {self.name} as kept set {sets} from ("
            f"select come.*, kept._ctid, kept._tableoid from {incoming} "
            f"cross join lateral ({self._lookup(WHERE_IT_IS)}) as kept"
            f") as come where {AT_ITS_PLACE}"
        )

    def _locked(self) -> str:
        """Compose the stored rows of keys, locked in the order of keys."""
        locked = self._lookup("kept.*", lock=" for no key update")
        return (
            f"(select * from {self._incoming_keys()} order by {self._keys}) as come "
            f"cross join lateral ({locked}) as kept"
        )

    def _hold(self) -> str:
        """Compose how the known rows of a page are locked, so that none changes."""
        return f"select count(*) as held from {self._locked()}"

    def _outdo(self) -> str:
        """Compose how complaints are settled by rows that win over what they are about.

        A row that was only seen, with a bad value, has no rank.
        """
        same = " and ".join(
            f"kept.{quoted(field.name)} = "
            f"(bad.key::json ->> {at})::{COLUMN_TYPES[field.type]}"
            for at, field in enumerate(self._key_fields)
        )
        wins = "kept._import > bad.import_id"
        if self.dataset.version is None:
            wins += (
                " or (kept._import = bad.import_id "
                "and kept._rank > %(start)s + bad.byte_offset)"
            )
        return f"""
update penstock_quarantine as bad set resolved = 'superseded'
where bad.job_id = %(job)s and bad.resolved is null and (
    select kept._rank > 0 and ({wins}) from {self.name} as kept where {same} limit 1
)"""

    def _incoming(self, *others: str) -> str:
        """Compose a page as rows; its arrays are numbered parameters.

        Arrays that are taken apart in a select become rows one by one; those of a
        `from` are first written down as a whole.
        """
        columns = [
            f"unnest(%(column_{at})s) as {name}" for at, name in enumerate(self._names)
        ]
        columns += ["unnest(%(digests)s) as _digest", *others]
        return f"(select {', '.join(columns)}) as come"

    def _values(self) -> str:
        ours = f"_digest, %(import_id)s, {self._now}, {self._now}"
        return f"{', '.join(self._cast)}, {ours}" + (
            ", %(rank)s" if self.dataset.is_ranked else ""
        )

    def _changes(self) -> str:
        """Compose what makes a row a change.

        What was deleted has no version any more that could be newer.
        """
        differs = "kept._digest <> come._digest"
        if self.dataset.version is not None:
            version = quoted(self.dataset.version)
            differs += (
                f" and (kept.{version} is null or come.{version} >= kept.{version})"
            )
        return f"kept._deleted_at is not null or ({differs})"

    def _older(self) -> str:
        """Compose whether a row is older than what is stored."""
        if self.dataset.version is None:
            return "false"
        version = quoted(self.dataset.version)
        return (
            f"(kept.{version} is not null and "
            f"(come.{version} is null or come.{version} < kept.{version}))"
        )

    def _differs(self) -> str:
        """Compose what makes a row a change that wins."""
        if not self.dataset.is_ranked:
            return self._changes()
        # of this import, what stands later in its source stays, unless it is older
        wins = "kept._rank <= %(rank)s"
        if self.dataset.version is not None:
            version = quoted(self.dataset.version)
            wins += (
                f" or come.{version} > kept.{version}"
                f" or (kept.{version} is null and come.{version} is not null)"
            )
        return (
            f"({self._changes()}) and (kept._import < %(import_id)s "
            f"or (kept._import = %(import_id)s and ({wins})))"
        )

    def _again(self) -> str:
        """Compose whether this import has brought a row before.

        One that was only seen, with a bad value, has no rank.
        """
        if not self.dataset.is_ranked:
            return "false"
        return "kept._import = %(import_id)s and kept._rank > 0"

    def _same(self, one: str, other: str) -> str:
        return " and ".join(f"{one}.{name} = {other}.{name}" for name in self._key)

    def _touch(self) -> str:
        unranked = ", _rank = 0" if self.dataset.is_ranked else ""
        touched = self._update(
            f"_import = %(import_id)s{unranked}", self._incoming_keys()
        )
        return f"{touched} and kept._import < %(import_id)s"

    def _incoming_keys(self) -> str:
        return f"unnest({self._key_arrays()}) as come ({self._keys})"

    def _key_arrays(self) -> str:
        return ", ".join(f"%(key_{index})s" for index in range(len(self._key)))

    def _known(self) -> str:
        """Compose what a known page brought, and whether just that is stored.

        One row more than it had tells as much as all of them. No dataset has the name
        of a table of the ledger, so that none is hidden by the dataset's own.
        """
        memo = "penstock_page.memo::json"

        def bound(place: int) -> str:
            values = (
                f"({memo} -> {place} ->> {at})::{COLUMN_TYPES[field.type]}"
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
    ) as kept
) as holds
from penstock_page
where imprint = %(imprint)s and not exists (
    select 1 from penstock_quarantine
    where dataset = %(dataset)s and resolved is null
)
limit 1"""

    def _key_text(self) -> str:
        """Compose a key as `key_text` writes it."""
        parts = " || ',' || ".join(json_text(field) for field in self._key_fields)
        return f"'[' || {parts} || ']'"


def json_text(field: Field) -> str:
    name = quoted(field.name)
    if field.type is FieldType.TIMESTAMP:
        form = """'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'"""
        return f"to_json(to_char({name} at time zone 'UTC', {form}))::text"
    return f"to_json({name})::text"


def readable(field: Field, of: str = "") -> str:
    name = f"{of}{quoted(field.name)}"
    return f"{name}::text" if field.type is FieldType.JSON else name


def collation(field: Field) -> str:
    # by bytes: the same order everywhere, and faster to compare
    return ' collate "C"' if field.type is FieldType.TEXT else ""


def known_values(reference: Reference) -> str:
    """Compose which of some values the rows have that a field refers to."""
    name, table = quoted(reference.field), quoted(reference.dataset)
    return (
        f"select distinct {name} as value from {table} "
        f"where {name} = any(%(values)s) and _deleted_at is null"
    )


def column(field: Field, dataset: Dataset) -> str:
    is_key = field.name in dataset.key or field.name == dataset.partition
    return (
        f"{quoted(field.name)} {COLUMN_TYPES[field.type]}{collation(field)}"
        f"{' not null' if is_key else ''}"
    )


def live_view(dataset: Dataset, columns: Sequence[str]) -> Sequence[str]:
    """Compose the view that shows these columns of the live rows."""
    view, shown = quoted(dataset.live_view), ", ".join(map(quoted, columns))
    live = f"select {shown} from {quoted(dataset.name)} where _deleted_at is null"
    return (
        f"create or replace view {view} as {live}",
        f"comment on view {view} is '{VIEW_MARK}'",
    )


def creation(dataset: Dataset) -> str:
    key = list(dataset.key)
    tail = f" with (fillfactor = {FILL})"
    if dataset.partition is not None:
        # PostgreSQL keeps keys unique within a partition only
        key += [dataset.partition] if dataset.partition not in key else []
        tail = f" partition by list ({quoted(dataset.partition)})"
    columns = [*(column(field, dataset) for field in dataset.fields), *OURS]
    if dataset.is_ranked:
        columns.append(RANK)
    columns.append(f"primary key ({', '.join(map(quoted, key))})")
    name = deleted_index(dataset)
    return (
        f"create table {quoted(dataset.name)} ({', '.join(columns)}){tail}; "
        # it stays empty while rows only come, and costs nothing as long
        f"create index {quoted(name)} on {indexes(dataset)[name]}"
    )


def deleted_index(dataset: Dataset) -> str:
    return own_name("penstock", dataset.name, "", "deleted")


def indexes(dataset: Dataset) -> dict[str, str]:
    """Return what is searched and filtered by, beside the key."""
    table = quoted(dataset.name)
    key = ", ".join(map(quoted, dataset.key))
    # by which it is known whether many rows are deleted
    found = {deleted_index(dataset): f"{table} ({key}) where _deleted_at is not null"}
    for name in dataset.filter:
        if name != dataset.key[0]:
            # with the key behind it, it also gives the rows in order, page by page
            columns = dict.fromkeys([name, *dataset.key])
            found[own_name("penstock", dataset.name, name)] = (
                f"{table} ({', '.join(map(quoted, columns))}) where {LIVE}"
            )
    if dataset.search:
        words = f"{table} using gin ({words_of(dataset)})"
        found[own_name("penstock", dataset.name, "", "words")] = (
            f"{words} with (fastupdate = on, gin_pending_list_limit = {PENDING}) "
            f"where {LIVE}"
        )
        found[own_name("penstock", dataset.name, "", "sample")] = (
            f"{words} with (fastupdate = off) where {LIVE} and {in_sample(dataset)}"
        )
    if dataset.geo is not None:
        found[own_name("penstock", dataset.name, "", "place")] = (
            f"{table} using gist ({place_of(dataset)}) "
            f"where {LIVE} and {has_place(dataset)}"
        )
    return found


class Tables:
    """The compiled tables of a process, each composed once."""

    def __init__(self, statements: Mapping[str, str], *, now: str) -> None:
        self._statements = statements
        self._now = now
        self._known: dict[str, Table] = {}

    def of(self, dataset: Dataset) -> Table:
        known = self._known.get(dataset.name)
        if known is None or known.dataset is not dataset:
            known = self._known[dataset.name] = Table(
                dataset, self._statements, now=self._now
            )
        return known
