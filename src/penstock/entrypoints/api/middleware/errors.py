"""The outermost middleware: counts requests and turns errors into responses."""

import asyncio
import time
import traceback
from http import HTTPStatus

from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.domain.events import RequestFailed
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.middleware.cors import CorsPolicy
from penstock.entrypoints.api.middleware.request_log import RequestLog
from penstock.entrypoints.api.params.request_body import BodyMemoryLimit
from penstock.entrypoints.api.problems import Problem, problem_of
from penstock.entrypoints.api.request_context import (
    ClientDisconnected,
    RequestContext,
    new_trace_ids,
)
from penstock.errors import PenstockError

# the next request of the client goes to another process
CLOSE = (b"connection", b"close")


def stopping() -> Problem:
    text = "this process stopped before it could respond; try again"
    return Problem("stopping", text, headers={"retry-after": "1"})


class ErrorMiddleware:
    def __init__(self, app: ASGIApp, api: AppContext) -> None:
        self._app = app
        self._api = api
        self._emit = api.penstock.emit
        self._request_log = RequestLog(self._emit)
        self._trace_ids = new_trace_ids()
        self._bodies = BodyMemoryLimit(api.penstock.settings.api.largest_body)
        self._cors = CorsPolicy(api.penstock.settings.api.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        context = RequestContext(
            scope, send, trace_ids=self._trace_ids, bodies=self._bodies
        )
        scope["context"] = context
        if self._api.is_stopping:
            context.extra_headers.append(CLOSE)
        try:
            context.enforce_limits()
            preflight = self._cors.apply(scope, context)
            await (preflight or self._app)(scope, receive, context)
        except ClientDisconnected:
            pass
        except asyncio.CancelledError:
            # the process stops, and the grace period is over
            if not self._api.is_closing:
                raise
            if not context.status:
                await self._refuse(stopping(), receive, context)
        except Exception as error:  # noqa: BLE001 (a bug must not cost more than its request)
            await self._refuse(self._problem(error, context), receive, context)
        finally:
            context.end()
            self._count(context)

    def _problem(self, error: Exception, context: RequestContext) -> Problem:
        """Return the problem document of an error; emits an event if it is a bug."""
        if isinstance(error, Problem):
            context.cause = error.cause
            return error
        problem = (
            problem_of(error)
            if isinstance(error, PenstockError)
            else Problem("internal", "see the log by the trace id")
        )
        if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            context.cause = str(error)
        if problem.code == "internal":
            self._report(context.trace_id, error)
        return problem

    def _report(self, trace_id: str, error: BaseException) -> None:
        """Emit an event for an unexpected error, with the line that raised it."""
        last = traceback.extract_tb(error.__traceback__)[-1]
        self._emit(
            RequestFailed(
                trace_id=trace_id,
                error=f"{type(error).__name__}: {error}",
                where=f"{last.filename}:{last.lineno} {last.name}",
            )
        )

    async def _refuse(
        self, problem: Problem, receive: Receive, context: RequestContext
    ) -> None:
        if context.status:
            # the response has started: only the connection can be closed
            raise ConnectionError(problem.detail)
        scope = context.scope
        response = problem.response(trace_id=context.trace_id, instance=scope["path"])
        await response(scope, receive, context)

    def _count(self, context: RequestContext) -> None:
        metrics = context.metrics or self._api.metrics.unrouted
        seconds = time.perf_counter() - context.started
        metrics.count(context.status, seconds)
        context.end_span()
        self._request_log.record(context, metrics, seconds)
