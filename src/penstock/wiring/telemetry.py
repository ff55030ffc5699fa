"""The listeners of a process: its log and its metrics, registered here alone."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.domain.events import Event, MetricsServed
from penstock.errors import Misconfigured
from penstock.flow.wake_ups import WAKE_UP
from penstock.ports import Emit
from penstock.ports.hooks import HOOK
from penstock.ports.record_access import ReplicaState
from penstock.settings import Settings
from penstock.settings.models.base import Engine

if TYPE_CHECKING:
    from penstock.adapters.telemetry.metrics import EventMetrics
    from penstock.adapters.telemetry.store_metrics import StoreMetrics
    from penstock.wiring.container import Container


def build_emit(
    settings: Settings,
    *,
    as_json: bool,
    verbose: bool = False,
    metrics: Emit | None = None,
) -> Emit:
    """Return what hears of every event of this process."""
    from penstock.adapters.telemetry.log import log_events

    log = log_events(redact=settings.redact, as_json=as_json, verbose=verbose)
    return log if metrics is None else fan_out(log, metrics)


def fan_out(*listeners: Emit) -> Emit:
    """Return an emit function that calls each of these."""

    def emit(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return emit


def build_event_metrics() -> "EventMetrics":
    from penstock.adapters.telemetry.metrics import EventMetrics

    return EventMetrics()


def build_store_metrics(
    penstock: "Container",
    *,
    rows: Callable[[], Mapping[str, int]] = dict,
    replicas: Callable[[], Sequence[ReplicaState]] = tuple,
) -> "StoreMetrics":
    from penstock.adapters.telemetry.store_metrics import StoreFacts, StoreMetrics

    settings = penstock.settings
    places = {"spool": settings.spool}
    if settings.sqlite_path is not None:
        places["database"] = settings.sqlite_path.parent
    sends_wake_ups = settings.engine is Engine.CELERY
    return StoreMetrics(
        StoreFacts(
            stores=penstock.stores,
            budgets=penstock.budgets,
            demand=penstock.demand,
            explain_waiting=penstock.explain_waiting,
            parse_schedule=lambda declaration: penstock.parse_schedule(declaration)[0],
            places={name: path.absolute() for name, path in places.items()},
            replicas=replicas,
            rows=rows,
            messages=[
                *([WAKE_UP] if sends_wake_ups else []),
                *([HOOK] if settings.hooks else []),
            ],
        )
    )


@contextmanager
def serve_metrics(
    penstock: "Container", events: "EventMetrics | None", host: str, port: int | None
) -> Iterator[None]:
    """Serve the metrics of this process meanwhile, if there is a port for them."""
    if events is None or port is None:
        yield
        return
    from prometheus_client import start_http_server

    events.describe_process()
    events.registry.register(build_store_metrics(penstock))
    try:
        server, thread = start_http_server(port, addr=host, registry=events.registry)
    except OSError as error:
        raise Misconfigured(
            f"--metrics-port {port}: cannot listen on {host}: {error.strerror}"
        ) from error
    host = f"[{host}]" if ":" in host else host
    penstock.emit(MetricsServed(url=f"http://{host}:{server.server_port}/metrics"))
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
