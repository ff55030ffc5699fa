"""The metrics, for Prometheus."""

import asyncio
from collections.abc import Sequence

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import (
    AnyEndpoint,
    Endpoint,
    Lane,
    ignore_params,
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
            path="/metrics",
            # not open to loopback: a proxy on this machine connects from there for
            # anybody
            scope=AccessScope.OPERATE,
            lane=Lane.HEALTH,
            summary="Return the metrics in the format of Prometheus",
            parse=ignore_params,
            handle=show_metrics,
        )
    ]
