"""Events for slow requests and for server errors."""

import time
from collections.abc import Callable
from datetime import timedelta

from penstock.domain.events import RequestStoodOut
from penstock.entrypoints.api.concurrency.thread_shares import Lane
from penstock.entrypoints.api.metrics.http_metrics import RouteMetrics
from penstock.entrypoints.api.request_context import RequestContext
from penstock.ports import Emit

# seconds
SLOW = 1.0
ERROR = 500
# per second; during an outage every request would be an event
MAX_EVENTS = 10


class RequestLog:
    def __init__(
        self, emit: Emit, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._emit = emit
        self._clock = clock
        self._since = -1e9
        self._emitted = self._dropped = 0

    def record(
        self, context: RequestContext, metrics: RouteMetrics, seconds: float
    ) -> None:
        # feeds are slow by design
        is_slow = seconds > SLOW and metrics.lane is not Lane.FEEDS
        # a health check that returns 503 works as intended
        is_error = context.status >= ERROR and metrics.lane is not Lane.HEALTH
        if not is_slow and not is_error:
            return
        now = self._clock()
        if now - self._since > 1:
            self._since, self._emitted = now, 0
        if self._emitted >= MAX_EVENTS:
            self._dropped += 1
            return
        self._emitted += 1
        event = RequestStoodOut(
            trace_id=context.trace_id,
            method=context.scope["method"],
            route=metrics.route,
            status=context.status,
            took=timedelta(seconds=seconds),
            cause=context.cause,
            untold=self._dropped,
        )
        self._dropped = 0
        self._emit(event)
