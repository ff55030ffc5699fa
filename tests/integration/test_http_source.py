import gzip
import json
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl, quote

import pytest

from penstock import __version__
from penstock.adapters.http import HttpClient, HttpSourceReader
from penstock.domain.dataset import Dataset, DatasetName, Delta, Field, FieldType
from penstock.domain.pages import LazyPage, Page, Proof, Redirect
from penstock.domain.redaction import MASK, Redactor
from penstock.domain.sharding.axes import BboxAxis, ListAxis, RangeAxis, TimeAxis
from penstock.domain.sharding.parts import Choice, Span, Window
from penstock.domain.sharding.shard import Shard
from penstock.domain.source import (
    Auth,
    AuthKind,
    HttpSource,
    Pagination,
    Paging,
    basic_token,
)
from penstock.errors import (
    AccessRefused,
    Misconfigured,
    PageRepeats,
    Rejected,
    RequestRefused,
    ResponseTooLarge,
    SourceUnavailable,
    Throttled,
)
from tests.contracts.source import Provided, SourceContract
from tests.support.scripted_server import (
    Answers,
    ReceivedRequest,
    Reply,
    ScriptedServer,
    json_reply,
    scripted_server,
)

SECRET = "s3cr3t/+&value"
WHOLE = Shard((), ())
IDS = tuple(range(1, 8))
KEYSET = Pagination(
    by=Paging.KEYSET,
    send="after",
    field=("id",),
    order={"sort": "id"},
    size_send="limit",
    size=3,
)


REDACTED = (SECRET, basic_token("ann", "correct horse"))


@pytest.fixture
def server():
    with scripted_server() as running:
        yield running


@pytest.fixture
def client():
    made = HttpClient()
    yield made
    made.close()


@pytest.fixture
def make(server: ScriptedServer, client: HttpClient):
    """Return a function that declares a source on the server."""

    def make(
        *,
        path: str = "/v3",
        edition: str = "",
        transform=None,
        stop_on: frozenset[int] = frozenset({401, 403}),
        axes=(),
        delta: Delta | None = None,
        fields: tuple[Field, ...] | None = None,
        **options,
    ) -> HttpSourceReader:
        source = HttpSource(
            **{"url": server.url + path, "timeout": timedelta(seconds=5), **options}
        )
        dataset = make_dataset(source, axes=axes, delta=delta, fields=fields)
        return HttpSourceReader(
            dataset,
            stop_on=stop_on,
            redactor=Redactor(dict.fromkeys(REDACTED, MASK)),
            edition=edition,
            transform=transform,
            client=client,
        )

    return make


def make_dataset(source: HttpSource, *, axes=(), delta=None, fields=None) -> Dataset:
    return Dataset(
        name=DatasetName("poi"),
        fields=fields
        or (
            Field(name="id", path=("id",), type=FieldType.INT),
            Field(name="town", path=("address", "town")),
        ),
        key=("id",),
        source=source,
        axes=axes,
        delta=delta,
    )


def record(number: int) -> dict[str, object]:
    return {"id": number, "address": {"town": f"Köln {number}"}, "noise": [1, 2, 3]}


def fetch(source: HttpSourceReader, position=None, **options) -> Page:
    return read(source.fetch(WHOLE, position, since=None, **options))


def read(answer: Page | LazyPage | Redirect) -> Page:
    assert isinstance(answer, LazyPage)
    return answer.read()


def ids(page: Page) -> list[object]:
    return [row.values[0] for row in page.rows]


def serve_keyset(request: ReceivedRequest) -> Reply:
    after, limit = int(request.query.get("after", 0)), int(request.query["limit"])
    return json_reply([record(each) for each in IDS if each > after][:limit])


def serve_offset(request: ReceivedRequest) -> Reply:
    start, limit = int(request.query["offset"]), int(request.query["limit"])
    return json_reply([record(each) for each in IDS[start : start + limit]])


def serve_page(request: ReceivedRequest) -> Reply:
    start, limit = 3 * (int(request.query["page"]) - 1), int(request.query["limit"])
    return json_reply([record(each) for each in IDS[start : start + limit]])


def serve_cursor(request: ReceivedRequest) -> Reply:
    start = int(request.query.get("token", 0))
    # an empty page in the middle is legal where a token follows
    found = [] if start == 3 else [record(each) for each in IDS[start : start + 3]]
    found = [record(each) for each in IDS[3:6]] if start == 100 else found
    following = {0: "3", 3: "100", 100: "6"}.get(start)
    return json_reply({"data": {"items": found}, "meta": {"next": following}})


