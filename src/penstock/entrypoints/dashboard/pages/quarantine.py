"""The bad rows of a dataset, by reason, and as they came."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.auth_claims import AccessScope
from penstock.domain.dataset import Dataset
from penstock.domain.source import CsvSource
from penstock.entrypoints.api.context import AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint, Endpoint, Lane
from penstock.entrypoints.api.params.query_params import MAX_ID, QueryParams
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.dashboard.rendering import View, send_page
from penstock.entrypoints.exports.rejected_rows import position_of
from penstock.ports import QuarantinedRow

LIMIT = 100
# characters of a raw row
MAX_RAW = 4_000


class QuarantineRequest(NamedTuple):
    dataset: Dataset
    # the row after which the page begins
    after: int


def parse_page(api: AppContext, head: RequestHead) -> QuarantineRequest:
    dataset = api.dataset(head.parts["dataset"])
    params = QueryParams(head, "after")
    after = params.integer("after", minimum=0, maximum=MAX_ID) or 0
    params.finish()
    return QuarantineRequest(dataset, after)


async def show(
    api: AppContext, request: Request, requested: QuarantineRequest
) -> Response:
    return await send_page(api, request, partial(build_quarantine, api, requested))


def build_quarantine(api: AppContext, requested: QuarantineRequest) -> View:
    dataset, after = requested
    stores = api.penstock.stores
    found = stores.records.quarantine(dataset, after=after, limit=LIMIT + 1)
    shown = found[:LIMIT]
    total = {row.dataset: row.bad_rows for row in stores.jobs.problems()}
    values = {
        "now": stores.jobs.now(),
        "dataset": dataset,
        "after": after,
        "total": total.get(dataset.name, 0),
        "rows": [describe_row(dataset, row) for row in shown],
        "reasons": Counter(
            (row.rejection.reason.value, row.rejection.field) for row in shown
        ).most_common(),
        "following": shown[-1].id if len(found) > LIMIT else None,
        "datasets": sorted(api.penstock.settings.datasets),
    }
    return View("quarantine.html", f"Bad rows of {dataset.name}", "quarantine", values)


def describe_row(dataset: Dataset, row: QuarantinedRow) -> Mapping[str, Any]:
    rejection = row.rejection
    position = position_of(row) if isinstance(dataset.source, CsvSource) else {}
    place = row.shard_key
    if position.get("file") is not None:
        place = f"{position['file']}, line {position['line']}"
    raw = rejection.raw.decode("utf-8", errors="replace")
    return {
        "row": row,
        "place": place,
        "reason": rejection.reason.value,
        "field": rejection.field,
        "detail": rejection.detail,
        "raw": raw[:MAX_RAW],
        "is_cut": len(raw) > MAX_RAW,
    }


def endpoints() -> Sequence[AnyEndpoint]:
    return [
        Endpoint(
            method="GET",
            path="/quarantine/{dataset}",
            scope=AccessScope.READ,
            lane=Lane.READS,
            summary="The dashboard's page of a dataset's bad rows",
            parse=parse_page,
            handle=show,
            operation="showQuarantine",
        )
    ]
