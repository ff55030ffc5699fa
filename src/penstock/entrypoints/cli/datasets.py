"""List datasets, drop them, and convert their types: `datasets`."""

import sys
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated

import typer

from penstock.domain.dataset import LIVE_VIEW_SUFFIX
from penstock.domain.formats import format_key
from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    WithDefault,
    counted,
    default_help,
    log_action,
    open_readonly,
    print_json,
    session,
    show_table,
    stdout,
)
from penstock.errors import Misconfigured, NotFound
from penstock.ports.datasets import RetypeResult, StoredDataset
from penstock.settings.validation_errors import did_you_mean
from penstock.wiring import Container

app = typer.Typer(
    cls=WithDefault,
    help=default_help("List datasets, drop one, or convert its types.", "datasets"),
)

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


@app.command("list")
def show(config: Config = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """Show every stored dataset, also those that are no longer declared."""
    with open_readonly(config, is_prepared=False) as penstock:
        found = penstock.stores.schema.datasets.stored()
        stored = {dataset.name: dataset for dataset in found}
        now = penstock.stores.jobs.now()
        names = sorted({*stored, *penstock.settings.datasets})
        documents = [describe(penstock, name, stored.get(name), now) for name in names]
    if as_json:
        print_json({"datasets": documents})
        return
    rows: list[Mapping[str, object]] = [*map(as_row, documents)]
    show_table("datasets", rows, empty="No dataset is declared.")


def describe(
    penstock: Container, name: str, stored: StoredDataset | None, now: datetime
) -> dict[str, object]:
    """Return the document of a dataset for `--json`."""
    declared = penstock.settings.datasets.get(name)
    last = None if stored is None else stored.last_import
    done_at = None if stored is None else stored.imported_at
    return {
        "name": name,
        "declared": declared is not None,
        "rows": None if stored is None else stored.rows,
        "deleted": 0 if stored is None else stored.deleted,
        "imported_at": done_at,
        "age_seconds": None
        if done_at is None
        else round((now - done_at).total_seconds()),
        "last_import": None
        if last is None
        else {"id": last.id, "mode": last.mode, "status": last.status},
        "bad_rows": 0 if stored is None else stored.bad_rows,
        "budget": None if declared is None else penstock.budget(declared).name,
        "table": name,
        "view": f"{name}{LIVE_VIEW_SUFFIX}",
    }


def as_row(document: Mapping[str, object]) -> Mapping[str, object]:
    age, last = document["age_seconds"], document["last_import"]
    return {
        "name": document["name"],
        "rows": document["rows"],
        "age": None if age is None else timedelta(seconds=int(str(age))),
        "last_import": f"{last['id']} {last['mode']} {last['status']}"
        if isinstance(last, Mapping)
        else None,
        "bad_rows": document["bad_rows"],
        "budget": document["budget"],
        "declared": document["declared"],
        "view": document["view"],
    }


@app.command("drop")
def drop(
    name: Annotated[str, typer.Argument(help="The dataset, declared or not.")],
    yes: Yes = False,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Remove the rows of a dataset, its imports and its spooled files.

    Clients that follow its changes have to start again, also if it is declared again.
    """
    with session(config, is_prepared=False) as penstock:
        stored = stored_dataset(penstock, name)
        rows = 0 if stored.rows is None else stored.rows + stored.deleted
        confirm(
            f"Remove dataset {name} with {counted(rows, 'row')}, "
            f"{counted(stored.bad_rows, 'bad row')} and the history of its imports?",
            yes=yes,
        )
        removed = sum(remove_all(penstock, name))
        log_action(penstock, "dropDataset", f"datasets/{name}")
    if as_json:
        print_json({"dropped": name, "rows": rows, "removed": removed})
    else:
        typer.echo(f"Dataset {name} removed with {counted(rows, 'row')}.")


def stored_dataset(penstock: Container, name: str) -> StoredDataset:
    stored = {found.name: found for found in penstock.stores.schema.datasets.stored()}
    if name not in stored:
        hint = f"; {did_you_mean(name, stored)}" if stored else ""
        raise NotFound(f"nothing is stored of dataset {name!r}{hint}")
    return stored[name]


def remove_all(penstock: Container, name: str) -> Iterator[int]:
    yield from penstock.stores.schema.datasets.drop(name)
    # files last: no import reads them any more
    yield penstock.uploads.remove_all(name, spool=str(penstock.settings.spool))


@app.command("retype")
def retype(
    name: Annotated[str, typer.Argument(help="The dataset.")],
    yes: Yes = False,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Convert stored values to the types that are declared now.

    All rows are converted, or none: values that would be lost are listed.
    Clients that follow the changes of the dataset have to start again.
    """
    with session(config, is_prepared=False) as penstock:
        dataset = penstock.settings.dataset(name)
        datasets = penstock.stores.schema.datasets
        changes = datasets.type_changes(dataset)
        summary = ", ".join(
            f"{change.field} from {change.stored} to {change.declared}"
            for change in changes
        )
        if changes:
            confirm(f"Convert {summary} in all rows of dataset {name}?", yes=yes)
        result = datasets.retype(dataset)
        if not result.lost:
            penstock.stores.schema.ensure_table(dataset)
            penstock.stores.schema.maintain(dataset)
            log_action(penstock, "retypeDataset", f"datasets/{name}")
    if as_json:
        print_json(as_document(name, result))
    else:
        print_result(name, result, summary)
    if result.lost:
        raise typer.Exit(1)


def as_document(name: str, result: RetypeResult) -> dict[str, object]:
    return {
        "dataset": name,
        "changes": [
            {"field": change.field, "from": change.stored, "to": change.declared}
            for change in result.changes
        ],
        "rows": result.rows,
        "lost": result.lost,
        "losses": [
            {
                "key": [*map(key_part, loss.key)],
                "field": loss.field,
                "value": loss.value,
                "detail": loss.detail,
            }
            for loss in result.losses
        ],
    }


def key_part(value: object) -> object:
    return value if isinstance(value, int) else format_key([value])


def print_result(name: str, result: RetypeResult, changes: str) -> None:
    if not result.changes:
        typer.echo(f"The types of dataset {name} are as declared; nothing to convert.")
    elif not result.lost:
        typer.echo(f"Converted {changes} in {counted(result.rows, 'row')} of {name}.")
    else:
        for loss in result.losses:
            line = f"{format_key(loss.key)}: {loss.field}: {loss.detail}"
            stdout().print(line, markup=False)
        if result.lost > len(result.losses):
            typer.echo(f"and {result.lost - len(result.losses):,} more")
        typer.echo(
            f"{counted(result.lost, 'value')} of {name} would be lost; nothing was "
            "changed. Correct the declared type, or drop the dataset and import it."
        )


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation; without a terminal, `--yes` is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Misconfigured(f"{question} There is no terminal to ask; add --yes")
    if not typer.confirm(question, err=True):
        typer.echo("Nothing was changed.", err=True)
        raise typer.Exit(1)