def serve_link(request: ReceivedRequest) -> Reply:
    start = int(request.query.get("start", 0))
    found = json_reply([record(each) for each in IDS[start : start + 3]])
    if start + 3 >= len(IDS):
        return found
    # the provider repeats our key in its link
    key = quote(request.query["key"], safe="")
    link = f'</v3?start={start + 3}&key={key}>; rel="next"'
    return Reply(body=found.body, headers={**found.headers, "Link": link})


def serve_body_link(request: ReceivedRequest) -> Reply:
    start = int(request.query.get("start", 0))
    following = f"?start={start + 3}" if start + 3 < len(IDS) else None
    found = [record(each) for each in IDS[start : start + 3]]
    return json_reply({"items": found, "links": {"next": following}})


def serve_post(request: ReceivedRequest) -> Reply:
    body = json.loads(request.body)["variables"]
    start = body.get("offset", 0)
    assert isinstance(start, int)
    return json_reply({"d": [record(each) for each in IDS[start : start + 3]]})


SIZED: dict[str, Any] = {"size_send": "limit", "size": 3}
KINDS: dict[str, tuple[Answers, dict[str, Any]]] = {
    "keyset": (serve_keyset, {"pages": KEYSET}),
    "offset": (
        serve_offset,
        {"pages": Pagination(by=Paging.OFFSET, send="offset", **SIZED)},
    ),
    "page": (
        serve_page,
        {"pages": Pagination(by=Paging.PAGE, send="page", **SIZED)},
    ),
    "cursor": (
        serve_cursor,
        {
            "pages": Pagination(by=Paging.CURSOR, send="token", next=("meta", "next")),
            "records": ("data", "items"),
        },
    ),
    "link": (serve_link, {"pages": Pagination(by=Paging.LINK)}),
    "link in the body": (
        serve_body_link,
        {
            "pages": Pagination(by=Paging.LINK, next=("links", "next")),
            "records": ("items",),
        },
    ),
    "post": (
        serve_post,
        {
            "method": "POST",
            "body": {"query": "{ poi }", "variables": {"x": 1}},
            "records": ("d",),
            "pages": Pagination(by=Paging.OFFSET, send="variables.offset", size=3),
        },
    ),
}


@pytest.mark.parametrize("kind", KINDS)
class TestHttpPages(SourceContract):
    @pytest.fixture
    def provided(self, server: ScriptedServer, make, kind: str) -> Provided:
        answers, options = KINDS[kind]
        server.answers = answers
        secrets: dict[str, Any] = {
            "query": {"key": SECRET},
            "headers": {"X-API-Key": SECRET},
        }
        source = make(**{**secrets, **options})
        return Provided(
            source=source,
            dataset=make_dataset(HttpSource(url=server.url, **options)),
            shard=WHOLE,
            ids=IDS,
            requests=lambda: len(server.requests),
            secret=SECRET,
        )

    @pytest.fixture
    def broken(self, server: ScriptedServer, provided: Provided) -> Provided:
        server.answers = lambda request: Reply(body=b'[{"id": 1}, {"id": ')
        return provided

    def test_no_position_holds_a_secret(self, provided: Provided):
        for page in provided.pages():
            assert "s3cr3t" not in repr(page.next)

    def test_every_request_is_signed(self, provided: Provided, server: ScriptedServer):
        list(provided.pages())
        assert {each.query["key"] for each in server.requests} == {SECRET}
        assert {each.headers["X-API-Key"] for each in server.requests} == {SECRET}


