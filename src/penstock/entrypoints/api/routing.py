"""Dispatch of a request to its endpoint, with conditional and cached reads."""

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.domain.actions import Action, ActionVia
from penstock.domain.dataset import Dataset
from penstock.domain.history import HistoryPosition
from penstock.entrypoints.api.cache.response_cache import (
    CacheableRead,
    CacheEntry,
    etag_matches,
    etag_of,
)
from penstock.entrypoints.api.concurrency.thread_shares import Lane
from penstock.entrypoints.api.context import DATASET, LANE, AppContext
from penstock.entrypoints.api.endpoints import AnyEndpoint
from penstock.entrypoints.api.middleware.auth import AccessControl
from penstock.entrypoints.api.params.request_head import (
    RequestHead,
    head_of_request,
)
from penstock.entrypoints.api.problems import Problem
from penstock.entrypoints.api.request_context import ClientDisconnected, RequestContext
from penstock.entrypoints.api.server.prebuilt_head import head_of
from penstock.errors import NoSuchRecord, PenstockError, PositionGone, VersionChanged
from penstock.ports.record_access import DatasetVersion

Outcome = TypeVar("Outcome")

FIRST_ERROR = 400
# a response that repeats that of an earlier request with the same key
REPLAYED = "idempotency-replayed"
# seconds before a request watches whether its client disconnects
WATCH_DELAY = 0.05
# lets a client read its own writes
CONSISTENCY_TOKEN = b"x-consistency-token"
CACHE_CONTROL = (b"cache-control", b"private, max-age=0, must-revalidate")
# responses of these lanes may contain a token
SIGNING = (Lane.WRITES, Lane.FEEDS)
# no span is as long as a stream, and none is created for each probe
UNTRACED = (Lane.FEEDS, Lane.HEALTH)
VARY = (b"vary", b"authorization, accept, prefer")
JSON = (b"content-type", b"application/json")


