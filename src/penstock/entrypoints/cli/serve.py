"""Serve the HTTP API: `serve`."""

import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from penstock import __version__
from penstock.domain.events import DatabaseReadOnly, ServerStarted, ServerStopping
from penstock.entrypoints.api.app import build_api
from penstock.entrypoints.api.cache.dataset_versions import POLL_THREADS
from penstock.entrypoints.api.concurrency.background import CONNECTIONS
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.metrics.multiprocess import MultiProcessMetrics
from penstock.entrypoints.api.server.accept_balancing import ConnectionCounts
from penstock.entrypoints.api.server.bind import address_of, listen
from penstock.entrypoints.api.server.protocol import connection_limits
from penstock.entrypoints.api.server.supervisor import (
    READY,
    Supervisor,
    WorkerSlot,
    stop_on_closed_stdin,
)
from penstock.entrypoints.api.server.uvicorn_server import ProcessShare, serve_api
from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    counted,
    print_json,
    read_settings,
    session,
)
from penstock.entrypoints.worker.loop import stop_on_signals
from penstock.entrypoints.worker.supervised import supervised
from penstock.ports import Emit
from penstock.settings import Settings
from penstock.wiring import Container, build_emit, build_event_metrics
from penstock.wiring.api import (
    open_api_stores,
    open_shared_cache,
    open_shared_rate_limiter,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    host: str
    port: int
    workers: int
    threads: int
    grace: float
    config: Path
    as_json: bool


def serve(
    host: Annotated[
        str,
        typer.Option(help="The address to listen on; any but loopback needs [auth]."),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port; 0 takes a free one.")
    ] = 8000,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Server processes; each uses one core.")
    ] = 1,
    threads: Annotated[
        int,
        typer.Option(min=1, max=64, help="Concurrent database queries per process."),
    ] = 8,
    grace: Annotated[
        float,
        typer.Option(
            min=0,
            max=600,
            help="Seconds to keep serving after SIGTERM, while reporting not ready.",
        ),
    ] = 5,
    with_scheduler: Annotated[
        bool, typer.Option("--with-scheduler", help="Also begin scheduled imports.")
    ] = False,
    with_worker: Annotated[
        bool, typer.Option("--with-worker", help="Also run an import worker.")
    ] = False,
    place: Annotated[str | None, typer.Option(hidden=True)] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Serve the HTTP API until SIGTERM: finish open requests, then exit."""
    options = ServeOptions(
        host=host,
        port=port,
        workers=workers,
        threads=threads,
        grace=grace,
        config=config,
        as_json=as_json,
    )
    if place is not None:
        serve_as_worker(options, WorkerSlot.parse(place))
        return
    with companion(config, with_scheduler=with_scheduler, with_worker=with_worker):
        if workers == 1:
            serve_single(options)
        else:
            serve_processes(options)


@contextmanager
def companion(
    config: Path, *, with_scheduler: bool, with_worker: bool
) -> Iterator[None]:
    """Run a worker, a scheduler, or a worker with both roles beside the API."""
    command = ["worker"] if with_worker else ["scheduler"]
    if with_worker and with_scheduler:
        command.append("--with-scheduler")
    if not with_worker and not with_scheduler:
        yield
        return
    emit = emit_of(read_settings(config))
    with supervised([*command, "--config", str(config)], emit):
        yield


def serve_single(options: ServeOptions) -> None:
    with (
        open_api(options) as api,
        listening_socket(options, api.penstock.settings) as listener,
    ):
        serve_api(
            api,
            listener,
            grace=options.grace,
            on_ready=lambda: report_address(options, api.penstock, listener),
            on_stop=lambda: report_stopping(options, api.penstock.emit),
        )


def serve_processes(options: ServeOptions) -> None:
    """Supervise server processes; settings are validated once, here."""
    with session(options.config, emit_of) as penstock:
        settings, emit = penstock.settings, penstock.emit
    connection_limits(options.threads)
    halt = threading.Event()
    command = [
        *(sys.executable, "-m", "penstock", "serve"),
        *("--config", str(options.config)),
        *("--threads", str(options.threads)),
        *("--grace", str(options.grace)),
    ]
    with (
        stop_on_signals(halt),
        listening_socket(options, settings) as listener,
        tempfile.TemporaryDirectory(prefix="penstock-") as folder,
    ):
        supervisor = Supervisor(
            command, listener, workers=options.workers, folder=Path(folder), emit=emit
        )
        try:
            supervisor.start(halt)
            if not halt.is_set():
                report_address(options, penstock, listener)
            supervisor.supervise(halt)
            report_stopping(options, emit)
        finally:
            supervisor.stop(grace=options.grace)


def serve_as_worker(options: ServeOptions, slot: WorkerSlot) -> None:
    """Serve the socket that the supervisor has opened for all its processes."""
    stop_on_closed_stdin()
    with (
        open_api(options) as api,
        socket.socket(fileno=slot.socket) as listener,
    ):
        api.process_metrics = MultiProcessMetrics(
            api.metrics, api.process_metrics.stores, slot.folder, slot.number
        )
        share = ProcessShare(ConnectionCounts(slot.counts), slot.number)
        serve_api(api, listener, grace=options.grace, on_ready=print_ready, share=share)


@contextmanager
def open_api(options: ServeOptions) -> Iterator[AppContext]:
    threads, metrics = options.threads, build_event_metrics()
    with (
        session(
            options.config,
            lambda settings: emit_of(settings, metrics),
            threads=threads + CONNECTIONS,
            watch=metrics.database,
        ) as penstock,
        open_api_stores(
            penstock.settings,
            penstock.emit,
            threads=threads + POLL_THREADS,
            watch=metrics.database,
        ) as stores,
        open_shared_cache(penstock.settings) as cache,
        open_shared_rate_limiter(penstock.settings) as rates,
    ):
        api = build_api(penstock, stores, threads=threads, shared=cache, rates=rates)
        api.metrics.registry.register(metrics.registry)
        if penstock.stores.schema.is_read_only:
            penstock.emit(DatabaseReadOnly(database=penstock.settings.place))
        yield api
        # before its stores are closed
        api.background.join()


@contextmanager
def listening_socket(
    options: ServeOptions, settings: Settings
) -> Iterator[socket.socket]:
    listener = listen(options.host, options.port, is_open=settings.auth is not None)
    with closing(listener):
        yield listener


def emit_of(settings: Settings, metrics: Emit | None = None) -> Emit:
    return build_emit(settings, as_json=not sys.stderr.isatty(), metrics=metrics)


def report_address(
    options: ServeOptions, penstock: Container, listener: socket.socket
) -> None:
    url, settings = address_of(listener), penstock.settings
    if options.as_json:
        document = {
            "url": url,
            "port": listener.getsockname()[1],
            "datasets": sorted(settings.datasets),
            "workers": options.workers,
            "process": os.getpid(),
        }
        print_json(document)
    elif is_watched():
        datasets = counted(len(settings.datasets), "dataset")
        typer.echo(f"Serving {datasets} at {url} (press Ctrl-C to stop)")
        sys.stdout.flush()
        return
    penstock.emit(
        ServerStarted(url=url, processes=options.workers, version=__version__)
    )


def report_stopping(options: ServeOptions, emit: Emit) -> None:
    """Explain the delay on a terminal; a log gets an event."""
    if not is_watched():
        emit(ServerStopping(grace=timedelta(seconds=options.grace)))
    elif options.grace:
        typer.echo(
            f"Stopping in {options.grace:g} s, so that load balancers notice; "
            "press Ctrl-C again to stop now.",
            err=True,
        )


def is_watched() -> bool:
    """Return whether sentences are for a person; a log has one format only."""
    return sys.stdout.isatty() or sys.stderr.isatty()


def print_ready() -> None:
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
