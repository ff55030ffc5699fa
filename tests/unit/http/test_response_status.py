from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from urllib3 import HTTPHeaderDict

from penstock.adapters.http.client import HttpRequest, HttpResponse
from penstock.adapters.http.response_status import classify
from penstock.adapters.http.urls import (
    next_link,
    with_missing_parameters,
    without_parameters,
)
from penstock.adapters.net.http_dates import RetryAfter, parse_date, parse_retry_after
from penstock.domain.pages import Redirect
from penstock.domain.redaction import MASK, Redactor
from penstock.errors import AccessRefused, RequestRefused, SourceUnavailable, Throttled

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def judged(status: int, *, method: str = "GET", body: bytes = b"", **headers: str):
    named = {name.replace("_", "-"): result for name, result in headers.items()}
    return classify(
        HttpRequest(method=method, url="https://a.example/v3?key=s3cr3t-value&x=1"),
        HttpResponse(status=status, headers=HTTPHeaderDict(named), body=body),
        stop_on=frozenset({401, 403}),
        redactor=Redactor({"s3cr3t-value": MASK}),
        secrets={"key"},
        now=NOW,
    )


def test_only_200_is_data():
    assert [status for status in range(100, 600) if judged(status) is None] == [200]


def test_a_request_that_was_only_accepted_is_sent_again_when_it_says():
    verdict = judged(202, Retry_After="7")
    assert isinstance(verdict, SourceUnavailable)
    assert verdict.retry_after == timedelta(seconds=7)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (100, SourceUnavailable),
        (201, SourceUnavailable),
        (202, SourceUnavailable),
        (204, SourceUnavailable),
        (206, SourceUnavailable),
        (300, RequestRefused),
        (304, RequestRefused),
        (400, RequestRefused),
        (401, AccessRefused),
        (403, AccessRefused),
        (404, RequestRefused),
        (408, SourceUnavailable),
        (422, RequestRefused),
        (425, SourceUnavailable),
        (429, Throttled),
        (500, SourceUnavailable),
        (502, SourceUnavailable),
        (503, SourceUnavailable),
        (522, SourceUnavailable),
        (999, SourceUnavailable),
    ],
)
def test_each_status_has_one_meaning(status, kind):
    assert type(judged(status)) is kind


def test_a_closed_door_that_names_a_time_is_a_pause():
    verdict = judged(503, Retry_After="7")
    assert isinstance(verdict, Throttled)
    assert verdict.retry_after == timedelta(seconds=7)


def test_a_hiccup_may_name_a_time_too():
    verdict = judged(500, Retry_After="7")
    assert isinstance(verdict, SourceUnavailable)
    assert verdict.retry_after == timedelta(seconds=7)


def test_what_is_said_is_short_and_without_secrets():
    verdict = judged(400, body=b"bad key s3cr3t-value\r\n\x00" + b"x" * 9999)
    assert "bad key ***" in str(verdict)
    assert len(str(verdict)) < 200


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/v4?x=1", "https://a.example/v4?x=1"),
        ("https://A.example:443/v4", "https://A.example:443/v4"),
        ("?key=s3cr3t-value&x=2", "https://a.example/v3?x=2"),
        ("/v4#top", "https://a.example/v4"),
    ],
)
def test_a_redirect_to_the_same_host_is_reported_without_secrets(location, url):
    assert judged(302, Location=location) == Redirect(url=url)


@pytest.mark.parametrize(
    "location",
    [
        "https://b.example/v3",
        "http://a.example/v3",
        "https://a.example:8443/v3",
        "https://a.example@b.example/",
        "//b.example/",
        "ftp://a.example/",
        "http://[",
        "https://a.example:x/",
        "",
        "?key=s3cr3t-value&x=1",
    ],
)
def test_other_redirects_are_refused(location):
    verdict = judged(302, Location=location)
    assert isinstance(verdict, RequestRefused)
    assert "s3cr3t" not in str(verdict)


def test_a_post_is_repeated_only_where_the_status_says_so():
    assert isinstance(judged(307, method="POST", Location="/v4"), Redirect)
    assert isinstance(judged(302, method="POST", Location="/v4"), RequestRefused)


@pytest.mark.parametrize(
    ("result", "wait"),
    [
        ("120", 120),
        (" 0 ", 0),
        ("-5", 0),
        ("Sun, 15 Nov 2026 12:01:00 GMT", 60),
        ("Sun, 15 Nov 2026 11:00:00 GMT", 0),
        ("Sunday, 15-Nov-26 12:01:00 GMT", 60),
        ("1.5", 2),
        ("86400", 86400),
        ("Mon, 16 Nov 2026 12:00:00 GMT", 86400),
    ],
)
def test_a_pause_is_reported_in_seconds_or_as_a_date(result, wait):
    headers = HTTPHeaderDict({"retry-after": result})
    assert parse_retry_after(headers, NOW) == RetryAfter(timedelta(seconds=wait))


@pytest.mark.parametrize(
    "text",
    [
        "86401",
        "99999999999999999999",
        "9" * 5000,
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "soon",
        "1e9",
        "²",
        "Sun, 99 Nov 2026 12:01:00 GMT",
    ],
)
def test_a_pause_beyond_a_day_or_belief_is_an_hour_and_is_shown(text):
    error = judged(429, retry_after=text)

    assert isinstance(error, Throttled)
    assert error.retry_after == timedelta(hours=1)
    assert f"Retry-After of {text[:60]!r}" in str(error)


def test_no_pause_is_none():
    assert parse_retry_after(HTTPHeaderDict({"retry-after": ""}), NOW) is None


def test_a_date_is_counted_by_the_providers_clock():
    headers = {
        "Retry-After": "Sun, 15 Nov 2026 12:01:00 GMT",
        "Date": "Sun, 15 Nov 2026 12:00:50 GMT",
    }
    assert parse_retry_after(headers, NOW) == RetryAfter(timedelta(seconds=10))


@given(st.text(max_size=40))
def test_any_text_is_a_date_or_none(text):
    parsed = parse_date(text)
    assert parsed is None or parsed.tzinfo is UTC
    pause = parse_retry_after({"Retry-After": text}, NOW)
    assert pause is None or timedelta() <= pause.wait <= timedelta(days=1)


@pytest.mark.parametrize(
    ("header", "address"),
    [
        ('<https://a/2>; rel="next"', "https://a/2"),
        ("</2>;rel=next", "/2"),
        ('<a?x=1,2>; rel="prev", <b?x=1,2>; title="x, y"; rel="last NEXT"', "b?x=1,2"),
        ('<a>; rel="prev"', None),
        ('<a>; title="rel=next"', None),
        ("nonsense", None),
        (None, None),
    ],
)
def test_the_next_link_is_found_in_a_header(header, address):
    assert next_link(header) == address


def test_secrets_leave_an_address_and_come_back():
    secrets = {"key": "a b&c"}
    address = "https://a/x?page=2&key=a%20b%26c&z=%2f"
    assert without_parameters(address, secrets) == "https://a/x?page=2&z=%2f"
    assert with_missing_parameters("https://a/x?page=2&z=%2f", secrets) == (
        "https://a/x?page=2&z=%2f&key=a%20b%26c"
    )
    assert with_missing_parameters(address, secrets) == address
    assert without_parameters("https://a/x?key=1", secrets) == "https://a/x"
