"""Whatever is sent: no error of ours, no word of a driver, nothing done unasked."""

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.api_client import OF, RECORDS, ApiResponse, Client
from tests.support.workshop import Workshop

SQL = [
    "'",
    '"',
    "`",
    ";",
    "\\",
    "%",
    "%s",
    "%(p0)s",
    ":p0",
    "?",
    "$1",
    "{0}",
    "' or '1'='1",
    "'; drop table poi; --",
    '"; drop table "poi"; --',
    "1; select pg_sleep(9)",
    "0 union select value from penstock_secret",
    "*/ 1 /*",
]
ODD = [
    "",
    " ",
    "\t",
    "\r\nX-Evil: 1\r\n\r\n",
    "\x00",
    "\x1b[31m\x7f",
    "\u202e\ufeff\u2028",
    "\U0010ffff",
    "\ufffd",
    "é" * 300,
    "x" * 4100,
    "9" * 400,
    "-1",
    "1e400",
    "NaN",
    "Infinity",
    "null",
    "[]",
    '{"$gt": ""}',
    "../../etc/passwd",
    "${CANARY}",
    "{{7*7}}",
    "<script>alert(1)</script>",
]
# what no client writes, as bytes of an address
BYTES = [
    *(b"%", b"%zz", b"%ff", b"%c0%af", b"%ED%A0%80", b"%00", b"%0d%0aX-Evil:%201"),
    *(b"+", b"&", b"=", b"&&==&", b"a;b", b"%2527", b"%u0027", b"[]", b"~", b"|"),
]
# what only a driver, a framework or a stack would say
FOREIGN = re.compile(
    rb"sqlite3?\b|psycopg|postgres|syntax error|traceback|OperationalError|\.py\b|"
    rb"unrecognized token|near \\\"|LINE 1|violates|starlette|uvicorn",
    re.IGNORECASE,
)


def is_harmless(result: ApiResponse, sent: bytes) -> bool:
    """Say whether an answer is one of ours; what was sent may be in it."""
    assert result.status < 500, (sent[:200], result.body[:500])
    assert "x-evil" not in result.headers, sent[:200]
    found = FOREIGN.search(result.body)
    assert found is None or found[0] in sent, (sent[:200], result.body[:500])
    if result.status >= 400 and result.body:
        # what is no HTTP is refused before it comes to us
        kind = result.headers.get("content-type", "")
        assert kind == "application/problem+json" or result.status == 400, result.body
    return True


@pytest.fixture(autouse=True)
def nothing_was_lost(api: Client, api_workshop: Workshop) -> Iterator[None]:
    """Keep a record that must outlive every test, and read the log afterwards."""
    witness = {"id": 77, "title": "witness", "town": "Bern", "points": 7}
    api.store(witness)
    yield
    stored = api.get(f"{RECORDS}/77").json
    assert {name: stored[name] for name in witness} == witness
    assert api.process is not None
    events = api_workshop.log_of(api.process)
    assert [each for each in events if each["event"] == "request_failed"] == []


def parameters(api: Client) -> Iterator[tuple[str, str]]:
    """Yield every query parameter that can be given to something that only reads."""
    for path, operations in api.get("/openapi.json").json["paths"].items():
        address = re.sub(r"\{\w+\}", "77", path)
        for each in operations.get("get", {}).get("parameters", []):
            # who waits, waits
            if each["in"] == "query" and each["name"] != "wait":
                yield address, each["name"]
        if "get" in operations:
            yield address, "nothing"


def test_no_parameter_is_a_way_in(api: Client):
    tried = 0
    for path, name in parameters(api):
        for value in (*SQL, *ODD):
            for written in {value, f"eq.{value}", f"in.{value}", f"prefix.{value}"}:
                sent = f"{path}?{quote(name)}={quote(written)}"
                # operators are for conditions on fields
                if written == value or name in {"town", "field.limit", "opened"}:
                    tried += is_harmless(api.get(sent), sent.encode())
    assert tried > 500


