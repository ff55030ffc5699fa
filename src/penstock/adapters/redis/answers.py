"""Answers that the processes of an installation share, in Redis."""

import time
from collections.abc import Callable
from typing import cast

from redis import BlockingConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from typing_extensions import override

from penstock.adapters.redis.client import place_of
from penstock.ports.answers import SharedAnswers

# seconds: one that takes longer is of no help
PATIENCE = 0.1
# seconds for which a server that failed is left alone
REST = 1.0
MOST_CONNECTIONS = 32


def connect_for_answers(url: str) -> Redis:
    """Return a client that gives up soon; the address was checked before."""
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=MOST_CONNECTIONS,
        timeout=PATIENCE,
        socket_connect_timeout=PATIENCE,
        socket_timeout=PATIENCE,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )
    return Redis.from_pool(pool)


class RedisAnswers(SharedAnswers):
    def __init__(
        self,
        client: Redis,
        *,
        namespace: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._place = place_of(client)
        self._prefix = f"penstock:{namespace}:answers:"
        self._clock = clock
        self._rests_until = -1e9

    @override
    def find(self, name: str) -> tuple[bytes, float] | None:
        if self._clock() < self._rests_until:
            return None
        key = self._prefix + name
        try:
            with self._client.pipeline(transaction=False) as asked:
                asked.get(key)
                asked.pttl(key)
                value, left = cast("tuple[bytes | None, int]", asked.execute())
        except RedisError:
            self._give_rest()
            return None
        # without an end it would be good for ever, which nothing of ours is
        return None if value is None or left <= 0 else (value, left / 1000)

    @override
    def keep(self, name: str, value: bytes, *, seconds: float) -> None:
        if self._clock() < self._rests_until:
            return
        try:
            self._client.set(self._prefix + name, value, px=max(1, int(seconds * 1000)))
        except RedisError:
            self._give_rest()

    @override
    def trouble(self) -> str | None:
        if self._clock() >= self._rests_until:
            try:
                self._client.ping()
            except RedisError:
                self._give_rest()
            else:
                return None
        return f"{self._place}: it does not answer"

    def _give_rest(self) -> None:
        self._rests_until = self._clock() + REST
