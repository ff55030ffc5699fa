"""The sandbox provider without its socket: requests in, responses out."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from math import ceil
from threading import Lock
from typing import assert_never

import msgspec

from penstock.sandbox.access import KeyAccess
from penstock.sandbox.catalogue import EVERYTHING, Catalogue
from penstock.sandbox.faults import InjectedFault, InjectedFaults
from penstock.sandbox.messages import (
    SandboxPage,
    SandboxRequest,
    SandboxResponse,
    SandboxStream,
    error_response,
    json_response,
    text_response,
)
from penstock.sandbox.options import SandboxOptions
from penstock.sandbox.paging_routes import Route, find_route
from penstock.sandbox.query import integer, parse
from penstock.sandbox.reference_data import reference_data
from penstock.sandbox.request_log import LoggedRequest, SandboxRequestLog, summarize

TOKEN_PATH = "/practice/token"  # noqa: S105 - an address, not a secret
OWN_PATHS = "/sandbox/"

_HTML = b"""<!DOCTYPE html>
<html><head><title>Just a moment...</title></head>
<body><h1>Checking your browser before accessing the site.</h1></body></html>
"""
_XML = b"""<?xml version="1.0" encoding="utf-8"?>
<LocationDataResponse><!-- ask for output=json --></LocationDataResponse>
"""


class Provider:
    def __init__(self, options: SandboxOptions) -> None:
        self.options = options
        self.catalogue = Catalogue(options)
        self.log = SandboxRequestLog()
        self.access = KeyAccess(options)
        self._limiter = Limiter(options.rate, options.burst)
        self._faults = InjectedFaults(options.faults, options.seed)

    def respond(self, request: SandboxRequest) -> SandboxResponse:
        """Respond as the provider would, and log the request."""
        if (request.method, request.path) == ("POST", TOKEN_PATH):
            return self.access.issue_token(request)
        request = replace(
            request, parameters={**request.parameters, **_body_parameters(request)}
        )
        response = self._refuse(request) or self._serve(request)
        self.log.write(
            LoggedRequest(
                at=request.at,
                method=request.method,
                path=request.path,
                query={k: v for k, v in request.parameters.items() if k != "key"},
                status=0 if response.fault is InjectedFault.RESET else response.status,
                fault=response.fault,
                first_id=response.ids[0] if response.ids else None,
                last_id=response.ids[-1] if response.ids else None,
                count=len(response.ids),
            )
        )
        return response

    def respond_about_sandbox(
        self, request: SandboxRequest
    ) -> SandboxResponse | SandboxStream:
        """Respond to a request about the sandbox itself; it is not logged."""
        catalogue, point_id = self.catalogue, integer(request.parameters.get("id"), 0)
        try:
            match request.method, request.path.removeprefix(OWN_PATHS):
                case "GET", "requests":
                    return SandboxStream(chunks=_stream_requests(self.log.read()))
                case "GET", "expected":
                    requested = parse({"compact": "true"} | dict(request.parameters))
                    query = replace(requested, limit=None, order=EVERYTHING.order)
                    return SandboxStream(chunks=catalogue.stream(query))
                case "GET", "stats":
                    stats = summarize(self.log.read(), self.options.rate)
                    return json_response(stats | {"tokens": self.access.tokens_issued})
                case "POST", "reset":
                    self.log.clear()
                case "POST", "add":
                    point_id = catalogue.add()
                case "POST", "edit":
                    catalogue.edit(point_id)
                case "POST", "remove":
                    catalogue.remove(point_id)
                case _:
                    return error_response(404, "there is no such route")
        except KeyError:
            return error_response(404, f"there is no point {point_id}")
        return json_response({"id": point_id or None})

    def _refuse(self, request: SandboxRequest) -> SandboxResponse | None:
        if refusal := self.access.refuse(request):
            return refusal
        if wait := self._limiter.take(request.at):
            refusal = text_response(429, "Too many requests.")
            return replace(refusal, headers={"Retry-After": str(ceil(wait))})
        return None

    def _serve(self, request: SandboxRequest) -> SandboxResponse:
        route = _find_route(request)
        if route is None:
            return error_response(404, "there is no such route")
        fault = self._faults.draw()
        if fault is None:
            return self._complete(route(self.catalogue, request, self.options))
        return replace(self._serve_fault(route, request, fault), fault=fault)

    def _serve_fault(
        self, route: Route, request: SandboxRequest, fault: InjectedFault
    ) -> SandboxResponse:
        match fault:
            case InjectedFault.ERROR:
                return error_response(500, "an unexpected error has occurred")
            case InjectedFault.UNAVAILABLE:
                busy = text_response(503, "Upstream API unavailable")
                return replace(busy, headers={"Retry-After": "1"})
            case InjectedFault.HTML:
                return SandboxResponse(
                    body=_HTML, content_type="text/html; charset=UTF-8"
                )
            case InjectedFault.RESET | InjectedFault.EMPTY:
                return SandboxResponse()
            case InjectedFault.EDIT | InjectedFault.REMOVE:
                self._change_points(fault)
            case InjectedFault.SLOW | InjectedFault.TRUNCATED | InjectedFault.DISORDER:
                pass
            case _:
                assert_never(fault)
        reply = route(self.catalogue, request, self.options)
        if fault is InjectedFault.DISORDER and isinstance(reply, SandboxPage):
            # On pages of two points or more, the highest id is not the last any more.
            half = len(reply.ids) // 2
            reply = replace(reply, ids=[*reply.ids[half:], *reply.ids[:half]])
        response = self._complete(reply)
        if fault is InjectedFault.TRUNCATED:
            return self._truncate(response)
        return response

    def _complete(self, reply: SandboxPage | SandboxResponse) -> SandboxResponse:
        if isinstance(reply, SandboxResponse):
            return reply
        body = self.catalogue.encode(reply.ids, reply.query)
        return SandboxResponse(
            body=reply.before + body + reply.after,
            headers=reply.headers,
            ids=reply.ids,
        )

    def _truncate(self, response: SandboxResponse) -> SandboxResponse:
        """Drop the second half, with the old or the new Content-Length."""
        half = len(response.body) // 2
        if self._faults.number() < 0.5:  # noqa: PLR2004 - one time in two
            return replace(response, cut=True)
        return replace(response, body=response.body[:half])

    def _change_points(self, fault: InjectedFault) -> None:
        point_id = self.catalogue.any_id(self._faults.number())
        if point_id is None:
            return
        if fault is InjectedFault.EDIT:
            self.catalogue.edit(point_id)
        else:
            self.catalogue.remove(point_id)


def _find_route(request: SandboxRequest) -> Route | None:
    path = request.path.rstrip("/")
    if request.method == "GET" and path in _ROUTES:
        return _ROUTES[path]
    return find_route(request.method, path)


def _points_of_interest(
    catalogue: Catalogue, request: SandboxRequest, _: SandboxOptions
) -> SandboxPage | SandboxResponse:
    match request.parameters.get("output", "json").lower():
        case "json":
            query = parse(request.parameters)
            ids = catalogue.double(catalogue.choose(query), query.limit)
            return SandboxPage(ids=ids, query=query)
        case "rss" | "carwings":
            return error_response(400, "that output type is no longer supported")
        case _:
            return SandboxResponse(body=_XML, content_type="application/xml")


def _reference_data(
    _: Catalogue, __: SandboxRequest, ___: SandboxOptions
) -> SandboxResponse:
    return json_response(reference_data())


def _status(
    catalogue: Catalogue, _: SandboxRequest, __: SandboxOptions
) -> SandboxResponse:
    return json_response(catalogue.status())


_ROUTES: dict[str, Route] = {
    "/v3/poi": _points_of_interest,
    "/v3/referencedata": _reference_data,
    "/v3/system/status": _status,
}


def _body_parameters(request: SandboxRequest) -> dict[str, str]:
    """Read the JSON object in the body of a search as parameters."""
    try:
        content = msgspec.json.decode(request.body) if request.body else {}
    except msgspec.DecodeError:
        return {}
    if not isinstance(content, dict):
        return {}
    return {name.lower(): str(v) for name, v in content.items() if v is not None}


def _stream_requests(requests: list[LoggedRequest]) -> Iterator[bytes]:
    yield b"["
    for number, request in enumerate(requests):
        yield (b"," if number else b"") + msgspec.json.encode(asdict(request))
    yield b"]"


class Limiter:
    def __init__(self, rate: float | None, burst: int) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled_at: float | None = None
        self._lock = Lock()

    def take(self, at: float) -> float:
        """Take a token; return 0, or the seconds until there is one."""
        if self._rate is None:
            return 0.0
        with self._lock:
            # Threads may call slightly out of order: the time must not decrease.
            elapsed = (
                max(0.0, at - self._filled_at) if self._filled_at is not None else 0.0
            )
            self._filled_at = max(at, self._filled_at or at)
            self._tokens = min(self._burst, self._tokens + elapsed * self._rate)
            if self._tokens < 1:
                return (1 - self._tokens) / self._rate
            self._tokens -= 1
            return 0.0
