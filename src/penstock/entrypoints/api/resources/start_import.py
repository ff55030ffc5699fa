"""Start imports from the declared source or from an uploaded file, and plan them."""

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.dataset import Dataset
from penstock.domain.formats import format_instant
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import Import, ImportStatus, Mode
from penstock.domain.search.value_syntax import parse_json_timestamp
from penstock.domain.source import CsvSource
from penstock.entrypoints.api.concurrency.background import BackgroundExecutor
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.openapi.import_shapes import (
    MAX_KEY_LENGTH,
    describe_start,
)
from penstock.entrypoints.api.params.query_params import QueryParams
from penstock.entrypoints.api.params.request_body import read_json
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.problems import Problem
from penstock.entrypoints.api.resources import uploads
from penstock.entrypoints.api.responses import NO_STORE, json_response
from penstock.errors import (
    BadRequest,
    Conflict,
    FieldError,
    Interrupted,
    Misconfigured,
    NotFound,
    Rejected,
    RequestInProgress,
    SourceUnavailable,
)
from penstock.flow.start_import import Started
from penstock.ports.idempotency import IdempotentRequest
from penstock.wiring import Container, build_maintenance, planning_task

# seconds between two calls of the maintenance loop
MAINTENANCE_INTERVAL = 0.5


class PlanInterruptedImports:
    """Resumes planning that another process left unfinished."""

    def __init__(self, penstock: Container, background: BackgroundExecutor) -> None:
        self._penstock = penstock
        self._background = background

    def __call__(self) -> None:
        start = self._penstock.start_import
        for import_id in self._penstock.due_plans():
            plan = partial(start.plan_import, import_id, self._background.halt)
            self._background.submit_once(
                plan, name=import_id, trace_id=secrets.token_hex(16)
            )


MAX_BODY = 64 * 1024
# seconds within which an uploaded file must be checked; then another request may use
# the same idempotency key
CHECK_TIMEOUT = 15 * 60.0
START_FIELDS = ("mode", "from", "until", "accept_duplicates")
ACCEPTING_COMMAND = re.compile(r"penstock run \S+ --accept-duplicates")
CLI_OPTION = re.compile(r"--(mode|from|until)\b")


class StartRequest(NamedTuple):
    dataset: Dataset
    key: str
    has_file: bool


def parse_start(api: AppContext, head: RequestHead) -> StartRequest:
    dataset = api.dataset(head.parts["dataset"])
    QueryParams(head).finish()
    media = head.headers.get("content-type", "").partition(";")[0].strip().lower()
    key = idempotency_key(head)
    if media not in {"application/json", "multipart/form-data"}:
        types = "application/json, multipart/form-data"
        raise Problem(
            "unsupported-media-type", f"send {types}", headers={"accept": types}
        )
    has_file = media == "multipart/form-data"
    if has_file and not isinstance(dataset.source, CsvSource):
        message = f"{dataset.name} is fetched from its provider; send application/json"
        headers = {"accept": "application/json"}
        raise Problem("unsupported-media-type", message, headers=headers)
    return StartRequest(dataset, key, has_file)


async def start_import(
    api: AppContext, request: Request, requested: StartRequest
) -> Response:
    """Start an import; its planning continues after the response."""
    dataset, key, has_file = requested
    start = start_from_file if has_file else start_from_source
    started = await start(api, request, dataset, key)
    started_import = started.import_
    if started_import.status is ImportStatus.PLANNING:
        plan_in_background(api, request, started_import)
    headers = {"location": f"/api/v1/imports/{started_import.id}", **NO_STORE}
    if started.replayed:
        headers["idempotency-replayed"] = "true"
    return json_response(describe_started(started), status=202, headers=headers)


def plan_in_background(api: AppContext, request: Request, begun: Import) -> None:
    plan = partial(api.penstock.start_import.plan_import, begun.id, api.background.halt)
    # errors are logged with the trace id of this response
    trace_id = request.scope["context"].trace_id
    api.background.submit_once(plan, name=begun.id, trace_id=trace_id)