def test_no_byte_of_an_address_is_a_way_in(api: Client):
    for evil in BYTES:
        for target in (
            f"{RECORDS}?town=eq.".encode() + evil,
            f"{RECORDS}?".encode() + evil,
            f"{RECORDS}?sort=".encode() + evil,
            f"{RECORDS}?cursor=".encode() + evil,
            f"{RECORDS}/".encode() + evil,
            f"{OF}/regions/records/".encode() + evil,
            f"{OF}/shops/records/a,".encode() + evil,
            f"{OF}/".encode() + evil,
            b"/" + evil,
            b"/docs/" + evil,
            b"/api/problems/" + evil,
        ):
            request = b"GET " + target + b" HTTP/1.1\r\nhost: localhost\r\n\r\n"
            assert is_harmless(api.raw(request), request)


@pytest.mark.parametrize("value", [*SQL, *ODD], ids=range(len(SQL) + len(ODD)))
def test_no_key_is_a_way_in(api: Client, value: str):
    for path in (
        f"{RECORDS}/{quote(value, safe='')}",
        f"{OF}/regions/records/{quote(value, safe='')}",
        f"{OF}/shops/records/{quote(value, safe='')},x",
        f"{OF}/{quote(value, safe='')}/records",
    ):
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            body = b"{}" if method in {"PUT", "PATCH"} else None
            response = api.ask(method, path, body=body)
            assert is_harmless(response, path.encode())
            if response.status == 201:
                assert response.headers["location"] == path
                assert api.get(path).status == 200
                assert api.delete(path).status == 204


HEADERS = [
    "Prefer",
    "If-Match",
    "If-None-Match",
    "X-Consistency-Token",
    "Traceparent",
    "Accept",
    "Accept-Encoding",
    "Content-Type",
    "Authorization",
    "Cookie",
    "Origin",
    "Range",
    "Expect",
    "X-Forwarded-For",
    "Idempotency-Key",
]


@pytest.mark.parametrize("name", HEADERS)
def test_no_header_is_a_way_in(api: Client, name: str):
    for value in (*SQL, *ODD, "W/", '"', '"' * 99, ",,,", "count=exact;", "é\xff"):
        sent = value.encode("utf-8", "replace").replace(b"\r\n", b" ")
        for method, target, body in (
            ("GET", RECORDS, b""),
            ("GET", f"{RECORDS}/77", b""),
            ("PATCH", f"{RECORDS}/78", b"{}"),
            ("DELETE", f"{RECORDS}/78", b""),
        ):
            head = [
                f"{method} {target} HTTP/1.1".encode(),
                b"Host: localhost",
                b"Content-Length: %d" % len(body),
                name.encode() + b": " + sent,
            ]
            if name != "Content-Type":
                head.append(b"Content-Type: application/json")
            request = b"\r\n".join([*head, b"", body])
            assert is_harmless(api.raw(request), request)


FIELDS = ["id", "title", "town", "points", "lat", "is_open", "day", "seen", "extra"]
# as they stand in JSON
LITERALS = [
    b"1e400",
    b"-1e400",
    b"1e-400",
    b"1" + b"0" * 400,
    b"-1" + b"0" * 5000,
    b"0." + b"1" * 5000,
    b"NaN",
    b"Infinity",
    b"-0",
    b"-0.0",
    b"01",
    b"1.",
    b"tru",
    b"'x'",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551616",
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\\u0000"',
    b'"\xff\xfe"',
    b'"\xed\xa0\x80"',
    b'"\n"',
    b'"' + b"x" * 20_000 + b'"',
    b"[" * 50_000 + b"]" * 50_000,
    b"[" * 400 + b"]" * 400,
    b'{"a":' * 400 + b"1" + b"}" * 400,
    b'{"a":1,"a":2}',
    b'{"__proto__":{"x":1}}',
    b'{"\\u0000":1}',
    b"{}",
    b"[]",
    b"null",
    b"true",
    b"",
]


@pytest.mark.parametrize("field", FIELDS)
def test_no_value_in_a_body_is_a_way_in(api: Client, field: str):
    values = [*LITERALS, *(json.dumps(each).encode() for each in (*SQL, *ODD))]
    for value in values:
        rest = b"" if field == "title" else b',"title":"x"'
        one = b'{"' + field.encode() + b'":' + value + rest + b"}"
        for method, path, body in (
            ("PUT", f"{RECORDS}/5", one),
            ("PATCH", f"{RECORDS}/5", one),
            ("POST", RECORDS, b'[{"id":6},' + one + b"]"),
        ):
            response = api.ask(method, path, body=body)
            assert is_harmless(response, body)
            if response.status < 300 and method == "PUT":
                # what was taken is told, as it is stored
                assert api.get(path).json == response.json


