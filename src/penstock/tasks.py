"""What Celery loads: `celery -A penstock.tasks worker -Q penstock`, and `… beat`.

`PENSTOCK_CONFIG` names the settings file; it is read when the worker starts.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from celery import signals
from celery.beat import Scheduler
from typing_extensions import override

from penstock.domain.events import WorkerIsDeaf
from penstock.domain.jobs import JobId
from penstock.entrypoints.cli.common import DEFAULT_CONFIG, read_settings, session
from penstock.entrypoints.worker.background import BackgroundProcess
from penstock.entrypoints.worker.celery_process import CeleryProcess, OpenedBeat
from penstock.entrypoints.worker.reception import ReceptionWatch
from penstock.errors import Misconfigured, PenstockError
from penstock.flow.wake_ups import WakeUp
from penstock.ports.outbox import MessageId
from penstock.settings import Settings
from penstock.wiring import (
    Container,
    build_emit,
    celery_app,
    check_celery,
    consumed_queues,
    longest_slice,
    refused_pool,
    worker_consumer,
)

# as the commands of Penstock end when an operator has to act
EXIT_MISCONFIGURED = 2
# seconds between two checks of Beat whether its scheduler runs
TICK_INTERVAL = 1.0


def config_path() -> Path:
    return Path(os.environ.get("PENSTOCK_CONFIG") or DEFAULT_CONFIG)


def report(error: PenstockError) -> None:
    sys.stderr.write(f"penstock: {error}\n")


@contextmanager
def open_penstock() -> Iterator[Container]:
    with session(
        config_path(),
        lambda settings: build_emit(settings, as_json=True),
    ) as penstock:
        yield penstock


def read_or_exit() -> Settings:
    """Read the settings of Celery; end the command if it could not work with them."""
    with exiting():
        settings = read_settings(config_path())
        check_celery(settings)
        return settings


@contextmanager
def exiting() -> Iterator[None]:
    try:
        yield
    except Misconfigured as error:
        report(error)
        sys.exit(EXIT_MISCONFIGURED)


app = celery_app(read_or_exit)
process = CeleryProcess(
    open_penstock, report=report, consumed_queues=lambda: consumed_queues(app)
)


@app.task(name="penstock.work", shared=False)
def work(region: str | None, job: int | None, message: int | None = None) -> None:
    """Work on a job, else on the next due ones of a region, for a limited time."""
    process.work(
        WakeUp(
            region=region,
            job=None if job is None else JobId(job),
            message=None if message is None else MessageId(message),
        )
    )


@signals.celeryd_init.connect
def check_pool(conf: Any, options: Any = None, **_: Any) -> None:
    """End a worker that could not work, before it is started."""
    with exiting():
        refuse_pool(str((options or {}).get("pool") or conf.worker_pool))


def refuse_pool(pool: str) -> None:
    name = refused_pool(pool)
    if name is not None:
        raise Misconfigured(
            f"the pool {name} is not supported: database drivers would block all "
            "of its tasks; start the worker with --pool=prefork, threads or solo"
        )


@signals.worker_process_init.connect
def start_process(**_: Any) -> None:
    """In a process that runs tasks, after the fork."""
    process.start()


@signals.worker_ready.connect
def start_threads(sender: Any, **_: Any) -> None:
    """In a worker whose tasks run in threads of its main process."""
    if "thread" in type(sender.pool).__module__:
        process.start()


@signals.worker_ready.connect
def watch_reception(sender: Any, **_: Any) -> None:
    """In the main process of a worker, when it begins to receive messages."""
    settings = read_or_exit()
    emit = build_emit(settings, as_json=True)
    consumer = worker_consumer(app, sender)

    def end_slices_of_deaf(silence: timedelta) -> None:
        process.end_slices()
        emit(
            WorkerIsDeaf(
                worker=consumer.name, queues=tuple(consumer.queues), silence=silence
            )
        )

    watch = ReceptionWatch(
        process.reception,
        consumer,
        on_deaf=end_slices_of_deaf,
        longest_slice=longest_slice(settings),
    )
    # a weak reference of Celery would be gone at once
    signals.task_received.connect(lambda **_: watch.receive(), weak=False)
    watch.start()


@signals.worker_shutting_down.connect
def end_slices(**_: Any) -> None:
    """In the main process, when it is told to stop: its children are not."""
    process.end_slices()


@signals.worker_process_shutdown.connect
def close_process(**_: Any) -> None:
    process.close()


@signals.worker_shutdown.connect
def close_threads(**_: Any) -> None:
    process.close()


class BeatScheduler(Scheduler):
    """Begins scheduled imports and does maintenance in the process of Beat.

    All that it knows is in the database: it writes no file, and many may run.
    """

    info = "    . schedules -> those of Penstock"

    @override
    def setup_schedule(self) -> None:
        self._process = BackgroundProcess(open_penstock, OpenedBeat, report=report)
        self._process.start()

    @override
    def tick(self, *_: Any, **__: Any) -> float:
        if not self._process.is_running:
            # then Beat ends with an error, for its supervisor to start a new one
            raise RuntimeError("the scheduler of Penstock has ended")
        return TICK_INTERVAL

    @override
    def close(self) -> None:
        self._process.close()
