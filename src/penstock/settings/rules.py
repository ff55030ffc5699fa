"""The rules of a dataset between its tables, and with the rest of the file."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from penstock.domain.dataset import LIVE, SYSTEM_COLUMNS, FieldType
from penstock.domain.source import Paging
from penstock.settings.declared import PenstockTable
from penstock.settings.declared_axes import (
    BboxTable,
    LimitsTable,
    ListTable,
    RangeTable,
    TimeTable,
    ValuesTable,
)
from penstock.settings.declared_dataset import (
    AnyDatasetTable,
    DatasetTable,
)
from penstock.settings.declared_field import built_field
from penstock.settings.declared_source import PagesTable, placeholders
from penstock.settings.problems import Problem, did_you_mean
from penstock.settings.servers import is_postgres
from penstock.settings.units import spell_duration

# who sends a parameter, where that is declared, and the parameter
Sent: TypeAlias = tuple[str, tuple[str, ...], str]

KEY_TYPES = frozenset(
    {FieldType.TEXT, FieldType.INT, FieldType.DATE, FieldType.TIMESTAMP}
)
PARTITION_TYPES = frozenset({FieldType.TEXT, FieldType.INT})
ORDERED_TYPES = KEY_TYPES | {FieldType.FLOAT}


# a table has ten less columns of ours than PostgreSQL, or SQLite, allows in all
MOST_FIELDS_POSTGRES, MOST_FIELDS = 1_590, 1_990
# behind the name of a table: the index of its key in PostgreSQL
PRIMARY_KEY = "_pkey"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What else the file declares: names even of what could not be read."""

    penstock: PenstockTable | None
    budgets: frozenset[str]
    # dataset -> its fields
    datasets: Mapping[str, frozenset[str]]

    @property
    def is_postgres(self) -> bool:
        return self.penstock is not None and is_postgres(self.penstock.database)


def broken_rules(table: AnyDatasetTable, around: Surroundings) -> Iterator[Problem]:
    """Yield what does not hold; paths are relative to the dataset."""
    yield from column_rules(table, around)
    yield from field_rules(table)
    yield from parent_rules(table, around)
    if around.penstock is not None:
        yield from lease_rules(table, around.penstock)
    if not isinstance(table, DatasetTable):
        return
    yield from axis_rules(table)
    yield from parameter_rules(table)
    yield from reference_rules(table, around)


def column_rules(table: AnyDatasetTable, around: Surroundings) -> Iterator[Problem]:
    """Refuse what the database cannot have as columns."""
    most = MOST_FIELDS_POSTGRES if around.is_postgres else MOST_FIELDS
    if len(table.fields) > most:
        told = f"{len(table.fields):,} fields are more than the {most:,} of a table"
        yield ("fields",), f"{told}; put what is seldom read into one json field"
    if around.is_postgres:
        for name in sorted(SYSTEM_COLUMNS & set(table.fields)):
            told = f"every table of PostgreSQL has a column {name} of its own"
            yield ("fields", name), f"{told}; call the field {name}_value"


def name_rules(datasets: Iterable[str], around: Surroundings) -> Iterator[Problem]:
    """Refuse a dataset whose name the view or the key of another one has."""
    names = set(datasets)
    taken = {LIVE: "the view of the live rows"}
    if around.is_postgres:
        taken[PRIMARY_KEY] = "the index of the key"
    for name in sorted(names):
        for ending, what in taken.items():
            other = name.removesuffix(ending)
            if other != name and other in names:
                told = f"is the name of {what} of dataset {other!r}"
                yield ("datasets", name), f"{told}; rename one of the two"


def field_rules(table: AnyDatasetTable) -> Iterator[Problem]:
    """Hold every list of fields against the declared fields."""
    any_type = frozenset(FieldType)
    # where, names, allowed types, whether a local field may stand there
    uses: list[tuple[str, Iterable[str], frozenset[FieldType], bool]] = [
        ("key", table.key, KEY_TYPES, False),
        ("search", table.search, frozenset({FieldType.TEXT}), True),
        ("geo", table.geo or (), frozenset({FieldType.FLOAT}), True),
        ("filter", table.filter, any_type - {FieldType.JSON}, True),
        ("version", [table.version] if table.version else (), ORDERED_TYPES, False),
        (
            "partition",
            [table.partition] if table.partition else (),
            PARTITION_TYPES,
            False,
        ),
    ]
    for where, names, types, may_be_local in uses:
        for name, times in Counter(names).items():
            if times > 1:
                yield (where,), f"names {name!r} twice"
            field = table.fields.get(name)
            if field is None:
                told = f"{name!r} is not a declared field"
                yield (where,), f"{told}; {did_you_mean(name, table.fields)}"
            elif field.local and not may_be_local:
                yield (where,), f"{name!r} is a local field, which no import brings"
            elif field.type not in types:
                wanted = " or ".join(sorted(types))
                yield (where,), f"{name!r} is of type {field.type}, not {wanted}"
            elif where == "key" and field.default is not None:
                told = "is never used: a key is always required"
                yield ("fields", name, "default"), told
            elif where == "partition" and may_be_empty(table, name):
                told = f"{name!r} may be missing, and then a row has no partition"
                yield (where,), f"{told}; give it required = true or a default"
    yield from length_rules(table)
    if all(field.local for field in table.fields.values()):
        yield ("fields",), "are all local; an import needs one to write"


