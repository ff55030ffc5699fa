"""Migrations and schema checks that all databases share."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from typing import NamedTuple

from penstock.adapters.sqlstore.database import Database, SqlRow, Transaction
from penstock.adapters.sqlstore.row_mappers import decode_json
from penstock.domain.dataset import WHOLE_ROW, Dataset, Field
from penstock.domain.formats import summarize_names
from penstock.domain.retyping import changed_types
from penstock.errors import (
    ClientError,
    Conflict,
    DatasetGone,
    Misconfigured,
    StoreUnavailable,
)

MIGRATION_NAME = re.compile(r"^(\d{4})_\w+\.sql$")
# internal columns that a live view shows
TIME_COLUMNS = ("_created_at", "_updated_at")
REMEDY = "or drop the dataset with penstock datasets drop, and import again"


class Migration(NamedTuple):
    number: int
    name: str
    text: str


def load_migrations(package: str) -> list[Migration]:
    """Return the migrations of an adapter, in order."""
    folder = resources.files(package) / "migrations"
    found = []
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        match = MIGRATION_NAME.match(file.name)
        if match:
            found.append(Migration(int(match[1]), file.name, file.read_text("utf-8")))
    return found


def missing_migrations(
    files: Sequence[Migration], *, known: int, schema: str
) -> list[Migration]:
    """Return the migrations a schema lacks; raise `Misconfigured` if it is newer."""
    latest = files[-1].number
    if known > latest:
        raise Misconfigured(
            f"{schema} has version {known}, this penstock knows {latest}; "
            "use a newer one"
        )
    return later_migrations(files, known)


def later_migrations(files: Sequence[Migration], known: int) -> list[Migration]:
    """Return the migrations after a number; numbers may have gaps."""
    return [migration for migration in files if migration.number > known]


def declared_types(transaction: Transaction, dataset: Dataset) -> dict[str, str]:
    """Return the type under which each field was declared when it was stored."""
    row = transaction.one("get_dataset", dataset=dataset.name)
    return {} if row is None else dict(decode_json(row["fields"]))


def missing_fields(dataset: Dataset, stored: Collection[str]) -> list[Field]:
    return [field for field in dataset.fields if field.name not in stored]


def lacks_rank(dataset: Dataset, stored: Collection[str]) -> bool:
    """Return whether a dataset imported from files lacks its rank column."""
    return dataset.is_ranked and "_rank" not in stored


def lacks_edited(dataset: Dataset, stored: Collection[str]) -> bool:
    """Return whether a dataset with an archive cannot tell what clients wrote."""
    return dataset.archive is not None and "_edited_at" not in stored


def columns_to_add(dataset: Dataset, stored: Collection[str]) -> list[str]:
    """Describe the columns that are added to a stored table."""
    names = [field.name for field in missing_fields(dataset, stored)]
    if lacks_rank(dataset, stored):
        names.append("_rank")
    if lacks_edited(dataset, stored):
        names.append("_edited_at")
    return [f"add column {name} to {dataset.name}" for name in names]


def view_columns(dataset: Dataset, shown: Sequence[str]) -> list[str]:
    """Return the columns of a dataset's live view, those that it already has first.

    So a view that other views depend on can be replaced. Fields that are no longer
    declared stay in it, as they do in the table.
    """
    declared = [*(field.name for field in dataset.fields), *TIME_COLUMNS]
    return [*shown, *(name for name in declared if name not in shown)]


def view_steps(dataset: Dataset, shown: Sequence[str] | None) -> list[str]:
    """Describe the changes of the live view; `shown` is None if it is not ours."""
    if shown is None or view_columns(dataset, shown) == [*shown]:
        return []
    verb = "add columns to" if shown else "create"
    return [f"{verb} view {dataset.live_view}"]


def refuse_view(dataset: Dataset) -> Misconfigured:
    """Return the error for a dataset that has the name of a view."""
    return Misconfigured(
        f"datasets.{dataset.name}: the database has a view of this name; "
        "rename the dataset, or drop the view"
    )


def refuse_changes(
    dataset: Dataset,
    *,
    key: Sequence[str],
    stored: Collection[str],
    known: Mapping[str, str],
) -> None:
    """Raise `Misconfigured` if the meaning of stored rows would change."""
    if list(key) != list(dataset.key):
        raise Misconfigured(
            f"datasets.{dataset.name}.key: the stored table has the key "
            f"{', '.join(key)}; rename the dataset, {REMEDY}"
        )
    if dataset.has_row_key:
        refuse_other_rows(dataset, known)
    for field in dataset.fields:
        stored_type = known.get(field.name, field.type)
        if field.name in stored and stored_type != field.type:
            raise Misconfigured(
                f"datasets.{dataset.name}.fields.{field.name}: the stored column has "
                f"type {stored_type}, the declaration says {field.type}; "
                f"rename the field, or convert it: penstock datasets retype "
                f"{dataset.name}"
            )


def refuse_other_rows(dataset: Dataset, known: Mapping[str, str]) -> None:
    """Raise `Misconfigured` if another key belongs to the values of stored rows."""
    declared = {field.name: str(field.type) for field in dataset.fields}
    changed = sorted({name for name, _ in declared.items() ^ known.items()})
    if changed:
        raise Misconfigured(
            f"datasets.{dataset.name}.fields: {summarize_names(changed)} changed, and "
            f'with key = "{WHOLE_ROW}" a key depends on all fields; '
            f"rename the dataset, {REMEDY}"
        )


def refuse_unfinished(transaction: Transaction, name: str) -> None:
    """Raise `Conflict` while an import of the dataset is unfinished."""
    row = transaction.one("unfinished_import", dataset=name)
    if row is not None:
        raise Conflict(
            f"import {row['id']} of {name} is unfinished; "
            "wait until it has ended, or cancel it"
        )


def refuse_stale(row: SqlRow | None, dataset: Dataset) -> None:
    """Raise if the table was dropped, or converted to other types than declared."""
    if row is None:
        return
    stored = decode_json(row["fields"])
    if not stored:
        raise DatasetGone(dataset.name)
    if changed_types(dataset, stored):
        raise Conflict(
            f"dataset {dataset.name} was converted since this process has "
            "read its declaration; start the process again"
        )


@contextmanager
def refusing_stale(database: Database, dataset: Dataset) -> Iterator[None]:
    """Explain an error by a table that was dropped or converted meanwhile, if it was.

    Looked up only after an error: requests that succeed pay nothing.
    """
    try:
        yield
    except (ClientError, StoreUnavailable):
        raise
    except Exception:
        row = database.read(
            lambda transaction: transaction.one("get_dataset", dataset=dataset.name)
        )
        refuse_stale(row, dataset)
        raise


def replacement_steps(dataset: Dataset) -> list[str]:
    """Describe that a table without rows is created again as it is now declared."""
    return [f"create table {dataset.name} anew: it has no rows"]
