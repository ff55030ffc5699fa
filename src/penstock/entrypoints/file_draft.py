"""Draft the declaration of a dataset from a file."""

import glob
import os
import shlex
from pathlib import Path

from penstock.domain.inference.dialect import (
    NotTabular,
    SampleTable,
    guess_layout,
    read_table,
)
from penstock.domain.inference.draft import guess_dataset
from penstock.domain.inference.encoding import EAST_ASIAN_ENCODINGS
from penstock.domain.inference.field_names import plain_name
from penstock.domain.inference.guess import Guess
from penstock.domain.source import refuse_undecodable_name
from penstock.entrypoints.file_sample import FileSample, sample_file
from penstock.errors import Misconfigured
from penstock.settings.toml_draft import InferredDataset


def infer_dataset(path: Path, *, beside: Path) -> InferredDataset:
    """Infer a dataset from a file; raises `Misconfigured` if it is not a table."""
    refuse_undecodable_name(pattern_of(path, beside))
    sample = sample_file(path)
    refuse_unreadable(path, sample.encoding)
    try:
        layout = guess_layout(sample.chunks[0], is_whole=sample.is_whole)
        table = read_table(sample.chunks, layout, is_whole=sample.is_whole)
        draft = guess_dataset(table)
    except NotTabular as error:
        raise Misconfigured(f"{path}: {error}") from error
    stem = path.name.removesuffix(".gz").rpartition(".")[0] or path.name
    return InferredDataset(
        name=plain_name(stem, otherwise="rows"),
        file=pattern_of(path, beside),
        columns=table.columns,
        rows=describe_rows(sample, table),
        odd=table.odd,
        encoding=sample.encoding,
        layout=layout,
        draft=draft,
    )


def refuse_unreadable(path: Path, encoding: Guess[str]) -> None:
    """Refuse an encoding that imports cannot read, with a command to convert it."""
    if encoding.value in EAST_ASIAN_ENCODINGS:
        name = shlex.quote(str(path))
        raise Misconfigured(
            f"{path}: {encoding.reason}: the guessed encoding {encoding.value!r} "
            "cannot be imported; convert the file first: "
            f"iconv -f {encoding.value} -t UTF-8 {name} > utf-8.csv"
        )


def pattern_of(path: Path, config: Path) -> str:
    """Return a pattern that matches the file from the folder of the configuration."""
    folder = os.path.realpath(config.parent)
    file = Path(os.path.realpath(path))
    relative = file.relative_to(folder) if file.is_relative_to(folder) else file
    return glob.escape(relative.as_posix())


def describe_rows(sample: FileSample, table: SampleTable) -> str:
    number = len(table.rows)
    rows = f"{number:,} row" if number == 1 else f"{number:,} rows"
    if sample.is_whole:
        return f"all of its {rows}" if table.rows else "its header alone"
    parts = "the beginning, the middle and the end"
    return f"{rows} of {parts if len(sample.chunks) > 1 else 'its beginning'}"
