"""Budgets and workers: what imports may use, and who runs them."""

from collections.abc import Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.resources.budgets import describe_budget
from penstock.entrypoints.api.resources.workers import parse_workers
from penstock.entrypoints.dashboard.pages.charts import draw_usage
from penstock.entrypoints.dashboard.rendering import View, send_page
from penstock.errors import StoreUnavailable

STATES = {"open": "done", "closed": "waiting", "stopped": "failed"}


async def show_budgets(api: AppContext, request: Request, query: None) -> Response:
    del query
    return await send_page(api, request, partial(build_budgets, api))


def build_budgets(api: AppContext) -> View:
    penstock = api.penstock
    users: dict[str, list[str]] = {}
    for name, dataset in sorted(penstock.settings.datasets.items()):
        users.setdefault(penstock.budget(dataset).name, []).append(name)
    rows = []
    away = None
    now = penstock.stores.jobs.now()
    for name, budget in sorted(penstock.budgets.items()):
        try:
            state = describe_budget(api, budget)
        except StoreUnavailable as error:
            away = str(error)
            break
        usage = draw_usage(penstock.stores.rollups, budget, now)
        rows.append(
            {
                "state": state,
                "budget": budget,
                "users": users.get(name, []),
                "usage": usage,
            }
        )
    values = {
        "now": None if away else now,
        "rows": rows,
        "away": away,
        "states": STATES,
    }
    return View("budgets.html", "Budgets", "budgets", values)


async def show_workers(api: AppContext, request: Request, query: None) -> Response:
    del query
    return await send_page(api, request, partial(build_workers, api))


def build_workers(api: AppContext) -> View:
    stores = api.penstock.stores
    try:
        demand = api.penstock.demand()
    except StoreUnavailable:
        demand = ()
    values = {
        "now": stores.jobs.now(),
        "workers": stores.workers.live(),
        "demand": demand,
        "tasks": stores.maintenance.tasks(),
    }
    return View("workers.html", "Workers", "workers", values)


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/budgets",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="The dashboard's page of budgets",
            parse=parse_workers,
            handle=show_budgets,
            operation="showBudgets",
        ),
        Endpoint(
            method="GET",
            path="/workers",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="The dashboard's page of workers and maintenance",
            parse=parse_workers,
            handle=show_workers,
            operation="showWorkers",
        ),
    ]
