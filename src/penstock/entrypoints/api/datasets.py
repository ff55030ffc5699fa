"""What is served: the datasets, their fields, how fresh and how large they are."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.access import Scope
from penstock.domain.dataset import Dataset
from penstock.domain.history import START, Position, parse_position
from penstock.domain.queries.parameters import (
    Reading,
    only,
    read_limit,
    refuse_all,
    whole,
)
from penstock.domain.text import format_instant
from penstock.entrypoints.api.answers import Answer, Asked
from penstock.entrypoints.api.dataset_shapes import (
    LONGEST_WAIT,
    MOST_CHANGES,
    described_changes,
    described_dataset,
)
from penstock.entrypoints.api.declared import described
from penstock.entrypoints.api.dispatch import TOKEN, token_for
from penstock.entrypoints.api.endpoints import Endpoint, Lane
from penstock.entrypoints.api.responses import json_response
from penstock.entrypoints.api.schemas import ref
from penstock.entrypoints.api.service import Api
from penstock.errors import PositionGone, StoreUnavailable
from penstock.ports.serving import Change, Count, CountKind, State, note_observed

# how often changes are read again that came between two questions
ATTEMPTS = 3

encode = msgspec.json.Encoder().encode


async def list_datasets(api: Api, request: Request) -> Response:
    refuse_all(request.query_params.multi_items())
    items = await api.in_thread(partial(summaries, api))
    return json_response({"items": items})


def summaries(api: Api) -> Sequence[Mapping[str, Any]]:
    states = api.served.reads.states()
    return [
        {"name": name, **freshness(states.get(name)), **size(api, dataset, states)}
        for name, dataset in sorted(api.penstock.settings.datasets.items())
    ]


def get_dataset(api: Api, asked: Asked) -> Answer:
    dataset = api.dataset(asked.parts["dataset"])
    refuse_all(asked.query)
    states = api.served.reads.states()
    if dataset.name in states:
        note_observed(states[dataset.name])
    document = {
        **described(dataset),
        **freshness(states.get(dataset.name)),
        **size(api, dataset, states),
    }
    return Answer(body=encode(document))


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


def size(api: Api, dataset: Dataset, states: Mapping[str, State]) -> Mapping[str, Any]:
    state = states.get(dataset.name)
    # without tables there is nothing to count
    count = Count(0, CountKind.EXACT) if state is None else api.sizes.of(dataset, state)
    return {"count": count and {"value": count.value, "kind": count.kind}}


async def list_changes(api: Api, request: Request) -> Response:
    """Tell what changed; wait for it where a client asks to."""
    dataset = api.dataset(request.path_params["dataset"])
    after, limit, wait = read_changes(dataset, request.query_params.multi_items())
    found, last = await changes_after(api, dataset, after, limit=limit)
    if not found and wait:
        await api.watch.beyond(dataset.name, after.seq, seconds=wait)
        found, last = await changes_after(api, dataset, last, limit=limit)
    headers = {
        "cache-control": "no-store",
        TOKEN.decode(): token_for(api, dataset, last),
    }
    document = {
        "items": [told(each) for each in found],
        "after": last.seq,
        "next": str(last),
        "has_more": len(found) == limit,
    }
    return json_response(document, headers=headers)


async def changes_after(
    api: Api, dataset: Dataset, after: Position, *, limit: int
) -> tuple[Sequence[Change], Position]:
    """Return what changed, and where that ends, in the history that there is now.

    Raises `PositionGone` where it has no such beginning, or not any more.
    """
    gone = PositionGone(dataset.name, str(after))
    found: Sequence[Change] = ()
    for _ in range(ATTEMPTS):
        found = await api.feeds.read(dataset, after=after.seq, limit=limit)
        # asked for after the read, so that it is of the same history
        state = await api.watch.state_after(dataset.name, after)
        end = max(state.change_seq, 0)
        if end < after.seq or (found and found[0].seq > after.seq + 1):
            raise gone
        if found:
            # who hears of a change may ask here for the record before the next look
            with suppress(PositionGone):
                await api.watch.state_after(dataset.name, found[-1].position)
                return found, found[-1].position
        elif end == after.seq:
            return [], state.position if end else START
    if found:
        raise StoreUnavailable("the database goes back to an older state")
    # there are changes after it, and the feed does not have them any more
    raise gone


def read_changes(
    dataset: Dataset, given: Sequence[tuple[str, str]]
) -> tuple[Position, int, int]:
    reading = Reading(dataset)
    own = only(reading, given, {"after", "limit", "wait"})
    after = parse_position(own.get("after", "0"))
    if after is None:
        detail = "must be 0, the number of a change, or the 'next' of an answer"
        reading.flaw("after", "range", detail)
    wait = whole(own.get("wait", "0"))
    if wait is None or not 0 <= wait <= LONGEST_WAIT:
        reading.flaw("wait", "range", f"must be 0 to {LONGEST_WAIT} seconds")
    limit = read_limit(reading, own.get("limit"), most=MOST_CHANGES)
    reading.finish()
    return after or START, limit, wait or 0


def told(change: Change) -> Mapping[str, Any]:
    return {
        "seq": change.seq,
        "kind": change.kind,
        "key": list(change.key),
        "import_id": change.import_id,
        "at": format_instant(change.at),
    }


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
