"""The statements of a dataset as text that a server accepts, for `--show-sql`."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from penstock.adapters.postgres.sql_templates import NOW, statements
from penstock.adapters.postgres.table_sql import (
    COLUMN_TYPES,
    PostgresTableSql,
    existing_values,
    live_view,
)
from penstock.adapters.sqlstore.composed_sql import dataset_statements
from penstock.adapters.sqlstore.key_encoding import quote
from penstock.adapters.sqlstore.schema import view_columns
from penstock.adapters.sqlstore.table_protocols import local_fields
from penstock.domain.dataset import Dataset, Field, FieldType, Reference
from penstock.ports import SqlStatement

PARAMETER = re.compile(r"%\((\w+)\)s")
# the types of parameters that are neither columns nor numbers
PARAMETER_TYPES: Mapping[str, str] = {
    **dict.fromkeys(["after", "before", "cursor", "dataset", "keys"], "text"),
    **dict.fromkeys(["memo", "proof", "retained"], "text"),
    **dict.fromkeys(["provider_time", "started", "written_before"], "timestamptz"),
    "digests": "bytea[]",
    "imprint": "bytea",
}


def list_statements(dataset: Dataset) -> Iterator[SqlStatement]:
    """Yield every statement that is composed for a dataset.

    Those with a plan are in the form of `prepare`, so that they can be explained.
    """
    table = PostgresTableSql(dataset, statements(), NOW)
    types = parameter_types(dataset)
    for given in dataset_statements(
        table,
        # the statement that creates the table also creates the index of deleted rows
        indexes=[name for name in table.indexes if name != table.deleted_index],
        view="; ".join(live_view(dataset, view_columns(dataset, ()))),
        existing_values=existing_values_of,
    ):
        is_plain = given.sql.startswith("create ")
        yield given if is_plain else prepare(given, types)


def existing_values_of(field: Field, reference: Reference) -> str:
    """Name the parameter by the field, which has its type."""
    return existing_values(reference).replace("%(values)", f"%(values_{field.name})")


def prepare(given: SqlStatement, types: Mapping[str, str]) -> SqlStatement:
    names = list(dict.fromkeys(PARAMETER.findall(given.sql)))
    numbers = {name: f"${number}" for number, name in enumerate(names, start=1)}
    text = PARAMETER.sub(lambda found: numbers[found[1]], given.sql)
    signature = ", ".join(types.get(name, "bigint") for name in names)
    head = f"prepare {quote(given.name)}{f' ({signature})' if names else ''} as"
    return replace(
        given,
        sql=f"{head}\n{text.replace('%%', '%').strip().removesuffix(';')}",
        parameters={number: name for name, number in numbers.items()},
    )


def parameter_types(dataset: Dataset) -> Mapping[str, str]:
    """Return the types of the parameters of a dataset's statements, by name."""
    fields = {field.name: field for field in dataset.fields}
    key = [fields[name] for name in dataset.key]
    return {
        **PARAMETER_TYPES,
        **{f"column_{at}": array(field) for at, field in enumerate(dataset.columns)},
        **{
            f"local_{at}": array(field)
            for at, field in enumerate(local_fields(dataset))
        },
        **{f"key_{at}": array(field) for at, field in enumerate(key)},
        **{f"value_{at}": COLUMN_TYPES[field.type] for at, field in enumerate(key)},
        **{f"values_{field.name}": array(field) for field in dataset.columns},
    }


def array(field: Field) -> str:
    # arrays of JSON are sent as text
    kind = "text" if field.type is FieldType.JSON else COLUMN_TYPES[field.type]
    return f"{kind}[]"
