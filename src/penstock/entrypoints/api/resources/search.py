"""Search: find records by words or position, suggest words, count facets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.domain.auth_claims import AccessScope
from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.search.filter_params import MAX_ROWS
from penstock.domain.search.query import field_named
from penstock.domain.search.search_params import (
    DEFAULT_SEARCH_LIMIT,
    DEFAULT_SUGGESTIONS,
    FACET_PARAMS,
    MAX_FACETS,
    MAX_QUERY_LENGTH,
    MAX_SUGGESTIONS,
    SEARCH_PARAMS,
    read_facets,
    read_suggest,
)
from penstock.domain.search.search_query import FacetQuery
from penstock.domain.search.tokenizer import SearchTerms
from penstock.entrypoints.api.cache.response_cache import ReadResult
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane, OperationDoc
from penstock.entrypoints.api.openapi.dataset_shapes import integer_parameter
from penstock.entrypoints.api.openapi.record_shapes import (
    fields_parameter,
    filter_parameters,
)
from penstock.entrypoints.api.openapi.schemas import Schema, ref, schema_name
from penstock.entrypoints.api.openapi.shapes import (
    CURSOR,
    IF_NONE_MATCH,
    NOT_MODIFIED,
    TOKEN,
    header,
    object_schema,
    response_object,
)
from penstock.entrypoints.api.pagination_links import link_header
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.responses import with_digits
from penstock.flow.search_records import RequestedSearch
from penstock.ports.search import Facet, Match

encode = msgspec.json.Encoder().encode

COUNT: Schema = {"type": "integer", "minimum": 0}


def describe_search(dataset: Dataset) -> OperationDoc | None:
    if not dataset.search and dataset.geo is None:
        return None
    match = {
        "type": "object",
        "properties": {
            "score": {
                "type": "number",
                "description": "How well it matches, relative to other results.",
            },
            "km": {"type": "number", "minimum": 0},
        },
        "required": ["score"],
        "additionalProperties": False,
    }
    found = object_schema({"record": ref(schema_name(dataset.name)), "match": match})
    page = object_schema(
        {
            "next": {"type": ["string", "null"], "description": "The next cursor."},
            "has_more": {"type": "boolean"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_ROWS},
        }
    )
    about = object_schema(
        {
            "capped": {
                "type": "boolean",
                "description": "Whether more records match than were ranked.",
            },
            "forgiven": {
                "type": "object",
                "description": "The corrections of words that were searched, by word.",
                "additionalProperties": {"type": "array", "items": {"type": "string"}},
            },
        }
    )
    items = {"type": "array", "items": found, "maxItems": MAX_ROWS}
    return operation_doc(
        [
            *(
                [words_parameter(required=dataset.geo is None)]
                if dataset.search
                else []
            ),
            *([NEAR, WITHIN] if dataset.geo else []),
            *filter_parameters(dataset, reserved=SEARCH_PARAMS),
            fields_parameter(dataset),
            integer_parameter(
                "limit",
                "The maximum number of results.",
                1,
                MAX_ROWS,
                DEFAULT_SEARCH_LIMIT,
            ),
            CURSOR,
        ],
        "The best or the nearest first.",
        object_schema({"items": items, "page": page, "search": about}),
        links=True,
    )


def describe_suggest(dataset: Dataset) -> OperationDoc | None:
    if not dataset.search:
        return None
    suggestion = object_schema({"text": {"type": "string"}, "rows": COUNT})
    items = {"type": "array", "items": suggestion, "maxItems": MAX_SUGGESTIONS}
    return operation_doc(
        [
            words_parameter(required=True),
            integer_parameter(
                "limit",
                "The maximum number of suggestions.",
                1,
                MAX_SUGGESTIONS,
                DEFAULT_SUGGESTIONS,
            ),
        ],
        "Completions, the most frequent first.",
        object_schema({"items": items}),
    )


def describe_facets(dataset: Dataset) -> OperationDoc | None:
    counted = [
        name
        for name in dataset.filter
        if field_named(dataset, name).type is not FieldType.JSON
    ]
    if not counted:
        return None
    by = {
        "name": "by",
        "in": "query",
        "description": "The fields to count by, repeated or with commas; all by "
        "default.",
        "schema": {
            "type": "array",
            "items": {"type": "string", "enum": counted},
            "minItems": 1,
            "maxItems": MAX_FACETS,
        },
    }
    return operation_doc(
        [
            by,
            *([words_parameter(required=False)] if dataset.search else []),
            *filter_parameters(dataset, reserved=FACET_PARAMS),
        ],
        "How many records have each value.",
        object_schema(
            {
                "facets": {"type": "array", "items": facet_schema(counted)},
                "rows": COUNT,
                "sampled": {
                    "type": "boolean",
                    "description": "Whether only some of the records were counted.",
                },
            }
        ),
    )


def facet_schema(counted: list[str]) -> Schema:
    value = {"type": ["string", "number", "boolean"]}
    bound = {"type": ["string", "number"]}
    return object_schema(
        {
            "field": {"type": "string", "enum": counted},
            "values": {
                "type": "array",
                "items": object_schema({"value": value, "rows": COUNT}),
            },
            "ranges": {
                "type": "array",
                "items": object_schema({"start": bound, "end": bound, "rows": COUNT}),
            },
            "others": COUNT,
            "missing": COUNT,
        }
    )


def operation_doc(
    parameters: list[Schema], description: str, schema: Schema, *, links: bool = False
) -> OperationDoc:
    headers = {"ETag": header("ETag", required=True)}
    if links:
        headers["Link"] = header("Link")
    return OperationDoc(
        parameters=[*parameters, TOKEN, IF_NONE_MATCH],
        responses={
            200: response_object(description, schema, headers=headers),
            304: NOT_MODIFIED,
        },
    )


def words_parameter(*, required: bool) -> Schema:
    return {
        "name": "q",
        "in": "query",
        "required": required,
        "description": "Words, in any script; the last one may be incomplete.",
        "schema": {"type": "string", "minLength": 1, "maxLength": MAX_QUERY_LENGTH},
        "example": "berlin mitte",
    }


NEAR: Schema = {
    "name": "near",
    "in": "query",
    "description": (
        "Latitude and longitude in degrees, such as `52.52,13.40`; sorts by distance."
    ),
    "schema": {
        "type": "string",
        "pattern": (
            r"^-?(?:90(?:\.0+)?|[1-8]?[0-9](?:\.[0-9]+)?),"
            r"-?(?:180(?:\.0+)?|(?:1[0-7][0-9]|[1-9]?[0-9])(?:\.[0-9]+)?)$"
        ),
    },
}
WITHIN: Schema = {
    "name": "within",
    "in": "query",
    "description": "With `near`: the maximum distance in kilometres.",
    "schema": {"type": "number", "exclusiveMinimum": 0},
}


@dataclass(frozen=True, slots=True)
class SearchRequest:
    head: RequestHead
    search: RequestedSearch


@dataclass(frozen=True, slots=True)
class SuggestRequest:
    dataset: Dataset
    words: SearchTerms
    limit: int


def parse_search(api: AppContext, head: RequestHead) -> SearchRequest:
    dataset = api.dataset(head.parts["dataset"])
    return SearchRequest(head, api.search.parse(dataset, head.query))


def search_records(api: AppContext, requested: SearchRequest) -> ReadResult:
    page = api.search.page(requested.search)
    matches = page.matches
    about = {
        "next": page.next,
        "has_more": page.next is not None,
        "limit": page.query.limit,
    }
    search = {"capped": matches.is_capped, "forgiven": dict(matches.forgiven)}
    body = b"".join(
        [
            b'{"items":[',
            b",".join(map(match_body, matches.rows)),
            b'],"page":',
            encode(about),
            b',"search":',
            encode(search),
            b"}",
        ]
    )
    return ReadResult(
        body=body, headers=link_header(requested.head, {"next": page.next})
    )


def match_body(match: Match) -> bytes:
    """Combine a row, which is JSON already, with its score and distance."""
    details = {"score": round(match.score, 6)}
    if match.km is not None:
        details["km"] = round(match.km, 3)
    return b'{"record":' + match.body + b',"match":' + encode(details) + b"}"


def parse_suggest(api: AppContext, head: RequestHead) -> SuggestRequest:
    dataset = api.dataset(head.parts["dataset"])
    return SuggestRequest(dataset, *read_suggest(dataset, head.query))


def suggest_words(api: AppContext, requested: SuggestRequest) -> ReadResult:
    found = api.served.search.suggest(
        requested.dataset, requested.words, limit=requested.limit
    )
    items = [{"text": word.text, "rows": word.rows} for word in found]
    return ReadResult(body=encode({"items": items}))


def parse_facets(api: AppContext, head: RequestHead) -> FacetQuery:
    return read_facets(api.dataset(head.parts["dataset"]), head.query)


def count_by_fields(api: AppContext, query: FacetQuery) -> ReadResult:
    found = api.served.search.facets(query)
    document = {
        "facets": [describe_facet(facet) for facet in found.facets],
        "rows": found.rows,
        "sampled": found.is_sampled,
    }
    return ReadResult(body=encode(document))


def describe_facet(facet: Facet) -> Mapping[str, Any]:
    return {
        "field": facet.field,
        "values": [
            {"value": with_digits(bucket.value), "rows": bucket.rows}
            for bucket in facet.values
        ],
        "ranges": [
            {
                "start": with_digits(bucket.start),
                "end": with_digits(bucket.end),
                "rows": bucket.rows,
            }
            for bucket in facet.ranges
        ],
        "others": facet.others,
        "missing": facet.missing,
    }


def endpoints() -> Sequence[AnyEndpoint]:
    dataset = "/api/v1/datasets/{dataset}"
    return [
        Endpoint(
            method="GET",
            path=f"{dataset}/search",
            scope=AccessScope.READ,
            lane=Lane.SEARCH,
            summary="Find records by words, or near a position",
            parse=parse_search,
            read=search_records,
            operation="search{}",
            describe=describe_search,
        ),
        Endpoint(
            method="GET",
            path=f"{dataset}/suggest",
            scope=AccessScope.READ,
            lane=Lane.SEARCH,
            summary="Complete the last word of a search",
            parse=parse_suggest,
            read=suggest_words,
            operation="suggest{}",
            describe=describe_suggest,
        ),
        Endpoint(
            method="GET",
            path=f"{dataset}/facets",
            scope=AccessScope.READ,
            lane=Lane.SEARCH,
            summary="Count records by the values of fields",
            parse=parse_facets,
            read=count_by_fields,
            operation="count{}",
            describe=describe_facets,
        ),
    ]
