"""Write the live rows of a dataset to a file: `export`."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import IO, Annotated, TypeAlias

import typer

from penstock.domain.dataset import Dataset
from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    counted,
    open_existing,
    print_json,
)
from penstock.entrypoints.cli.output.output_file import atomic_file, standard_output
from penstock.entrypoints.cli.plan import Name
from penstock.entrypoints.exports.csv import write_csv
from penstock.entrypoints.exports.jsonl import write_jsonl
from penstock.entrypoints.exports.parquet import write_parquet
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
            help="The file format; by default the extension of --out, or jsonl on "
            "standard output.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The file to write; default is standard output."),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Do not put an apostrophe before CSV text that a spreadsheet would "
            "run as a formula; for files to be imported again.",
        ),
    ] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Write the live rows, ordered by key, as a stream."""
    form = form or format_of(out, dataset)
    if out is None and (as_json or form is Format.PARQUET):
        option = "--json" if as_json else "--format parquet"
        raise Misconfigured(f"{option} needs a file: add --out FILE")
    with open_existing(config, dataset) as penstock:
        declared = penstock.settings.dataset(dataset)
        rows = penstock.stores.records.rows(declared)
        with standard_output() if out is None else atomic_file(out) as file:
            written = writer(form, raw=raw)(declared, rows, file)
    if as_json:
        print_json({"dataset": dataset, "rows": written, "file": str(out)})
    elif out is not None:
        typer.echo(f"Wrote {counted(written, 'row')} to {out}.")


def format_of(out: Path | None, dataset: str) -> Format:
    """Return the format of a file name; raises `Misconfigured` if it has none."""
    if out is None:
        return Format.JSONL
    extension = extension_of(out)
    if extension in {*Format}:
        return Format(extension)
    message = "the name must end in .jsonl, .csv or .parquet, or give --format"
    if extension == "gz":
        inner = Format.CSV if extension_of(Path(out.stem)) == "csv" else Format.JSONL
        command = f"penstock export {dataset} --format {inner} | gzip > {out}"
        message += f"; to compress: {command}"
    raise Misconfigured(f"--out {out}: {message}")


def extension_of(name: Path) -> str:
    return name.suffix.lower().removeprefix(".")


def writer(form: Format, *, raw: bool) -> Write:
    match form:
        case Format.JSONL:
            return write_jsonl
        case Format.CSV:
            return partial(write_csv, raw=raw)
        case Format.PARQUET:
            return write_parquet
