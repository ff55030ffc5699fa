"""Workers, and how many of them there is work for."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.formats import format_instant
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.openapi.schemas import NamedSchema, Schema
from penstock.entrypoints.api.openapi.shapes import object_schema, response_object
from penstock.entrypoints.api.openapi.work_shapes import (
    COUNT,
    INSTANT,
    INSTANT_OR_NONE,
    TEXT_OR_NONE,
    query_parameter,
)
from penstock.entrypoints.api.params.query_params import QueryParams
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.responses import NO_STORE, json_response
from penstock.entrypoints.worker_documents import (
    DEFAULT_THREADS,
    scaling_document,
    worker_document,
)

MAX_THREADS = 64
COUNT_OR_NONE: Schema = {"type": ["integer", "null"], "minimum": 0}
SECONDS: Schema = {"type": "number", "minimum": 0}
TEXTS: Schema = {"type": "array", "items": {"type": "string"}}
WORKER_SCHEMA: Schema = NamedSchema(
    "Worker",
    object_schema(
        {
            "id": {"type": "string"},
            "region": TEXT_OR_NONE,
            "host": TEXT_OR_NONE,
            "pid": COUNT_OR_NONE,
            "version": TEXT_OR_NONE,
            "threads": COUNT_OR_NONE,
            "jobs": COUNT,
            "started_at": INSTANT,
            "last_seen_at": INSTANT_OR_NONE,
            "last_claim_at": INSTANT_OR_NONE,
            "datasets": TEXTS,
        }
    ),
)
WORKERS_RESPONSES: Mapping[int, Schema] = {
    200: response_object(
        "The live workers.",
        NamedSchema(
            "WorkerList",
            object_schema({"items": {"type": "array", "items": WORKER_SCHEMA}}),
        ),
    )
}
DEMAND: Mapping[str, Schema] = {
    "due_jobs": COUNT,
    "oldest_due_seconds": SECONDS,
    "leased_jobs": COUNT,
    "useful_jobs": COUNT,
    "useful_workers": COUNT,
}
REGION_SCHEMA: Schema = NamedSchema(
    "RegionDemand",
    object_schema(
        {"region": TEXT_OR_NONE, **DEMAND, "limited_by": TEXTS, "closed": TEXTS}
    ),
)
SCALING_RESPONSES: Mapping[int, Schema] = {
    200: response_object(
        "The demand for workers.",
        NamedSchema(
            "Scaling",
            object_schema(
                {**DEMAND, "regions": {"type": "array", "items": REGION_SCHEMA}}
            ),
        ),
    )
}
SCALING_PARAMETERS: Sequence[Schema] = (
    query_parameter("region", "Only of this region.", {"type": "string"}),
    query_parameter(
        "threads",
        "The threads of a worker, to count useful workers.",
        {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_THREADS,
            "default": DEFAULT_THREADS,
        },
    ),
)


class ScalingQuery(NamedTuple):
    region: str | None
    threads: int


def parse_workers(api: AppContext, head: RequestHead) -> None:
    del api
    QueryParams(head).finish()


async def list_workers(api: AppContext, request: Request, query: None) -> Response:
    del request, query
    workers = await api.in_thread(api.penstock.stores.workers.live)
    items = [with_texts(worker_document(worker)) for worker in workers]
    return json_response({"items": items}, headers=NO_STORE)


def with_texts(document: Mapping[str, object]) -> Mapping[str, Any]:
    """Format the times of a document."""
    return {
        name: format_instant(value) if isinstance(value, datetime) else value
        for name, value in document.items()
    }


def parse_scaling(api: AppContext, head: RequestHead) -> ScalingQuery:
    del api
    query = QueryParams(head, "region", "threads")
    threads = query.integer("threads", minimum=1, maximum=MAX_THREADS)
    query.finish()
    return ScalingQuery(query.text("region"), threads or DEFAULT_THREADS)


async def show_scaling(
    api: AppContext, request: Request, query: ScalingQuery
) -> Response:
    del request
    document = await api.in_thread(partial(describe_scaling, api, query))
    return json_response(document, headers=NO_STORE)


def describe_scaling(api: AppContext, query: ScalingQuery) -> Mapping[str, object]:
    demands = [
        demand
        for demand in api.penstock.demand()
        if query.region is None or demand.region == query.region
    ]
    return scaling_document(demands, threads=query.threads)


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/api/v1/workers",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="List the live workers, their jobs and when they last claimed one",
            parse=parse_workers,
            handle=list_workers,
            responses=WORKERS_RESPONSES,
        ),
        Endpoint(
            method="GET",
            path="/api/v1/scaling",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="Show how many workers there is work for, within the budgets",
            parse=parse_scaling,
            handle=show_scaling,
            parameters=SCALING_PARAMETERS,
            responses=SCALING_RESPONSES,
        ),
    ]
