"""Run jobs until stopped: `worker`."""

import sys
import threading
from typing import Annotated

import typer

from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    LOOPBACK,
    AsJson,
    Config,
    MetricsHost,
    MetricsPort,
    counted,
    print_json,
    session,
)
from penstock.entrypoints.worker.loop import (
    stop_on_signals,
    stop_with_parent,
    work_in_threads,
)
from penstock.wiring import build_emit, build_event_metrics, serve_metrics

# seconds between two checks for a stop signal while waiting to start
POLL_INTERVAL = 0.2

Threads = Annotated[
    int, typer.Option("--threads", min=1, max=64, help="Concurrent jobs.")
]
Region = Annotated[
    str | None,
    typer.Option("--region", help="Only jobs of this region, or without a region."),
]


def worker(
    threads: Threads = 4,
    region: Region = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option("--dataset", help="Only jobs of this dataset; may be repeated."),
    ] = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Exit when no job is left.")
    ] = False,
    with_scheduler: Annotated[
        bool,
        typer.Option("--with-scheduler", help="Also begin scheduled imports."),
    ] = False,
    leashed: Annotated[
        bool,
        typer.Option(
            "--leashed",
            help="Start after the first line of standard input, exit when it closes.",
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also log each page and request.")
    ] = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOOPBACK,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Claim and run jobs until SIGTERM: commit the page, release the job, exit."""
    halt = threading.Event()
    start = stop_with_parent(halt) if leashed else None
    metrics = None if metrics_port is None else build_event_metrics()
    log_as_json = as_json or not sys.stderr.isatty()
    with (
        stop_on_signals(halt),
        session(
            config,
            lambda settings: build_emit(
                settings, as_json=log_as_json, verbose=verbose, metrics=metrics
            ),
            # scrapes have a connection of their own
            threads=threads + (metrics is not None),
            watch=None if metrics is None else metrics.database,
        ) as penstock,
        serve_metrics(penstock, metrics, metrics_host, metrics_port),
    ):
        names = dataset or list(penstock.settings.datasets)
        datasets = {name: penstock.settings.dataset(name) for name in names}
        while start is not None and not halt.is_set():
            if start.wait(POLL_INTERVAL):
                break
        worked = work_in_threads(
            penstock,
            datasets,
            threads=threads,
            region=region,
            halt=halt,
            until_idle=until_idle,
            with_scheduler=with_scheduler,
        )
        left = penstock.stores.jobs.outstanding(
            declarations=penstock.declarations(names), region=region
        )
    if as_json:
        print_json({"jobs_worked": worked, "left": left})
    elif until_idle:
        typer.echo(f"Ran {counted(worked, 'job')}.")
    if until_idle and left and not halt.is_set():
        typer.echo(
            f"penstock: {left} jobs wait for a stopped budget; see: penstock budgets",
            err=True,
        )
        raise typer.Exit(1)
