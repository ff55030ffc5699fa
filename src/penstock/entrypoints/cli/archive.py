"""Archive rows that were not seen in their source for long: `archive`."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from penstock.domain.dataset import Dataset
from penstock.domain.formats import format_instant
from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    counted,
    open_readonly,
    print_json,
    session,
)
from penstock.errors import Misconfigured
from penstock.flow.archive_rows import ArchiveReport
from penstock.settings import Settings


def archive(
    name: Annotated[str, typer.Argument(metavar="DATASET", help="The dataset.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be archived.")
    ] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Archive the rows that were not seen in the source for as long as is declared."""
    opened = open_readonly(config) if dry_run else session(config)
    with opened as penstock:
        dataset = archived_dataset(penstock.settings, name)
        work = penstock.archive.preview if dry_run else penstock.archive
        report = work(dataset)
    if as_json:
        print_json(archive_document(name, report, is_dry=dry_run))
    else:
        typer.echo(summarize_archive(name, report, is_dry=dry_run))
    if report.note is not None:
        raise typer.Exit(1)


def archived_dataset(settings: Settings, name: str) -> Dataset:
    dataset = settings.dataset(name)
    if dataset.archive is None:
        raise Misconfigured(
            f'datasets.{name} has no archive; declare: archive = {{ after = "365d" }}'
        )
    return dataset


def archive_document(
    name: str, report: ArchiveReport, *, is_dry: bool
) -> Mapping[str, Any]:
    """Return the document of `--json`."""
    cut = report.cut
    return {
        "dataset": name,
        "dry_run": is_dry,
        "rows": report.rows,
        "last_seen_at": None if cut is None else cut.seen_at,
        "last_seen_by": None if cut is None else cut.last_seen_by,
        "missed_by": None if cut is None else cut.missed_by,
        "note": report.note,
    }


def summarize_archive(name: str, report: ArchiveReport, *, is_dry: bool) -> str:
    if report.note is not None:
        return f"Dataset {name}: {report.note}."
    cut = report.cut
    if cut is None:
        return (
            f"Dataset {name}: nothing to archive: no proven full import ended so long "
            "ago and has a later one."
        )
    verb = "would be archived" if is_dry else "archived"
    return (
        f"Dataset {name}: {counted(report.rows, 'row')} {verb}: last seen at "
        f"{format_instant(cut.seen_at)} or before, and not in import {cut.missed_by}."
    )
