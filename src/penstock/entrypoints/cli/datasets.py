"""Look at datasets as a whole, remove them, convert them: `datasets`."""

import sys
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated

import typer

from penstock.domain.dataset import LIVE
from penstock.domain.text import key_as_text
from penstock.entrypoints.cli.shared import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    WithDefault,
    counted,
    default_help,
    look,
    print_json,
    session,
    show_table,
    stdout,
)
from penstock.errors import Misconfigured, NotFound
from penstock.ports.datasets import Retyped, StoredDataset
from penstock.settings.problems import did_you_mean
from penstock.wiring import Penstock

app = typer.Typer(
    cls=WithDefault,
    help=default_help("Look at datasets, drop one, or change its types.", "datasets"),
)

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.command("list")
def show(config: Config = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """Show what is stored of every dataset, also of those no longer declared."""
    with look(config, is_prepared=False) as penstock:
        stored = {each.name: each for each in penstock.stores.schema.datasets.stored()}
        now = penstock.stores.jobs.now()
        names = sorted({*stored, *penstock.settings.datasets})
        found = [describe(penstock, name, stored.get(name), now) for name in names]
    if as_json:
        print_json({"datasets": found})
        return
    rows: list[Mapping[str, object]] = [as_row(each) for each in found]
    show_table("datasets", rows, empty="No dataset is declared.")


def describe(
    penstock: Penstock, name: str, stored: StoredDataset | None, now: datetime
) -> dict[str, object]:
    """Say what is known of a dataset, as JSON."""
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
        "view": f"{name}{LIVE}",
    }


def as_row(described: Mapping[str, object]) -> Mapping[str, object]:
    age, last = described["age_seconds"], described["last_import"]
    return {
        "name": described["name"],
        "rows": described["rows"],
        "age": None if age is None else timedelta(seconds=int(str(age))),
        "last_import": f"{last['id']} {last['mode']} {last['status']}"
        if isinstance(last, Mapping)
        else None,
        "bad_rows": described["bad_rows"],
        "budget": described["budget"],
        "declared": described["declared"],
        "view": described["view"],
    }


@app.command("drop")
def drop(
    name: Annotated[str, typer.Argument(help="The dataset, declared or not.")],
    yes: Yes = False,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Remove the rows of a dataset, and all that the ledger and the spool have of it.

    Followers of its changes have to begin again, also if it is declared again.
    """
    with session(config, is_prepared=False) as penstock:
        found = stored_dataset(penstock, name)
        rows = 0 if found.rows is None else found.rows + found.deleted
        confirm(
            f"Remove dataset {name} with {counted(rows, 'row')}, "
            f"{counted(found.bad_rows, 'bad row')} and the history of its imports?",
            yes=yes,
        )
        removed = sum(removing(penstock, name))
    if as_json:
        print_json({"dropped": name, "rows": rows, "removed": removed})
    else:
        typer.echo(f"Dataset {name} is gone: {counted(rows, 'row')} removed.")


def stored_dataset(penstock: Penstock, name: str) -> StoredDataset:
    stored = {each.name: each for each in penstock.stores.schema.datasets.stored()}
    if name not in stored:
        hint = f"; {did_you_mean(name, stored)}" if stored else ""
        raise NotFound(f"nothing is stored of dataset {name!r}{hint}")
    return stored[name]


def removing(penstock: Penstock, name: str) -> Iterator[int]:
    yield from penstock.stores.schema.datasets.drop(name)
    # files come last: no import reads them any more
    yield penstock.uploads.remove_all(name, spool=str(penstock.settings.spool))


@app.command("retype")
def retype(
    name: Annotated[str, typer.Argument(help="The dataset.")],
    yes: Yes = False,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Convert stored values to the types that are declared now.

    It is done for all rows or for none: if a value would be lost, such rows are listed.
    Followers of the changes of the dataset have to begin again.
    """
    with session(config, is_prepared=False) as penstock:
        dataset = penstock.settings.dataset(name)
        datasets = penstock.stores.schema.datasets
        changes = datasets.type_changes(dataset)
        summary = ", ".join(
            f"{e.field} from {e.stored} to {e.declared}" for e in changes
        )
        if changes:
            confirm(f"Convert {summary} in all rows of dataset {name}?", yes=yes)
        done = datasets.retype(dataset)
        if not done.lost:
            penstock.stores.schema.prepare(dataset)
            penstock.stores.schema.tend(dataset)
    if as_json:
        print_json(as_document(name, done))
    else:
        print_retyped(name, done, summary)
    if done.lost:
        raise typer.Exit(1)


def as_document(name: str, done: Retyped) -> dict[str, object]:
    return {
        "dataset": name,
        "changes": [
            {"field": each.field, "from": each.stored, "to": each.declared}
            for each in done.changes
        ],
        "rows": done.rows,
        "lost": done.lost,
        "losses": [
            {
                "key": [*map(key_part, each.key)],
                "field": each.field,
                "value": each.value,
                "detail": each.detail,
            }
            for each in done.losses
        ],
    }


def key_part(value: object) -> object:
    return value if isinstance(value, int) else key_as_text([value])


def print_retyped(name: str, done: Retyped, changes: str) -> None:
    if not done.changes:
        typer.echo(f"The types of dataset {name} are as declared; nothing was done.")
    elif not done.lost:
        typer.echo(f"Converted {changes} in {counted(done.rows, 'row')} of {name}.")
    else:
        for each in done.losses:
            line = f"{key_as_text(each.key)}: {each.field}: {each.detail}"
            stdout().print(line, markup=False)
        if done.lost > len(done.losses):
            typer.echo(f"and {done.lost - len(done.losses):,} more")
        typer.echo(
            f"{counted(done.lost, 'value')} of {name} would be lost; nothing was "
            "changed. Correct the declared type, or drop the dataset and import it."
        )


def confirm(question: str, *, yes: bool) -> None:
    """Ask a person; a script has to say that nobody is to be asked."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Misconfigured(f"{question} There is no terminal to ask; add --yes")
    if not typer.confirm(question, err=True):
        typer.echo("Nothing was changed.", err=True)
        raise typer.Exit(1)
