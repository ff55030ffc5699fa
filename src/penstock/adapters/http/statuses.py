"""Sort the status of an answer into what the caller does next."""

from datetime import datetime
from http import HTTPStatus

from penstock.adapters.http.client import Answer, Request
from penstock.adapters.http.hiding import Hiding
from penstock.adapters.http.links import host_of, is_same_place, resolve, without
from penstock.adapters.net.dates import retry_after
from penstock.domain.page import Moved
from penstock.errors import (
    AccessStopped,
    PenstockError,
    RequestRefused,
    SourceUnavailable,
    Throttled,
)

REDIRECTS = frozenset({301, 302, 303, 307, 308})
# these repeat the request as it was; the others would turn a POST into a GET
FAITHFUL_REDIRECTS = frozenset({307, 308})
# redirects that lead nowhere, and what the provider says is our fault
FIRST_FINAL, LAST_FINAL = 300, 499
PASSING = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY})


def judge(
    request: Request,
    answer: Answer,
    *,
    stop_on: frozenset[int],
    hiding: Hiding,
    now: datetime,
) -> Moved | PenstockError | None:
    """Return what an answer means; None is data."""
    status = answer.status
    if status in stop_on:
        return AccessStopped(status, body=hiding.snippet(answer.body))
    if status == HTTPStatus.OK:
        return None
    if is_success(status):
        # an accepted request, no content or a part of it: not a page, nor its absence
        return SourceUnavailable(
            f"the provider answered {status}, which is no page; only 200 is",
            retry_after=retry_after(answer.headers, now),
        )
    if status in REDIRECTS:
        return judge_redirect(request, answer, hiding)
    return judge_failure(answer, hiding, now)


def judge_failure(answer: Answer, hiding: Hiding, now: datetime) -> PenstockError:
    """Tell a pause from a hiccup, and both from a refusal."""
    status, wait = answer.status, retry_after(answer.headers, now)
    asks_to_wait = status == HTTPStatus.SERVICE_UNAVAILABLE and wait is not None
    if status == HTTPStatus.TOO_MANY_REQUESTS or asks_to_wait:
        return Throttled(status, retry_after=wait)
    said = hiding.snippet(answer.body)
    told = f"the provider answered {status}{f': {said}' if said else ''}"
    is_final = FIRST_FINAL <= status <= LAST_FINAL and status not in PASSING
    return (
        RequestRefused(told) if is_final else SourceUnavailable(told, retry_after=wait)
    )


def is_success(status: int) -> bool:
    return HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES


def judge_redirect(
    request: Request, answer: Answer, hiding: Hiding
) -> Moved | RequestRefused:
    """Follow to the same host only: our headers are meant for nobody else."""
    status, location = answer.status, answer.headers.get("Location")
    if not location:
        return RequestRefused(f"the provider answered {status} without an address")
    if request.method != "GET" and status not in FAITHFUL_REDIRECTS:
        return RequestRefused(
            f"the provider answered {status} to a {request.method}, which may not be "
            "repeated elsewhere; set source.url to the final address"
        )
    try:
        address = resolve(request.url, location)
        is_same = is_same_place(request.url, address)
    except ValueError:
        return RequestRefused(f"the provider answered {status} with a broken address")
    if not is_same:
        return RequestRefused(
            f"redirects to another host are not followed: {host_of(request.url)} "
            f"answered {status} and named {hiding(host_of(address))}"
        )
    # the ledger and the logs may see it, so it holds no secret
    shown = without(address, hiding.parameters)
    if shown == without(request.url, hiding.parameters):
        return RequestRefused(f"the provider answered {status} and named itself")
    return Moved(url=shown)
