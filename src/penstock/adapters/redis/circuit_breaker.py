"""A server that failed is left alone for a moment: requests must not wait for it."""

import time
from collections.abc import Callable

from redis import Redis
from redis.exceptions import RedisError

from penstock.adapters.redis.client import server_url

# seconds for which a server that failed is not used
FAILURE_PAUSE = 1.0


class CircuitBreaker:
    def __init__(
        self, client: Redis, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.server = server_url(client)
        self._client = client
        self._clock = clock
        self._open_until = -1e9

    @property
    def is_open(self) -> bool:
        return self._clock() < self._open_until

    def trip(self) -> None:
        self._open_until = self._clock() + FAILURE_PAUSE

    def failure(self) -> str | None:
        if not self.is_open:
            try:
                self._client.ping()
            except RedisError:
                self.trip()
            else:
                return None
        return f"{self.server}: it does not respond"
