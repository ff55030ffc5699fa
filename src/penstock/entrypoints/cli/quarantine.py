"""Look at bad rows, and try them again: `quarantine`."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.entrypoints.cli.plan import Name
from penstock.entrypoints.cli.shared import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    WithDefault,
    default_help,
    id_option,
    look,
    plain,
    print_json,
    session,
    show_table,
)
from penstock.errors import Misconfigured
from penstock.ports import Quarantined
from penstock.wiring import Penstock

app = typer.Typer(
    cls=WithDefault,
    help=default_help("Look at bad rows, or try them again.", "quarantine"),
)
AT_ONCE = 500


@app.command("list")
def show(
    dataset: Name,
    export: Annotated[
        Path | None,
        typer.Option("--export", help="Write all of them to a .csv or .jsonl file."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    after: Annotated[int, id_option("--after", "Begin after this id.")] = 0,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Show the open bad rows of a dataset with their reasons."""
    with look(config) as penstock:
        if export is not None:
            written = write(export, every(penstock, dataset))
            if as_json:
                print_json({"written": written, "file": str(export)})
            else:
                typer.echo(f"Wrote {written:,} bad rows to {export}.")
            return
        declared = penstock.settings.dataset(dataset)
        rows = penstock.stores.records.quarantine(declared, after=after, limit=limit)
    if as_json:
        print_json({"rows": [told(each) for each in rows]})
        return
    show_table(
        "quarantine",
        [
            {
                "id": each.id,
                "import": each.import_id,
                "shard": each.shard_key,
                "page": each.page_seq,
                "position": each.rejection.position,
                "field": each.rejection.field,
                "reason": each.rejection.reason.value,
                "detail": each.rejection.detail[:80],
            }
            for each in rows
        ],
        empty=f"{dataset} has no bad rows.",
    )


@app.command("replay")
def replay(
    dataset: Name, config: Config = DEFAULT_CONFIG, as_json: AsJson = False
) -> None:
    """Map the bad rows anew, and store those that are good now."""
    with session(config) as penstock:
        declared = penstock.settings.dataset(dataset)
        done = penstock.replay(declared, penstock.source(declared))
    if as_json:
        print_json(
            {
                "accepted": done.accepted,
                "superseded": done.superseded,
                "still_bad": done.still_bad,
            }
        )
    else:
        typer.echo(
            f"{done.accepted:,} accepted, {done.superseded:,} superseded since, "
            f"{done.still_bad:,} still bad."
        )


def every(penstock: Penstock, dataset: str) -> Iterator[Quarantined]:
    declared = penstock.settings.dataset(dataset)
    after = 0
    while some := penstock.stores.records.quarantine(
        declared, after=after, limit=AT_ONCE
    ):
        yield from some
        after = some[-1].id


def told(row: Quarantined) -> dict[str, Any]:
    rejection = row.rejection
    return {
        "id": row.id,
        "import_id": row.import_id,
        "job_id": row.job,
        "shard_key": row.shard_key,
        "page": row.page_seq,
        "position": rejection.position,
        "field": rejection.field,
        "reason": rejection.reason.value,
        "detail": rejection.detail,
        "key": None if rejection.key is None else list(rejection.key),
        "raw": rejection.raw.decode("utf-8", errors="replace"),
        "at": row.at,
    }


def write(path: Path, rows: Iterator[Quarantined]) -> int:
    """Write rows in the form that the file's name asks for."""
    if path.suffix not in {".csv", ".jsonl"}:
        raise Misconfigured(f"--export {path}: the name must end in .csv or .jsonl")
    written = 0
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            for row in rows:
                document = told(row)
                if path.suffix == ".jsonl":
                    line = json.dumps(document, ensure_ascii=False, default=plain)
                    file.write(f"{line}\n")
                else:
                    writer = csv.DictWriter(file, list(document))
                    if not written:
                        writer.writeheader()
                    document["at"] = plain(document["at"])
                    writer.writerow(document)
                written += 1
    except OSError as error:
        raise Misconfigured(f"--export {path}: {error.strerror}") from error
    return written
