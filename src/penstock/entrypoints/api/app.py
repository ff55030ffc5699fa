"""Put the API together."""

from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.entrypoints.api import datasets, health, records, search
from penstock.entrypoints.api.answers import Answers
from penstock.entrypoints.api.dispatch import Dispatch
from penstock.entrypoints.api.edge import Edge
from penstock.entrypoints.api.endpoints import Endpoint
from penstock.entrypoints.api.gate import Gate
from penstock.entrypoints.api.problems import Problem
from penstock.entrypoints.api.service import Api
from penstock.entrypoints.api.watch import Watch
from penstock.flow.edit_records import EditRecords
from penstock.flow.search_records import SearchRecords
from penstock.flow.serve_records import ServeRecords
from penstock.ports import Served
from penstock.ports.answers import SharedAnswers
from penstock.wiring import Penstock


def all_endpoints() -> Sequence[Endpoint]:
    """Return everything that can be asked, what is asked most first."""
    return [
        *records.endpoints(),
        *search.endpoints(),
        *datasets.endpoints(),
        *health.endpoints(),
    ]


def build(
    penstock: Penstock,
    served: Served,
    *,
    threads: int,
    shared: SharedAnswers | None = None,
) -> ASGIApp:
    executor = ThreadPoolExecutor(threads, thread_name_prefix="api")
    answers = Answers(executor=executor, shared=shared)
    serve = ServeRecords(penstock.settings.datasets, served.reads)
    api = Api(
        penstock=penstock,
        served=served,
        records=serve,
        search=SearchRecords(served.search, lambda: serve.seal),
        edits=EditRecords(served.edits, penstock.stores.records),
        answers=answers,
        watch=Watch(served.reads, executor, on_new=answers.warm),
        executor=executor,
    )
    gate = Gate()
    routes = [
        Route(path, Dispatch(api, gate, {each.method: each for each in some}))
        for path, some in by_path(all_endpoints()).items()
    ]
    router = Router(routes, default=nothing_here, lifespan=lambda _: running(api))
    return Edge(router, emit=penstock.emit)


def by_path(endpoints: Iterable[Endpoint]) -> dict[str, list[Endpoint]]:
    found: dict[str, list[Endpoint]] = {}
    for each in endpoints:
        found.setdefault(each.path, []).append(each)
    return found


async def nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    del receive, send
    raise Problem("not-found", f"{scope['path']} is no address here; see /docs")


@asynccontextmanager
async def running(api: Api) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        stack.callback(api.executor.shutdown, wait=False, cancel_futures=True)
        await api.watch.start()
        stack.push_async_callback(api.watch.stop)
        yield
        api.stop()
