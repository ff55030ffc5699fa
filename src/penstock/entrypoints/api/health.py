"""Whether the process lives, and whether it should be asked."""

import asyncio
import time
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from penstock.entrypoints.api.endpoints import Endpoint, Lane
from penstock.entrypoints.api.problems import TITLES, Problem
from penstock.entrypoints.api.responses import NEVER, json_response
from penstock.entrypoints.api.service import Api
from penstock.entrypoints.api.shapes import shape
from penstock.entrypoints.api.watch import LONGEST_LOOK
from penstock.errors import PenstockError


async def health(api: Api, request: Request) -> Response:
    """Touch nothing: a store that is away is no reason to end this process."""
    del api, request
    return json_response({"status": "alive"}, headers=NEVER)


async def ready(api: Api, request: Request) -> Response:
    """Tell by the last look at the database, which is never long ago."""
    del request
    degraded = []
    if api.is_stopping:
        degraded.append("stopping")
    if not api.watch.is_fresh:
        try:
            await asyncio.wait_for(api.watch.look(), LONGEST_LOOK)
        except (PenstockError, TimeoutError):
            degraded.append("database")
    has_keys = api.verifier is None or api.verifier.has_keys()
    is_ready = not degraded and has_keys
    status = 200 if is_ready else 503
    headers = {**NEVER, **({} if is_ready else {"retry-after": "1"})}
    # tokens whose keys are known are still believed
    if api.verifier is not None and (api.verifier.trouble() or not has_keys):
        degraded.append("keys")
    # without them everything is slower, and nothing is wrong
    degraded += await api.troubles.names()
    document = {
        "status": "degraded" if degraded else "ready",
        "degraded": degraded,
        "at": int(time.time()),
    }
    return json_response(document, status=status, headers=headers)


async def explain(api: Api, request: Request) -> Response:
    """Say what a type of problem means."""
    del api
    code = request.path_params["code"]
    if code not in TITLES:
        known = ", ".join(sorted(TITLES))
        raise Problem("not-found", f"there is no such problem; there are: {known}")
    status, title = TITLES[code]
    return json_response({"code": code, "status": status, "title": title})


READY = shape(
    {
        "status": {"enum": ["ready", "degraded"]},
        "degraded": {
            "type": "array",
            "items": {"enum": ["stopping", "database", "keys", "redis", "replicas"]},
            "description": (
                "What is not as it should be. With `stopping` or `database`, and with "
                "`keys` where no key is known at all, the answer is 503; without the "
                "others all is answered, only slower."
            ),
        },
        "at": {"type": "integer", "description": "Seconds since 1970."},
    }
)
CODE = {
    "name": "code",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "enum": [*TITLES]},
}
EXPLAINED = shape(
    {
        "code": {"enum": [*TITLES]},
        "status": {"type": "integer"},
        "title": {"type": "string"},
    }
)


def endpoints() -> Sequence[Endpoint]:
    return [
        Endpoint(
            method="GET",
            path="/api/health",
            scope=None,
            lane=Lane.HEALTH,
            summary="Say whether the process lives",
            handle=health,
            answers={200: shape({"status": {"const": "alive"}})},
        ),
        Endpoint(
            method="GET",
            path="/api/ready",
            scope=None,
            lane=Lane.HEALTH,
            summary="Say whether the process should be asked",
            handle=ready,
            answers={200: READY, 503: READY},
        ),
        Endpoint(
            method="GET",
            path="/api/problems/{code}",
            scope=None,
            lane=Lane.HEALTH,
            summary="Explain a type of problem",
            handle=explain,
            parameters=[CODE],
            answers={200: EXPLAINED},
        ),
    ]
