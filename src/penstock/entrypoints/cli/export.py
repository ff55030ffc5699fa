"""Write the served rows of a dataset to a file: `export`."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import IO, Annotated, TypeAlias

import typer

from penstock.domain.dataset import Dataset
from penstock.entrypoints.cli.out import standard_output, whole_file
from penstock.entrypoints.cli.plan import Name
from penstock.entrypoints.cli.shared import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    counted,
    open_existing,
    print_json,
)
from penstock.entrypoints.forms.as_csv import write_csv
from penstock.entrypoints.forms.as_jsonl import write_jsonl
from penstock.entrypoints.forms.as_parquet import write_parquet
from penstock.errors import Misconfigured

Write: TypeAlias = Callable[[Dataset, Iterator[tuple[object, ...]], IO[bytes]], int]


class Format(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


def export(
    dataset: Name,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="The form to write; without, the ending of --out says it; "
            "to standard output, jsonl.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="A file; standard output without.")
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="CSV to be imported again: put no apostrophe before text that "
            "a spreadsheet would run as a formula.",
        ),
    ] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Write the live rows, streamed, ordered by key."""
    form = form or form_of(out, dataset)
    if out is None and (as_json or form is Format.PARQUET):
        asked = "--json" if as_json else "--format parquet"
        raise Misconfigured(f"{asked} needs a file: add --out FILE")
    with open_existing(config, dataset) as penstock:
        declared = penstock.settings.dataset(dataset)
        rows = penstock.stores.records.rows(declared)
        with standard_output() if out is None else whole_file(out) as file:
            written = writer(form, raw=raw)(declared, rows, file)
    if as_json:
        print_json({"dataset": dataset, "rows": written, "file": str(out)})
    elif out is not None:
        typer.echo(f"Wrote {counted(written, 'row')} to {out}.")


def form_of(out: Path | None, dataset: str) -> Format:
    """Return the form that the name of a file asks for, or refuse the name."""
    if out is None:
        return Format.JSONL
    ending = ending_of(out)
    if ending in {*Format}:
        return Format(ending)
    told = "the name must end in .jsonl, .csv or .parquet, or say --format"
    if ending == "gz":
        inside = Format.CSV if ending_of(Path(out.stem)) == "csv" else Format.JSONL
        told += f"; to pack: penstock export {dataset} --format {inside} | gzip > {out}"
    raise Misconfigured(f"--out {out}: {told}")


def ending_of(name: Path) -> str:
    return name.suffix.lower().removeprefix(".")


def writer(form: Format, *, raw: bool) -> Write:
    match form:
        case Format.JSONL:
            return write_jsonl
        case Format.CSV:
            return partial(write_csv, raw=raw)
        case Format.PARQUET:
            return write_parquet
