"""Start imports: of what a dataset declares, or of a file that is sent."""

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.access import Scope
from penstock.domain.dataset import Dataset
from penstock.domain.job import ImportStatus, Mode
from penstock.domain.queries.forms import instant_in_json
from penstock.domain.scope import Scope as Extent
from penstock.domain.source import CsvSource
from penstock.domain.text import format_instant
from penstock.entrypoints.api import uploads
from penstock.entrypoints.api.bodies import read_json
from penstock.entrypoints.api.caretaker import LOOK_AGAIN, Caretaker
from penstock.entrypoints.api.endpoints import Endpoint, Lane
from penstock.entrypoints.api.import_shapes import (
    LONGEST_KEY,
    described_start,
)
from penstock.entrypoints.api.parameters import Parameters
from penstock.entrypoints.api.problems import Problem
from penstock.entrypoints.api.responses import NEVER, json_response
from penstock.entrypoints.api.service import Api
from penstock.errors import (
    BadRequest,
    Conflict,
    Flaw,
    Interrupted,
    Misconfigured,
    NotFound,
    Rejected,
    SourceUnavailable,
    StillAtWork,
)
from penstock.flow.start_import import Started
from penstock.ports.idempotency import Ask

LARGEST_ASK = 64 * 1024
# seconds in which a file that was sent has to be looked through; then somebody else may
# ask by the same key
LONGEST_LOOK = 15 * 60.0
OPTION = re.compile(r"--(mode|from|until)\b")


async def start_import(api: Api, request: Request) -> Response:
    """Begin an import; planning it goes on after the answer."""
    dataset = api.dataset(request.path_params["dataset"])
    Parameters(request).finish()
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    key = key_of(request)
    if media == "multipart/form-data":
        started = await of_file(api, request, dataset, key)
    elif media == "application/json":
        started = await of_source(api, request, dataset, key)
    else:
        told = "application/json, multipart/form-data"
        raise Problem(
            "unsupported-media-type", f"send {told}", headers={"accept": told}
        )
    begun = started.begun
    if begun.status is ImportStatus.PLANNING:
        plan = partial(api.penstock.start_import.go_on, begun.id, api.errands.halt)
        # what goes wrong with it is told by the id that this client knows
        trace_id = request.scope["exchange"].trace_id
        api.errands.later(plan, name=begun.id, trace_id=trace_id)
    headers = {"location": f"/api/v1/imports/{begun.id}", **NEVER}
    if started.replayed:
        headers["idempotency-replayed"] = "true"
    return json_response(described(started), status=202, headers=headers)


def described(started: Started) -> Mapping[str, Any]:
    """Tell only what never changes, so that the answer is the same again."""
    begun = started.begun
    return {
        "import_id": begun.id,
        "dataset": begun.dataset,
        "mode": begun.mode,
        "resumed": started.resumed,
        "since": None if begun.since is None else format_instant(begun.since),
        "until": format_instant(begun.until),
        "created_at": format_instant(begun.created_at),
    }


async def of_source(api: Api, request: Request, dataset: Dataset, key: str) -> Started:
    extent = read_extent(await read_json(request, largest=LARGEST_ASK))
    ask = Ask(scope=scope_of(request, dataset), key=key, digest=digest_of(extent))
    start = api.penstock.start_import.of_source
    with in_our_words():
        return await api.in_thread(partial(start, dataset, extent, ask))


@contextmanager
def in_our_words() -> Iterator[None]:
    """Name as the body does what the command line names by its options."""
    try:
        yield
    except Conflict as error:
        if isinstance(error, StillAtWork):
            raise
        raise Conflict(OPTION.sub(r"\1", str(error))) from error


async def of_file(api: Api, request: Request, dataset: Dataset, key: str) -> Started:
    if not isinstance(dataset.source, CsvSource):
        told = f"{dataset.name} is fetched from its provider; send application/json"
        headers = {"accept": "application/json"}
        raise Problem("unsupported-media-type", told, headers=headers)
    with api.errands.place("uploads", most=uploads.MOST_AT_ONCE):
        sent = await uploads.receive(api, request, dataset)
        ask = Ask(
            scope=scope_of(request, dataset),
            key=key,
            digest=digest_of([sent.label, sent.digest]),
            file=sent.file,
        )
        start = api.penstock.start_import.of_file
        work = partial(start, dataset, sent.file, ask, api.errands.halt)
        with file_refused(sent):
            return await api.errands.keep_file(work, longest=LONGEST_LOOK)


