"""The latest content of each page, the same for all who watch it."""

import threading
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

# seconds for which all watchers of a page get the same content
MAX_AGE = 1.0
MAX_PAGES = 200


class Rendered(NamedTuple):
    html: str
    etag: str
    at: float


class PageCache:
    """The latest content of each page: a hundred watchers cost no more than one."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._rendered: dict[str, Rendered] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(
        self, key: str, render: Callable[[], str], *, is_fresh: bool = False
    ) -> Rendered:
        """Return the content of a page, rendered at most once a second.

        With `is_fresh` it is rendered now: whoever acted sees what became of it.
        """
        with self._lock:
            if len(self._locks) > MAX_PAGES:
                self._locks.clear()
                self._rendered.clear()
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            current = self._rendered.get(key)
            if is_fresh or current is None or self._monotonic() - current.at >= MAX_AGE:
                html = render()
                digest = blake2b(html.encode(), digest_size=12).hexdigest()
                current = Rendered(html, f'"{digest}"', self._monotonic())
                self._rendered[key] = current
            return current
