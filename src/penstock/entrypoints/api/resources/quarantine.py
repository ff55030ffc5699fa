"""Quarantine: try the bad rows of a dataset again."""

from collections.abc import Mapping, Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.dataset import Dataset
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane, OperationDoc
from penstock.entrypoints.api.openapi.shapes import object_schema, response_object
from penstock.entrypoints.api.openapi.work_shapes import COUNT
from penstock.entrypoints.api.params.request_body import refuse_body
from penstock.entrypoints.api.resources.records import parse_dataset
from penstock.entrypoints.api.responses import NO_STORE, json_response

# seconds; a replay goes on without its client
REPLAY_TIMEOUT = 120.0


async def replay(api: AppContext, request: Request, dataset: Dataset) -> Response:
    """Map the bad rows again, and store those that are valid now."""
    await refuse_body(request)
    work = partial(replay_rows, api, dataset)
    with api.background.slot("replays", limit=1):
        document = await api.background.run(work, longest=REPLAY_TIMEOUT)
    return json_response(document, headers=NO_STORE)


def replay_rows(api: AppContext, dataset: Dataset) -> Mapping[str, int]:
    penstock = api.penstock
    result = penstock.replay(dataset, penstock.source(dataset))
    return {
        "accepted": result.accepted,
        "superseded": result.superseded,
        "still_bad": result.still_bad,
    }


def describe_replay(dataset: Dataset) -> OperationDoc:
    del dataset
    schema = object_schema(
        dict.fromkeys(("accepted", "superseded", "still_bad"), COUNT)
    )
    return OperationDoc(
        responses={200: response_object("What became of them.", schema)}
    )


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="POST",
            path="/api/v1/datasets/{dataset}/quarantine/replay",
            scope=AccessScope.OPERATE,
            lane=Lane.WRITES,
            summary="Try the bad rows again, and store those that are valid now",
            parse=parse_dataset,
            handle=replay,
            describe=describe_replay,
            operation="replay{}Quarantine",
        )
    ]
