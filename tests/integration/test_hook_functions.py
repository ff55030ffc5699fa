"""Functions that are called with the messages of hooks."""

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.domain.hooks import HookFunction
from penstock.ports.hooks import DeliveryFailed
from penstock.settings import Settings
from penstock.wiring.hooks import FunctionTarget
from tests.support.builders import MINUTE, SECOND
from tests.support.workshop import wait_until

MODULE = "hook_functions_of_this_test"

Declare = Callable[[Callable[[dict[str, Any]], object]], FunctionTarget]


@pytest.fixture
def declare(tmp_path: Path) -> Iterator[Declare]:
    module = ModuleType(MODULE)
    sys.modules[MODULE] = module
    path = list(sys.path)

    def build(
        send: Callable[[dict[str, Any]], object], **options: Any
    ) -> FunctionTarget:
        module.__dict__["send"] = send
        settings = Settings(path=tmp_path / "penstock.toml")
        function = HookFunction(path=f"{MODULE}:send")
        return FunctionTarget(settings, "chat", function, **options)

    yield build
    del sys.modules[MODULE]
    sys.path[:] = path


def test_it_is_called_with_a_dict_of_its_own(declare):
    received: list[dict[str, Any]] = []
    document = {"id": "msg_1", "data": {}}

    declare(received.append).deliver(document)

    assert received == [document]
    assert type(received[0]) is dict
    assert received[0] is not document


def test_an_exception_is_a_failed_delivery(declare):
    def send(_: object) -> None:
        raise ValueError("the channel is archived")

    with pytest.raises(
        DeliveryFailed, match="send raised ValueError: the channel is archived"
    ):
        declare(send).deliver({})


def test_a_timeout_of_its_own_is_not_taken_for_ours(declare):
    def send(_: object) -> None:
        raise TimeoutError("the chat is slow")

    with pytest.raises(DeliveryFailed, match="send raised TimeoutError: the chat"):
        declare(send).deliver({})


def test_one_that_does_not_return_is_not_called_again_meanwhile(declare):
    go_on, calls = threading.Event(), list[object]()

    def send(message: object) -> None:
        calls.append(message)
        assert go_on.wait(MINUTE.total_seconds())

    target = declare(send, timeout=SECOND / 10)
    with pytest.raises(DeliveryFailed, match=r"send did not return within 0\.1 s"):
        target.deliver({})
    with pytest.raises(DeliveryFailed, match="send has not returned from an earlier"):
        target.deliver({})
    assert len(calls) == 1

    go_on.set()
    wait_until(lambda: not target._call.is_alive())
    target.deliver({})

    assert len(calls) == 2


def test_a_module_that_is_missing_is_named_with_its_setting(tmp_path):
    settings = Settings(path=tmp_path / "penstock.toml")
    path = list(sys.path)
    target = FunctionTarget(settings, "chat", HookFunction(path="no_module:send"))

    with pytest.raises(DeliveryFailed, match=r"hooks\.chat\.call: module 'no_module'"):
        target.deliver({})
    sys.path[:] = path
