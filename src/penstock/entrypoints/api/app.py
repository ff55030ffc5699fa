"""Assembly of the API."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

from starlette.convertors import StringConvertor, register_url_convertor
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.entrypoints.api.cache.change_feed import ChangeFeedReader
from penstock.entrypoints.api.cache.dataset_versions import (
    POLL_TIMEOUT,
    DatasetVersionPoller,
)
from penstock.entrypoints.api.cache.response_cache import ResponseCache
from penstock.entrypoints.api.cache.row_counts import RowCounts
from penstock.entrypoints.api.concurrency.background import BackgroundExecutor
from penstock.entrypoints.api.concurrency.lanes import Lanes
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.dependency_health import DependencyHealth
from penstock.entrypoints.api.endpoints import AnyEndpoint
from penstock.entrypoints.api.import_progress import ProgressTracker
from penstock.entrypoints.api.metrics.http_metrics import Metrics
from penstock.entrypoints.api.metrics.multiprocess import SingleProcessMetrics
from penstock.entrypoints.api.middleware.auth import AccessControl
from penstock.entrypoints.api.middleware.errors import ErrorMiddleware
from penstock.entrypoints.api.middleware.rate_limit import RateLimiter
from penstock.entrypoints.api.openapi import document
from penstock.entrypoints.api.problems import Problem
from penstock.entrypoints.api.resources import (
    actions,
    budgets,
    datasets,
    exports,
    health,
    import_events,
    imports,
    jobs,
    previews,
    quarantine,
    records,
    rollups,
    schedules,
    search,
    start_import,
    swagger_ui,
    workers,
)
from penstock.entrypoints.api.routing import EndpointHandler
from penstock.entrypoints.dashboard import files as dashboard_files
from penstock.entrypoints.dashboard.pages import actions as action_pages
from penstock.entrypoints.dashboard.pages import explore, overview
from penstock.entrypoints.dashboard.pages import imports as import_pages
from penstock.entrypoints.dashboard.pages import jobs as job_pages
from penstock.entrypoints.dashboard.pages import quarantine as quarantine_pages
from penstock.entrypoints.dashboard.pages import resources as resource_pages
from penstock.entrypoints.dashboard.pages import schedules as schedule_pages
from penstock.entrypoints.dashboard.pages import shards as shard_pages
from penstock.entrypoints.dashboard.pages import upload as upload_pages
from penstock.errors import PenstockError
from penstock.flow.edit_records import EditRecords
from penstock.flow.list_records import ListRecords
from penstock.flow.search_records import SearchRecords
from penstock.ports.rate_limits import SharedRateLimiter
from penstock.ports.record_access import ApiStores
from penstock.ports.response_cache import SharedCache
from penstock.wiring import Container, broker_checks, build_store_metrics
from penstock.wiring.auth import verifier_of


def all_endpoints() -> Sequence[AnyEndpoint]:
    """Return all endpoints, the most used first, as routes are matched in order."""
    documented = [
        *records.endpoints(),
        *search.endpoints(),
        *exports.endpoints(),
        *datasets.endpoints(),
        *start_import.endpoints(),
        *actions.endpoints(),
        *previews.endpoints(),
        *imports.endpoints(),
        *import_events.endpoints(),
        *jobs.endpoints(),
        *quarantine.endpoints(),
        *budgets.endpoints(),
        *workers.endpoints(),
        *rollups.endpoints(),
        *schedules.endpoints(),
        *health.endpoints(),
    ]
    return [
        *documented,
        *document.endpoints(documented),
        *swagger_ui.endpoints(),
        *overview.endpoints(),
        *import_pages.endpoints(),
        *shard_pages.endpoints(),
        *job_pages.endpoints(),
        *schedule_pages.endpoints(),
        *resource_pages.endpoints(),
        *action_pages.endpoints(),
        *explore.endpoints(),
        *quarantine_pages.endpoints(),
        *upload_pages.endpoints(),
        *dashboard_files.endpoints(),
    ]


def build_api(
    penstock: Container,
    served: ApiStores,
    *,
    threads: int,
    shared: SharedCache | None = None,
    rates: SharedRateLimiter | None = None,
) -> AppContext:
    lanes = Lanes(
        threads, datasets=len(penstock.settings.datasets), tracer=penstock.tracer
    )
    cache = ResponseCache(lanes=lanes, shared=shared, knows=served.reads.knows)
    records = ListRecords(penstock.settings.datasets, served.reads)
    metrics = Metrics()
    row_counts = RowCounts(served.reads)
    versions = DatasetVersionPoller(served.reads, on_new=cache.warm)
    cache.track_positions = versions.track_positions
    shared_stores = [store for store in (shared, rates) if store is not None]
    return AppContext(
        penstock=penstock,
        served=served,
        records=records,
        search=SearchRecords(served.search, records),
        edits=EditRecords(served.edits, penstock.stores.records),
        response_cache=cache,
        dataset_versions=versions,
        feeds=ChangeFeedReader(served.reads, versions, lanes),
        row_counts=row_counts,
        dependency_health=DependencyHealth(
            {
                "redis": [store.failure for store in shared_stores],
                "replicas": [served.failure],
                "writes": [lambda: read_only_failure(penstock)],
                "broker": broker_checks(penstock.settings),
            }
        ),
        lanes=lanes,
        rate_limiter=RateLimiter(penstock.settings.api.rate, rates),
        verifier=verifier_of(penstock.settings),
        metrics=metrics,
        process_metrics=SingleProcessMetrics(
            metrics,
            build_store_metrics(
                penstock,
                rows=partial(row_counts.all, penstock.settings.datasets),
                replicas=served.replicas,
            ),
        ),
        background=BackgroundExecutor(penstock.emit, tracer=penstock.tracer),
        progress_tracker=ProgressTracker(penstock),
    )


class KeyConvertor(StringConvertor):
    """The rest of a path, line breaks included: a key may contain anything."""

    regex = "(?s:.*)"


def build_app(api: AppContext) -> ASGIApp:
    register_url_convertor("key", KeyConvertor())
    access = AccessControl(api.penstock.settings.api, api.verifier, api.rate_limiter)
    api.metrics.collect_from(api.lanes, api.response_cache, api.rate_limiter)
    routes = [
        Route(path, EndpointHandler(api, access, by_method))
        for path, by_method in group_by_path(all_endpoints()).items()
    ]
    router = Router(
        routes,
        # a redirect would go to the host that the client has sent
        redirect_slashes=False,
        default=not_found(access),
        lifespan=lambda _: lifespan(api, access),
    )
    return ErrorMiddleware(router, api)


def group_by_path(
    endpoints: Iterable[AnyEndpoint],
) -> dict[str, dict[str, AnyEndpoint]]:
    by_path: dict[str, dict[str, AnyEndpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return by_path


def not_found(access: AccessControl) -> ASGIApp:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        access.charge_address(scope)
        raise Problem("not-found", f"there is no path {scope['path']}; see /docs")

    return refuse


@asynccontextmanager
async def lifespan(api: AppContext, access: AccessControl) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for part in (
            api.lanes,
            api.rate_limiter,
            access,
            api.background,
            api.dependency_health,
        ):
            stack.callback(part.close)
        # if this takes too long, the first request that needs it loads it
        with suppress(PenstockError, TimeoutError):
            await asyncio.wait_for(api.load_signer(), POLL_TIMEOUT)
        renewal = asyncio.create_task(access.renew_keys())
        stack.callback(renewal.cancel)
        await api.dataset_versions.start()
        stack.push_async_callback(api.dataset_versions.stop)
        sharing_metrics = asyncio.create_task(api.process_metrics.run())
        stack.callback(sharing_metrics.cancel)
        # not awaited: the API starts while the database is unreachable
        planning = asyncio.create_task(start_import.start_maintenance(api))
        stack.callback(planning.cancel)
        yield
        api.stop()
        api.close()


def read_only_failure(penstock: Container) -> str | None:
    is_read_only = penstock.stores.schema.is_read_only
    return "the database may only be read" if is_read_only else None
