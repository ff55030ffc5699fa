"""One server of each kind for all processes of a test run, started when needed.

The process that the user started owns them. The processes of pytest-xdist ask it by
XML-RPC, so that none of them takes a server along when it ends or is killed.
"""

import os
import threading
from contextlib import ExitStack
from typing import Protocol
from xmlrpc.client import Fault, ServerProxy
from xmlrpc.server import SimpleXMLRPCServer

from typing_extensions import override

from tests.services.find import POSTGRES_URL, RABBIT_URL, REDIS_URL
from tests.services.private import (
    PrivatePostgres,
    PrivateRabbit,
    PrivateRedis,
    PrivateServer,
    ServerFailed,
)


class Servers(Protocol):
    def postgres_url(self) -> str: ...

    def redis_url(self) -> str: ...

    def rabbit_url(self) -> str: ...


class OwnedServers(Servers):
    """Starts a server when it is first asked for, unless the caller named one."""

    def __init__(self) -> None:
        self._started: dict[type[PrivateServer], PrivateServer] = {}
        self._until_closed = ExitStack()
        self._broker: str | None = None

    @override
    def postgres_url(self) -> str:
        return os.environ.get(POSTGRES_URL) or self._start(PrivatePostgres)

    @override
    def redis_url(self) -> str:
        return os.environ.get(REDIS_URL) or self._start(PrivateRedis)

    @override
    def rabbit_url(self) -> str:
        return os.environ.get(RABBIT_URL) or self._start(PrivateRabbit)

    def open_broker(self) -> str:
        """Return the address where other processes ask for servers, one at a time."""
        if self._broker is None:
            auth = SimpleXMLRPCServer(("127.0.0.1", 0), logRequests=False)
            auth.register_function(self.postgres_url)
            auth.register_function(self.redis_url)
            auth.register_function(self.rabbit_url)
            serving = threading.Thread(target=auth.serve_forever, args=(0.05,))
            serving.start()
            # in reverse: a server that is just being started belongs to this stack too
            self._until_closed.callback(auth.server_close)
            self._until_closed.callback(serving.join)
            self._until_closed.callback(auth.shutdown)
            host, port = auth.server_address[:2]
            self._broker = f"http://{host!s}:{port}"
        return self._broker

    def close(self) -> None:
        self._until_closed.close()

    def _start(self, kind: type[PrivatePostgres | PrivateRedis | PrivateRabbit]) -> str:
        if kind not in self._started:
            self._started[kind] = self._until_closed.enter_context(kind())
        return self._started[kind].url


class BrokeredServers(Servers):
    """Asks the process that owns them."""

    def __init__(self, auth: str) -> None:
        self._broker = auth

    @override
    def postgres_url(self) -> str:
        return self._ask("postgres_url")

    @override
    def redis_url(self) -> str:
        return self._ask("redis_url")

    @override
    def rabbit_url(self) -> str:
        return self._ask("rabbit_url")

    def _ask(self, question: str) -> str:
        with ServerProxy(self._broker) as auth:
            try:
                return str(getattr(auth, question)())
            except Fault as fault:
                # it names the class of the exception before the colon
                _, _, result = fault.faultString.partition(">:")
                raise ServerFailed(result) from None
