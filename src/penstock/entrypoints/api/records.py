"""The records of a dataset: lists, single ones, and their changes."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.access import Scope
from penstock.domain.dataset import Dataset, Field
from penstock.domain.editing import found
from penstock.domain.page import Key
from penstock.domain.queries.parameters import (
    Reading,
    only,
    read_fields,
    read_query,
    refuse_all,
)
from penstock.entrypoints.api.answers import Answer, Asked
from penstock.entrypoints.api.bodies import read_json
from penstock.entrypoints.api.dispatch import with_token
from penstock.entrypoints.api.endpoints import Endpoint, Lane
from penstock.entrypoints.api.links import links
from penstock.entrypoints.api.preconditions import precondition
from penstock.entrypoints.api.problems import Problem
from penstock.entrypoints.api.record_shapes import (
    described_delete,
    described_get,
    described_list,
    described_patch,
    described_put,
    described_upsert,
)
from penstock.entrypoints.api.schemas import plain
from penstock.entrypoints.api.service import Api
from penstock.errors import BadRequest, Flaw
from penstock.flow.serve_records import PageOfRecords
from penstock.ports.serving import CountKind, Written

encode = msgspec.json.Encoder().encode
# /api/v1/datasets/poi/records/5: so many parts stand before the key
KEY_AT = 6
COUNTS = {f"count={each}": each for each in CountKind if each is not CountKind.CAPPED}


def list_records(api: Api, asked: Asked) -> Answer:
    dataset = api.dataset(asked.parts["dataset"])
    wanted = preferred_count(asked.prefer)
    page = api.records.page(dataset, asked.query, count=wanted or CountKind.NONE)
    headers = [*links(asked, {"next": page.next, "prev": page.prev})]
    if wanted is not None:
        headers.append((b"preference-applied", f"count={wanted}".encode()))
    return Answer(body=page_body(page), headers=headers)


def page_body(page: PageOfRecords) -> bytes:
    """Put rows together that are JSON already."""
    about = {
        "next": page.next,
        "prev": page.prev,
        "has_more": page.next is not None,
        "limit": page.query.limit,
    }
    pieces = [
        b'{"items":[',
        b",".join(page.listing.rows),
        b'],"page":',
        encode(about),
    ]
    if page.count is not None:
        count = {"value": page.count.value, "kind": page.count.kind}
        pieces += [b',"count":', encode(count)]
    return b"".join([*pieces, b"}"])


def preferred_count(prefer: str) -> CountKind | None:
    for each in prefer.split(","):
        if each.strip() in COUNTS:
            return COUNTS[each.strip()]
    return None


def check_list(api: Api, asked: Asked) -> None:
    read_query(api.dataset(asked.parts["dataset"]), asked.query)


def get_record(api: Api, asked: Asked) -> Answer:
    dataset, key, fields = read_get(api, asked)
    found = api.records.one(dataset, key, fields)
    # a choice of fields is another form of the same version
    chosen = "" if fields == dataset.fields else "+".join(each.name for each in fields)
    return Answer(body=found.body, etag=".".join(filter(None, [found.version, chosen])))


def read_get(api: Api, asked: Asked) -> tuple[Dataset, Key, Sequence[Field]]:
    dataset = api.dataset(asked.parts["dataset"])
    key = key_of(api, dataset, asked.raw_path)
    reading = Reading(dataset)
    given = only(reading, asked.query, {"fields"})
    fields = read_fields(reading, given.get("fields"))
    reading.finish()
    return dataset, key, fields


async def put_record(api: Api, request: Request) -> Response:
    dataset, key = addressed(api, request)
    document = await read_json(request)
    terms = precondition(request)
    work = partial(api.edits.put, dataset, key, document, terms)
    written = await api.in_thread(work)
    return changed(api, request, dataset, written)


async def patch_record(api: Api, request: Request) -> Response:
    dataset, key = addressed(api, request)
    document = await read_json(request)
    terms = precondition(request)
    work = partial(api.edits.patch, dataset, key, document, terms)
    written = await api.in_thread(work)
    return changed(api, request, dataset, written)


def changed(api: Api, request: Request, dataset: Dataset, written: Written) -> Response:
    """Answer with the record as it was written."""
    one = found(written.one)
    headers = {
        "etag": api.tag(dataset, one.version),
        # as it was sent: what it says decoded, no header could
        "location": request.scope["raw_path"].decode("ascii"),
        **with_token(api, dataset, written.state),
    }
    return Response(
        one.body,
        status_code=201 if written.created else 200,
        media_type="application/json",
        headers=headers,
    )


async def delete_record(api: Api, request: Request) -> Response:
    dataset, key = addressed(api, request)
    work = partial(api.edits.delete, dataset, key, precondition(request))
    written = await api.in_thread(work)
    headers = with_token(api, dataset, written.state)
    return Response(status_code=204, headers=dict(headers))


async def upsert_records(api: Api, request: Request) -> Response:
    dataset = api.dataset(request.path_params["dataset"])
    refuse_all(request.query_params.multi_items())
    documents = await read_json(request)
    written = await api.in_thread(partial(api.edits.upsert, dataset, documents))
    headers = with_token(api, dataset, written.state)
    return Response(
        encode(upserted(api, dataset, written)),
        media_type="application/json",
        headers=dict(headers),
    )


def upserted(api: Api, dataset: Dataset, written: Written) -> Mapping[str, Any]:
    items = [
        {
            "key": dict(zip(dataset.key, map(plain, key), strict=True)),
            "etag": api.tag(dataset, version),
        }
        for key, version in written.versions.items()
    ]
    return {"created": written.created, "updated": written.updated, "items": items}


def addressed(api: Api, request: Request) -> tuple[Dataset, Key]:
    dataset = api.dataset(request.path_params["dataset"])
    refuse_all(request.query_params.multi_items())
    return dataset, key_of(api, dataset, request.scope["raw_path"])


def key_of(api: Api, dataset: Dataset, raw_path: bytes) -> Key:
    """Read the key from an address as it was sent: %2C is a comma inside of a part."""
    before = raw_path.split(b"/", KEY_AT)
    raw = before.pop()
    # an encoded slash may have looked like one that divides
    if len(before) != KEY_AT or unquote_to_bytes(before[-1]) != b"records":
        raise Problem("not-found", "there is nothing at this address")
    parts = raw.split(b",") if len(dataset.key) > 1 else [raw]
    try:
        texts = [unquote_to_bytes(part).decode() for part in parts]
    except UnicodeDecodeError as error:
        flaw = Flaw(pointer="{key}", code="key", detail="is not UTF-8")
        raise BadRequest(flaw) from error
    return api.edits.editor(dataset).read_key(texts)


def endpoints() -> Sequence[Endpoint]:
    records = "/api/v1/datasets/{dataset}/records"
    one = records + "/{key:key}"
    return [
        Endpoint(
            method="GET",
            path=records,
            scope=Scope.READ,
            lane=Lane.READS,
            summary="List records",
            read=list_records,
            check=check_list,
            operation="list{}",
            describe=described_list,
        ),
        Endpoint(
            method="POST",
            path=records,
            scope=Scope.WRITE,
            lane=Lane.WRITES,
            summary="Create or replace up to 1,000 records, all or none",
            handle=upsert_records,
            operation="upsert{}",
            describe=described_upsert,
        ),
        Endpoint(
            method="GET",
            path=one,
            scope=Scope.READ,
            lane=Lane.READS,
            summary="Get a record",
            read=get_record,
            check=read_get,
            follows_changes=True,
            operation="get{}",
            describe=described_get,
        ),
        Endpoint(
            method="PUT",
            path=one,
            scope=Scope.WRITE,
            lane=Lane.WRITES,
            summary="Create or replace a record",
            handle=put_record,
            operation="put{}",
            describe=described_put,
        ),
        Endpoint(
            method="PATCH",
            path=one,
            scope=Scope.WRITE,
            lane=Lane.WRITES,
            summary="Change fields of a record",
            handle=patch_record,
            operation="patch{}",
            describe=described_patch,
        ),
        Endpoint(
            method="DELETE",
            path=one,
            scope=Scope.WRITE,
            lane=Lane.WRITES,
            summary="Delete a record",
            handle=delete_record,
            operation="delete{}",
            describe=described_delete,
        ),
    ]