class TestTheRequest:
    def test_it_names_the_app_and_its_version(self, server, make):
        server.script(json_reply([]))
        fetch(make())
        (request,) = server.requests
        assert request.headers["User-Agent"] == f"penstock/{__version__}"
        assert "gzip" in request.headers["Accept-Encoding"]

    def test_declared_headers_come_before_ours(self, server, make):
        server.script(json_reply([]))
        fetch(make(headers={"user-agent": "acme/1"}))
        (request,) = server.requests
        assert request.headers.get_all("User-Agent") == ["acme/1"]

    def test_it_holds_every_parameter_and_the_shard_in_the_address(self, server, make):
        server.script(json_reply([]))
        region = ListAxis(name="region", values=("a/b",))
        country = ListAxis(name="country", values=("87",), send="countryid")
        window = TimeAxis(
            name="window",
            start=datetime(2026, 1, 1, tzinfo=UTC),
            step=timedelta(hours=1),
            send_from="from",
            send_until="until",
        )
        tile = BboxAxis(
            name="tile",
            area=(Decimal(47), Decimal(5), Decimal(48), Decimal(6)),
            step=Decimal(1),
            send="boundingbox",
            format="({south},{west}),({north},{east})",
        )
        shard = Shard(
            (region, country, window, tile),
            (
                Choice("a/b"),
                Choice("87"),
                Window(window.start, window.start + window.step),
                tile.parse("47,5..48,6"),
            ),
        )
        source = make(
            path="/{region}/v3?fixed=1",
            axes=shard.axes,
            query={"output": "json", "q": "a b+c"},
            pages=KEYSET,
            delta=Delta(
                send="modifiedsince", field=("changed",), format="%Y-%m-%dT%H:%M:%S"
            ),
        )
        since = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
        source.fetch(shard, {"after": 7}, since=since)
        (request,) = server.requests
        assert request.path == "/a%2Fb/v3"
        assert request.query == {
            "fixed": "1",
            "output": "json",
            "q": "a b+c",
            "sort": "id",
            "limit": "3",
            "countryid": "87",
            "from": "2026-01-01T00:00:00Z",
            "until": "2026-01-01T01:00:00Z",
            "boundingbox": "(47,5),(48,6)",
            "modifiedsince": "2026-02-03T04:05:06",
            "after": "7",
        }
        shown = source.preview(shard, since=since)
        assert shown.startswith(f"GET {server.url}/a%2Fb/v3?fixed=1&output=json&")
        assert "boundingbox=(47,5),(48,6)" in shown

    def test_seconds_since_1970_do_not_depend_on_the_zone(self, make):
        source = make(delta=Delta(send="since", field=("t",), format="%s"))
        since = datetime(2026, 2, 3, tzinfo=UTC)
        assert source.preview(WHOLE, since=since).endswith("?since=1770076800")

    def test_a_post_carries_its_parameters_in_the_body(self, server, make):
        server.script(json_reply([]))
        source = make(
            method="POST",
            query={"v": "1"},
            body={"filter": {"open": True}, "secret": SECRET},
            pages=KEYSET,
        )
        fetch(source, {"after": 7})
        (request,) = server.requests
        assert (request.method, request.query) == ("POST", {"v": "1"})
        assert request.headers["Content-Type"] == "application/json"
        assert json.loads(request.body) == {
            "filter": {"open": True},
            "secret": SECRET,
            "sort": "id",
            "limit": 3,
            "after": 7,
        }
        shown = source.preview(WHOLE, since=None)
        assert shown.startswith(f'POST {server.url}/v3?v=1 {{"filter":')
        assert "s3cr3t" not in shown

    @pytest.mark.parametrize("value", ["", ".", ".."])
    def test_a_value_that_changes_the_address_is_refused(self, make, value):
        axis = ListAxis(name="region", values=(value,))
        source = make(path="/r/{region}/x", axes=(axis,))
        with pytest.raises(Rejected, match="cannot be part of"):
            source.fetch(Shard((axis,), (Choice(value),)), None, since=None)

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"path": "/{region}"}, "no shard axis 'region'"),
            ({"url": "ftp://x/"}, "http or https"),
            ({"url": "http:///x"}, "http or https"),
            ({"headers": {"X-Key": f"{SECRET}\n"}}, "'X-Key'"),
            ({"headers": {"X-Key": f"{SECRET}€"}}, "'X-Key'"),
            ({"headers": {"X Key": "x"}}, "'X Key'"),
            (
                {"axes": (RangeAxis(name="ids", start=0, until=9, step=3),)},
                "'ids' sends no bounds",
            ),
            ({"pages": Pagination(by=Paging.KEYSET)}, "pages.field is missing"),
            ({"pages": Pagination(by=Paging.CURSOR)}, "pages.next is missing"),
            ({"auth": Auth(type=AuthKind.OAUTH2)}, "token_url is missing"),
        ],
    )
    def test_what_can_never_be_requested_is_refused_at_once(self, make, options, said):
        with pytest.raises(Misconfigured) as caught:
            make(**options)
        assert said in str(caught.value)
        assert "s3cr3t" not in str(caught.value)


