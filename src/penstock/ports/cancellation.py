"""Cancellation of running database queries from another thread."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta

from penstock.errors import StoreTimeout


class CancelToken:
    """Lets another thread cancel a query whose result is no longer needed.

    The caller sets it as `CURRENT_TOKEN` in the thread that queries the store. While
    the store uses a connection, it registers there how to cancel the query.
    """

    def __init__(self) -> None:
        self.is_cancelled = False
        self._callbacks: list[Callable[[], None]] = []
        # held during cancellation, so that the connection is not reused meanwhile
        self._lock = threading.Lock()

    @contextmanager
    def on_cancel(self, callback: Callable[[], None]) -> Iterator[None]:
        """Register how to cancel the current query; raise if it was cancelled."""
        with self._lock:
            if self.is_cancelled:
                raise StoreTimeout("the request was cancelled")
            self._callbacks.append(callback)
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.remove(callback)

    def cancel(self) -> None:
        """Cancel the running query and all later ones; may block on the store."""
        with self._lock:
            self.is_cancelled = True
            for callback in self._callbacks:
                callback()


# the token of the request that this thread works on
CURRENT_TOKEN: ContextVar[CancelToken | None] = ContextVar("cancel_token", default=None)


@contextmanager
def time_limit(limit: timedelta) -> Iterator[None]:
    """Cancel the queries of this thread that still run after a time, and later ones."""
    token = CancelToken()
    timer = threading.Timer(limit.total_seconds(), token.cancel)
    timer.daemon = True
    outer = CURRENT_TOKEN.set(token)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        CURRENT_TOKEN.reset(outer)
