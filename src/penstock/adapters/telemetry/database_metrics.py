"""Metrics of the statements and the connections of a process.

Statements have the names of the `.sql` files; those that are composed for a dataset are
named by their first word, as where they are slow.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from penstock.adapters.telemetry.specs import MetricSpec
from penstock.domain.events import StatementName
from penstock.ports.database_watch import DatabaseWatch, PoolUse

# seconds
STATEMENT_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5)
POOL_GAUGES = {
    "size": "Connections that a pool opens at most",
    "in_use": "Connections in use",
    "idle": "Open connections that nobody uses",
    "waiting": "Threads that wait for a connection of a pool",
}
POOL_COUNTERS = {
    "waits": "Uses of a pool that had to wait for a connection",
    "wait_seconds": "Time that they waited",
}
SPECS = (
    MetricSpec(
        "penstock_statement_seconds",
        "histogram",
        "Duration of statements of the database in seconds",
        ("statement",),
    ),
    *(
        MetricSpec(f"penstock_pool_{name}", "gauge", text, ("pool",))
        for name, text in POOL_GAUGES.items()
    ),
    *(
        MetricSpec(f"penstock_pool_{name}_total", "counter", text, ("pool",))
        for name, text in POOL_COUNTERS.items()
    ),
)


class DatabaseMetrics(Collector, DatabaseWatch):
    """Observes statements, and reads pools at the time of a scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        statements = SPECS[0]
        self._seconds = Histogram(
            statements.name,
            statements.text,
            statements.labels,
            buckets=STATEMENT_BUCKETS,
            registry=registry,
        )
        # labels are resolved once for each statement
        self._observers: dict[StatementName, Callable[[float], None]] = {}
        self._pools: dict[str, Callable[[], PoolUse]] = {}
        registry.register(self)

    @override
    def observe(self, statement: StatementName, seconds: float, /) -> None:
        observe = self._observers.get(statement)
        if observe is None:
            observe = self._seconds.labels(statement).observe
            self._observers[statement] = observe
        observe(seconds)

    @override
    def add_pool(self, name: str, read: Callable[[], PoolUse], /) -> None:
        self._pools[name] = read

    @override
    def collect(self) -> Iterator[Metric]:
        if not self._pools:
            return
        gauges = {
            name: GaugeMetricFamily(f"penstock_pool_{name}", text, labels=["pool"])
            for name, text in POOL_GAUGES.items()
        }
        counters = {
            name: CounterMetricFamily(f"penstock_pool_{name}", text, labels=["pool"])
            for name, text in POOL_COUNTERS.items()
        }
        for pool, read in list(self._pools.items()):
            use = read()
            for name, gauge in gauges.items():
                gauge.add_metric([pool], getattr(use, name))
            counters["waits"].add_metric([pool], use.waits)
            counters["wait_seconds"].add_metric([pool], use.waited)
        yield from gauges.values()
        yield from counters.values()
