"""Show and remove old entries of the ledger: `retention`."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

import typer

from penstock.domain.formats import format_instant
from penstock.domain.retention import KeepReason
from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    counted,
    open_readonly,
    print_json,
    session,
)
from penstock.flow.apply_retention import RetentionReport
from penstock.wiring import Container

# in the order in which they are printed, with the noun of one
KINDS = {
    "imports": "import",
    "jobs": "job",
    "pages": "page",
    "claims": "claim",
    "rollups": "rollup",
    "actions": "action",
    "fires": "fire",
    "changes": "change",
    "bad_rows": "bad row",
}
REASONS = {
    KeepReason.NEWEST: "the newest of its dataset and mode",
    KeepReason.REPEATED: "a later import found its files unchanged",
    KeepReason.ROWS: "live rows were last seen in its files",
    KeepReason.BAD_ROWS: "it has bad rows that are stored",
    KeepReason.FIRE: "the last of its schedule",
}


def retention(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be removed.")
    ] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Remove entries of the ledger that are older than [retention] says.

    Maintenance does the same every few hours.
    """
    if dry_run:
        with open_readonly(config, is_prepared=False) as penstock:
            report = penstock.retention.preview()
            document = retention_document(penstock, report, is_dry=True)
    else:
        with session(config, is_prepared=False) as penstock:
            report = penstock.retention()
            penstock.stores.retention.note_shown()
            document = retention_document(penstock, report, is_dry=False)
    if as_json:
        print_json(document)
        return
    typer.echo(summarize_retention(document))
    for reason, count in report.stays.items():
        typer.echo(f"Stays: {counted(count, 'old import')}: {REASONS[reason]}.")
    for feeder in document["feeders"]:
        typer.echo(
            f"Stays: changes of {feeder['dataset']} after {feeder['change_seq']}, for "
            f"{feeder['name']}, which moved at {format_instant(feeder['moved_at'])}."
        )


def retention_document(
    penstock: Container, report: RetentionReport, *, is_dry: bool
) -> Mapping[str, Any]:
    """Return the document of `--json`."""
    policy = penstock.settings.retention
    return {
        "dry_run": is_dry,
        "retention": {
            "imports": format_days(policy.imports),
            "changes": format_days(policy.changes),
            "pages": format_days(policy.pages),
            "quarantine": format_days(policy.quarantine),
            "rollups": format_days(policy.rollups),
        },
        "removed": {kind: report.removed[kind] for kind in KINDS},
        "stays": {reason.value: count for reason, count in report.stays.items()},
        "feeders": [*map(asdict, penstock.stores.feeders.all())],
        "begins_at": penstock.retention.begins_at,
    }


def format_days(length: timedelta) -> str:
    return f"{length / timedelta(days=1):g}d"


def summarize_retention(document: Mapping[str, Any]) -> str:
    removed = [
        counted(count, KINDS[kind])
        for kind, count in document["removed"].items()
        if count
    ]
    lengths = ", ".join(
        f"{name} {length}" for name, length in document["retention"].items()
    )
    what = ", ".join(removed) or "nothing"
    if not document["dry_run"]:
        return f"Removed by [retention] ({lengths}): {what}."
    begins_at = document["begins_at"]
    when = (
        "maintenance begins a day after penstock migrate has shown this"
        if begins_at is None
        else f"maintenance removes it from {format_instant(begins_at)} on"
    )
    return f"Would be removed by [retention] ({lengths}): {what}; {when}."
