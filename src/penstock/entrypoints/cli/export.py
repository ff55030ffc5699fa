"""Write the served rows of a dataset to a file: `export`."""

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from penstock.domain.dataset import Dataset, FieldType
from penstock.entrypoints.cli.plan import Name
from penstock.entrypoints.cli.shared import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    look,
    plain,
    print_json,
)
from penstock.errors import Misconfigured

ROWS_A_GROUP = 20_000


class Format(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


def export(
    dataset: Name,
    form: Annotated[Format, typer.Option("--format", help="The form to write.")] = (
        Format.JSONL
    ),
    out: Annotated[
        Path | None, typer.Option("--out", help="A file; standard output without.")
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Write the live rows, streamed, ordered by key."""
    if out is None and (as_json or form is Format.PARQUET):
        asked = "--json" if as_json else "--format parquet"
        raise Misconfigured(f"{asked} needs a file: add --out FILE")
    with look(config) as penstock:
        declared = penstock.settings.dataset(dataset)
        rows = penstock.stores.records.rows(declared)
        if form is Format.PARQUET:
            written = write_parquet(declared, rows, out or Path(dataset))
        else:
            write = write_jsonl if form is Format.JSONL else write_csv
            with text_file(out) as file:
                written = write(declared, rows, file)
    if as_json:
        print_json({"dataset": dataset, "rows": written, "file": str(out)})
    elif out is not None:
        typer.echo(f"Wrote {written:,} rows to {out}.")


@contextmanager
def text_file(out: Path | None) -> Iterator[IO[str]]:
    if out is None:
        sys.stdout.reconfigure(encoding="utf-8", newline="")  # type: ignore[union-attr]
        yield sys.stdout
        sys.stdout.flush()
        return
    try:
        with out.open("w", encoding="utf-8", newline="") as file:
            yield file
    except OSError as error:
        raise Misconfigured(f"--out {out}: {error.strerror}") from error


def write_jsonl(
    dataset: Dataset, rows: Iterator[tuple[object, ...]], file: IO[str]
) -> int:
    names = [field.name for field in dataset.fields]
    # stored JSON is text already: it is set in as it is
    nested = {f.name for f in dataset.fields if f.type is FieldType.JSON}
    written = 0
    for row in rows:
        document = {
            name: json.loads(value)
            if name in nested and isinstance(value, str)
            else value
            for name, value in zip(names, row, strict=True)
        }
        file.write(json.dumps(document, ensure_ascii=False, default=plain) + "\n")
        written += 1
    return written


def write_csv(
    dataset: Dataset, rows: Iterator[tuple[object, ...]], file: IO[str]
) -> int:
    writer = csv.writer(file)
    writer.writerow([field.name for field in dataset.fields])
    written = 0
    for row in rows:
        writer.writerow([cell(value) for value in row])
        written += 1
    return written


def cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, str | int | float):
        return value
    return plain(value)


def write_parquet(
    dataset: Dataset, rows: Iterator[tuple[object, ...]], out: Path
) -> int:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise Misconfigured(
            "--format parquet needs pyarrow: pip install 'penstock[parquet]'"
        ) from error
    types: dict[FieldType, Any] = {
        FieldType.TEXT: pa.string(),
        FieldType.INT: pa.int64(),
        FieldType.FLOAT: pa.float64(),
        FieldType.BOOL: pa.bool_(),
        FieldType.DATE: pa.date32(),
        FieldType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
        FieldType.JSON: pa.string(),
    }
    schema = pa.schema([(each.name, types[each.type]) for each in dataset.fields])
    written = 0
    try:
        with parquet.ParquetWriter(out, schema) as writer:
            while some := list(islice(rows, ROWS_A_GROUP)):
                columns = list(zip(*some, strict=True))
                arrays = [
                    pa.array(column, type=field.type)
                    for column, field in zip(columns, schema, strict=True)
                ]
                writer.write_table(pa.table(arrays, schema=schema))
                written += len(some)
    except OSError as error:
        raise Misconfigured(f"--out {out}: {error}") from error
    return written
