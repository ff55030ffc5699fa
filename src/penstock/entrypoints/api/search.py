"""Find records: by words, near a place, and counted by their values."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.domain.access import Scope
from penstock.entrypoints.api.answers import Answer, Asked
from penstock.entrypoints.api.endpoints import Endpoint, Lane
from penstock.entrypoints.api.links import links
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
    reads = {
        "search": (search_records, "Find records by words, or near a place"),
        "suggest": (suggest_words, "Complete what is being typed"),
        "facets": (count_by_fields, "Count records by the values of fields"),
    }
    return [
        Endpoint(
            method="GET",
            path=f"{of}/{name}",
            scope=Scope.READ,
            lane=Lane.SEARCH,
            summary=summary,
            read=read,
        )
        for name, (read, summary) in reads.items()
    ]
