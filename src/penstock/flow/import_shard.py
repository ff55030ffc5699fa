"""The page loop: take a token, fetch, map, commit."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from penstock.domain.budget import MAX_SEND_DELAY, Budget, Grant
from penstock.domain.dataset import Dataset
from penstock.domain.events import (
    JobDone,
    JobSplit,
    PageCommitted,
    TokenTaken,
    job_fields,
)
from penstock.domain.import_scope import request_lower_bound
from penstock.domain.jobs import Lease
from penstock.domain.mapping.mapper import Mapper
from penstock.domain.mapping.page_mapper import Mapped, map_page
from penstock.domain.page_reuse import can_reuse_pages, page_fingerprint, summarize_page
from penstock.domain.pages import (
    Batch,
    Counts,
    Cursor,
    LazyPage,
    LoopDetector,
    Page,
    Proof,
    Redirect,
)
from penstock.domain.sharding.ignored_filters import (
    digest_keys,
    has_unchecked_filters,
    name_ignored_filters,
)
from penstock.domain.sharding.shard import (
    OutsideCheck,
    Shard,
    build_outside_check,
    divide_shard,
    parse_shard_key,
)
from penstock.errors import (
    BudgetClosed,
    BudgetStopped,
    CannotSplit,
    FiltersIgnored,
    Interrupted,
    Refused,
    RequestRefused,
    RowsRefused,
    SourceUnavailable,
    StoreUnavailable,
    TooManyBadRows,
    TooManyEmptyLines,
)
from penstock.flow.span_attributes import describe_lease
from penstock.ports import Emit, Runtime, Source, Stores

MAX_REDIRECTS = 5
MAX_TOKENS_PER_REQUEST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Time limits of the work under a lease."""

    lease: timedelta
    longest_wait: timedelta
    request: timedelta
    commit: timedelta

    @property
    def page(self) -> timedelta:
        """The longest time that one page can take."""
        return self.longest_wait + self.request + self.commit


@dataclass(slots=True)
class ActiveLease:
    """The current lease, and until when to trust it by the local clock.

    The clock is read before each call of the ledger, so this worker stops trusting a
    lease before the ledger does.
    """

    lease: Lease
    trusted_until: float
    # set by the last page if it proved the end of the shard
    proof: Proof | None = None
    # the last page had only new records, so the next one cannot be a reused page
    is_growing: bool = False


