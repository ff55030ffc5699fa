"""Processes that share a socket have about as many connections each."""

import asyncio
import random
import socket

import pytest
from uvicorn.server import ServerState

from penstock.entrypoints.api.server.accept_balancing import (
    FEW_MORE,
    Acceptor,
    ConnectionCounts,
)


@pytest.mark.parametrize("processes", [1, 2, 3, 8, 64])
def test_whoever_wakes_first_connections_are_spread(tmp_path, processes):
    counts = ConnectionCounts.create(tmp_path / "counts", processes=processes)
    for each in range(processes):
        counts.set(each, 0)
    held = [0] * processes
    # the kernel mostly wakes the same one
    order = [*range(processes)]
    for _ in range(64 * processes):
        process = next(each for each in order if counts.is_fair(each))
        held[process] += 1
        counts.set(process, held[process])

    assert min(held) > 0
    assert max(held) - min(held) <= max(FEW_MORE, max(held) // 8) + 1


def test_someone_may_always_accept(tmp_path):
    dice = random.Random(1)
    counts = ConnectionCounts.create(tmp_path / "counts", processes=5)
    for _ in range(1000):
        for each in range(5):
            counts.set(each, dice.choice([0, 1, 2, 30, 500]))

        assert any(map(counts.is_fair, range(5)))


def test_one_that_has_ended_is_not_waited_for(tmp_path):
    counts = ConnectionCounts.create(tmp_path / "counts", processes=2)
    other = ConnectionCounts(tmp_path / "counts")
    counts.set(0, 500)
    assert counts.is_fair(0)

    other.set(1, 3)
    assert not counts.is_fair(0)
    assert other.is_fair(1)

    other.close(1)
    assert counts.is_fair(0)


def test_one_that_hangs_is_waited_for_once(tmp_path):
    counts = ConnectionCounts.create(tmp_path / "counts", processes=3)
    hung = ConnectionCounts(tmp_path / "counts")
    for process, count in enumerate([20, 2, 20]):
        counts.set(process, count)
    assert not counts.is_fair(0)

    counts.ignore_lower(0)
    # as many as the third, which accepts, and for whom it still waits
    for count in range(20, 24):
        counts.set(0, count)
        assert counts.is_fair(0)
    counts.set(0, 40)
    assert not counts.is_fair(0)

    # it has come back, so the others leave connections to it again
    counts.set(0, 20)
    assert counts.is_fair(0)
    hung.set(1, 3)
    assert not counts.is_fair(0)
    hung.set(1, 2)
    assert not counts.is_fair(0)


def test_many_connections_beside_one_that_hangs_are_deferred_once(tmp_path):
    class Counts(ConnectionCounts):
        deferrals = 0

        def ignore_lower(self, process: int) -> None:
            self.deferrals += 1
            super().ignore_lower(process)

    counts = Counts.create(tmp_path / "counts", processes=2)
    assert isinstance(counts, Counts)
    # the other has begun, and accepts nothing
    counts.set(1, 0)

    class Greeting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            state.connections.add(self)  # type: ignore[arg-type]
            transport.write(b"hello")

    state = ServerState()

    async def connect_all() -> list[bytes]:
        listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        listening.settimeout(0)
        address = listening.getsockname()
        acceptor = Acceptor(listening, counts, 0, state=state, protocol=Greeting)
        acceptor.open()
        opened = [await asyncio.open_connection(*address) for _ in range(40)]
        greetings = [await reader.readexactly(5) for reader, _ in opened]
        for _, writer in opened:
            writer.close()
        acceptor.close()
        return greetings

    assert asyncio.run(connect_all()) == [b"hello"] * 40
    assert counts.deferrals == 1
