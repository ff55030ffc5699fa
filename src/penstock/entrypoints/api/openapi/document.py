"""The OpenAPI document, built from the endpoints and the declared datasets."""

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
from penstock.entrypoints.api.cache.response_cache import etag_matches
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import (
    AnyEndpoint,
    Endpoint,
    Lane,
    OperationDoc,
    ignore_params,
)
from penstock.entrypoints.api.openapi import (
    dataset_shapes,
    record_shapes,
    schedule_shapes,
    shapes,
)
from penstock.entrypoints.api.openapi.schemas import (
    NamedSchema,
    Schema,
    filter_schemas,
    record_schemas,
    ref,
    schema_name,
)
from penstock.entrypoints.api.problems import MEDIA_TYPE, TITLES, TYPES
from penstock.settings import Settings

# only paths below it are described
PREFIX = "/api/"
# {id:int} in the path of a route
VARIABLE = re.compile(r"\{(\w+)(?::\w+)?\}")
ABOUT = """\
The records of the declared datasets, and the imports that load them.

Errors are `application/problem+json`: `type` is stable, `errors` lists every invalid
value with its location, and `trace_id` identifies the request in the log.
"""
TAGS = {
    "actions": "What operators have done.",
    "budgets": "How many requests providers allow, and what is left of them.",
    "datasets": "The declared datasets.",
    "drafts": "Datasets that could be declared for files.",
    "health": "Whether the process is alive.",
    "imports": "Imports: progress, bad rows, cancelling.",
    "jobs": "The parts of imports, and retrying them.",
    "problems": "The types of problems.",
    "ready": "Whether the process is ready for requests.",
    "rollups": "What happened per minute: requests, latency, records, tokens.",
    "scaling": "How many workers there is work for.",
    "schedules": "When imports begin.",
    "workers": "The live workers.",
}
# keys that a Response Object has and a schema does not
RESPONSE_KEYS = {"content", "headers", "links"}

encode = msgspec.json.Encoder().encode


class OpenApiDocument:
    """The document of one process, built on the first request."""

    def __init__(self, endpoints: Sequence[AnyEndpoint]) -> None:
        self._endpoints = endpoints
        self._body = b""

    async def show(self, api: AppContext, request: Request, query: None) -> Response:
        del query
        if not self._body:
            settings = api.penstock.settings
            self._body = encode(build_document(self._endpoints, settings))
        etag = f'"{blake2b(self._body, digest_size=8).hexdigest()}"'
        headers = {"etag": etag, "cache-control": "no-cache"}
        tags = request.headers.get("if-none-match")
        if tags is not None and etag_matches(etag.encode(), tags.encode("latin-1")):
            return Response(status_code=304, headers=headers)
        return Response(self._body, media_type="application/json", headers=headers)


def endpoints(api_endpoints: Sequence[AnyEndpoint]) -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/openapi.json",
            scope=None,
            lane=Lane.READS,
            summary="Describe this API as OpenAPI 3.1",
            parse=ignore_params,
            handle=OpenApiDocument(api_endpoints).show,
        )
    ]


def build_document(endpoints: Iterable[AnyEndpoint], settings: Settings) -> Schema:
    paths: dict[str, dict[str, Any]] = {}
    is_guarded = settings.auth is not None
    for endpoint, dataset in expand_endpoints(endpoints, settings):
        doc = describe_operation(endpoint, dataset)
        if doc is not None:
            path = paths.setdefault(openapi_path(endpoint, dataset), {})
            path[endpoint.method.lower()] = build_operation(
                endpoint, dataset, doc, is_guarded=is_guarded
            )
    schemas: dict[str, Any] = {**all_schemas(settings)}
    paths = extract_schemas(paths, schemas)
    used = used_components(paths, components(settings, schemas))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": __version__,
            "description": ABOUT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        # each operation names its scope
        "security": [{"bearer": []}] if is_guarded else [],
        "tags": [*describe_tags(paths, settings)],
        "paths": paths,
        "components": used,
    }


