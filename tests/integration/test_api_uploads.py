"""Clients send files: whole ones are imported, of others nothing is left."""

import gzip
import itertools
import socket
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import pytest

from penstock.domain.jobs import ImportId, ImportStatus
from penstock.entrypoints.api.concurrency.background import BackgroundExecutor
from penstock.entrypoints.api.resources import uploads
from tests.support.api_client import OF, ApiResponse
from tests.support.api_server import FORM, Running, form
from tests.support.workshop import wait_until

SHOPS = f"{OF}/shops/imports"
GOOD = b"uid,name,points\na,Ann,1\nb,Ben,2\n"
OTHER = b"uid,name,points\nc,Cee,3\n"
SHORT_HEADER = b"uid,name,points\n1,a,Ann,1\n2,b,Ben,2\n"


def send(running: Running, body: bytes, **headers: str) -> ApiResponse:
    given = {**FORM, **{name.replace("_", "-"): text for name, text in headers.items()}}
    return running.client.ask("POST", SHOPS, body=body, headers=given)


def send_file(running: Running, content: bytes = GOOD, *, key: str = "") -> ApiResponse:
    headers = {"Idempotency-Key": key} if key else {}
    return send(running, form(("file", "list.csv", content)), **headers)


def rows(running: Running) -> list[tuple[object, ...]]:
    return [*running.stores.records.rows(running.api.dataset("shops"))]


class TestImporting:
    def test_the_rows_of_a_file_are_stored(self, running: Running):
        response = send_file(running)

        assert response.status == 202, response.body
        assert (response.json["mode"], response.json["resumed"]) == ("backfill", False)
        running.work()
        running.wait_for(response.json["import_id"], ImportStatus.DONE)
        assert ("a", "Ann", 1) in rows(running)
        known = running.client.get(response.headers["location"]).json
        assert known["records"]["seen"] == 2
        assert known["progress"]["unit"] == "bytes"
        assert known["progress"]["share"] == 1

    @pytest.mark.parametrize("is_first", [True, False])
    def test_its_rows_may_be_accepted_whatever_their_keys(
        self, running: Running, *, is_first: bool
    ):
        parts = [("accept_duplicates", None, b"true"), ("file", "a.csv", GOOD)]

        response = send(running, form(*(parts if is_first else parts[::-1])))

        assert response.status == 202, response.body
        import_id = ImportId(response.json["import_id"])
        assert running.stores.imports.peek(import_id).accepts_duplicates

    def test_what_it_lacks_is_not_missing(self, running: Running):
        for content in (GOOD, OTHER):
            assert send_file(running, content).status == 202
            running.work()

        assert {each[0] for each in rows(running)} >= {"a", "b", "c"}

    def test_a_packed_file_is_taken_as_it_is(self, running: Running):
        packed = gzip.compress(b"uid,name,points\np,Packed,7\n")

        response = send(running, form(("file", "list.csv.gz", packed)))

        assert response.status == 202
        running.work()
        assert ("p", "Packed", 7) in rows(running)

    @pytest.mark.parametrize(
        "name",
        ["../../../etc/passwd", "C:\\\\lists\\\\shops.csv", "/abs.csv", "", "ü" * 100],
    )
    def test_no_name_leads_out_of_the_spool(self, running: Running, name):
        assert send(running, form(("file", name, GOOD))).status == 202

        (file,) = running.spooled()
        assert file.parent == running.folder / "spool" / "shops" / "uploads"

    def test_bad_rows_are_reported_with_their_line(self, running: Running):
        response = send_file(running, b"uid,name,points\na,Ann,1\nb,,2\n")
        running.work()

        bad = running.client.get(f"{response.headers['location']}/errors.csv").body

        assert b",3,24,name,,missing," in bad


class TestAskingAgain:
    def test_the_same_file_under_the_same_key_is_one_import(self, running: Running):
        first = send_file(running, key="one")
        again = send_file(running, key="one")

        assert (first.status, again.status) == (202, 202)
        assert again.body == first.body
        assert again.headers["idempotency-replayed"] == "true"
        assert len(running.spooled()) == 1

    def test_another_file_under_the_same_key_is_refused(self, running: Running):
        send_file(running, key="two")

        response = send_file(running, OTHER, key="two")

        assert response.status == 422
        assert response.json["code"] == "key-reused"
        assert len(running.spooled()) == 1

    def test_of_many_at_once_one_makes_an_import(self, running: Running):
        with ThreadPoolExecutor(4) as pool:
            results = [*pool.map(lambda _: send_file(running, key="three"), range(8))]

        assert {each.status for each in results} <= {202, 409, 503}
        assert len({each.body for each in results if each.status == 202}) == 1
        assert len(running.spooled()) == 1

    def test_the_same_file_without_a_key_goes_on_with_its_import(
        self, running: Running
    ):
        first = send_file(running)
        again = send(running, form(("file", "another-name.csv", GOOD)))

        assert again.json["import_id"] == first.json["import_id"]
        assert again.json["resumed"]
        assert len(running.spooled()) == 1
        running.work()
        running.wait_for(first.json["import_id"], ImportStatus.DONE)

    def test_another_file_waits_until_the_first_is_done(self, running: Running):
        first = send_file(running)

        response = send_file(running, OTHER)

        assert response.status == 409
        assert f"import {first.json['import_id']} " in response.json["detail"]
        assert len(running.spooled()) == 1


