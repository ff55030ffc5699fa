"""Rules between the tables of a dataset, and with the rest of the file."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from penstock.domain.dataset import (
    LIVE_VIEW_SUFFIX,
    ROW_KEY,
    SYSTEM_COLUMNS,
    WHOLE_ROW,
    FieldType,
)
from penstock.domain.source import Paging
from penstock.settings.models.axes import (
    BboxTable,
    LimitsTable,
    ListTable,
    RangeTable,
    TimeTable,
    ValuesTable,
)
from penstock.settings.models.base import PenstockTable
from penstock.settings.models.dataset import AnyDatasetTable, DatasetTable
from penstock.settings.models.field import build_field
from penstock.settings.models.source import PagesTable, placeholders
from penstock.settings.units import format_duration
from penstock.settings.urls import is_postgres
from penstock.settings.validation_errors import Problem, did_you_mean

# the sender of a parameter, the key path of its declaration, and its name
SentParameter: TypeAlias = tuple[str, tuple[str, ...], str]

KEY_TYPES = frozenset(
    {
        *(FieldType.TEXT, FieldType.INT, FieldType.DECIMAL),
        *(FieldType.DATE, FieldType.TIMESTAMP),
    }
)
PARTITION_TYPES = frozenset({FieldType.TEXT, FieldType.INT})
ORDERED_TYPES = KEY_TYPES | {FieldType.FLOAT}


# the limits of PostgreSQL and SQLite, less ten columns of our own
MAX_FIELDS_POSTGRES, MAX_FIELDS = 1_590, 1_990
# PostgreSQL names the index of a primary key so
PRIMARY_KEY_SUFFIX = "_pkey"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationContext:
    """The rest of the file: includes the names of invalid tables."""

    penstock: PenstockTable | None
    budgets: frozenset[str]
    # dataset -> its fields
    datasets: Mapping[str, frozenset[str]]

    @property
    def is_postgres(self) -> bool:
        return self.penstock is not None and is_postgres(self.penstock.database)


def dataset_rules(
    table: AnyDatasetTable, context: ValidationContext
) -> Iterator[Problem]:
    """Yield the violations of a dataset; paths are relative to it."""
    yield from column_rules(table, context)
    yield from row_key_rules(table)
    yield from field_rules(table)
    yield from parent_rules(table, context)
    if context.penstock is not None:
        yield from lease_rules(table, context.penstock)
    if not isinstance(table, DatasetTable):
        return
    yield from axis_rules(table)
    yield from parameter_rules(table)
    yield from reference_rules(table, context)


def column_rules(
    table: AnyDatasetTable, context: ValidationContext
) -> Iterator[Problem]:
    """Refuse fields that the database cannot have as columns."""
    max_fields = MAX_FIELDS_POSTGRES if context.is_postgres else MAX_FIELDS
    if len(table.fields) + table.has_row_key > max_fields:
        message = (
            f"{len(table.fields):,} fields are more than the {max_fields:,} of a table"
        )
        yield ("fields",), f"{message}; put what is seldom read into one json field"
    if context.is_postgres:
        for name in sorted(SYSTEM_COLUMNS & set(table.fields)):
            message = f"every table of PostgreSQL has a column {name} of its own"
            yield ("fields", name), f"{message}; call the field {name}_value"


def name_rules(
    datasets: Iterable[str], context: ValidationContext
) -> Iterator[Problem]:
    """Refuse a name that collides with the view or the index of another dataset."""
    names = set(datasets)
    taken = {LIVE_VIEW_SUFFIX: "the view of the live rows"}
    if context.is_postgres:
        taken[PRIMARY_KEY_SUFFIX] = "the index of the key"
    for name in sorted(names):
        for suffix, what in taken.items():
            other = name.removesuffix(suffix)
            if other != name and other in names:
                message = f"is the name of {what} of dataset {other!r}"
                yield ("datasets", name), f"{message}; rename one of the two"


def row_key_rules(table: AnyDatasetTable) -> Iterator[Problem]:
    """Refuse what makes no sense where a row with another value is another row."""
    if not table.has_row_key:
        return
    declared = f'key = "{WHOLE_ROW}"'
    if len(table.key) > 1:
        yield ("key",), f"{WHOLE_ROW!r} is the whole row; name no field beside it"
    if ROW_KEY in table.fields:
        message = f"with {declared}, this is the name of the key of each row"
        yield ("fields", ROW_KEY), f"{message}; call the field {ROW_KEY}_value"
    why = f"with {declared}, a row with another value is another row"
    for name, field in table.fields.items():
        if field.local:
            message = f"{why}, which would lack what was edited"
            yield ("fields", name, "local"), f"{message}; name fields as the key"
    if table.version is not None:
        message = f"{why}, and replaces none"
        yield ("version",), f"{message}; remove it, or name fields as the key"


def field_rules(table: AnyDatasetTable) -> Iterator[Problem]:
    """Check the fields that other keys of the dataset name."""
    any_type = frozenset(FieldType)
    # key, field names, allowed types, whether local fields are allowed
    uses: list[tuple[str, Iterable[str], frozenset[FieldType], bool]] = [
        ("key", () if table.has_row_key else table.key, KEY_TYPES, False),
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
    for key, names, types, may_be_local in uses:
        for name, times in Counter(names).items():
            if times > 1:
                yield (key,), f"names {name!r} twice"
            field = table.fields.get(name)
            if field is None:
                message = f"{name!r} is not a declared field"
                yield (key,), f"{message}; {did_you_mean(name, table.fields)}"
            elif field.local and not may_be_local:
                yield (key,), f"{name!r} is a local field, which no import brings"
            elif field.type not in types:
                allowed = " or ".join(sorted(types))
                yield (key,), f"{name!r} is of type {field.type}, not {allowed}"
            elif key == "key" and field.default is not None:
                message = "is never used: a key is always required"
                yield ("fields", name, "default"), message
            elif key == "partition" and is_nullable(table, name):
                message = f"{name!r} may be missing, and then a row has no partition"
                yield (key,), f"{message}; give it required = true or a default"
    yield from length_rules(table)
    if all(field.local for field in table.fields.values()):
        yield ("fields",), "are all local; an import needs one to write"


def length_rules(table: AnyDatasetTable) -> Iterator[Problem]:
    """Refuse texts that are longer than an index can hold."""
    for name, field in table.fields.items():
        max_length = table.max_text_length(name)
        if max_length is None:
            continue
        if field.max_length is not None and field.max_length > max_length:
            message = f"{field.max_length} is more than an index holds of this text"
            remedy = f"give at most {max_length}, or remove it from key and filter"
            yield ("fields", name, "max_length"), f"{message}; {remedy}"
        elif isinstance(field.default, str) and len(field.default) > max_length:
            message = f"is longer than the {max_length} characters that an index holds"
            yield ("fields", name, "default"), message


def is_nullable(table: AnyDatasetTable, name: str) -> bool:
    # a default of only spaces counts as none
    field = build_field(name, table.fields[name], is_key=name in table.key)
    return not field.required and field.default is None


def lease_rules(table: AnyDatasetTable, penstock: PenstockTable) -> Iterator[Problem]:
    timeout, lease = table.source.timeout, penstock.lease
    needed = timeout + penstock.wait + penstock.commit_timeout
    if needed >= lease:
        sums = " + ".join(
            f"{name} {format_duration(length)}"
            for name, length in (
                ("timeout", timeout),
                ("penstock.wait", penstock.wait),
                ("penstock.commit_timeout", penstock.commit_timeout),
            )
        )
        total, available = format_duration(needed), format_duration(lease)
        message = f"{sums} = {total} does not fit in penstock.lease = {available}"
        remedy = "lengthen the lease or shorten one of them"
        yield ("source", "timeout"), f"{message}; {remedy}"


def axis_rules(table: DatasetTable) -> Iterator[Problem]:
    """Check that each axis is sent to the provider exactly once."""
    in_url = placeholders(table.source.url)
    for name in dict.fromkeys(in_url):
        axis = table.shards.get(name)
        if axis is None:
            message = f"{{{name}}} names no shard axis"
            yield ("source", "url"), f"{message}; {did_you_mean(name, table.shards)}"
        elif not isinstance(axis, ListTable):
            message = f"{{{name}}}: only the value of a list axis can stand in a url"
            yield ("source", "url"), message
    pages = table.source.pages
    is_keyset = pages is not None and pages.by is Paging.KEYSET
    by_keyset = [name for name, axis in table.shards.items() if follows_keyset(axis)]
    for name, axis in table.shards.items():
        if isinstance(axis, ListTable) and axis.send is None and name not in in_url:
            message = f"axis {name!r} is never sent: give it send"
            yield ("shards", name), f"{message}, or put {{{name}}} into the url"
        if name in by_keyset and not is_keyset:
            message = 'needs from and until without pages.by = "keyset"'
            yield ("shards", name, "send"), f"{message}, which stops at the end itself"
    for name in by_keyset[1:]:
        message = f"only one axis can follow the keyset, and {by_keyset[0]!r} does"
        yield ("shards", name), message


def follows_keyset(axis: object) -> bool:
    """Return whether keyset paging itself stops at the end of the axis."""
    if not isinstance(axis, RangeTable):
        return False
    return axis.send is None or axis.send.start is None or axis.send.until is None


def parameter_rules(table: DatasetTable) -> Iterator[Problem]:
    """Refuse a parameter that is set twice: one would silently win."""
    senders: dict[str, str] = {}
    for sender, at, name in find_parameters(table):
        if name in senders:
            yield at, f"parameter {name!r} is sent by {senders[name]} too"
        senders.setdefault(name, sender)


def find_parameters(table: DatasetTable) -> Iterator[SentParameter]:
    if table.source.method == "GET":
        # with POST the others are sent in the body, and cannot collide with the query
        for name in table.source.query:
            yield "source.query", ("source", "query", name), name
    pages = table.source.pages
    if pages is not None:
        yield from find_page_parameters(pages)
    position = None if pages is None else pages.send
    times = set[str]()
    for axis_name, axis in table.shards.items():
        for name in axis_parameters(axis):
            if isinstance(axis, TimeTable):
                times.add(name)
            # a range may share its parameter with the position of its pages
            if not (isinstance(axis, RangeTable) and name == position):
                yield f"shards.{axis_name}", ("shards", axis_name, "send"), name
    # a delta import may narrow a time axis by the parameter of its lower bound
    if table.delta is not None and table.delta.send not in times:
        yield "delta.send", ("delta", "send"), table.delta.send


def find_page_parameters(pages: PagesTable) -> Iterator[SentParameter]:
    at = ("source", "pages")
    if pages.send is not None:
        yield "source.pages.send", (*at, "send"), pages.send
    for name in pages.order:
        yield "source.pages.order", (*at, "order", name), name
    if pages.size is not None and pages.size.send is not None:
        yield "source.pages.size", (*at, "size", "send"), pages.size.send


def axis_parameters(
    axis: ListTable | TimeTable | RangeTable | BboxTable,
) -> Iterator[str]:
    send = axis.send
    if isinstance(send, str):
        yield send
    elif isinstance(send, LimitsTable):
        yield from (name for name in (send.start, send.until) if name is not None)
    elif send is not None:
        yield from send.names.values()


def reference_rules(
    table: DatasetTable, context: ValidationContext
) -> Iterator[Problem]:
    budget = table.source.budget
    if budget is not None and budget not in context.budgets:
        message = f"budget {budget!r} is not declared"
        yield (
            ("source", "budget"),
            f"{message}; {did_you_mean(budget, context.budgets)}",
        )
    for name, values in axes_with_values_from(table):
        at = ("shards", name, "values")
        fields = context.datasets.get(values.dataset)
        if fields is None:
            message = f"dataset {values.dataset!r} is not declared"
            suggestion = did_you_mean(values.dataset, context.datasets)
            yield (*at, "dataset"), f"{message}; {suggestion}"
        elif values.field not in fields:
            message = f"{values.field!r} is not a field of {values.dataset!r}"
            yield (*at, "field"), f"{message}; {did_you_mean(values.field, fields)}"


def parent_rules(
    table: AnyDatasetTable, context: ValidationContext
) -> Iterator[Problem]:
    """Check that references name declared datasets and fields."""
    for name, field in table.fields.items():
        reference = field.reference()
        if reference is None:
            continue
        at = ("fields", name, "references")
        fields = context.datasets.get(reference.dataset)
        if not reference.field:
            yield at, f"{field.references!r} is not 'dataset.field'"
        elif fields is None:
            message = f"dataset {reference.dataset!r} is not declared"
            yield at, f"{message}; {did_you_mean(reference.dataset, context.datasets)}"
        elif reference.field not in fields:
            message = f"{reference.field!r} is not a field of {reference.dataset!r}"
            yield at, f"{message}; {did_you_mean(reference.field, fields)}"


def reference_type_rules(tables: Mapping[str, AnyDatasetTable]) -> Iterator[Problem]:
    """Refuse references of another type, or without an index."""
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
                message = f"{reference} is of type {target.type}, not {field.type}"
                yield at, message
            elif [reference.field] != parent.key and (
                reference.field not in parent.filter
            ):
                message = f"{reference} has no index; make it the key of"
                yield at, f"{message} {reference.dataset!r}, or name it in its filter"


def axes_with_values_from(table: AnyDatasetTable) -> Iterator[tuple[str, ValuesTable]]:
    """Yield the axes whose values come from another dataset."""
    for name, axis in table.shards.items():
        if isinstance(axis, ListTable) and isinstance(axis.values, ValuesTable):
            yield name, axis.values


def cycle_rules(tables: Mapping[str, AnyDatasetTable]) -> Iterator[Problem]:
    """Refuse cycles of datasets that need each other's values."""
    parents = {
        name: {values.dataset for _, values in axes_with_values_from(table)}
        for name, table in tables.items()
    }
    for name, table in tables.items():
        reached, queue = set[str](), [*parents[name]]
        while queue:
            parent = queue.pop()
            if parent not in reached:
                reached.add(parent)
                queue.extend(parents.get(parent, ()))
        if name in reached:
            axis, values = next(axes_with_values_from(table))
            message = f"dataset {name!r} would have to wait for itself"
            at = ("datasets", name, "shards", axis, "values", "dataset")
            yield at, f"{message}, through {values.dataset!r}"
