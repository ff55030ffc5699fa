"""The page loop: take a token, fetch, map, commit; the whole product in one place."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from penstock.domain.budget import LATEST_USE, Budget, Grant
from penstock.domain.dataset import Dataset
from penstock.domain.events import JobDone, JobSplit, PageCommitted
from penstock.domain.job import Lease
from penstock.domain.map_page import Mapped, map_page
from penstock.domain.mapping import Mapper
from penstock.domain.page import (
    Batch,
    Counts,
    Cursor,
    Moved,
    Page,
    Proof,
    Trail,
    Unread,
)
from penstock.domain.repeat import imprint_of, is_recallable, memo_of
from penstock.domain.scope import told_since
from penstock.domain.shard import Outside, Shard, divide, parse_key, predicate
from penstock.errors import (
    BudgetClosed,
    BudgetStopped,
    CannotSplit,
    Interrupted,
    Refused,
    RequestRefused,
    RowsRefused,
    StoreUnavailable,
    TooManyBadRows,
    TooManyEmptyLines,
)
from penstock.ports import Emit, Host, Source, Stores

MOST_HOPS = 5
MOST_TOKENS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long things may take while a lease is held."""

    lease: timedelta
    longest_wait: timedelta
    request: timedelta
    commit: timedelta

    @property
    def page(self) -> timedelta:
        """The longest that one page can take."""
        return self.longest_wait + self.request + self.commit


