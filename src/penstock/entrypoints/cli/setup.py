"""Check and prepare: `check`, `migrate`."""

from typing import Annotated

import typer

from penstock.domain.dataset import SYSTEM_COLUMNS
from penstock.entrypoints.cli.check import as_documents, doubt_keys, pending, try_all
from penstock.entrypoints.cli.shared import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    counted,
    ignore,
    print_json,
    read_settings,
)
from penstock.settings import Settings
from penstock.wiring import Penstock, load_transform, opened


def check(
    config: Config = DEFAULT_CONFIG,
    connect: Annotated[
        bool,
        typer.Option("--connect", help="Also try the servers and one request each."),
    ] = False,
    threads: Annotated[
        int,
        typer.Option(
            "--threads", min=1, max=64, help="Of a worker that would be started."
        ),
    ] = 4,
    as_json: AsJson = False,
) -> None:
    """Validate the configuration; nothing is changed."""
    settings = read_settings(config)
    for dataset in settings.datasets.values():
        load_transform(settings, dataset)
    told: dict[str, object] = {
        "config": str(config),
        "datasets": sorted(settings.datasets),
        "budgets": sorted(settings.budgets),
    }
    notes = [*not_portable(settings), *(() if connect else doubt_keys(settings))]
    if notes:
        told["notes"] = notes
    found = try_all(config, threads=threads) if connect else []
    tried = as_documents(found, settings)
    if connect:
        told["connections"] = tried
    if as_json:
        print_json(told)
    else:
        typer.echo(
            f"{config} is valid: {counted(len(settings.datasets), 'dataset')}, "
            f"{counted(len(settings.budgets), 'budget')}."
        )
        for note in notes:
            typer.echo(f"note {note}")
        for each in tried:
            mark = "ok  " if each["ok"] else "FAIL"
            typer.echo(f"{mark} {each['what']}: {each['detail']}")
    if not all(each["ok"] for each in tried):
        raise typer.Exit(1)


def not_portable(settings: Settings) -> list[str]:
    """Say which fields of a dataset in SQLite could not move to PostgreSQL."""
    if settings.postgres_url is not None:
        return []
    return [
        f"datasets.{dataset.name}.fields.{field.name}: PostgreSQL has a column of this "
        f"name in every table; call it {field.name}_value if you may move there"
        for dataset in settings.datasets.values()
        for field in dataset.fields
        if field.name in SYSTEM_COLUMNS
    ]


def migrate(
    check_only: Annotated[
        bool,
        typer.Option("--check", help="Only say what would be done; exit 1 if any is."),
    ] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Create or update the tables, and build the indexes that are due."""
    settings = read_settings(config)
    if check_only:
        steps = look_ahead(settings)
        tell_steps("pending", steps, settings, as_json=as_json)
        if steps:
            raise typer.Exit(1)
        return
    with opened(settings, ignore) as penstock:
        steps = bring_up_to_date(penstock)
    tell_steps("applied", steps, settings, as_json=as_json)


def look_ahead(settings: Settings) -> list[str]:
    path = settings.sqlite_path
    # opening a file would create it
    is_new = path is not None and not path.exists()
    with opened(settings, ignore, scratch=is_new) as penstock:
        return pending(penstock)


def bring_up_to_date(penstock: Penstock) -> list[str]:
    """Do what is pending; return what was done, by us and not by others meanwhile."""
    schema, datasets = penstock.stores.schema, penstock.settings.datasets.values()
    done = [*schema.migrate()]
    for dataset in datasets:
        # a declaration that is refused leaves the tables of the others alone as well
        schema.unprepared(dataset)
    for dataset in datasets:
        done += schema.prepare(dataset)
    for dataset in datasets:
        done += schema.tend(dataset)
    return done


def tell_steps(
    what: str, steps: list[str], settings: Settings, *, as_json: bool
) -> None:
    if as_json:
        print_json({what: steps, "datasets": sorted(settings.datasets)})
    elif steps:
        typer.echo("\n  ".join([f"{what.capitalize()}:", *steps]))
    else:
        typer.echo("The schema is up to date.")
