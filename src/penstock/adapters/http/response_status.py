"""Classify the status of a response by what the caller does next."""

import re
from collections.abc import Collection
from datetime import datetime
from http import HTTPStatus

from penstock.adapters.http.client import HttpRequest, HttpResponse
from penstock.adapters.http.urls import (
    host_of,
    is_same_origin,
    resolve,
    without_parameters,
)
from penstock.adapters.net.http_dates import RetryAfter, parse_retry_after
from penstock.domain.pages import Redirect
from penstock.domain.redaction import Redactor
from penstock.errors import (
    AccessRefused,
    PenstockError,
    RequestRefused,
    SourceUnavailable,
    Throttled,
)

REDIRECTS = frozenset({301, 302, 303, 307, 308})
# these repeat the request as it was; the others would turn a POST into a GET
FAITHFUL_REDIRECTS = frozenset({307, 308})
# redirects that are not followed, and client errors
FIRST_FINAL, LAST_FINAL = 300, 499
MAX_SNIPPET_LENGTH = 120
# a secret that begins among the shown characters ends among the scanned bytes
MAX_SHOWN = 4096
MAX_SCANNED_BYTES = 32_768
UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa1-\uffff]+|[\ud800-\udfff\ufffd]+|\s+")
TRANSIENT = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY})


def classify(
    request: HttpRequest,
    response: HttpResponse,
    *,
    stop_on: frozenset[int],
    redactor: Redactor,
    secrets: Collection[str],
    now: datetime,
) -> Redirect | PenstockError | None:
    """Return the meaning of a response; None is data.

    No parameter whose name is among the secrets remains in the URL of a redirect.
    """
    status = response.status
    if status in stop_on:
        return AccessRefused(status, body=snippet(response.body, redactor))
    if status == HTTPStatus.OK:
        return None
    if is_success(status):
        # accepted, no content or partial content: neither a page, nor proof of none
        return unavailable(
            f"the provider returned {status}, which is not a page; only 200 is",
            parse_retry_after(response.headers, now),
        )
    if status in REDIRECTS:
        return classify_redirect(request, response, redactor, secrets)
    return classify_failure(response, redactor, now)


def classify_failure(
    response: HttpResponse, redactor: Redactor, now: datetime
) -> PenstockError:
    """Distinguish throttling, transient failures and refusals."""
    status, pause = response.status, parse_retry_after(response.headers, now)
    requests_wait = status == HTTPStatus.SERVICE_UNAVAILABLE and pause is not None
    if status == HTTPStatus.TOO_MANY_REQUESTS or requests_wait:
        return Throttled(
            f"the provider answered {status}; "
            f"{pause or 'it asks to wait without saying how long'}",
            retry_after=None if pause is None else pause.wait,
        )
    begin = snippet(response.body, redactor)
    message = f"the provider returned {status}{f': {begin}' if begin else ''}"
    is_final = FIRST_FINAL <= status <= LAST_FINAL and status not in TRANSIENT
    return RequestRefused(message) if is_final else unavailable(message, pause)


def unavailable(message: str, pause: RetryAfter | None) -> SourceUnavailable:
    if pause is None:
        return SourceUnavailable(message)
    if pause.useless is not None:
        message = f"{message}; {pause}"
    return SourceUnavailable(message, retry_after=pause.wait)


def is_success(status: int) -> bool:
    return HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES


def classify_redirect(
    request: HttpRequest,
    response: HttpResponse,
    redactor: Redactor,
    secrets: Collection[str],
) -> Redirect | RequestRefused:
    """Follow to the same host only: no other may see our headers."""
    status, location = response.status, response.headers.get("Location")
    if not location:
        return RequestRefused(f"the provider returned {status} without a location")
    if request.method != "GET" and status not in FAITHFUL_REDIRECTS:
        return RequestRefused(
            f"the provider returned {status} to a {request.method}, which may not be "
            "repeated elsewhere; set source.url to the final URL"
        )
    try:
        url = resolve(request.url, location)
        is_same = is_same_origin(request.url, url)
    except ValueError:
        return RequestRefused(f"the provider returned {status} with an invalid URL")
    if not is_same:
        return RequestRefused(
            f"redirects to another host are not followed: {host_of(request.url)} "
            f"returned {status} and named {redactor(host_of(url))}"
        )
    # it is stored in the ledger and logged, so it must contain no secret
    shown = without_parameters(url, secrets)
    if shown == without_parameters(request.url, secrets):
        return RequestRefused(
            f"the provider returned {status} and redirected to itself"
        )
    return Redirect(url=shown)


def snippet(body: bytes, redactor: Redactor, *, limit: int = MAX_SNIPPET_LENGTH) -> str:
    """Return the start of a body on one line, without secrets."""
    text = body[:MAX_SCANNED_BYTES].decode(errors="replace")
    text = UNPRINTABLE.sub(" ", redactor.redact_traffic(text, MAX_SHOWN)).strip()
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