@dataclass(slots=True)
class Held:
    """The lease as it stands now, and until when we may trust it by our own clock.

    The clock is read before the ledger is asked, so we stop trusting a lease before
    the ledger does.
    """

    lease: Lease
    trusted_until: float
    # what the last page has shown of the end
    proof: Proof | None = None
    # it brought nothing but new records, so the next will not be known
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
        patience: Patience,
        host: Host,
        emit: Emit,
    ) -> None:
        self._dataset = dataset
        self._source = source
        self._budget = budget
        self._budgets = stores.budgets
        self._ledger = stores.ledger
        self._imports = stores.imports
        self._records = stores.records
        self._patience = patience
        self._halt = host.halt
        self._monotonic = host.monotonic
        self._emit = emit
        self._map = Mapper(dataset)

    def __call__(self, held: Held) -> None:
        """Go on until the end is proven; stop on `LeaseLost` without a trace."""
        first = held.lease
        shard = parse_key(self._dataset.axes, first.shard_key)
        since = told_since(self._dataset, first.mode, first.since)
        outside = predicate(self._dataset, shard, since)
        cursor = None if first.cursor is None else Cursor.decode(first.cursor)
        while True:
            answer = self._fetch(held, shard, cursor, since)
            if not self._repeat(held, answer):
                page = answer.read() if isinstance(answer, Unread) else answer
                imprint = self._imprint(held.lease, answer)
                if not self._store(held, page, imprint, cursor, outside):
                    self._split(held.lease, shard)
                    return
            if held.proof is not None:
                self._tell_end(held.lease, held.proof)
                return
            after = held.lease.cursor
            cursor = None if after is None else Cursor.decode(after)

    def _fetch(
        self, held: Held, shard: Shard, cursor: Cursor | None, since: datetime | None
    ) -> Page | Unread:
        position = None if cursor is None else cursor.position
        moved: Moved | None = None
        for _ in range(MOST_HOPS + 1):
            self._source.get_ready(shard, position, partial(self._still_here, held))
            if self._dataset.source.is_budgeted:
                self._take_token(held)
            else:
                self._still_here(held)
            held.lease = replace(held.lease, sent=held.lease.sent + 1)
            answer = self._source.fetch(shard, position, since=since, moved=moved)
            if not isinstance(answer, Moved):
                return answer
            moved = answer
        raise RequestRefused(f"the provider redirected more than {MOST_HOPS} times")

    def _imprint(self, lease: Lease, answer: Page | Unread) -> bytes | None:
        """Return by what an answer is known if it came before, if it may be."""
        is_last = lease.page_seq + 1 >= self._dataset.source.most_pages
        may_be_known = not is_last and is_recallable(self._dataset, lease)
        if not may_be_known or not isinstance(answer, Unread):
            return None
        return imprint_of(lease, answer.digest())

    def _repeat(self, held: Held, answer: Page | Unread) -> bool:
        """Commit an answer that is known without reading it; say whether it was."""
        imprint = self._imprint(held.lease, answer)
        if held.is_growing or imprint is None:
            return False
        asked = self._monotonic()
        repeated = self._ledger.repeat_page(
            self._dataset, held.lease, imprint, provider_time=answer.provider_time
        )
        if repeated is None:
            return False
        lease, counts, proof = repeated
        self._go_on(held, lease, counts, proof=proof, asked=asked)
        return True

    def _store(
        self,
        held: Held,
        page: Page,
        imprint: bytes | None,
        cursor: Cursor | None,
        outside: Outside,
    ) -> bool:
        """Commit a page; False, and nothing is done, if the provider has cut it off.

        Rows that the database refuses are bad, and the page is committed without them.
        Each time there are fewer of the others.
        """
        refused: dict[bytes, Refused] = {}
        while True:
            batch = self._read(held.lease, page, imprint, cursor, outside, refused)
            if batch is None:
                return False
            try:
                self._commit(held, batch)
            except RowsRefused as error:
                refused.update(error.refused)
                self._keep_lease(held)
            else:
                return True

    def _read(
        self,
        lease: Lease,
        page: Page,
        imprint: bytes | None,
        cursor: Cursor | None,
        outside: Outside,
        refused: Mapping[bytes, Refused],
    ) -> Batch | None:
        """Say what a page changes; None if the provider has cut it off."""
        # first of all: an ignored filter would look cut off in every smaller shard
        mapped = map_page(
            self._map,
            page,
            outside,
            self._records.unknown,
            shard=lease.shard_key,
            refused=refused,
        )
        if self._is_cut_off(lease, page, cursor):
            return None
        batch = batch_of(page, self._following(lease, page, cursor), mapped)
        memo = None if imprint is None else memo_of(page, batch)
        return batch if memo is None else replace(batch, imprint=imprint, memo=memo)

    def _take_token(self, held: Held) -> None:
        """Wait for a token of this very moment, under a lease that outlives its use."""
        for _ in range(MOST_TOKENS):
            if self._halt.is_set():
                raise Interrupted("asked to stop")
            self._keep_lease(held)
            asked = self._monotonic()
            grant = self._budgets.take(
                self._budget, longest=self._patience.longest_wait
            )
            if grant.wait and self._halt.wait(grant.wait.total_seconds()):
                self._budgets.give_back(self._budget, grant)
                raise Interrupted("asked to stop")
            if self._is_timely(grant, asked):
                return
        # it is nobody's fault: the job must not become a dead letter by it
        raise StoreUnavailable(
            f"none of {MOST_TOKENS} tokens could be used in time: "
            "this host or the budget's store is too slow"
        )

    def _is_timely(self, grant: Grant, asked: float) -> bool:
        """Say whether a token is neither late nor revoked.

        Whoever was held up, in a call or between two, may have lost the job as well;
        the next look at the lease tells.
        """
        late = LATEST_USE.total_seconds()
        if not grant.wait and self._monotonic() - asked <= late:
            return True
        checked = self._monotonic()
        try:
            is_timely = self._budgets.confirm(grant)
        except (BudgetClosed, BudgetStopped):
            self._budgets.give_back(self._budget, grant)
            raise
        return is_timely and self._monotonic() - checked <= late

    def _still_here(self, held: Held) -> None:
        """Keep the lease of a page that takes long, unless we are to stop."""
        if self._halt.is_set():
            raise Interrupted("asked to stop")
        self._keep_lease(held)

    def _keep_lease(self, held: Held) -> None:
        now = self._monotonic()
        if now + self._patience.page.total_seconds() > held.trusted_until:
            self._ledger.renew(held.lease)
            held.trusted_until = now + self._patience.lease.total_seconds()

    def _is_cut_off(self, lease: Lease, page: Page, cursor: Cursor | None) -> bool:
        cap = self._dataset.source.cap
        if cap is not None and rows_after(page, cursor) >= cap:
            return True
        most = self._dataset.source.most_pages
        return page.proof is None and lease.page_seq + 1 >= most

    def _split(self, lease: Lease, shard: Shard) -> None:
        children = [child.key for child in divide(shard)]
        if not children:
            raise CannotSplit(
                f"shard {lease.shard_key!r} is cut off by the provider (source.cap or "
                "source.pages.max) and cannot be divided further; add a shard axis, or "
                "make its smallest smaller"
            )
        self._ledger.split(lease, children)
        self._emit(
            JobSplit(
                job=lease.job,
                dataset=self._dataset.name,
                shard=lease.shard_key,
                children=len(children),
            )
        )

    def _tell_end(self, lease: Lease, proof: Proof) -> None:
        self._emit(
            JobDone(
                job=lease.job,
                dataset=self._dataset.name,
                shard=lease.shard_key,
                proof=proof,
            )
        )

    def _following(
        self, lease: Lease, page: Page, cursor: Cursor | None
    ) -> Cursor | None:
        if page.next is None:
            return None
        trail = Trail() if cursor is None else cursor.trail
        if not page.rises:
            keys = [self._map.key_of(row) or row.raw for row in page.rows]
            # without records, only the position can tell that we were here before
            trail = trail.after(keys or [page.next], page=lease.page_seq + 1)
        return Cursor(position=page.next, rows=rows_after(page, cursor), trail=trail)

    def _commit(self, held: Held, batch: Batch) -> None:
        asked = self._monotonic()
        lease, counts = self._ledger.commit_page(self._dataset, held.lease, batch)
        self._go_on(held, lease, counts, proof=batch.proof, asked=asked)
        held.is_growing = counts.inserted == len(batch.records) > 0
        if batch.rejections:
            total = self._imports.peek(held.lease.import_id).counts
            too_many = self._dataset.bad.exceeded(
                bad=total.quarantined, seen=total.seen, at_end=False
            )
            if too_many is not None:
                raise TooManyBadRows(too_many)
        if batch.dropped > batch.seen - batch.dropped:
            self._refuse_empty_lines(held.lease)

    def _refuse_empty_lines(self, lease: Lease) -> None:
        """Fail an import that reads next to nothing but empty lines."""
        limit = self._dataset.source.max_empty_lines
        counts = self._imports.peek(lease.import_id).counts
        rows = counts.seen - counts.dropped
        if limit is not None and counts.dropped > max(limit, rows):
            raise TooManyEmptyLines(
                f"{counts.dropped:,} of {counts.seen:,} lines were empty: more than "
                f"the rows, and than source.max_empty_lines = {limit}; look at the "
                "file, or raise it"
            )

    def _go_on(
        self,
        held: Held,
        lease: Lease,
        counts: Counts,
        *,
        proof: Proof | None,
        asked: float,
    ) -> None:
        """Hold the lease that a page has renewed, by the clock before it was asked."""
        held.lease, held.proof, held.is_growing = lease, proof, False
        held.trusted_until = asked + self._patience.lease.total_seconds()
        self._emit(
            PageCommitted(
                job=held.lease.job,
                dataset=self._dataset.name,
                page=held.lease.page_seq,
                counts=counts,
            )
        )


def rows_after(page: Page, cursor: Cursor | None) -> int:
    before = 0 if cursor is None else cursor.rows
    return before + seen_in(page)


def seen_in(page: Page) -> int:
    return len(page.rows) + len(page.flawed) + page.dropped


def batch_of(page: Page, cursor: Cursor | None, mapped: Mapped) -> Batch:
    records, rejections = mapped
    return Batch(
        records=records,
        rejections=rejections,
        seen=seen_in(page),
        dropped=page.dropped,
        cursor=None if cursor is None else cursor.encode(),
        proof=page.proof,
        provider_time=page.provider_time,
        rank=page.rank,
    )
