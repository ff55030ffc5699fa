"""What is counted of the API, as Prometheus reads it.

Routes are named as they are declared, never as they are called: a label for every key
would be a series for every record.
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
from penstock.domain.lanes import Lane
from penstock.entrypoints.api.answers import Answers
from penstock.entrypoints.api.lanes import Lanes
from penstock.entrypoints.api.rates import Rates

# how a part of a path is read, which is no part of its name
CONVERTER = re.compile(r":\w+\}")
# of a request that matches nothing
NO_ROUTE = "none"
# by the hundreds of their status; 0 is a client that left, and 1xx is never sent
CLASSES = ("left", "1xx", "2xx", "3xx", "4xx", "5xx")
# seconds
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Meter:
    """Counts the requests of one method at one route, and looks nothing up for it."""

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
        # what has never been answered is no series
        self._by_class: list[Callable[[], None] | None] = [None] * len(CLASSES)

    def count(self, status: int, seconds: float) -> None:
        number = status // 100
        count = self._by_class[number]
        if count is None:
            count = self._by_class[number] = self._bind(CLASSES[number])
        count()
        self._observe(seconds)


class Metrics:
    """A registry of our own: nothing is shared with whoever else counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.in_flight = dict.fromkeys(Lane, 0)
        self._requests = Counter(
            "penstock_http_requests",
            "Requests that were answered, by the class of their status",
            ["route", "method", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "penstock_http_request_seconds",
            "How long answers took",
            ["route", "method"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.nowhere = self.meter(NO_ROUTE, "any", Lane.HEALTH)

    def meter(self, path: str, method: str, lane: Lane) -> Meter:
        route = CONVERTER.sub("}", path)

        def bind(status: str) -> Callable[[], None]:
            return self._requests.labels(route, method, status).inc

        return Meter(route, lane, bind, self._seconds.labels(route, method).observe)

    def tell_along(self, lanes: Lanes, answers: Answers, rates: Rates) -> None:
        """Tell what others count anyway, when somebody asks."""
        self.registry.register(Elsewhere(self.in_flight, lanes, answers, rates))

    def families(self) -> Iterable[Metric]:
        """Return what is counted, without the times at which counting began."""
        for family in self.registry.collect():
            family.samples = [
                each for each in family.samples if not each.name.endswith("_created")
            ]
            yield family


class Elsewhere(Collector):
    """What is counted where it happens."""

    def __init__(
        self,
        in_flight: Mapping[Lane, int],
        lanes: Lanes,
        answers: Answers,
        rates: Rates,
    ) -> None:
        self._in_flight = in_flight
        self._lanes = lanes
        self._answers = answers
        self._rates = rates

    @override
    def collect(self) -> Iterable[Metric]:
        yield gauge("in_flight", "Requests under way", lane=self._in_flight)
        lanes = self._lanes
        yield gauge("threads_busy", "Threads that ask a store", lane=lanes.busy)
        yield gauge("threads", "Threads that may ask a store", lanes.threads)
        yield gauge("waiting", "Requests that wait for a thread", lane=lanes.waiting)
        yield counter(
            "refused",
            "Requests refused because there were too many",
            lane=lanes.refused,
        )
        yield counter(
            "called_off", "Questions that nobody waited for", lane=lanes.called_off
        )
        yield gauge("feeds", "Clients that wait for news", lanes.feeds)
        yield counter(
            "rate_limited",
            "Requests of clients that ask too often",
            self._rates.refused,
        )
        yield from self._cache()
        yield gauge("info", "What runs here", version={__version__: 1})

    def _cache(self) -> Iterable[Metric]:
        tally = self._answers.tally
        found = {
            "hit": tally.hits,
            "shared_hit": tally.shared_hits,
            "joined": tally.joined,
            "miss": tally.misses,
        }
        yield counter("cache_answers", "How answers were come by", found=found)
        renewed = {"early": tally.early, "warmed": tally.warmed}
        yield counter("cache_renewed", "Answers worked out unasked", why=renewed)
        yield counter("cache_dropped", "Answers that made room", tally.dropped)
        yield gauge("cache_bytes", "Bytes of kept answers", self._answers.bytes_kept)


def gauge(
    name: str, told: str, value: float | None = None, **labelled: Mapping[Any, float]
) -> Metric:
    return family(GaugeMetricFamily, name, told, value, labelled)


def counter(
    name: str, told: str, value: float | None = None, **labelled: Mapping[Any, float]
) -> Metric:
    return family(CounterMetricFamily, name, told, value, labelled)


def family(
    kind: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    told: str,
    value: float | None,
    labelled: Mapping[str, Mapping[Any, float]],
) -> Metric:
    """Return one number, or one for each value of a label."""
    full = "penstock_info" if name == "info" else f"penstock_http_{name}"
    if value is not None:
        return kind(full, told, value=value)
    [(label, values)] = labelled.items()
    found = kind(full, told, labels=[label])
    for each, number in values.items():
        found.add_metric([str(each)], number)
    return found
