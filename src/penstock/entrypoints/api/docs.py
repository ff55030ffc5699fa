"""The pages of Swagger UI, from files that were installed with us: no CDN is asked."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from penstock.entrypoints.api.answers import is_known
from penstock.entrypoints.api.endpoints import Endpoint, Lane
from penstock.entrypoints.api.problems import Problem
from penstock.entrypoints.api.service import Api

PAGE = "docs.html"
# ours, and those of the wheel that carries Swagger UI
OURS: Mapping[str, str] = {
    PAGE: "text/html; charset=utf-8",
    "start.js": "text/javascript; charset=utf-8",
}
THEIRS: Mapping[str, str] = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
    "favicon-32x32.png": "image/png",
}
WHEEL = "fastapi_swagger"
# Swagger UI sets styles of elements, and its icons stand in its own style sheet
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


async def show_docs(api: Api, request: Request) -> Response:
    return await shown(api, request, PAGE)


async def show_docs_file(api: Api, request: Request) -> Response:
    name = request.path_params["file"]
    if name not in {*OURS, *THEIRS} - {PAGE}:
        raise Problem(
            "not-found", "there is no such file; the documentation is at /docs"
        )
    return await shown(api, request, name)


async def shown(api: Api, request: Request, name: str) -> Response:
    content, etag = await api.in_thread(lambda: loaded(name))
    headers = {
        "etag": etag,
        "cache-control": "no-cache",
        "content-security-policy": POLICY,
    }
    known = request.headers.get("if-none-match")
    if known is not None and is_known(etag.encode(), known.encode("latin-1")):
        return Response(status_code=304, headers=headers)
    media_type = {**OURS, **THEIRS}[name]
    return Response(content, media_type=media_type, headers=headers)


@lru_cache
def loaded(name: str) -> tuple[bytes, str]:
    """Return the content of a file, and its version."""
    if name in OURS:
        content = (files(__package__) / "static" / name).read_bytes()
    else:
        content = (swagger() / name).read_bytes()
    return content, f'"{blake2b(content, digest_size=8).hexdigest()}"'


def swagger() -> Path:
    """Find the files of Swagger UI; to import their package would import FastAPI."""
    found = find_spec(WHEEL)
    if found is None or not found.submodule_search_locations:
        told = "Swagger UI is not installed: pip install fastapi-swagger"
        raise Problem("not-found", f"{told}; what it shows is at /openapi.json")
    return Path(found.submodule_search_locations[0]) / "resources"


def endpoints() -> Sequence[Endpoint]:
    return [
        Endpoint(
            method="GET",
            path="/docs",
            scope=None,
            lane=Lane.READS,
            summary="Show this API in a browser",
            handle=show_docs,
        ),
        Endpoint(
            method="GET",
            path="/docs/{file}",
            scope=None,
            lane=Lane.READS,
            summary="What the page for browsers is made of",
            handle=show_docs_file,
        ),
    ]
