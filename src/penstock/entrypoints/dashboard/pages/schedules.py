"""Schedules: a list of them, and one with its next fires and what became of others."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.scheduling.fires import FireOutcome
from penstock.domain.scheduling.schedule import Schedule
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.resources.schedules import parse_name, parse_nothing
from penstock.entrypoints.dashboard.rendering import View, send_page
from penstock.entrypoints.schedule_report import describe_trigger
from penstock.ports.schedules import ScheduleFilter, ScheduleStatus, StoredSchedule

MAX_SCHEDULES = 200
NEXT_FIRES = 10
PAST_FIRES = 50
STATES = {
    ScheduleStatus.ACTIVE: "done",
    ScheduleStatus.PAUSED: "waiting",
    ScheduleStatus.BROKEN: "failed",
    ScheduleStatus.ENDED: "idle",
    ScheduleStatus.RETIRED: "idle",
}
OUTCOMES = {
    FireOutcome.STARTED: "done",
    FireOutcome.WAITING: "waiting",
    FireOutcome.SKIPPED: "idle",
    FireOutcome.MISSED: "failed",
}


async def show_list(api: AppContext, request: Request, query: None) -> Response:
    del query
    return await send_page(api, request, partial(build_list, api))


def build_list(api: AppContext) -> View:
    stores = api.penstock.stores
    found = stores.schedules.find(ScheduleFilter(), limit=MAX_SCHEDULES + 1)
    names = {stored.name for stored in found}
    declared = api.penstock.settings.schedules
    values = {
        "now": stores.jobs.now(),
        "rows": [describe_row(api, stored) for stored in found[:MAX_SCHEDULES]],
        "has_more": len(found) > MAX_SCHEDULES,
        "not_stored": sorted(set(declared) - names)
        if len(found) <= MAX_SCHEDULES
        else [],
        "states": STATES,
    }
    return View("schedules.html", "Schedules", "schedules", values)


def describe_row(api: AppContext, stored: StoredSchedule) -> Mapping[str, Any]:
    schedule, _ = api.penstock.parse_schedule(stored.declaration)
    words = "unreadable" if schedule is None else describe_trigger(schedule)
    return {"stored": stored, "words": words}


async def show_schedule(api: AppContext, request: Request, name: str) -> Response:
    return await send_page(api, request, partial(build_schedule, api, name))


def build_schedule(api: AppContext, name: str) -> View:
    stores = api.penstock.stores
    stored = stores.schedules.get(name)
    schedule, problem = api.penstock.parse_schedule(stored.declaration)
    now = stores.jobs.now()
    values = {
        "now": now,
        "stored": stored,
        "state": STATES[stored.status],
        "words": "unreadable" if schedule is None else describe_trigger(schedule),
        "problem": None if problem is None else api.penstock.settings.redact(problem),
        "next_fires": next_fires(schedule, now),
        "zone": "UTC" if schedule is None else schedule.zone.key,
        "fires": stores.schedules.fires(name, limit=PAST_FIRES),
        "outcomes": OUTCOMES,
        "can_pause": stored.status in {ScheduleStatus.ACTIVE, ScheduleStatus.BROKEN},
        "can_resume": stored.status is ScheduleStatus.PAUSED,
        "can_run": stored.status in {ScheduleStatus.ACTIVE, ScheduleStatus.PAUSED},
    }
    return View("schedule.html", f"Schedule {name}", "schedules", values)


def next_fires(schedule: Schedule | None, now: datetime) -> list[Mapping[str, Any]]:
    if schedule is None:
        return []
    fires = islice(schedule.trigger.fires_after(now), NEXT_FIRES)
    return [
        {
            "at": fire,
            "local": fire.astimezone(schedule.zone),
            "exception": schedule.exception_at(fire),
        }
        for fire in fires
    ]


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/schedules",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="The dashboard's list of schedules",
            parse=parse_nothing,
            handle=show_list,
            operation="showSchedules",
        ),
        Endpoint(
            method="GET",
            path="/schedules/{name}",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="The dashboard's page of a schedule",
            parse=parse_name,
            handle=show_schedule,
            operation="showSchedule",
        ),
    ]
