"""Fetch the pages of one dataset over HTTP."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from http import HTTPStatus
from time import monotonic

from blake3 import blake3
from typing_extensions import override

from penstock.adapters.http.auth import credentials_of
from penstock.adapters.http.body import Body, BodyReader
from penstock.adapters.http.client import Answer, Client, Request
from penstock.adapters.http.decode import RowReader
from penstock.adapters.http.hiding import Hiding
from penstock.adapters.http.links import (
    host_of,
    is_same_place,
    next_link,
    resolve,
    without,
)
from penstock.adapters.http.paging import Reach, Seen, follow, reach_of, within
from penstock.adapters.http.request import RequestWriter
from penstock.adapters.http.statuses import judge
from penstock.adapters.http.transform import RowTransform, Transform
from penstock.adapters.net.dates import parse_date
from penstock.domain.dataset import Dataset
from penstock.domain.page import Moved, Page, Position, Row, Unread
from penstock.domain.shard import Shard
from penstock.domain.sheet import column
from penstock.domain.source import Paging
from penstock.errors import PenstockError, RequestRefused, SourceUnavailable
from penstock.ports import Redact, Source, StillHere

# what a request gets even if its token took longer than it should
LEAST_TIME = timedelta(seconds=0.1)
DIGEST_BYTES = 16


def utc_now() -> datetime:
    return datetime.now(UTC)


class HttpPages(Source):
    """The pages of one dataset, asked for over HTTP; threads may share it."""

    def __init__(
        self,
        dataset: Dataset,
        *,
        stop_on: frozenset[int],
        redact: Redact,
        edition: str = "",
        transform: Transform | None = None,
        client: Client | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        source = dataset.http
        self._source = source
        self._stop_on = stop_on
        self._now = now
        # of the declaration and of this program: how answers are read
        self._edition = edition.encode()
        self._hiding = Hiding(source, redact)
        self._writer = RequestWriter(dataset, self._hiding)
        self._client = client or Client()
        self._credentials = credentials_of(
            source.auth,
            client=self._client,
            # the token and the page share the time of one request
            timeout=source.timeout / 2,
            hiding=self._hiding,
        )
        self._rows = RowReader(dataset.paths)
        self._bodies = BodyReader(
            source.records, source.pages.next, rows=self._rows, hiding=self._hiding
        )
        self._transform = (
            None if transform is None else RowTransform(dataset, transform)
        )
        key = source.pages.field
        self._key_place = None if key is None else dataset.place[key]

    @override
    def get_ready(
        self, shard: Shard, position: Position | None, still_here: StillHere
    ) -> None:
        self._credentials.sign()

    @override
    def fetch(
        self,
        shard: Shard,
        position: Position | None,
        *,
        since: datetime | None,
        moved: Moved | None = None,
    ) -> Unread | Moved:
        request = self._writer.write(shard, position, since=since)
        if moved is not None:
            request = self._moved(request, moved)
        began = monotonic()
        answer = self._send(request)
        if isinstance(answer, Moved):
            return answer
        provider_time = parse_date(answer.headers.get("Date"))
        if provider_time is not None:
            # what the provider read, it read between our question and its answer
            provider_time -= timedelta(seconds=monotonic() - began)

        def read() -> Page:
            page = self._page(request, answer, position, reach_of(shard))
            return replace(page, provider_time=provider_time)

        # of an answer that may be known, it is asked twice
        digest = cache(partial(self._digest, answer))
        return Unread(digest=digest, provider_time=provider_time, read=read)

    @override
    def preview(self, shard: Shard, *, since: datetime | None) -> str:
        request = self._writer.write(shard, None, since=since)
        body = "" if request.body is None else f" {request.body.decode()}"
        return self._hiding(f"{request.method} {request.url}{body}")

    @override
    def read(self, raw: bytes) -> Row:
        row = self._rows.read(raw, 0)
        if self._transform is None:
            return row
        changed = self._transform(row)
        if changed is None:
            return row._replace(unreadable="transform drops this record")
        return changed

    def close(self) -> None:
        """Close the idle connections."""
        self._client.close()

    def _moved(self, request: Request, moved: Moved) -> Request:
        if not is_same_place(request.url, moved.url):
            raise RequestRefused(
                f"redirects to another host are not followed: {host_of(moved.url)}"
            )
        return self._writer.at(moved.url, request)

    def _send(self, request: Request) -> Answer | Moved:
        began = monotonic()
        signed = self._credentials.sign()
        spent = timedelta(seconds=monotonic() - began)
        answer = self._client.send(
            Request(
                method=request.method,
                url=request.url,
                headers={**request.headers, **signed},
                body=request.body,
            ),
            timeout=max(self._source.timeout - spent, LEAST_TIME),
            max_bytes=self._source.max_bytes,
        )
        if answer.status == HTTPStatus.UNAUTHORIZED and self._credentials.refuse(
            signed
        ):
            raise SourceUnavailable(
                "the access token is no longer accepted; the next request gets another",
                retry_after=timedelta(),
            )
        verdict = judge(
            request,
            answer,
            stop_on=self._stop_on,
            hiding=self._hiding,
            now=self._now(),
        )
        if isinstance(verdict, PenstockError):
            raise verdict
        if isinstance(verdict, Moved):
            return verdict
        self._credentials.accept(signed)
        return answer

    def _digest(self, answer: Answer) -> bytes:
        """Digest what decides what the page of an answer is."""
        digest = blake3(answer.body)
        digest.update(answer.headers.get("Link", "").encode(errors="replace"))
        digest.update(self._edition)
        return digest.digest(length=DIGEST_BYTES)

    def _page(
        self,
        request: Request,
        answer: Answer,
        position: Position | None,
        reach: Reach,
    ) -> Page:
        body = self._body(answer)
        originals = body.rows
        keys: Sequence[object] = ()
        if self._key_place is not None:
            keys = column(originals, self._key_place)
        seen = Seen(
            rows=len(originals),
            keys=keys,
            next=self._next(request, answer, body),
            asked=without(request.url, self._hiding.parameters),
            names_next=body.names_next
            if self._source.pages.next
            else answer.headers.get("Link") is not None,
        )
        step = follow(self._source.pages, position, seen, reach)
        originals = within(originals, keys, reach)
        rows = originals
        if self._transform is not None:
            changed = map(self._transform, originals)
            rows = [row for row in changed if row is not None]
        return Page(
            rows=rows,
            next=step.next,
            proof=step.proof,
            dropped=len(originals) - len(rows),
            rises=step.rises,
        )

    def _body(self, answer: Answer) -> Body:
        content_type = answer.headers.get("Content-Type")
        return self._bodies.read(answer.body, content_type=content_type)

    def _next(self, request: Request, answer: Answer, body: Body) -> object:
        """Return the next token, or the next address without secrets."""
        pages = self._source.pages
        if pages.by is not Paging.LINK:
            return body.next
        named = body.next if pages.next else next_link(answer.headers.get("Link"))
        if named is None or named is False or named == "":
            return None
        try:
            address = resolve(request.url, str(named))
            is_same = isinstance(named, str) and is_same_place(request.url, address)
        except ValueError:
            raise RequestRefused("the provider's next link is no address") from None
        if not is_same:
            raise RequestRefused(
                "next links to another host are not followed: "
                f"{host_of(request.url)} named {self._hiding(host_of(address))}"
            )
        # it is kept in the ledger
        return without(address, self._hiding.parameters)
