"""Write the rows that another row with the same key replaced: `--duplicates`."""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from penstock.domain.dataset import Dataset
from penstock.domain.jobs import ImportId
from penstock.domain.source import CsvSource
from penstock.entrypoints.cli.output.output_file import atomic_file, refuse_unwritable
from penstock.entrypoints.exports.csv import csv_line, quote_safely
from penstock.errors import Misconfigured
from penstock.flow.find_duplicates import Duplicate
from penstock.wiring import Container

OPTION = "--duplicates"
COLUMNS = ("file", "line", "offset", "key", "kept_file", "kept_line")
FIELDS = ("file", "line", "offset", "key", "winner_file", "winner_line")


def refuse_duplicates(dataset: Dataset, out: Path) -> None:
    """Raise early what would fail only after the import."""
    if not isinstance(dataset.source, CsvSource):
        raise Misconfigured(
            f"{OPTION} works only with files: records of {dataset.name!r} come from an "
            "API, so they have no file and line"
        )
    refuse_unwritable(out, OPTION)


def write_duplicates(
    penstock: Container,
    dataset: Dataset,
    import_id: ImportId,
    out: Path,
    halt: threading.Event,
) -> int:
    """Read the files again, write the replaced rows, and return their number."""
    rows = penstock.duplicates(dataset, penstock.source(dataset), import_id, halt=halt)
    with atomic_file(out, OPTION) as file:
        return write_table(rows, file)


def write_table(rows: Iterable[Duplicate], file: IO[bytes]) -> int:
    file.write(csv_line(COLUMNS))
    written = 0
    for row in rows:
        values = (getattr(row, name) for name in FIELDS)
        file.write(csv_line(quote_safely(str(value)) for value in values))
        written += 1
    return written
