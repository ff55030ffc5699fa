"""Rows of files that lost to another row of their key, as a table: `--duplicates`."""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from penstock.domain.dataset import Dataset
from penstock.domain.job import ImportId
from penstock.domain.source import CsvSource
from penstock.entrypoints.cli.out import refuse_unwritable, whole_file
from penstock.entrypoints.forms.as_csv import line, protected
from penstock.errors import Misconfigured
from penstock.flow.duplicates import Duplicate
from penstock.wiring import Penstock

OPTION = "--duplicates"
COLUMNS = ("file", "line", "offset", "key", "kept_file", "kept_line")


def refuse_duplicates(dataset: Dataset, out: Path) -> None:
    """Refuse what could not be written at the end of long work."""
    if not isinstance(dataset.source, CsvSource):
        raise Misconfigured(
            f"{OPTION} is for datasets of files: the records of {dataset.name!r} stand "
            "nowhere that could be told"
        )
    refuse_unwritable(out, OPTION)


def write_duplicates(
    penstock: Penstock,
    dataset: Dataset,
    import_id: ImportId,
    out: Path,
    halt: threading.Event,
) -> int:
    """Read the files of an import again, and write which rows lost; return how many."""
    found = penstock.duplicates(dataset, penstock.source(dataset), import_id, halt=halt)
    with whole_file(out, OPTION) as file:
        return write_table(found, file)


def write_table(rows: Iterable[Duplicate], file: IO[bytes]) -> int:
    file.write(line(COLUMNS))
    written = 0
    for row in rows:
        told = (getattr(row, name) for name in COLUMNS)
        file.write(line(protected(str(each)) for each in told))
        written += 1
    return written
