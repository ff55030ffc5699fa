"""Requests and responses of the sandbox."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from penstock.sandbox.faults import InjectedFault
from penstock.sandbox.query import PointQuery

JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRequest:
    """One request; the names of parameters and headers are in lower case."""

    at: float
    method: str
    path: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPage:
    """The points of a response, with the text before and after their array."""

    ids: Sequence[int]
    query: PointQuery
    before: bytes = b""
    after: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxResponse:
    """One response; with `cut`, only half of its body is sent."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    fault: InjectedFault | None = None
    cut: bool = False
    ids: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxStream:
    """A JSON body that is too large for memory."""

    chunks: Iterator[bytes]


def json_response(value: Any, *, status: int = 200) -> SandboxResponse:
    return SandboxResponse(status=status, body=msgspec.json.encode(value))


def text_response(status: int, text: str) -> SandboxResponse:
    return SandboxResponse(status=status, body=text.encode(), content_type="text/plain")


def error_response(status: int, description: str) -> SandboxResponse:
    return json_response({"status": "error", "description": description}, status=status)


def parse_parameters(text: str) -> dict[str, str]:
    """Parse a query string or form; names are case-insensitive, the last one wins."""
    pairs = parse_qsl(text, keep_blank_values=True)
    return {name.lower(): value for name, value in pairs}