def describe_tags(
    paths: Mapping[str, Mapping[str, Any]], settings: Settings
) -> Iterator[Schema]:
    used = {
        tag
        for path in paths.values()
        for operation in path.values()
        for tag in operation["tags"]
    }
    for tag in sorted(used - settings.datasets.keys()):
        yield {"name": tag, "description": TAGS[tag]}
    for name in settings.datasets:
        yield {"name": name, "description": f"The records of {name}."}


def extract_schemas(value: Any, schemas: dict[str, Any]) -> Any:
    """Return a part of the document that refers to its named schemas, and add them."""
    match value:
        case NamedSchema():
            schemas[value.name] = {
                key: extract_schemas(part, schemas) for key, part in value.items()
            }
            return ref(value.name)
        case Mapping():
            return {key: extract_schemas(part, schemas) for key, part in value.items()}
        case list() | tuple():
            return [extract_schemas(part, schemas) for part in value]
        case _:
            return value


def used_components(
    paths: Schema, available: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Schema]:
    """Return the components that the paths refer to, and those that these refer to."""
    used = set()
    waiting = [*references(paths)]
    while waiting:
        kind, name = component = waiting.pop()
        if component not in used:
            used.add(component)
            waiting += references(available[kind][name])
    # operations name their scheme without a reference
    used |= {("securitySchemes", name) for name in available.get("securitySchemes", ())}
    return {
        kind: {name: schemas[name] for name in schemas if (kind, name) in used}
        for kind, schemas in available.items()
    }


