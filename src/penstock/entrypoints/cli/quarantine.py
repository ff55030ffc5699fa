"""Look at bad rows, and try them again: `quarantine`."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from penstock.domain.dataset import Dataset
from penstock.domain.job import ImportId
from penstock.domain.source import CsvSource
from penstock.entrypoints.cli.out import whole_file
from penstock.entrypoints.cli.plan import Name
from penstock.entrypoints.cli.shared import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    WithDefault,
    counted,
    default_help,
    id_option,
    open_existing,
    plain,
    print_json,
    session,
    show_table,
)
from penstock.entrypoints.forms.as_csv import line, protected
from penstock.entrypoints.forms.bad_rows import page_by_page, place_of, write_bad_rows
from penstock.errors import Misconfigured
from penstock.ports import Quarantined
from penstock.wiring import Penstock

app = typer.Typer(
    cls=WithDefault,
    help=default_help("Look at bad rows, or try them again.", "quarantine"),
)


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
    with open_existing(config, dataset) as penstock:
        declared = penstock.settings.dataset(dataset)
        if export is not None:
            by_import = write(penstock, declared, export)
            written = by_import.total()
            if as_json:
                print_json({"written": written, "file": str(export)})
            else:
                more = settled(penstock, declared, by_import)
                typer.echo(f"Wrote {counted(written, 'bad row')} to {export}{more}.")
            return
        # one more than is shown says whether there are more
        found = penstock.stores.records.quarantine(
            declared, after=after, limit=limit + 1
        )
        rows = found[:limit]
    if as_json:
        print_json({"rows": [told(each) for each in rows]})
        return
    show_table(
        "quarantine",
        [
            {
                "id": each.id,
                "import": each.import_id,
                **shown_place(declared, each),
                "field": each.rejection.field,
                "reason": each.rejection.reason.value,
                "detail": each.rejection.detail[:80],
            }
            for each in rows
        ],
        empty=f"{dataset} has no bad rows{f' after {after}' if after else ''}.",
    )
    if len(found) > limit:
        typer.echo(
            f"These are {limit:,}, and there are more; go on with: "
            f"penstock quarantine {dataset} --after {rows[-1].id}"
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


def shown_place(dataset: Dataset, row: Quarantined) -> Mapping[str, object]:
    """Say where a row stands: in a file, or on a page of a provider."""
    if isinstance(dataset.source, CsvSource):
        place = place_of(row)
        is_known = place["file"] is not None
        return {"place": f"{place['file']}:{place['line']}" if is_known else None}
    return {
        "shard": row.shard_key,
        "page": row.page_seq,
        "position": row.rejection.position,
    }


def told(row: Quarantined) -> dict[str, Any]:
    rejection = row.rejection
    return {
        "id": row.id,
        "import_id": row.import_id,
        "job_id": row.job,
        "shard_key": row.shard_key,
        "page": row.page_seq,
        "position": rejection.position,
        **place_of(row),
        "field": rejection.field,
        "reason": rejection.reason.value,
        "detail": rejection.detail,
        "key": None if rejection.key is None else list(rejection.key),
        "raw": rejection.raw.decode("utf-8", errors="replace"),
        "at": row.at,
    }


def write(penstock: Penstock, dataset: Dataset, path: Path) -> Counter[ImportId]:
    """Write all open bad rows in the form that the file's name asks for.

    Return how many there are of each import.
    """
    if path.suffix not in {".csv", ".jsonl"}:
        raise Misconfigured(f"--export {path}: the name must end in .csv or .jsonl")
    quarantine = penstock.stores.records.quarantine
    found = page_by_page(
        lambda after, limit: quarantine(dataset, after=after, limit=limit)
    )
    by_import: Counter[ImportId] = Counter()
    rows = tallied(found, by_import)
    with whole_file(path, "--export") as file:
        if path.suffix == ".jsonl":
            write_lines(rows, file)
        elif isinstance(dataset.source, CsvSource):
            write_bad_rows(dataset, penstock.source(dataset), rows, file)
        else:
            write_table(rows, file)
    return by_import


def tallied(
    rows: Iterable[Quarantined], by_import: Counter[ImportId]
) -> Iterator[Quarantined]:
    for row in rows:
        by_import[row.import_id] += 1
        yield row


def settled(
    penstock: Penstock, dataset: Dataset, by_import: Mapping[ImportId, int]
) -> str:
    """Say how many bad rows of the last import are left out, since all is well."""
    last = penstock.stores.imports.newest(dataset.name)
    if last is None:
        return ""
    records = penstock.stores.records
    found = sum(each.rows for each in records.rejections_by_reason(last.id))
    # an import that repeats another tells of rows which that one has read
    ids = {row.import_id for row in records.rejected(last.id, after=0, limit=1)}
    more = found - sum(by_import.get(each, 0) for each in ids)
    if more <= 0:
        return ""
    verb = "was" if more == 1 else "were"
    return (
        f"; {more:,} more of import {last.id} {verb} replaced by a good row of the key"
    )


def write_lines(rows: Iterable[Quarantined], file: IO[bytes]) -> None:
    for row in rows:
        document = json.dumps(told(row), ensure_ascii=False, default=plain)
        file.write(f"{document}\n".encode())


def write_table(rows: Iterable[Quarantined], file: IO[bytes]) -> None:
    for place, row in enumerate(rows):
        document = told(row)
        if not place:
            file.write(line(document))
        cells = (None if each is None else cell_of(each) for each in document.values())
        file.write(line("" if each is None else protected(each) for each in cells))


def cell_of(value: object) -> str:
    return value if isinstance(value, str) else str(plain(value))
