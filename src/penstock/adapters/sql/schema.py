"""What is the same in every schema: numbered files, and changes that are refused."""

import re
from collections.abc import Collection, Sequence
from importlib import resources
from typing import NamedTuple

from penstock.adapters.sql.database import Row, Transaction
from penstock.adapters.sql.rows import decoded
from penstock.domain.dataset import Dataset, Field
from penstock.domain.retyping import changed_types
from penstock.errors import Conflict, Misconfigured

NUMBERED = re.compile(r"^(\d{4})_\w+\.sql$")
# our own columns that a live view shows
STAMPS = ("_created_at", "_updated_at")
REMEDY = "or drop the dataset with penstock datasets drop, and import again"


class Migration(NamedTuple):
    number: int
    name: str
    text: str


def migrations(package: str) -> list[Migration]:
    """Return the numbered files of an adapter in their order."""
    folder = resources.files(package) / "migrations"
    found = []
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        numbered = NUMBERED.match(file.name)
        if numbered:
            found.append(
                Migration(int(numbered[1]), file.name, file.read_text("utf-8"))
            )
    return found


def missing_migrations(
    files: Sequence[Migration], *, known: int, schema: str
) -> list[Migration]:
    """Return what a schema of this version lacks; refuse one that is newer."""
    if known > len(files):
        raise Misconfigured(
            f"{schema} has version {known}, this penstock knows {len(files)}; "
            "use a newer one"
        )
    return list(files[known:])


def declared_types(transaction: Transaction, dataset: Dataset) -> dict[str, str]:
    """Return the type under which each field was declared when it was stored."""
    row = transaction.one("get_dataset", dataset=dataset.name)
    return {} if row is None else dict(decoded(row["fields"]))


def missing_fields(dataset: Dataset, stored: Collection[str]) -> list[Field]:
    return [field for field in dataset.fields if field.name not in stored]


def lacks_rank(dataset: Dataset, stored: Collection[str]) -> bool:
    """Say whether a dataset lacks the column of those that come from files."""
    return dataset.is_ranked and "_rank" not in stored


def columns_to_add(dataset: Dataset, stored: Collection[str]) -> list[str]:
    """Say which columns a stored table gets."""
    names = [field.name for field in missing_fields(dataset, stored)]
    if lacks_rank(dataset, stored):
        names.append("_rank")
    return [f"add column {name} to {dataset.name}" for name in names]


def view_columns(dataset: Dataset, shown: Sequence[str]) -> list[str]:
    """Return the columns of a dataset's live view, those that it shows already first.

    So a view can be replaced on which others are built. What a declaration lost stays
    in it, as it does in the table.
    """
    declared = [*(field.name for field in dataset.fields), *STAMPS]
    return [*shown, *(name for name in declared if name not in shown)]


def view_steps(dataset: Dataset, shown: Sequence[str] | None) -> list[str]:
    """Say what the live view needs; `shown` is None where its name is not ours."""
    if shown is None or view_columns(dataset, shown) == [*shown]:
        return []
    verb = "add columns to" if shown else "create"
    return [f"{verb} view {dataset.live_view}"]


def refuse_view(dataset: Dataset) -> Misconfigured:
    """Refuse a dataset whose name a view has."""
    return Misconfigured(
        f"datasets.{dataset.name}: the database has a view of this name; "
        "rename the dataset, or drop the view"
    )


def refuse_changes(
    dataset: Dataset,
    *,
    key: Sequence[str],
    stored: Collection[str],
    known: dict[str, str],
) -> None:
    """Refuse what would change the meaning of stored rows."""
    if list(key) != list(dataset.key):
        raise Misconfigured(
            f"datasets.{dataset.name}.key: the stored table has the key "
            f"{', '.join(key)}; rename the dataset, {REMEDY}"
        )
    for field in dataset.fields:
        stored_type = known.get(field.name, field.type)
        if field.name in stored and stored_type != field.type:
            raise Misconfigured(
                f"datasets.{dataset.name}.fields.{field.name}: the stored column has "
                f"type {stored_type}, the declaration says {field.type}; "
                f"rename the field, or convert it: penstock datasets retype "
                f"{dataset.name}"
            )


def refuse_unfinished(transaction: Transaction, name: str) -> None:
    """Refuse what workers of an import would not know of."""
    row = transaction.one("unfinished_import", dataset=name)
    if row is not None:
        raise Conflict(
            f"import {row['id']} of {name} is unfinished; "
            "wait until it has ended, or cancel it"
        )


def refuse_stale(row: Row | None, dataset: Dataset) -> None:
    """Refuse a process whose declaration is older than the table."""
    if row is None:
        return
    stored = decoded(row["fields"])
    if not stored or changed_types(dataset, stored):
        raise Conflict(
            f"dataset {dataset.name} was dropped or converted since this process has "
            "read its declaration; start the process again"
        )


def replaces_empty(dataset: Dataset) -> list[str]:
    """Say that a table without rows becomes what the declaration says now."""
    return [f"create table {dataset.name} anew: it has no rows"]
