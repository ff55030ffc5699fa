"""Put the commands together, and turn every error into a sentence."""

import gc
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typing_extensions import override

from penstock import __version__
from penstock.errors import Misconfigured, PenstockError

DONE, FAILED, WRONG = 0, 1, 2

# where each command is, in the order in which help shows them
COMMANDS = {
    "init": "init:init",
    "check": "setup:check",
    "migrate": "setup:migrate",
    "plan": "plan:plan",
    "run": "run:run",
    "worker": "worker:worker",
    "imports": "imports:app",
    "jobs": "jobs:app",
    "audit": "imports:audit",
    "datasets": "datasets:app",
    "quarantine": "quarantine:app",
    "export": "export:export",
    "budgets": "budgets:app",
    "serve": "serve:serve",
    "token": "token:token",
    "sandbox": "sandbox:sandbox",
    "demo": "demo:demo",
}


class Lazily(TyperGroup):
    """Loads only the command that is called: loading all takes longer than many do."""

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    @override
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        place = COMMANDS.get(cmd_name)
        return None if place is None else loaded(cmd_name, place)

    @override
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = what_is_wrong(error)
            raise


def what_is_wrong(error: typer.BadParameter) -> str:
    """Say what is wrong with a number in words for people."""
    cause: Any = error.__cause__
    # they are the validator's own where it was one
    for each in cause.errors() if hasattr(cause, "errors") else ():
        if each["type"] in {"int_parsing", "float_parsing"}:
            return f"{each['input']!r} is not a number"
    return error.message


@contextmanager
def no_collection() -> Iterator[None]:
    """Load modules, among which is no garbage: looking for it is a tenth of a start."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def loaded(name: str, place: str) -> Any:
    """Build a command as it would be among all others."""
    module, _, attribute = place.partition(":")
    with no_collection():
        found = getattr(import_module(f"penstock.entrypoints.cli.{module}"), attribute)
    among = typer.Typer(add_completion=False, rich_markup_mode=None)
    among.callback()(lambda: None)
    if isinstance(found, typer.Typer):
        among.add_typer(found, name=name)
    else:
        among.command(name)(found)
    group: Any = typer.main.get_command(among)
    return group.commands[name]


app = typer.Typer(
    name="penstock",
    cls=Lazily,
    help="Import rate-limited APIs completely, once, with many workers, and prove it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False,
        "--version",
        callback=show_version,
        is_eager=True,
        help="Show the version and exit.",
    ),
) -> None:
    """Import rate-limited APIs completely, once, with many workers, and prove it."""


def main() -> None:
    """Run a command; no traceback reaches a user who did not ask for it."""
    for stream in (sys.stdout, sys.stderr):
        # a terminal that cannot show a character is no reason to fail
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        app()
    except PenstockError as error:
        tell(error.code, str(error))
        sys.exit(WRONG if isinstance(error, Misconfigured) else FAILED)
    except SystemExit as end:
        # typer has told people of a wrong use; its own error is behind the exit
        if end.code == WRONG:
            tell_machine("usage", str(end.__context__))
        raise
    except BrokenPipeError:
        # the reader of our output went away: nothing is wrong, nobody listens
        sys.stderr.close()
        sys.exit(DONE)
    except OSError as error:
        tell("io", f"{error.filename or 'output'}: {error.strerror}")
        sys.exit(FAILED)
    except Exception as error:
        if os.environ.get("PENSTOCK_TRACEBACK"):
            raise
        tell(
            "internal",
            f"this is a bug in penstock: {type(error).__name__}: {error}\n"
            "set PENSTOCK_TRACEBACK=1 to see where, and please report it",
        )
        sys.exit(FAILED)


def tell(code: str, message: str) -> None:
    """Say what is wrong, to machines if they asked, and to people."""
    tell_machine(code, message)
    for line in message.splitlines():
        typer.echo(f"penstock: {line}", err=True)


def tell_machine(code: str, message: str) -> None:
    """Print an error as the one document that `--json` promises."""
    if "--json" in sys.argv:
        typer.echo(json.dumps({"error": {"code": code, "message": message}}))
