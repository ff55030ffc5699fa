"""The scripts, styles and images of the dashboard."""

from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import blake2b
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from penstock.entrypoints.api.cache.response_cache import etag_matches
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.problems import Problem

MEDIA_TYPES: Mapping[str, str] = {
    "dashboard.css": "text/css; charset=utf-8",
    "dashboard.js": "text/javascript; charset=utf-8",
    "upload.js": "text/javascript; charset=utf-8",
    "favicon.svg": "image/svg+xml",
}


def parse_file(api: AppContext, head: RequestHead) -> str:
    del api
    name = head.parts["file"]
    if name not in MEDIA_TYPES:
        raise Problem("not-found", "there is no such file; the dashboard is at /")
    return name


async def send_file(api: AppContext, request: Request, name: str) -> Response:
    content, etag = await api.in_thread(lambda: load(name))
    headers = {"etag": etag, "cache-control": "no-cache"}
    tags = request.headers.get("if-none-match")
    if tags is not None and etag_matches(etag.encode(), tags.encode("latin-1")):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=MEDIA_TYPES[name], headers=headers)


@cache
def load(name: str) -> tuple[bytes, str]:
    content = (files(__package__) / "assets" / name).read_bytes()
    return content, f'"{blake2b(content, digest_size=8).hexdigest()}"'


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/assets/{file}",
            scope=None,
            lane=Lane.READS,
            summary="Scripts, styles and images of the dashboard",
            parse=parse_file,
            handle=send_file,
        )
    ]
