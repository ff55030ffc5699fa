"""What is written to a client at the same moment leaves in one piece."""

import asyncio

import pytest
from typing_extensions import override

from penstock.entrypoints.api.pieces import Pieces

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Sent(asyncio.Transport):
    """What left, packet by packet."""

    def __init__(self) -> None:
        super().__init__()
        self.packets: list[bytes] = []
        self.is_closed = False

    @override
    def write(self, data: bytes) -> None:  # type: ignore[override]
        assert not self.is_closed
        self.packets.append(data)

    @override
    def writelines(self, list_of_data) -> None:
        self.write(b"".join(list_of_data))

    @override
    def close(self) -> None:
        self.is_closed = True

    @override
    def is_closing(self) -> bool:
        return self.is_closed

    @override
    def get_extra_info(self, name, default=None):
        return f"the {name}"


@pytest.fixture
def sent() -> Sent:
    return Sent()


def written(sent: Sent, *moments: list[bytes], then_close: bool = False) -> list[bytes]:
    """Write pieces, those of a moment without a pause between them."""

    async def write() -> None:
        pieces = Pieces(sent, asyncio.get_running_loop())
        for moment in moments:
            for piece in moment:
                pieces.write(piece)
            if then_close:
                pieces.close()
                assert pieces.is_closing()
            await asyncio.sleep(0)

    asyncio.run(write())
    return sent.packets


def test_a_head_leaves_with_its_body(sent):
    assert written(sent, [HEAD, b"body"]) == [HEAD + b"body"]


def test_what_nothing_follows_leaves_at_once(sent):
    assert written(sent, [HEAD], [HEAD, b"body"]) == [HEAD, HEAD + b"body"]


def test_what_is_whole_waits_for_nothing(sent):
    assert written(sent, [HEAD + b"body", HEAD, b"body"]) == [HEAD + b"body"] * 2


def test_an_answer_of_many_pieces_is_whole_and_in_order(sent):
    told = written(sent, [HEAD, b"1 ", b"2 "], [b"3 "], [b"4 ", b"0\r\n\r\n"])

    assert b"".join(told) == HEAD + b"1 2 3 4 0\r\n\r\n"


def test_what_waits_leaves_before_the_line_is_closed(sent):
    assert written(sent, [HEAD], then_close=True) == [HEAD]


def test_all_else_is_as_it_was(sent):
    async def ask() -> str:
        pieces = Pieces(sent, asyncio.get_running_loop())
        return str(pieces.get_extra_info("peer"))

    assert asyncio.run(ask()) == "the peer"
