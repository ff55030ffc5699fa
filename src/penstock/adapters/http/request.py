"""Write the request for one page from its dataset, shard and position."""

import re
from collections.abc import Mapping
from copy import deepcopy
from datetime import datetime
from urllib.parse import quote

import msgspec

from penstock import __version__
from penstock.adapters.http.client import Request
from penstock.adapters.http.hiding import Hiding
from penstock.adapters.http.links import host_of, with_missing, with_query
from penstock.adapters.http.paging import parameters, reach_of, told
from penstock.domain.axes import RangeAxis
from penstock.domain.dataset import Dataset
from penstock.domain.page import Position
from penstock.domain.parts import Choice, Part
from penstock.domain.shard import Shard
from penstock.domain.source import HttpSource, Paging
from penstock.domain.time_formats import write_time
from penstock.errors import CursorUnreadable, Misconfigured, Rejected

PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class RequestWriter:
    """Writes the requests of one dataset, without their credentials."""

    def __init__(self, dataset: Dataset, hiding: Hiding) -> None:
        check(dataset)
        self._dataset = dataset
        self._source = dataset.http
        self._secrets = hiding.parameters
        self._headers = headers_of(dataset.http)

    def write(
        self, shard: Shard, position: Position | None, *, since: datetime | None
    ) -> Request:
        """Return the request for the page at a position."""
        source, pages = self._source, self._source.pages
        sent: dict[str, object] = {}
        for axis, part in shard:
            sent.update(axis.parameters(part))
        delta = self._dataset.delta
        if delta is not None and since is not None:
            sent[delta.send] = write_time(since, delta.format)
        sent.update(parameters(pages, position, reach_of(shard)))
        url = fill(source.url, shard)
        body = None
        if source.method == "GET":
            asked = {name: text_of(value) for name, value in sent.items()}
            url = with_query(url, {**source.query, **asked})
        else:
            url = with_query(url, source.query)
            body = msgspec.json.encode(merged(source.body or {}, sent))
        if pages.by is Paging.LINK and position is not None:
            url = with_missing(link_of(position), self._secrets)
        return Request(method=source.method, url=url, headers=self._headers, body=body)

    def at(self, url: str, request: Request) -> Request:
        """Return the same request to the address that it has moved to."""
        return Request(
            method=request.method,
            url=with_missing(url, self._secrets),
            headers=request.headers,
            body=request.body,
        )


def check(dataset: Dataset) -> None:
    """Refuse what could never be asked for."""
    source = dataset.http
    problems: list[str] = []
    named = set(PLACEHOLDER.findall(source.url))
    problems.extend(
        f"source.url names {{{each}}}, but there is no shard axis {each!r}"
        for each in sorted(named - {axis.name for axis in dataset.axes})
    )
    if not source.url.startswith(("http://", "https://")) or host_of(
        PLACEHOLDER.sub("x", source.url)
    ) in {"(none)", ""}:
        problems.append("source.url must be a whole http or https address")
    problems.extend(
        f"source.headers holds a name or value that HTTP does not allow: {name!r}"
        for name, value in source.headers.items()
        if not (HEADER_NAME.fullmatch(name) and HEADER_VALUE.fullmatch(value))
    )
    kept_here = [
        axis.name
        for axis in dataset.axes
        if isinstance(axis, RangeAxis)
        and None in (axis.send_from, axis.send_until)
        and axis.name not in named
    ]
    if kept_here and source.pages.by is not Paging.KEYSET:
        problems.append(
            f"shard axis {kept_here[0]!r} sends no bounds, so its end can only be "
            'found with source.pages.by = "keyset"'
        )
    if len(kept_here) > 1:
        problems.append(f"only one of shard axes {kept_here} may send no bounds")
    if source.pages.by is Paging.KEYSET and not source.pages.field:
        problems.append("source.pages.field is missing, which keyset paging needs")
    if source.pages.by is Paging.CURSOR and source.pages.next is None:
        problems.append("source.pages.next is missing, which cursor paging needs")
    if problems:
        raise Misconfigured(*problems)


def headers_of(source: HttpSource) -> dict[str, str]:
    """Return the declared headers, and ours where none is declared."""
    ours = {
        "User-Agent": f"penstock/{__version__}",
        "Accept": "application/json",
        "Accept-Encoding": "gzip, deflate",
    }
    if source.method != "GET":
        ours["Content-Type"] = "application/json"
    declared = {name.lower() for name in source.headers}
    kept = {name: ours[name] for name in ours if name.lower() not in declared}
    return {**kept, **source.headers}


def fill(url: str, shard: Shard) -> str:
    """Put the shard's own values in the place of `{axis}`."""
    values = {axis.name: text_in_url(part) for axis, part in shard}
    return PLACEHOLDER.sub(lambda match: quote(values[match[1]], safe=""), url)


def text_in_url(part: Part) -> str:
    text = part.value if isinstance(part, Choice) else part.text
    if text in {"", ".", ".."}:
        # an address with such a step is another address
        raise Rejected(f"the shard value {text!r} cannot stand in source.url")
    return text


def text_of(value: object) -> str:
    return value if isinstance(value, str) else str(value)


def merged(body: Mapping[str, object], sent: Mapping[str, object]) -> dict[str, object]:
    """Put parameters into a body; `variables.after` means a member of `variables`."""
    whole: dict[str, object] = deepcopy(dict(body))
    for name, value in sent.items():
        *way, last = name.split(".")
        place = whole
        for step in way:
            below = place.setdefault(step, {})
            if not isinstance(below, dict):
                raise Misconfigured(
                    f"{name!r} cannot be sent: {step!r} in source.body is no table"
                )
            place = below
        place[last] = value
    return whole


def link_of(position: Position) -> str:
    url = told(position, "url")
    if not isinstance(url, str):
        raise CursorUnreadable("the cursor's 'url' is not a text")
    return url
