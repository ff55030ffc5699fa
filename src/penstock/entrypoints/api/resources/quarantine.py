"""Quarantine: count the bad rows of a dataset, try them again, or discard them."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.dataset import Dataset
from penstock.domain.pages import Reason
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane, OperationDoc
from penstock.entrypoints.api.openapi.schemas import NamedSchema, Schema
from penstock.entrypoints.api.openapi.shapes import object_schema, response_object
from penstock.entrypoints.api.openapi.work_shapes import (
    COUNT,
    ID,
    TEXT_OR_NONE,
    query_parameter,
)
from penstock.entrypoints.api.params.query_params import MAX_ID, QueryParams
from penstock.entrypoints.api.params.request_body import read_json, refuse_body
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.resources.jobs import whole_number
from penstock.entrypoints.api.resources.records import parse_dataset
from penstock.entrypoints.api.responses import NO_STORE, json_response
from penstock.errors import BadRequest, FieldError
from penstock.ports import ReasonCount, RejectionFilter

# seconds; a replay goes on without its client
REPLAY_TIMEOUT = 120.0
# rows that one request discards
MAX_DISCARDED = 2_000
MAX_BODY = 64 * 1024
DISCARD_FIELDS = ("ids", "reason", "field", "until")

REASON_COUNTS: Schema = {
    "type": "array",
    "items": NamedSchema(
        "BadRowsOfReason",
        object_schema(
            {"reason": {"enum": [*Reason]}, "field": TEXT_OR_NONE, "rows": COUNT}
        ),
    ),
}
OPEN_COUNTS: Schema = {
    "type": "array",
    "items": NamedSchema(
        "OpenBadRows",
        object_schema(
            {
                "reason": {"enum": [*Reason]},
                "field": TEXT_OR_NONE,
                "rows": COUNT,
                "until": {**ID, "description": "The greatest id among them."},
            }
        ),
    ),
}
UNTIL: Schema = {
    **ID,
    "description": "Leave out rows with a greater id, which came later.",
}
DISCARD_REQUEST: Schema = {
    "description": "Which open bad rows to discard.",
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "ids": {
                    "type": "array",
                    "items": ID,
                    "minItems": 1,
                    "maxItems": MAX_DISCARDED,
                }
            },
            "required": ["ids"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {
                "reason": {"enum": [*Reason]},
                "field": {
                    **TEXT_OR_NONE,
                    "description": "Null, or left out: rows that have no field.",
                },
                "until": UNTIL,
            },
            "required": ["reason"],
            "additionalProperties": False,
        },
    ],
}
DRY_RUN: Schema = query_parameter(
    "dry_run",
    "Store nothing, and return what a replay would do.",
    {"type": "boolean", "default": False},
)


class ReplayRequest(NamedTuple):
    dataset: Dataset
    dry_run: bool


async def count_open(api: AppContext, request: Request, dataset: Dataset) -> Response:
    """Count the open bad rows by reason and field."""
    del request
    found = await api.in_thread(
        partial(api.penstock.stores.records.open_reasons, dataset)
    )
    document = {
        "dataset": dataset.name,
        "rows": sum(each.rows for each in found),
        "reasons": [{**describe(each), "until": each.last_id} for each in found],
    }
    return json_response(document, headers=NO_STORE)


def describe(counted: ReasonCount) -> Mapping[str, Any]:
    return {
        "reason": counted.reason,
        "field": counted.field,
        "rows": counted.rows,
    }


def parse_replay(api: AppContext, head: RequestHead) -> ReplayRequest:
    dataset = api.dataset(head.parts["dataset"])
    params = QueryParams(head, "dry_run")
    dry_run = params.flag("dry_run")
    params.finish()
    return ReplayRequest(dataset, dry_run)


async def replay(
    api: AppContext, request: Request, requested: ReplayRequest
) -> Response:
    """Map the bad rows again, and store those that are valid now."""
    await refuse_body(request)
    work = partial(replay_rows, api, requested)
    with api.background.slot("replays", limit=1):
        document = await api.background.run(work, longest=REPLAY_TIMEOUT)
    return json_response(document, headers=NO_STORE)


def replay_rows(api: AppContext, requested: ReplayRequest) -> Mapping[str, Any]:
    penstock, dataset = api.penstock, requested.dataset
    source = penstock.source(dataset)
    result = penstock.replay(dataset, source, dry_run=requested.dry_run)
    return {
        "dry_run": requested.dry_run,
        "accepted": result.accepted,
        "superseded": result.superseded,
        "still_bad": result.still_bad,
        "reasons": [describe(each) for each in result.reasons],
    }


async def discard(api: AppContext, request: Request, dataset: Dataset) -> Response:
    """Resolve open bad rows as discarded; they are not stored."""
    chosen = parse_discard(await read_json(request, max_size=MAX_BODY))
    work = partial(
        api.penstock.stores.records.discard, dataset, chosen, limit=MAX_DISCARDED
    )
    discarded = await api.background.run(work)
    has_more = chosen.reason is not None and discarded == MAX_DISCARDED
    document = {"discarded": discarded, "has_more": has_more}
    return json_response(document, headers=NO_STORE)


def parse_discard(document: object) -> RejectionFilter:
    """Parse which rows to discard; raises all errors at once."""
    if not isinstance(document, dict):
        message = "must be an object with ids, or with a reason"
        raise BadRequest(FieldError(pointer="/", code="type", detail=message))
    by_id = "ids" in document
    allowed = {"ids"} if by_id else {"reason", "field", "until"}
    errors = [
        FieldError(pointer=f"/{name}", code="unknown", detail=hint_of(name))
        for name in document.keys() - allowed
    ]
    ids = parse_ids(document["ids"], errors) if by_id else ()
    reason, field = document.get("reason"), document.get("field")
    until = whole_number(document.get("until", MAX_ID))
    if not by_id and reason not in [*Reason]:
        message = f"must be one of {', '.join(Reason)}"
        errors.append(FieldError(pointer="/reason", code="choice", detail=message))
    if field is not None and not isinstance(field, str):
        message = "must be the name of a field, or null"
        errors.append(FieldError(pointer="/field", code="type", detail=message))
    if until is None or not 1 <= until <= MAX_ID:
        message = "must be the id of a bad row"
        errors.append(FieldError(pointer="/until", code="type", detail=message))
    if errors or until is None:
        raise BadRequest(*errors)
    return RejectionFilter(
        ids=ids, reason=None if by_id else Reason(str(reason)), field=field, until=until
    )


def hint_of(name: str) -> str:
    if name in DISCARD_FIELDS:
        return "send either ids, or a reason"
    return f"use {', '.join(DISCARD_FIELDS)}"


def parse_ids(value: object, errors: list[FieldError]) -> Sequence[int]:
    ids = [whole_number(each) for each in value] if isinstance(value, list) else []
    found = [each for each in ids if each is not None and 1 <= each <= MAX_ID]
    if not 0 < len(found) == len(ids) <= MAX_DISCARDED:
        message = f"must be a list of 1 to {MAX_DISCARDED:,} ids of bad rows"
        errors.append(FieldError(pointer="/ids", code="type", detail=message))
    return found


def describe_count(dataset: Dataset) -> OperationDoc:
    del dataset
    schema = NamedSchema(
        "OpenQuarantine",
        object_schema(
            {"dataset": {"type": "string"}, "rows": COUNT, "reasons": OPEN_COUNTS}
        ),
    )
    return OperationDoc(responses={200: response_object("The counts.", schema)})


def describe_replay(dataset: Dataset) -> OperationDoc:
    del dataset
    counts = dict.fromkeys(("accepted", "superseded", "still_bad"), COUNT)
    schema = object_schema(
        {"dry_run": {"type": "boolean"}, **counts, "reasons": REASON_COUNTS}
    )
    return OperationDoc(
        parameters=[DRY_RUN],
        responses={200: response_object("What became of them.", schema)},
    )


def describe_discard(dataset: Dataset) -> OperationDoc:
    del dataset
    schema = NamedSchema(
        "DiscardedRows",
        object_schema({"discarded": COUNT, "has_more": {"type": "boolean"}}),
    )
    return OperationDoc(
        body=DISCARD_REQUEST,
        responses={200: response_object("How many were discarded.", schema)},
    )


def endpoints() -> Sequence[AnyEndpoint]:
    one = "/api/v1/datasets/{dataset}/quarantine"
    return [
        Endpoint(
            method="GET",
            path=one,
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="Count the open bad rows by reason and field",
            parse=parse_dataset,
            handle=count_open,
            describe=describe_count,
            operation="count{}Quarantine",
        ),
        Endpoint(
            method="POST",
            path=f"{one}/replay",
            scope=AccessScope.OPERATE,
            lane=Lane.WRITES,
            summary="Try the bad rows again, and store those that are valid now",
            parse=parse_replay,
            handle=replay,
            describe=describe_replay,
            operation="replay{}Quarantine",
        ),
        Endpoint(
            method="POST",
            path=f"{one}/discard",
            scope=AccessScope.OPERATE,
            lane=Lane.WRITES,
            summary="Discard bad rows, up to 2,000 at a time",
            parse=parse_dataset,
            handle=discard,
            describe=describe_discard,
            operation="discard{}Quarantine",
        ),
    ]
