"""Write a new configuration: `init`."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    counted,
    print_json,
)
from penstock.entrypoints.cli.output.output_file import atomic_file
from penstock.entrypoints.file_draft import infer_dataset
from penstock.errors import Misconfigured
from penstock.settings import STARTER
from penstock.settings.toml_draft import write_draft

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
