"""From a request to its endpoint and back: who asks, what is known, what is new."""

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from penstock.domain.dataset import Dataset
from penstock.domain.history import Position
from penstock.domain.lanes import Lane
from penstock.entrypoints.api.answers import (
    Asked,
    Kept,
    Question,
    etag_of,
    is_known,
)
from penstock.entrypoints.api.endpoints import Endpoint
from penstock.entrypoints.api.exchange import ClientLeft, Exchange
from penstock.entrypoints.api.gate import Gate
from penstock.entrypoints.api.heads import head_of
from penstock.entrypoints.api.problems import Problem
from penstock.entrypoints.api.service import DATASET, LANE, Api
from penstock.errors import (
    NoSuchRecord,
    PenstockError,
    PositionGone,
    VersionChanged,
)
from penstock.ports.serving import State

Outcome = TypeVar("Outcome")

# seconds
QUICK = 0.05
# what a client shows to read what it wrote
TOKEN = b"x-consistency-token"
CACHE = (b"cache-control", b"private, max-age=0, must-revalidate")
# requests of these lanes may be answered with a token
SIGNING = (Lane.WRITES, Lane.FEEDS)
VARY = (b"vary", b"authorization, accept, prefer")
JSON = (b"content-type", b"application/json")


class Dispatch:
    """All that can be done at one path, as an ASGI application."""

    def __init__(self, api: Api, gate: Gate, endpoints: Mapping[str, Endpoint]) -> None:
        self._api = api
        self._gate = gate
        self._endpoints = endpoints
        self._meters = {
            method: api.metrics.meter(each.path, method, each.lane)
            for method, each in endpoints.items()
        }
        allowed = {*endpoints, *({"HEAD"} if "GET" in endpoints else ())}
        self._allow = ", ".join(sorted(allowed))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        endpoint = self._endpoints.get(method)
        if endpoint is None:
            await self._gate.charge_address(scope)
            headers = {"allow": self._allow}
            told = f"this address answers {self._allow}"
            raise Problem("method-not-allowed", told, headers=headers)
        exchange: Exchange = scope["exchange"]
        exchange.meter = self._meters[method]
        in_flight = self._api.metrics.in_flight
        in_flight[endpoint.lane] += 1
        try:
            await self._gate.let_in(endpoint, scope, exchange)
            if endpoint.read is not None:
                await self._answer(endpoint, scope, receive, send)
            elif endpoint.lane is Lane.FEEDS:
                with self._api.lanes.follow():
                    await self._handle(endpoint, scope, receive, send)
            else:
                await self._handle(endpoint, scope, receive, send)
        finally:
            in_flight[endpoint.lane] -= 1

    async def _handle(
        self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send
    ) -> None:
        assert endpoint.handle is not None  # noqa: S101 (an endpoint has one of them)
        LANE.set(endpoint.lane)
        DATASET.set(scope["path_params"].get("dataset"))
        if endpoint.lane in SIGNING:
            await self._api.know_seal()
        handled = endpoint.handle(self._api, Request(scope, receive))
        # a change goes on without its client, and takes no longer than it is given
        is_attended = endpoint.method == "GET" and endpoint.lane is not Lane.HEALTH
        try:
            response = await (attended(handled, receive) if is_attended else handled)
        except VersionChanged:
            await self._tell_how_far(scope)
            raise
        except PositionGone as gone:
            await self._tell_where_to_begin(gone, scope)
            raise
        await response(scope, receive, send)

    async def _tell_how_far(self, scope: Scope) -> Position | None:
        """Let who knew an old version read the new one, here and elsewhere."""
        api = self._api
        dataset = api.dataset(scope["path_params"]["dataset"])
        with suppress(PenstockError):
            state = await api.watch.now(dataset.name)
            token = token_for(api, dataset, state.position)
            scope["exchange"].extra.append((TOKEN, token.encode()))
            return state.position
        return None

    async def _tell_where_to_begin(self, gone: PositionGone, scope: Scope) -> None:
        position = await self._tell_how_far(scope)
        gone.next = None if position is None else str(position)

    async def _answer(
        self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer from what is kept, or work it out."""
        api = self._api
        headers = scope["exchange"].headers
        prefer = headers.get(b"prefer", b"")
        key = b"\n".join([scope["raw_path"], scope["query_string"], prefer])
        dataset = api.dataset(scope["path_params"]["dataset"])
        token = headers.get(TOKEN)
        if token is None:
            known, state = -1, await api.watch.state(dataset.name)
        else:
            known, state = await self._known_to(token, dataset, scope)
        wanted = headers.get(b"if-none-match")
        if wanted is not None:
            etag = etag_of(key, api.edition(dataset), state)
            if etag in wanted:
                await not_modified(etag, send)
                return
        kept = api.answers.find(key, state, at_least=known)
        if kept is None:
            question = self._question(endpoint, scope, dataset, key)
            answering = api.answers.work_out(question, state, at_least=known)
            kept = await attended(answering, receive)
        if kept.refusal is not None:
            raise NoSuchRecord(kept.refusal)
        if wanted is not None and is_known(kept.etag, wanted):
            await not_modified(kept.etag, send)
            return
        is_read = scope["method"] != "HEAD"
        await send_kept(kept, scope["exchange"], with_body=is_read)

    async def _known_to(
        self, token: bytes, dataset: Dataset, scope: Scope
    ) -> tuple[int, State]:
        """Return the change that a client knows of, and how far the dataset is."""
        api = self._api
        position = await change_of(api, dataset, token)
        try:
            state = await api.watch.state_after(dataset.name, position)
        except PositionGone as gone:
            await self._tell_where_to_begin(gone, scope)
            raise
        # a number alone, of a database that was put back, is waited for once
        return min(position.seq, state.change_seq), state

    def _question(
        self, endpoint: Endpoint, scope: Scope, dataset: Dataset, key: bytes
    ) -> Question:
        api, read = self._api, endpoint.read
        assert read is not None  # noqa: S101 (see the caller)
        request = Request(scope)
        asked = Asked(
            path=scope["path"],
            parts=scope["path_params"],
            raw_path=scope["raw_path"],
            query=request.query_params.multi_items(),
            # of several the one that is in the key
            prefer=scope["exchange"].headers.get(b"prefer", b"").decode("latin-1"),
        )
        if endpoint.check is not None:
            endpoint.check(api, asked)
        return Question(
            key=key,
            dataset=dataset.name,
            edition=api.edition(dataset),
            read=lambda: read(api, asked),
            longest=dataset.cache.total_seconds(),
            lane=endpoint.lane,
            follows_changes=endpoint.follows_changes,
            size=asked.size,
        )


async def attended(work: Awaitable[Outcome], receive: Receive) -> Outcome:
    """Work on something as long as the client waits for it."""
    task = asyncio.ensure_future(work)
    try:
        # most answers are here before it is worth to watch the line
        done, _ = await asyncio.wait({task}, timeout=QUICK)
        if not done:
            await until_left_or_done(task, receive)
        if not task.done():
            raise ClientLeft
        return task.result()
    finally:
        if not task.done():
            task.cancel()


async def until_left_or_done(task: asyncio.Task[Any], receive: Receive) -> None:
    leaving = asyncio.ensure_future(left(receive))
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()


async def left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def not_modified(etag: bytes, send: Send) -> None:
    headers = [(b"etag", etag), CACHE, VARY]
    await send({"type": "http.response.start", "status": 304, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def send_kept(kept: Kept, exchange: Exchange, *, with_body: bool) -> None:
    answer = kept.answer
    assert answer is not None  # noqa: S101 (a refusal was raised)
    if kept.head is None:
        size = (b"content-length", str(len(answer.body)).encode())
        etag = (b"etag", kept.etag)
        kept.head = head_of(JSON, size, etag, CACHE, VARY, *answer.headers)
    await exchange.send_whole(kept.head, answer.body if with_body else b"")


async def change_of(api: Api, dataset: Dataset, token: bytes) -> Position:
    """Read which change a client knows of; what we did not sign is ignored."""
    await api.know_seal()
    text = token.decode("latin-1")
    return api.records.seal.read_position(dataset.name, text) or Position(-1)


def token_for(api: Api, dataset: Dataset, position: Position) -> str:
    """Return what lets a client meet nothing older than a change, anywhere."""
    return api.records.seal.write_position(dataset.name, position)


def with_token(api: Api, dataset: Dataset, state: State) -> Mapping[str, str]:
    """Return what lets a client read its own write anywhere."""
    api.watch.note(dataset.name, state)
    return {TOKEN.decode(): token_for(api, dataset, state.position)}
