"""Work jobs until told to stop: `worker`."""

import sys
import threading
from typing import Annotated

import typer

from penstock.entrypoints.cli.shared import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    counted,
    print_json,
    session,
)
from penstock.entrypoints.threads import (
    on_leash,
    stop_on_signals,
    work_in_threads,
)
from penstock.wiring import logging_emit

# seconds until who waits to begin looks whether it should stop
LOOK_EVERY = 0.2

Threads = Annotated[
    int, typer.Option("--threads", min=1, max=64, help="Jobs worked at a time.")
]
Region = Annotated[
    str | None,
    typer.Option("--region", help="Only work of this region, or of none."),
]


def worker(
    threads: Threads = 4,
    region: Region = None,
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", help="Only these datasets.")
    ] = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Stop when no job is left.")
    ] = False,
    leashed: Annotated[
        bool,
        typer.Option(
            "--leashed",
            help="Begin with the first line of standard input, stop when it closes.",
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also tell each committed page.")
    ] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Claim and work jobs until SIGTERM: finish the page, checkpoint, release."""
    halt = threading.Event()
    begin = on_leash(halt) if leashed else None
    machine_reads = as_json or not sys.stderr.isatty()
    with (
        stop_on_signals(halt),
        session(
            config,
            lambda settings: logging_emit(
                settings, as_json=machine_reads, verbose=verbose
            ),
            threads=threads,
        ) as penstock,
    ):
        names = dataset or list(penstock.settings.datasets)
        wanted = {name: penstock.settings.dataset(name) for name in names}
        while begin is not None and not halt.is_set():
            if begin.wait(LOOK_EVERY):
                break
        worked = work_in_threads(
            penstock,
            wanted,
            threads=threads,
            region=region,
            halt=halt,
            until_idle=until_idle,
        )
        left = penstock.stores.jobs.outstanding(
            declarations=penstock.declarations(names), region=region
        )
    if as_json:
        print_json({"jobs_worked": worked, "left": left})
    elif until_idle:
        typer.echo(f"Worked {counted(worked, 'job')}.")
    if until_idle and left and not halt.is_set():
        typer.echo(
            f"penstock: {left} jobs wait for a stopped budget; see: penstock budgets",
            err=True,
        )
        raise typer.Exit(1)