@contextmanager
def file_refused(sent: uploads.Uploaded) -> Iterator[None]:
    """Tell what is wrong with a file by the name that its sender gave it."""
    try:
        yield
    except NotFound:
        raise
    except Interrupted as error:
        told = "this process ends; send the file again"
        raise Problem("unavailable", told, headers={"retry-after": "5"}) from error
    except (Misconfigured, Rejected, SourceUnavailable) as error:
        raise BadRequest(
            *(
                Flaw(
                    pointer=f"/{uploads.FILE}",
                    code="unfit",
                    detail=as_sent(told, sent),
                )
                for told in str(error).splitlines()
            )
        ) from error


def as_sent(told: str, sent: uploads.Uploaded) -> str:
    """Call a file as its sender does; what it is called in the spool is ours."""
    label = sent.label or "the file"
    for name in (sent.file, Path(sent.file).name):
        told = told.replace(name, label)
    return told


def key_of(request: Request) -> str:
    """Read the client's key; without one, a request is like no other."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return secrets.token_hex(16)
    is_visible = key.isascii() and key.isprintable() and " " not in key
    if not is_visible or not 0 < len(key) <= LONGEST_KEY:
        told = f"must have 1 to {LONGEST_KEY} visible ASCII characters"
        raise BadRequest(Flaw(pointer="#Idempotency-Key", code="value", detail=told))
    return key


def scope_of(request: Request, dataset: Dataset) -> str:
    """Tell apart the keys of clients, and of what they ask for."""
    return f"{request.scope.get('principal', '')} imports {dataset.name}"


def digest_of(asked: object) -> bytes:
    return blake2b(repr(asked).encode(), digest_size=16).digest()


def read_extent(document: object) -> Extent:
    """Read what is to be imported; every flaw is named."""
    if not isinstance(document, dict):
        told = "must be an object with mode, from, until"
        raise BadRequest(Flaw(pointer="/", code="type", detail=told))
    flaws = [
        Flaw(pointer=f"/{name}", code="unknown", detail="use mode, from, until")
        for name in document.keys() - {"mode", "from", "until"}
    ]
    mode = document.get("mode", Mode.FULL)
    if mode not in [*Mode]:
        told = f"must be one of {', '.join(Mode)}"
        flaws.append(Flaw(pointer="/mode", code="choice", detail=told))
        mode = Mode.FULL
    extent = Extent(
        mode=Mode(mode),
        since=read_instant(document, "from", flaws),
        until=read_instant(document, "until", flaws),
    )
    flaws += misplaced(extent)
    if flaws:
        raise BadRequest(*flaws)
    return extent


def read_instant(
    document: Mapping[str, Any], name: str, flaws: list[Flaw]
) -> datetime | None:
    value = document.get(name)
    if value is None:
        return None
    found = instant_in_json(value) if isinstance(value, str) else None
    if found is None or value.startswith(("0", "9")):
        told = "must be a time with a zone, such as 2026-01-31T12:00:00Z"
        flaws.append(Flaw(pointer=f"/{name}", code="type", detail=told))
        return None
    return found


def misplaced(extent: Extent) -> Iterator[Flaw]:
    """Find bounds that a mode does not have, and the one that it needs."""
    mode, since, until = extent.mode, extent.since, extent.until
    if since is not None and mode is Mode.FULL:
        told = "belongs to the modes delta and backfill"
        yield Flaw(pointer="/from", code="misplaced", detail=told)
    if until is not None and mode is not Mode.BACKFILL:
        told = "belongs to the mode backfill"
        yield Flaw(pointer="/until", code="misplaced", detail=told)
    if since is None and mode is Mode.BACKFILL:
        yield Flaw(pointer="/from", code="missing", detail="is where a backfill begins")


async def go_on_planning(api: Api) -> None:
    """Take up, now and later, what a process that is gone had begun to plan."""
    look = Caretaker(api.penstock, api.errands)
    api.errands.now_and_then(look, every=LOOK_AGAIN)


def endpoints() -> Sequence[Endpoint]:
    return [
        Endpoint(
            method="POST",
            path="/api/v1/datasets/{dataset}/imports",
            scope=Scope.OPERATE,
            lane=Lane.WRITES,
            summary="Start an import, of what is declared or of a file that is sent",
            handle=start_import,
            describe=described_start,
            operation="start{}Import",
        ),
    ]
