"""Files that come from elsewhere."""

import gzip
import zlib
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from random import Random

import pytest

from penstock.adapters.csv.download import (
    CHUNK_SIZE,
    MAX_ATTEMPTS,
    Download,
    LongResponse,
    inflate,
    parse_target,
)
from penstock.adapters.csv.file_scanner import FileScanner
from penstock.adapters.csv.gzip_reader import GzipReader
from penstock.adapters.csv.limits import FileLimits
from penstock.adapters.csv.source import CsvSourceReader
from penstock.adapters.csv.spool import Spool, safe_file_name
from penstock.adapters.net.public_addresses import is_public
from penstock.domain.dataset import Dataset
from penstock.domain.sharding.shard import Shard
from penstock.domain.source import CsvSource
from penstock.errors import (
    ExpandsTooLarge,
    Interrupted,
    Misconfigured,
    Rejected,
    SourceUnavailable,
)
from tests.support.builders import dataset, int_field, text_field
from tests.support.scripted_server import (
    Misbehaviour,
    Reply,
    ScriptedServer,
    scripted_server,
)

LONGEST = timedelta(seconds=5)
FROM_HERE = Download(longest=LONGEST, may_be_private=True)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\n"
ROWS = b"1,a\n2,b\n3,c\n"


def sends(data: bytes) -> Misbehaviour:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(data)

    return send


@pytest.fixture
def server():
    with scripted_server() as running:
        yield running


def parts(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.rglob("*") if each.is_file())


class TestTheSpool:
    def test_what_comes_in_chunks_is_stored_whole(self, tmp_path):
        stored = Spool(tmp_path, 100).save([b"id\n", b"1\n"], dataset="x", name="a.csv")

        assert stored.read_bytes() == b"id\n1\n"
        assert stored.parent == tmp_path / "x"
        assert stored.name.endswith("-a.csv")

    def test_the_same_content_is_the_same_file(self, tmp_path):
        spool = Spool(tmp_path, 100)
        names = {
            spool.save([content], dataset="x", name="a.csv")
            for content in (b"one", b"one", b"two")
        }

        assert len(names) == len(parts(tmp_path)) == 2

    def test_packed_bytes_count_as_what_they_unpack_to(self, tmp_path):
        spool = Spool(tmp_path, 10_000)
        packed = gzip.compress(b"x" * 10_000), gzip.compress(b"x" * 10_001)

        spool.save([packed[0]], dataset="x", name="a.csv.gz")
        # in pieces, and in the second member of two
        chunks = [bytes([byte]) for byte in gzip.compress(b"y") + packed[1]]
        with pytest.raises(ExpandsTooLarge, match=r"10000 bytes.*source\.max_bytes"):
            spool.save(chunks, dataset="x", name="b.csv.gz")

        assert len(parts(tmp_path)) == 1

    def test_what_grows_beyond_all_measure_is_refused_early(self, tmp_path):
        limits = FileLimits(expansion=20, harmless=50_000)
        spool = Spool(tmp_path, 10**9, limits)
        dense, hollow = (
            gzip.compress(randbytes) * 50
            for randbytes in (Random(1).randbytes(3_000), b"\n" * 3_000)
        )

        spool.save([dense], dataset="x", name="a.csv.gz")
        with pytest.raises(ExpandsTooLarge, match=r"source\.max_expansion = 20"):
            spool.save([hollow], dataset="x", name="b.csv.gz")

    def test_too_much_is_refused_and_leaves_nothing(self, tmp_path):
        read = []

        def endless():
            while True:
                read.append(1)
                yield b"x" * 30

        with pytest.raises(Rejected, match="more than 100 bytes"):
            Spool(tmp_path, 100).save(endless(), dataset="x", name="a.csv")

        assert parts(tmp_path) == []
        assert len(read) == 4

    def test_a_sender_that_breaks_off_leaves_nothing(self, tmp_path):
        def broken():
            yield b"id\n"
            raise SourceUnavailable("gone")

        with pytest.raises(SourceUnavailable):
            Spool(tmp_path, 100).save(broken(), dataset="x", name="a.csv")

        assert parts(tmp_path) == []

    def test_a_folder_that_is_none_is_reported(self, tmp_path):
        (tmp_path / "x").write_text("")

        with pytest.raises((Misconfigured, SourceUnavailable), match=r"stored|written"):
            Spool(tmp_path, 100).save([b"1"], dataset="x", name="a.csv")

    @pytest.mark.parametrize(
        ("given", "stored"),
        [
            ("../../etc/passwd", "passwd"),
            ("C:\\shops\\list one.csv", "list_one.csv"),
            ("..", "file"),
            (".hidden", "hidden"),
            ("", "file"),
            ("a\x00b\n.csv", "a_b_.csv"),
            ("x" * 300 + ".csv", "x" * 76 + ".csv"),
        ],
    )
    def test_no_name_leaves_the_folder(self, given, stored):
        assert safe_file_name(given) == stored