class TestPaging:
    def test_a_range_that_is_not_sent_ends_here(self, server, make):
        server.answers = serve_keyset
        axis = RangeAxis(name="ids", start=2, until=8, step=3)
        source = make(axes=(axis,), pages=KEYSET)
        page = read(source.fetch(Shard((axis,), (Span(2, 4),)), None, since=None))
        assert isinstance(page, Page)
        assert ids(page) == [2, 3]
        assert (page.next, page.proof) == (None, Proof.END_OF_RANGE)
        assert server.requests[0].query["after"] == "1"

    def test_a_keyset_out_of_order_is_tried_again(self, server, make):
        server.script(json_reply([record(3), record(2)]))
        with pytest.raises(SourceUnavailable, match="out of order"):
            fetch(make(pages=KEYSET))

    def test_a_provider_that_ignores_the_keyset_is_found_out(self, server, make):
        server.script(json_reply([record(1), record(2)]))
        with pytest.raises(PageRepeats):
            fetch(make(pages=KEYSET), {"after": 2})

    def test_a_link_to_another_host_is_not_followed(self, server, make):
        link = '<http://other.example/v3?page=2>; rel="next"'
        server.script(json_reply([record(1)], Link=link))
        with pytest.raises(RequestRefused, match=r"other\.example"):
            fetch(make(pages=Pagination(by=Paging.LINK)))

    def test_a_link_to_the_same_page_repeats(self, server, make):
        link = '</v3?key=s3cr3t%2F%2B%26value>; rel="next"'
        server.script(json_reply([record(1)], Link=link))
        source = make(pages=Pagination(by=Paging.LINK), query={"key": SECRET})
        with pytest.raises(PageRepeats):
            fetch(source)

    @pytest.mark.parametrize("status", [100, 102, 103, 199])
    def test_what_only_announces_the_answer_is_passed_by(self, server, make, status):
        announced = f"HTTP/1.1 {status} Wait\r\nLink: </style.css>\r\n\r\n".encode()

        def announce(handler) -> None:
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"
            handler.wfile.write(2 * announced + answer + b'[{"id":1}]')

        server.script(announce)

        assert ids(fetch(make(pages=KEYSET))) == [1]

    def test_announcements_without_end_take_no_longer_than_an_answer(
        self, server, make
    ):
        def announce(handler) -> None:
            while not server.stopping.wait(0.01):
                handler.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")

        server.script(announce)

        with pytest.raises(SourceUnavailable, match="no complete response within"):
            fetch(make(timeout=timedelta(seconds=0.3)))

    @pytest.mark.parametrize("status", [201, 202, 203, 204, 205, 206, 226, 299])
    def test_no_success_but_200_is_a_page(self, server, make, status):
        body = b"" if status == 204 else b"[]"
        server.script(Reply(status=status, body=body, headers={"Retry-After": "3"}))

        with pytest.raises(SourceUnavailable, match=f"returned {status}") as caught:
            fetch(make(pages=KEYSET))

        assert caught.value.retry_after == timedelta(seconds=3)

    def test_whole_json_proves_the_end_of_an_answer_without_a_length(
        self, server, make
    ):
        server.script(raw(HEAD + b'\r\n[{"id": 1}]'))

        assert ids(fetch(make(pages=KEYSET))) == [1]

    def test_the_providers_clock_is_retained(self, server, make):
        server.script(json_reply([]))
        response = fetch(make()).provider_time
        assert response is not None
        assert abs(response - datetime.now(UTC)) < timedelta(seconds=10)


class TestRows:
    def test_one_odd_record_does_not_stop_its_page(self, server, make):
        body = b'[{"id": 1}, {"id": "\\ud800"}, 7, {"id": 2, "address": "x"}]'
        server.script(Reply(body=body))
        page = fetch(make())
        assert ids(page) == [1, None, None, 2]
        assert [row.unreadable is None for row in page.rows] == [
            True,
            False,
            False,
            True,
        ]
        assert page.rows[1].raw == b'{"id": "\\ud800"}'

    def test_numbers_have_the_text_that_the_provider_wrote(self, server, make):
        body = b'[{"id": 9007199254740993.0, "address": {"town": 1.10}}]'
        server.script(Reply(body=body))
        (row,) = fetch(make()).rows
        assert [getattr(value, "text", None) for value in row.values] == [
            "9007199254740993.0",
            "1.10",
        ]

    def test_a_transform_changes_columns_but_not_paging(self, server, make):
        def clean(raw):
            if raw["id"] == 2:
                return None
            if raw["id"] == 3:
                raise KeyError("oh")
            if raw["id"] == 4:
                return [raw]
            raw["address"]["town"] = raw["address"]["town"].upper()
            raw["id"] = -raw["id"]
            raw["country"] = "changed"
            return raw

        axis = ListAxis(name="c", values=("DE",), check=("country",))
        found = [{**record(each), "country": "DE"} for each in range(1, 6)]
        server.script(json_reply(found))
        source = make(transform=clean, pages=KEYSET, axes=(axis,))
        page = read(source.fetch(Shard((axis,), (Choice("DE"),)), None, since=None))
        assert isinstance(page, Page)
        assert [row.values for row in page.rows] == [
            (-1, "KÖLN 1", "DE"),
            (3, "Köln 3", "DE"),
            (4, "Köln 4", "DE"),
            (-5, "KÖLN 5", "DE"),
        ]
        assert [row.unreadable for row in page.rows] == [
            None,
            "transform raised KeyError: 'oh'",
            "transform returned a list, not an object",
            None,
        ]
        assert page.next == {"after": 5}
        assert page.dropped == 1
        assert source.read(page.rows[0].raw).values == (-1, "KÖLN 1", "DE")
        assert source.read(json.dumps(found[1]).encode()).unreadable is not None


