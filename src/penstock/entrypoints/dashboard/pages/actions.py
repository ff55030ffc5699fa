"""The actions of operators: who did what, and when."""

import re
from collections.abc import Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.resources.actions import ActionListRequest, parse_list
from penstock.entrypoints.dashboard.rendering import View, send_page

# subjects that have a page of their own
WITH_PAGE = re.compile(r"(imports|jobs|schedules)/([^/]+)")


async def show_actions(
    api: AppContext, request: Request, requested: ActionListRequest
) -> Response:
    return await send_page(api, request, partial(build, api, requested))


def build(api: AppContext, requested: ActionListRequest) -> View:
    stores, limit = api.penstock.stores, requested.limit
    found = stores.actions.recent(before=requested.before, limit=limit + 1)
    page = found[:limit]
    values = {
        "now": stores.jobs.now(),
        "rows": [
            {"at": each.at, "action": each.action, "link": link(each.action.subject)}
            for each in page
        ],
        "following": page[-1].id if len(found) > limit else None,
        "before": requested.before,
    }
    return View("actions.html", "What was done", "actions", values)


def link(subject: str) -> str | None:
    """Return the page of what an action was done to."""
    found = WITH_PAGE.match(subject)
    return None if found is None else f"/{found[1]}/{found[2]}"


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/actions",
            scope=AccessScope.OPERATE,
            lane=Lane.READS,
            summary="The dashboard's page of what operators have done",
            parse=parse_list,
            handle=show_actions,
            operation="showActions",
        )
    ]
