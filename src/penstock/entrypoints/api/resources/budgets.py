"""Budgets: how much of each is left, and opening a closed one."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.budget import Budget
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.openapi.schemas import NamedSchema, Schema
from penstock.entrypoints.api.openapi.shapes import object_schema, response_object
from penstock.entrypoints.api.openapi.work_shapes import (
    COUNT,
    NUMBER_OR_NONE,
    TEXT_OR_NONE,
)
from penstock.entrypoints.api.params.query_params import QueryParams
from penstock.entrypoints.api.params.request_body import refuse_body
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.responses import NO_STORE, json_response
from penstock.errors import NotFound

BUDGET_SCHEMA: Schema = NamedSchema(
    "Budget",
    object_schema(
        {
            "name": {"type": "string"},
            "state": {"enum": ["open", "closed", "stopped"]},
            "limits": {
                "type": "array",
                "items": NamedSchema(
                    "BudgetLimit",
                    object_schema({"rate": {"type": "string"}, "remaining": COUNT}),
                ),
            },
            "taken": COUNT,
            "closed_seconds": NUMBER_OR_NONE,
            "reason": TEXT_OR_NONE,
        }
    ),
)
LIST_RESPONSES: Mapping[int, Schema] = {
    200: response_object(
        "All budgets.",
        NamedSchema(
            "BudgetList",
            object_schema({"items": {"type": "array", "items": BUDGET_SCHEMA}}),
        ),
    )
}
OPEN_RESPONSES: Mapping[int, Schema] = {
    200: response_object("The budget, now open.", BUDGET_SCHEMA)
}


def parse_list(api: AppContext, head: RequestHead) -> None:
    del api
    QueryParams(head).finish()


async def list_budgets(api: AppContext, request: Request, query: None) -> Response:
    del request, query
    return json_response(
        {"items": await api.in_thread(partial(describe_budgets, api))}, headers=NO_STORE
    )


def describe_budgets(api: AppContext) -> Sequence[Mapping[str, Any]]:
    budgets = api.penstock.budgets
    return [describe_budget(api, budgets[name]) for name in sorted(budgets)]


def describe_budget(api: AppContext, budget: Budget) -> Mapping[str, Any]:
    state = api.penstock.stores.budgets.state(budget)
    reason = state.stopped or state.closed_reason
    closed_for = state.closed_for
    is_open = not state.stopped and not closed_for
    return {
        "name": budget.name,
        "state": "stopped" if state.stopped else "open" if is_open else "closed",
        "limits": [
            {"rate": str(limit.limit), "remaining": limit.remaining}
            for limit in state.limits
        ],
        "taken": state.taken,
        "closed_seconds": None
        if closed_for is None
        else round(closed_for.total_seconds(), 1),
        "reason": None if reason is None else api.penstock.settings.redact(reason),
    }


def parse_budget(api: AppContext, head: RequestHead) -> Budget:
    QueryParams(head).finish()
    budgets, name = api.penstock.budgets, head.parts["name"]
    if name not in budgets:
        names = ", ".join(sorted(budgets)) or "none"
        raise NotFound(f"there is no budget {name[:80]!r}; there are: {names}")
    return budgets[name]


async def open_budget(api: AppContext, request: Request, budget: Budget) -> Response:
    """Open a budget that the provider or an error has closed."""
    await refuse_body(request)
    work = partial(reopen_budget, api, budget)
    return json_response(await api.in_thread(work), headers=NO_STORE)


def reopen_budget(api: AppContext, budget: Budget) -> Mapping[str, Any]:
    api.penstock.stores.budgets.open(budget.name)
    return describe_budget(api, budget)


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/api/v1/budgets",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="List budgets and how much of them is left",
            parse=parse_list,
            handle=list_budgets,
            responses=LIST_RESPONSES,
        ),
        Endpoint(
            method="POST",
            path="/api/v1/budgets/{name}/open",
            scope=AccessScope.OPERATE,
            lane=Lane.WRITES,
            summary="Open a budget that was closed or stopped",
            parse=parse_budget,
            handle=open_budget,
            responses=OPEN_RESPONSES,
        ),
    ]
