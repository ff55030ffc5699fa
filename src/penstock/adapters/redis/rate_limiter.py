"""Rate limits of clients, shared by all processes in Redis."""

import time
from collections.abc import Callable
from hashlib import blake2b
from importlib import resources

from redis import Redis
from redis.exceptions import RedisError
from typing_extensions import override

from penstock.adapters.redis.circuit_breaker import CircuitBreaker
from penstock.domain.client_rate import ClientRate
from penstock.errors import StoreUnavailable
from penstock.ports.rate_limits import RequestBatch, SharedRateLimiter

SCRIPT = "limits.lua"
MICROSECONDS = 1_000_000


class RedisRateLimiter(SharedRateLimiter):
    """The Redis client must have a short timeout: requests wait for it."""

    def __init__(
        self,
        client: Redis,
        *,
        namespace: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._breaker = CircuitBreaker(client, clock)
        self._prefix = f"penstock:{namespace}:rates:"
        script = (resources.files(__package__) / SCRIPT).read_text("utf-8")
        self._script = client.register_script(script)

    @override
    def take(self, client: str, rate: ClientRate, *, most: int) -> RequestBatch:
        if self._breaker.is_open:
            message = f"{self._breaker.server}: it did not respond a moment ago"
            raise StoreUnavailable(message)
        key = self._prefix + key_suffix(client, rate)
        arguments = [rate.interval * MICROSECONDS, rate.window * MICROSECONDS, most]
        try:
            granted, left, wait = self._script(keys=[key], args=arguments)
        except RedisError as error:
            self._breaker.trip()
            message = f"{self._breaker.server}: cannot count the requests of clients"
            raise StoreUnavailable(message) from error
        return RequestBatch(granted=granted, left=left, wait=wait / MICROSECONDS)

    @override
    def failure(self) -> str | None:
        return self._breaker.failure()


def key_suffix(client: str, rate: ClientRate) -> str:
    """Return a digest of client and rate: a key must not contain personal data."""
    # another rate has a key of its own: the rest of one says nothing about the other
    text = f"{rate.requests} {rate.period} {rate.burst} {client}"
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()
