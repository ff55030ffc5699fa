"""Fetch the pages of one dataset over HTTP."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from http import HTTPStatus
from time import monotonic

from blake3 import blake3
from typing_extensions import override

from penstock.adapters.http.auth import build_credentials
from penstock.adapters.http.body_parser import Body, BodyReader
from penstock.adapters.http.client import HttpClient, HttpRequest, HttpResponse
from penstock.adapters.http.pagination import (
    ClientBounds,
    PageFacts,
    client_bounds,
    drop_late_rows,
    next_step,
)
from penstock.adapters.http.record_decoder import NumberPaths, RecordDecoder
from penstock.adapters.http.request_builder import RequestBuilder
from penstock.adapters.http.response_status import classify
from penstock.adapters.http.transform import RowTransform, Transform
from penstock.adapters.http.urls import (
    host_of,
    is_same_origin,
    next_link,
    resolve,
    without_parameters,
)
from penstock.adapters.net.http_dates import parse_date
from penstock.domain.dataset import Dataset
from penstock.domain.mapping.columnar import column_values
from penstock.domain.mapping.written_numbers import with_exact_numbers
from penstock.domain.pages import (
    AnnouncedTotal,
    LazyPage,
    Page,
    Position,
    Proof,
    RawRow,
    Redirect,
)
from penstock.domain.redaction import Redactor
from penstock.domain.sharding.shard import Shard
from penstock.domain.source import Paging
from penstock.errors import (
    PenstockError,
    Rejected,
    RequestRefused,
    SourceUnavailable,
)
from penstock.ports import KeepAlive, Source

# the timeout of a request even if its token took too long
MIN_REQUEST_TIME = timedelta(seconds=0.1)
DIGEST_BYTES = 16


def utc_now() -> datetime:
    return datetime.now(UTC)


class HttpSourceReader(Source):
    """The pages of one dataset over HTTP; threads may share it."""

    def __init__(
        self,
        dataset: Dataset,
        *,
        stop_on: frozenset[int],
        redactor: Redactor,
        edition: str = "",
        transform: Transform | None = None,
        client: HttpClient | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        source = dataset.http
        self._source = source
        self._stop_on = stop_on
        self._now = now
        # of the declaration and of this program: how responses are read
        self._edition = edition.encode()
        self._redactor = redactor
        self._requests = RequestBuilder(dataset, redactor)
        self._client = client or HttpClient()
        self._credentials = build_credentials(
            source.auth,
            client=self._client,
            # the token and the page share the time of one request
            timeout=source.timeout / 2,
            redactor=redactor,
        )
        self._decoder = RecordDecoder(dataset.paths, NumberPaths.of(dataset))
        self._body_reader = BodyReader(
            source.records,
            source.pages.next,
            rows=self._decoder,
            redactor=redactor,
            error=source.error,
            total=source.total,
        )
        self._transform = (
            None if transform is None else RowTransform(dataset, transform)
        )
        key = source.pages.field
        self._key_position = None if key is None else dataset.path_index[key]
        self._is_unique = dataset.pages_by_key

    @override
    def get_ready(
        self, shard: Shard, position: Position | None, still_here: KeepAlive
    ) -> None:
        self._credentials.sign()

    @override
    def fetch(
        self,
        shard: Shard,
        position: Position | None,
        *,
        since: datetime | None,
        moved: Redirect | None = None,
    ) -> LazyPage | Redirect:
        request = self._requests.build(shard, position, since=since)
        if moved is not None:
            request = self._redirect(request, moved)
        started_at = monotonic()
        response = self._send(request)
        if isinstance(response, Redirect):
            return response
        provider_time = parse_date(response.headers.get("Date"))
        if provider_time is not None:
            # the provider read its data between our request and its response
            provider_time -= timedelta(seconds=monotonic() - started_at)

        def read() -> Page:
            page = self._page(request, response, position, client_bounds(shard))
            return replace(page, provider_time=provider_time)

        # it may be needed twice
        digest = cache(partial(self._digest, response))
        return LazyPage(digest=digest, provider_time=provider_time, read=read)

    @override
    def preview(self, shard: Shard, *, since: datetime | None) -> str:
        request = self._requests.build(shard, None, since=since)
        body = "" if request.body is None else f" {request.body.decode()}"
        return self._redactor.redact_traffic(f"{request.method} {request.url}{body}")

    @override
    def read(self, raw: bytes) -> RawRow:
        row = self._decoder.read_with_names(raw, 0)
        if self._transform is None:
            return row
        changed = self._transform(row)
        if changed is None:
            return row._replace(unreadable="transform drops this record")
        return changed

    def close(self) -> None:
        """Close the idle connections."""
        self._client.close()

    def _redirect(self, request: HttpRequest, moved: Redirect) -> HttpRequest:
        if not is_same_origin(request.url, moved.url):
            raise RequestRefused(
                f"redirects to another host are not followed: {host_of(moved.url)}"
            )
        return self._requests.redirect(moved.url, request)

    def _send(self, request: HttpRequest) -> HttpResponse | Redirect:
        started_at = monotonic()
        signed = self._credentials.sign()
        elapsed = timedelta(seconds=monotonic() - started_at)
        response = self._client.send(
            HttpRequest(
                method=request.method,
                url=request.url,
                headers={**request.headers, **signed},
                body=request.body,
            ),
            timeout=max(self._source.timeout - elapsed, MIN_REQUEST_TIME),
            max_bytes=self._source.max_bytes,
        )
        if response.status == HTTPStatus.UNAUTHORIZED and self._credentials.refuse(
            signed
        ):
            raise SourceUnavailable(
                "the access token is no longer accepted; the next request gets another",
                retry_after=timedelta(),
            )
        verdict = classify(
            request,
            response,
            stop_on=self._stop_on,
            redactor=self._redactor,
            secrets=self._requests.secrets,
            now=self._now(),
        )
        if isinstance(verdict, PenstockError):
            raise verdict
        if isinstance(verdict, Redirect):
            return verdict
        self._credentials.accept(signed)
        return response

    def _digest(self, response: HttpResponse) -> bytes:
        """Digest everything that decides the page of a response."""
        digest = blake3(response.body)
        digest.update(response.headers.get("Link", "").encode(errors="replace"))
        digest.update(self._edition)
        return digest.digest(length=DIGEST_BYTES)

    def _page(
        self,
        request: HttpRequest,
        response: HttpResponse,
        position: Position | None,
        bounds: ClientBounds,
    ) -> Page:
        body = self._body(response)
        originals = body.rows
        keys: Sequence[object] = ()
        if self._key_position is not None:
            keys = self._exact_keys(column_values(originals, self._key_position))
        facts = PageFacts(
            rows=len(originals),
            keys=keys,
            next=self._next_value(request, response, body),
            url=without_parameters(request.url, self._requests.secrets),
            names_next=body.names_next
            if self._source.pages.next
            else response.headers.get("Link") is not None,
            is_unique=self._is_unique,
        )
        step = next_step(self._source.pages, position, facts, bounds)
        announced = None
        if position is None or step.proof is not None:
            announced = self._announced_total(response, step.proof, bounds)
        originals = drop_late_rows(originals, keys, bounds)
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
            overlaps=step.overlaps,
            announced=announced,
        )

    def _exact_keys(self, values: Sequence[object]) -> Sequence[object]:
        try:
            return with_exact_numbers(values)
        except ValueError as error:
            name = ".".join(self._source.pages.field or ())
            raise Rejected(f"pages cannot be continued from {name}: {error}") from None

    def _announced_total(
        self, response: HttpResponse, proof: Proof | None, bounds: ClientBounds
    ) -> AnnouncedTotal | None:
        """Return how many records a response announces.

        Raises `SourceUnavailable` if it would be the last, and says that it is not.
        """
        claims = self._body_reader.read_end_claims(response.body)
        refuse = partial(self._body_reader.refuse_end, body=response.body)
        if proof is not None and claims.error is not None:
            raise refuse(f"the response ends the pages, and has a {claims.error!r}")
        is_all = bounds == ClientBounds()
        if proof is not None and claims.more is not None and is_all:
            raise refuse(f"the response ends the pages, but {claims.more!r} is true")
        if claims.total is None or not is_all:
            # of a range that is not sent, it would count the other shards, too
            return None
        name = claims.total_name
        error = refuse(
            f"the pages end before the {claims.total:,} records of {name!r}; if it "
            "counts something else, name the right one as source.total"
        )
        return AnnouncedTotal(rows=claims.total, error=str(error))

    def _body(self, response: HttpResponse) -> Body:
        content_type = response.headers.get("Content-Type")
        return self._body_reader.read(response.body, content_type=content_type)

    def _next_value(
        self, request: HttpRequest, response: HttpResponse, body: Body
    ) -> object:
        """Return the next token, or the next URL without secrets."""
        pages = self._source.pages
        if pages.by is not Paging.LINK:
            return body.next
        link = body.next if pages.next else next_link(response.headers.get("Link"))
        if link is None or link is False or link == "":
            return None
        try:
            url = resolve(request.url, str(link))
            is_same = isinstance(link, str) and is_same_origin(request.url, url)
        except ValueError:
            raise RequestRefused("the provider's next link is not a URL") from None
        if not is_same:
            raise RequestRefused(
                "next links to another host are not followed: "
                f"{host_of(request.url)} named {self._redactor(host_of(url))}"
            )
        # it is stored in the ledger
        return without_parameters(url, self._requests.secrets)