def no_answer(handler) -> None:
    handler.connection.close()


def reset(handler) -> None:
    import socket
    import struct

    lingering = struct.pack("ii", 1, 0)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, lingering)
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[")
    handler.wfile.flush()
    handler.connection.close()


def raw(data: bytes):
    return lambda handler: handler.wfile.write(data)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
PACKED = gzip.compress(json.dumps([record(1)]).encode())

BROKEN = {
    "no answer": no_answer,
    "reset": reset,
    "not http": raw(b"220 mail.example ESMTP\r\n\r\n"),
    "shorter than it says": raw(HEAD + b"Content-Length: 100\r\n\r\n[]"),
    "chunks without an end": raw(
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n"
    ),
    "a broken chunk": raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n[]\r\n"),
    "cut off without a length": raw(HEAD + b'\r\n[{"id": 1}, {"id"'),
    "a header without an end": raw(HEAD + b"X: " + b"x" * 100_000),
    "broken gzip": Reply(body=b"nonsense", headers={"Content-Encoding": "gzip"}),
    "half a gzip": Reply(
        body=PACKED[: len(PACKED) // 2], headers={"Content-Encoding": "gzip"}
    ),
    "an unknown compression": Reply(
        body=b"\x1b\x05", headers={"Content-Encoding": "br"}
    ),
    "html": Reply(body=b"<html>down</html>", headers={"Content-Type": "text/html"}),
    "empty": Reply(),
    "cut off": Reply(body=b'[{"id": 1}, {"i'),
    "null": Reply(body=b"null"),
    "an object": Reply(body=b'{"error": "quota exceeded"}'),
    "a part": Reply(status=206, body=b"[]"),
    "a bad gateway": Reply(status=502, body=b"Upstream API unavailable"),
    "a strange status": Reply(status=599),
}


class TestBrokenAnswers:
    @pytest.mark.parametrize("how", BROKEN)
    def test_it_is_tried_again_and_never_data(self, server, make, how):
        server.script(BROKEN[how])
        source = make(query={"key": SECRET})
        with pytest.raises(SourceUnavailable) as caught:
            fetch(source)
        assert len(str(caught.value)) < 300
        assert "s3cr3t" not in str(caught.value)
        assert len(server.requests) == 1

    @pytest.mark.parametrize("how", BROKEN)
    def test_the_next_request_is_not_harmed(self, server, make, how):
        server.script(BROKEN[how], json_reply([record(1)]))
        source = make()
        with pytest.raises(SourceUnavailable):
            fetch(source)
        assert ids(fetch(source)) == [1]

    def test_a_server_that_is_not_there(self, make):
        source = make(url="http://127.0.0.1:1/")
        with pytest.raises(
            SourceUnavailable, match=r"no connection to '127\.0\.0\.1:1'"
        ):
            fetch(source)

    def test_a_name_that_nobody_has(self, make):
        source = make(url="http://nowhere.invalid/")
        with pytest.raises(SourceUnavailable, match="cannot be resolved"):
            fetch(source)

    def test_a_server_without_tls(self, server, make):
        source = make(url=server.url.replace("http:", "https:"))
        with pytest.raises(SourceUnavailable, match="TLS"):
            fetch(source)

    def test_an_address_that_is_none(self, make):
        source = make(url="http://a..b\\c:99999999/")
        with pytest.raises((Misconfigured, SourceUnavailable)):
            fetch(source)


class TestTime:
    @pytest.mark.parametrize("part", ["status", "headers", "body", "chunks"])
    def test_a_slow_trickle_ends_in_time(self, server, make, part):
        def trickle(handler):
            begin = {
                "status": b"",
                "headers": HEAD + b"X-Slow: ",
                "body": HEAD + b"Content-Length: 10000\r\n\r\n[",
                "chunks": HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n",
            }[part]
            handler.wfile.write(begin)
            chunk = b"1\r\n \r\n" if part == "chunks" else b"1"
            while not server.stopping.is_set():
                handler.wfile.write(chunk)
                handler.wfile.flush()
                server.pause(0.05)

        server.script(trickle)
        source = make(timeout=timedelta(seconds=0.5))
        began = time.monotonic()
        with pytest.raises(SourceUnavailable, match=r"within 0\.5 s"):
            fetch(source)
        assert 0.4 < time.monotonic() - began < 40

    def test_silence_ends_in_time(self, server, make):
        server.script(lambda handler: server.pause(60))
        began = time.monotonic()
        with pytest.raises(SourceUnavailable, match=r"within 0\.3 s"):
            fetch(make(timeout=timedelta(seconds=0.3)))
        # the server would be silent for a minute
        assert time.monotonic() - began < 40

    def test_a_used_connection_gets_its_whole_time_again(self, server, make):
        def slow(handler):
            server.pause(0.3)
            handler.wfile.write(HEAD + b"Content-Length: 2\r\n\r\n[]")

        server.script(json_reply([]), json_reply([]), slow)
        source = make(timeout=timedelta(seconds=2))
        for _ in range(3):
            fetch(source)


class TestSize:
    def test_gzip_is_unpacked(self, server, make):
        server.script(Reply(body=PACKED, headers={"Content-Encoding": "gzip"}))
        assert ids(fetch(make())) == [1]

    def test_deflate_is_unpacked(self, server, make):
        body = zlib.compress(b'[{"id": 1}]')
        server.script(Reply(body=body, headers={"Content-Encoding": "deflate"}))
        assert ids(fetch(make())) == [1]

    def test_a_gzip_bomb_is_not_unpacked(self, server, make):
        packer = zlib.compressobj(9, wbits=31)
        zeros = b" " * 1_000_000
        bomb = b"".join(packer.compress(zeros) for _ in range(500)) + packer.flush()
        server.script(Reply(body=bomb, headers={"Content-Encoding": "gzip"}))
        began = time.monotonic()
        with pytest.raises(ResponseTooLarge, match=r"source\.max_bytes"):
            fetch(make(max_bytes=1_000_000))
        # unpacking all of it would take longer than reading none
        assert time.monotonic() - began < 40

    def test_an_answer_may_be_as_large_as_allowed_and_no_larger(self, server, make):
        body = json.dumps([record(1)]).encode()
        server.script(Reply(body=body))
        assert ids(fetch(make(max_bytes=len(body)))) == [1]
        with pytest.raises(ResponseTooLarge):
            fetch(make(max_bytes=len(body) - 1))

    def test_a_large_answer_in_chunks_comes_whole(self, server, make):
        found = json.dumps([record(each) for each in range(20_000)]).encode()

        def chunked(handler):
            handler.wfile.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            for at in range(0, len(found), 9999):
                chunk = found[at : at + 9999]
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            handler.wfile.write(b"0\r\n\r\n")

        server.script(chunked)
        assert len(fetch(make()).rows) == 20_000

    def test_of_a_large_error_only_the_beginning_is_read(self, server, make):
        server.script(Reply(status=500, body=b"x" * 10_000_000))
        with pytest.raises(SourceUnavailable, match="500: xxx") as caught:
            fetch(make())
        assert len(str(caught.value)) < 200


class TestConnections:
    def test_a_connection_is_used_again(self, server, make):
        server.script(json_reply([]), Reply(status=500, body=b"x"), json_reply([]))
        source = make()
        fetch(source)
        with pytest.raises(SourceUnavailable):
            fetch(source)
        fetch(source)
        assert len({each.peer for each in server.requests}) == 1

    def test_a_connection_with_a_rest_is_not(self, server, make):
        server.script(Reply(body=b"x" * 300_000), json_reply([]))
        source = make(max_bytes=1000)
        with pytest.raises(ResponseTooLarge):
            fetch(source)
        fetch(source)
        assert len({each.peer for each in server.requests}) == 2

    def test_threads_share_a_source(self, server, make):
        server.answers = serve_keyset
        source = make(pages=KEYSET)
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda _: ids(fetch(source)), range(100)))
        assert found == [[1, 2, 3]] * 100
        assert len({each.peer for each in server.requests}) <= 8


