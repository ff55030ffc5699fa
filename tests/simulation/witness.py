"""A witness that keeps its own books, and speaks up when a promise is broken.

It learns of every call right after it took effect, before anybody else can act, and
never asks the stores what they believe: what it knows comes from the calls alone.
At the end it compares its books with the tables.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.domain.budget import MAX_LATENESS, Budget, Grant
from penstock.domain.dataset import Dataset, WhenMissing
from penstock.domain.jobs import Import, ImportId, Lease
from penstock.domain.pages import Batch, Counts, Cursor, Page, Position, Redirect
from penstock.domain.sharding.shard import Shard
from penstock.errors import PenstockError
from penstock.flow.audit import AuditReport
from tests.simulation.provider import Provider, Raw
from tests.simulation.scenario import Scenario
from tests.simulation.world import Actor, Broken, World, microseconds

# how much later than it could know a worker may act, and how wrong its clock may go
SLACK = microseconds(timedelta(milliseconds=60))
EARLY = microseconds(timedelta(milliseconds=1))


@dataclass(eq=False)
class JobBook:
    """What is known of a job."""

    fence: int = 0
    pages: int = 0
    position: Position | None = None
    import_id: int = 0
    # who holds it, by the books; a crashed worker holds it until it is rescued
    holder: Actor | None = None
    until: int = 0
    # its holder was crashed, paused or failed by the store since it claimed
    is_excused: bool = False


@dataclass(eq=False)
class WorkerBook:
    """What is known of a worker."""

    lease: Lease | None = None
    grant: Grant | None = None
    is_confirmed: bool = False
    permitted_at: int = 0
    # when it could last see how late it is
    looked_at: int = 0
    # hit by a fault since the ledger last knew it to hold its job
    is_hit: bool = False
    # the job whose page it has, and has not committed
    undelivered: int | None = None
    requests: tuple[int, Position | None] | None = None


@dataclass(eq=False)
class BudgetBook:
    closed_until: int = 0
    closed_at: int = 0
    stopped_at: int | None = None
    # slot and time of each request
    sends: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What happened in one world, so that a test can tell whether enough did."""

    faults: Counter[str]
    requests: int
    pages: int
    rescues: int
    splits: int
    refetched: int


