"""The bad rows of a dataset, by reason, and as they came."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
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
from penstock.ports import QuarantinedRow, ReasonCount

LIMIT = 100
# the page is rendered every few seconds, and grouping reads every open row
MAX_GROUPED = 100_000
# characters of a raw row
MAX_RAW = 4_000
# a text, or a number or a word
JSON_VALUE = r'"(?:[^"\\]|\\.)*+"|[^\s"\[\]{},]++'


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
    counted = {row.dataset: row.bad_rows for row in stores.jobs.problems()}
    total = counted.get(dataset.name, 0)
    reasons = stores.records.open_reasons(dataset) if total <= MAX_GROUPED else ()
    values = {
        "now": stores.jobs.now(),
        "dataset": dataset,
        "after": after,
        "total": total,
        "rows": [describe_row(dataset, row) for row in shown],
        "groups": [*describe_groups(reasons)],
        "following": shown[-1].id if len(found) > LIMIT else None,
        "datasets": sorted(api.penstock.settings.datasets),
    }
    return View("quarantine.html", f"Bad rows of {dataset.name}", "quarantine", values)


def describe_groups(reasons: Sequence[ReasonCount]) -> Iterator[Mapping[str, Any]]:
    """Yield the bad rows of each reason and field, with the request to discard them.

    Rows that come after the page was rendered are not part of it.
    """
    for each in reasons:
        chosen = {"reason": each.reason, "field": each.field, "until": each.last_id}
        yield {
            "reason": each.reason.value,
            "field": each.field,
            "rows": each.rows,
            "discard": json.dumps(chosen),
        }


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
        "raw": split_raw(dataset, rejection.field, raw[:MAX_RAW]),
        "is_cut": len(raw) > MAX_RAW,
    }


def split_raw(dataset: Dataset, field: str | None, raw: str) -> tuple[str, str, str]:
    """Return what is before the bad value, the value, and what is after it.

    The value is empty if it is not found, or if it may be that of another object.
    """
    paths = {column.name: column.path for column in dataset.read_columns}
    if field not in paths:
        return raw, "", ""
    is_file = isinstance(dataset.source, CsvSource)
    name = ".".join(paths[field]) if is_file else paths[field][-1]
    quoted = re.escape(json.dumps(name, ensure_ascii=False))
    found = [*re.finditer(rf"{quoted}\s*:\s*({JSON_VALUE})", raw)]
    if len(found) != 1:
        return raw, "", ""
    start, end = found[0].span(1)
    return raw[:start], raw[start:end], raw[end:]


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
