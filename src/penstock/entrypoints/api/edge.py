"""The outermost layer: every request is counted, and every error a clear answer."""

import asyncio
import time
import traceback
from http import HTTPStatus

from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.domain.events import RequestFailed
from penstock.entrypoints.api.bodies import Bodies
from penstock.entrypoints.api.cors import Cors
from penstock.entrypoints.api.exchange import ClientLeft, Exchange, new_trace_ids
from penstock.entrypoints.api.notices import Notices
from penstock.entrypoints.api.problems import Problem, problem_of
from penstock.entrypoints.api.service import Api
from penstock.errors import PenstockError

# a client that asks again does so elsewhere
CLOSE = (b"connection", b"close")


def stopping() -> Problem:
    told = "this process ended before it had an answer; ask again"
    return Problem("stopping", told, headers={"retry-after": "1"})


class Edge:
    def __init__(self, app: ASGIApp, api: Api) -> None:
        self._app = app
        self._api = api
        self._emit = api.penstock.emit
        self._notices = Notices(self._emit)
        self._trace_ids = new_trace_ids()
        self._bodies = Bodies(api.penstock.settings.api.largest_body)
        self._cors = Cors(api.penstock.settings.api.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope, send, trace_ids=self._trace_ids, bodies=self._bodies)
        scope["exchange"] = exchange
        if self._api.is_stopping:
            exchange.extra.append(CLOSE)
        try:
            exchange.refuse_oddities()
            greeting = self._cors.greet(scope, exchange)
            await (greeting or self._app)(scope, receive, exchange)
        except ClientLeft:
            # there is nobody to answer
            pass
        except asyncio.CancelledError:
            # the process ends, and has waited long enough
            if not self._api.is_closing:
                raise
            if not exchange.status:
                await self._refuse(stopping(), receive, exchange)
        except Exception as error:  # noqa: BLE001 (a bug must not cost more than its request)
            await self._refuse(self._problem(error, exchange), receive, exchange)
        finally:
            exchange.end()
            self._count(exchange)

    def _problem(self, error: Exception, exchange: Exchange) -> Problem:
        """Say what an error means to a client, and to operators if it is a bug."""
        if isinstance(error, Problem):
            exchange.cause = error.cause
            return error
        problem = (
            problem_of(error)
            if isinstance(error, PenstockError)
            else Problem("internal", "see the log by the trace id")
        )
        if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            exchange.cause = str(error)
        if problem.code == "internal":
            self._tell(exchange.trace_id, error)
        return problem

    def _tell(self, trace_id: str, error: BaseException) -> None:
        """Tell operators of what nobody expected, and where it happened."""
        last = traceback.extract_tb(error.__traceback__)[-1]
        self._emit(
            RequestFailed(
                trace_id=trace_id,
                error=f"{type(error).__name__}: {error}",
                where=f"{last.filename}:{last.lineno} {last.name}",
            )
        )

    async def _refuse(
        self, told: Problem, receive: Receive, exchange: Exchange
    ) -> None:
        if exchange.status:
            # too late for another answer: the connection is broken off
            raise ConnectionError(told.detail)
        scope = exchange.scope
        response = told.response(trace_id=exchange.trace_id, instance=scope["path"])
        await response(scope, receive, exchange)

    def _count(self, exchange: Exchange) -> None:
        meter = exchange.meter or self._api.metrics.nowhere
        seconds = time.perf_counter() - exchange.begun
        meter.count(exchange.status, seconds)
        self._notices.look(exchange, meter, seconds)