class TestStatuses:
    def test_a_redirect_on_the_same_host_is_the_callers_decision(self, server, make):
        server.script(
            Reply(status=301, headers={"Location": f"/v4?key={SECRET[:3]}"}),
            json_reply([record(1)]),
        )
        source = make(query={"key": SECRET})
        moved = source.fetch(WHOLE, None, since=None)
        assert moved == Redirect(url=f"{server.url}/v4")
        assert len(server.requests) == 1
        assert ids(fetch(source, moved=moved)) == [1]
        assert server.requests[1].path == "/v4"
        assert server.requests[1].query == {"key": SECRET}

    def test_a_redirect_elsewhere_is_refused(self, server, make):
        server.script(Reply(status=302, headers={"Location": "http://other.example/"}))
        with pytest.raises(RequestRefused, match=r"other\.example"):
            fetch(make())
        with pytest.raises(RequestRefused, match=r"other\.example"):
            fetch(make(), moved=Redirect(url="http://other.example/"))

    @pytest.mark.parametrize(
        ("status", "result", "wait"),
        [(429, "7", 7), (429, None, None), (429, "soon", 3600), (503, "30", 30)],
    )
    def test_a_pause_is_reported(self, server, make, status, result, wait):
        headers = {} if result is None else {"Retry-After": result}
        server.script(Reply(status=status, headers=headers))
        with pytest.raises(Throttled) as caught:
            fetch(make())
        expected = None if wait is None else timedelta(seconds=wait)
        assert caught.value.retry_after == expected

    def test_a_pause_may_be_a_date_by_the_providers_clock(self, server, make):
        def pause(handler):
            handler.wfile.write(
                b"HTTP/1.1 429 Slow\r\nDate: Sun, 15 Nov 2020 12:00:00 GMT\r\n"
                b"Retry-After: Sun, 15 Nov 2020 12:01:30 GMT\r\n"
                b"Content-Length: 0\r\n\r\n"
            )

        server.script(pause)
        with pytest.raises(Throttled) as caught:
            fetch(make())
        assert caught.value.retry_after == timedelta(seconds=90)

    def test_a_shut_door_stops_everything(self, server, make):
        server.script(Reply(status=403, body=b"Blocked for API abuse."))
        with pytest.raises(AccessRefused, match="403: Blocked for API abuse"):
            fetch(make())

    def test_a_refusal_says_what_the_provider_said(self, server, make):
        body = f"no such key {SECRET} or s3cr3t%2F%2B%26value\n\x00".encode()
        server.script(Reply(status=400, body=body))
        with pytest.raises(RequestRefused, match=r"400: no such key \*\*\* or \*\*\*$"):
            fetch(make(query={"key": SECRET}))