class TestADownload:
    def test_it_brings_the_very_bytes(self, server: ScriptedServer):
        server.script(Reply(body=b"id\n1\n" * 1000))

        assert b"".join(FROM_HERE(f"{server.url}/a.csv?day=1")) == b"id\n1\n" * 1000
        assert server.requests[0].path == "/a.csv"

    @pytest.mark.parametrize(
        ("status", "error"),
        [
            (404, Rejected),
            (403, Rejected),
            (201, Rejected),
            (204, Rejected),
            (206, Rejected),
            (429, SourceUnavailable),
            (500, SourceUnavailable),
        ],
    )
    def test_what_is_no_file_is_none(self, server: ScriptedServer, status, error):
        server.script(Reply(status=status, body=b"secret"))

        with pytest.raises(error, match=f"returned {status}") as caught:
            list(FROM_HERE(f"{server.url}/a.csv?token=s3cr3t"))

        assert "s3cr3t" not in str(caught.value)

    def test_a_few_redirects_are_followed(self, server: ScriptedServer):
        moved = Reply(status=302, headers={"Location": "/b.csv"})
        server.script(moved, Reply(body=b"here"))

        assert b"".join(FROM_HERE(f"{server.url}/a.csv")) == b"here"
        assert server.requests[1].path == "/b.csv"

    def test_a_circle_is_left(self, server: ScriptedServer):
        server.answers = lambda _: Reply(status=302, headers={"Location": "/a.csv"})

        with pytest.raises(Rejected, match="redirects more than"):
            list(FROM_HERE(f"{server.url}/a.csv"))

    def test_no_private_place_is_requested(self, server: ScriptedServer):
        with pytest.raises(
            Rejected, match=r"not a public address; set source\.private"
        ):
            list(Download(longest=LONGEST)(f"{server.url}/a.csv"))

        assert server.requests == []

    @pytest.mark.parametrize(
        ("address", "expected"),
        [
            ("127.0.0.1", False),
            ("10.1.2.3", False),
            ("169.254.169.254", False),
            ("::1", False),
            ("fe80::1%eth0", False),
            ("::ffff:127.0.0.1", False),
            ("224.0.0.1", False),
            ("0.0.0.0", False),
            ("93.184.216.34", True),
            ("2606:2800:220:1::1", True),
        ],
    )
    def test_public_addresses_are_known(self, address, expected):
        assert is_public(address) is expected

    def test_a_name_that_is_none_is_reported(self):
        with pytest.raises(SourceUnavailable, match="cannot be resolved"):
            list(FROM_HERE("https://nosuch.invalid/a.csv"))

    def test_nobody_there_is_reported(self):
        with pytest.raises(SourceUnavailable, match=r"127\.0\.0\.1 failed"):
            list(FROM_HERE("http://127.0.0.1:9/a.csv"))

    def test_a_file_that_breaks_off_is_no_file(self, server: ScriptedServer):
        def cut_off(handler: BaseHTTPRequestHandler) -> None:
            head = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"
            handler.wfile.write(head + b"half")

        server.answers = lambda _: cut_off

        with pytest.raises(SourceUnavailable, match="failed:"):
            list(FROM_HERE(f"{server.url}/a.csv"))

    def test_what_only_announces_the_file_is_passed_by(self, server: ScriptedServer):
        hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
        server.script(sends(hints + HEAD + b"Content-Length: 3\r\n\r\nid\n"))

        assert b"".join(FROM_HERE(f"{server.url}/a.csv")) == b"id\n"

    @pytest.mark.parametrize("rest", [b"", ROWS[:9], ROWS])
    def test_the_end_of_a_connection_proves_nothing(self, server: ScriptedServer, rest):
        server.script(sends(HEAD + b"\r\nid,name\n" + rest))

        with pytest.raises(Rejected, match=r'source\.unsized = "accept"'):
            list(FROM_HERE(f"{server.url}/a.csv"))

    def test_it_is_taken_for_the_end_of_the_file_if_that_is_declared(
        self, server: ScriptedServer
    ):
        server.script(sends(HEAD + b"\r\n" + ROWS))
        trusting = replace(FROM_HERE, may_be_unsized=True)

        assert b"".join(trusting(f"{server.url}/a.csv")) == ROWS

    def test_a_last_chunk_proves_the_end(self, server: ScriptedServer):
        chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nid\n\r\n"
        server.script(sends(chunked), sends(chunked + b"0\r\n\r\n"))

        with pytest.raises(SourceUnavailable, match="failed:"):
            list(FROM_HERE(f"{server.url}/a.csv"))
        assert b"".join(FROM_HERE(f"{server.url}/a.csv")) == b"id\n"

    @pytest.mark.parametrize("coding", ["", "Content-Encoding: gzip\r\n"])
    def test_the_trailer_of_gzip_proves_the_end(self, server: ScriptedServer, coding):
        packed = gzip.compress(ROWS) + gzip.compress(ROWS) + b"\0" * 9
        server.script(sends(HEAD + coding.encode() + b"\r\n" + packed))

        assert b"".join(FROM_HERE(f"{server.url}/a.csv.gz")) == packed

    def test_gzip_that_is_cut_off_anywhere_is_not_whole(self):
        packed = gzip.compress(ROWS)
        for cut in range(len(packed)):
            end = GzipReader()
            end.add(packed[:cut])
            assert not end.is_whole
            # the same behind a member that is whole, where that is not its very end
            end = GzipReader()
            end.add(packed + packed[:cut])
            assert end.is_whole is (cut == 0)

    @pytest.mark.parametrize("window", [15, -15], ids=["zlib", "bare"])
    @pytest.mark.parametrize("is_sized", [True, False])
    def test_what_comes_deflated_is_unpacked_to_its_end(
        self, server: ScriptedServer, window, is_sized
    ):
        packing = zlib.compressobj(wbits=window)
        packed = packing.compress(ROWS) + packing.flush()
        coded = HEAD + b"Content-Encoding: deflate\r\n"

        def reply(body: bytes) -> Misbehaviour:
            length = b"Content-Length: %d\r\n" % len(body) if is_sized else b""
            return sends(coded + length + b"\r\n" + body)

        server.script(reply(packed), reply(packed[:-1]))

        assert b"".join(FROM_HERE(f"{server.url}/a.csv")) == ROWS
        with pytest.raises(SourceUnavailable, match="incomplete compressed"):
            list(FROM_HERE(f"{server.url}/a.csv"))

    @pytest.mark.parametrize("window", [15, -15], ids=["zlib", "bare"])
    @pytest.mark.parametrize("fill", [b"x", b"1,a,b\n"])
    def test_what_comes_deflated_is_unpacked_whatever_its_size(self, window, fill):
        # around what is unpacked at a time
        for size in [
            *range(CHUNK_SIZE - 9, CHUNK_SIZE + 9),
            *range(CHUNK_SIZE, CHUNK_SIZE + 300, 7),
        ]:
            plain = (fill * size)[:size]
            packing = zlib.compressobj(wbits=window)
            packed = packing.compress(plain) + packing.flush()

            assert b"".join(inflate(iter([packed]), "here")) == plain
            with pytest.raises(SourceUnavailable, match="incomplete compressed"):
                list(inflate(iter([packed[:-1]]), "here"))

    def test_what_is_packed_in_another_way_is_refused(self, server: ScriptedServer):
        server.script(Reply(body=b"\x1b\x05", headers={"Content-Encoding": "br"}))

        with pytest.raises(Rejected, match="Content-Encoding 'br'"):
            list(FROM_HERE(f"{server.url}/a.csv"))

    def test_a_file_that_is_being_prepared_is_requested_again(
        self, server: ScriptedServer
    ):
        preparing = Reply(status=202, body=b"[]", headers={"Retry-After": "0"})
        server.script(preparing, preparing, Reply(body=b"id\n"))

        assert b"".join(FROM_HERE(f"{server.url}/a.csv")) == b"id\n"
        assert len(server.requests) == 3

    @pytest.mark.parametrize(
        ("wait", "requests"), [("0", MAX_ATTEMPTS), ("60", 1)], ids=["never", "late"]
    )
    def test_a_file_that_is_not_ready_in_time_is_none(
        self, server: ScriptedServer, wait, requests
    ):
        server.script(Reply(status=202, headers={"Retry-After": wait}))

        with pytest.raises(SourceUnavailable, match="returned 202"):
            list(FROM_HERE(f"{server.url}/a.csv"))

        assert len(server.requests) == requests

    def test_who_waits_for_a_file_can_be_stopped(self, server: ScriptedServer):
        server.script(Reply(status=202, headers={"Retry-After": "4"}))

        def stop() -> None:
            raise Interrupted("stopped")

        with pytest.raises(Interrupted):
            list(replace(FROM_HERE, still_here=stop)(f"{server.url}/a.csv"))

    def test_it_takes_no_longer_than_it_may(self, server: ScriptedServer):
        server.script(Reply(body=b"x" * 2_000_000))
        hasty = Download(longest=timedelta(), may_be_private=True)

        with pytest.raises(SourceUnavailable, match="within 0 s"):
            list(hasty(f"{server.url}/a.csv"))

    @pytest.mark.parametrize(
        "head",
        [b"X-Slow: ", b"Content-Length: 99999\r\n\r\n"],
        ids=["head", "body"],
    )
    def test_a_trickle_takes_no_longer_than_it_may(self, server: ScriptedServer, head):
        sent = []

        def trickle(handler: BaseHTTPRequestHandler) -> None:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + head)
            for _ in range(200):
                handler.wfile.write(b"x")
                sent.append(1)
                if server.stopping.wait(0.05):
                    return

        server.answers = lambda _: trickle
        hasty = Download(longest=timedelta(seconds=0.3), may_be_private=True)

        with pytest.raises(SourceUnavailable, match=r"within 0\.3 s"):
            list(hasty(f"{server.url}/a.csv"))

        # it did not wait for the end
        assert len(sent) < 100

    @pytest.mark.parametrize(
        "target",
        [
            "https://files.example:99999/a.csv",
            "https://files.example:x/a.csv",
            f"https://{'x' * 64}.example/a.csv",
            "https://[::1/a.csv",
            "https:///a.csv",
            "ftp://files.example/a.csv",
            "http://a..example/a.csv",
        ],
        ids=["port", "no port", "long label", "bracket", "no host", "scheme", "dots"],
    )
    def test_a_redirect_to_what_is_no_address_is_reported(
        self, server: ScriptedServer, target
    ):
        server.script(Reply(status=302, headers={"Location": target}))

        with pytest.raises(
            Rejected, match=r"redirect of 127\.0\.0\.1 names a URL that is"
        ):
            list(FROM_HERE(f"{server.url}/a.csv"))

    @pytest.mark.parametrize(
        ("url", "named"),
        [
            ("https://ann:s3cr3t@files.example/a.csv", "files.example"),
            ("https://files.example:8443/a.csv", "files.example:8443"),
            ("https://m\u00fcller.example/a.csv", "xn--mller-kva.example"),
            ("https://[2606:2800:220:1::1]:8443/", "[2606:2800:220:1::1]:8443"),
        ],
        ids=["credentials", "port", "umlaut", "v6"],
    )
    def test_a_server_is_reported_its_own_name(self, url, named):
        assert parse_target(url, named_by="it").host_header == named

    def test_a_server_that_says_nothing_is_not_waited_for(
        self, server: ScriptedServer, monkeypatch
    ):
        def fall_silent(handler: BaseHTTPRequestHandler) -> None:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf")
            server.stopping.wait(10)

        server.answers = lambda _: fall_silent
        monkeypatch.setattr(LongResponse, "silence", 0.2)

        with pytest.raises(SourceUnavailable, match="failed: ReadTimeoutError"):
            list(FROM_HERE(f"{server.url}/a.csv"))


