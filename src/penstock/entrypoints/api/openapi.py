"""The OpenAPI document: drawn from the table of endpoints and the declared datasets."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from http import HTTPStatus
from itertools import chain
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock import __version__
from penstock.domain.dataset import Dataset
from penstock.entrypoints.api import dataset_shapes, record_shapes, shapes
from penstock.entrypoints.api.answers import is_known
from penstock.entrypoints.api.endpoints import Described, Endpoint, Lane
from penstock.entrypoints.api.problems import MEDIA_TYPE, TITLES, TYPES
from penstock.entrypoints.api.schemas import (
    JSON,
    Schema,
    filter_schemas,
    record_schemas,
    ref,
    schema_name,
)
from penstock.entrypoints.api.service import Api
from penstock.settings import Settings

# what of all that is served is the API
PREFIX = "/api/"
# {id:int} as a route has it
VARIABLE = re.compile(r"\{(\w+)(?::\w+)?\}")
ABOUT = """\
The records of the declared datasets, and the imports that bring them.

Errors are `application/problem+json`: `type` is stable, `errors` names every flaw by
its place, and `trace_id` finds the request in the log.
"""
# as whole Response Objects have them, and schemas do not
OF_RESPONSES = {"content", "headers", "links"}

encode = msgspec.json.Encoder().encode


class Document:
    """The document of one process, drawn when it is first asked for."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints
        self._body = b""

    async def show(self, api: Api, request: Request) -> Response:
        if not self._body:
            settings = api.penstock.settings
            self._body = encode(document(self._endpoints, settings))
        etag = f'"{blake2b(self._body, digest_size=8).hexdigest()}"'
        headers = {"etag": etag, "cache-control": "no-cache"}
        known = request.headers.get("if-none-match")
        if known is not None and is_known(etag.encode(), known.encode("latin-1")):
            return Response(status_code=304, headers=headers)
        return Response(self._body, media_type="application/json", headers=headers)


def endpoints(described: Sequence[Endpoint]) -> Sequence[Endpoint]:
    return [
        Endpoint(
            method="GET",
            path="/openapi.json",
            scope=None,
            lane=Lane.READS,
            summary="Describe this API as OpenAPI 3.1",
            handle=Document(described).show,
        )
    ]


def document(endpoints: Iterable[Endpoint], settings: Settings) -> Schema:
    """Draw the whole document."""
    paths: dict[str, dict[str, Any]] = {}
    is_guarded = settings.auth is not None
    for endpoint, dataset in expanded(endpoints, settings):
        told = described(endpoint, dataset)
        if told is not None:
            path = paths.setdefault(address(endpoint, dataset), {})
            path[endpoint.method.lower()] = operation(
                endpoint, dataset, told, is_guarded=is_guarded
            )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "version": __version__, "description": ABOUT},
        "servers": [{"url": "/"}],
        "tags": [
            {"name": name, "description": f"The records of {name}."}
            for name in settings.datasets
        ],
        "paths": paths,
        "components": components(settings),
    }


def expanded(
    endpoints: Iterable[Endpoint], settings: Settings
) -> Iterator[tuple[Endpoint, Dataset | None]]:
    """Yield each endpoint of the API, once for every dataset that it serves."""
    for endpoint in endpoints:
        if not endpoint.path.startswith(PREFIX):
            continue
        if "{dataset}" in endpoint.path:
            for dataset in settings.datasets.values():
                yield endpoint, dataset
        else:
            yield endpoint, None


def address(endpoint: Endpoint, dataset: Dataset | None) -> str:
    """Write a path as OpenAPI has it; the parts of a key stand with commas."""
    path = VARIABLE.sub(r"{\1}", endpoint.path)
    if dataset is None:
        return path
    key = ",".join(f"{{{name}}}" for name in dataset.key)
    return path.replace("{dataset}", dataset.name).replace("{key}", key)


def operation(
    endpoint: Endpoint, dataset: Dataset | None, told: Described, *, is_guarded: bool
) -> dict[str, Any]:
    drawn: dict[str, Any] = {
        "operationId": operation_name(endpoint, dataset),
        "summary": endpoint.summary,
        "tags": [topic(endpoint) if dataset is None else dataset.name],
        "parameters": [*path_parameters(endpoint, dataset, told), *told.parameters],
        "responses": {
            str(status): response
            for status, response in sorted(
                responses(endpoint, told, is_guarded=is_guarded).items()
            )
        },
    }
    if told.body is not None:
        drawn["requestBody"] = as_body(told.body)
    if is_guarded:
        scope = endpoint.scope
        drawn["security"] = [] if scope is None else [{"bearer": [scope]}]
    return drawn


def described(endpoint: Endpoint, dataset: Dataset | None) -> Described | None:
    if dataset is not None and endpoint.describe is not None:
        return endpoint.describe(dataset)
    return Described(
        parameters=endpoint.parameters, body=endpoint.body, answers=endpoint.answers
    )


