"""Tell operators of answers that stand out: slow ones, and errors of ours."""

import time
from collections.abc import Callable
from datetime import timedelta

from penstock.domain.events import RequestStoodOut
from penstock.domain.lanes import Lane
from penstock.entrypoints.api.exchange import Exchange
from penstock.entrypoints.api.metrics import Meter
from penstock.ports import Emit

# seconds
SLOW = 1.0
ERROR = 500
# in a second; when everything fails, so would the log
MOST = 10


class Notices:
    def __init__(
        self, emit: Emit, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._emit = emit
        self._clock = clock
        self._since = -1e9
        self._told = self._untold = 0

    def look(self, exchange: Exchange, meter: Meter, seconds: float) -> None:
        # who waits for news is meant to wait
        is_slow = seconds > SLOW and meter.lane is not Lane.FEEDS
        # and who asks whether we are well gets an answer, not an error
        is_error = exchange.status >= ERROR and meter.lane is not Lane.HEALTH
        if not is_slow and not is_error:
            return
        now = self._clock()
        if now - self._since > 1:
            self._since, self._told = now, 0
        if self._told >= MOST:
            self._untold += 1
            return
        self._told += 1
        event = RequestStoodOut(
            trace_id=exchange.trace_id,
            method=exchange.scope["method"],
            route=meter.route,
            status=exchange.status,
            took=timedelta(seconds=seconds),
            cause=exchange.cause,
            untold=self._untold,
        )
        self._untold = 0
        self._emit(event)
