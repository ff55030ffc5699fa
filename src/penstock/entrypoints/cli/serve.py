"""Serve the HTTP API: `serve`."""

import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from penstock.entrypoints.api.accept_balancing import ConnectionCounts
from penstock.entrypoints.api.app import LOOKING, api_of
from penstock.entrypoints.api.colleagues import Colleague
from penstock.entrypoints.api.errands import CONNECTIONS
from penstock.entrypoints.api.line import connection_limits
from penstock.entrypoints.api.listening import address_of, listen
from penstock.entrypoints.api.server import Share, serve_api
from penstock.entrypoints.api.service import Api
from penstock.entrypoints.api.staff import READY, Place, Staff, stop_with_input
from penstock.entrypoints.cli.shared import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    counted,
    print_json,
    session,
)
from penstock.entrypoints.threads import stop_on_signals
from penstock.ports import Emit
from penstock.settings import Settings
from penstock.wiring import logging_emit
from penstock.wiring.serving import served, shared_answers, shared_rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command was told."""

    host: str
    port: int
    workers: int
    threads: int
    grace: float
    config: Path
    as_json: bool


def serve(
    host: Annotated[
        str, typer.Option(help="The address to listen at; others need [auth].")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="0 takes a free one.")
    ] = 8000,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Processes; each uses one core.")
    ] = 1,
    threads: Annotated[
        int,
        typer.Option(
            min=1, max=64, help="Questions of a process to the database at a time."
        ),
    ] = 8,
    grace: Annotated[
        float,
        typer.Option(
            min=0,
            max=600,
            help="Seconds to go on, no longer ready, when asked to stop.",
        ),
    ] = 5,
    place: Annotated[str | None, typer.Option(hidden=True)] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Serve the HTTP API until SIGTERM: finish what is under way, then stop."""
    wanted = Wanted(
        host=host,
        port=port,
        workers=workers,
        threads=threads,
        grace=grace,
        config=config,
        as_json=as_json,
    )
    if place is not None:
        serve_beside_others(wanted, Place.read(place))
    elif workers == 1:
        serve_alone(wanted)
    else:
        serve_by_many(wanted)


def serve_alone(wanted: Wanted) -> None:
    with (
        opened_api(wanted) as api,
        listening(wanted, api.penstock.settings) as door,
    ):
        serve_api(
            api,
            door,
            grace=wanted.grace,
            on_ready=lambda: tell(wanted, api.penstock.settings, door),
            on_stop=lambda: say_stopping(wanted),
        )


def serve_by_many(wanted: Wanted) -> None:
    """Keep processes that serve; what is wrong with the settings is told once, here."""
    with session(wanted.config, emit_of) as penstock:
        settings, emit = penstock.settings, penstock.emit
    connection_limits(wanted.threads)
    halt = threading.Event()
    command = [
        *(sys.executable, "-m", "penstock", "serve"),
        *("--config", str(wanted.config)),
        *("--threads", str(wanted.threads)),
        *("--grace", str(wanted.grace)),
    ]
    with (
        stop_on_signals(halt),
        listening(wanted, settings) as door,
        tempfile.TemporaryDirectory(prefix="penstock-") as folder,
    ):
        staff = Staff(
            command, door, workers=wanted.workers, folder=Path(folder), emit=emit
        )
        try:
            staff.start(halt)
            if not halt.is_set():
                tell(wanted, settings, door)
            staff.look_after(halt)
            say_stopping(wanted)
        finally:
            staff.stop(grace=wanted.grace)


def serve_beside_others(wanted: Wanted, place: Place) -> None:
    """Serve a socket that was opened for us and others."""
    stop_with_input()
    with (
        opened_api(wanted) as api,
        socket.socket(fileno=place.socket) as door,
    ):
        api.colleagues = Colleague(api.metrics, place.folder, place.number)
        share = Share(ConnectionCounts(place.counts), place.number)
        serve_api(api, door, grace=wanted.grace, on_ready=say_ready, share=share)


@contextmanager
def opened_api(wanted: Wanted) -> Iterator[Api]:
    threads = wanted.threads
    with (
        session(wanted.config, emit_of, threads=threads + CONNECTIONS) as penstock,
        served(penstock.settings, threads=threads + LOOKING) as clients,
        shared_answers(penstock.settings) as answers,
        shared_rates(penstock.settings) as rates,
    ):
        yield api_of(penstock, clients, threads=threads, shared=answers, rates=rates)


@contextmanager
def listening(wanted: Wanted, settings: Settings) -> Iterator[socket.socket]:
    door = listen(wanted.host, wanted.port, is_open=settings.auth is not None)
    with closing(door):
        yield door


def emit_of(settings: Settings) -> Emit:
    return logging_emit(settings, as_json=not sys.stderr.isatty(), verbose=False)


def tell(wanted: Wanted, settings: Settings, door: socket.socket) -> None:
    url = address_of(door)
    if wanted.as_json:
        document = {
            "url": url,
            "port": door.getsockname()[1],
            "datasets": sorted(settings.datasets),
            "workers": wanted.workers,
            "process": os.getpid(),
        }
        print_json(document)
        return
    datasets = counted(len(settings.datasets), "dataset")
    typer.echo(f"Serving {datasets} at {url} (Ctrl-C stops)")
    sys.stdout.flush()


def say_stopping(wanted: Wanted) -> None:
    """Tell whoever sits there why it goes on; logs are no place for it."""
    if wanted.grace and sys.stderr.isatty():
        told = f"Stopping in {wanted.grace:g} s, so that load balancers notice"
        typer.echo(f"{told}; Ctrl-C again stops now.", err=True)


def say_ready() -> None:
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
