"""Prometheus metrics of the API.

Routes are labelled as declared, never as requested: a label for every key would be a
series for every record.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from penstock import __version__
from penstock.entrypoints.api.cache.response_cache import ResponseCache
from penstock.entrypoints.api.concurrency.lanes import Lanes
from penstock.entrypoints.api.concurrency.thread_shares import Lane
from penstock.entrypoints.api.middleware.rate_limit import RateLimiter

# the converter of a path parameter, which is no part of its name
CONVERTER = re.compile(r":\w+\}")
# of a request that matches no route
NO_ROUTE = "none"
# by status // 100; 0 is a client that disconnected, and 1xx is never sent
CLASSES = ("left", "1xx", "2xx", "3xx", "4xx", "5xx")
# seconds
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class RouteMetrics:
    """Counts the requests of one method at one route, with labels resolved once."""

    __slots__ = ("_bind", "_by_class", "_observe", "lane", "route")

    def __init__(
        self,
        route: str,
        lane: Lane,
        bind: Callable[[str], Callable[[], None]],
        observe: Callable[[float], None],
    ) -> None:
        self.route = route
        self.lane = lane
        self._bind = bind
        self._observe = observe
        # a status class that never occurred has no series
        self._by_class: list[Callable[[], None] | None] = [None] * len(CLASSES)

    def count(self, status: int, seconds: float) -> None:
        index = status // 100
        increment = self._by_class[index]
        if increment is None:
            increment = self._by_class[index] = self._bind(CLASSES[index])
        increment()
        self._observe(seconds)


class Metrics:
    """Metrics in a registry of their own, not the global one."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.in_flight = dict.fromkeys(Lane, 0)
        self._requests = Counter(
            "penstock_http_requests",
            "Requests by route, method and class of status",
            ["route", "method", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "penstock_http_request_seconds",
            "Duration of requests in seconds",
            ["route", "method"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.unrouted = self.for_route(NO_ROUTE, "any", Lane.HEALTH)

    def for_route(self, path: str, method: str, lane: Lane) -> RouteMetrics:
        route = CONVERTER.sub("}", path)

        def bind(status: str) -> Callable[[], None]:
            return self._requests.labels(route, method, status).inc

        return RouteMetrics(
            route, lane, bind, self._seconds.labels(route, method).observe
        )

    def collect_from(
        self, lanes: Lanes, cache: ResponseCache, rate_limiter: RateLimiter
    ) -> None:
        """Add the counters that these components keep themselves."""
        self.registry.register(
            RuntimeCollector(self.in_flight, lanes, cache, rate_limiter)
        )

    def families(self) -> Iterable[Metric]:
        """Return all metrics, without the times at which counters were created."""
        for family in self.registry.collect():
            family.samples = [
                sample
                for sample in family.samples
                if not sample.name.endswith("_created")
            ]
            yield family


class RuntimeCollector(Collector):
    """Reads counters of other components at the time of a scrape."""

    def __init__(
        self,
        in_flight: Mapping[Lane, int],
        lanes: Lanes,
        cache: ResponseCache,
        rate_limiter: RateLimiter,
    ) -> None:
        self._in_flight = in_flight
        self._lanes = lanes
        self._cache = cache
        self._rate_limiter = rate_limiter

    @override
    def collect(self) -> Iterable[Metric]:
        yield gauge("in_flight", "Requests in progress", lane=self._in_flight)
        lanes = self._lanes
        yield gauge("threads_busy", "Threads that query a store", lane=lanes.busy)
        yield gauge("threads", "Threads that may query a store", lanes.threads)
        yield gauge("waiting", "Requests that wait for a thread", lane=lanes.waiting)
        yield counter(
            "refused",
            "Requests refused because of overload",
            lane=lanes.refused,
        )
        yield counter(
            "called_off",
            "Queries cancelled because nobody waited for them",
            lane=lanes.cancelled,
        )
        yield gauge("feeds", "Clients that wait for changes", lanes.feeds)
        yield counter(
            "rate_limited",
            "Requests refused by the rate limit",
            self._rate_limiter.refused,
        )
        yield from self._cache_metrics()
        yield gauge("info", "Version of the server", version={__version__: 1})

    def _cache_metrics(self) -> Iterable[Metric]:
        stats = self._cache.stats
        found = {
            "hit": stats.hits,
            "shared_hit": stats.shared_hits,
            "joined": stats.joined,
            "miss": stats.misses,
        }
        yield counter("cache_answers", "Cacheable reads by outcome", found=found)
        renewed = {"early": stats.early, "warmed": stats.warmed}
        yield counter("cache_renewed", "Responses refreshed in advance", why=renewed)
        yield counter("cache_dropped", "Responses evicted", stats.dropped)
        yield gauge(
            "cache_bytes", "Bytes of cached responses", self._cache.cached_bytes
        )


def gauge(
    name: str, text: str, value: float | None = None, **labelled: Mapping[Any, float]
) -> Metric:
    return family(GaugeMetricFamily, name, text, value, labelled)


def counter(
    name: str, text: str, value: float | None = None, **labelled: Mapping[Any, float]
) -> Metric:
    return family(CounterMetricFamily, name, text, value, labelled)


def family(
    kind: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    text: str,
    value: float | None,
    labelled: Mapping[str, Mapping[Any, float]],
) -> Metric:
    """Return a metric with one number, or with one for each value of a label."""
    full_name = "penstock_info" if name == "info" else f"penstock_http_{name}"
    if value is not None:
        return kind(full_name, text, value=value)
    [(label, values)] = labelled.items()
    metric = kind(full_name, text, labels=[label])
    for label_value, number in values.items():
        metric.add_metric([str(label_value)], number)
    return metric