class ImportShard:
    """Advance the shards of one dataset, page by page."""

    def __init__(
        self,
        dataset: Dataset,
        *,
        source: Source,
        budget: Budget,
        stores: Stores,
        patience: Timeouts,
        host: Runtime,
        emit: Emit,
    ) -> None:
        self._dataset = dataset
        self._source = source
        self._budget = budget
        self._budgets = stores.budgets
        self._ledger = stores.ledger
        self._imports = stores.imports
        self._records = stores.records
        self._timeouts = patience
        self._halt = host.halt
        self._monotonic = host.monotonic
        self._emit = emit
        self._tracer = host.tracer
        self._mapper = Mapper(dataset)
        self._has_unchecked_filters = has_unchecked_filters(dataset.axes)

    def __call__(self, active: ActiveLease) -> None:
        """Import pages until the end is proven; `LeaseLost` ends it without a write."""
        first = active.lease
        shard = parse_shard_key(self._dataset.axes, first.shard_key)
        since = request_lower_bound(self._dataset, first.mode, first.since)
        outside = build_outside_check(self._dataset, shard, since)
        cursor = None if first.cursor is None else Cursor.decode(first.cursor)
        while True:
            with self._tracer.span("import page", parent=first.traceparent) as span:
                if span.is_recording:
                    describe_lease(span, active.lease)
                    span.set("penstock.page", active.lease.page_seq + 1)
                response = self._fetch(active, shard, cursor, since)
                is_stored = self._reuse_page(active, response) or self._import_page(
                    active, response, cursor, outside
                )
            if not is_stored:
                self._split(active.lease, shard)
                return
            if active.proof is not None:
                self._emit_done(active.lease, active.proof)
                return
            after = active.lease.cursor
            cursor = None if after is None else Cursor.decode(after)

    def _import_page(
        self,
        active: ActiveLease,
        response: Page | LazyPage,
        cursor: Cursor | None,
        outside: OutsideCheck,
    ) -> bool:
        """Parse, map and commit a page; False if the provider truncated it."""
        with self._tracer.child("parse page"):
            page = response.read() if isinstance(response, LazyPage) else response
        fingerprint = self._fingerprint(active.lease, response)
        self._compare_first_keys(active.lease, page, cursor)
        return self._store(active, page, fingerprint, cursor, outside)

    def _fetch(
        self,
        active: ActiveLease,
        shard: Shard,
        cursor: Cursor | None,
        since: datetime | None,
    ) -> Page | LazyPage:
        position = None if cursor is None else cursor.position
        moved: Redirect | None = None
        for _ in range(MAX_REDIRECTS + 1):
            self._source.get_ready(shard, position, partial(self._keep_alive, active))
            if self._dataset.source.is_budgeted:
                with self._tracer.child("take token") as span:
                    if span.is_recording:
                        span.set("penstock.budget", self._budget.name)
                    self._take_token(active)
            else:
                self._keep_alive(active)
            active.lease = replace(active.lease, sent=active.lease.sent + 1)
            with self._tracer.child("fetch page"):
                response = self._source.fetch(shard, position, since=since, moved=moved)
            if not isinstance(response, Redirect):
                return response
            moved = response
        raise RequestRefused(f"the provider redirected more than {MAX_REDIRECTS} times")

    def _fingerprint(self, lease: Lease, response: Page | LazyPage) -> bytes | None:
        """Return the key by which a page may be recognised, if it is eligible."""
        is_last = lease.page_seq + 1 >= self._dataset.source.most_pages
        # the keys of a first page may have to be compared with those of other shards
        is_compared = lease.cursor is None and self._has_unchecked_filters
        is_eligible = not is_last and can_reuse_pages(self._dataset, lease)
        if is_compared or not is_eligible or not isinstance(response, LazyPage):
            return None
        return page_fingerprint(lease, response.digest())

    def _compare_first_keys(
        self, lease: Lease, page: Page, cursor: Cursor | None
    ) -> None:
        """Raise `FiltersIgnored` if another shard begins with the same records."""
        is_first = cursor is None or not cursor.rows
        if not is_first or not self._has_unchecked_filters:
            return
        digest = digest_keys(self._mapper.key_of(row) for row in page.rows)
        other = None if digest is None else self._ledger.note_first_keys(lease, digest)
        if other is None:
            return
        axes, mine = self._dataset.axes, lease.shard_key
        ignored = name_ignored_filters(
            parse_shard_key(axes, mine), parse_shard_key(axes, other)
        )
        if ignored:
            raise FiltersIgnored(ignored, shard=mine, other=other)

    def _reuse_page(self, active: ActiveLease, response: Page | LazyPage) -> bool:
        """Commit a page that was committed before without parsing it, if it was."""
        fingerprint = self._fingerprint(active.lease, response)
        if active.is_growing or fingerprint is None:
            return False
        requested_at = self._monotonic()
        with self._tracer.child("reuse page"):
            repeated = self._ledger.repeat_page(
                self._dataset,
                active.lease,
                fingerprint,
                provider_time=response.provider_time,
            )
        if repeated is None:
            return False
        lease, counts, proof = repeated
        self._update_lease(
            active, lease, counts, proof=proof, requested_at=requested_at
        )
        return True

    def _store(
        self,
        active: ActiveLease,
        page: Page,
        fingerprint: bytes | None,
        cursor: Cursor | None,
        outside: OutsideCheck,
    ) -> bool:
        """Commit a page; False, and nothing is written, if the provider truncated it.

        Rows that the database refuses are rejected, and the page is committed without
        them. The loop ends because each round has fewer rows left.
        """
        refused: dict[bytes, Refused] = {}
        while True:
            batch = self._build_batch(
                active.lease, page, fingerprint, cursor, outside, refused
            )
            if batch is None:
                return False
            try:
                self._commit(active, batch)
            except RowsRefused as error:
                refused.update(error.refused)
                self._renew_if_due(active)
            else:
                return True

    def _build_batch(
        self,
        lease: Lease,
        page: Page,
        fingerprint: bytes | None,
        cursor: Cursor | None,
        outside: OutsideCheck,
        refused: Mapping[bytes, Refused],
    ) -> Batch | None:
        """Return what a page changes; None if the provider truncated it."""
        # before the check below: with an ignored filter, every smaller shard would
        # look truncated
        with self._tracer.child("map page") as span:
            mapped = map_page(
                self._mapper,
                page,
                outside,
                self._records.unknown,
                shard=lease.shard_key,
                refused=refused,
            )
            if span.is_recording:
                span.set("penstock.records", len(mapped.records))
                span.set("penstock.rejections", len(mapped.rejections))
        if self._is_truncated(lease, page, cursor):
            return None
        refuse_early_end(page, cursor)
        batch = build_batch(page, self._next_cursor(lease, page, cursor), mapped)
        summary = None if fingerprint is None else summarize_page(page, batch)
        if summary is None:
            return batch
        return replace(batch, imprint=fingerprint, memo=summary)

    def _take_token(self, active: ActiveLease) -> None:
        """Wait for a token that is valid now, under a lease that outlives its use."""
        waited = timedelta()
        for _ in range(MAX_TOKENS_PER_REQUEST):
            if self._halt.is_set():
                raise Interrupted("stopped")
            self._renew_if_due(active)
            requested_at = self._monotonic()
            grant = self._budgets.take(
                self._budget, longest=self._timeouts.longest_wait
            )
            if grant.wait and self._halt.wait(grant.wait.total_seconds()):
                self._budgets.give_back(self._budget, grant)
                raise Interrupted("stopped")
            waited += grant.wait
            if self._is_usable(grant, requested_at):
                self._emit(
                    TokenTaken(
                        **job_fields(active.lease),
                        budget=self._budget.name,
                        waited=waited,
                    )
                )
                return
        # not an error of the job: it must not cost an attempt
        raise StoreUnavailable(
            f"none of {MAX_TOKENS_PER_REQUEST} tokens could be used in time: "
            "this host or the budget's store is too slow"
        )

    def _is_usable(self, grant: Grant, requested_at: float) -> bool:
        """Return whether a token is neither late nor revoked.

        A worker that was delayed may have lost its lease as well; the next renewal
        finds out.
        """
        late = MAX_SEND_DELAY.total_seconds()
        if not grant.wait and self._monotonic() - requested_at <= late:
            return True
        checked = self._monotonic()
        try:
            is_timely = self._budgets.confirm(grant)
        except (BudgetClosed, BudgetStopped):
            self._budgets.give_back(self._budget, grant)
            raise
        return is_timely and self._monotonic() - checked <= late

    def _keep_alive(self, active: ActiveLease) -> None:
        """Renew the lease during a long page; raise `Interrupted` when stopping."""
        if self._halt.is_set():
            raise Interrupted("stopped")
        self._renew_if_due(active)

    def _renew_if_due(self, active: ActiveLease) -> None:
        now = self._monotonic()
        if now + self._timeouts.page.total_seconds() > active.trusted_until:
            self._ledger.renew(active.lease)
            active.trusted_until = now + self._timeouts.lease.total_seconds()

    def _is_truncated(self, lease: Lease, page: Page, cursor: Cursor | None) -> bool:
        cap = self._dataset.source.cap
        if cap is not None and rows_so_far(page, cursor) >= cap:
            return True
        max_pages = self._dataset.source.most_pages
        return page.proof is None and lease.page_seq + 1 >= max_pages

    def _split(self, lease: Lease, shard: Shard) -> None:
        children = [child.key for child in divide_shard(shard)]
        if not children:
            raise CannotSplit(
                f"shard {lease.shard_key!r} is truncated by the provider (source.cap "
                "or source.pages.max) and cannot be divided further; add a shard axis, "
                "or lower its 'smallest'"
            )
        self._ledger.split(lease, children)
        self._emit(
            JobSplit(
                **job_fields(lease),
                shard=lease.shard_key,
                children=len(children),
            )
        )

    def _emit_done(self, lease: Lease, proof: Proof) -> None:
        self._emit(
            JobDone(
                **job_fields(lease),
                shard=lease.shard_key,
                proof=proof,
            )
        )

    def _next_cursor(
        self, lease: Lease, page: Page, cursor: Cursor | None
    ) -> Cursor | None:
        if page.next is None:
            return None
        trail = LoopDetector() if cursor is None else cursor.loop_detector
        if not page.rises:
            # without new records, only the position shows a loop
            rows = () if page.overlaps else page.rows
            keys = [self._mapper.key_of(row) or row.raw for row in rows]
            trail = trail.after(keys or [page.next], page=lease.page_seq + 1)
        return Cursor(
            position=page.next,
            rows=rows_so_far(page, cursor),
            loop_detector=trail,
            total=first_total(page, cursor),
        )

    def _commit(self, active: ActiveLease, batch: Batch) -> None:
        requested_at = self._monotonic()
        with self._tracer.child("commit page"):
            lease, counts = self._ledger.commit_page(self._dataset, active.lease, batch)
        self._update_lease(
            active, lease, counts, proof=batch.proof, requested_at=requested_at
        )
        active.is_growing = counts.inserted == len(batch.records) > 0
        if batch.rejections:
            total = self._imports.peek(active.lease.import_id).counts
            too_many = self._dataset.bad.exceeded(
                bad=total.quarantined, seen=total.seen, at_end=False
            )
            if too_many is not None:
                raise TooManyBadRows(too_many)
        if batch.dropped > batch.seen - batch.dropped:
            self._refuse_empty_lines(active.lease)

    def _refuse_empty_lines(self, lease: Lease) -> None:
        """Fail an import that reads almost only empty lines."""
        limit = self._dataset.source.max_empty_lines
        counts = self._imports.peek(lease.import_id).counts
        rows = counts.seen - counts.dropped
        if limit is not None and counts.dropped > max(limit, rows):
            raise TooManyEmptyLines(
                f"{counts.dropped:,} of {counts.seen:,} lines were empty: more than "
                f"the rows, and than source.max_empty_lines = {limit}; check the "
                "file, or raise the limit"
            )

    def _update_lease(
        self,
        active: ActiveLease,
        lease: Lease,
        counts: Counts,
        *,
        proof: Proof | None,
        requested_at: float,
    ) -> None:
        """Take over the lease that a commit has renewed, and report the page."""
        active.lease, active.proof, active.is_growing = lease, proof, False
        active.trusted_until = requested_at + self._timeouts.lease.total_seconds()
        self._emit(
            PageCommitted(
                **job_fields(active.lease),
                page=active.lease.page_seq,
                counts=counts,
            )
        )


