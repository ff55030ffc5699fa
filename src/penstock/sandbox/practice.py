"""Other ways of paging over the same points, to practise with."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlencode

import msgspec

from penstock.sandbox.catalogue import Catalogue
from penstock.sandbox.exchange import Answer, Call, Page, error_answer, json_answer
from penstock.sandbox.geography import COUNTRIES, COUNTRY_BY_ID, COUNTRY_BY_ISO
from penstock.sandbox.options import SandboxOptions
from penstock.sandbox.query import Order, Query, integer, moment, parse, truth

Route = Callable[[Catalogue, Call, SandboxOptions], Page | Answer]

DEFAULT_LIMIT = 100


def find_route(method: str, path: str) -> Route | None:
    """Return the route of a path under /practice/."""
    if method == "GET" and path.startswith("/practice/regions/"):
        return region_points
    return ROUTES.get((method, path))


def by_offset(catalogue: Catalogue, call: Call, _: SandboxOptions) -> Page:
    query = _query(call)
    skip = max(0, integer(call.parameters.get("offset"), 0))
    return Page(ids=catalogue.choose(query, skip=skip), query=query)


def by_page(catalogue: Catalogue, call: Call, _: SandboxOptions) -> Page:
    size = max(1, integer(call.parameters.get("size"), DEFAULT_LIMIT))
    query = replace(_query(call), limit=size)
    number = max(1, integer(call.parameters.get("page"), 1))
    return Page(ids=catalogue.choose(query, skip=(number - 1) * size), query=query)


def by_cursor(catalogue: Catalogue, call: Call, _: SandboxOptions) -> Page | Answer:
    try:
        after = _read_token(call.parameters.get("token", ""))
    except ValueError:
        return error_answer(400, "the token is not one of ours")
    query = replace(_query(call), after=after)
    ids, more = _look_ahead(catalogue, query)
    token = _write_token(ids[-1]) if more else None
    tail = b',"meta":' + msgspec.json.encode({"next": token}) + b"}"
    return Page(ids=ids, query=query, before=b'{"data":', after=tail)


def by_link(catalogue: Catalogue, call: Call, _: SandboxOptions) -> Page:
    query = _query(call)
    ids, more = _look_ahead(catalogue, query)
    address = None
    if more:
        wanted = {name: v for name, v in call.parameters.items() if name != "key"}
        following = urlencode(wanted | {"after": str(ids[-1])})
        host = call.headers.get("host", "127.0.0.1")
        address = f"http://{host}{call.path}?{following}"
    tail = b',"links":' + msgspec.json.encode({"next": address}) + b"}"
    headers = {"Link": f'<{address}>; rel="next"'} if address else {}
    return Page(ids=ids, query=query, before=b'{"items":', after=tail, headers=headers)


def single(catalogue: Catalogue, call: Call, _: SandboxOptions) -> Page:
    query = replace(_query(call), limit=None)
    return Page(ids=catalogue.choose(query), query=query)


def keyset(catalogue: Catalogue, call: Call, _: SandboxOptions) -> Page:
    """Serve /practice/window and /practice/search: ids above `after`, in order."""
    query = _query(call)
    return Page(ids=catalogue.choose(query), query=query)


def capped(catalogue: Catalogue, call: Call, options: SandboxOptions) -> Page:
    """Page through the first points of a query, and pretend there are no more."""
    query = _query(call)
    first = catalogue.choose(replace(query, after=0, limit=options.cap))
    return Page(ids=[i for i in first if i > query.after][: query.limit], query=query)


def regions(_: Catalogue, __: Call, ___: SandboxOptions) -> Answer:
    """List the regions whose points can be asked for."""
    return json_answer(
        [
            {"id": country.iso, "country_id": country.id, "name": country.title}
            for country in COUNTRIES
        ]
    )


def region_points(catalogue: Catalogue, call: Call, _: SandboxOptions) -> Page | Answer:
    region, *rest = call.path.removeprefix("/practice/regions/").split("/")
    country = COUNTRY_BY_ISO.get(region.upper()) or COUNTRY_BY_ID.get(
        integer(region, 0)
    )
    if country is None or rest != ["points"]:
        return error_answer(404, "there is no such region")
    query = replace(_query(call), countries=frozenset({country.id}))
    return Page(ids=catalogue.choose(query), query=query)


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


def _query(call: Call) -> Query:
    parameters = call.parameters
    return replace(
        parse(parameters),
        limit=max(0, integer(parameters.get("limit"), DEFAULT_LIMIT)),
        after=integer(parameters.get("after"), 0),
        since=moment(parameters.get("since")),
        before=moment(parameters.get("before")),
        order=Order.ID,
        compact=truth(parameters.get("compact"), default=True),
    )


def _look_ahead(catalogue: Catalogue, query: Query) -> tuple[list[int], bool]:
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
