"""Build the request for one page from its dataset, shard and position."""

import re
from collections.abc import Mapping
from copy import deepcopy
from datetime import datetime
from decimal import Decimal
from urllib.parse import quote

import msgspec

from penstock import __version__
from penstock.adapters.http.client import HttpRequest
from penstock.adapters.http.pagination import (
    client_bounds,
    page_parameters,
    position_value,
)
from penstock.adapters.http.urls import host_of, with_missing_parameters, with_query
from penstock.domain.dataset import Dataset
from penstock.domain.exact_decimals import write_briefly
from penstock.domain.pages import Position
from penstock.domain.redaction import Redactor
from penstock.domain.sharding.axes import RangeAxis
from penstock.domain.sharding.parts import Choice, Part
from penstock.domain.sharding.shard import Shard
from penstock.domain.source import HttpSource, Paging
from penstock.domain.time_formats import format_time
from penstock.errors import CursorUnreadable, Misconfigured, Rejected

encode = msgspec.json.Encoder(decimal_format="number").encode

PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class RequestBuilder:
    """Builds the requests of one dataset, without their credentials."""

    def __init__(self, dataset: Dataset, redactor: Redactor) -> None:
        check_dataset(dataset)
        self._dataset = dataset
        self._source = dataset.http
        # what no URL in the ledger contains
        self.secrets = {
            name: value
            for name, value in dataset.http.query.items()
            if redactor(value) != value
        }
        self._headers = build_headers(dataset.http)

    def build(
        self, shard: Shard, position: Position | None, *, since: datetime | None
    ) -> HttpRequest:
        """Return the request for the page at a position."""
        source, pages = self._source, self._source.pages
        sent: dict[str, object] = {}
        for axis, part in shard:
            sent.update(axis.parameters(part))
        delta = self._dataset.delta
        if delta is not None and since is not None:
            sent[delta.send] = format_time(since, delta.format)
        sent.update(page_parameters(pages, position, client_bounds(shard)))
        url = fill_placeholders(source.url, shard)
        body = None
        if source.method == "GET":
            query = {name: to_text(value) for name, value in sent.items()}
            url = with_query(url, {**source.query, **query})
        else:
            url = with_query(url, source.query)
            body = encode(merge_parameters(source.body or {}, sent))
        if pages.by is Paging.LINK and position is not None:
            url = with_missing_parameters(link_url(position), self.secrets)
        return HttpRequest(
            method=source.method, url=url, headers=self._headers, body=body
        )

    def redirect(self, url: str, request: HttpRequest) -> HttpRequest:
        """Return the same request to the URL that it was redirected to."""
        return HttpRequest(
            method=request.method,
            url=with_missing_parameters(url, self.secrets),
            headers=request.headers,
            body=request.body,
        )


def check_dataset(dataset: Dataset) -> None:
    """Raise `Misconfigured` if a dataset could never be requested."""
    source = dataset.http
    problems: list[str] = []
    placeholders = set(PLACEHOLDER.findall(source.url))
    problems.extend(
        f"source.url names {{{name}}}, but there is no shard axis {name!r}"
        for name in sorted(placeholders - {axis.name for axis in dataset.axes})
    )
    if not source.url.startswith(("http://", "https://")) or host_of(
        PLACEHOLDER.sub("x", source.url)
    ) in {"(none)", ""}:
        problems.append("source.url must be a complete http or https URL")
    problems.extend(
        f"source.headers contains a name or value that HTTP does not allow: {name!r}"
        for name, value in source.headers.items()
        if not (HEADER_NAME.fullmatch(name) and HEADER_VALUE.fullmatch(value))
    )
    unsent = [
        axis.name
        for axis in dataset.axes
        if isinstance(axis, RangeAxis)
        and None in (axis.send_from, axis.send_until)
        and axis.name not in placeholders
    ]
    if unsent and source.pages.by is not Paging.KEYSET:
        problems.append(
            f"shard axis {unsent[0]!r} sends no bounds, so its end can only be "
            'found with source.pages.by = "keyset"'
        )
    if len(unsent) > 1:
        problems.append(f"only one of shard axes {unsent} may send no bounds")
    if source.pages.by is Paging.KEYSET and not source.pages.field:
        problems.append("source.pages.field is missing, which keyset pagination needs")
    if source.pages.by is Paging.CURSOR and source.pages.next is None:
        problems.append("source.pages.next is missing, which cursor pagination needs")
    if problems:
        raise Misconfigured(*problems)


def build_headers(source: HttpSource) -> dict[str, str]:
    """Return the declared headers, and defaults for the others."""
    defaults = {
        "User-Agent": f"penstock/{__version__}",
        "Accept": "application/json",
        "Accept-Encoding": "gzip, deflate",
    }
    if source.method != "GET":
        defaults["Content-Type"] = "application/json"
    declared = {name.lower() for name in source.headers}
    used = {name: defaults[name] for name in defaults if name.lower() not in declared}
    return {**used, **source.headers}


def fill_placeholders(url: str, shard: Shard) -> str:
    """Replace each `{axis}` with the value of the shard."""
    values = {axis.name: text_in_url(part) for axis, part in shard}
    return PLACEHOLDER.sub(lambda match: quote(values[match[1]], safe=""), url)


def text_in_url(part: Part) -> str:
    text = part.value if isinstance(part, Choice) else part.text
    if text in {"", ".", ".."}:
        # a path segment like this would lead to another URL
        raise Rejected(f"the shard value {text!r} cannot be part of source.url")
    return text


def to_text(value: object) -> str:
    return write_briefly(value) if isinstance(value, Decimal) else str(value)


def merge_parameters(
    body: Mapping[str, object], sent: Mapping[str, object]
) -> dict[str, object]:
    """Add parameters to a body; `variables.after` means a member of `variables`."""
    merged: dict[str, object] = deepcopy(dict(body))
    for name, value in sent.items():
        *parents, last = name.split(".")
        node = merged
        for step in parents:
            child = node.setdefault(step, {})
            if not isinstance(child, dict):
                raise Misconfigured(
                    f"{name!r} cannot be sent: {step!r} in source.body is not a table"
                )
            node = child
        node[last] = value
    return merged


def link_url(position: Position) -> str:
    url = position_value(position, "url")
    if not isinstance(url, str):
        raise CursorUnreadable("the cursor's 'url' is not a string")
    return url