def describe_started(started: Started) -> Mapping[str, Any]:
    """Describe only what never changes, so that a replayed response is the same."""
    started_import = started.import_
    return {
        "import_id": started_import.id,
        "dataset": started_import.dataset,
        "mode": started_import.mode,
        "resumed": started.resumed,
        "since": None
        if started_import.since is None
        else format_instant(started_import.since),
        "until": format_instant(started_import.until),
        "created_at": format_instant(started_import.created_at),
    }


async def start_from_source(
    api: AppContext, request: Request, dataset: Dataset, key: str
) -> Started:
    import_scope = parse_scope(await read_json(request, max_size=MAX_BODY))
    idempotent = IdempotentRequest(
        scope=scope_of(request, dataset), key=key, digest=digest_of(import_scope)
    )
    start = api.penstock.start_import.of_source
    with without_cli_options():
        return await api.in_thread(partial(start, dataset, import_scope, idempotent))


@contextmanager
def without_cli_options() -> Iterator[None]:
    """Replace the options of the command line in messages by the names in the body."""
    try:
        yield
    except Conflict as error:
        if isinstance(error, RequestInProgress):
            raise
        raise Conflict(CLI_OPTION.sub(r"\1", str(error))) from error


async def start_from_file(
    api: AppContext, request: Request, dataset: Dataset, key: str
) -> Started:
    with api.background.slot("uploads", limit=uploads.MAX_UPLOADS):
        sent = await uploads.receive(api, request, dataset)
        idempotent = IdempotentRequest(
            scope=scope_of(request, dataset),
            key=key,
            digest=digest_of(
                [
                    sent.label,
                    sent.digest,
                    *["all"] * sent.accept_duplicates,
                    *filter(None, [sent.corrects]),
                ]
            ),
            file=sent.file,
        )
        start = api.penstock.start_import.of_file
        work = partial(
            start,
            dataset,
            sent.file,
            idempotent,
            accept_duplicates=sent.accept_duplicates,
            corrects=sent.corrects,
            halt=api.background.halt,
        )
        with report_file_errors(sent):
            return await api.background.run_for_file(work, longest=CHECK_TIMEOUT)


@contextmanager
def report_file_errors(sent: uploads.UploadedFile) -> Iterator[None]:
    """Report errors of a file, with the name that the client gave it."""
    try:
        yield
    except NotFound:
        raise
    except Interrupted as error:
        message = "this process is stopping; send the file again"
        raise Problem("unavailable", message, headers={"retry-after": "5"}) from error
    except (Misconfigured, Rejected, SourceUnavailable) as error:
        raise BadRequest(
            *(
                FieldError(
                    pointer=f"/{uploads.FILE}",
                    code="unfit",
                    detail=with_sent_name(message, sent),
                )
                for message in str(error).splitlines()
            )
        ) from error


def with_sent_name(message: str, sent: uploads.UploadedFile) -> str:
    """Replace the name of a file in the spool by the name that the client gave it.

    And a command by what to send instead.
    """
    message = ACCEPTING_COMMAND.sub(
        f"send {uploads.ACCEPT_DUPLICATES}=true as well", message
    )
    label = sent.label or "the file"
    for name in (sent.file, Path(sent.file).name):
        message = message.replace(name, label)
    return message


def idempotency_key(head: RequestHead) -> str:
    """Return the idempotency key; without one, the request is unique."""
    key = head.headers.get("idempotency-key")
    if key is None:
        return secrets.token_hex(16)
    is_visible = key.isascii() and key.isprintable() and " " not in key
    if not is_visible or not 0 < len(key) <= MAX_KEY_LENGTH:
        message = f"must have 1 to {MAX_KEY_LENGTH} visible ASCII characters"
        raise BadRequest(
            FieldError(pointer="#Idempotency-Key", code="value", detail=message)
        )
    return key