class TestRefusals:
    @pytest.mark.parametrize(
        ("body", "flaws"),
        [
            (form(("list", "a.csv", GOOD)), {"/list": "unknown"}),
            (form(("file", "a.csv", GOOD), ("mode", None, b"x")), {"/mode": "unknown"}),
            (
                form(("file", "a.csv", GOOD), ("file", "b.csv", OTHER)),
                {"/file": "repeated"},
            ),
            (form(("file", None, GOOD)), {"/file": "type"}),
            (
                form(("accept_duplicates", None, b"yes"), ("file", "a.csv", GOOD)),
                {"/accept_duplicates": "type"},
            ),
            (
                form(*[("accept_duplicates", None, b"true")] * 2),
                {"/accept_duplicates": "repeated"},
            ),
            (form(("file", "a.csv", b"")), {"/file": "empty"}),
            (form(), {"/file": "missing"}),
            (form(("file", "a.csv", b"uid,name,points\n")), {"/file": "unfit"}),
            (form(("file", "a.csv", b"uid,name\n1,2\n")), {"/file": "unfit"}),
            (form(("file", "a.csv", SHORT_HEADER)), {"/file": "unfit"}),
            (form(("file", "a.gz", gzip.compress(GOOD)[:-9])), {"/file": "unfit"}),
        ],
        ids=[
            "another part",
            "one more part",
            "two files",
            "a text",
            "an unclear flag",
            "two flags",
            "empty",
            "no part",
            "no rows",
            "other columns",
            "a name too few",
            "cut off gzip",
        ],
    )
    def test_flaws_are_named_and_nothing_is_left(self, running: Running, body, flaws):
        before = running.client.get("/api/v1/imports", {"limit": 1}).body

        response = send(running, body)

        assert response.status == 422, response.body
        assert response.flaws == flaws
        assert running.spooled() == []
        assert running.client.get("/api/v1/imports", {"limit": 1}).body == before

    def test_a_file_that_does_not_fit_is_called_by_its_own_name(self, running: Running):
        response = send_file(running, b"uid,name\n1,2\n")

        (error,) = response.json["errors"]
        assert error["detail"] == "list.csv: column 'points' is missing"

        response = send(running, form(("file", "a.gz", gzip.compress(GOOD)[:-9])))
        (error,) = response.json["errors"]
        assert error["detail"].startswith("a.gz: a.gz is not complete gzip")

        response = send(running, form(("file", "a.zip", b"PK\x03\x04" + bytes(99))))
        (error,) = response.json["errors"]
        assert error["detail"].startswith("a.zip: it is a ZIP archive, not CSV; ")

    @pytest.mark.parametrize(
        "body",
        [
            form(("file", "a.csv", GOOD), end=False),
            form(("file", "a.csv", GOOD))[:-4],
            b"uid,name,points\n",
            b"",
            b"--edge\r\nContent-Type: text/csv\r\n\r\nuid\r\n--edge--\r\n",
            b"--edge\r\n" + b"X: " + b"y" * 10_000 + b"\r\n\r\n\r\n--edge--\r\n",
            b"--edge\r\n" + b"X: y\r\n" * 100 + b"\r\n\r\n--edge--\r\n",
        ],
        ids=[
            "without end",
            "half an end",
            "no form",
            "nothing",
            "no name",
            "a long header",
            "many headers",
        ],
    )
    def test_what_is_no_form_is_refused(self, running: Running, body):
        response = send(running, body)

        assert response.status == 400, response.body
        assert response.json["code"] == "bad-request"
        assert running.spooled() == []

    @pytest.mark.parametrize(
        "media",
        [
            "multipart/form-data",
            "multipart/form-data; boundary=",
            f"multipart/form-data; boundary={'x' * 300}",
        ],
    )
    def test_a_form_has_a_boundary(self, running: Running, media):
        response = send(running, form(("file", "a.csv", GOOD)), Content_Type=media)

        assert response.status == 400
        assert running.spooled() == []

    def test_a_provider_sends_its_own_rows(self, running: Running):
        response = running.client.ask(
            "POST", f"{OF}/poi/imports", body=form(("file", "a", GOOD)), headers=FORM
        )

        assert response.status == 415
        assert "send application/json" in response.json["detail"]


