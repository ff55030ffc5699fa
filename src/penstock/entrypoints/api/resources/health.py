"""Liveness, readiness, metrics, and the explanation of problem types."""

import asyncio
import time
from collections.abc import Sequence

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.entrypoints.api.cache.dataset_versions import POLL_TIMEOUT
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import (
    AnyEndpoint,
    Endpoint,
    Lane,
    ignore_params,
)
from penstock.entrypoints.api.openapi.shapes import object_schema
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.problems import TITLES, Problem
from penstock.entrypoints.api.responses import NO_STORE, json_response
from penstock.errors import PenstockError


async def health(api: AppContext, request: Request, query: None) -> Response:
    """Check nothing: a restart does not help against a store that is unavailable."""
    del api, request, query
    return json_response({"status": "alive"}, headers=NO_STORE)


async def ready(api: AppContext, request: Request, query: None) -> Response:
    """Report the result of the last poll of the database, which is recent."""
    del request, query
    degraded = []
    if api.is_stopping:
        degraded.append("stopping")
    if not api.dataset_versions.is_fresh:
        try:
            await asyncio.wait_for(api.dataset_versions.poll(), POLL_TIMEOUT)
        except (PenstockError, TimeoutError):
            degraded.append("database")
    has_keys = api.verifier is None or api.verifier.has_keys()
    is_ready = not degraded and has_keys
    status = 200 if is_ready else 503
    headers = {**NO_STORE, **({} if is_ready else {"retry-after": "1"})}
    # tokens signed with cached keys are still accepted
    if api.verifier is not None and (api.verifier.failure() or not has_keys):
        degraded.append("keys")
    # without these, responses are slower but correct
    degraded += await api.dependency_health.names()
    document = {
        "status": "degraded" if degraded else "ready",
        "degraded": degraded,
        "at": int(time.time()),
    }
    return json_response(document, status=status, headers=headers)


def parse_code(api: AppContext, head: RequestHead) -> str:
    del api
    code = head.parts["code"]
    if code not in TITLES:
        codes = ", ".join(sorted(TITLES))
        raise Problem("not-found", f"there is no such problem; there are: {codes}")
    return code


async def explain(api: AppContext, request: Request, code: str) -> Response:
    """Explain a type of problem."""
    del api, request
    status, title = TITLES[code]
    return json_response({"code": code, "status": status, "title": title})


DEGRADABLE = ("stopping", "database", "keys", "redis", "replicas", "broker")
READY_SCHEMA = object_schema(
    {
        "status": {"enum": ["ready", "degraded"]},
        "degraded": {
            "type": "array",
            "items": {"enum": [*DEGRADABLE]},
            "description": (
                "What does not work. With `stopping` or `database`, and with `keys` "
                "if there is no key at all, the status is 503; without the others, "
                "responses are correct but slower, or jobs wait for local workers."
            ),
        },
        "at": {"type": "integer", "description": "Seconds since 1970."},
    }
)
CODE_PARAMETER = {
    "name": "code",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "enum": [*TITLES]},
}
PROBLEM_SCHEMA = object_schema(
    {
        "code": {"enum": [*TITLES]},
        "status": {"type": "integer"},
        "title": {"type": "string"},
    }
)


async def show_metrics(api: AppContext, request: Request, query: None) -> Response:
    del request, query
    # thousands of lines: not in the event loop
    body = await asyncio.to_thread(api.process_metrics.render)
    return Response(
        body,
        headers={"content-type": CONTENT_TYPE_LATEST, "cache-control": "no-store"},
    )


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/api/health",
            scope=None,
            lane=Lane.HEALTH,
            summary="Check whether the process is alive",
            parse=ignore_params,
            handle=health,
            responses={200: object_schema({"status": {"const": "alive"}})},
        ),
        Endpoint(
            method="GET",
            path="/api/ready",
            scope=None,
            lane=Lane.HEALTH,
            summary="Check whether the process is ready for requests",
            parse=ignore_params,
            handle=ready,
            responses={200: READY_SCHEMA, 503: READY_SCHEMA},
        ),
        Endpoint(
            method="GET",
            path="/api/problems/{code}",
            scope=None,
            lane=Lane.HEALTH,
            summary="Explain a type of problem",
            parse=parse_code,
            handle=explain,
            parameters=[CODE_PARAMETER],
            responses={200: PROBLEM_SCHEMA},
        ),
        Endpoint(
            method="GET",
            path="/metrics",
            # not open to loopback: a proxy on this machine connects from there for
            # anybody
            scope=AccessScope.OPERATE,
            lane=Lane.HEALTH,
            summary="Return the metrics in the format of Prometheus",
            parse=ignore_params,
            handle=show_metrics,
        ),
    ]
