"""Other ways of paging over the same points."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlencode

import msgspec

from penstock.sandbox.catalogue import Catalogue
from penstock.sandbox.geography import COUNTRIES, COUNTRY_BY_ID, COUNTRY_BY_ISO
from penstock.sandbox.messages import (
    SandboxPage,
    SandboxRequest,
    SandboxResponse,
    error_response,
    json_response,
)
from penstock.sandbox.options import SandboxOptions
from penstock.sandbox.query import PointQuery, SortOrder, integer, moment, parse, truth

Route = Callable[
    [Catalogue, SandboxRequest, SandboxOptions], SandboxPage | SandboxResponse
]

DEFAULT_LIMIT = 100


def find_route(method: str, path: str) -> Route | None:
    """Return the route of a path under /practice/."""
    if method == "GET" and path.startswith("/practice/regions/"):
        return region_points
    return ROUTES.get((method, path))


def by_offset(
    catalogue: Catalogue, request: SandboxRequest, _: SandboxOptions
) -> SandboxPage:
    query = _query(request)
    skip = max(0, integer(request.parameters.get("offset"), 0))
    return SandboxPage(ids=catalogue.choose(query, skip=skip), query=query)


def by_page(
    catalogue: Catalogue, request: SandboxRequest, _: SandboxOptions
) -> SandboxPage:
    size = max(1, integer(request.parameters.get("size"), DEFAULT_LIMIT))
    query = replace(_query(request), limit=size)
    number = max(1, integer(request.parameters.get("page"), 1))
    return SandboxPage(
        ids=catalogue.choose(query, skip=(number - 1) * size), query=query
    )


def by_cursor(
    catalogue: Catalogue, request: SandboxRequest, _: SandboxOptions
) -> SandboxPage | SandboxResponse:
    try:
        after = _read_token(request.parameters.get("token", ""))
    except ValueError:
        return error_response(400, "the token is invalid")
    query = replace(_query(request), after=after)
    ids, more = _page_and_more(catalogue, query)
    token = _write_token(ids[-1]) if more else None
    tail = b',"meta":' + msgspec.json.encode({"next": token}) + b"}"
    return SandboxPage(ids=ids, query=query, before=b'{"data":', after=tail)


def by_link(
    catalogue: Catalogue, request: SandboxRequest, _: SandboxOptions
) -> SandboxPage:
    query = _query(request)
    ids, more = _page_and_more(catalogue, query)
    address = None
    if more:
        parameters = {
            name: v for name, v in request.parameters.items() if name != "key"
        }
        following = urlencode(parameters | {"after": str(ids[-1])})
        host = request.headers.get("host", "127.0.0.1")
        address = f"http://{host}{request.path}?{following}"
    tail = b',"links":' + msgspec.json.encode({"next": address}) + b"}"
    headers = {"Link": f'<{address}>; rel="next"'} if address else {}
    return SandboxPage(
        ids=ids, query=query, before=b'{"items":', after=tail, headers=headers
    )


def single(
    catalogue: Catalogue, request: SandboxRequest, _: SandboxOptions
) -> SandboxPage:
    query = replace(_query(request), limit=None)
    return SandboxPage(ids=catalogue.choose(query), query=query)


def keyset(
    catalogue: Catalogue, request: SandboxRequest, _: SandboxOptions
) -> SandboxPage:
    """Serve /practice/window and /practice/search: ids above `after`, in order."""
    query = _query(request)
    return SandboxPage(ids=catalogue.choose(query), query=query)


def capped(
    catalogue: Catalogue, request: SandboxRequest, options: SandboxOptions
) -> SandboxPage:
    """Page through the first points of a query, and pretend there are no more."""
    query = _query(request)
    first = catalogue.choose(replace(query, after=0, limit=options.cap))
    return SandboxPage(
        ids=[i for i in first if i > query.after][: query.limit], query=query
    )


def regions(_: Catalogue, __: SandboxRequest, ___: SandboxOptions) -> SandboxResponse:
    """List the regions that have routes of their own."""
    return json_response(
        [
            {"id": country.iso, "country_id": country.id, "name": country.title}
            for country in COUNTRIES
        ]
    )


def region_points(
    catalogue: Catalogue, request: SandboxRequest, _: SandboxOptions
) -> SandboxPage | SandboxResponse:
    region, *rest = request.path.removeprefix("/practice/regions/").split("/")
    country = COUNTRY_BY_ISO.get(region.upper()) or COUNTRY_BY_ID.get(
        integer(region, 0)
    )
    if country is None or rest != ["points"]:
        return error_response(404, "there is no such region")
    query = replace(_query(request), countries=frozenset({country.id}))
    return SandboxPage(ids=catalogue.choose(query), query=query)


ROUTES: dict[tuple[str, str], Route] = {
    ("GET", "/practice/offset"): by_offset,
    ("GET", "/practice/page"): by_page,
    ("GET", "/practice/cursor"): by_cursor,
    ("GET", "/practice/link"): by_link,
    ("GET", "/practice/single"): single,
    ("GET", "/practice/window"): keyset,
    ("POST", "/practice/search"): keyset,
    ("GET", "/practice/capped"): capped,
    ("GET", "/practice/regions"): regions,
}


def _query(request: SandboxRequest) -> PointQuery:
    parameters = request.parameters
    return replace(
        parse(parameters),
        limit=max(0, integer(parameters.get("limit"), DEFAULT_LIMIT)),
        after=integer(parameters.get("after"), 0),
        since=moment(parameters.get("since")),
        before=moment(parameters.get("before")),
        order=SortOrder.ID,
        compact=truth(parameters.get("compact"), default=True),
    )


def _page_and_more(catalogue: Catalogue, query: PointQuery) -> tuple[list[int], bool]:
    """Return a page and whether another one follows."""
    limit = max(1, query.limit or 1)
    ids = catalogue.choose(replace(query, limit=limit + 1))
    return ids[:limit], len(ids) > limit


def _write_token(point_id: int) -> str:
    return urlsafe_b64encode(b"after:%d" % point_id).decode().rstrip("=")


def _read_token(token: str) -> int:
    if not token:
        return 0
    name, _, number = urlsafe_b64decode(token + "=" * (-len(token) % 4)).partition(b":")
    if name != b"after":
        raise ValueError(token)
    return int(number)
