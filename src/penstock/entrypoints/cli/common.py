"""What commands share: options, sessions, tables and JSON."""

import getpass
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from penstock.domain.actions import Action, ActionVia
from penstock.domain.dataset import Dataset
from penstock.domain.formats import format_instant, parse_instant
from penstock.errors import Misconfigured
from penstock.ports import Emit
from penstock.ports.database_watch import DatabaseWatch
from penstock.settings import Settings, load
from penstock.wiring import Container, open_container

if TYPE_CHECKING:
    from rich.console import Console

Config = Annotated[
    Path, typer.Option("--config", help="The configuration file.", show_default=True)
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document and nothing else.")
]
# of processes without an API
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=65_535,
        help="Serve Prometheus metrics at this port; 0 takes a free one.",
    ),
]
MetricsHost = Annotated[
    str,
    typer.Option("--metrics-host", help="The address to serve metrics at."),
]
LOOPBACK = "127.0.0.1"
DEFAULT_CONFIG = Path("penstock.toml")
# outside of these no provider has data, and date arithmetic may overflow
MIN_YEAR, MAX_YEAR = 1000, 9000
# the largest id a database can store
MAX_ID = 2**63 - 1


def id_argument(help_text: str) -> Any:
    return typer.Argument(min=1, max=MAX_ID, help=help_text)


def id_option(name: str, help_text: str) -> Any:
    return typer.Option(name, min=0, max=MAX_ID, help=help_text)


class WithDefault(TyperGroup):
    """A command group that runs `list` if no command is given."""

    default = "list"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command before its arguments."""
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


def default_help(summary: str, name: str) -> str:
    return f"{summary} The default command is list; see penstock {name} list --help."


def read_settings(config: Path) -> Settings:
    return load(config, os.environ)


@contextmanager
def session(
    config: Path,
    emit: Callable[[Settings], Emit] | None = None,
    *,
    threads: int = 1,
    is_prepared: bool = True,
    watch: DatabaseWatch | None = None,
) -> Iterator[Container]:
    """Read the settings, open the stores, and check that the tables are up to date.

    With `is_prepared=False` the tables of datasets are not checked; `watch` hears of
    each statement.
    """
    settings = read_settings(config)
    listener = ignore_event if emit is None else emit(settings)
    with open_container(settings, listener, threads=threads, watch=watch) as penstock:
        prepare(penstock, with_datasets=is_prepared)
        yield penstock


@contextmanager
def open_readonly(config: Path, *, is_prepared: bool = True) -> Iterator[Container]:
    """Open the stores to read only; a missing database is not created."""
    settings = read_settings(config)
    if database_exists(settings):
        with session(config, is_prepared=is_prepared) as penstock:
            yield penstock
        return
    with open_container(settings, ignore_event, scratch=True) as penstock:
        prepare(penstock)
        yield penstock


@contextmanager
def open_existing(config: Path, dataset: str) -> Iterator[Container]:
    """Open the stores to read rows; raises `Misconfigured` without tables."""
    settings = read_settings(config)
    declared = settings.dataset(dataset)
    path = settings.sqlite_path
    has_tables = False
    if path is None or path.exists():
        with open_container(settings, ignore_event) as penstock:
            has_tables = penstock.stores.schema.exists()
    if not has_tables:
        raise Misconfigured(
            f"{settings.place}: has no tables yet: nothing has been imported; "
            f"run: penstock run {declared.name}"
        )
    with session(config) as penstock:
        yield penstock


def database_exists(settings: Settings) -> bool:
    path = settings.sqlite_path
    if path is not None:
        return path.exists()
    with open_container(settings, ignore_event) as penstock:
        return penstock.stores.schema.exists()


def prepare(penstock: Container, *, with_datasets: bool = True) -> None:
    """Update the tables of SQLite; on a server only check them.

    An operator decides when the tables of a shared database change.
    """
    schema = penstock.stores.schema
    datasets = [*penstock.settings.datasets.values()] if with_datasets else []
    if not schema.is_shared:
        schema.migrate()
        for dataset in datasets:
            schema.ensure_table(dataset)
        return
    missing = [*schema.pending()]
    if not missing:
        missing = [
            step
            for dataset in datasets
            for step in schema.pending_table_changes(dataset)
        ]
    if missing:
        raise Misconfigured(
            f"{penstock.settings.place}: the tables are not up to date "
            f"({', '.join(missing)}); run: penstock migrate"
        )


def warn_about_key(dataset: Dataset, *, rows: int, keys: int) -> str | None:
    """Return a warning if many rows share a key, and so overwrite each other."""
    if rows - keys <= dataset.max_duplicates * rows:
        return None
    fields = ", ".join(dataset.key)
    return (
        f"the key ({fields}) is not unique: {rows:,} rows have only {keys:,} different "
        "keys, and rows with the same key overwrite each other; is the key right?"
    )


def ignore_event(event: object) -> None:
    del event


def print_json(document: object) -> None:
    print(json.dumps(document, ensure_ascii=False, default=to_json), flush=True)  # noqa: T201 (the result)


def to_json(value: object) -> object:
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, StrEnum):
        return value.value
    return str(value)


# wide enough that no line is cut in a file or a pipe
PIPE_WIDTH = 400


def stdout() -> "Console":
    # slow to import, and not needed with --json
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False)
    return (
        console if console.is_terminal else Console(width=PIPE_WIDTH, highlight=False)
    )


def counted(number: int, noun: str) -> str:
    """Write `1 shard`, `2 shards`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def show_table(title: str, rows: Sequence[Mapping[str, object]], *, empty: str) -> None:
    """Print rows as a table; the keys of the first row are the columns."""
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
        # brackets in data are not markup
        table.add_row(*(Text(format_value(value)) for value in row.values()))
    console.print(table)


def format_value(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        pairs = (f"{name} {format_value(item)}" for name, item in value.items())
        return ", ".join(pairs)
    return str(value)


def show_fields(document: Mapping[str, object]) -> None:
    """Print each field on a line of its own."""
    for name, value in document.items():
        stdout().print(f"{name:16} {format_value(value)}", markup=False)


def read_instant(text: str | None, option: str) -> datetime | None:
    """Parse a time of the command line; it must have a time zone."""
    if text is None:
        return None
    try:
        is_naive = datetime.fromisoformat(text).tzinfo is None
    except ValueError:
        is_naive = True
    instant = parse_instant(text)
    if instant is None or is_naive or not MIN_YEAR <= instant.year <= MAX_YEAR:
        raise Misconfigured(
            f"{option} {text!r} is not a time with a time zone, such as "
            "2026-01-31T12:00:00Z"
        )
    return instant


def log_action(penstock: Container, name: str, subject: str) -> None:
    """Log what this command did, under the name that the API has for it."""
    actor = f"{getpass.getuser()}@{socket.gethostname()}"
    penstock.log_action(
        Action(actor=actor, name=name, subject=subject, via=ActionVia.COMMAND)
    )
