"""Swagger UI, from installed files: a browser needs no CDN."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from penstock.entrypoints.api.cache.response_cache import etag_matches
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.problems import Problem

PAGE = "docs.html"
# file names and media types: our own, and those of the package with Swagger UI
OWN_FILES: Mapping[str, str] = {
    PAGE: "text/html; charset=utf-8",
    "start.js": "text/javascript; charset=utf-8",
}
SWAGGER_FILES: Mapping[str, str] = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
    "favicon-32x32.png": "image/png",
}
PACKAGE = "fastapi_swagger"
# Swagger UI sets inline styles, and its style sheet contains icons as data: URLs
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


def parse_page(api: AppContext, head: RequestHead) -> str:
    """Return the name of the page, which has no parameters, and accepts any."""
    del api, head
    return PAGE


def parse_file(api: AppContext, head: RequestHead) -> str:
    del api
    name = head.parts["file"]
    if name not in {*OWN_FILES, *SWAGGER_FILES} - {PAGE}:
        raise Problem(
            "not-found", "there is no such file; the documentation is at /docs"
        )
    return name


async def send_file(api: AppContext, request: Request, name: str) -> Response:
    content, etag = await api.in_thread(lambda: load(name))
    headers = {
        "etag": etag,
        "cache-control": "no-cache",
        "content-security-policy": CONTENT_SECURITY_POLICY,
    }
    tags = request.headers.get("if-none-match")
    if tags is not None and etag_matches(etag.encode(), tags.encode("latin-1")):
        return Response(status_code=304, headers=headers)
    media_type = {**OWN_FILES, **SWAGGER_FILES}[name]
    return Response(content, media_type=media_type, headers=headers)


@lru_cache
def load(name: str) -> tuple[bytes, str]:
    """Return the content of a file and its ETag."""
    if name in OWN_FILES:
        content = (files(__package__) / "static" / name).read_bytes()
    else:
        content = (swagger_folder() / name).read_bytes()
    return content, f'"{blake2b(content, digest_size=8).hexdigest()}"'


def swagger_folder() -> Path:
    """Find the files of Swagger UI without importing their package, and so FastAPI."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        message = "Swagger UI is not installed: pip install fastapi-swagger"
        raise Problem("not-found", f"{message}; the document is at /openapi.json")
    return Path(spec.submodule_search_locations[0]) / "resources"


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/docs",
            scope=None,
            lane=Lane.READS,
            summary="Show this API in a browser",
            parse=parse_page,
            handle=send_file,
        ),
        Endpoint(
            method="GET",
            path="/docs/{file}",
            scope=None,
            lane=Lane.READS,
            summary="Files of the page for browsers",
            parse=parse_file,
            handle=send_file,
        ),
    ]