def scope_of(request: Request, dataset: Dataset) -> str:
    """Return the namespace of a key: the client and the dataset."""
    return f"{request.scope.get('principal', '')} imports {dataset.name}"


def digest_of(value: object) -> bytes:
    # stored digests were made when the class had this name
    text = repr(value).replace("ImportScope(", "Scope(", 1)
    # and did not have this attribute
    text = text.replace(", accept_duplicates=False", "")
    return blake2b(text.encode(), digest_size=16).digest()


def parse_scope(document: object) -> ImportScope:
    """Parse what to import; raises all errors at once."""
    if not isinstance(document, dict):
        message = f"must be an object with {', '.join(START_FIELDS)}"
        raise BadRequest(FieldError(pointer="/", code="type", detail=message))
    errors = [
        FieldError(
            pointer=f"/{name}", code="unknown", detail=f"use {', '.join(START_FIELDS)}"
        )
        for name in document.keys() - {*START_FIELDS}
    ]
    mode = document.get("mode", Mode.FULL)
    if mode not in [*Mode]:
        message = f"must be one of {', '.join(Mode)}"
        errors.append(FieldError(pointer="/mode", code="choice", detail=message))
        mode = Mode.FULL
    import_scope = ImportScope(
        mode=Mode(mode),
        since=parse_instant(document, "from", errors),
        until=parse_instant(document, "until", errors),
        accept_duplicates=parse_flag(document, "accept_duplicates", errors),
    )
    errors += check_bounds(import_scope)
    if errors:
        raise BadRequest(*errors)
    return import_scope


def parse_flag(
    document: Mapping[str, Any], name: str, errors: list[FieldError]
) -> bool:
    value = document.get(name, False)
    if not isinstance(value, bool):
        message = "must be true or false"
        errors.append(FieldError(pointer=f"/{name}", code="type", detail=message))
        return False
    return value


def parse_instant(
    document: Mapping[str, Any], name: str, errors: list[FieldError]
) -> datetime | None:
    value = document.get(name)
    if value is None:
        return None
    instant = parse_json_timestamp(value) if isinstance(value, str) else None
    if instant is None or value.startswith(("0", "9")):
        message = "must be a time with a zone, such as 2026-01-31T12:00:00Z"
        errors.append(FieldError(pointer=f"/{name}", code="type", detail=message))
        return None
    return instant


def check_bounds(import_scope: ImportScope) -> Iterator[FieldError]:
    """Yield errors for bounds that a mode does not take, and for a missing one."""
    mode, since, until = import_scope.mode, import_scope.since, import_scope.until
    if since is not None and mode is Mode.FULL:
        message = "belongs to the modes delta and backfill"
        yield FieldError(pointer="/from", code="misplaced", detail=message)
    if until is not None and mode is not Mode.BACKFILL:
        message = "belongs to the mode backfill"
        yield FieldError(pointer="/until", code="misplaced", detail=message)
    if import_scope.accept_duplicates and mode is not Mode.FULL:
        message = "belongs to the mode full"
        yield FieldError(pointer="/accept_duplicates", code="misplaced", detail=message)
    if since is None and mode is Mode.BACKFILL:
        message = "is missing; a backfill needs the time where it starts"
        yield FieldError(pointer="/from", code="missing", detail=message)


async def start_maintenance(api: AppContext) -> None:
    """Start the maintenance loop, which also resumes interrupted planning."""
    resume = PlanInterruptedImports(api.penstock, api.background)
    planning = planning_task(api.penstock, resume)
    maintenance = build_maintenance(api.penstock, [planning])
    api.background.run_periodically(
        maintenance,
        every=MAINTENANCE_INTERVAL,
        then=partial(maintenance.close, cancel=True),
    )


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="POST",
            path="/api/v1/datasets/{dataset}/imports",
            scope=AccessScope.OPERATE,
            lane=Lane.WRITES,
            summary="Start an import, from the declared source or an uploaded file",
            parse=parse_start,
            handle=start_import,
            describe=describe_start,
            operation="start{}Import",
        ),
    ]
