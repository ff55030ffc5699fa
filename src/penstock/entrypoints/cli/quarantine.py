"""List, export and replay bad rows: `quarantine`."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from penstock.domain.dataset import Dataset
from penstock.domain.jobs import ImportId
from penstock.domain.source import CsvSource
from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    WithDefault,
    counted,
    default_help,
    id_option,
    log_action,
    open_existing,
    print_json,
    session,
    show_table,
    to_json,
)
from penstock.entrypoints.cli.output.output_file import atomic_file
from penstock.entrypoints.cli.plan import Name
from penstock.entrypoints.exports.csv import csv_line, quote_safely
from penstock.entrypoints.exports.rejected_rows import (
    position_of,
    read_all,
    write_bad_rows,
)
from penstock.errors import Misconfigured
from penstock.ports import QuarantinedRow
from penstock.wiring import Container

app = typer.Typer(
    cls=WithDefault,
    help=default_help("List bad rows, or replay them.", "quarantine"),
)


@app.command("list")
def show(
    dataset: Name,
    export: Annotated[
        Path | None,
        typer.Option("--export", help="Write all bad rows to a .csv or .jsonl file."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    after: Annotated[int, id_option("--after", "Start after this id.")] = 0,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Show the unresolved bad rows of a dataset with their reasons."""
    with open_existing(config, dataset) as penstock:
        declared = penstock.settings.dataset(dataset)
        if export is not None:
            by_import = export_rows(penstock, declared, export)
            written = by_import.total()
            if as_json:
                print_json({"written": written, "file": str(export)})
            else:
                more = describe_resolved(penstock, declared, by_import)
                typer.echo(f"Wrote {counted(written, 'bad row')} to {export}{more}.")
            return
        # one more row shows whether there are more
        found = penstock.stores.records.quarantine(
            declared, after=after, limit=limit + 1
        )
        rows = found[:limit]
    if as_json:
        print_json({"rows": [to_dict(row) for row in rows]})
        return
    show_table(
        "quarantine",
        [
            {
                "id": row.id,
                "import": row.import_id,
                **location_columns(declared, row),
                "field": row.rejection.field,
                "reason": row.rejection.reason.value,
                "detail": row.rejection.detail[:80],
            }
            for row in rows
        ],
        empty=f"{dataset} has no bad rows{f' after {after}' if after else ''}.",
    )
    if len(found) > limit:
        typer.echo(
            f"Showing {limit:,}; there are more. Continue with: "
            f"penstock quarantine {dataset} --after {rows[-1].id}"
        )


@app.command("replay")
def replay(
    dataset: Name,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Store nothing; print what would be.")
    ] = False,
) -> None:
    """Map the bad rows again, and store those that are valid now."""
    with session(config) as penstock:
        declared = penstock.settings.dataset(dataset)
        source = penstock.source(declared)
        result = penstock.replay(declared, source, dry_run=dry_run)
        if not dry_run:
            log_action(penstock, "replayQuarantine", f"datasets/{dataset}/quarantine")
    if as_json:
        print_json(
            {
                "accepted": result.accepted,
                "superseded": result.superseded,
                "still_bad": result.still_bad,
            }
        )
    else:
        typer.echo(
            f"{'A dry run, nothing was stored: ' if dry_run else ''}"
            f"{result.accepted:,} accepted, {result.superseded:,} superseded, "
            f"{result.still_bad:,} still bad."
        )


def location_columns(dataset: Dataset, row: QuarantinedRow) -> Mapping[str, object]:
    """Return where a row comes from: a line of a file, or a page of a provider."""
    if isinstance(dataset.source, CsvSource):
        location = position_of(row)
        if location["file"] is None:
            return {"location": None}
        return {"location": f"{location['file']}:{location['line']}"}
    return {
        "shard": row.shard_key,
        "page": row.page_seq,
        "position": row.rejection.position,
    }


def to_dict(row: QuarantinedRow) -> dict[str, Any]:
    rejection = row.rejection
    return {
        "id": row.id,
        "import_id": row.import_id,
        "job_id": row.job,
        "shard_key": row.shard_key,
        "page": row.page_seq,
        "position": rejection.position,
        **position_of(row),
        "field": rejection.field,
        "reason": rejection.reason.value,
        "detail": rejection.detail,
        "key": None if rejection.key is None else list(rejection.key),
        "raw": rejection.raw.decode("utf-8", errors="replace"),
        "at": row.at,
    }


def export_rows(penstock: Container, dataset: Dataset, path: Path) -> Counter[ImportId]:
    """Write all unresolved bad rows; return how many each import has."""
    if path.suffix not in {".csv", ".jsonl"}:
        raise Misconfigured(f"--export {path}: the name must end in .csv or .jsonl")
    quarantine = penstock.stores.records.quarantine
    found = read_all(lambda after, limit: quarantine(dataset, after=after, limit=limit))
    by_import: Counter[ImportId] = Counter()
    rows = count_by_import(found, by_import)
    with atomic_file(path, "--export") as file:
        if path.suffix == ".jsonl":
            write_lines(rows, file)
        elif isinstance(dataset.source, CsvSource):
            write_bad_rows(dataset, penstock.source(dataset), rows, file)
        else:
            write_table(rows, file)
    return by_import


def count_by_import(
    rows: Iterable[QuarantinedRow], by_import: Counter[ImportId]
) -> Iterator[QuarantinedRow]:
    for row in rows:
        by_import[row.import_id] += 1
        yield row


def describe_resolved(
    penstock: Container, dataset: Dataset, by_import: Mapping[ImportId, int]
) -> str:
    """Describe bad rows of the last import that a valid row has replaced since."""
    last = penstock.stores.imports.newest(dataset.name)
    if last is None:
        return ""
    records = penstock.stores.records
    found = sum(reason.rows for reason in records.rejections_by_reason(last.id))
    # an import that reuses the pages of another reports that import's rows
    ids = {row.import_id for row in records.rejected(last.id, after=0, limit=1)}
    more = found - sum(by_import.get(import_id, 0) for import_id in ids)
    if more <= 0:
        return ""
    verb = "was" if more == 1 else "were"
    return (
        f"; {more:,} more of import {last.id} {verb} replaced by a valid row with the "
        "same key"
    )


def write_lines(rows: Iterable[QuarantinedRow], file: IO[bytes]) -> None:
    for row in rows:
        document = json.dumps(to_dict(row), ensure_ascii=False, default=to_json)
        file.write(f"{document}\n".encode())


def write_table(rows: Iterable[QuarantinedRow], file: IO[bytes]) -> None:
    for position, row in enumerate(rows):
        document = to_dict(row)
        if not position:
            file.write(csv_line(document))
        values = document.values()
        file.write(
            csv_line("" if v is None else quote_safely(as_text(v)) for v in values)
        )


def as_text(value: object) -> str:
    return value if isinstance(value, str) else str(to_json(value))