def references(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the kinds and names of the components that a part refers to."""
    if isinstance(value, Mapping):
        if isinstance(target := value.get("$ref"), str):
            _, _, kind, name = target.split("/")
            yield kind, name
        for part in value.values():
            yield from references(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from references(part)


def expand_endpoints(
    endpoints: Iterable[AnyEndpoint], settings: Settings
) -> Iterator[tuple[AnyEndpoint, Dataset | None]]:
    """Yield the endpoints of the API, those of datasets once for each dataset."""
    for endpoint in endpoints:
        if not endpoint.path.startswith(PREFIX):
            continue
        if "{dataset}" in endpoint.path:
            for dataset in settings.datasets.values():
                yield endpoint, dataset
        else:
            yield endpoint, None


def openapi_path(endpoint: AnyEndpoint, dataset: Dataset | None) -> str:
    """Return a path in OpenAPI's syntax, with the parts of a key between commas."""
    path = VARIABLE.sub(r"{\1}", endpoint.path)
    if dataset is None:
        return path
    key = ",".join(f"{{{name}}}" for name in dataset.key)
    return path.replace("{dataset}", dataset.name).replace("{key}", key)


def build_operation(
    endpoint: AnyEndpoint,
    dataset: Dataset | None,
    doc: OperationDoc,
    *,
    is_guarded: bool,
) -> dict[str, Any]:
    built: dict[str, Any] = {
        "operationId": operation_id(endpoint, dataset),
        "summary": endpoint.summary,
        "tags": [tag_of(endpoint) if dataset is None else dataset.name],
        "parameters": [*path_parameters(endpoint, dataset, doc), *doc.parameters],
        "responses": {
            str(status): response
            for status, response in sorted(
                responses(endpoint, doc, is_guarded=is_guarded).items()
            )
        },
    }
    if doc.body is not None:
        built["requestBody"] = to_request_body(doc.body)
    if is_guarded:
        scope = endpoint.scope
        built["security"] = [] if scope is None else [{"bearer": [scope]}]
    return built


def describe_operation(
    endpoint: AnyEndpoint, dataset: Dataset | None
) -> OperationDoc | None:
    if dataset is not None and endpoint.describe is not None:
        return endpoint.describe(dataset)
    return OperationDoc(
        parameters=endpoint.parameters, body=endpoint.body, responses=endpoint.responses
    )


def operation_id(endpoint: AnyEndpoint, dataset: Dataset | None) -> str:
    return endpoint.operation_of(schema_name(dataset.name) if dataset else "")


def tag_of(endpoint: AnyEndpoint) -> str:
    parts = endpoint.path.split("/")
    return parts[3] if parts[2] == "v1" else parts[2]


def path_parameters(
    endpoint: AnyEndpoint, dataset: Dataset | None, doc: OperationDoc
) -> Iterator[Schema]:
    """Yield the variables of a path that its endpoint does not describe itself."""
    declared = {
        parameter["name"]
        for parameter in doc.parameters
        if parameter.get("in") == "path"
    }
    declared |= {"dataset", "key"} if dataset is not None else set()
    for name in VARIABLE.findall(endpoint.path):
        if name not in declared:
            schema = {"type": "string"}
            yield {"name": name, "in": "path", "required": True, "schema": schema}


def responses(
    endpoint: AnyEndpoint, doc: OperationDoc, *, is_guarded: bool
) -> Mapping[int, Schema]:
    declared = doc.responses or {200: {"description": endpoint.summary, "content": {}}}
    problems = {
        status: {"$ref": f"#/components/responses/{response_name(status)}"}
        for status in statuses(endpoint, doc, is_guarded=is_guarded)
    }
    return problems | {
        status: to_response(response) for status, response in declared.items()
    }


def statuses(
    endpoint: AnyEndpoint, doc: OperationDoc, *, is_guarded: bool
) -> Iterator[int]:
    """Yield the statuses of the errors that a request may get."""
    yield from (400, 405, 414, 421, 431, 500, 503, 504)
    if endpoint.scope is not None:
        yield 429
        if is_guarded:
            yield from (401, 403)
    if VARIABLE.search(endpoint.path.replace("{dataset}", "")):
        yield 404
    if doc.body is not None:
        yield from (408, 413, 415, 422)
    names = {parameter["name"] for parameter in doc.parameters}
    if "{dataset}" in endpoint.path:
        yield 410
    if "If-Match" in names:
        yield 412


def to_request_body(body: Schema) -> Schema:
    if "content" in body:
        return body
    return {"required": True, "content": {"application/json": {"schema": body}}}


def to_response(response: Schema) -> Schema:
    if response.keys() & RESPONSE_KEYS or response.keys() == {"description"}:
        return response
    return {
        "description": response.get("description", "The requested data."),
        "content": {"application/json": {"schema": response}},
    }


def all_schemas(settings: Settings) -> Schema:
    dataset_schemas = chain.from_iterable(
        record_schemas(dataset, schema_name(dataset.name))
        for dataset in settings.datasets.values()
    )
    return {
        **dict(dataset_schemas),
        **record_shapes.SCHEMAS,
        **dataset_shapes.SCHEMAS,
        **schedule_shapes.SCHEMAS,
        **dict(filter_schemas()),
        "Problem": PROBLEM,
    }


def components(settings: Settings, schemas: Schema) -> Mapping[str, Mapping[str, Any]]:
    built: dict[str, Any] = {
        "schemas": schemas,
        "headers": shapes.HEADERS,
        "responses": {
            response_name(status): problem_response(status)
            for status in sorted({status for status, _ in TITLES.values()})
        },
    }
    if settings.auth is not None:
        scheme = {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
        built["securitySchemes"] = {"bearer": scheme}
    return built


def response_name(status: int) -> str:
    return "".join(re.findall(r"\w+", HTTPStatus(status).phrase.title()))


def problem_response(status: int) -> Schema:
    description = "; ".join(
        f"{title} (`{code}`)"
        for code, (other, title) in TITLES.items()
        if other == status
    )
    headers = PROBLEM_HEADERS.get(status)
    return {
        "description": f"{description}.",
        "content": {MEDIA_TYPE: {"schema": ref("Problem")}},
        **({} if headers is None else {"headers": headers}),
    }


RETRY_AFTER = {"Retry-After": shapes.header("RetryAfter")}
PROBLEM_HEADERS = {
    405: {"Allow": shapes.header("Allow")},
    # with it the current version can be read
    410: {"X-Consistency-Token": shapes.header("Token")},
    412: {"X-Consistency-Token": shapes.header("Token")},
    429: RETRY_AFTER,
    503: RETRY_AFTER,
}
PROBLEM: Schema = {
    "type": "object",
    "description": "An error in the format of RFC 9457.",
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
            "description": "With `position-gone`: the position to follow changes from.",
        },
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "pointer": {
                        "type": "string",
                        "description": (
                            "`?name` is a query parameter, `/name` a location in the "
                            "body, `#Name` a header, `{name}` a part of the path."
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