class TestAuth:
    @pytest.mark.parametrize(
        ("auth", "header"),
        [
            (Auth(type=AuthKind.BEARER, token=SECRET), f"Bearer {SECRET}"),
            (
                Auth(type=AuthKind.BASIC, username="ann", password="ü:x"),
                "Basic YW5uOsO8Ong=",
            ),
        ],
    )
    def test_a_request_is_signed(self, server, make, auth, header):
        server.script(json_reply([]))
        fetch(make(auth=auth))
        assert server.requests[0].headers["Authorization"] == header

    def test_a_secret_that_comes_back_is_hidden(self, server, make):
        server.answers = lambda request: Reply(
            status=400, body=request.headers["Authorization"].encode()
        )
        auth = Auth(type=AuthKind.BASIC, username="ann", password="correct horse")
        with pytest.raises(RequestRefused, match=r"400: Basic \*\*\*$"):
            fetch(make(auth=auth))


class TokenProvider:
    """A provider that asks for a token and may refuse it."""

    def __init__(self, *, lasts: object = 3600) -> None:
        self.lasts = lasts
        self.refused: set[str] = set()
        self.tokens = 0
        self.token_reply: Reply | None = None
        self.forms: list[bytes] = []

    def __call__(self, request: ReceivedRequest) -> Reply:
        if request.path == "/token":
            self.tokens += 1
            self.forms.append(request.body)
            return self.token_reply or json_reply(
                {"access_token": f"token-{self.tokens}", "expires_in": self.lasts}
            )
        signed = request.headers.get("Authorization", "")
        known = {f"Bearer token-{each}" for each in range(1, self.tokens + 1)}
        if signed not in known - self.refused:
            return Reply(status=401, body=f"refused {signed}".encode())
        return json_reply([record(1)])


