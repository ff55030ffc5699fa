"""Schedules: list, create, change and delete them, pause and run them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.formats import format_instant, parse_instant
from penstock.domain.jobs import Import
from penstock.domain.scheduling.schedule import (
    AfterTrigger,
    Schedule,
    ScheduleDeclaration,
)
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.openapi import schedule_shapes as shapes
from penstock.entrypoints.api.openapi.schemas import ref
from penstock.entrypoints.api.params.query_params import QueryParams
from penstock.entrypoints.api.params.request_body import read_json, refuse_body
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.problems import Problem
from penstock.entrypoints.api.resources import start_import
from penstock.entrypoints.api.responses import NO_STORE, json_response, page_response
from penstock.entrypoints.schedule_report import (
    describe_fires,
    describe_schedule,
    upcoming_fires,
)
from penstock.errors import BadRequest, Conflict, FieldError, NotFound
from penstock.flow.start_import import as_conflict
from penstock.ports.schedules import (
    FireId,
    ScheduleFilter,
    ScheduleOrder,
    ScheduleOrigin,
    SchedulePosition,
    ScheduleStatus,
    StoredSchedule,
)
from penstock.settings.schedules import circle_rules, parse_schedule

MAX_BODY = 16 * 1024
NAME = re.compile(shapes.NAME_PATTERN)
NOTE = re.compile(shapes.NOTE_PATTERN)
TAG = re.compile(r'"[^"]*"')
# stored schedules that are read at a time, to find circles
BATCH = 1_000
# a fire may change a schedule while a client does
MAX_TRIES = 3

Document: TypeAlias = Mapping[str, Any]


class ScheduleListRequest(NamedTuple):
    filter: ScheduleFilter
    order: ScheduleOrder
    after: SchedulePosition | None
    limit: int


class FireListRequest(NamedTuple):
    name: str
    before: FireId | None
    limit: int


def parse_list(api: AppContext, head: RequestHead) -> ScheduleListRequest:
    del api
    params = QueryParams(head, "status", "dataset", "sort", "cursor", "limit")
    chosen = ScheduleFilter(
        status=params.choice("status", ScheduleStatus), dataset=params.text("dataset")
    )
    order = params.choice("sort", ScheduleOrder) or ScheduleOrder.NAME
    after = None
    cursor = params.text("cursor")
    if cursor is not None:
        after = parse_cursor(cursor, order)
        if after is None:
            message = "is none of this list; send `page.next` with the same sort"
            params.add_error("cursor", "cursor", message)
    limit = read_limit(params)
    params.finish()
    return ScheduleListRequest(chosen, order, after, limit)


def read_limit(params: QueryParams) -> int:
    limit = params.integer("limit", minimum=1, maximum=shapes.MAX_SCHEDULES)
    return limit or shapes.DEFAULT_SCHEDULES


def parse_cursor(text: str, order: ScheduleOrder) -> SchedulePosition | None:
    """Parse a name, or a time and a name."""
    time, _, name = text.rpartition(",")
    if NAME.fullmatch(name) is None or bool(time) is (order is ScheduleOrder.NAME):
        return None
    # years that no zone can be added to
    at = None if time.startswith(("0", "9")) else parse_instant(time)
    if time and at is None:
        return None
    return SchedulePosition(name=name, at=at)


def write_cursor(stored: StoredSchedule, order: ScheduleOrder) -> str:
    times = {
        ScheduleOrder.NEXT_RUN: stored.next_run_at,
        ScheduleOrder.LAST_RUN: stored.last_run_at,
        ScheduleOrder.CREATION: stored.created_at,
    }
    at = times.get(order)
    return stored.name if at is None else f"{format_instant(at)},{stored.name}"


async def list_schedules(
    api: AppContext, request: Request, requested: ScheduleListRequest
) -> Response:
    chosen, order, after, limit = requested

    def read_page() -> tuple[list[Document], str | None]:
        found = api.penstock.stores.schedules.find(
            chosen, order=order, after=after, limit=limit + 1
        )
        page = found[:limit]
        last = write_cursor(page[-1], order) if len(found) > limit else None
        return [summarize_schedule(api, stored) for stored in page], last

    items, last = await api.in_thread(read_page)
    return page_response(request, items, following=("cursor", last), limit=limit)


def summarize_schedule(api: AppContext, stored: StoredSchedule) -> dict[str, Any]:
    schedule, _ = api.penstock.parse_schedule(stored.declaration)
    return redacted(api, describe_schedule(stored, schedule))


def redacted(api: AppContext, document: dict[str, Any]) -> dict[str, Any]:
    """Return a document without secrets in what errors have said."""
    redact = api.penstock.settings.redact
    texts = {
        name: redact(document[name])
        for name in ("note", "conflict", "detail")
        if document.get(name) is not None
    }
    return {**document, **texts}


def describe_one(api: AppContext, stored: StoredSchedule) -> Document:
    schedule, _ = api.penstock.parse_schedule(stored.declaration)
    now = api.penstock.stores.jobs.now()
    upcoming = [] if schedule is None else upcoming_fires(schedule, now)
    return {**summarize_schedule(api, stored), "upcoming": upcoming}


async def schedule_response(
    api: AppContext, stored: StoredSchedule, *, status: int = 200
) -> Response:
    document = await api.in_thread(partial(describe_one, api, stored))
    headers = {"etag": tag_of(stored), **NO_STORE}
    if status == 201:  # noqa: PLR2004 (created)
        headers["location"] = f"/api/v1/schedules/{stored.name}"
    return json_response(document, status=status, headers=headers)


def tag_of(stored: StoredSchedule) -> str:
    return f'"{stored.revision}"'


def parse_name(api: AppContext, head: RequestHead) -> str:
    del api
    QueryParams(head).finish()
    return name_in_path(head)


def name_in_path(head: RequestHead) -> str:
    name = head.parts["name"]
    if NAME.fullmatch(name) is None:
        raise NotFound(f"there is no schedule {name[:48]!r}", among="schedules")
    return name


def parse_nothing(api: AppContext, head: RequestHead) -> None:
    del api
    QueryParams(head).finish()


async def get_schedule(api: AppContext, request: Request, name: str) -> Response:
    del request
    find = partial(api.penstock.stores.schedules.get, name)
    return await schedule_response(api, await api.in_thread(find))


async def create_schedule(api: AppContext, request: Request, query: None) -> Response:
    del query
    document = await read_object(request)
    name = document.pop("name", None)
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        message = "must have a to z, 0 to 9, _ and -, begin with a letter, at most 48"
        code = "missing" if name is None else "value"
        raise BadRequest(FieldError(pointer="/name", code=code, detail=message))
    stored = await api.in_thread(partial(create, api, name, document))
    return await schedule_response(api, stored, status=201)


def create(api: AppContext, name: str, fields: Document) -> StoredSchedule:
    if name in api.penstock.settings.schedules:
        raise Conflict(f"schedule {name!r} is declared in penstock.toml")
    schedule, declaration = check_fields(api, name, fields)
    return api.penstock.stores.schedules.create(schedule, declaration)


async def read_object(request: Request) -> dict[str, Any]:
    document = await read_json(request, max_size=MAX_BODY)
    if not isinstance(document, dict):
        message = "must be an object with the fields of a schedule"
        raise BadRequest(FieldError(pointer="/", code="type", detail=message))
    return document


def check_fields(
    api: AppContext, name: str, fields: Document
) -> tuple[Schedule, ScheduleDeclaration]:
    """Parse the fields of a schedule; raises all errors with their places."""
    absent = [
        FieldError(pointer=pointer_to(key), code="type", detail="must not be null")
        for key, value in fields.items()
        if value is None
    ]
    if absent:
        raise BadRequest(*absent)
    whole = {key: as_whole(value) for key, value in fields.items()}
    schedule, problems = parse_schedule(name, whole, api.penstock.settings.datasets)
    if schedule is not None:
        problems += find_circles(api, schedule)
    if schedule is None or problems:
        raise BadRequest(
            *(
                FieldError(pointer=pointer_to(*at), code="value", detail=message)
                for at, message in problems
            )
        )
    declaration = ScheduleDeclaration(
        name=schedule.name, dataset=schedule.dataset, fields=whole
    )
    return schedule, declaration


def as_whole(value: object) -> object:
    """Return an integer as JSON Schema defines it: 7.0 is one."""
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if is_whole and isinstance(value, float) else value


def pointer_to(*path: str | int) -> str:
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return "/" + "/".join(steps)


def find_circles(
    api: AppContext, schedule: Schedule
) -> list[tuple[tuple[str | int, ...], str]]:
    """Return why a schedule would start itself, with those that are stored."""
    if not isinstance(schedule.trigger, AfterTrigger):
        return []
    others: dict[str, Schedule] = {
        other.name: other
        for declaration in following_schedules(api)
        if (other := api.penstock.parse_schedule(declaration)[0]) is not None
    }
    found = circle_rules({**others, schedule.name: schedule})
    return [(tuple(at), text) for (name, *at), text in found if name == schedule.name]


def following_schedules(api: AppContext) -> Iterator[ScheduleDeclaration]:
    """Yield the schedules that fire after imports, declared or created."""
    yield from api.penstock.settings.schedules.values()
    after = None
    while found := api.penstock.stores.schedules.find(
        ScheduleFilter(), after=after, limit=BATCH
    ):
        for stored in found:
            is_retired = stored.status is ScheduleStatus.RETIRED
            if "after" in stored.declaration.fields and not is_retired:
                yield stored.declaration
        after = SchedulePosition(name=found[-1].name)


async def patch_schedule(api: AppContext, request: Request, name: str) -> Response:
    """Change the fields of a created schedule; null removes one."""
    changes = await read_object(request)
    match = read_match(request)
    stored = await api.in_thread(partial(change, api, name, changes, match))
    return await schedule_response(api, stored)


def change(
    api: AppContext, name: str, changes: Document, match: frozenset[str] | None
) -> StoredSchedule:
    for _ in range(MAX_TRIES - 1):
        # a fire has changed it meanwhile
        with suppress(Conflict):
            return change_once(api, name, changes, match)
    return change_once(api, name, changes, match)


def change_once(
    api: AppContext, name: str, changes: Document, match: frozenset[str] | None
) -> StoredSchedule:
    schedules = api.penstock.stores.schedules
    stored = schedules.get(name)
    refuse_declared(stored)
    refuse_other_version(stored, match)
    merged = {**stored.declaration.fields, **changes}
    fields = {key: value for key, value in merged.items() if value is not None}
    schedule, declaration = check_fields(api, name, fields)
    return schedules.change(schedule, declaration, revision=stored.revision)


def refuse_declared(stored: StoredSchedule) -> None:
    is_declared = stored.origin is ScheduleOrigin.DECLARED
    if is_declared and stored.status is not ScheduleStatus.RETIRED:
        raise Conflict(f"schedule {stored.name!r} is declared in penstock.toml")


def read_match(request: Request) -> frozenset[str] | None:
    """Return the versions of If-Match; None for any."""
    lines = request.headers.getlist("if-match")
    if not lines or lines == ["*"]:
        return None
    # weak ones never match (RFC 9110)
    return frozenset(
        tag.strip()
        for line in lines
        for tag in line.split(",")
        if TAG.fullmatch(tag.strip())
    )


def refuse_other_version(stored: StoredSchedule, match: frozenset[str] | None) -> None:
    if match is not None and tag_of(stored) not in match:
        message = f"schedule {stored.name!r} has the version {tag_of(stored)}"
        raise Problem("version-changed", message)


async def delete_schedule(api: AppContext, request: Request, name: str) -> Response:
    """Delete a created or retired schedule with its history."""
    await refuse_body(request)
    await api.in_thread(partial(delete, api, name, read_match(request)))
    return Response(status_code=204, headers=NO_STORE)


def delete(api: AppContext, name: str, match: frozenset[str] | None) -> None:
    schedules = api.penstock.stores.schedules
    stored = schedules.get(name)
    refuse_declared(stored)
    refuse_other_version(stored, match)
    schedules.delete(name, revision=None if match is None else stored.revision)


def parse_fires(api: AppContext, head: RequestHead) -> FireListRequest:
    del api
    params = QueryParams(head, "before", "limit")
    before, limit = params.id("before"), read_limit(params)
    params.finish()
    name = name_in_path(head)
    return FireListRequest(name, None if before is None else FireId(before), limit)


async def list_fires(
    api: AppContext, request: Request, requested: FireListRequest
) -> Response:
    name, before, limit = requested

    def read_page() -> tuple[list[Document], int | None]:
        schedules = api.penstock.stores.schedules
        # raises if there is no such schedule
        schedules.get(name)
        found = schedules.fires(name, before=before, limit=limit + 1)
        page = found[:limit]
        last = page[-1].id if len(found) > limit else None
        return [redacted(api, fire) for fire in describe_fires(page)], last

    items, last = await api.in_thread(read_page)
    return page_response(request, items, following=("before", last), limit=limit)


async def pause_schedule(api: AppContext, request: Request, name: str) -> Response:
    """Pause a schedule until it is resumed; its fires are skipped."""
    note = await read_note(request)
    return await set_status(api, name, ScheduleStatus.PAUSED, note)


async def read_note(request: Request) -> str:
    default = "paused by a client of the API"
    if "content-type" not in request.headers:
        await refuse_body(request)
        return default
    document = await read_object(request)
    errors = [
        FieldError(pointer=pointer_to(name), code="unknown", detail="use note")
        for name in document.keys() - {"note"}
    ]
    note = document.get("note", default)
    is_valid = isinstance(note, str) and NOTE.fullmatch(note) is not None
    if not is_valid or len(note) > shapes.MAX_NOTE_LENGTH:
        message = f"must be text on one line, at most {shapes.MAX_NOTE_LENGTH} long"
        errors.append(FieldError(pointer="/note", code="type", detail=message))
    if errors:
        raise BadRequest(*errors)
    return str(note)


async def resume_schedule(api: AppContext, request: Request, name: str) -> Response:
    """Resume a schedule; skipped fires are not made up for."""
    await refuse_body(request)
    return await set_status(api, name, ScheduleStatus.ACTIVE, None)


async def set_status(
    api: AppContext, name: str, status: ScheduleStatus, note: str | None
) -> Response:
    set_stored = api.penstock.stores.schedules.set_status
    stored = await api.in_thread(partial(set_stored, name, status, note=note))
    return await schedule_response(api, stored)


async def run_schedule(api: AppContext, request: Request, name: str) -> Response:
    """Begin an import now; its planning continues after the response."""
    await refuse_body(request)

    def begin() -> Import:
        with as_conflict(api.penstock.settings.redact):
            return api.penstock.run_schedule(name)

    begun = await api.in_thread(begin)
    return begun_response(api, request, name, begun)


async def backfill_schedule(api: AppContext, request: Request, name: str) -> Response:
    """Import a time range, also one that was imported before."""
    document = await read_object(request)
    errors = [
        FieldError(pointer=pointer_to(key), code="unknown", detail="use from, until")
        for key in document.keys() - {"from", "until"}
    ]
    since = start_import.parse_instant(document, "from", errors)
    until = start_import.parse_instant(document, "until", errors)
    errors += [
        FieldError(pointer=f"/{key}", code="missing", detail="is missing")
        for key in ("from", "until")
        if document.get(key) is None
    ]
    if since is not None and until is not None and until <= since:
        message = "must be later than from"
        errors.append(FieldError(pointer="/until", code="value", detail=message))
    if errors or since is None or until is None:
        raise BadRequest(*errors)

    def begin() -> Import:
        with as_conflict(api.penstock.settings.redact):
            return api.penstock.run_schedule.backfill(name, since, until)

    with start_import.without_cli_options():
        begun = await api.in_thread(begin)
    return begun_response(api, request, name, begun)


def begun_response(
    api: AppContext, request: Request, name: str, begun: Import
) -> Response:
    start_import.plan_in_background(api, request, begun)
    document = {
        "import_id": begun.id,
        "schedule": name,
        "dataset": begun.dataset,
        "mode": begun.mode,
        "since": begun.since,
        "until": begun.until,
        "created_at": begun.created_at,
    }
    headers = {"location": f"/api/v1/imports/{begun.id}", **NO_STORE}
    return json_response(document, status=202, headers=headers)


def endpoints() -> Sequence[AnyEndpoint]:
    return [*reading_endpoints(), *changing_endpoints(), *acting_endpoints()]


SCHEDULES = "/api/v1/schedules"
ONE = SCHEDULES + "/{name}"


def reading_endpoints() -> Iterator[AnyEndpoint]:
    yield Endpoint(
        method="GET",
        path=SCHEDULES,
        scope=AccessScope.READ,
        lane=Lane.READS,
        summary="List schedules",
        parse=parse_list,
        handle=list_schedules,
        parameters=shapes.LIST_PARAMETERS,
        responses=shapes.LIST_RESPONSES,
    )
    yield Endpoint(
        method="GET",
        path=ONE,
        scope=AccessScope.READ,
        lane=Lane.READS,
        summary="Get a schedule with its next fires",
        parse=parse_name,
        handle=get_schedule,
        responses=shapes.GET_RESPONSES,
    )
    yield Endpoint(
        method="GET",
        path=f"{ONE}/fires",
        scope=AccessScope.READ,
        lane=Lane.READS,
        summary="List what happened to the fires of a schedule, newest first",
        parse=parse_fires,
        handle=list_fires,
        parameters=shapes.FIRE_PARAMETERS,
        responses=shapes.FIRES_RESPONSES,
    )


def changing_endpoints() -> Iterator[AnyEndpoint]:
    yield Endpoint(
        method="POST",
        path=SCHEDULES,
        scope=AccessScope.OPERATE,
        lane=Lane.WRITES,
        summary="Create a schedule, with the fields of `[schedules.NAME]`",
        parse=parse_nothing,
        handle=create_schedule,
        body=ref("NewSchedule"),
        responses=shapes.CREATE_RESPONSES,
    )
    yield Endpoint(
        method="PATCH",
        path=ONE,
        scope=AccessScope.OPERATE,
        lane=Lane.WRITES,
        summary="Change fields of a created schedule",
        parse=parse_name,
        handle=patch_schedule,
        parameters=[shapes.IF_MATCH],
        body=ref("ScheduleChange"),
        responses=shapes.CHANGE_RESPONSES,
    )
    yield Endpoint(
        method="DELETE",
        path=ONE,
        scope=AccessScope.OPERATE,
        lane=Lane.WRITES,
        summary="Delete a created or retired schedule",
        parse=parse_name,
        handle=delete_schedule,
        parameters=[shapes.IF_MATCH],
        responses=shapes.DELETE_RESPONSES,
    )


def acting_endpoints() -> Iterator[AnyEndpoint]:
    yield Endpoint(
        method="POST",
        path=f"{ONE}/pause",
        scope=AccessScope.OPERATE,
        lane=Lane.WRITES,
        summary="Pause a schedule, also one of penstock.toml",
        parse=parse_name,
        handle=pause_schedule,
        body=shapes.PAUSE_REQUEST,
        responses=shapes.STATUS_RESPONSES,
    )
    yield Endpoint(
        method="POST",
        path=f"{ONE}/resume",
        scope=AccessScope.OPERATE,
        lane=Lane.WRITES,
        summary="Resume a paused schedule",
        parse=parse_name,
        handle=resume_schedule,
        responses=shapes.STATUS_RESPONSES,
    )
    yield Endpoint(
        method="POST",
        path=f"{ONE}/run",
        scope=AccessScope.OPERATE,
        lane=Lane.WRITES,
        summary="Begin an import of a schedule now, also while it is paused",
        parse=parse_name,
        handle=run_schedule,
        responses=shapes.BEGIN_RESPONSES,
    )
    yield Endpoint(
        method="POST",
        path=f"{ONE}/backfill",
        scope=AccessScope.OPERATE,
        lane=Lane.WRITES,
        summary="Import a time range for a schedule, also one imported before",
        parse=parse_name,
        handle=backfill_schedule,
        body=shapes.BACKFILL_REQUEST,
        responses=shapes.BEGIN_RESPONSES,
    )
