"""How often clients may ask, counted in Redis by all processes together."""

import time
from collections.abc import Callable
from hashlib import blake2b
from importlib import resources

from redis import Redis
from redis.exceptions import RedisError
from typing_extensions import override

from penstock.adapters.redis.client import place_of
from penstock.domain.rates import Rate
from penstock.errors import StoreUnavailable
from penstock.ports.limits import Chunk, SharedRates

SCRIPT = "limits.lua"
# seconds for which a server that failed is left alone
REST = 1.0
MICROSECONDS = 1_000_000


class RedisRates(SharedRates):
    """The client must give up soon: those who ask wait for it."""

    def __init__(
        self,
        client: Redis,
        *,
        namespace: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._place = place_of(client)
        self._prefix = f"penstock:{namespace}:rates:"
        self._clock = clock
        self._rests_until = -1e9
        script = (resources.files(__package__) / SCRIPT).read_text("utf-8")
        self._script = client.register_script(script)

    @override
    def take(self, client: str, rate: Rate, *, most: int) -> Chunk:
        if self._clock() < self._rests_until:
            raise StoreUnavailable(f"{self._place}: it did not answer a moment ago")
        key = self._prefix + name_of(client, rate)
        given = [rate.interval * MICROSECONDS, rate.window * MICROSECONDS, most]
        try:
            granted, left, wait = self._script(keys=[key], args=given)
        except RedisError as error:
            self._rests_until = self._clock() + REST
            told = f"{self._place}: cannot count how often clients ask"
            raise StoreUnavailable(told) from error
        return Chunk(granted=granted, left=left, wait=wait / MICROSECONDS)

    @override
    def trouble(self) -> str | None:
        if self._clock() >= self._rests_until:
            try:
                self._client.ping()
            except RedisError:
                self._rests_until = self._clock() + REST
            else:
                return None
        return f"{self._place}: it does not answer"


def name_of(client: str, rate: Rate) -> str:
    """Name an allowance without naming the client: a key is no place for a person."""
    # another rate is another allowance: what is left of one says nothing of the other
    told = f"{rate.requests} {rate.period} {rate.burst} {client}"
    return blake2b(told.encode(errors="surrogatepass"), digest_size=16).hexdigest()
