"""The practice provider without its socket: a call goes in, an answer comes out."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from math import ceil
from typing import assert_never

import msgspec

from penstock.sandbox.access import Access
from penstock.sandbox.catalogue import EVERYTHING, Catalogue
from penstock.sandbox.exchange import (
    Answer,
    Call,
    Page,
    Stream,
    error_answer,
    json_answer,
    text_answer,
)
from penstock.sandbox.faults import Fault, Faults
from penstock.sandbox.journal import Journal, Request, summarize
from penstock.sandbox.limiter import Limiter
from penstock.sandbox.options import SandboxOptions
from penstock.sandbox.practice import Route, find_route
from penstock.sandbox.query import integer, parse
from penstock.sandbox.reference import reference_data

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
        self.journal = Journal()
        self.access = Access(options)
        self._limiter = Limiter(options.rate, options.burst)
        self._faults = Faults(options.faults, options.seed)

    def answer(self, call: Call) -> Answer:
        """Answer as the provider would, and write it in the journal."""
        if (call.method, call.path) == ("POST", TOKEN_PATH):
            return self.access.issue_token(call)
        call = replace(call, parameters={**call.parameters, **_body_parameters(call)})
        answer = self._refuse(call) or self._serve(call)
        self.journal.write(
            Request(
                at=call.at,
                method=call.method,
                path=call.path,
                query={k: v for k, v in call.parameters.items() if k != "key"},
                status=0 if answer.fault is Fault.RESET else answer.status,
                fault=answer.fault,
                first_id=answer.ids[0] if answer.ids else None,
                last_id=answer.ids[-1] if answer.ids else None,
                count=len(answer.ids),
            )
        )
        return answer

    def answer_own(self, call: Call) -> Answer | Stream:
        """Answer a question about the sandbox itself: free, and not in the journal."""
        catalogue, point_id = self.catalogue, integer(call.parameters.get("id"), 0)
        try:
            match call.method, call.path.removeprefix(OWN_PATHS):
                case "GET", "requests":
                    return Stream(pieces=_stream_requests(self.journal.read()))
                case "GET", "expected":
                    asked = parse({"compact": "true"} | dict(call.parameters))
                    query = replace(asked, limit=None, order=EVERYTHING.order)
                    return Stream(pieces=catalogue.stream(query))
                case "GET", "stats":
                    stats = summarize(self.journal.read(), self.options.rate)
                    return json_answer(stats | {"tokens": self.access.tokens_issued})
                case "POST", "reset":
                    self.journal.clear()
                case "POST", "add":
                    point_id = catalogue.add()
                case "POST", "edit":
                    catalogue.edit(point_id)
                case "POST", "remove":
                    catalogue.remove(point_id)
                case _:
                    return error_answer(404, "there is nothing here")
        except KeyError:
            return error_answer(404, f"there is no point {point_id}")
        return json_answer({"id": point_id or None})

    def _refuse(self, call: Call) -> Answer | None:
        if refusal := self.access.refuse(call):
            return refusal
        if wait := self._limiter.take(call.at):
            refusal = text_answer(429, "Too many requests.")
            return replace(refusal, headers={"Retry-After": str(ceil(wait))})
        return None

    def _serve(self, call: Call) -> Answer:
        route = _find_route(call)
        if route is None:
            return error_answer(404, "there is nothing here")
        fault = self._faults.draw()
        if fault is None:
            return self._complete(route(self.catalogue, call, self.options))
        return replace(self._serve_badly(route, call, fault), fault=fault)

    def _serve_badly(self, route: Route, call: Call, fault: Fault) -> Answer:
        match fault:
            case Fault.ERROR:
                return error_answer(500, "an unexpected error has occurred")
            case Fault.UNAVAILABLE:
                busy = text_answer(503, "Upstream API unavailable")
                return replace(busy, headers={"Retry-After": "1"})
            case Fault.HTML:
                return Answer(body=_HTML, content_type="text/html; charset=UTF-8")
            case Fault.RESET | Fault.EMPTY:
                return Answer()
            case Fault.EDIT | Fault.REMOVE:
                self._change_world(fault)
            case Fault.SLOW | Fault.TRUNCATED | Fault.DISORDER:
                pass
            case _:
                assert_never(fault)
        reply = route(self.catalogue, call, self.options)
        if fault is Fault.DISORDER and isinstance(reply, Page):
            # The highest id is no longer the last one of any page with two points.
            half = len(reply.ids) // 2
            reply = replace(reply, ids=[*reply.ids[half:], *reply.ids[:half]])
        answer = self._complete(reply)
        return self._truncate(answer) if fault is Fault.TRUNCATED else answer

    def _complete(self, reply: Page | Answer) -> Answer:
        if isinstance(reply, Answer):
            return reply
        body = self.catalogue.encode(reply.ids, reply.query)
        return Answer(
            body=reply.before + body + reply.after,
            headers=reply.headers,
            ids=reply.ids,
        )

    def _truncate(self, answer: Answer) -> Answer:
        """Lose the second half, either openly or behind a length that fits."""
        half = len(answer.body) // 2
        if self._faults.number() < 0.5:  # noqa: PLR2004 - one time in two
            return replace(answer, cut=True)
        return replace(answer, body=answer.body[:half])

    def _change_world(self, fault: Fault) -> None:
        point_id = self.catalogue.any_id(self._faults.number())
        if point_id is None:
            return
        if fault is Fault.EDIT:
            self.catalogue.edit(point_id)
        else:
            self.catalogue.remove(point_id)


def _find_route(call: Call) -> Route | None:
    path = call.path.rstrip("/")
    if call.method == "GET" and path in _ROUTES:
        return _ROUTES[path]
    return find_route(call.method, path)


def _points_of_interest(
    catalogue: Catalogue, call: Call, _: SandboxOptions
) -> Page | Answer:
    match call.parameters.get("output", "json").lower():
        case "json":
            query = parse(call.parameters)
            ids = catalogue.double(catalogue.choose(query), query.limit)
            return Page(ids=ids, query=query)
        case "rss" | "carwings":
            return error_answer(400, "that output type is no longer supported")
        case _:
            return Answer(body=_XML, content_type="application/xml")


def _reference_data(_: Catalogue, __: Call, ___: SandboxOptions) -> Answer:
    return json_answer(reference_data())


def _status(catalogue: Catalogue, _: Call, __: SandboxOptions) -> Answer:
    return json_answer(catalogue.status())


_ROUTES: dict[str, Route] = {
    "/v3/poi": _points_of_interest,
    "/v3/referencedata": _reference_data,
    "/v3/system/status": _status,
}


def _body_parameters(call: Call) -> dict[str, str]:
    """Read the JSON body of a search as parameters; what is no object is ignored."""
    try:
        content = msgspec.json.decode(call.body) if call.body else {}
    except msgspec.DecodeError:
        return {}
    if not isinstance(content, dict):
        return {}
    return {name.lower(): str(v) for name, v in content.items() if v is not None}


def _stream_requests(requests: list[Request]) -> Iterator[bytes]:
    yield b"["
    for number, request in enumerate(requests):
        yield (b"," if number else b"") + msgspec.json.encode(asdict(request))
    yield b"]"
