"""Budgets: how much of each allowance is left, and opening a closed one."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.access import Scope
from penstock.domain.budget import Budget
from penstock.entrypoints.api.bodies import refuse_body
from penstock.entrypoints.api.budget_shapes import BUDGET, BUDGETS
from penstock.entrypoints.api.endpoints import Endpoint, Lane
from penstock.entrypoints.api.parameters import Parameters
from penstock.entrypoints.api.responses import NEVER, json_response
from penstock.entrypoints.api.service import Api
from penstock.errors import NotFound


async def list_budgets(api: Api, request: Request) -> Response:
    Parameters(request).finish()
    return json_response(
        {"items": await api.in_thread(partial(all_told, api))}, headers=NEVER
    )


def all_told(api: Api) -> Sequence[Mapping[str, Any]]:
    known = api.penstock.budgets
    return [told(api, known[name]) for name in sorted(known)]


def told(api: Api, budget: Budget) -> Mapping[str, Any]:
    state = api.penstock.stores.budgets.state(budget)
    reason = state.stopped or state.closed_reason
    closed_for = state.closed_for
    is_open = not state.stopped and not closed_for
    return {
        "name": budget.name,
        "state": "stopped" if state.stopped else "open" if is_open else "closed",
        "limits": [
            {"rate": str(each.limit), "remaining": each.remaining}
            for each in state.limits
        ],
        "taken": state.taken,
        "closed_seconds": None
        if closed_for is None
        else round(closed_for.total_seconds(), 1),
        "reason": None if reason is None else api.penstock.settings.redact(reason),
    }


async def open_budget(api: Api, request: Request) -> Response:
    """Open a budget that the provider or an error has closed."""
    Parameters(request).finish()
    await refuse_body(request)
    work = partial(opened, api, request.path_params["name"])
    return json_response(await api.in_thread(work), headers=NEVER)


def opened(api: Api, name: str) -> Mapping[str, Any]:
    known = api.penstock.budgets
    if name not in known:
        others = ", ".join(sorted(known)) or "none"
        raise NotFound(f"there is no budget {name[:80]!r}; there are: {others}")
    api.penstock.stores.budgets.open(name)
    return told(api, known[name])


def endpoints() -> Sequence[Endpoint]:
    return [
        Endpoint(
            method="GET",
            path="/api/v1/budgets",
            scope=Scope.READ,
            lane=Lane.READS,
            summary="List budgets with what is left of them",
            handle=list_budgets,
            answers=BUDGETS,
        ),
        Endpoint(
            method="POST",
            path="/api/v1/budgets/{name}/open",
            scope=Scope.OPERATE,
            lane=Lane.WRITES,
            summary="Open a budget that was closed or stopped",
            handle=open_budget,
            answers=BUDGET,
        ),
    ]