def test_a_value_is_stored_as_it_is_whatever_it_means_elsewhere(api: Client):
    for number, value in enumerate([*SQL, *ODD], 100):
        response = api.put(f"{RECORDS}/{number}", {"title": "x", "town": value})
        if response.status != 201:
            assert response.flaws.keys() == {"/town"}
            continue
        stored = value.strip() or None
        assert api.get(f"{RECORDS}/{number}").json["town"] == stored
        if stored is not None:
            found = api.get(RECORDS, {"town": f"eq.{stored}", "fields": "id"})
            assert {"id": number} in found.items
            among = '"' + stored.replace('"', '""') + '"'
            assert {"id": number} in api.get(
                RECORDS, {"town": f"in.{among}", "fields": "id"}
            ).items


BODIES: list[tuple[str, bytes, int]] = [
    ("application/json", b"", 400),
    ("application/json", b"{", 400),
    ("application/json", b"\xef\xbb\xbf{}", 400),
    ("application/json", '{"title":"x"}'.encode("utf-16"), 400),
    ("application/json", b'{"title":"x"} {}', 400),
    ("application/json", b"\x00" * 100, 400),
    ("application/json", b"\x1f\x8b\x08\x00", 400),
    ("", b'{"title":"x"}', 415),
    ("text/plain", b'{"title":"x"}', 415),
    ("application/xml", b"<!DOCTYPE x [<!ENTITY y SYSTEM 'file:///etc/passwd'>]>", 415),
    ("application/x-www-form-urlencoded", b"title=x", 415),
    ("multipart/form-data; boundary=x", b"--x\r\n\r\n--x--", 415),
    ("application/json\x0b", b'{"title":"x"}', 400),
    ("application/jsonp", b'{"title":"x"}', 415),
]


@pytest.mark.parametrize(("kind", "body", "status"), BODIES, ids=range(len(BODIES)))
def test_what_is_not_json_is_refused(api: Client, kind: str, body: bytes, status: int):
    for method, path in (("PUT", f"{RECORDS}/5"), ("POST", RECORDS)):
        request = b"\r\n".join(
            [
                f"{method} {path} HTTP/1.1".encode(),
                b"Host: localhost",
                b"Content-Length: %d" % len(body),
                *([b"Content-Type: " + kind.encode()] if kind else []),
                *(b"", body),
            ]
        )
        response = api.raw(request)
        assert is_harmless(response, request)
        assert response.status == status
    assert api.get(f"{RECORDS}/5").status == 404


def test_a_name_that_stands_twice_is_refused(api: Client):
    body = b'{"title":"first","title":"second"}'

    refused = api.ask("PUT", f"{RECORDS}/5", body=body)

    assert refused.status == 400
    assert [each["pointer"] for each in refused.json["errors"]] == ["/title"]


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET http://evil.example/api/v1/datasets HTTP/1.1",
        b"GET //evil.example/api/v1/datasets HTTP/1.1",
        b"GET /api/v1/datasets/ HTTP/1.1",
        b"GET * HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"CONNECT evil.example:443 HTTP/1.1",
        b"TRACE /api/v1/datasets HTTP/1.1",
        b"BREW /api/v1/datasets HTTP/1.1",
        b"GET /api/v1/datasets/poi/records/../../.. HTTP/1.1",
    ],
)
def test_nobody_is_sent_elsewhere(api: Client, request_line: bytes):
    request = request_line + b"\r\nHost: evil.example\r\n\r\n"

    response = api.raw(request)

    assert is_harmless(response, request)
    assert response.status not in {301, 302, 303, 307, 308}
    assert "evil.example" not in response.headers.get("location", "")


def answers_of(api: Client, *targets: str) -> Iterator[Any]:
    for target in targets:
        yield api.get(target)


def test_headers_keep_browsers_from_harm(api: Client):
    for result in answers_of(
        api, RECORDS, f"{RECORDS}/77", "/nowhere", OF, "/openapi.json", "/docs"
    ):
        assert result.headers["x-content-type-options"] == "nosniff"
        assert result.headers["x-frame-options"] == "DENY"
        assert result.headers["referrer-policy"] == "no-referrer"
        policy = result.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in policy
        assert "server" not in result.headers
        assert "access-control-allow-origin" not in result.headers
