"""What leaves for a client, byte by byte: answers are whole, and in order."""

import http.client
import io
from collections.abc import Iterator

import pytest

from penstock.entrypoints.api.server.prebuilt_head import encode_headers
from tests.support.auth_server import POI, RECORDS, Client, Folder, received

SQLITE = '[penstock]\ndatabase = "sqlite:///penstock.db"\n'
# what is another one in each answer
OF_THE_MOMENT = {"date", "x-trace-id", "ratelimit", "connection"}


@pytest.fixture(scope="module", params=["fast path", "uvicorn alone"])
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    is_fast = str(request.param == "fast path").lower()
    folder = Folder(
        tmp_path_factory.mktemp("wire"), f"{SQLITE}[api]\nfast_path = {is_fast}\n{POI}"
    )
    with folder.serve() as client:
        client.store(*range(1, 21))
        yield client


def send_raw(client: Client, *requests: str) -> bytes:
    """Send requests in one piece, the last of which ends the connection."""
    with client.open() as line:
        line.sendall("".join(requests).encode())
        return received(line)


def request(method: str, target: str, *headers: str) -> str:
    text = "".join(f"{each}\r\n" for each in ("Host: localhost", *headers))
    return f"{method} {target} HTTP/1.1\r\n{text}\r\n"


def read(text: bytes) -> tuple[int, dict[str, str], bytes]:
    """Take the first answer apart."""
    line, _, rest = text.partition(b"\r\n")
    file = io.BytesIO(rest)
    headers = {
        name.lower(): value for name, value in http.client.parse_headers(file).items()
    }
    return int(line.split()[1]), headers, file.read()


LAST = request("GET", RECORDS + "?limit=3", "Connection: close")


def test_answers_to_requests_that_come_together_are_whole_and_in_order(client: Client):
    # the first is worked out, the next is kept, and others come between
    targets = [RECORDS + "?limit=5", RECORDS + "?limit=5", "/api/nothing", RECORDS]

    result = send_raw(client, *(request("GET", each) for each in targets), LAST)

    found = []
    while result:
        status, headers, rest = read(result)
        size = int(headers["content-length"])
        found.append((status, rest[:size].count(b'"title"')))
        result = rest[size:]
    assert found == [(200, 5), (200, 5), (404, 1), (200, 20), (200, 3)]


def test_a_retained_answer_has_the_headers_that_any_has(client: Client):
    client.get(RECORDS + "?limit=3")

    stored = read(send_raw(client, request("GET", RECORDS + "?limit=3"), LAST))
    # what ends a connection is left to the server
    ended = read(send_raw(client, LAST))

    assert stored[0] == ended[0] == 200
    assert ended[1]["connection"] == "close"
    for name in stored[1].keys() | ended[1].keys():
        if name not in OF_THE_MOMENT:
            assert stored[1].get(name) == ended[1].get(name), name
    assert stored[1].keys() - {"connection"} == ended[1].keys() - {"connection"}
    assert stored[2].startswith(ended[2])


def test_a_retained_answer_without_its_body_says_how_long_that_is(client: Client):
    status, headers, rest = read(
        send_raw(client, request("HEAD", RECORDS + "?limit=3"), LAST)
    )
    _, _, body = read(send_raw(client, LAST))

    assert status == 200
    assert headers["content-length"] == str(len(body))
    assert rest.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\0"], ids=repr)
def test_no_value_is_the_end_of_a_header(value):
    with pytest.raises(ValueError, match="a header cannot be"):
        encode_headers([(b"link", value)])


def test_headers_are_written_as_they_are():
    assert encode_headers([(b"a", b"1"), (b"b", "ü\t!".encode("latin-1"))]) == (
        b"a: 1\r\nb: \xfc\t!\r\n"
    )
