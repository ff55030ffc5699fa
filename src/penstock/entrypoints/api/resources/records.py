"""The records of a dataset: list, get, write and delete them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.dataset import Dataset, Field
from penstock.domain.pages import Key
from penstock.domain.record_validation import ANY_VERSION, Precondition, require_record
from penstock.domain.search.filter_params import (
    ARCHIVED,
    ParamReader,
    read_archived,
    read_fields,
    read_own_params,
    refuse_all_params,
    reserved_params,
)
from penstock.entrypoints.api.cache.response_cache import ReadResult
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.openapi.record_shapes import (
    describe_delete,
    describe_get,
    describe_list,
    describe_patch,
    describe_put,
    describe_upsert,
)
from penstock.entrypoints.api.openapi.schemas import to_json_value
from penstock.entrypoints.api.pagination_links import link_header
from penstock.entrypoints.api.params.request_body import read_records
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.problems import Problem
from penstock.entrypoints.api.responses import with_digits
from penstock.entrypoints.api.routing import consistency_headers
from penstock.errors import BadRequest, FieldError, VersionChanged
from penstock.flow.list_records import ListQuery, PageOfRecords
from penstock.ports.record_access import CountKind, WriteResult

encode = msgspec.json.Encoder().encode
# of /api/v1/datasets/poi/records/5, split by slashes
SEGMENTS_BEFORE_KEY = 6
COUNTS = {f"count={kind}": kind for kind in CountKind if kind is not CountKind.CAPPED}
# a version in HTTP's syntax; a weak one has the prefix W/
ENTITY_TAG = r'(?:W/)?"[!#-~]*"'

TAG = re.compile(ENTITY_TAG)
# a list; HTTP allows empty elements
IF_MATCH = re.compile(
    rf"\*|(?:[ \t]*,)*[ \t]*{ENTITY_TAG}(?:[ \t]*,(?:[ \t]*{ENTITY_TAG})?)*"
)


@dataclass(frozen=True, slots=True)
class RecordListRequest:
    head: RequestHead
    query: ListQuery
    # None if the client has no preference
    count: CountKind | None


@dataclass(frozen=True, slots=True)
class GetRequest:
    dataset: Dataset
    key: Key
    fields: Sequence[Field]


def parse_list(api: AppContext, head: RequestHead) -> RecordListRequest:
    query = api.records.parse(api.dataset(head.parts["dataset"]), head.query)
    return RecordListRequest(
        head, query, preferred_count(head.headers.get("prefer", ""))
    )


def list_records(api: AppContext, requested: RecordListRequest) -> ReadResult:
    count = requested.count
    page = api.records.page(requested.query, count=count or CountKind.NONE)
    headers = [*link_header(requested.head, {"next": page.next, "prev": page.prev})]
    if count is not None:
        headers.append((b"preference-applied", f"count={count}".encode()))
    return ReadResult(body=page_body(page), headers=headers)


def page_body(page: PageOfRecords) -> bytes:
    """Join rows that are JSON already."""
    page_info = {
        "next": page.next,
        "prev": page.prev,
        "has_more": page.next is not None,
        "limit": page.query.limit,
    }
    parts = [
        b'{"items":[',
        b",".join(page.listing.rows),
        b'],"page":',
        encode(page_info),
    ]
    if page.count is not None:
        count = {"value": page.count.value, "kind": page.count.kind}
        parts += [b',"count":', encode(count)]
    return b"".join([*parts, b"}"])


def preferred_count(prefer: str) -> CountKind | None:
    for preference in prefer.split(","):
        if preference.strip() in COUNTS:
            return COUNTS[preference.strip()]
    return None


def parse_get(api: AppContext, head: RequestHead) -> GetRequest:
    dataset = api.dataset(head.parts["dataset"])
    key = parse_key(api, dataset, head.raw_path)
    reader = ParamReader(dataset)
    allowed = {"fields", ARCHIVED} & {"fields", *reserved_params(dataset)}
    values = read_own_params(reader, head.query, allowed)
    fields = read_fields(reader, values.get("fields"))
    source = read_archived(reader, values.get(ARCHIVED))
    reader.finish()
    return GetRequest(source, key, fields)


def get_record(api: AppContext, requested: GetRequest) -> ReadResult:
    dataset, fields = requested.dataset, requested.fields
    record = api.records.one(dataset, requested.key, fields)
    # some of the fields are another representation of the same version
    selection = (
        "" if fields == dataset.fields else "+".join(field.name for field in fields)
    )
    return ReadResult(
        body=record.body, etag=".".join(filter(None, [record.version, selection]))
    )


def parse_address(api: AppContext, head: RequestHead) -> tuple[Dataset, Key]:
    """Parse which record to write."""
    dataset = parse_dataset(api, head)
    return dataset, parse_key(api, dataset, head.raw_path)


def parse_dataset(api: AppContext, head: RequestHead) -> Dataset:
    dataset = api.dataset(head.parts["dataset"])
    refuse_all_params(head.query)
    return dataset


async def put_record(
    api: AppContext, request: Request, address: tuple[Dataset, Key]
) -> Response:
    dataset, key = address
    document = await read_records(request)
    conditions = read_precondition(request)
    work = partial(api.edits.put, dataset, key, document, conditions)
    written = await api.in_thread(work)
    return record_response(api, request, dataset, written)


async def patch_record(
    api: AppContext, request: Request, address: tuple[Dataset, Key]
) -> Response:
    dataset, key = address
    document = await read_records(request)
    conditions = read_precondition(request)
    work = partial(api.edits.patch, dataset, key, document, conditions)
    written = await api.in_thread(work)
    return record_response(api, request, dataset, written)


def record_response(
    api: AppContext, request: Request, dataset: Dataset, written: WriteResult
) -> Response:
    """Return the record as it was written."""
    record = require_record(written.one)
    headers = {
        "etag": api.tag(dataset, record.version),
        # still percent-encoded: decoded, it might not fit into a header
        "location": request.scope["raw_path"].decode("ascii"),
        **consistency_headers(api, dataset, written.state),
    }
    return Response(
        record.body,
        status_code=201 if written.created else 200,
        media_type="application/json",
        headers=headers,
    )


async def delete_record(
    api: AppContext, request: Request, address: tuple[Dataset, Key]
) -> Response:
    dataset, key = address
    work = partial(api.edits.delete, dataset, key, read_precondition(request))
    written = await api.in_thread(work)
    headers = consistency_headers(api, dataset, written.state)
    return Response(status_code=204, headers=dict(headers))


async def upsert_records(
    api: AppContext, request: Request, dataset: Dataset
) -> Response:
    documents = await read_records(request)
    written = await api.in_thread(partial(api.edits.upsert, dataset, documents))
    headers = consistency_headers(api, dataset, written.state)
    return Response(
        encode(upsert_document(api, dataset, written)),
        media_type="application/json",
        headers=dict(headers),
    )


def upsert_document(
    api: AppContext, dataset: Dataset, written: WriteResult
) -> Mapping[str, Any]:
    items = [
        {
            "key": {
                name: to_json_value(with_digits(part))
                for name, part in zip(dataset.key, key, strict=True)
            },
            "etag": api.tag(dataset, version),
        }
        for key, version in written.versions.items()
    ]
    return {"created": written.created, "updated": written.updated, "items": items}


def parse_key(api: AppContext, dataset: Dataset, raw_path: bytes) -> Key:
    """Read the key from the raw path, where %2C is a comma inside a part."""
    segments = raw_path.split(b"/", SEGMENTS_BEFORE_KEY)
    raw = segments.pop()
    # the router decodes %2F, and may have matched another segment as the key
    if (
        len(segments) != SEGMENTS_BEFORE_KEY
        or unquote_to_bytes(segments[-1]) != b"records"
    ):
        raise Problem("not-found", "there is nothing at this path")
    parts = raw.split(b",") if len(dataset.key) > 1 else [raw]
    try:
        texts = [unquote_to_bytes(part).decode() for part in parts]
    except UnicodeDecodeError as error:
        invalid = FieldError(pointer="{key}", code="key", detail="is not UTF-8")
        raise BadRequest(invalid) from error
    return api.edits.validator(dataset).read_key(texts)


def endpoints() -> Sequence[AnyEndpoint]:
    records = "/api/v1/datasets/{dataset}/records"
    one = records + "/{key:key}"
    return [
        Endpoint(
            method="GET",
            path=records,
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="List records",
            parse=parse_list,
            read=list_records,
            operation="list{}",
            describe=describe_list,
        ),
        Endpoint(
            method="POST",
            path=records,
            scope=AccessScope.WRITE,
            lane=Lane.WRITES,
            summary="Create or replace up to 1,000 records, all or none",
            parse=parse_dataset,
            handle=upsert_records,
            operation="upsert{}",
            describe=describe_upsert,
        ),
        Endpoint(
            method="GET",
            path=one,
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="Get a record",
            parse=parse_get,
            read=get_record,
            follows_changes=True,
            operation="get{}",
            describe=describe_get,
        ),
        Endpoint(
            method="PUT",
            path=one,
            scope=AccessScope.WRITE,
            lane=Lane.WRITES,
            summary="Create or replace a record",
            parse=parse_address,
            handle=put_record,
            operation="put{}",
            describe=describe_put,
        ),
        Endpoint(
            method="PATCH",
            path=one,
            scope=AccessScope.WRITE,
            lane=Lane.WRITES,
            summary="Change fields of a record",
            parse=parse_address,
            handle=patch_record,
            operation="patch{}",
            describe=describe_patch,
        ),
        Endpoint(
            method="DELETE",
            path=one,
            scope=AccessScope.WRITE,
            lane=Lane.WRITES,
            summary="Delete a record",
            parse=parse_address,
            handle=delete_record,
            operation="delete{}",
            describe=describe_delete,
        ),
    ]


def read_precondition(request: Request) -> Precondition:
    # several headers are one list
    lines = request.headers.getlist("if-match")
    match = ",".join(lines).strip(" \t") if lines else None
    none_match = request.headers.get("if-none-match")
    if match is not None and IF_MATCH.fullmatch(match) is None:
        # an invalid tag matches no version
        raise VersionChanged(
            'If-Match contains no valid version; send "version", as in ETag, or *'
        )
    if none_match not in {None, ANY_VERSION}:
        message = 'must be * in a write; send If-Match: "version" instead'
        raise BadRequest(
            FieldError(pointer="#If-None-Match", code="value", detail=message)
        )
    return Precondition(
        match=None if match is None else parse_versions(match),
        must_be_new=none_match is not None,
    )


def parse_versions(header: str) -> frozenset[str]:
    """Return the strong versions of If-Match; weak ones never match (RFC 9110)."""
    if header == ANY_VERSION:
        return frozenset({ANY_VERSION})
    tags = [tag for tag in TAG.findall(header) if tag.startswith('"')]
    # after a dot come the requested fields, of the same version
    return frozenset(tag.strip('"').partition(".")[0] for tag in tags) - {ANY_VERSION}
