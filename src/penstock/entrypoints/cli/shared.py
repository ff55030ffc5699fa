"""What all commands share: options, opening, and how results are shown."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from penstock.domain.dataset import Dataset
from penstock.domain.text import format_instant, parse_instant
from penstock.errors import Misconfigured
from penstock.ports import Emit
from penstock.settings import Settings, load
from penstock.wiring import Penstock, opened

if TYPE_CHECKING:
    from rich.console import Console

Config = Annotated[
    Path, typer.Option("--config", help="The configuration file.", show_default=True)
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document and nothing else.")
]
DEFAULT_CONFIG = Path("penstock.toml")
# beyond these, no provider has data and no calendar has room
FIRST_YEAR, LAST_YEAR = 1000, 9000
# the largest id a database can hold
LARGEST_ID = 2**63 - 1


def id_argument(what: str) -> Any:
    return typer.Argument(min=1, max=LARGEST_ID, help=what)


def id_option(name: str, what: str) -> Any:
    return typer.Option(name, min=0, max=LARGEST_ID, help=what)


class WithDefault(TyperGroup):
    """A group whose command `list` is meant where none is named."""

    default = "list"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default command before what belongs to it."""
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


def default_help(what: str, name: str) -> str:
    """Say where the options of the unnamed command are."""
    return f"{what} Without a command it lists; see penstock {name} list --help."


# a larger share of rows that repeat a key makes one wonder
MOST_DUPLICATES = 0.1


def read_settings(config: Path) -> Settings:
    return load(config, os.environ)


@contextmanager
def session(
    config: Path,
    emit: Callable[[Settings], Emit] | None = None,
    *,
    threads: int = 1,
    is_prepared: bool = True,
) -> Iterator[Penstock]:
    """Read the settings, open the stores, see that the tables are up to date.

    Where it is not prepared, those of the datasets need not be what they should.
    """
    settings = read_settings(config)
    listener = ignore if emit is None else emit(settings)
    with opened(settings, listener, threads=threads) as penstock:
        prepare(penstock, with_datasets=is_prepared)
        yield penstock


@contextmanager
def look(config: Path, *, is_prepared: bool = True) -> Iterator[Penstock]:
    """Open the stores to look only; where there is no database yet, none is made."""
    settings = read_settings(config)
    if is_there(settings):
        with session(config, is_prepared=is_prepared) as penstock:
            yield penstock
        return
    with opened(settings, ignore, scratch=True) as penstock:
        prepare(penstock)
        yield penstock


@contextmanager
def open_existing(config: Path, dataset: str) -> Iterator[Penstock]:
    """Open the stores to read rows; refuse where there are no tables."""
    settings = read_settings(config)
    declared = settings.dataset(dataset)
    path = settings.sqlite_path
    has_tables = False
    if path is None or path.exists():
        with opened(settings, ignore) as penstock:
            has_tables = penstock.stores.schema.is_there()
    if not has_tables:
        raise Misconfigured(
            f"{settings.place}: has no tables yet, so nothing was ever imported; "
            f"run: penstock run {declared.name}"
        )
    with session(config) as penstock:
        yield penstock


def is_there(settings: Settings) -> bool:
    """Say whether there is a database to look at."""
    path = settings.sqlite_path
    if path is not None:
        return path.exists()
    with opened(settings, ignore) as penstock:
        return penstock.stores.schema.is_there()


def prepare(penstock: Penstock, *, with_datasets: bool = True) -> None:
    """Bring the tables up to date; on a server that is an operator's to decide."""
    schema = penstock.stores.schema
    datasets = [*penstock.settings.datasets.values()] if with_datasets else []
    if not schema.is_shared:
        schema.migrate()
        for dataset in datasets:
            schema.prepare(dataset)
        return
    missing = [*schema.pending()]
    if not missing:
        missing = [step for each in datasets for step in schema.unprepared(each)]
    if missing:
        raise Misconfigured(
            f"{penstock.settings.place}: the tables are not up to date "
            f"({', '.join(missing)}); run: penstock migrate"
        )


def doubt_key(dataset: Dataset, *, rows: int, keys: int) -> str | None:
    """Ask whether a key is right that many rows share: they replace each other."""
    if rows - keys <= MOST_DUPLICATES * rows:
        return None
    named = ", ".join(dataset.key)
    return (
        f"{rows:,} rows have only {keys:,} different keys ({named}), and rows with the "
        "same key replace each other: is the key right?"
    )


def ignore(event: object) -> None:
    del event


def print_json(document: object) -> None:
    print(json.dumps(document, ensure_ascii=False, default=plain), flush=True)  # noqa: T201 (the result)


def plain(value: object) -> object:
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, StrEnum):
        return value.value
    return str(value)


# wide enough that nothing is cut where a program or a file reads along
WIDE = 400


def stdout() -> "Console":
    # it takes a while to load, and whoever is read by a program needs none of it
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False)
    return console if console.is_terminal else Console(width=WIDE, highlight=False)


def counted(number: int, noun: str) -> str:
    """Write `1 shard`, `2 shards`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def show_table(title: str, rows: list[Mapping[str, object]], *, empty: str) -> None:
    """Show rows as a table; its columns are the keys of the first."""
    from rich.table import Table
    from rich.text import Text

    console = stdout()
    if not rows:
        console.print(empty)
        return
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in rows[0]:
        is_number = isinstance(rows[0][name], int | float)
        table.add_column(
            name.replace("_", " "),
            justify="right" if is_number else "left",
            overflow="fold",
        )
    for row in rows:
        # data is data: brackets in it are no markup
        table.add_row(*(Text(shown(value)) for value in row.values()))
    console.print(table)


def shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        told = (f"{name} {shown(each)}" for name, each in value.items())
        return ", ".join(told)
    return str(value)


def show_fields(document: Mapping[str, object]) -> None:
    """Show one thing with all its fields, a line each."""
    for name, value in document.items():
        stdout().print(f"{name:16} {shown(value)}", markup=False)


def read_instant(text: str | None, option: str) -> datetime | None:
    """Read a time given on the command line; a zone must be said."""
    if text is None:
        return None
    try:
        is_naive = datetime.fromisoformat(text).tzinfo is None
    except ValueError:
        is_naive = True
    instant = parse_instant(text)
    if instant is None or is_naive or not FIRST_YEAR <= instant.year <= LAST_YEAR:
        raise Misconfigured(
            f"{option} {text!r} is not a time with a zone; write 2026-01-31T12:00:00Z"
        )
    return instant
