"""Judge an import from both ends: the provider's log, and what is stored."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from penstock.domain.formats import parse_instant
from penstock.sandbox import LoggedRequest
from tests.support.workshop import Workshop

# the provider counts arrivals: on a busy machine a request arrives so many seconds
# later than the budget allows for, and bunches with those behind it
LATE = 0.1

RequestLine = tuple[str, str, tuple[tuple[str, str], ...]]


def mapped(point: dict[str, Any]) -> dict[str, Any]:
    """Map a point of the provider as the declaration says."""
    address = point["AddressInfo"]
    return {
        "id": point["ID"],
        "title": text(address.get("Title")),
        "town": text(address.get("Town")),
        "country_id": address["CountryID"],
        "lat": address["Latitude"],
        "lon": address["Longitude"],
        "points": point.get("NumberOfPoints"),
        "updated_at": parse_instant(point["DateLastStatusUpdate"]),
    }


def text(value: str | None) -> str | None:
    return (value or "").strip() or None


def truth(workshop: Workshop) -> dict[int, dict[str, Any]]:
    points = workshop.sandbox.expected().items()
    return {key: mapped(point) for key, point in points}


def request_line(request: LoggedRequest) -> RequestLine:
    return request.method, request.path, tuple(sorted(request.query.items()))


def was_good(request: LoggedRequest) -> bool:
    """Say whether an answer could be committed."""
    is_whole = request.fault is None or (
        request.fault == "disorder" and request.count < 2
    )
    return request.status == 200 and is_whole


def repeated(requests: Sequence[LoggedRequest]) -> int:
    """Count the good answers that had been given before."""
    good = Counter(request_line(request) for request in requests if was_good(request))
    return sum(times - 1 for times in good.values())


def requests_after_commit(workshop: Workshop) -> list[LoggedRequest]:
    """Return the requests for pages that the ledger already held.

    Only for keyset imports by country: the n-th value of `greaterthanid` that was
    answered well is the n-th page of its job.
    """
    offset = time.time() - time.monotonic()
    committed = {
        (row["shard_key"], row["page_seq"]): workshop.seconds(row["committed_at"])
        for row in workshop.ask(
            "select shard_key, p.page_seq, committed_at from penstock_page p "
            "join penstock_job j on j.id = p.job_id"
        )
    }
    requests = workshop.sandbox.requests
    positions: dict[str, set[int]] = {}
    for request in filter(was_good, requests):
        positions.setdefault(shard_of(request), set()).add(position_of(request))
    pages = {
        (shard, position): number
        for shard, found in positions.items()
        for number, position in enumerate(sorted(found), start=1)
    }
    assert {(shard, n) for (shard, _), n in pages.items()} == set(committed)
    return [
        request
        for request in requests
        if (page := pages.get((shard_of(request), position_of(request)))) is not None
        and request.at + offset > committed[shard_of(request), page] + 0.01
    ]


def shard_of(request: LoggedRequest) -> str:
    country = request.query.get("countryid")
    return "all" if country is None else f"country:{country}"


def position_of(request: LoggedRequest) -> int:
    return int(request.query.get("greaterthanid", 0))
