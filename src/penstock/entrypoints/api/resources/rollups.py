"""What happened per minute: requests, latency, records and tokens, in buckets."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.formats import format_instant, parse_instant
from penstock.domain.rollups import (
    MAX_BUCKETS,
    SERIES,
    Subject,
    SubjectKind,
    last_window,
    latency_quantile,
    window_of,
)
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.openapi.schemas import NamedSchema, Schema
from penstock.entrypoints.api.openapi.shapes import object_schema, response_object
from penstock.entrypoints.api.openapi.work_shapes import (
    COUNT,
    INSTANT,
    TEXT_OR_NONE,
    error_response,
    query_parameter,
)
from penstock.entrypoints.api.params.query_params import QueryParams
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.responses import NO_STORE, json_response
from penstock.errors import BadRequest, FieldError, NotFound

DEFAULT_BUCKETS = 60
DEFAULT_LENGTH = timedelta(hours=1)
# a longer time has been removed by every sensible retention
MAX_LENGTH = timedelta(days=366)
# before and after these, sums with times overflow
MIN_TIME = datetime(1971, 1, 1, tzinfo=UTC)
MAX_TIME = datetime(9000, 1, 1, tzinfo=UTC)
QUANTILES = {"p50": 0.5, "p95": 0.95}
COUNTS: Schema = {"type": "array", "items": COUNT, "maxItems": MAX_BUCKETS}
SECONDS_OR_NONE: Schema = {
    "type": "array",
    "items": {"type": ["number", "null"], "minimum": 0},
    "maxItems": MAX_BUCKETS,
}
RESPONSES: Mapping[int, Schema] = {
    200: response_object(
        "The series of the dataset or budget.",
        NamedSchema(
            "Rollups",
            object_schema(
                {
                    "dataset": TEXT_OR_NONE,
                    "budget": TEXT_OR_NONE,
                    "from": INSTANT,
                    "until": INSTANT,
                    "bucket_seconds": {"type": "number", "exclusiveMinimum": 0},
                    "series": {
                        "type": "object",
                        "description": "For each series the sum of each bucket.",
                        "additionalProperties": COUNTS,
                    },
                    "latency_seconds": {
                        "type": "object",
                        "description": "Estimated from the histogram of a dataset; "
                        "null without a request.",
                        "additionalProperties": SECONDS_OR_NONE,
                    },
                }
            ),
        ),
    ),
    404: error_response("No such dataset or budget is declared."),
}
PARAMETERS: Sequence[Schema] = (
    query_parameter("dataset", "Of this dataset; or `budget`.", {"type": "string"}),
    query_parameter("budget", "Of this budget; or `dataset`.", {"type": "string"}),
    query_parameter("from", "The begin; by default an hour before `until`.", INSTANT),
    query_parameter("until", "The end; by default now.", INSTANT),
    query_parameter(
        "buckets",
        "Into how many parts the time is divided at most; each has equally many "
        "minutes, and the last one may be shorter.",
        {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_BUCKETS,
            "default": DEFAULT_BUCKETS,
        },
    ),
)


class RollupRequest(NamedTuple):
    subject: Subject
    since: datetime | None
    until: datetime | None
    buckets: int


def parse_request(api: AppContext, head: RequestHead) -> RollupRequest:
    params = QueryParams(head, "dataset", "budget", "from", "until", "buckets")
    subject = read_subject(params)
    since, until = read_time(params, "from"), read_time(params, "until")
    buckets = params.integer("buckets", minimum=1, maximum=MAX_BUCKETS)
    if since is not None and until is not None:
        check_length(params, since, until)
    params.finish()
    match subject.kind:
        case SubjectKind.DATASET:
            api.dataset(subject.name)
        case SubjectKind.BUDGET:
            if subject.name not in api.penstock.budgets:
                raise NotFound(f"there is no budget {subject.name[:80]!r}")
    return RollupRequest(subject, since, until, buckets or DEFAULT_BUCKETS)


def read_subject(params: QueryParams) -> Subject:
    dataset, budget = params.text("dataset"), params.text("budget")
    if (dataset is None) is (budget is None):
        params.add_error("dataset", "choice", "give either a dataset or a budget")
    if budget is None:
        return Subject(SubjectKind.DATASET, dataset or "")
    return Subject(SubjectKind.BUDGET, budget)


def read_time(params: QueryParams, name: str) -> datetime | None:
    text = params.text(name)
    if text is None:
        return None
    at = parse_instant(text)
    if at is None or not MIN_TIME <= at <= MAX_TIME:
        params.add_error(name, "type", "must be a time such as 2026-01-31T12:00:00Z")
        return None
    return at


def check_length(params: QueryParams, since: datetime, until: datetime) -> None:
    if not timedelta() < until - since <= MAX_LENGTH:
        params.add_error(
            "until", "range", f"must be after `from`, by {MAX_LENGTH.days} days at most"
        )


async def show_rollups(
    api: AppContext, request: Request, requested: RollupRequest
) -> Response:
    del request
    document = await api.in_thread(partial(read_rollups, api, requested))
    return json_response(document, headers=NO_STORE)


def read_rollups(api: AppContext, requested: RollupRequest) -> Mapping[str, Any]:
    subject, since, until, buckets = requested
    stores = api.penstock.stores
    if until is None:
        until = stores.jobs.now()
        if since is not None and not timedelta() < until - since <= MAX_LENGTH:
            raise BadRequest(
                FieldError(
                    pointer="?from",
                    code="range",
                    detail=f"must be in the last {MAX_LENGTH.days} days",
                )
            )
    window = (
        last_window(until, DEFAULT_LENGTH, buckets=buckets)
        if since is None
        else window_of(since, until, buckets=buckets)
    )
    series = stores.rollups.read(subject, window)
    is_dataset = subject.kind is SubjectKind.DATASET
    return {
        "dataset": subject.name if is_dataset else None,
        "budget": None if is_dataset else subject.name,
        "from": format_instant(window.since),
        "until": format_instant(window.until),
        "bucket_seconds": window.bucket_length.total_seconds(),
        "series": {name: series[name] for name in SERIES[subject.kind]},
        "latency_seconds": describe_latency(series, window.buckets)
        if is_dataset
        else {},
    }


def describe_latency(
    series: Mapping[str, Sequence[int]], buckets: int
) -> Mapping[str, Sequence[float | None]]:
    return {
        name: [
            None if found is None else round(found.total_seconds(), 4)
            for found in (
                latency_quantile(series, bucket, share) for bucket in range(buckets)
            )
        ]
        for name, share in QUANTILES.items()
    }


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/api/v1/rollups",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="Requests, latency, records or tokens over time",
            parse=parse_request,
            handle=show_rollups,
            parameters=PARAMETERS,
            responses=RESPONSES,
        )
    ]
