"""Put the commands together, and turn every error into a sentence."""

import json
import os
import sys

import typer

from penstock import __version__
from penstock.entrypoints.cli import (
    budgets,
    demo,
    export,
    imports,
    init,
    jobs,
    plan,
    quarantine,
    run,
    sandbox,
    serve,
    setup,
    token,
    worker,
)
from penstock.errors import Misconfigured, PenstockError

DONE, FAILED, WRONG = 0, 1, 2

app = typer.Typer(
    name="penstock",
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


app.command("init")(init.init)
app.command("check")(setup.check)
app.command("migrate")(setup.migrate)
app.command("plan")(plan.plan)
app.command("run")(run.run)
app.command("worker")(worker.worker)
app.add_typer(imports.app, name="imports")
app.add_typer(jobs.app, name="jobs")
app.command("audit")(imports.audit)
app.add_typer(quarantine.app, name="quarantine")
app.command("export")(export.export)
app.add_typer(budgets.app, name="budgets")
app.command("serve")(serve.serve)
app.command("token")(token.token)
app.command("sandbox")(sandbox.sandbox)
app.command("demo")(demo.demo)


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