class Witness:
    def __init__(self, world: World, scenario: Scenario) -> None:
        self._world = world
        self._scenario = scenario
        self._lease = microseconds(scenario.patience.lease)
        self._jobs: dict[int, JobBook] = {}
        self._workers: dict[Actor, WorkerBook] = {}
        self._budget = BudgetBook()
        self._ended: set[int] = set()
        self._changes = self._repeats = 0
        self._sent_for: Counter[int] = Counter()
        self.faults: Counter[str] = Counter()
        # who is paused, and goes on at the worst moment: when somebody took over
        self.dozing: set[Actor] = set()
        self._rescues = self._splits = self._refetched = 0

    def tally(self) -> Tally:
        return Tally(
            faults=self.faults,
            requests=len(self._budget.sends),
            pages=sum(job.pages for job in self._jobs.values()),
            rescues=self._rescues,
            splits=self._splits,
            refetched=self._refetched,
        )

    def hit(self, kind: str) -> None:
        """A fault hits the running actor: what it does next is excused."""
        self.faults[kind] += 1
        self._world.note(f"! {kind}")
        book = self._book()
        book.is_hit = True
        if book.lease is not None:
            job = self._jobs[book.lease.job]
            if job.holder is self._world.me:
                job.is_excused = True

    def lost(self) -> None:
        """The running actor never hears the answer to its call."""
        book = self._book()
        book.grant = None
        book.is_confirmed = False

    def reborn(self) -> None:
        """The running actor begins anew, knowing nothing."""
        self._workers[self._world.me] = WorkerBook()

    def ledger_claim(self, leases: Sequence[Lease], *_: Any, **__: Any) -> None:
        for lease in leases:
            self._claimed(lease)

    def _claimed(self, lease: Lease) -> None:
        job = self._jobs.setdefault(lease.job, JobBook())
        self._demand(
            lease.page_seq == job.pages,
            f"job {lease.job} was claimed at page {lease.page_seq}, not {job.pages}",
        )
        if job.holder is not None:
            self._excuse(job, lease.job)
            self._wake(job.holder)
        self._taken(job, lease)
        book = self._book()
        self._account(book)
        self._workers[self._world.me] = WorkerBook(lease=lease)

    def _taken(self, job: JobBook, lease: Lease) -> None:
        self._demand(
            lease.fence == job.fence + 1,
            f"job {lease.job} was claimed with fence {lease.fence} after {job.fence}",
        )
        self._demand(
            lease.import_id not in self._ended,
            f"job {lease.job} was claimed after its import ended",
        )
        if job.holder is not None:
            self._rescues += 1
            self._demand(
                self._world.now > job.until,
                f"job {lease.job} was claimed while {job.holder.name} held it",
            )
        job.fence, job.import_id = lease.fence, lease.import_id
        job.holder, job.is_excused = self._world.me, False
        job.until = self._world.now + self._lease

    def plans_claim(self, lease: Lease | None, *_: Any) -> None:
        if lease is not None:
            self._taken(self._jobs.setdefault(lease.job, JobBook()), lease)

    def plans_add_shards(self, _: Lease, lease: Lease, *__: Any, **___: Any) -> None:
        self._held(lease).until = self._world.now + self._lease

    def plans_restart(self, _: Lease, lease: Lease, **__: Any) -> None:
        self._held(lease).until = self._world.now + self._lease

    def plans_finish(self, _: None, lease: Lease) -> None:
        self._held(lease).holder = None

    def _wake(self, holder: Actor) -> None:
        if holder in self.dozing:
            soon = self._world.now + self._world.random.randrange(500_000)
            holder.wake_at = min(holder.wake_at, soon)

    def ledger_renew(self, _: None, lease: Lease) -> None:
        job = self._held(lease)
        job.until = self._world.now + self._lease
        self._book().is_hit = False

    def ledger_commit_page(
        self,
        result: tuple[Lease, Counts],
        dataset: Dataset,
        lease: Lease,
        batch: Batch,
    ) -> None:
        following, counts = result
        job, book = self._held(lease), self._book()
        self._demand(
            lease.page_seq == job.pages,
            f"page {lease.page_seq + 1} of job {lease.job} followed page {job.pages}",
        )
        self._demand(
            book.requests == (lease.job, job.position),
            f"page {following.page_seq} of job {lease.job} does not begin where the "
            f"last one ended: {book.requests} is not {job.position}",
        )
        job.pages += 1
        job.until = self._world.now + self._lease
        self._changes += counts.inserted + counts.updated
        # of these, rows of equal value or of a lower rank change nothing
        self._repeats += counts.duplicates
        book.lease, book.is_hit, book.undelivered = following, False, None
        if batch.cursor is None:
            job.holder = None
        else:
            job.position = Cursor.decode(batch.cursor).position

    def ledger_postpone(self, _: None, lease: Lease, *__: Any, **___: Any) -> None:
        self._held(lease).holder = None

    def ledger_release(self, _: None, lease: Lease, **__: Any) -> None:
        self._held(lease).holder = None

    def ledger_fail(self, _: None, lease: Lease, *__: Any) -> None:
        self._held(lease).holder = None

    def ledger_split(self, _: None, lease: Lease, *__: Any) -> None:
        self._held(lease).holder = None
        self._book().undelivered = None
        self._splits += 1

    def refused(self, lease: Lease) -> None:
        """A write was refused with `LeaseLost`."""
        job = self._jobs[lease.job]
        self._demand(
            job.fence != lease.fence
            or job.holder is not self._world.me
            or self._world.now > job.until
            or job.import_id in self._ended,
            f"{self._world.me.name} holds job {lease.job}, and was refused",
        )

    def _held(self, lease: Lease) -> JobBook:
        job = self._jobs[lease.job]
        self._demand(
            lease.fence == job.fence,
            f"{self._world.me.name} wrote job {lease.job} with fence {lease.fence} "
            f"while {job.fence} was current",
        )
        self._demand(
            job.import_id not in self._ended,
            f"{self._world.me.name} wrote job {lease.job} after its import ended",
        )
        return job

    def _excuse(self, job: JobBook, number: int) -> None:
        name = "nobody" if job.holder is None else job.holder.name
        self._demand(
            job.is_excused, f"{name} lost job {number} though nothing happened to it"
        )

    def _account(self, book: WorkerBook) -> None:
        """A page that was fetched and not committed needs an excuse."""
        if book.undelivered is None:
            return
        job = self._jobs[book.undelivered]
        self._demand(
            book.is_hit or job.import_id in self._ended,
            f"a page of job {book.undelivered} was fetched for nothing",
        )
        book.undelivered = None

    def imports_cancel(self, _: Import, import_id: ImportId, **__: Any) -> None:
        self._ended.add(import_id)

    def imports_close(
        self, ended: Import | None, *_: Any, failed: str | None = None
    ) -> None:
        if ended is not None:
            self._changes += ended.counts.deleted
            self._ended.add(ended.id)

    def jobs_retry(self, retried: bool, job_id: int) -> None:  # noqa: FBT001
        job = self._jobs[job_id]
        if retried:
            if job.holder is not None:
                self._excuse(job, job_id)
            job.holder = None
            self._ended.discard(job.import_id)

    def budgets_take(self, grant: Grant, *_: Any, **__: Any) -> None:
        budget, book = self._budget, self._book()
        self._demand(budget.stopped_at is None, "a stopped budget granted a token")
        self._demand(
            grant.slot >= budget.closed_until, "a token was granted in a closed time"
        )
        book.grant, book.is_confirmed = grant, False
        book.permitted_at = self._world.now

    def budgets_confirm(self, _: None, grant: Grant) -> None:
        budget, book = self._budget, self._book()
        self._demand(budget.stopped_at is None, "a stopped budget was confirmed")
        self._demand(
            self._world.now >= budget.closed_until, "a closed budget was confirmed"
        )
        book.is_confirmed = True
        book.permitted_at = self._world.now

    def budgets_give_back(self, *_: Any) -> None:
        self._book().grant = None

    def budgets_close(self, _: None, *__: Any, wait: timedelta, reason: str) -> None:
        until = self._world.now + microseconds(wait)
        self._budget.closed_until = max(self._budget.closed_until, until)
        self._budget.closed_at = self._world.now

    def budgets_stop(self, *_: Any, **__: Any) -> None:
        if self._budget.stopped_at is None:
            self._budget.stopped_at = self._world.now

    def budgets_open(self, *_: Any) -> None:
        self._budget.stopped_at = None
        self._budget.closed_until = 0

    @property
    def is_stopped(self) -> bool:
        return self._budget.stopped_at is not None

    def looked(self) -> None:
        """The running actor goes on, and can see what time it is."""
        self._book().looked_at = self._world.now

    def sent(self, shard: Shard, position: Position | None) -> None:
        world, budget, book = self._world, self._budget, self._book()
        grant, lease = book.grant, book.lease
        if grant is None or lease is None:
            raise Broken("a request was sent without a token or without a lease")
        job = self._jobs[lease.job]
        world.note(f"send {shard.key} {position} slot {grant.slot} job {lease.job}")
        self._demand(
            not grant.wait or book.is_confirmed, "a token was used unconfirmed"
        )
        self._demand(
            world.now >= grant.slot - EARLY, "a request was sent before its slot"
        )
        late = book.looked_at - grant.slot - microseconds(MAX_LATENESS)
        self._demand(
            late <= SLACK,
            f"a token was used {late / 1e6:.1f} s late, and the worker could see it",
        )
        self._demand(
            budget.stopped_at is None or book.permitted_at <= budget.stopped_at,
            "a request was sent after the provider shut the door",
        )
        self._demand(
            world.now >= budget.closed_until or book.permitted_at <= budget.closed_at,
            "a request was sent while the budget was closed",
        )
        if job.pages > lease.page_seq:
            self._refetched += 1
            self._demand(
                book.is_hit, f"a committed page of job {lease.job} was fetched again"
            )
        self._account(book)
        budget.sends.append((grant.slot, world.now))
        self._sent_for[lease.import_id] += 1
        book.grant, book.requests = None, (lease.job, position)

    def answered(self, answer: Page | Redirect | PenstockError) -> None:
        if isinstance(answer, PenstockError):
            self.faults[answer.code] += 1
        elif isinstance(answer, Redirect):
            self.faults["moved"] += 1

    def delivered(self, page: Page) -> None:
        book = self._book()
        book.undelivered = None if book.lease is None else book.lease.job

    def verify(
        self, database: SqliteDatabase, provider: Provider, audited: AuditReport
    ) -> None:
        """Compare the books and the provider with what is stored."""
        self._verify_rates(self._scenario.budget)
        tables = Tables(database)
        self._verify_pages(tables)
        self._verify_imports(tables)
        self._verify_changes(tables)
        self._demand(audited.complete, f"the audit complains: {audited.findings[:1]}")
        self._demand(
            audited.audited.proven, f"import {audited.audited.id} is not proven"
        )
        self._verify_rows(tables, provider, audited.audited.id)

    def _verify_rates(self, budget: Budget) -> None:
        late = microseconds(MAX_LATENESS)
        sends = self._budget.sends
        by_slot = sorted(slot for slot, _ in sends)
        by_time = sorted(at for slot, at in sends if at - slot <= late)
        for limit in budget.limits:
            period = microseconds(limit.period)
            for what, times in (("slots", by_slot), ("requests", by_time)):
                if limit.is_quota:
                    crowd = densest(times, period)
                    most = float(limit.requests)
                else:
                    crowd = fullest(times, limit.requests / period)
                    # the clock of a host may run a little fast; and a bucket for
                    # one request cannot be made smaller by what lateness adds
                    most = 2 * EARLY * limit.requests / period + max(
                        budget.burst,
                        1 + (what == "requests") * late * limit.requests / period,
                    )
                self._demand(
                    crowd <= most + 1e-6, f"{crowd:.3f} {what} against {limit}"
                )

    def _verify_pages(self, tables: "Tables") -> None:
        for number, job in self._jobs.items():
            pages = tables.rows(
                "select page_seq, fence from penstock_page where job_id = ? "
                "order by page_seq",
                number,
            )
            self._demand(
                [row["page_seq"] for row in pages] == list(range(1, job.pages + 1)),
                f"the pages of job {number} are not 1 to {job.pages}",
            )
            fences = [row["fence"] for row in pages]
            self._demand(
                fences == sorted(fences) and max(fences, default=0) <= job.fence,
                f"the fences of job {number} fall: {fences}",
            )

    def _verify_imports(self, tables: "Tables") -> None:
        for known in tables.rows("select * from penstock_import"):
            which = f"import {known['id']}"
            jobs = tables.rows(
                "select * from penstock_job where import_id = ?", known["id"]
            )
            for name in (
                *("requests", "seen", "inserted", "updated"),
                *("unchanged", "quarantined"),
            ):
                total = sum(job[name] for job in jobs)
                self._demand(
                    total == known[name],
                    f"{which} counts {known[name]} {name}, its jobs {total}",
                )
            fates = (
                *("inserted", "updated", "unchanged", "quarantined", "dropped"),
                "duplicates",
            )
            self._demand(
                known["seen"] == sum(known[name] for name in fates),
                f"the rows of {which} do not add up",
            )
            pages = sum(job["page_seq"] for job in jobs)
            self._demand(known["pages"] == pages, f"{which} miscounts its pages")
            bad = tables.rows(
                "select 1 from penstock_quarantine where import_id = ?", known["id"]
            )
            self._demand(
                known["quarantined"] == len(bad), f"{which} miscounts its bad rows"
            )
            self._demand(
                known["requests"] <= self._sent_for[known["id"]],
                f"{which} counts {known['requests']} requests, "
                f"{self._sent_for[known['id']]} were sent",
            )
            is_open = known["status"] in {"planning", "running"}
            waiting = [job["id"] for job in jobs if job["status"] in OPEN]
            self._demand(
                is_open or not waiting,
                f"{which} is {known['status']}, its jobs {waiting} are open",
            )

    def _verify_changes(self, tables: "Tables") -> None:
        """Tell the change feed again, and see whether it ends in what is stored."""
        changes = tables.rows("select * from penstock_change order by seq")
        numbers = [row["seq"] for row in changes]
        self._demand(
            numbers == list(range(1, len(numbers) + 1)), "the change feed has gaps"
        )
        self._demand(
            self._changes <= len(numbers) <= self._changes + self._repeats,
            f"{self._changes} changes were made, and up to {self._repeats} repeated, "
            f"the feed has {len(numbers)}",
        )
        times = [row["at"] for row in changes]
        self._demand(times == sorted(times), "the change feed is not in commit order")
        live: set[int] = set()
        for row in changes:
            (key,) = json.loads(row["key"])
            self._demand(
                (key in live) is (row["kind"] != "created"),
                f"change {row['seq']} of record {key} is {row['kind']}",
            )
            if row["kind"] == "deleted":
                live.discard(key)
            else:
                live.add(key)
        self._demand(
            live == set(tables.live()), "the change feed and the records disagree"
        )

    def _verify_rows(
        self, tables: "Tables", provider: Provider, import_id: int
    ) -> None:
        (scan,) = tables.rows("select * from penstock_import where id = ?", import_id)
        stored = tables.live()
        for number in provider.history:
            versions = provider.versions(
                number, scan["created_at"], scan["finished_at"]
            )
            self._demand(
                self._is_right(number, stored.get(number), versions, provider),
                f"record {number} is {stored.get(number)}, the provider had {versions}",
            )

    def _is_right(
        self,
        number: int,
        row: Raw | None,
        versions: list[Raw | None],
        provider: Provider,
    ) -> bool:
        good = [each for each in versions if each is not None and not is_bad(each)]
        may_be_old = len(good) < len(versions)
        if row is not None and row in good:
            return True
        if versions == [None] and self._scenario.dataset.missing.do is WhenMissing.MARK:
            return row is None
        earlier = [each for _, each in provider.history[number]]
        return may_be_old and (row is None or row in earlier)

    def _book(self) -> WorkerBook:
        return self._workers.setdefault(self._world.me, WorkerBook())

    def _demand(self, holds: bool, otherwise: str) -> None:  # noqa: FBT001
        if not holds:
            raise Broken(otherwise)


OPEN = frozenset({"pending", "leased"})


class Tables:
    """The stored tables, read without any of the code under test."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    def rows(self, sql: str, *parameters: object) -> list[Any]:
        with self._database.stream() as transaction:
            return transaction.connection.execute(sql, parameters).fetchall()

    def live(self) -> dict[int, Raw]:
        names = ("id", "title", "place", "count")
        found = self.rows("select * from points where _deleted_at is null")
        return {row["id"]: {name: row[name] for name in names} for row in found}


def is_bad(record: Raw) -> bool:
    return record["count"] == -1


def fullest(times: list[int], rate: float) -> float:
    """Return how full a bucket that drains at this rate gets."""
    level, crowd, before = 0.0, 0.0, 0
    for time in times:
        level = max(0.0, level - (time - before) * rate) + 1
        crowd, before = max(crowd, level), time
    return crowd


def densest(times: list[int], period: int) -> float:
    """Return the most that fall into any one period."""
    crowd = first = 0
    for last, time in enumerate(times):
        while times[first] <= time - period:
            first += 1
        crowd = max(crowd, last - first + 1)
    return float(crowd)
