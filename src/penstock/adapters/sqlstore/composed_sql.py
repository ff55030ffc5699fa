"""Statements that are composed for a dataset, and the list of them for people."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, wraps
from typing import Any, Protocol

from penstock.adapters.sqlstore.key_encoding import quote
from penstock.adapters.sqlstore.slow_statements import name_composed
from penstock.domain.dataset import Dataset, Field, Reference
from penstock.domain.sharding.axes import ListAxis, ValuesFrom
from penstock.ports import SqlStatement


class statement(cached_property[str]):  # noqa: N801 (a decorator, as is its parent)
    """A statement, composed on first use; its docstring says when it is used."""

    def __init__(self, compose: Callable[[Any], str]) -> None:
        @wraps(compose)
        def compose_named(table: Any) -> str:
            text = compose(table)
            name_composed(text, compose.__name__)
            return text

        super().__init__(compose_named)


class ranked_statement(statement):  # noqa: N801 (the same)
    """A statement for datasets with ranked rows only."""


class archive_statement(statement):  # noqa: N801 (the same)
    """A statement for datasets whose old rows are archived."""


class TableSql(Protocol):
    """The compiled statements of one dataset's table."""

    @property
    def dataset(self) -> Dataset: ...
    @property
    def live_index(self) -> str: ...
    def definition(self, index: str) -> str: ...
    def lock_records(self, fields: Sequence[Field]) -> str: ...
    def set_local_fields(self, fields: Sequence[Field]) -> str: ...


def dataset_statements(
    table: TableSql,
    *,
    indexes: Iterable[str],
    view: str,
    existing_values: Callable[[Field, Reference], str],
) -> Iterator[SqlStatement]:
    """Yield every statement that is composed for a dataset before any request."""
    dataset = table.dataset
    yield from table_statements(table)
    yield SqlStatement(
        name="lock_records",
        use="Lock and read rows that a client changes; many at once only in part.",
        sql=table.lock_records(dataset.fields),
    )
    if local := [field for field in dataset.fields if field.local]:
        yield SqlStatement(
            name="set_local_fields",
            use="Set local fields for a client, here all of them.",
            sql=table.set_local_fields(local),
        )
    for field in dataset.columns:
        if field.references is not None:
            yield SqlStatement(
                name=f"existing_values {field.name}",
                use=f"Find the rows that the field {field.name} of a page refers to.",
                sql=existing_values(field, field.references),
            )
    for axis in dataset.axes:
        if isinstance(axis, ListAxis) and isinstance(axis.values, ValuesFrom):
            yield SqlStatement(
                name=f"distinct_values {axis.name}",
                use=f"Read the values of the axis {axis.name}, to plan an import.",
                sql=distinct_values(axis.values.dataset, axis.values.field),
            )
    for name in [*indexes, table.live_index]:
        due = " if many rows are deleted" if name == table.live_index else ""
        yield SqlStatement(
            name=f"create index {name}",
            use=f"Create an index{due}: `penstock migrate`, and workers.",
            sql=f"create index {quote(name)} on {table.definition(name)}",
        )
    yield SqlStatement(
        name=f"create view {dataset.live_view}",
        use="Create the view of the live rows: `penstock migrate`.",
        sql=view,
    )


def table_statements(table: TableSql) -> Iterator[SqlStatement]:
    for name, attribute in vars(type(table)).items():
        if isinstance(attribute, statement) and is_used(attribute, table.dataset):
            use = " ".join((attribute.__doc__ or "").split())
            yield SqlStatement(name=name.strip("_"), use=use, sql=getattr(table, name))


def is_used(composed: statement, dataset: Dataset) -> bool:
    if isinstance(composed, ranked_statement):
        return dataset.is_ranked
    if isinstance(composed, archive_statement):
        return dataset.archive is not None
    return True


def distinct_values(dataset: str, field: str) -> str:
    name, table = quote(field), quote(dataset)
    return (
        f"select distinct {name} from {table} "
        f"where _deleted_at is null and {name} is not null order by {name}"
    )
