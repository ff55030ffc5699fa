"""An HTTP server on loopback that answers by a script and remembers its questions."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRequest:
    """One request as it arrived."""

    method: str
    target: str
    headers: Message
    body: bytes
    # which connection carried it
    peer: tuple[str, int]

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


# writes raw bytes itself; the connection is closed afterwards
Misbehaviour = Callable[[BaseHTTPRequestHandler], None]
Answers = Callable[[ReceivedRequest], Reply | Misbehaviour]


def json_reply(value: Any, **headers: str) -> Reply:
    named = {name.replace("_", "-"): result for name, result in headers.items()}
    return Reply(
        body=json.dumps(value).encode(),
        headers={"Content-Type": "application/json", **named},
    )


class ScriptedServer:
    """Answers each request by the next reply of its script, or by a function."""

    def __init__(self) -> None:
        self.requests: list[ReceivedRequest] = []
        self.answers: Answers = lambda _: Reply(status=500, body=b"nothing scripted")
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 10
            # or each answer waits 40 ms for an acknowledgement
            disable_nagle_algorithm = True

            def answer(self) -> None:
                scripted.answer(self)

            do_GET = do_POST = answer  # noqa: N815 (the names http.server looks for)

            def log_message(self, *_: object) -> None:
                return

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            # many threads connect at once
            request_queue_size = 64

            def handle_error(self, *_: object) -> None:
                """Say nothing: clients hang up here on purpose."""

        self.http = Server(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}"

    def script(self, *replies: Reply | Misbehaviour) -> None:
        """Answer with these in order, and with the last one from then on."""
        waiting = list(replies)
        self.answers = lambda _: waiting.pop(0) if len(waiting) > 1 else waiting[0]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length", 0))
        request = ReceivedRequest(
            method=handler.command,
            target=handler.path,
            headers=handler.headers,
            body=handler.rfile.read(length),
            peer=handler.client_address,
        )
        with self.lock:
            self.requests.append(request)
            reply = self.answers(request)
        if not isinstance(reply, Reply):
            handler.close_connection = True
            try:
                reply(handler)
            except OSError:
                # the client hung up, as some tests want it to
                return
            return
        handler.send_response(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        if "Content-Length" not in reply.headers:
            handler.send_header("Content-Length", str(len(reply.body)))
        handler.end_headers()
        handler.wfile.write(reply.body)

    def pause(self, seconds: float) -> None:
        """Wait, but not beyond the end of the test."""
        self.stopping.wait(seconds)


@contextmanager
def scripted_server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    thread = threading.Thread(
        target=server.http.serve_forever, kwargs={"poll_interval": 0.01}
    )
    thread.start()
    try:
        yield server
    finally:
        server.stopping.set()
        server.http.shutdown()
        server.http.server_close()
        thread.join()
