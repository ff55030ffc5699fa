"""Write a new configuration: `init`."""

import glob
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

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
from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    counted,
    print_json,
)
from penstock.entrypoints.cli.file_sample import FileSample, sample_file
from penstock.entrypoints.cli.output.output_file import atomic_file
from penstock.errors import Misconfigured
from penstock.settings import STARTER
from penstock.settings.toml_draft import InferredDataset, write_draft

# all of them are in the comments of the draft
MAX_DOUBTS = 20


def init(
    source: Annotated[
        Path | None,
        typer.Option("--from", help="A CSV file to infer a dataset from."),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite an existing file.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a starter penstock.toml, or infer one from a CSV file."""
    if config.exists() and not force:
        raise Misconfigured(f"{config} already exists; use --force to overwrite it")
    document: dict[str, object] = {"written": str(config)}
    doubts: list[str] = []
    if source is None:
        content = STARTER
    else:
        drafted = infer_dataset(source, beside=config)
        content = write_draft(drafted)
        doubts = [*drafted.doubts]
        document |= {"dataset": drafted.name, "doubts": doubts}
    with atomic_file(config, "--config") as file:
        file.write(content.encode())
    if as_json:
        print_json(document)
    else:
        option = (
            "" if config == DEFAULT_CONFIG else f" --config {shlex.quote(str(config))}"
        )
        typer.echo(f"Wrote {config}. Edit it, then: penstock check{option}")
        show_doubts(doubts)


def show_doubts(doubts: Sequence[str]) -> None:
    """Print what may be wrong, in a bounded number of lines."""
    for doubt in doubts[:MAX_DOUBTS]:
        typer.echo(f"Please check: {doubt}.")
    if len(doubts) > MAX_DOUBTS:
        more = counted(len(doubts) - MAX_DOUBTS, "more point")
        typer.echo(f"Please check: {more}; see the comments in the file.")


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
    rows = counted(len(table.rows), "row")
    if sample.is_whole:
        return f"all of its {rows}" if table.rows else "its header alone"
    parts = "the beginning, the middle and the end"
    return f"{rows} of {parts if len(sample.chunks) > 1 else 'its beginning'}"
