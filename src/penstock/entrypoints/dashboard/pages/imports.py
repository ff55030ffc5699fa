"""Imports: a list of them, and one with the coverage of its shards."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.formats import parse_instant
from penstock.domain.jobs import Import, ImportId, ImportStatus, Job, JobStatus, Shards
from penstock.domain.source import CsvSource
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.params.query_params import QueryParams, id_in_path
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.resources.imports import ImportListRequest, parse_list
from penstock.entrypoints.dashboard.pages.matrix import (
    MAX_CELLS,
    build_matrix,
    count_states,
)
from penstock.entrypoints.dashboard.pages.timeline import OUTCOMES, read_timeline
from penstock.entrypoints.dashboard.rendering import View, send_page
from penstock.ports import JobFilter

# buckets of the bar of all shards; a narrow screen shows about as many pixels
MAX_BUCKETS = 400
MAX_PARTS = 60
MAX_JOBS = 10
# a larger import has its matrix on the page of its shards only
MAX_MATRIX_SHARDS = 10_000
LIST_LIMIT = 50
# bad rows of an import that are counted by reason
MAX_COUNTED = 10_000
STATES = {
    ImportStatus.PLANNING: "waiting",
    ImportStatus.RUNNING: "running",
    ImportStatus.DONE: "done",
    ImportStatus.FAILED: "failed",
    ImportStatus.CANCELLED: "idle",
}
UNFINISHED = (ImportStatus.PLANNING, ImportStatus.RUNNING)


class Segment(NamedTuple):
    """A part of a bar in one state, in units of the bar's width."""

    state: str
    x: float
    width: float
    # of the height, from the bottom
    y: float
    height: float


async def show_list(
    api: AppContext, request: Request, requested: ImportListRequest
) -> Response:
    return await send_page(api, request, partial(build_list, api, requested))


def build_list(api: AppContext, requested: ImportListRequest) -> View:
    stores = api.penstock.stores
    found = stores.imports.recent(
        dataset=requested.dataset,
        status=requested.status,
        before=requested.before,
        limit=LIST_LIMIT + 1,
    )
    shown = found[:LIST_LIMIT]
    values = {
        "now": stores.jobs.now(),
        "imports": shown,
        "states": STATES,
        "requested": requested,
        "datasets": sorted(api.penstock.settings.datasets),
        "statuses": [*ImportStatus],
        "following": shown[-1][0].id if len(found) > LIST_LIMIT else None,
    }
    return View("imports.html", "Imports", "imports", values)


class ImportRequest(NamedTuple):
    id: ImportId
    # the timeline has claims that began before; None: the last ones
    before: datetime | None


def parse_import(api: AppContext, head: RequestHead) -> ImportRequest:
    del api
    params = QueryParams(head, "before")
    text = params.text("before")
    before = parse_instant(text)
    if text is not None and before is None:
        params.add_error("before", "type", "must be a time such as 2026-03-01T12:00Z")
    params.finish()
    return ImportRequest(ImportId(id_in_path(head, "import")), before)


async def show_import(
    api: AppContext, request: Request, requested: ImportRequest
) -> Response:
    return await send_page(api, request, partial(build_import, api, requested))


def build_import(api: AppContext, requested: ImportRequest) -> View:
    stores = api.penstock.stores
    import_id = requested.id
    now = stores.jobs.now()
    import_, shards = stores.imports.get(import_id)
    document = api.progress_tracker.document_with_progress(import_id)
    buckets = stores.coverage.buckets(import_id, count=MAX_BUCKETS)
    parts = stores.coverage.parts(import_id, limit=MAX_PARTS + 1)
    dataset = api.penstock.settings.datasets.get(import_.dataset)
    timeline = read_timeline(stores.claims, import_id, now, before=requested.before)
    values = {
        "now": now,
        "timeline": timeline,
        "matrix": build_matrix(
            stores.coverage.matrix(import_id, cells=MAX_CELLS)
            if shards.total <= MAX_MATRIX_SHARDS
            else ()
        ),
        "chosen_jobs": None,
        "outcomes": OUTCOMES,
        "requested": requested,
        "import": import_,
        "shards": shards,
        "state": STATES[import_.status],
        "progress": document["progress"],
        "note": document["note"],
        "waiting": api.penstock.explain_waiting(import_),
        "segments": [*draw_buckets(buckets)],
        "bucket_count": max(len(buckets), 1),
        "parts_list": parts[:MAX_PARTS],
        "has_more_parts": len(parts) > MAX_PARTS,
        "failed_jobs": describe_jobs(api, import_, JobStatus.FAILED),
        "dataset": dataset,
        "has_files": dataset is not None and isinstance(dataset.source, CsvSource),
        "is_unfinished": import_.status in UNFINISHED,
        "reasons": stores.records.rejections_by_reason(import_id)
        if 0 < import_.counts.quarantined <= MAX_COUNTED
        else (),
    }
    return View("import.html", f"Import {import_id}", "imports", values)


def draw_buckets(buckets: Sequence[Shards]) -> Iterator[Segment]:
    """Yield the segments of a bar; buckets in a row in one state are one segment.

    A bucket in several states is filled in proportion, so that one failed shard does
    not paint a thousand.
    """
    start, state = 0, None
    for number, bucket in enumerate([*buckets, None]):
        levels = [] if bucket is None else count_states(bucket)
        single = levels[0][0] if len(levels) == 1 else None
        if state is not None and single != state:
            yield Segment(state, start, number - start, 0, 1)
        if single != state or single is None:
            start, state = number, single
        if single is None:
            yield from stack(levels, number)


def stack(levels: Sequence[tuple[str, int]], x: int) -> Iterator[Segment]:
    total = sum(count for _, count in levels)
    y = 0.0
    for state, count in levels:
        yield Segment(state, x, 1, y, count / total)
        y += count / total


def describe_jobs(
    api: AppContext, import_: Import, status: JobStatus
) -> list[dict[str, Any]]:
    redact = api.penstock.settings.redact
    chosen = JobFilter(import_id=import_.id, status=status)
    jobs = api.penstock.stores.jobs.find(chosen, after=None, limit=MAX_JOBS)
    return [{"job": job, "error": last_error(job, redact)} for job in jobs]


def last_error(job: Job, redact: Any) -> str:
    return redact(job.errors[-1].message) if job.errors else ""


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/imports",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="The dashboard's list of imports",
            parse=parse_list,
            handle=show_list,
            operation="showImports",
        ),
        Endpoint(
            method="GET",
            path="/imports/{import}",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="The dashboard's page of an import",
            parse=parse_import,
            handle=show_import,
            operation="showImport",
        ),
    ]
