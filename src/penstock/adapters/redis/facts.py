"""What an operator should know of a Redis server before workers rely on it."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from typing_extensions import override

from penstock.adapters.redis.client import connect, describe, place_of
from penstock.domain.dataset import Dataset
from penstock.ports import Fact, Facts


class RedisFacts(Facts):
    def __init__(self, url: str) -> None:
        self._url = url

    @property
    @override
    def server(self) -> str:
        return "redis"

    @override
    def about(self, datasets: Iterable[Dataset], *, threads: int) -> Iterator[Fact]:
        with connect(self._url) as client:
            told = f"Redis {describe(client).version} at {place_of(client)}"
        yield Fact(what="redis", is_well=True, told=told)

    @override
    def now(self) -> datetime:
        with connect(self._url) as client:
            return describe(client).now
