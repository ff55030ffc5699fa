"""Assemble the commands, and turn every error into a message."""

import gc
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup
from typing_extensions import override

from penstock import __version__
from penstock.errors import Misconfigured, PenstockError

DONE, FAILED, WRONG = 0, 1, 2
LAST_STANDARD_STREAM = 2

# module:attribute of each command, in the order of the help text
COMMANDS = {
    "init": "init:init",
    "check": "check_migrate:check",
    "migrate": "check_migrate:migrate",
    "plan": "plan:plan",
    "run": "run:run",
    "worker": "worker:worker",
    "scheduler": "scheduler:scheduler",
    "status": "status:status",
    "health": "health:health",
    "imports": "imports:app",
    "jobs": "jobs:app",
    "audit": "imports:audit",
    "datasets": "datasets:app",
    "retention": "retention:retention",
    "archive": "archive:archive",
    "quarantine": "quarantine:app",
    "export": "export:export",
    "budgets": "budgets:app",
    "schedules": "schedules:app",
    "serve": "serve:serve",
    "token": "token:token",
    "sandbox": "sandbox:sandbox",
    "demo": "demo:demo",
}


class LazyCommandGroup(TyperGroup):
    """Imports only the command that is run: importing all is slower than most runs."""

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    @override
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        target = COMMANDS.get(cmd_name)
        return None if target is None else load_command(cmd_name, target)

    @override
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = plain_message(error)
            raise


def plain_message(error: typer.BadParameter) -> str:
    """Return the message of a bad parameter, in plain words for bad numbers."""
    cause: Any = error.__cause__
    # pydantic's errors have details
    for detail in cause.errors() if hasattr(cause, "errors") else ():
        if detail["type"] in {"int_parsing", "float_parsing"}:
            return f"{detail['input']!r} is not a number"
    return error.message


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable garbage collection: it is a tenth of the start-up time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def load_command(name: str, target: str) -> Any:
    """Import a command, and build it as Typer builds it inside a group."""
    module, _, attribute = target.partition(":")
    with gc_disabled():
        command = getattr(
            import_module(f"penstock.entrypoints.cli.{module}"), attribute
        )
    parent = typer.Typer(add_completion=False, rich_markup_mode=None)
    parent.callback()(lambda: None)
    if isinstance(command, typer.Typer):
        parent.add_typer(command, name=name)
    else:
        parent.command(name)(command)
    group: Any = typer.main.get_command(parent)
    return group.commands[name]


app = typer.Typer(
    name="penstock",
    cls=LazyCommandGroup,
    help="Import rate-limited APIs completely, once, with many workers, and prove it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def show_version(requested: bool) -> None:
    if requested:
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


def replace_closed_streams() -> None:
    """Let a command whose output was closed write nowhere, as with /dev/null."""
    # their numbers must not become those of files that are opened later
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= LAST_STANDARD_STREAM:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (until the process ends)
            setattr(sys, name, nowhere)


def main() -> None:
    """Run a command; print tracebacks only if PENSTOCK_TRACEBACK is set."""
    replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # a character that the terminal cannot show must not fail the command
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        app()
    except PenstockError as error:
        print_error(error.code, str(error))
        sys.exit(WRONG if isinstance(error, Misconfigured) else FAILED)
    except SystemExit as end:
        # typer has printed the usage error already, but not as JSON
        if end.code == WRONG:
            print_json_error("usage", str(end.__context__))
        raise
    except BrokenPipeError:
        # the reader of our output has closed it, as `head` does: no error
        sys.stderr.close()
        sys.exit(DONE)
    except OSError as error:
        message = f"{error.filename or 'output'}: {error.strerror}"
        try:
            print_error("io", message)
        except OSError:
            # not even that could be written to standard output
            close_full_output()
            typer.echo(f"penstock: {message}", err=True)
        sys.exit(FAILED)
    except Exception as error:
        if os.environ.get("PENSTOCK_TRACEBACK"):
            raise
        print_error(
            "internal",
            f"this is a bug in penstock: {type(error).__name__}: {error}\n"
            "set PENSTOCK_TRACEBACK=1 to see the traceback, and please report it",
        )
        sys.exit(FAILED)


def close_full_output() -> None:
    """Forget what cannot be written, which would fail again at the exit."""
    with suppress(OSError):
        sys.stdout.close()
    sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (until the process ends)


def print_error(code: str, message: str) -> None:
    """Print an error to standard error, and as JSON with `--json`."""
    print_json_error(code, message)
    for line in message.splitlines():
        typer.echo(f"penstock: {line}", err=True)


def print_json_error(code: str, message: str) -> None:
    """Print an error as the JSON document of `--json`, if that was given."""
    if "--json" in sys.argv:
        typer.echo(json.dumps({"error": {"code": code, "message": message}}))