def operation_name(endpoint: Endpoint, dataset: Dataset | None) -> str:
    """Name an operation as a method of a client: `listPoi`, `getImport`."""
    if endpoint.operation:
        return endpoint.operation.format(schema_name(dataset.name) if dataset else "")
    function = endpoint.handle or endpoint.read
    verb, *others = getattr(function, "__name__", endpoint.method.lower()).split("_")
    of = "" if dataset is None else schema_name(dataset.name)
    return verb + of + "".join(map(str.capitalize, others))


def topic(endpoint: Endpoint) -> str:
    parts = endpoint.path.split("/")
    return parts[3] if parts[2] == "v1" else parts[2]


def path_parameters(
    endpoint: Endpoint, dataset: Dataset | None, told: Described
) -> Iterator[Schema]:
    """Yield the variables of a path that its endpoint does not describe itself."""
    known = {each["name"] for each in told.parameters if each.get("in") == "path"}
    known |= {"dataset", "key"} if dataset is not None else set()
    for name in VARIABLE.findall(endpoint.path):
        if name not in known:
            schema = {"type": "string"}
            yield {"name": name, "in": "path", "required": True, "schema": schema}


def responses(
    endpoint: Endpoint, told: Described, *, is_guarded: bool
) -> Mapping[int, Schema]:
    known = told.answers or {200: {"description": endpoint.summary, "content": {}}}
    problems = {
        status: {"$ref": f"#/components/responses/{response_name(status)}"}
        for status in statuses(endpoint, told, is_guarded=is_guarded)
    }
    return problems | {status: as_response(each) for status, each in known.items()}


def statuses(endpoint: Endpoint, told: Described, *, is_guarded: bool) -> Iterator[int]:
    """Yield what may happen to those who ask."""
    yield from (400, 405, 414, 421, 431, 500, 503, 504)
    if endpoint.scope is not None:
        yield 429
        if is_guarded:
            yield from (401, 403)
    if VARIABLE.search(endpoint.path.replace("{dataset}", "")):
        yield 404
    if told.body is not None:
        yield from (408, 413, 415, 422)
    names = {each["name"] for each in told.parameters}
    if "X-Consistency-Token" in names or endpoint.path.endswith("/changes"):
        yield 410
    if "If-Match" in names:
        yield 412


def as_body(body: Schema) -> Schema:
    if "content" in body:
        return body
    return {"required": True, "content": {"application/json": {"schema": body}}}


def as_response(answer: Schema) -> Schema:
    if answer.keys() & OF_RESPONSES or answer.keys() == {"description"}:
        return answer
    told = answer.get("description", "What was asked for.")
    return {
        "description": told,
        "content": {"application/json": {"schema": answer}},
    }


def components(settings: Settings) -> Schema:
    of_datasets = chain.from_iterable(
        record_schemas(dataset, schema_name(dataset.name))
        for dataset in settings.datasets.values()
    )
    drawn: dict[str, Any] = {
        "schemas": {
            **dict(of_datasets),
            **record_shapes.SCHEMAS,
            **dataset_shapes.SCHEMAS,
            **dict(filter_schemas()),
            "Json": JSON,
            "Problem": PROBLEM,
        },
        "headers": shapes.HEADERS,
        "responses": {
            response_name(status): problem_response(status)
            for status in sorted({status for status, _ in TITLES.values()})
        },
    }
    if settings.auth is not None:
        scheme = {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
        drawn["securitySchemes"] = {"bearer": scheme}
    return drawn


def response_name(status: int) -> str:
    return "".join(re.findall(r"\w+", HTTPStatus(status).phrase.title()))


def problem_response(status: int) -> Schema:
    meanings = {code: title for code, (each, title) in TITLES.items() if each == status}
    told = "; ".join(f"{title} (`{code}`)" for code, title in meanings.items())
    headers = HEADERS_OF_PROBLEMS.get(status)
    return {
        "description": f"{told}.",
        "content": {MEDIA_TYPE: {"schema": ref("Problem")}},
        **({} if headers is None else {"headers": headers}),
    }


RETRY_AFTER = {"Retry-After": shapes.header("RetryAfter")}
HEADERS_OF_PROBLEMS = {
    405: {"Allow": shapes.header("Allow")},
    # with it what is there now can be read
    410: {"X-Consistency-Token": shapes.header("Token")},
    412: {"X-Consistency-Token": shapes.header("Token")},
    429: RETRY_AFTER,
    503: RETRY_AFTER,
}
PROBLEM: Schema = {
    "type": "object",
    "description": "What went wrong, as RFC 9457 has it.",
    "properties": {
        "type": {"type": "string", "pattern": f"^{TYPES}[a-z-]+$"},
        "title": {"type": "string"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "code": {"enum": [*TITLES]},
        "trace_id": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
        "next": {
            "type": "string",
            "description": "With `position-gone`: from where to follow changes again.",
        },
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "pointer": {
                        "type": "string",
                        "description": (
                            "`?name` is a parameter, `/name` a place in the body, "
                            "`#Name` a header, `{name}` a part of the address."
                        ),
                    },
                    "code": {"type": "string"},
                    "detail": {"type": "string"},
                },
                "required": ["pointer", "code", "detail"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["type", "title", "status", "detail", "instance", "code", "trace_id"],
}
