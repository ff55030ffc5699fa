"""The values that pass between the socket and the routes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from penstock.sandbox.faults import Fault
from penstock.sandbox.query import Query

JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request as read; the names of parameters and headers are in lower case."""

    at: float
    method: str
    path: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The points of an answer, with the text before and after their array."""

    ids: Sequence[int]
    query: Query
    before: bytes = b""
    after: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is sent; `cut` when only half of the body leaves."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    fault: Fault | None = None
    cut: bool = False
    ids: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A JSON body too large to hold."""

    pieces: Iterator[bytes]


def json_answer(value: Any, *, status: int = 200) -> Answer:
    return Answer(status=status, body=msgspec.json.encode(value))


def text_answer(status: int, text: str) -> Answer:
    return Answer(status=status, body=text.encode(), content_type="text/plain")


def error_answer(status: int, description: str) -> Answer:
    return json_answer({"status": "error", "description": description}, status=status)


def parse_parameters(text: str) -> dict[str, str]:
    """Read a query string or form; names are not case-sensitive, the last one wins."""
    pairs = parse_qsl(text, keep_blank_values=True)
    return {name.lower(): value for name, value in pairs}
