"""The fast path uses parts of uvicorn that are no public interface."""

from types import CodeType, MethodType, SimpleNamespace
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from penstock.entrypoints.api.server.prebuilt_head import cycle_of

# as docs/explanation/fast-path.md lists them
USED = {
    RequestResponseCycle: (
        "default_headers",
        "disconnected",
        "flow",
        "keep_alive",
        "message_event",
        "on_response",
        "response_complete",
        "response_started",
        "transport",
        "waiting_for_100_continue",
    ),
    HttpToolsProtocol: (
        "app",
        "connections",
        "cycle",
        "loop",
        "on_headers_complete",
        "on_message_complete",
        "on_response_complete",
        "send_400_response",
        "transport",
        "url",
    ),
    FlowControl: ("write_paused",),
    ServerState: ("connections",),
}


@pytest.mark.parametrize(
    ("part", "name"), [(part, name) for part, names in USED.items() for name in names]
)
def test_the_installed_uvicorn_has_what_the_fast_path_uses(part, name):
    assert name in names_in(part), (
        f"this uvicorn has no {part.__name__}.{name}; see "
        "docs/explanation/fast-path.md, or set api.fast_path = false"
    )


def names_in(part: type) -> set[str]:
    """Return the attributes of a class, and those that its methods set."""
    codes = [
        code
        for value in vars(part).values()
        if isinstance(code := getattr(value, "__code__", None), CodeType)
    ]
    return {*vars(part), *(name for code in codes for name in code.co_names)}


@pytest.mark.parametrize("is_fast", [True, False])
def test_it_can_be_switched_off(is_fast):
    protocol: Any = SimpleNamespace(fast_path=is_fast)
    cycle: Any = RequestResponseCycle.__new__(RequestResponseCycle)
    cycle.keep_alive, cycle.flow = True, SimpleNamespace(write_paused=False)
    cycle.on_response = MethodType(HttpToolsProtocol.on_response_complete, protocol)

    found = cycle_of(MethodType(RequestResponseCycle.send, cycle))

    assert (found is not None) is is_fast
