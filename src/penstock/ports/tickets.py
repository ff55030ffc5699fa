"""A question that is under way, and how it is called off."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from penstock.errors import StoreTooSlow


class Ticket:
    """Lets another thread end a question for whose answer nobody waits any more.

    Whoever asks for something sets it as `CURRENT` in the thread that asks the store.
    The store says there how it is called off, for as long as it uses a connection, and
    need not know who asks.
    """

    def __init__(self) -> None:
        self.is_called_off = False
        self._ways: list[Callable[[], None]] = []
        # held while a question is called off, so that its connection is not given to
        # the next one meanwhile
        self._lock = threading.Lock()

    @contextmanager
    def covering(self, call_off: Callable[[], None]) -> Iterator[None]:
        """Tell how what is asked now is called off; refuse if it was already."""
        with self._lock:
            if self.is_called_off:
                raise StoreTooSlow("nobody waits for the answer any more")
            self._ways.append(call_off)
        try:
            yield
        finally:
            with self._lock:
                self._ways.remove(call_off)

    def call_off(self) -> None:
        """End what is asked, and all that would be; may wait for the store."""
        with self._lock:
            self.is_called_off = True
            for call_off in self._ways:
                call_off()


# the question that this thread works on
CURRENT: ContextVar[Ticket | None] = ContextVar("ticket", default=None)
