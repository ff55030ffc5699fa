"""Write, check and prepare: `init`, `check`, `migrate`."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.domain.dataset import Dataset
from penstock.entrypoints.cli.shared import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    counted,
    ignore,
    look,
    print_json,
    read_settings,
)
from penstock.errors import Misconfigured, PenstockError
from penstock.settings import STARTER
from penstock.wiring import Penstock, load_transform, opened


def init(
    config: Config = DEFAULT_CONFIG,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite an existing file.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a commented starter penstock.toml."""
    if config.exists() and not force:
        raise Misconfigured(f"{config} exists; use --force to overwrite it")
    try:
        config.write_text(STARTER, encoding="utf-8")
    except OSError as error:
        raise Misconfigured(f"{config}: {error.strerror}") from error
    if as_json:
        print_json({"written": str(config)})
    else:
        typer.echo(f"Wrote {config}. Edit it, then: penstock check")


def check(
    config: Config = DEFAULT_CONFIG,
    connect: Annotated[
        bool,
        typer.Option("--connect", help="Also try the database and one request each."),
    ] = False,
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
    tried = try_all(config) if connect else []
    if connect:
        told["connections"] = tried
    failed = [each for each in tried if not each["ok"]]
    if as_json:
        print_json(told)
    else:
        typer.echo(
            f"{config} is valid: {counted(len(settings.datasets), 'dataset')}, "
            f"{counted(len(settings.budgets), 'budget')}."
        )
        for each in tried:
            mark = "ok  " if each["ok"] else "FAIL"
            typer.echo(f"{mark} {each['what']}: {each['detail']}")
    if failed:
        raise typer.Exit(1)


def try_all(config: Path) -> list[dict[str, object]]:
    tried = []
    try:
        with look(config) as penstock:
            path = penstock.settings.sqlite_path
            is_there = path is not None and path.exists()
            has_folder = path is not None and path.parent.is_dir()
            detail = str(penstock.settings.database)
            if not has_folder:
                detail += " cannot be created: there is no such folder"
            elif not is_there:
                detail += " is not there yet; run or migrate will create it"
            tried.append({"what": "database", "ok": has_folder, "detail": detail})
            tried += [
                try_sample(penstock, dataset)
                for dataset in penstock.settings.datasets.values()
            ]
    except PenstockError as error:
        tried.append({"what": "database", "ok": False, "detail": str(error)})
    return tried


def try_sample(penstock: Penstock, dataset: Dataset) -> dict[str, object]:
    """Ask for one page, and say whether it is what was declared."""
    what = f"datasets.{dataset.name}"
    try:
        found = penstock.sample(
            dataset,
            penstock.source(dataset),
            penstock.budget(dataset),
            longest=penstock.settings.longest_wait,
        )
    except PenstockError as error:
        told = penstock.settings.redact(str(error))
        return {"what": what, "ok": False, "detail": told}
    if found.moved_to is not None:
        return {"what": what, "ok": True, "detail": f"redirects to {found.moved_to}"}
    detail = f"{counted(found.rows, 'record')} in the first page, {found.valid} valid"
    if found.complaint is not None:
        detail += f"; the first that is not: {found.complaint}"
    is_mostly_valid = found.valid * 2 >= found.rows
    return {"what": what, "ok": is_mostly_valid, "detail": detail}


def migrate(config: Config = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """Create or update the tables."""
    settings = read_settings(config)
    with opened(settings, ignore) as penstock:
        applied = list(penstock.stores.schema.migrate())
        for dataset in settings.datasets.values():
            penstock.stores.schema.prepare(dataset)
    if as_json:
        print_json({"applied": applied, "datasets": sorted(settings.datasets)})
    elif applied:
        typer.echo(f"Applied {', '.join(applied)}.")
    else:
        typer.echo("The schema is up to date.")
