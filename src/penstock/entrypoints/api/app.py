"""Put the API together."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from starlette.convertors import StringConvertor, register_url_convertor
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.entrypoints.api import (
    budgets,
    datasets,
    docs,
    events,
    health,
    imports,
    jobs,
    openapi,
    records,
    scrape,
    search,
    starting,
)
from penstock.entrypoints.api.answers import Answers
from penstock.entrypoints.api.colleagues import Alone
from penstock.entrypoints.api.dispatch import Dispatch
from penstock.entrypoints.api.edge import Edge
from penstock.entrypoints.api.endpoints import Endpoint
from penstock.entrypoints.api.errands import Errands
from penstock.entrypoints.api.feeds import Feeds
from penstock.entrypoints.api.gate import Gate
from penstock.entrypoints.api.lanes import Lanes
from penstock.entrypoints.api.metrics import Metrics
from penstock.entrypoints.api.problems import Problem
from penstock.entrypoints.api.progress import Gauges
from penstock.entrypoints.api.rates import Rates
from penstock.entrypoints.api.service import Api
from penstock.entrypoints.api.sizes import Sizes
from penstock.entrypoints.api.troubles import Troubles
from penstock.entrypoints.api.watch import LONGEST_LOOK, Watch
from penstock.errors import PenstockError
from penstock.flow.edit_records import EditRecords
from penstock.flow.search_records import SearchRecords
from penstock.flow.serve_records import ServeRecords
from penstock.ports.answers import SharedAnswers
from penstock.ports.limits import SharedRates
from penstock.ports.serving import Served
from penstock.wiring import Penstock
from penstock.wiring.access import verifier_of

# threads that look how far the datasets have come
LOOKING = 2


def all_endpoints() -> Sequence[Endpoint]:
    """Return everything that can be asked, what is asked most first."""
    described = [
        *records.endpoints(),
        *search.endpoints(),
        *datasets.endpoints(),
        *starting.endpoints(),
        *imports.endpoints(),
        *events.endpoints(),
        *jobs.endpoints(),
        *budgets.endpoints(),
        *health.endpoints(),
        *scrape.endpoints(),
    ]
    return [*described, *openapi.endpoints(described), *docs.endpoints()]


def api_of(
    penstock: Penstock,
    served: Served,
    *,
    threads: int,
    shared: SharedAnswers | None = None,
    rates: SharedRates | None = None,
) -> Api:
    lanes = Lanes(threads, datasets=len(penstock.settings.datasets))
    answers = Answers(lanes=lanes, shared=shared, knows=served.reads.knows)
    serve = ServeRecords(penstock.settings.datasets, served.reads)
    # what keeps an eye on the database must not wait for those who ask it
    looking = ThreadPoolExecutor(LOOKING, thread_name_prefix="look")
    metrics = Metrics()
    watch = Watch(served.reads, looking, on_new=answers.warm)
    answers.track_positions = watch.track_positions
    stores = [each for each in (shared, rates) if each is not None]
    return Api(
        penstock=penstock,
        served=served,
        records=serve,
        search=SearchRecords(served.search, lambda: serve.seal),
        edits=EditRecords(served.edits, penstock.stores.records),
        answers=answers,
        watch=watch,
        feeds=Feeds(served.reads, watch, lanes),
        sizes=Sizes(served.reads),
        troubles=Troubles(
            {"redis": [each.trouble for each in stores], "replicas": [served.trouble]}
        ),
        lanes=lanes,
        rates=Rates(penstock.settings.api.rate, rates),
        verifier=verifier_of(penstock.settings),
        metrics=metrics,
        colleagues=Alone(metrics),
        errands=Errands(penstock.emit),
        gauges=Gauges(penstock),
    )


class WholeKey(StringConvertor):
    """The rest of an address, line breaks included: a key may hold anything."""

    regex = "(?s:.*)"


def app_of(api: Api) -> ASGIApp:
    register_url_convertor("key", WholeKey())
    gate = Gate(api.penstock.settings.api, api.verifier, api.rates)
    api.metrics.tell_along(api.lanes, api.answers, api.rates)
    routes = [
        Route(path, Dispatch(api, gate, {each.method: each for each in some}))
        for path, some in by_path(all_endpoints()).items()
    ]
    router = Router(
        routes,
        # to another place, by a name that the client has made up
        redirect_slashes=False,
        default=nothing_here(gate),
        lifespan=lambda _: running(api, gate),
    )
    return Edge(router, api)


def by_path(endpoints: Iterable[Endpoint]) -> dict[str, list[Endpoint]]:
    found: dict[str, list[Endpoint]] = {}
    for each in endpoints:
        found.setdefault(each.path, []).append(each)
    return found


def nothing_here(gate: Gate) -> ASGIApp:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        await gate.charge_address(scope)
        raise Problem("not-found", f"{scope['path']} is no address here; see /docs")

    return refuse


@asynccontextmanager
async def running(api: Api, gate: Gate) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for each in (api.lanes, api.rates, gate, api.errands, api.troubles):
            stack.callback(each.close)
        # asked for once; where that takes too long, by the first who needs it
        with suppress(PenstockError, TimeoutError):
            await asyncio.wait_for(api.know_seal(), LONGEST_LOOK)
        renewing = asyncio.create_task(gate.renew_keys())
        stack.callback(renewing.cancel)
        await api.watch.start()
        stack.push_async_callback(api.watch.stop)
        telling = asyncio.create_task(api.colleagues.go_on())
        stack.callback(telling.cancel)
        # a database that is away is no reason not to listen
        planning = asyncio.create_task(starting.go_on_planning(api))
        stack.callback(planning.cancel)
        yield
        api.stop()
        api.close()
