"""Tell Prometheus what was counted."""

import asyncio
from collections.abc import Sequence

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.access import Scope
from penstock.entrypoints.api.endpoints import Endpoint, Lane
from penstock.entrypoints.api.service import Api


async def show_metrics(api: Api, request: Request) -> Response:
    del request
    # some thousand lines, which others need not wait for
    told = await asyncio.to_thread(api.colleagues.told)
    return Response(
        told,
        headers={"content-type": CONTENT_TYPE_LATEST, "cache-control": "no-store"},
    )


def endpoints() -> Sequence[Endpoint]:
    return [
        Endpoint(
            method="GET",
            path="/metrics",
            # a proxy on this machine asks from loopback for whomever: an address is no
            # proof of anything
            scope=Scope.OPERATE,
            lane=Lane.HEALTH,
            summary="Tell what was counted, as Prometheus reads it",
            handle=show_metrics,
        )
    ]