def length_rules(table: AnyDatasetTable) -> Iterator[Problem]:
    """Refuse texts that are longer than an index can hold."""
    for name, field in table.fields.items():
        longest = table.longest_text(name)
        if longest is None:
            continue
        if field.max_length is not None and field.max_length > longest:
            told = f"{field.max_length} is more than an index holds of this text"
            yield (
                ("fields", name, "max_length"),
                f"{told}; give at most {longest}, or take it out of key and filter",
            )
        elif isinstance(field.default, str) and len(field.default) > longest:
            told = f"is longer than the {longest} characters that an index holds"
            yield ("fields", name, "default"), told


def may_be_empty(table: AnyDatasetTable, name: str) -> bool:
    # a default of spaces alone is none
    field = built_field(name, table.fields[name], is_key=name in table.key)
    return not field.required and field.default is None


def lease_rules(table: AnyDatasetTable, penstock: PenstockTable) -> Iterator[Problem]:
    timeout, lease = table.source.timeout, penstock.lease
    needed = timeout + penstock.wait + penstock.commit_timeout
    if needed >= lease:
        sums = " + ".join(
            f"{name} {spell_duration(length)}"
            for name, length in (
                ("timeout", timeout),
                ("penstock.wait", penstock.wait),
                ("penstock.commit_timeout", penstock.commit_timeout),
            )
        )
        total, held = spell_duration(needed), spell_duration(lease)
        told = f"{sums} = {total} does not fit in penstock.lease = {held}"
        remedy = "lengthen the lease or shorten one of them"
        yield ("source", "timeout"), f"{told}; {remedy}"


def axis_rules(table: DatasetTable) -> Iterator[Problem]:
    """Make sure that each axis reaches the provider, and by one way only."""
    in_url = placeholders(table.source.url)
    for name in dict.fromkeys(in_url):
        axis = table.shards.get(name)
        if axis is None:
            told = f"{{{name}}} names no shard axis"
            yield ("source", "url"), f"{told}; {did_you_mean(name, table.shards)}"
        elif not isinstance(axis, ListTable):
            told = f"{{{name}}}: only the value of a list axis can stand in a url"
            yield ("source", "url"), told
    pages = table.source.pages
    is_keyset = pages is not None and pages.by is Paging.KEYSET
    by_keyset = [name for name, axis in table.shards.items() if is_by_keyset(axis)]
    for name, axis in table.shards.items():
        if isinstance(axis, ListTable) and axis.send is None and name not in in_url:
            told = f"axis {name!r} is never sent: give it send"
            yield ("shards", name), f"{told}, or put {{{name}}} into the url"
        if name in by_keyset and not is_keyset:
            told = 'needs from and until without pages.by = "keyset"'
            yield ("shards", name, "send"), f"{told}, which stops at the end itself"
    for name in by_keyset[1:]:
        told = f"only one axis can follow the keyset, and {by_keyset[0]!r} does"
        yield ("shards", name), told


def is_by_keyset(axis: object) -> bool:
    """Say whether an axis ends where our own paging stops."""
    if not isinstance(axis, RangeTable):
        return False
    return axis.send is None or axis.send.start is None or axis.send.until is None


def parameter_rules(table: DatasetTable) -> Iterator[Problem]:
    """Refuse a parameter that two places would set: one would silently win."""
    taken: dict[str, str] = {}
    for where, at, name in sent_parameters(table):
        if name in taken:
            yield at, f"parameter {name!r} is sent by {taken[name]} too"
        taken.setdefault(name, where)


