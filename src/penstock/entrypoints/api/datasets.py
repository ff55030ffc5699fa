"""What is served: the datasets, their fields, and how fresh they are."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.access import Scope
from penstock.domain.dataset import Dataset, Field
from penstock.domain.queries.parameters import (
    Reading,
    only,
    read_limit,
    refuse_all,
    whole,
)
from penstock.domain.queries.query import filterable
from penstock.domain.text import format_instant
from penstock.entrypoints.api.answers import Answer, Asked
from penstock.entrypoints.api.dataset_shapes import (
    LONGEST_WAIT,
    MOST_CHANGES,
    described_changes,
    described_dataset,
)
from penstock.entrypoints.api.endpoints import Endpoint, Lane
from penstock.entrypoints.api.schemas import ref
from penstock.entrypoints.api.service import Api
from penstock.ports.serving import Change, State

encode = msgspec.json.Encoder().encode


async def list_datasets(api: Api, request: Request) -> Response:
    refuse_all(request.query_params.multi_items())
    states = await api.in_thread(api.served.reads.states)
    items = [
        {"name": name, **freshness(states.get(name))}
        for name in sorted(api.penstock.settings.datasets)
    ]
    return json_response({"items": items})


def get_dataset(api: Api, asked: Asked) -> Answer:
    dataset = api.dataset(asked.parts["dataset"])
    refuse_all(asked.query)
    state = api.served.reads.states().get(dataset.name)
    return Answer(body=encode({**described(dataset), **freshness(state)}))


def described(dataset: Dataset) -> Mapping[str, Any]:
    return {
        "name": dataset.name,
        "key": list(dataset.key),
        "fields": [described_field(each) for each in dataset.fields],
        "filter": list(filterable(dataset)),
        "search": list(dataset.search),
        "geo": None if dataset.geo is None else list(dataset.geo),
    }


def described_field(field: Field) -> Mapping[str, Any]:
    return {
        "name": field.name,
        "type": field.type,
        "required": field.required,
        "local": field.local,
    }


def freshness(state: State | None) -> Mapping[str, Any]:
    if state is None:
        return {"generation": 0, "change_seq": 0, "watermark": None}
    return {
        "generation": state.generation,
        "change_seq": state.change_seq,
        "watermark": None
        if state.watermark is None
        else format_instant(state.watermark),
    }


async def list_changes(api: Api, request: Request) -> Response:
    """Tell what changed; wait for it where a client asks to."""
    dataset = api.dataset(request.path_params["dataset"])
    after, limit, wait = read_changes(dataset, request.query_params.multi_items())
    find = partial(api.served.reads.changes, dataset, after=after, limit=limit)
    found = await api.in_thread(find)
    if not found and wait:
        await api.watch.beyond(dataset.name, after, seconds=wait)
        found = await api.in_thread(find)
    last = found[-1].seq if found else after
    document = {
        "items": [told(each) for each in found],
        "after": last,
        "has_more": len(found) == limit,
    }
    return json_response(document, headers={"cache-control": "no-store"})


def read_changes(
    dataset: Dataset, given: Sequence[tuple[str, str]]
) -> tuple[int, int, int]:
    reading = Reading(dataset)
    own = only(reading, given, {"after", "limit", "wait"})
    after = whole(own.get("after", "0"))
    if after is None or after < 0:
        reading.flaw("after", "range", "must be the number of a change, or 0")
    wait = whole(own.get("wait", "0"))
    if wait is None or not 0 <= wait <= LONGEST_WAIT:
        reading.flaw("wait", "range", f"must be 0 to {LONGEST_WAIT} seconds")
    limit = read_limit(reading, own.get("limit"), most=MOST_CHANGES)
    reading.finish()
    return after or 0, limit, wait or 0


def told(change: Change) -> Mapping[str, Any]:
    return {
        "seq": change.seq,
        "kind": change.kind,
        "key": list(change.key),
        "import_id": change.import_id,
        "at": format_instant(change.at),
    }


def json_response(
    document: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(
        encode(document),
        status_code=status,
        media_type="application/json",
        headers=dict(headers or {}),
    )


def endpoints() -> Sequence[Endpoint]:
    return [
        Endpoint(
            method="GET",
            path="/api/v1/datasets",
            scope=Scope.READ,
            lane=Lane.READS,
            summary="List datasets",
            handle=list_datasets,
            answers={200: ref("DatasetList")},
        ),
        Endpoint(
            method="GET",
            path="/api/v1/datasets/{dataset}",
            scope=Scope.READ,
            lane=Lane.READS,
            summary="Describe a dataset",
            read=get_dataset,
            operation="describe{}",
            describe=described_dataset,
        ),
        Endpoint(
            method="GET",
            path="/api/v1/datasets/{dataset}/changes",
            scope=Scope.READ,
            # who waits for news must not keep others waiting
            lane=Lane.FEEDS,
            summary="Tell what changed, in the order of commits",
            handle=list_changes,
            describe=described_changes,
        ),
    ]
