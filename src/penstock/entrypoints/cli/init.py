"""Write a first configuration: `init`."""

import glob
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from penstock.domain.guess.draft import guess_dataset
from penstock.domain.guess.encoding import EAST_ASIAN
from penstock.domain.guess.guessed import Guessed
from penstock.domain.guess.layout import NotATable, Table, guess_layout, read_table
from penstock.domain.guess.names import plain_name
from penstock.domain.source import refuse_odd_name
from penstock.entrypoints.cli.out import whole_file
from penstock.entrypoints.cli.peek import Peek, peek
from penstock.entrypoints.cli.shared import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    counted,
    print_json,
)
from penstock.errors import Misconfigured
from penstock.settings import STARTER
from penstock.settings.drafted import Drafted, write_draft

# more are in the comments of the draft
MOST_DOUBTS = 20


def init(
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", help="A CSV file to look at, and to draft a dataset from."
        ),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite an existing file.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a starter penstock.toml, or draft one from a CSV file."""
    if config.exists() and not force:
        raise Misconfigured(f"{config} exists; use --force to overwrite it")
    told: dict[str, object] = {"written": str(config)}
    doubts: list[str] = []
    if source is None:
        content = STARTER
    else:
        drafted = look_at(source, beside=config)
        content = write_draft(drafted)
        doubts = [*drafted.doubts]
        told |= {"dataset": drafted.name, "doubts": doubts}
    with whole_file(config, "--config") as file:
        file.write(content.encode())
    if as_json:
        print_json(told)
    else:
        named = (
            "" if config == DEFAULT_CONFIG else f" --config {shlex.quote(str(config))}"
        )
        typer.echo(f"Wrote {config}. Edit it, then: penstock check{named}")
        show_doubts(doubts)


def show_doubts(doubts: Sequence[str]) -> None:
    """Say what may well be wrong, in a bounded number of lines."""
    for doubt in doubts[:MOST_DOUBTS]:
        typer.echo(f"Doubt: {doubt}.")
    if len(doubts) > MOST_DOUBTS:
        more = counted(len(doubts) - MOST_DOUBTS, "more doubt")
        typer.echo(f"Doubt: {more}; see the comments of the file.")


def look_at(path: Path, *, beside: Path) -> Drafted:
    """Guess a dataset from a file; raises `Misconfigured` if it holds no table."""
    refuse_odd_name(place_of(path, beside))
    seen = peek(path)
    refuse_unreadable(path, seen.encoding)
    try:
        layout = guess_layout(seen.pieces[0], is_whole=seen.is_whole)
        table = read_table(seen.pieces, layout, is_whole=seen.is_whole)
        draft = guess_dataset(table)
    except NotATable as error:
        raise Misconfigured(f"{path}: {error}") from error
    stem = path.name.removesuffix(".gz").rpartition(".")[0] or path.name
    return Drafted(
        name=plain_name(stem, otherwise="rows"),
        file=place_of(path, beside),
        columns=table.columns,
        rows=rows_told(seen, table),
        odd=table.odd,
        encoding=seen.encoding,
        layout=layout,
        draft=draft,
    )


def refuse_unreadable(path: Path, encoding: Guessed[str]) -> None:
    """Refuse what no import could read, with the command that converts it."""
    if encoding.value in EAST_ASIAN:
        name = shlex.quote(str(path))
        raise Misconfigured(
            f"{path}: {encoding.reason}: encoding {encoding.value!r}, by a guess, "
            "cannot be imported; convert the file first: "
            f"iconv -f {encoding.value} -t UTF-8 {name} > utf-8.csv"
        )


def place_of(path: Path, config: Path) -> str:
    """Return a file as a pattern that finds it from the folder of the configuration."""
    folder = os.path.realpath(config.parent)
    place = Path(os.path.realpath(path))
    near = place.relative_to(folder) if place.is_relative_to(folder) else place
    return glob.escape(near.as_posix())


def rows_told(seen: Peek, table: Table) -> str:
    told = counted(len(table.rows), "row")
    if seen.is_whole:
        return f"all of its {told}" if table.rows else "its header alone"
    places = "the beginning, the middle and the end"
    return f"{told} of {places if len(seen.pieces) > 1 else 'its beginning'}"
