"""Files that are fetched by their address, as a user of the commands sees it."""

import signal
import time
from http.server import BaseHTTPRequestHandler

import pytest

from tests.support.scripted_server import Reply, ScriptedServer, scripted_server
from tests.support.shops import HEADER, line, shops, stored
from tests.support.workshop import Workshop, wait_until

ROWS = HEADER + line(1, "one", 1) + line(2, "two", 2)


@pytest.fixture
def server():
    with scripted_server() as running:
        yield running


@pytest.fixture
def fetching(file_workshop: Workshop, server: ScriptedServer) -> Workshop:
    file_workshop.declare(
        shops(files=f"{server.url}/shops.csv", source="private = true")
    )
    return file_workshop


def spooled(workshop: Workshop) -> list[str]:
    found = (workshop.folder / "spool").rglob("*")
    return [each.name for each in found if each.is_file()]


def test_a_dry_run_fetches_a_file_once_and_says_that_it_is_there(
    fetching: Workshop, server: ScriptedServer
):
    server.answers = lambda _: Reply(body=ROWS)

    ran = fetching.penstock("plan", "shops", "--dry-run")

    assert ran.code == 0, ran.err
    assert len(server.requests) == len(spooled(fetching)) == 1
    assert "No job was stored; downloaded files stay in the spool" in ran.out


def test_a_redirect_to_what_is_no_address_is_reported_in_a_sentence(
    fetching: Workshop, server: ScriptedServer
):
    target = "http://files.example:99999/shops.csv"
    server.script(Reply(status=302, headers={"Location": target}))

    ran = fetching.penstock("run", "shops")

    assert ran.code != 0
    assert "a redirect of 127.0.0.1 names a URL that is not one of a file" in ran.err
    assert spooled(fetching) == []


def test_a_file_that_was_cut_at_the_end_of_a_line_is_not_imported(
    fetching: Workshop, server: ScriptedServer
):
    def cut_off(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n" + HEADER + line(1, "one", 1))

    server.answers = lambda _: cut_off

    ran = fetching.penstock("run", "shops")

    assert ran.code == 1
    assert 'set source.unsized = "accept" to accept it all the same' in ran.err
    assert fetching.ask("select 1 from penstock_import") == []
    assert spooled(fetching) == []

    config = fetching.config.read_text("utf-8")
    accepting = config.replace("private = true", 'private = true\nunsized = "accept"')
    fetching.config.write_text(accepting, "utf-8")
    ran = fetching.penstock("run", "shops")

    assert ran.code == 0, ran.err
    assert stored(fetching) == {1: ("one", 1)}


def test_a_fetched_file_with_other_rows_is_the_same_file(
    fetching: Workshop, server: ScriptedServer
):
    """It lies in the spool by another name, and is not lost for that."""
    config = fetching.config.read_text("utf-8")
    marking = 'key = "id"\nmissing = { do = "mark", max_drop = 1.0 }'
    fetching.config.write_text(config.replace('key = "id"', marking), "utf-8")
    server.script(Reply(body=ROWS), Reply(body=HEADER + line(2, "two", 2)))
    assert fetching.penstock("run", "shops").code == 0

    ran = fetching.penstock("run", "shops", "--json")

    assert ran.json["note"] is None
    assert ran.json["records"]["deleted"] == 1
    assert stored(fetching) == {2: ("two", 2)}


def test_a_command_that_fetches_stops_when_it_is_reported(
    fetching: Workshop, server: ScriptedServer
):
    def trickle(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n")
        for _ in range(600):
            handler.wfile.write(b"1,one,1\n")
            if server.stopping.wait(0.1):
                return

    server.answers = lambda _: trickle
    running = fetching.start("run", "shops")
    wait_until(lambda: spooled(fetching))

    begun = time.monotonic()
    running.send_signal(signal.SIGTERM)
    ran = fetching.output_of(running)

    assert ran.code == 1
    assert "stopped while planning; the same command resumes it" in ran.err
    assert time.monotonic() - begun < 40
    assert spooled(fetching) == []
