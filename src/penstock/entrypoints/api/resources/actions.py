"""Actions: what operators have done, and who it was."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.actions import ActionId, ActionVia, StoredAction
from penstock.domain.auth_claims import AccessScope
from penstock.domain.formats import format_instant
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.openapi.schemas import NamedSchema, Schema
from penstock.entrypoints.api.openapi.shapes import object_schema, response_object
from penstock.entrypoints.api.openapi.work_shapes import (
    ID,
    INSTANT,
    list_schema,
    query_parameter,
)
from penstock.entrypoints.api.params.query_params import QueryParams
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.responses import page_response

DEFAULT_ACTIONS, MAX_ACTIONS = 50, 500
ACTION_SCHEMA: Schema = NamedSchema(
    "Action",
    object_schema(
        {
            "action_id": ID,
            "at": INSTANT,
            "actor": {"type": "string"},
            "name": {"type": "string"},
            "subject": {"type": "string"},
            "via": {"enum": [*ActionVia]},
        }
    ),
)
PARAMETERS: Sequence[Schema] = [
    query_parameter("before", "Only actions before this one: `page.next`.", ID),
    query_parameter(
        "limit",
        "The maximum number of actions on a page.",
        {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_ACTIONS,
            "default": DEFAULT_ACTIONS,
        },
    ),
]
RESPONSES: Mapping[int, Schema] = {
    200: response_object(
        "A page of actions, the newest first.",
        list_schema("ActionList", ACTION_SCHEMA, max_items=MAX_ACTIONS),
    )
}


class ActionListRequest(NamedTuple):
    before: ActionId | None
    limit: int


def parse_list(api: AppContext, head: RequestHead) -> ActionListRequest:
    del api
    params = QueryParams(head, "before", "limit")
    before = params.id("before")
    limit = params.integer("limit", minimum=1, maximum=MAX_ACTIONS) or DEFAULT_ACTIONS
    params.finish()
    return ActionListRequest(None if before is None else ActionId(before), limit)


async def list_actions(
    api: AppContext, request: Request, requested: ActionListRequest
) -> Response:
    limit = requested.limit
    recent = api.penstock.stores.actions.recent
    found = await api.in_thread(
        partial(recent, before=requested.before, limit=limit + 1)
    )
    page = found[:limit]
    last = page[-1].id if len(found) > limit else None
    items = [describe_action(each) for each in page]
    return page_response(request, items, following=("before", last), limit=limit)


def describe_action(stored: StoredAction) -> Mapping[str, Any]:
    action = stored.action
    return {
        "action_id": stored.id,
        "at": format_instant(stored.at),
        "actor": action.actor,
        "name": action.name,
        "subject": action.subject,
        "via": action.via,
    }


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/api/v1/actions",
            # who did what is for those who may do it
            scope=AccessScope.OPERATE,
            lane=Lane.READS,
            summary="List what operators have done, the newest first",
            parse=parse_list,
            handle=list_actions,
            parameters=PARAMETERS,
            responses=RESPONSES,
        ),
    ]
