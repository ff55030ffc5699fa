"""What a process of the API looks after now and then."""

import secrets
import time
from collections.abc import Callable
from functools import partial

from penstock.entrypoints.api.errands import Errands
from penstock.wiring import Penstock

# seconds after which it looks for plans that nobody goes on with
LOOK_AGAIN = 30.0
# and for what is old
TIDY_AGAIN = 3600.0
# requests that are forgotten at a time
FORGOTTEN = 1_000


class Caretaker:
    """Goes on with what a process that is gone had begun, and removes what is old."""

    def __init__(
        self,
        penstock: Penstock,
        errands: Errands,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._penstock = penstock
        self._errands = errands
        self._monotonic = monotonic
        self._tidy_at = monotonic()

    def __call__(self) -> None:
        start = self._penstock.start_import
        for each in self._penstock.stores.requests.unplanned():
            plan = partial(start.go_on, each, self._errands.halt)
            self._errands.later(plan, name=each, trace_id=secrets.token_hex(16))
        now = self._monotonic()
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_AGAIN
            self._penstock.stores.requests.forget(most=FORGOTTEN)
            self._penstock.tidy_spool()
