"""The outermost layer: every request gets a trace id, every error a clear answer."""

import re
import secrets
import traceback

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.domain.events import RequestFailed
from penstock.entrypoints.api.problems import Problem, problem_of
from penstock.errors import PenstockError
from penstock.ports import Emit

LONGEST_TARGET = 8_192
LARGEST_HEADERS = 16_384
MOST_HEADERS = 100

TRACEPARENT = re.compile(rb"00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Edge:
    def __init__(self, app: ASGIApp, *, emit: Emit) -> None:
        self._app = app
        self._emit = emit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        trace_id = trace_id_of(scope)
        scope["trace_id"] = trace_id
        guarded = Guarded(send, trace_id)
        try:
            refuse_oversized(scope)
            await self._app(scope, receive, guarded)
        except Problem as told:
            await self._refuse(told, scope, receive, guarded)
        except PenstockError as error:
            meaning = problem_of(error)
            if meaning.code == "internal":
                self._tell(trace_id, error)
            await self._refuse(meaning, scope, receive, guarded)
        except Exception as error:  # noqa: BLE001 (a bug must not cost more than its request)
            self._tell(trace_id, error)
            await self._refuse(Problem("internal"), scope, receive, guarded)

    def _tell(self, trace_id: str, error: BaseException) -> None:
        """Tell operators of what nobody expected, and where it happened."""
        last = traceback.extract_tb(error.__traceback__)[-1]
        self._emit(
            RequestFailed(
                trace_id=trace_id,
                error=f"{type(error).__name__}: {error}",
                where=f"{last.filename}:{last.lineno} {last.name}",
            )
        )

    async def _refuse(
        self, told: Problem, scope: Scope, receive: Receive, send: "Guarded"
    ) -> None:
        if send.has_begun:
            # too late for another answer: the connection is broken off
            raise ConnectionError(told.detail)
        response = told.response(trace_id=scope["trace_id"], instance=scope["path"])
        await response(scope, receive, send)


class Guarded:
    """Adds to each answer what all of them have."""

    def __init__(self, send: Send, trace_id: str) -> None:
        self._send = send
        self._trace_id = trace_id.encode()
        self.has_begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = list(message.get("headers", ()))
            known = {name for name, _ in headers}
            headers.extend(each for each in SECURITY if each[0] not in known)
            headers.append((b"x-trace-id", self._trace_id))
            message = {**message, "headers": headers}
        await self._send(message)


def trace_id_of(scope: Scope) -> str:
    """Go on with the trace of the caller, or begin one."""
    for name, value in scope["headers"]:
        if name == b"traceparent":
            given = TRACEPARENT.fullmatch(value)
            if given is not None:
                return str(given[1].decode())
    return secrets.token_hex(16)


def refuse_oversized(scope: Scope) -> None:
    target = len(scope["raw_path"]) + len(scope["query_string"])
    if target > LONGEST_TARGET:
        raise Problem("uri-too-long", f"at most {LONGEST_TARGET} bytes are read")
    headers = scope["headers"]
    size = sum(len(name) + len(value) for name, value in headers)
    if len(headers) > MOST_HEADERS or size > LARGEST_HEADERS:
        told = f"at most {MOST_HEADERS} with {LARGEST_HEADERS} bytes are read"
        raise Problem("headers-too-large", told)
