"""A response cache in Redis, shared by the processes of an installation."""

import time
from collections.abc import Callable
from typing import cast

from redis import BlockingConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from typing_extensions import override

from penstock.adapters.redis.circuit_breaker import CircuitBreaker
from penstock.ports.response_cache import SharedCache

# seconds: a slower cache is of no use
TIMEOUT = 0.1
MAX_CONNECTIONS = 32


def connect_with_short_timeout(url: str) -> Redis:
    """Return a client with a short timeout; the URL was checked before."""
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=MAX_CONNECTIONS,
        timeout=TIMEOUT,
        socket_connect_timeout=TIMEOUT,
        socket_timeout=TIMEOUT,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )
    return Redis.from_pool(pool)


class RedisResponseCache(SharedCache):
    def __init__(
        self,
        client: Redis,
        *,
        namespace: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._breaker = CircuitBreaker(client, clock)
        self._prefix = f"penstock:{namespace}:answers:"

    @override
    def find(self, name: str) -> tuple[bytes, float] | None:
        if self._breaker.is_open:
            return None
        key = self._prefix + name
        try:
            with self._client.pipeline(transaction=False) as pipeline:
                pipeline.get(key)
                pipeline.pttl(key)
                value, ttl = cast("tuple[bytes | None, int]", pipeline.execute())
        except RedisError:
            self._breaker.trip()
            return None
        # every entry expires: one without a TTL is not ours
        return None if value is None or ttl <= 0 else (value, ttl / 1000)

    @override
    def store(self, name: str, value: bytes, *, seconds: float) -> None:
        if self._breaker.is_open:
            return
        try:
            self._client.set(self._prefix + name, value, px=max(1, int(seconds * 1000)))
        except RedisError:
            self._breaker.trip()

    @override
    def failure(self) -> str | None:
        return self._breaker.failure()
