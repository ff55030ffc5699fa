"""Find records: by words, near a place, and counted by their values."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.domain.access import Scope
from penstock.domain.queries.search_parameters import (
    read_facets,
    read_search,
    read_suggest,
)
from penstock.entrypoints.api.answers import Answer, Asked
from penstock.entrypoints.api.endpoints import Endpoint, Lane
from penstock.entrypoints.api.links import links
from penstock.entrypoints.api.search_shapes import (
    described_facets,
    described_search,
    described_suggest,
)
from penstock.entrypoints.api.service import Api
from penstock.ports.searching import Facet, Match

encode = msgspec.json.Encoder().encode


def search_records(api: Api, asked: Asked) -> Answer:
    dataset = api.dataset(asked.parts["dataset"])
    page = api.search.page(dataset, asked.query)
    matches = page.matches
    about = {
        "next": page.next,
        "has_more": page.next is not None,
        "limit": page.query.limit,
    }
    told = {"capped": matches.is_capped, "forgiven": dict(matches.forgiven)}
    body = b"".join(
        [
            b'{"items":[',
            b",".join(map(shown, matches.rows)),
            b'],"page":',
            encode(about),
            b',"search":',
            encode(told),
            b"}",
        ]
    )
    return Answer(body=body, headers=links(asked, {"next": page.next}))


def check_search(api: Api, asked: Asked) -> None:
    read_search(api.dataset(asked.parts["dataset"]), asked.query)


def check_suggest(api: Api, asked: Asked) -> None:
    read_suggest(api.dataset(asked.parts["dataset"]), asked.query)


def check_facets(api: Api, asked: Asked) -> None:
    read_facets(api.dataset(asked.parts["dataset"]), asked.query)


def shown(match: Match) -> bytes:
    """Put a row, which is JSON already, beside what is known of the match."""
    known = {"score": round(match.score, 6)}
    if match.km is not None:
        known["km"] = round(match.km, 3)
    return b'{"record":' + match.body + b',"match":' + encode(known) + b"}"


def suggest_words(api: Api, asked: Asked) -> Answer:
    dataset = api.dataset(asked.parts["dataset"])
    found = api.search.suggest(dataset, asked.query)
    items = [{"text": each.text, "rows": each.rows} for each in found]
    return Answer(body=encode({"items": items}))


def count_by_fields(api: Api, asked: Asked) -> Answer:
    dataset = api.dataset(asked.parts["dataset"])
    found = api.search.facets(dataset, asked.query)
    document = {
        "facets": [described(each) for each in found.facets],
        "rows": found.rows,
        "sampled": found.is_sampled,
    }
    return Answer(body=encode(document))


def described(facet: Facet) -> Mapping[str, Any]:
    return {
        "field": facet.field,
        "values": [{"value": each.value, "rows": each.rows} for each in facet.values],
        "ranges": [
            {"start": each.start, "end": each.end, "rows": each.rows}
            for each in facet.ranges
        ],
        "others": facet.others,
        "missing": facet.missing,
    }


def endpoints() -> Sequence[Endpoint]:
    of = "/api/v1/datasets/{dataset}"
    return [
        Endpoint(
            method="GET",
            path=f"{of}/search",
            scope=Scope.READ,
            lane=Lane.SEARCH,
            summary="Find records by words, or near a place",
            read=search_records,
            check=check_search,
            operation="search{}",
            describe=described_search,
        ),
        Endpoint(
            method="GET",
            path=f"{of}/suggest",
            scope=Scope.READ,
            lane=Lane.SEARCH,
            summary="Complete what is being typed",
            read=suggest_words,
            check=check_suggest,
            operation="suggest{}",
            describe=described_suggest,
        ),
        Endpoint(
            method="GET",
            path=f"{of}/facets",
            scope=Scope.READ,
            lane=Lane.SEARCH,
            summary="Count records by the values of fields",
            read=count_by_fields,
            check=check_facets,
            operation="count{}",
            describe=described_facets,
        ),
    ]
