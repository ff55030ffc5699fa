"""Celery as the engine: its application, and the work of its processes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.domain.deafness import QueueState
from penstock.domain.jobs import WorkerId
from penstock.errors import Misconfigured
from penstock.flow.job_claimer import JobClaimer, Worker
from penstock.flow.relay_outbox import RelayOutbox
from penstock.flow.wake_ups import WAKE_UP, SelectLost, SendWakeUps, WakeUpQueues
from penstock.flow.work import DatasetRuntime
from penstock.flow.work_slice import NO_REGION, SliceClaimer, SliceEnd, WorkSlice
from penstock.ports import StopSignal
from penstock.settings import Settings
from penstock.settings.models.base import Engine
from penstock.wiring.runtime import build_runtime

if TYPE_CHECKING:
    from celery import Celery

    from penstock.adapters.celery.app import CeleryOptions
    from penstock.adapters.celery.consumer import WorkerConsumer
    from penstock.wiring.container import Container


def check_celery(settings: Settings) -> str:
    """Return the broker; raise `Misconfigured` if Celery cannot be the engine."""
    if settings.engine is not Engine.CELERY or settings.broker is None:
        raise Misconfigured(
            f"{settings.path}: penstock.engine: is not 'celery'; set it, and the broker"
        )
    if find_spec("celery") is None:
        raise Misconfigured(
            "engine = 'celery' needs Celery; install it: pip install 'penstock[celery]'"
        )
    return settings.broker


def celery_options(settings: Settings) -> "CeleryOptions":
    """Return the options of Celery; raise `Misconfigured` if it is not the engine."""
    broker = check_celery(settings)
    from penstock.adapters.celery.app import CeleryOptions

    return CeleryOptions(
        broker=broker,
        queues=wake_up_queues(settings).names,
        queue_type=settings.celery.queue_type,
        time_limit=longest_slice(settings),
    )


def celery_app(read_settings: Callable[[], Settings]) -> "Celery":
    """Build the application of a worker; settings are read when it starts."""
    from penstock.adapters.celery.app import build_app

    return build_app(lambda: celery_options(read_settings()))


def refused_pool(pool: str) -> str | None:
    """Return the kind of a pool that Penstock does not work with, if it is one."""
    from penstock.adapters.celery import app

    return app.refused_pool(pool)


def wake_up_queues(settings: Settings) -> WakeUpQueues:
    regions = {dataset.region for dataset in settings.datasets.values()}
    return WakeUpQueues(
        name=settings.celery.queue,
        regions=sorted(region for region in regions if region is not None),
        outstanding=settings.celery.outstanding,
    )


def longest_slice(settings: Settings) -> timedelta:
    """Return when a slice hangs for sure: its last page may begin at its end."""
    requests = [dataset.source.timeout for dataset in settings.datasets.values()]
    page = max(requests, default=timedelta()) + settings.longest_wait
    return settings.celery.slice + page + 2 * settings.commit_timeout


def check_broker(settings: Settings) -> str | None:
    """Return what waits in the queues, if there is a broker; declares them.

    Raises `TransportUnavailable` or `Misconfigured`.
    """
    if settings.engine is not Engine.CELERY:
        return None
    count = broker_counter(settings)
    waiting = {name: count(name) for name in wake_up_queues(settings).names}
    return ", ".join(f"{name}: {number} waiting" for name, number in waiting.items())


def broker_checks(settings: Settings) -> Sequence[Callable[[], str | None]]:
    """Return what raises `TransportUnavailable` while the broker is away."""
    if settings.engine is not Engine.CELERY:
        return ()
    count, queue = broker_counter(settings), wake_up_queues(settings).name

    def check() -> None:
        count(queue)

    return (check,)


def broker_counter(settings: Settings) -> Callable[[str], int]:
    options = celery_options(settings)
    from penstock.adapters.celery.app import build_app
    from penstock.adapters.celery.transport import CeleryTransport

    return CeleryTransport(build_app(lambda: options)).count_waiting


def build_read_queues(
    penstock: "Container", consumed: Callable[[], Sequence[str]]
) -> Callable[[], Sequence[QueueState]]:
    """Return what reads the state of the queues that a worker consumes.

    It raises `TransportUnavailable`.
    """
    outbox, count_waiting = penstock.stores.outbox, broker_counter(penstock.settings)
    names = wake_up_queues(penstock.settings).names

    def read_queue(name: str) -> QueueState:
        unreceived = outbox.unreceived(WAKE_UP, name)
        # an idle fleet does not ask the broker
        waiting = count_waiting(name) if unreceived else 0
        return QueueState(unreceived=unreceived, waiting=waiting)

    return lambda: [read_queue(name) for name in consumed() if name in names]


def consumed_queues(app: "Celery") -> Sequence[str]:
    """Return the names of the queues that the worker of this process consumes."""
    from penstock.adapters.celery import consumer

    return consumer.consumed_queues(app)


def worker_consumer(app: "Celery", consumer: object) -> "WorkerConsumer":
    """Return the consumer of a worker, in its main process."""
    from penstock.adapters.celery.consumer import WorkerConsumer

    return WorkerConsumer(app, consumer)


def build_send_wake_ups(penstock: "Container") -> SendWakeUps:
    settings = penstock.settings
    options = celery_options(settings)
    from penstock.adapters.celery.app import build_app
    from penstock.adapters.celery.transport import CeleryTransport

    transport = CeleryTransport(build_app(lambda: options), penstock.tracer)
    outbox = penstock.stores.outbox
    relay = RelayOutbox(
        WAKE_UP,
        transport,
        outbox=outbox,
        confirm_within=settings.celery.resend_after,
        redact=settings.redact,
        select=SelectLost(outbox, count_waiting=transport.count_waiting),
    )
    return SendWakeUps(
        wake_up_queues(settings),
        stores=penstock.stores,
        declarations=penstock.open_declarations,
        relay=relay,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceWorker:
    """What the threads of a process share."""

    penstock: "Container"
    runtimes: Mapping[str, DatasetRuntime]
    # announced for all threads
    claimer: JobClaimer
    end: SliceEnd
    stop: StopSignal
    # sends what is in the outbox at once
    relay: Callable[[], None]

    def new_slice(self) -> WorkSlice:
        """Build the work of one thread."""
        runtime = build_runtime(self.stop)
        claimer = SliceClaimer(
            self.claimer, ledger=self.penstock.stores.ledger, host=runtime
        )
        return WorkSlice(
            self.penstock.work(self.runtimes, claimer, runtime),
            claimer,
            queues=wake_up_queues(self.penstock.settings),
            outbox=self.penstock.stores.outbox,
            end=self.end,
            length=self.penstock.settings.celery.slice,
        )


def build_slice_worker(
    penstock: "Container",
    *,
    owner: WorkerId,
    stop: StopSignal,
    is_shutting_down: StopSignal,
) -> SliceWorker:
    """Build what the threads of a process share.

    A worker that is shutting down ends its slices; the process stops afterwards.
    """
    runtime = build_runtime(stop)
    end = SliceEnd(is_shutting_down, runtime.monotonic)
    return SliceWorker(
        penstock=penstock,
        # a job ends with its slice, but what is written at its end is not cut short
        runtimes=penstock.dataset_runtimes(
            penstock.settings.datasets, build_runtime(end)
        ),
        claimer=JobClaimer(
            Worker(owner=owner, region=NO_REGION),
            ledger=penstock.stores.ledger,
            host=runtime,
        ),
        end=end,
        stop=stop,
        relay=build_send_wake_ups(penstock),
    )
