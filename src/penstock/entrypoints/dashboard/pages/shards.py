"""The shards of an import: a matrix of two axes, and a list of what is missing."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.jobs import ImportId, Job, JobId
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.params.query_params import (
    MAX_ID,
    QueryParams,
    id_in_path,
)
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.dashboard.pages.imports import STATES as IMPORT_STATES
from penstock.entrypoints.dashboard.pages.imports import last_error
from penstock.entrypoints.dashboard.pages.jobs import STATES
from penstock.entrypoints.dashboard.pages.matrix import (
    MAX_CELLS,
    build_matrix,
    name_cell,
)
from penstock.entrypoints.dashboard.rendering import View, send_page
from penstock.ports.coverage import JobRange

LIST_LIMIT = 50


class Shown(StrEnum):
    """Which shards are listed."""

    MISSING = "missing"
    ALL = "all"


class ShardsRequest(NamedTuple):
    import_id: ImportId
    within: JobRange | None
    show: Shown
    after: JobId | None


def parse_shards(api: AppContext, head: RequestHead) -> ShardsRequest:
    del api
    params = QueryParams(head, "first", "last", "show", "after")
    first, last = params.id("first"), params.id("last")
    if (first is None) != (last is None):
        params.add_error("first", "missing", "needs ?last, and ?last needs ?first")
    show = params.choice("show", Shown) or Shown.MISSING
    after = params.integer("after", minimum=0, maximum=MAX_ID)
    params.finish()
    return ShardsRequest(
        ImportId(id_in_path(head, "import")),
        None if first is None or last is None else JobRange(JobId(first), JobId(last)),
        show,
        None if after is None else JobId(after),
    )


async def show_shards(
    api: AppContext, request: Request, requested: ShardsRequest
) -> Response:
    return await send_page(api, request, partial(build_shards, api, requested))


def build_shards(api: AppContext, requested: ShardsRequest) -> View:
    stores = api.penstock.stores
    import_, shards = stores.imports.get(requested.import_id)
    found = stores.coverage.jobs(
        import_.id,
        within=requested.within,
        only_missing=requested.show is Shown.MISSING,
        after=requested.after,
        limit=LIST_LIMIT + 1,
    )
    page = found[:LIST_LIMIT]
    cells = stores.coverage.matrix(import_.id, cells=MAX_CELLS)
    chosen = next((cell for cell in cells if cell.jobs == requested.within), None)
    values = {
        "import": import_,
        "shards": shards,
        "import_state": IMPORT_STATES[import_.status],
        "states": STATES,
        "requested": requested,
        "matrix": build_matrix(cells),
        "chosen": None if chosen is None else name_cell(chosen),
        "chosen_jobs": requested.within,
        "rows": [describe_row(api, job) for job in page],
        "following": page[-1].id if len(found) > LIST_LIMIT else None,
    }
    return View("shards.html", f"Shards of import {import_.id}", "imports", values)


def describe_row(api: AppContext, job: Job) -> Mapping[str, Any]:
    return {"job": job, "error": last_error(job, api.penstock.settings.redact)}


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/imports/{import}/shards",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="The dashboard's page of an import's shards",
            parse=parse_shards,
            handle=show_shards,
            operation="showShards",
        )
    ]
