"""The datasets: their fields, freshness, sizes and changes."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.dataset import Dataset
from penstock.domain.formats import format_instant
from penstock.domain.history import HISTORY_START, HistoryPosition, parse_position
from penstock.domain.search.filter_params import (
    ParamReader,
    parse_int,
    read_limit,
    read_own_params,
    refuse_all_params,
)
from penstock.entrypoints.api.cache.response_cache import ReadResult
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.dataset_description import dataset_document
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.openapi.dataset_shapes import (
    MAX_CHANGES,
    MAX_WAIT,
    describe_changes,
    describe_dataset,
)
from penstock.entrypoints.api.openapi.schemas import ref
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.responses import json_response, with_digits
from penstock.entrypoints.api.routing import CONSISTENCY_TOKEN, consistency_token
from penstock.errors import DatasetGone, PositionGone, StoreUnavailable
from penstock.ports.record_access import (
    Change,
    Count,
    CountKind,
    DatasetVersion,
    note_observed,
)

# reads of the feed, whose result may not match the state that is read after it
MAX_ATTEMPTS = 3

encode = msgspec.json.Encoder().encode


def parse_list(api: AppContext, head: RequestHead) -> None:
    del api
    refuse_all_params(head.query)


async def list_datasets(api: AppContext, request: Request, query: None) -> Response:
    del request, query
    items = await api.in_thread(partial(summarize_datasets, api))
    return json_response({"items": items})


def summarize_datasets(api: AppContext) -> Sequence[Mapping[str, Any]]:
    states = api.served.reads.dataset_versions()
    summaries = []
    for name, dataset in sorted(api.penstock.settings.datasets.items()):
        # one that was dropped, even meanwhile, must not hide the others
        with suppress(DatasetGone):
            refuse_dropped(dataset, states.get(name))
            summary = {**freshness(states.get(name)), **size(api, dataset, states)}
            summaries.append({"name": name, **summary})
    return summaries


def refuse_dropped(dataset: Dataset, state: DatasetVersion | None) -> None:
    if state is not None and state.is_dropped:
        raise DatasetGone(dataset.name)


def parse_get(api: AppContext, head: RequestHead) -> Dataset:
    dataset = api.dataset(head.parts["dataset"])
    refuse_all_params(head.query)
    return dataset


def get_dataset(api: AppContext, dataset: Dataset) -> ReadResult:
    states = api.served.reads.dataset_versions()
    refuse_dropped(dataset, states.get(dataset.name))
    if dataset.name in states:
        note_observed(states[dataset.name])
    document = {
        **dataset_document(dataset),
        **freshness(states.get(dataset.name)),
        **size(api, dataset, states),
    }
    return ReadResult(body=encode(document))


def freshness(state: DatasetVersion | None) -> Mapping[str, Any]:
    if state is None:
        return {"generation": 0, "change_seq": 0, "watermark": None}
    return {
        "generation": state.generation,
        "change_seq": state.change_seq,
        "watermark": None
        if state.watermark is None
        else format_instant(state.watermark),
    }


def size(
    api: AppContext, dataset: Dataset, states: Mapping[str, DatasetVersion]
) -> Mapping[str, Any]:
    state = states.get(dataset.name)
    # it has no tables yet
    count = (
        Count(0, CountKind.EXACT)
        if state is None
        else api.row_counts.of(dataset, state)
    )
    return {"count": count and {"value": count.value, "kind": count.kind}}


class ChangesRequest(NamedTuple):
    dataset: Dataset
    after: HistoryPosition
    limit: int
    # seconds to wait for the first change
    wait: int


async def list_changes(
    api: AppContext, request: Request, requested: ChangesRequest
) -> Response:
    """List changes; wait for the first one if the client requests it."""
    del request
    dataset, after, limit, wait = requested
    refuse_dropped(dataset, await api.dataset_versions.state(dataset.name))
    changes, end = await read_changes_after(api, dataset, after, limit=limit)
    if not changes and wait:
        await api.dataset_versions.wait_for_change(
            dataset.name, after.seq, seconds=wait
        )
        refuse_dropped(dataset, await api.dataset_versions.state(dataset.name))
        changes, end = await read_changes_after(api, dataset, end, limit=limit)
    headers = {
        "cache-control": "no-store",
        CONSISTENCY_TOKEN.decode(): consistency_token(api, dataset, end),
    }
    document = {
        "items": [describe_change(change) for change in changes],
        "after": end.seq,
        "next": str(end),
        "has_more": len(changes) == limit,
    }
    return json_response(document, headers=headers)


async def read_changes_after(
    api: AppContext, dataset: Dataset, after: HistoryPosition, *, limit: int
) -> tuple[Sequence[Change], HistoryPosition]:
    """Return changes and the position of the last one, in the current history.

    Raises `PositionGone` if `after` is not in it, or the changes after it are pruned.
    """
    gone = PositionGone(dataset.name, str(after))
    changes: Sequence[Change] = ()
    for _ in range(MAX_ATTEMPTS):
        changes = await api.feeds.read(dataset, after=after.seq, limit=limit)
        # read after the changes, so that it is of the same history
        state = await api.dataset_versions.state_after(dataset.name, after)
        end = max(state.change_seq, 0)
        if end < after.seq or (changes and changes[0].seq > after.seq + 1):
            raise gone
        if changes:
            # the client may read a changed record here before the next poll
            with suppress(PositionGone):
                await api.dataset_versions.state_after(
                    dataset.name, changes[-1].position
                )
                return changes, changes[-1].position
        elif end == after.seq:
            return [], state.position if end else HISTORY_START
    if changes:
        raise StoreUnavailable("the database is being restored to an older state")
    # there are later changes, which the feed no longer has
    raise gone


def parse_changes(api: AppContext, head: RequestHead) -> ChangesRequest:
    dataset = api.dataset(head.parts["dataset"])
    reader = ParamReader(dataset)
    values = read_own_params(reader, head.query, {"after", "limit", "wait"})
    after = parse_position(values.get("after", "0"))
    if after is None:
        detail = "must be 0, the number of a change, or 'next' of a response"
        reader.flaw("after", "range", detail)
    wait = parse_int(values.get("wait", "0"))
    if wait is None or not 0 <= wait <= MAX_WAIT:
        reader.flaw("wait", "range", f"must be 0 to {MAX_WAIT} seconds")
    limit = read_limit(reader, values.get("limit"), most=MAX_CHANGES)
    reader.finish()
    return ChangesRequest(dataset, after or HISTORY_START, limit, wait or 0)


def describe_change(change: Change) -> Mapping[str, Any]:
    return {
        "seq": change.seq,
        "kind": change.kind,
        "key": [*map(with_digits, change.key)],
        "import_id": change.import_id,
        "at": format_instant(change.at),
    }


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/api/v1/datasets",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="List datasets",
            parse=parse_list,
            handle=list_datasets,
            responses={200: ref("DatasetList")},
        ),
        Endpoint(
            method="GET",
            path="/api/v1/datasets/{dataset}",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="Describe a dataset",
            parse=parse_get,
            read=get_dataset,
            operation="describe{}",
            describe=describe_dataset,
        ),
        Endpoint(
            method="GET",
            path="/api/v1/datasets/{dataset}/changes",
            scope=AccessScope.READ,
            # clients that wait for changes must not delay other requests
            lane=Lane.FEEDS,
            summary="List changes in the order of their commits",
            parse=parse_changes,
            handle=list_changes,
            describe=describe_changes,
        ),
    ]