def test_a_dataset_may_name_an_address(server: ScriptedServer, tmp_path):
    server.script(Reply(body=b"id,name\n1,a\n2,b\n"))
    source = CsvSource(
        files=(f"{server.url}/lists/shops.csv?token=s3cr3t",),
        folder=str(tmp_path),
        spool=str(tmp_path / "spool"),
        private=True,
    )
    declared = dataset(
        "shops", fields=(int_field("id"), text_field("name")), source=source
    )

    axis = FileScanner(lambda _: None)(declared)

    (part,) = axis.slices
    assert part.file.endswith("-shops.csv")
    assert "s3cr3t" not in part.file
    page = CsvSourceReader(declared).fetch(Shard((axis,), (part,)), None, since=None)
    assert [row.values for row in page.rows] == [("1", "a"), ("2", "b")]


class TestASample:
    """What `check --connect` looks at."""

    def declared(self, folder: Path, *files: str) -> Dataset:
        source = CsvSource(
            files=files, folder=str(folder), spool=str(folder / "spool"), private=True
        )
        fields = (int_field("id"), text_field("name"))
        return dataset("shops", fields=fields, source=source)

    def test_the_beginning_of_a_file_is_enough(self, tmp_path):
        # all of it would be one shard, and be read to its end to know
        content = b"id,name\n" + b"1,a\n" * 100_000 + b'2,"'
        (tmp_path / "a.csv").write_bytes(content)
        results: list[object] = []
        declared = self.declared(tmp_path, "*.csv")

        axis = FileScanner(results.append).first(declared)
        page = CsvSourceReader(declared).fetch(
            Shard((axis,), axis.slices), None, since=None
        )

        assert results == []
        assert 0 < len(page.rows) <= 5_000

    def test_all_files_at_hand_are_held_against_the_fields(self, tmp_path):
        (tmp_path / "a.csv").write_bytes(b"id,name\n1,a\n")
        (tmp_path / "b.csv").write_bytes(b"id\n1\n")

        with pytest.raises(Misconfigured, match=r"b\.csv: column 'name' is missing"):
            FileScanner(print).first(self.declared(tmp_path, "*.csv"))

    def test_nothing_is_fetched_beside_what_is_at_hand(
        self, server: ScriptedServer, tmp_path
    ):
        (tmp_path / "a.csv").write_bytes(b"id,name\n1,a\n")

        FileScanner(print).first(
            self.declared(tmp_path, "*.csv", f"{server.url}/b.csv")
        )

        assert server.requests == []

    def test_of_many_addresses_one_is_fetched(self, server: ScriptedServer, tmp_path):
        server.script(Reply(body=b"id,name\n1,a\n"))
        urls = [f"{server.url}/{name}.csv" for name in "abc"]

        FileScanner(print).first(self.declared(tmp_path, *urls))

        assert [each.path for each in server.requests] == ["/a.csv"]


def test_a_download_ends_when_it_is_to_stop(server: ScriptedServer, tmp_path):
    server.script(Reply(body=b"id,name\n" + b"1,a\n" * 1_000_000))
    source = CsvSource(
        files=(f"{server.url}/a.csv",),
        folder=str(tmp_path),
        private=True,
        spool=str(tmp_path / "spool"),
    )
    fields = (int_field("id"), text_field("name"))
    results = []

    def stop_at_the_third() -> None:
        results.append(1)
        if len(results) == 3:
            raise Interrupted("asked to stop")

    with pytest.raises(Interrupted):
        FileScanner(print)(
            dataset("shops", fields=fields, source=source), stop_at_the_third
        )

    assert len(results) == 3
    assert parts(tmp_path) == []