class TestOAuth2:
    @pytest.fixture
    def provider(self, server) -> TokenProvider:
        provider = TokenProvider()
        server.answers = provider
        return provider

    @pytest.fixture
    def source(self, server, make):
        return make(
            auth=Auth(
                type=AuthKind.OAUTH2,
                token_url=f"{server.url}/token",
                client_id="us",
                client_secret=SECRET,
                scope="read",
            )
        )

    def test_many_threads_fetch_one_token(self, provider, source):
        start = threading.Barrier(16)

        def work(_: int) -> list[object]:
            start.wait()
            return ids(fetch(source))

        with ThreadPoolExecutor(16) as threads:
            assert list(threads.map(work, range(16))) == [[1]] * 16
        assert provider.tokens == 1
        (form,) = provider.forms
        assert dict(parse_qsl(form.decode())) == {
            "grant_type": "client_credentials",
            "client_id": "us",
            "client_secret": SECRET,
            "scope": "read",
        }

    def test_a_token_that_was_good_is_renewed_once_for_all(self, provider, source):
        fetch(source)
        provider.refused = {"Bearer token-1"}
        start = threading.Barrier(16)

        def work(_: int) -> str:
            start.wait()
            try:
                fetch(source)
            except SourceUnavailable:
                fetch(source)
                return "renewed"
            return "good"

        with ThreadPoolExecutor(16) as threads:
            assert "renewed" in list(threads.map(work, range(16)))
        assert provider.tokens == 2

    def test_a_new_token_that_is_refused_stops_everything(self, provider, source):
        provider.refused = {"Bearer token-1", "Bearer token-2"}
        with pytest.raises(AccessRefused, match=r"refused Bearer \*\*\*$"):
            fetch(source)
        assert provider.tokens == 1

    def test_a_renewed_token_that_is_refused_stops_everything(self, provider, source):
        fetch(source)
        provider.refused = {"Bearer token-1", "Bearer token-2"}
        with pytest.raises(SourceUnavailable) as caught:
            fetch(source)
        assert caught.value.retry_after == timedelta()
        with pytest.raises(AccessRefused):
            fetch(source)
        assert provider.tokens == 2

    @pytest.mark.parametrize("lasts", [0, "0"], ids=repr)
    def test_a_token_is_not_used_past_its_end(self, provider, source, lasts):
        provider.lasts = lasts
        fetch(source)
        fetch(source)
        assert provider.tokens == 2

    @pytest.mark.parametrize("lasts", [None, "long", "3600", 3600], ids=repr)
    def test_a_token_is_retained_while_it_lasts(self, provider, source, lasts):
        provider.lasts = lasts
        fetch(source)
        fetch(source)
        assert provider.tokens == 1

    @pytest.mark.parametrize("status", [400, 401, 403])
    def test_a_refused_client_stops_everything(self, provider, source, status):
        body = f"bad client {SECRET}".encode()
        provider.token_reply = Reply(status=status, body=body)
        with pytest.raises(AccessRefused, match=r"no access token: bad client \*\*\*"):
            fetch(source)

    @pytest.mark.parametrize(
        "reply",
        [
            Reply(status=500),
            Reply(status=429, headers={"Retry-After": "5"}),
            Reply(body=b"<html>"),
            Reply(body=b'{"access_token": 7}'),
            Reply(),
        ],
        ids=range(5),
    )
    def test_a_token_endpoint_may_fail_for_a_while(self, provider, source, reply):
        provider.token_reply = reply
        with pytest.raises(SourceUnavailable, match="token endpoint"):
            fetch(source)
        provider.token_reply = None
        assert ids(fetch(source)) == [1]

    def test_a_failure_is_shared_by_those_who_waited_for_it(
        self, server, provider: TokenProvider, source
    ):
        provider.token_reply = Reply(status=500)

        def slowly(request: ReceivedRequest) -> Reply:
            server.pause(0.2)
            return provider(request)

        server.answers = slowly
        start = threading.Barrier(8)

        def work(_: int) -> None:
            start.wait()
            with pytest.raises(SourceUnavailable):
                fetch(source)

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(work, range(8)))
        assert provider.tokens == 1


def unread(source: HttpSourceReader) -> LazyPage:
    answer = source.fetch(WHOLE, None, since=None)
    assert isinstance(answer, LazyPage)
    return answer


class TestAnAnswerThatMayBeKnown:
    def test_it_is_read_only_when_that_is_requested(self, make, server: ScriptedServer):
        server.answers = lambda _: Reply(body=b"[ no JSON")

        answer = unread(make())

        with pytest.raises(SourceUnavailable):
            answer.read()

    def test_the_same_answer_has_the_same_digest(self, make, server: ScriptedServer):
        noon = "Sun, 01 Mar 2026 12:00:00 GMT"
        server.answers = lambda _: json_reply([record(1)], Date=noon)

        first, second = unread(make()), unread(make())

        assert first.digest() == second.digest()
        page = first.read()
        assert ids(page) == [1]
        assert page.provider_time == first.provider_time is not None

    def test_another_answer_or_way_of_reading_has_another(
        self, make, server: ScriptedServer
    ):
        replies = [
            json_reply([record(1)]),
            json_reply([record(2)]),
            json_reply([record(1)], Link="<https://example.org>; rel=x"),
            json_reply([record(1)]),
        ]
        server.answers = lambda _: replies.pop(0)

        answers = [unread(make()) for _ in range(3)]
        answers.append(unread(make(edition="newer")))

        assert len({answer.digest() for answer in answers}) == 4
