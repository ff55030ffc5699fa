"""Diagnostics of a Redis server, for an operator."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from typing_extensions import override

from penstock.adapters.redis.client import connect, describe, server_url
from penstock.domain.dataset import Dataset
from penstock.ports import Diagnostic, ServerDiagnostics


class RedisDiagnostics(ServerDiagnostics):
    def __init__(self, url: str) -> None:
        self._url = url

    @property
    @override
    def server(self) -> str:
        return "redis"

    @override
    def about(
        self, datasets: Iterable[Dataset], *, threads: int
    ) -> Iterator[Diagnostic]:
        with connect(self._url) as client:
            message = f"Redis {describe(client).version} at {server_url(client)}"
        yield Diagnostic(what="redis", is_ok=True, message=message)

    @override
    def now(self) -> datetime:
        with connect(self._url) as client:
            return describe(client).now