class EndpointHandler:
    """The endpoints of one path, as an ASGI application."""

    def __init__(
        self,
        api: AppContext,
        access: AccessControl,
        endpoints: Mapping[str, AnyEndpoint],
    ) -> None:
        self._api = api
        self._access = access
        self._endpoints = endpoints
        self._tracer = api.penstock.tracer
        self._metrics = {
            method: api.metrics.for_route(endpoint.path, method, endpoint.lane)
            for method, endpoint in endpoints.items()
        }
        allowed = {*endpoints, *({"HEAD"} if "GET" in endpoints else ())}
        self._allow = ", ".join(sorted(allowed))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        endpoint = self._endpoints.get(method)
        if endpoint is None:
            self._access.charge_address(scope)
            headers = {"allow": self._allow}
            text = f"this path allows {self._allow}"
            raise Problem("method-not-allowed", text, headers=headers)
        context: RequestContext = scope["context"]
        metrics = context.metrics = self._metrics[method]
        if self._tracer.is_enabled and endpoint.lane not in UNTRACED:
            context.begin_span(self._tracer, metrics.route)
        in_flight = self._api.metrics.in_flight
        in_flight[endpoint.lane] += 1
        try:
            client = await self._access.authorize(endpoint, scope, context)
            try:
                admitted = self._admit(endpoint, scope)
            except Exception:
                self._access.charge_locally(client, context)
                raise
            await self._access.charge(client, context)
            if isinstance(admitted, CacheableRead):
                await self._read(admitted, scope, receive, send)
            elif endpoint.lane is Lane.FEEDS:
                with self._api.lanes.follow():
                    await self._handle(endpoint, admitted, scope, receive, send)
            else:
                await self._handle(endpoint, admitted, scope, receive, send)
        finally:
            in_flight[endpoint.lane] -= 1

    def _admit(self, endpoint: AnyEndpoint, scope: Scope) -> Any:
        """Parse a request; raises an error if it is malformed."""
        if endpoint.read is None:
            head = head_of_request(scope, Headers(scope=scope))
            return endpoint.parse(self._api, head)
        prefer = scope["context"].headers.get(b"prefer", b"")
        key = b"\n".join([scope["raw_path"], scope["query_string"], prefer])
        cached = self._api.response_cache.cached_read(key)
        if cached is not None:
            return cached
        head = head_of_request(scope, Headers(raw=[(b"prefer", prefer)]))
        return self._cacheable_read(endpoint, head, key)

    def _cacheable_read(
        self, endpoint: AnyEndpoint, head: RequestHead, key: bytes
    ) -> CacheableRead:
        api, read = self._api, endpoint.read
        assert read is not None  # noqa: S101 (see the caller)
        query = endpoint.parse(api, head)
        dataset = api.dataset(head.parts["dataset"])
        return CacheableRead(
            key=key,
            dataset=dataset.name,
            edition=api.edition(dataset),
            read=partial(read, api, query),
            max_age=dataset.cache.total_seconds(),
            lane=endpoint.lane,
            follows_changes=endpoint.follows_changes,
            size=head.size,
        )

    async def _handle(
        self,
        endpoint: AnyEndpoint,
        query: Any,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        assert endpoint.handle is not None  # noqa: S101 (an endpoint has one of them)
        LANE.set(endpoint.lane)
        DATASET.set(scope["path_params"].get("dataset"))
        if endpoint.lane in SIGNING:
            await self._api.load_signer()
        handled = endpoint.handle(self._api, Request(scope, receive), query)
        # a write continues without its client, until its deadline
        is_cancellable = endpoint.method == "GET" and endpoint.lane is not Lane.HEALTH
        try:
            response = await (
                cancel_on_disconnect(handled, receive) if is_cancellable else handled
            )
        except VersionChanged:
            await self._add_token(scope)
            raise
        except PositionGone as gone:
            await self._add_restart_position(gone, scope)
            raise
        is_done = (
            response.status_code < FIRST_ERROR and REPLAYED not in response.headers
        )
        is_tried = b"dry_run=true" in scope["query_string"]
        if endpoint.is_action and is_done and not is_tried:
            await self._log_action(endpoint, scope, response)
        await response(scope, receive, send)

    async def _log_action(
        self, endpoint: AnyEndpoint, scope: Scope, response: Response
    ) -> None:
        # what it has created, or else what it was sent to
        subject = response.headers.get("location", scope["path"])
        action = Action(
            actor=scope.get("principal") or self._access.address_of(scope),
            name=endpoint.operation_of(),
            subject=subject.removeprefix("/api/v1/"),
            via=ActionVia.API,
        )
        await self._api.in_thread(partial(self._api.penstock.log_action, action))

    async def _add_token(self, scope: Scope) -> HistoryPosition | None:
        """Add a token by which the client reads the new version from any process."""
        api = self._api
        dataset = api.dataset(scope["path_params"]["dataset"])
        with suppress(PenstockError):
            state = await api.dataset_versions.latest(dataset.name)
            token = consistency_token(api, dataset, state.position)
            scope["context"].extra_headers.append((CONSISTENCY_TOKEN, token.encode()))
            return state.position
        return None

    async def _add_restart_position(self, gone: PositionGone, scope: Scope) -> None:
        position = await self._add_token(scope)
        gone.next = None if position is None else str(position)

    async def _read(
        self, read: CacheableRead, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Respond from the cache, or load the response."""
        api = self._api
        headers = scope["context"].headers
        token = headers.get(CONSISTENCY_TOKEN)
        if token is None:
            min_seq, state = -1, await api.dataset_versions.state(read.dataset)
        else:
            dataset = api.dataset(read.dataset)
            min_seq, state = await self._state_for(token, dataset, scope)
        if_none_match = headers.get(b"if-none-match")
        if if_none_match is not None:
            etag = etag_of(read.key, read.edition, state)
            if etag in if_none_match:
                await not_modified(etag, send)
                return
        entry = api.response_cache.find(read.key, state, at_least=min_seq)
        if entry is None:
            loading = api.response_cache.load(read, state, at_least=min_seq)
            entry = await cancel_on_disconnect(loading, receive)
        if entry.not_found is not None:
            raise NoSuchRecord(entry.not_found)
        if if_none_match is not None and etag_matches(entry.etag, if_none_match):
            await not_modified(entry.etag, send)
            return
        has_body = scope["method"] != "HEAD"
        await send_entry(entry, scope["context"], with_body=has_body)

    async def _state_for(
        self, token: bytes, dataset: Dataset, scope: Scope
    ) -> tuple[int, DatasetVersion]:
        """Return the change of a token, and a dataset version that includes it."""
        api = self._api
        position = await token_position(api, dataset, token)
        try:
            state = await api.dataset_versions.state_after(dataset.name, position)
        except PositionGone as gone:
            await self._add_restart_position(gone, scope)
            raise
        # a sequence number without a tag may never come again in a restored database
        return min(position.seq, state.change_seq), state


async def cancel_on_disconnect(work: Awaitable[Outcome], receive: Receive) -> Outcome:
    """Await something, and cancel it when the client disconnects."""
    task = asyncio.ensure_future(work)
    try:
        # most work is done before watching the connection pays off
        done, _ = await asyncio.wait({task}, timeout=WATCH_DELAY)
        if not done:
            await wait_done_or_disconnected(task, receive)
        if not task.done():
            raise ClientDisconnected
        return task.result()
    finally:
        if not task.done():
            task.cancel()


async def wait_done_or_disconnected(task: asyncio.Task[Any], receive: Receive) -> None:
    watch = asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watch.cancel()


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def not_modified(etag: bytes, send: Send) -> None:
    headers = [(b"etag", etag), CACHE_CONTROL, VARY]
    await send({"type": "http.response.start", "status": 304, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def send_entry(
    entry: CacheEntry, context: RequestContext, *, with_body: bool
) -> None:
    result = entry.result
    assert result is not None  # noqa: S101 (`not_found` was raised)
    if entry.head is None:
        size = (b"content-length", str(len(result.body)).encode())
        etag = (b"etag", entry.etag)
        entry.head = head_of(JSON, size, etag, CACHE_CONTROL, VARY, *result.headers)
    await context.send_whole(entry.head, result.body if with_body else b"")


async def token_position(
    api: AppContext, dataset: Dataset, token: bytes
) -> HistoryPosition:
    """Return the change of a consistency token; one that we did not sign is ignored."""
    await api.load_signer()
    text = token.decode("latin-1")
    return api.records.cursor_signer.read_position(
        dataset.name, text
    ) or HistoryPosition(-1)


def consistency_token(
    api: AppContext, dataset: Dataset, position: HistoryPosition
) -> str:
    """Return a token by which a client reads nothing older than a change."""
    return api.records.cursor_signer.write_position(dataset.name, position)


def consistency_headers(
    api: AppContext, dataset: Dataset, state: DatasetVersion
) -> Mapping[str, str]:
    """Return headers by which a client reads its own write from any process."""
    api.dataset_versions.note(dataset.name, state)
    return {CONSISTENCY_TOKEN.decode(): consistency_token(api, dataset, state.position)}
