"""Check for a liveness probe whether the workers of this host report: `health`."""

import socket
from collections.abc import Mapping, Sequence
from datetime import datetime

import typer

from penstock.domain.waiting import LiveWorker
from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    counted,
    open_readonly,
    print_json,
)
from penstock.entrypoints.worker_documents import worker_document
from penstock.errors import StoreUnavailable

FAILED = 1


def health(config: Config = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """Report whether a worker of this host is alive; exit with 1 if none is.

    While the database does not respond, that is no reason to restart a worker, which
    waits for it: then this reports so, and exits with 0.
    """
    host = socket.gethostname()
    try:
        with open_readonly(config, is_prepared=False) as penstock:
            now = penstock.stores.jobs.now()
            workers = [
                worker
                for worker in penstock.stores.workers.live()
                if worker.host == host
            ]
    except StoreUnavailable as error:
        report(as_json, healthy=True, text=f"unknown: {error}")
        return
    if not workers:
        text = f"no worker of {host} has reported lately"
        report(as_json, healthy=False, text=text)
        raise typer.Exit(FAILED)
    documents = [*map(worker_document, workers)]
    report(as_json, healthy=True, text=describe(workers, now), workers=documents)


def report(
    as_json: bool,
    *,
    healthy: bool,
    text: str,
    workers: Sequence[Mapping[str, object]] = (),
) -> None:
    if as_json:
        print_json({"healthy": healthy, "detail": text, "workers": workers})
    else:
        typer.echo(text, err=not healthy)


def describe(workers: Sequence[LiveWorker], now: datetime) -> str:
    """Describe the workers of a host in one line."""
    seen = max((worker.seen_at for worker in workers if worker.seen_at), default=now)
    jobs = sum(worker.jobs for worker in workers)
    return (
        f"{counted(len(workers), 'worker')} of this host, "
        f"{counted(jobs, 'job')} in work, "
        f"last seen {max((now - seen).total_seconds(), 0):.0f} s ago"
    )
