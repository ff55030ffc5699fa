"""The records of a dataset: search, filters, sort, page by page."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.dataset import Dataset
from penstock.domain.mapping.written_numbers import WrittenNumber
from penstock.domain.search.filter_params import (
    EXPORT_PARAMS,
    FIELD_PREFIX,
    RESERVED_PARAMS,
    ExportFormat,
)
from penstock.domain.source import CsvSource
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.resources.records import list_records, parse_list
from penstock.entrypoints.api.resources.search import parse_search, search_records
from penstock.entrypoints.dashboard.rendering import View, send_page
from penstock.errors import BadRequest, StoreUnavailable

# parameters that are no filters
OWN_PARAMS = frozenset({"q", "sort", "limit", "cursor"})
OPERATORS = re.compile(r"(eq|ne|lt|lte|gt|gte|in|prefix|isnull)\.")
COLUMNS = 12

decode = msgspec.json.Decoder(float_hook=WrittenNumber).decode


class ExploreRequest(NamedTuple):
    dataset: Dataset
    head: RequestHead


class Found(NamedTuple):
    """A page of records, or why there is none."""

    records: Sequence[Mapping[str, Any]] = ()
    next: str | None = None
    errors: Sequence[str] = ()
    # what was searched instead of unknown words
    forgiven: Mapping[str, Sequence[str]] = {}


def parse_explore(api: AppContext, head: RequestHead) -> ExploreRequest:
    """Read the address of the page: fields that a form left empty do not count."""
    dataset = api.dataset(head.parts["dataset"])
    query = [
        (name, with_operator(name, value.strip()))
        for name, value in head.query
        if value.strip()
    ]
    return ExploreRequest(dataset, replace(head, query=query))


def with_operator(name: str, value: str) -> str:
    """Complete what people type: `Berlin` stands for `eq.Berlin`."""
    if name in OWN_PARAMS or OPERATORS.match(value):
        return value
    return f"eq.{value}"


async def show_records(
    api: AppContext, request: Request, requested: ExploreRequest
) -> Response:
    return await send_page(api, request, partial(build_explore, api, requested))


def build_explore(api: AppContext, requested: ExploreRequest) -> View:
    dataset, head = requested
    given = dict(head.query)
    found = find(api, head, is_search="q" in given)
    fields = [field.name for field in dataset.fields]
    route = f"/api/v1/datasets/{dataset.name}/{'search' if 'q' in given else 'records'}"
    query = urlencode(head.query)
    address = f"{route}?{query}" if query else route
    values = {
        "live": "off",
        "dataset": dataset,
        "given": given,
        "filters": [name for name in dataset.filter if name in fields],
        "columns": fields[:COLUMNS],
        "sortable": {*dataset.key, *dataset.filter} if "q" not in given else set(),
        "found": found,
        "state": api.served.reads.dataset_versions().get(dataset.name),
        "next_link": None
        if found.next is None
        else "?" + urlencode([*without(head.query, "cursor"), ("cursor", found.next)]),
        "sort_links": sort_links(dataset, head.query),
        "exports": {} if "q" in given else export_links(dataset, head.query),
        "address": address,
        "curl": f"curl {shlex.quote('http://' + head_host(head) + address)}",
        "datasets": sorted(api.penstock.settings.datasets),
        "has_files": isinstance(dataset.source, CsvSource),
    }
    return View("explore.html", dataset.name, "explore", values)


def find(api: AppContext, head: RequestHead, *, is_search: bool) -> Found:
    try:
        if is_search:
            result = search_records(api, parse_search(api, head))
        else:
            result = list_records(api, parse_list(api, head))
    except BadRequest as error:
        return Found(errors=[f"{flaw.pointer}: {flaw.detail}" for flaw in error.flaws])
    except StoreUnavailable as error:
        return Found(errors=[str(error)])
    body = decode(result.body)
    items = body["items"]
    records = [item["record"] for item in items] if is_search else items
    return Found(
        records=[*map(with_digits, records)],
        next=body["page"]["next"],
        forgiven=body.get("search", {}).get("forgiven", {}),
    )


def with_digits(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record whose numbers are shown with all of their digits."""
    return {
        name: value.text if isinstance(value, WrittenNumber) else value
        for name, value in record.items()
    }


def without(query: Sequence[tuple[str, str]], *names: str) -> list[tuple[str, str]]:
    return [(name, value) for name, value in query if name not in names]


def sort_links(dataset: Dataset, query: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """Return the address that sorts by a field, or the other way round."""
    current = dict(query).get("sort")
    rest = without(query, "sort", "cursor")
    return {
        name: "?"
        + urlencode([*rest, ("sort", f"-{name}" if current == name else name)])
        for name in {*dataset.key, *dataset.filter}
    }


def export_links(
    dataset: Dataset, query: Sequence[tuple[str, str]]
) -> Mapping[str, str]:
    """Return the addresses of the files with all that matches, by format."""
    route = f"/api/v1/datasets/{dataset.name}/export"
    # names of fields in the address of this page
    reserved_here = EXPORT_PARAMS - RESERVED_PARAMS
    rest = [
        (f"{FIELD_PREFIX}{name}" if name in reserved_here else name, value)
        for name, value in without(query, "cursor", "limit")
    ]
    return {
        form: f"{route}?{urlencode([*rest, ('format', form)])}" for form in ExportFormat
    }


def head_host(head: RequestHead) -> str:
    return head.headers.get("host", "127.0.0.1")


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/datasets/{dataset}",
            scope=AccessScope.READ,
            lane=Lane.SEARCH,
            summary="The dashboard's page of a dataset's records",
            parse=parse_explore,
            handle=show_records,
            operation="showRecords",
        )
    ]