def sent_parameters(table: DatasetTable) -> Iterator[Sent]:
    if table.source.method == "GET":
        # by POST the others are sent in the body, where they meet no query
        for name in table.source.query:
            yield "source.query", ("source", "query", name), name
    pages = table.source.pages
    if pages is not None:
        yield from page_parameters(pages)
    position = None if pages is None else pages.send
    times = set[str]()
    for axis_name, axis in table.shards.items():
        for name in parameters_of(axis):
            if isinstance(axis, TimeTable):
                times.add(name)
            # a range may begin by the same parameter by which its pages go on
            if not (isinstance(axis, RangeTable) and name == position):
                yield f"shards.{axis_name}", ("shards", axis_name, "send"), name
    # a delta import may narrow a time axis by the parameter of its lower bound
    if table.delta is not None and table.delta.send not in times:
        yield "delta.send", ("delta", "send"), table.delta.send


def page_parameters(pages: PagesTable) -> Iterator[Sent]:
    at = ("source", "pages")
    if pages.send is not None:
        yield "source.pages.send", (*at, "send"), pages.send
    for name in pages.order:
        yield "source.pages.order", (*at, "order", name), name
    if pages.size is not None and pages.size.send is not None:
        yield "source.pages.size", (*at, "size", "send"), pages.size.send


def parameters_of(
    axis: ListTable | TimeTable | RangeTable | BboxTable,
) -> Iterator[str]:
    send = axis.send
    if isinstance(send, str):
        yield send
    elif isinstance(send, LimitsTable):
        yield from (name for name in (send.start, send.until) if name is not None)
    elif send is not None:
        yield from send.names.values()


def reference_rules(table: DatasetTable, around: Surroundings) -> Iterator[Problem]:
    budget = table.source.budget
    if budget is not None and budget not in around.budgets:
        told = f"budget {budget!r} is not declared"
        yield ("source", "budget"), f"{told}; {did_you_mean(budget, around.budgets)}"
    for name, values in borrowed(table):
        at = ("shards", name, "values")
        fields = around.datasets.get(values.dataset)
        if fields is None:
            told = f"dataset {values.dataset!r} is not declared"
            guess = did_you_mean(values.dataset, around.datasets)
            yield (*at, "dataset"), f"{told}; {guess}"
        elif values.field not in fields:
            told = f"{values.field!r} is not a field of {values.dataset!r}"
            yield (*at, "field"), f"{told}; {did_you_mean(values.field, fields)}"


def parent_rules(table: AnyDatasetTable, around: Surroundings) -> Iterator[Problem]:
    """Hold what fields refer to against the other datasets."""
    for name, field in table.fields.items():
        reference = field.reference()
        if reference is None:
            continue
        at = ("fields", name, "references")
        known = around.datasets.get(reference.dataset)
        if not reference.field:
            yield at, f"{field.references!r} is not 'dataset.field'"
        elif known is None:
            told = f"dataset {reference.dataset!r} is not declared"
            yield at, f"{told}; {did_you_mean(reference.dataset, around.datasets)}"
        elif reference.field not in known:
            told = f"{reference.field!r} is not a field of {reference.dataset!r}"
            yield at, f"{told}; {did_you_mean(reference.field, known)}"


def mismatches(tables: Mapping[str, AnyDatasetTable]) -> Iterator[Problem]:
    """Refuse references that could never match, or that no index helps to find."""
    for name, table in tables.items():
        for field_name, field in table.fields.items():
            reference = field.reference()
            parent = None if reference is None else tables.get(reference.dataset)
            if reference is None or parent is None:
                continue
            at = ("datasets", name, "fields", field_name, "references")
            target = parent.fields.get(reference.field)
            if target is None:
                continue
            if target.type is not field.type:
                told = f"{reference} is of type {target.type}, not {field.type}"
                yield at, told
            elif [reference.field] != parent.key and (
                reference.field not in parent.filter
            ):
                told = f"{reference} has no index; make it the key of"
                yield at, f"{told} {reference.dataset!r}, or name it in its filter"


def borrowed(table: AnyDatasetTable) -> Iterator[tuple[str, ValuesTable]]:
    """Yield the axes whose values another dataset brings."""
    for name, axis in table.shards.items():
        if isinstance(axis, ListTable) and isinstance(axis.values, ValuesTable):
            yield name, axis.values


def circles(tables: Mapping[str, AnyDatasetTable]) -> Iterator[Problem]:
    """Refuse datasets that wait for each other's values."""
    parents = {
        name: {values.dataset for _, values in borrowed(table)}
        for name, table in tables.items()
    }
    for name, table in tables.items():
        reached, waiting = set[str](), [*parents[name]]
        while waiting:
            parent = waiting.pop()
            if parent not in reached:
                reached.add(parent)
                waiting.extend(parents.get(parent, ()))
        if name in reached:
            axis, values = next(borrowed(table))
            told = f"dataset {name!r} would have to wait for itself"
            at = ("datasets", name, "shards", axis, "values", "dataset")
            yield at, f"{told}, through {values.dataset!r}"