def refuse_early_end(page: Page, cursor: Cursor | None) -> None:
    """Raise if the last page announces more rows than the shard has yielded.

    Rows may come and go during the scan: the first page must have announced them, too.
    """
    if page.proof is None or page.announced is None:
        return
    first, last = first_total(page, cursor), page.announced.rows
    if rows_so_far(page, cursor) < min(last if first is None else first, last):
        raise SourceUnavailable(page.announced.error)


def first_total(page: Page, cursor: Cursor | None) -> int | None:
    if cursor is not None:
        return cursor.total
    return None if page.announced is None else page.announced.rows


def rows_so_far(page: Page, cursor: Cursor | None) -> int:
    before = 0 if cursor is None else cursor.rows
    return before + rows_in(page)


def rows_in(page: Page) -> int:
    return len(page.rows) + len(page.bad_rows) + page.dropped


def build_batch(page: Page, cursor: Cursor | None, mapped: Mapped) -> Batch:
    return Batch(
        records=mapped.records,
        rejections=mapped.rejections,
        repeated_keys=mapped.repeated_keys,
        seen=rows_in(page),
        dropped=page.dropped,
        cursor=None if cursor is None else cursor.encode(),
        proof=page.proof,
        provider_time=page.provider_time,
        rank=page.rank,
    )
