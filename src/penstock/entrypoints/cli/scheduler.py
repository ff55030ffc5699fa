"""Begin scheduled imports: `scheduler`."""

import sys
import threading
from contextlib import suppress
from typing import Annotated

import typer

from penstock import __version__
from penstock.domain.events import SchedulerStarted, SchedulerStopped
from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    LOOPBACK,
    AsJson,
    Config,
    MetricsHost,
    MetricsPort,
    print_json,
    session,
)
from penstock.entrypoints.worker.loop import stop_on_signals, stop_with_parent
from penstock.entrypoints.worker.planner import ImportPlanner
from penstock.entrypoints.worker.scheduler import schedules_task
from penstock.errors import StoreUnavailable
from penstock.wiring import (
    build_emit,
    build_event_metrics,
    build_maintenance,
    serve_metrics,
)

# seconds between two calls of the maintenance loop
MAINTENANCE_INTERVAL = 0.2


def scheduler(
    leashed: Annotated[
        bool,
        typer.Option("--leashed", help="Exit when standard input closes."),
    ] = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOOPBACK,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Begin scheduled imports until SIGTERM, for workers to run; any number may run."""
    halt = threading.Event()
    if leashed:
        stop_with_parent(halt)
    metrics = None if metrics_port is None else build_event_metrics()
    log_as_json = as_json or not sys.stderr.isatty()
    with (
        stop_on_signals(halt),
        session(
            config,
            lambda settings: build_emit(settings, as_json=log_as_json, metrics=metrics),
            # scrapes have a connection of their own
            threads=1 + (metrics is not None),
            watch=None if metrics is None else metrics.database,
        ) as penstock,
        serve_metrics(penstock, metrics, metrics_host, metrics_port),
    ):
        planner = ImportPlanner(penstock, halt)
        maintenance = build_maintenance(
            penstock, [planner.task, schedules_task(penstock, planner)]
        )
        schedules = len(penstock.settings.schedules)
        penstock.emit(SchedulerStarted(schedules=schedules, version=__version__))
        while not halt.wait(MAINTENANCE_INTERVAL):
            # without a database the tasks are tried again
            with suppress(StoreUnavailable):
                maintenance()
        maintenance.close()
        planner.close()
        penstock.emit(SchedulerStopped())
    if as_json:
        print_json({"stopped": True})