class TestSize:
    def test_a_file_of_the_largest_size_is_taken(self, running: Running):
        content = GOOD + b"\n" * (1024 * 1024 - len(GOOD))

        assert send_file(running, content).status == 202

    def test_more_is_refused_by_what_it_says_of_itself(self, running: Running):
        size = 1024 * 1024 + uploads.MAX_FORM_OVERHEAD + 1
        head = head_of(f"Content-Length: {size}")

        # before anything of it has come
        response = running.client.raw(head)

        assert response.status == 413
        assert "1,048,576 bytes" in response.json["detail"]
        assert running.spooled() == []

    def test_more_is_refused_as_it_comes(self, running: Running):
        response = send_file(running, GOOD + b"\n" * (1024 * 1024))

        assert response.status == 413
        assert running.spooled() == []

    def test_a_packed_file_counts_as_what_it_unpacks_to(self, running: Running):
        response = send_file(running, gzip.compress(GOOD + b"\n" * (1024 * 1024)))

        assert response.status == 413
        assert response.json["detail"] == (
            "the file decompresses to more than 1048576 bytes, which is more than "
            "source.max_bytes allows"
        )
        assert running.spooled() == []

    def test_what_never_ends_is_refused_as_it_comes(self, running: Running):
        """Nothing says how long it is: only what has come so far can be counted."""
        first = form(("file", "a.csv", b""), end=False)[:-2]
        chunks = itertools.chain([first], itertools.repeat(b"x,y,1\n" * 10_000))
        with connected(running) as line:
            line.sendall(head_of("Transfer-Encoding: chunked"))
            with pytest.raises(OSError, match=r"reset|[Bb]roken"):
                send_all(line, itertools.islice(chunks, 1_000))

        wait_until(lambda: running.spooled() == [])


def head_of(length: str) -> bytes:
    return (
        f"POST {SHOPS} HTTP/1.1\r\nHost: 127.0.0.1\r\n{length}\r\n"
        "Content-Type: multipart/form-data; boundary=edge\r\n\r\n"
    ).encode()


def connected(running: Running) -> socket.socket:
    address = (running.client.host, running.client.port)
    return socket.create_connection(address, timeout=30)


def send_all(line: socket.socket, chunks: Iterable[bytes]) -> None:
    for chunk in chunks:
        line.sendall(b"%x\r\n%s\r\n" % (len(chunk), chunk))


class TestBrokenLines:
    def test_a_client_that_leaves_leaves_nothing(self, running: Running):
        body = form(("file", "a.csv", GOOD * 10_000))
        with connected(running) as line:
            line.sendall(head_of(f"Content-Length: {len(body)}") + body[:200_000])
            wait_until(running.spooled)

        wait_until(lambda: running.spooled() == [])

    def test_a_client_that_says_nothing_is_not_waited_for(
        self, running: Running, monkeypatch
    ):
        monkeypatch.setattr(uploads, "IDLE_TIMEOUT", 0.2)
        response = running.client.raw(head_of("Content-Length: 1000") + b"--edge\r\n")

        assert response.status == 408
        assert running.spooled() == []

    def test_a_client_that_sends_a_byte_now_and_then_is_not_waited_for(
        self, running: Running, monkeypatch
    ):
        monkeypatch.setattr(uploads, "IDLE_TIMEOUT", 0.5)
        begun = time.monotonic()
        with connected(running) as line:
            line.sendall(head_of("Content-Length: 1000"))
            with suppress(OSError):
                for each in form(("file", "a.csv", GOOD * 10))[:100]:
                    line.sendall(bytes([each]))
                    time.sleep(0.1)
            result = b""
            # head and body may arrive apart
            while not result.endswith(b"}") and (chunk := line.recv(65_536)):
                result += chunk
        took = time.monotonic() - begun

        assert b"408" in result.split(b"\r\n")[0]
        assert b"bytes a second" in result
        assert took < 9
        assert running.spooled() == []

    def test_what_never_ends_behind_the_form_is_not_read(self, running: Running):
        """The parser throws it away, so nothing of it would ever be too large."""
        whole = form(("file", "a.csv", GOOD))
        chunks = itertools.chain([whole], itertools.repeat(b"x" * 60_000))
        with connected(running) as line:
            line.sendall(head_of("Transfer-Encoding: chunked"))
            with pytest.raises(OSError, match=r"reset|[Bb]roken"):
                send_all(line, itertools.islice(chunks, 1_000))

        wait_until(lambda: running.spooled() == [])

    def test_more_at_a_time_than_there_is_room_for_are_sent_away(
        self, running: Running
    ):
        with all_places_taken(running.api.background):
            response = send_file(running)

        assert response.status == 503
        assert response.headers["retry-after"] == "1"
        assert send_file(running).status == 202


@contextmanager
def all_places_taken(tasks: BackgroundExecutor) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(uploads.MAX_UPLOADS):
            stack.enter_context(tasks.slot("uploads", limit=uploads.MAX_UPLOADS))
        yield
