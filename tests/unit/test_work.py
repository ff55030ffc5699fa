"""Every kind of error puts its job into a stated place."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import cast

import pytest
from typing_extensions import override

from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.adapters.sqlstore.budgets import SqlBudgets
from penstock.domain.budget import MAX_SEND_DELAY, Budget, Grant, Limit
from penstock.domain.dataset import Dataset, Tolerance
from penstock.domain.events import Event, LeaseWasLost, StoreWasAway
from penstock.domain.jobs import ImportId, ImportStatus, Job, JobStatus
from penstock.domain.pages import (
    LazyPage,
    Page,
    Position,
    Proof,
    RawRow,
    Reason,
    Redirect,
)
from penstock.domain.redaction import MASK, Redactor
from penstock.domain.sharding.axes import ListAxis, RangeAxis
from penstock.domain.sharding.shard import Shard
from penstock.errors import (
    AccessRefused,
    BudgetStopped,
    RequestRefused,
    SourceUnavailable,
    StoreUnavailable,
    Throttled,
)
from penstock.flow.finish_import import FinishImport
from penstock.flow.import_shard import ImportShard, Timeouts
from penstock.flow.job_claimer import JobClaimer, Worker
from penstock.flow.work import DatasetRuntime, Work, WorkPolicy
from penstock.ports import Budgets, JobFilter, KeepAlive, Runtime, Source, Stores
from tests.support.builders import (
    ANN,
    BEN,
    LEASE,
    Clock,
    claim_any,
    dataset,
    idle,
    plan,
    sqlite_stores,
)

SECRET = "s3cr3t  phrase"
REDACT = Redactor({SECRET: MASK})
ATTEMPTS = 3
PATIENCE = Timeouts(
    lease=LEASE,
    longest_wait=timedelta(seconds=5),
    request=timedelta(seconds=10),
    commit=timedelta(seconds=5),
)


def row(number: object, position: int = 0) -> RawRow:
    return RawRow((number, "x"), f'{{"id": {number}}}'.encode(), position)


def page(*numbers: int, to: Position | None = None) -> Page:
    proof = Proof.EMPTY_PAGE if to is None else None
    rows = [row(number, position) for position, number in enumerate(numbers)]
    return Page(rows=rows, next=to, proof=proof)


@dataclass
class Scripted(Source):
    """A source that answers by a script; an exception in it is raised."""

    script: list[Page | Redirect | Exception | Callable[[], Page]]
    requests: list[Position | None] = field(default_factory=list)

    @override
    def get_ready(self, shard, position, still_here) -> None:
        """Nothing: a script is always ready."""

    @override
    def fetch(
        self, shard: Shard, position, *, since, moved=None
    ) -> Page | LazyPage | Redirect:
        self.requests.append(position)
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        page = answer() if callable(answer) else answer
        if isinstance(page, Redirect):
            return page
        digest = f"the answer after {position}".encode()
        return LazyPage(digest=lambda: digest, provider_time=None, read=lambda: page)

    @override
    def preview(self, shard: Shard, *, since) -> str:
        return "GET /"

    @override
    def read(self, raw: bytes) -> RawRow:
        return row(1)


@dataclass
class Bench:
    """A worker at a scripted source, with time in its own hands."""

    stores: Stores
    clock: Clock
    dataset: Dataset
    events: list[Event] = field(default_factory=list)
    halt: threading.Event = field(default_factory=threading.Event)
    finish: type[FinishImport] = FinishImport
    budget: Budget = field(
        default_factory=lambda: Budget(
            name="b",
            limits=(Limit(requests=100, period=timedelta(seconds=1)),),
            burst=99,
        )
    )

    def work(self, *script, owner=ANN, declaration="d1") -> Work:
        self.source = Scripted(list(script))
        host = Runtime(
            halt=self.halt,
            monotonic=lambda: self.clock.now.timestamp(),  # noqa: PLW0108 (now moves)
            jitter=lambda: 1.0,
        )
        runtime = DatasetRuntime(
            dataset=self.dataset,
            declaration=declaration,
            budget=self.budget.name,
            import_shard=ImportShard(
                self.dataset,
                source=self.source,
                budget=self.budget,
                stores=self.stores,
                patience=PATIENCE,
                host=host,
                emit=self.events.append,
            ),
        )
        return Work(
            JobClaimer(
                Worker(owner=owner),
                ledger=self.stores.ledger,
                host=host,
            ),
            runtimes={self.dataset.name: runtime},
            stores=self.stores,
            policy=WorkPolicy(lease=LEASE, attempts=ATTEMPTS, redact=REDACT),
            finish=self.finish(imports=self.stores.imports, emit=self.events.append),
            host=host,
            emit=self.events.append,
        )

    def job(self) -> Job:
        return self.stores.jobs.find(JobFilter(), after=None, limit=1)[0]

    def jobs(self) -> list[Job]:
        return list(self.stores.jobs.find(JobFilter(), after=None, limit=100))

    def rows(self) -> list[object]:
        return [each[0] for each in self.stores.records.rows(self.dataset)]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stores(tmp_path, clock):
    database = SqliteDatabase(tmp_path / "work.db", clock=clock)
    opened = sqlite_stores(database)
    opened.schema.migrate()
    yield opened
    database.close()


@pytest.fixture
def bench(stores, clock) -> Bench:
    return Bench(stores, clock, dataset())


@pytest.fixture
def planned(bench):
    return plan(bench.stores, bench.dataset)


def test_an_import_that_cannot_end_now_holds_up_none_of_its_jobs(bench):
    bench.dataset = dataset(axes=(ListAxis(name="n", values=("a", "b")),))
    import_id = plan(bench.stores, bench.dataset, "n=a", "n=b")
    is_away = True

    class Away(FinishImport):
        @override
        def __call__(self, of: Dataset, import_id: ImportId) -> None:
            if is_away:
                raise StoreUnavailable("the database is away")
            super().__call__(of, import_id)

    bench.finish = Away
    work = bench.work(page(1), page(2))

    assert work()
    assert work()
    with pytest.raises(StoreUnavailable):
        work()
    assert {job.status for job in bench.jobs()} == {JobStatus.DONE}
    is_away = False
    assert not work()
    known, _ = bench.stores.imports.get(import_id)
    assert known.status is ImportStatus.DONE


def test_a_worker_that_stops_ends_its_import(bench, planned):
    def stop() -> Page:
        bench.halt.set()
        return page(1)

    assert bench.work(stop)()

    known, _ = bench.stores.imports.get(planned)
    assert known.status is ImportStatus.DONE


def test_pages_are_committed_until_the_end_is_proven(bench, planned):
    work = bench.work(page(1, 2, to={"after": 2}), page(3))

    assert work()
    assert not work()
    assert bench.rows() == [1, 2, 3]
    assert bench.job().status is JobStatus.DONE
    assert bench.source.requests == [None, {"after": 2}]
    known, _ = bench.stores.imports.get(planned)
    assert known.status is ImportStatus.DONE
    assert known.proven


def test_after_a_page_of_new_records_none_is_looked_for_that_is_known(
    bench, planned, monkeypatch
):
    looked = []
    monkeypatch.setattr(
        type(bench.stores.ledger),
        "repeat_page",
        lambda *_, **__: looked.append(bench.source.requests[-1]),
    )
    pages = [page(1, 2, to={"after": 2}), page(2, 3, to={"after": 3}), page(4)]

    assert bench.work(*pages)()
    assert looked == [None, {"after": 3}]


def test_nothing_due_is_no_work(bench):
    assert not bench.work()()


def test_an_unavailable_source_costs_an_attempt_and_is_tried_again_later(
    bench, planned
):
    work = bench.work(SourceUnavailable("timed out"), page(1))

    work()
    job = bench.job()
    assert (job.status, job.attempts, job.counts.requests) == (JobStatus.PENDING, 1, 1)
    assert job.run_at > bench.clock.now
    assert job.errors[-1].code == "source_unavailable"
    assert not work()
    bench.clock.pass_time(timedelta(minutes=1))
    assert work()
    assert bench.job().status is JobStatus.DONE


def test_attempts_used_up_make_a_dead_letter_with_its_cursor(bench, planned):
    failures = [SourceUnavailable("timed out")] * ATTEMPTS
    work = bench.work(page(1, to={"after": 1}), *failures)

    for _ in range(ATTEMPTS):
        work()
        bench.clock.pass_time(timedelta(minutes=10))
    assert not work()
    job = bench.job()
    assert job.status is JobStatus.FAILED
    assert job.cursor is not None
    known, _ = bench.stores.imports.get(planned)
    assert known.status is ImportStatus.FAILED
    assert not known.proven


def test_progress_gives_all_attempts_back(bench, planned):
    failures = [SourceUnavailable("timed out")] * (ATTEMPTS - 1)
    work = bench.work(*failures, page(1, to={"after": 1}), *failures, page(2))

    for _ in range(2 * ATTEMPTS):
        work()
        bench.clock.pass_time(timedelta(minutes=10))
    assert bench.job().status is JobStatus.DONE


def test_a_refused_request_is_a_dead_letter_at_once(bench, planned):
    bench.work(RequestRefused("404 not found"))()

    job = bench.job()
    assert job.status is JobStatus.FAILED
    assert job.errors[-1].message == "404 not found"


def test_a_429_closes_the_budget_for_everyone_and_costs_no_attempt(bench, planned):
    wait = timedelta(seconds=30)
    work = bench.work(Throttled("429", retry_after=wait), page(1))

    work()
    assert bench.job().attempts == 0
    assert bench.job().snoozes == 1
    assert bench.stores.budgets.state(bench.budget).closed_for == wait
    bench.work(owner=BEN)()
    assert bench.source.requests == []
    bench.clock.pass_time(wait + timedelta(seconds=1))
    assert bench.work(page(1), owner=BEN)()
    assert bench.job().status is JobStatus.DONE


def test_a_long_closure_that_an_operator_opens_ends_within_a_short_rest(bench, planned):
    bench.work(Throttled("429", retry_after=timedelta(hours=3)))()
    bench.stores.budgets.open("b")
    bench.clock.pass_time(timedelta(minutes=1))

    assert bench.work(page(1))()
    assert bench.job().status is JobStatus.DONE


def test_a_shut_door_stops_the_budget_until_an_operator_opens_it(bench, planned):
    bench.work(AccessRefused(403, body="blocked"))()
    bench.clock.pass_time(timedelta(hours=1))
    still = bench.work(owner=BEN)
    still()

    assert bench.source.requests == []
    assert bench.job().attempts == 0
    with pytest.raises(BudgetStopped, match="penstock budgets open b"):
        bench.stores.budgets.take(bench.budget, longest=timedelta(seconds=1))
    bench.stores.budgets.open("b")
    bench.clock.pass_time(timedelta(minutes=1))
    assert bench.work(page(1), owner=BEN)()
    assert bench.job().status is JobStatus.DONE


def test_a_wish_to_stop_releases_the_job_without_blame(bench, planned):
    def last_page() -> Page:
        bench.halt.set()
        return page(1, to={"after": 1})

    bench.work(last_page, page(2))()

    job = bench.job()
    assert (job.status, job.attempts, job.page_seq) == (JobStatus.PENDING, 0, 1)
    assert job.run_at <= bench.clock.now
    assert bench.rows() == [1]


def test_a_worker_that_lost_its_lease_writes_nothing(bench, planned):
    def slow() -> Page:
        bench.clock.pass_time(LEASE + timedelta(seconds=1))
        lease = claim_any(bench.stores, {"poi": "d1"}, owner=BEN)
        assert lease is not None
        return page(1)

    bench.work(slow)()

    assert bench.rows() == []
    assert any(isinstance(event, LeaseWasLost) for event in bench.events)


def test_a_worker_that_slept_past_its_lease_asks_before_it_sends(stores, clock):
    class Pause(threading.Event):
        """A wait for a token that lasts longer than the lease."""

        @override
        def wait(self, timeout=None) -> bool:
            clock.pass_time(LEASE * 2)
            assert claim_any(stores, {"poi": "d1"}, owner=BEN) is not None
            return False

    slow = Budget(name="b", limits=(Limit(requests=1, period=timedelta(seconds=1)),))
    bench = Bench(stores, clock, dataset(), budget=slow, halt=Pause())
    plan(stores, bench.dataset)
    bench.work(page(1, to={"after": 1}), page(2))()

    assert bench.source.requests == [None]
    assert bench.rows() == [1]
    assert any(isinstance(event, LeaseWasLost) for event in bench.events)


def test_no_part_of_a_secret_remains_in_an_error_that_is_shortened(bench, planned):
    bench.work(ZeroDivisionError(f"{SECRET} {'x' * 470}{SECRET}"))()

    message = bench.job().errors[-1].message
    assert message.startswith("ZeroDivisionError: *** x")
    assert "s3cr3t" not in message


def test_an_unexpected_error_is_retained_in_the_history_and_tried_again(bench, planned):
    bench.work(ZeroDivisionError("oops"))()

    job = bench.job()
    assert job.status is JobStatus.PENDING
    assert job.errors[-1].code == "internal"
    assert job.errors[-1].message == "ZeroDivisionError: oops"


def test_a_redirect_takes_a_token_of_its_own(bench, planned):
    bench.work(Redirect(url="https://example.org/new"), page(1))()

    assert bench.job().counts.requests == 2
    assert bench.stores.budgets.state(bench.budget).taken == 2


def test_redirects_that_never_end_are_refused(bench, planned):
    bench.work(*[Redirect(url="https://example.org/again")] * 10)()

    assert bench.job().status is JobStatus.FAILED
    assert bench.job().counts.requests == 6


def test_a_page_that_repeats_is_an_error_never_a_loop(bench, planned):
    same = [page(1, 2, to={"offset": number}) for number in range(2, 40, 2)]
    bench.work(*same)()

    assert bench.job().status is JobStatus.FAILED
    assert bench.job().errors[-1].code == "page_repeats"
    assert bench.job().page_seq == 1


def test_most_of_a_page_outside_its_shard_fails_the_shard_on_that_page(stores, clock):
    axis = ListAxis(name="id", values=("1",), send="id", check=("id",))
    bench = Bench(stores, clock, dataset(axes=(axis,)))
    plan(stores, bench.dataset, "id:1")
    bench.work(page(1, 2, 3))()

    assert bench.job().status is JobStatus.FAILED
    assert bench.job().errors[-1].code == "filter_ignored"
    assert bench.rows() == []


def test_a_single_stranger_goes_to_quarantine(stores, clock):
    axis = ListAxis(name="id", values=("1",), send="id", check=("id",))
    bench = Bench(stores, clock, dataset(axes=(axis,)))
    plan(stores, bench.dataset, "id:1")
    bench.work(page(1, 1, 2))()

    assert bench.rows() == [1]
    (bad,) = stores.records.quarantine(bench.dataset, after=0, limit=10)
    assert bad.rejection.reason is Reason.OUTSIDE
    assert bad.rejection.detail == "id is 2, not in 1"


def test_a_shard_at_the_cap_is_split_and_its_children_cover_it(stores, clock):
    axis = RangeAxis(name="id", start=0, until=100, step=100, send_from="f")
    declared = dataset(axes=(axis,))
    declared = replace(declared, source=replace(declared.http, cap=2))
    bench = Bench(stores, clock, declared)
    plan(stores, declared, "id:0..100")
    work = bench.work(page(1, 2), page(1), page(60))

    while work():
        clock.pass_time(timedelta(seconds=1))
    assert [(job.shard_key, job.status) for job in bench.jobs()] == [
        ("id:0..100", JobStatus.SPLIT),
        ("id:0..50", JobStatus.DONE),
        ("id:50..100", JobStatus.DONE),
    ]
    assert bench.rows() == [1, 60]


def test_an_ignored_filter_is_reported_before_it_is_taken_for_a_cut(stores, clock):
    axis = RangeAxis(
        name="id", start=0, until=10, step=10, send_from="f", check=("id",)
    )
    declared = dataset(axes=(axis,))
    declared = replace(declared, source=replace(declared.http, cap=3))
    bench = Bench(stores, clock, declared)
    plan(stores, declared, "id:0..10")
    bench.work(page(101, 102, 103))()

    assert bench.job().status is JobStatus.FAILED
    assert bench.job().errors[-1].code == "filter_ignored"


def test_a_shard_at_the_cap_that_cannot_be_divided_fails_clearly(bench, planned):
    source = replace(bench.dataset.source, cap=2)
    bench.dataset = replace(bench.dataset, source=source)
    bench.work(page(1, 2))()

    assert bench.job().status is JobStatus.FAILED
    assert "cannot be divided further" in bench.job().errors[-1].message


def test_more_pages_than_the_guardrail_allows_end_the_shard(bench, planned):
    pages = replace(bench.dataset.source.pages, max=2)
    source = replace(bench.dataset.source, pages=pages)
    bench.dataset = replace(bench.dataset, source=source)
    bench.work(*[page(n, to={"offset": n}) for n in range(1, 9)])()

    assert bench.job().status is JobStatus.FAILED
    assert bench.job().errors[-1].code == "cannot_split"


def test_too_many_bad_rows_fail_the_import_and_cancel_its_jobs(stores, clock):
    bench = Bench(stores, clock, dataset(bad=Tolerance(max=1)))
    import_id = plan(stores, bench.dataset, "a", "b")
    bad = Page(rows=[row(None, 0), row(None, 1)], next={"after": 1})
    bench.work(bad)()

    known, shards = stores.imports.get(import_id)
    assert known.status is ImportStatus.FAILED
    assert known.note == "2 bad rows are more than bad.max = 1"
    assert shards.cancelled == 2


def test_waiting_for_a_token_longer_than_allowed_snoozes_the_job(stores, clock):
    slow = Budget(name="b", limits=(Limit(requests=1, period=timedelta(minutes=1)),))
    bench = Bench(stores, clock, dataset(), budget=slow)
    plan(stores, bench.dataset)
    bench.work(page(1, to={"after": 1}), page(2))()

    job = bench.job()
    assert (job.status, job.snoozes, job.attempts) == (JobStatus.PENDING, 1, 0)
    assert job.page_seq == 1
    assert bench.source.requests == [None]


class SlowBudgets(SqlBudgets):
    """Answers later than a token may be used."""

    def __init__(self, database: SqliteDatabase, clock: Clock) -> None:
        super().__init__(database)
        self._clock = clock

    @override
    def take(self, budget: Budget, *, longest: timedelta) -> Grant:
        grant = super().take(budget, longest=longest)
        self._clock.pass_time(2 * MAX_SEND_DELAY)
        return grant


def test_a_budget_store_that_is_too_slow_costs_no_attempt(tmp_path, stores, clock):
    database = SqliteDatabase(tmp_path / "work.db", clock=clock)
    slow = replace(stores, budgets=SlowBudgets(database, clock))
    bench = Bench(slow, clock, dataset())
    plan(stores, bench.dataset)
    for _ in range(ATTEMPTS + 1):
        assert bench.work(page(1))()
        clock.pass_time(timedelta(minutes=1))

    job = bench.job()
    assert (job.status, job.snoozes, job.attempts) == (JobStatus.PENDING, 4, 0)
    assert "too slow" in job.errors[-1].message
    assert bench.source.requests == []
    database.close()


def test_a_worker_with_another_declaration_finds_no_work(bench, planned):
    assert not bench.work(declaration="d2")()
    assert bench.job().fence == 0


class Hurry(threading.Event):
    """Time that has passed as soon as somebody waits."""

    @override
    def wait(self, timeout: float | None = None) -> bool:
        return False


class Absent:
    """Calls of a store that fails a few times first."""

    def __init__(self, store: object, name: str, times: int) -> None:
        self._store, self._name, self.left = store, name, times

    def __getattr__(self, name: str) -> object:
        if name == self._name and self.left:
            self.left -= 1
            raise StoreUnavailable("away")
        return getattr(self._store, name)


@pytest.mark.parametrize(
    ("answer", "deed"),
    [
        (Throttled("429", retry_after=timedelta(seconds=120)), "close"),
        (AccessRefused(403, body="no"), "stop"),
    ],
)
def test_what_all_must_know_is_reported_once_the_store_is_back(
    bench, planned, answer, deed
):
    budgets = bench.stores.budgets
    absent = Absent(budgets, deed, times=3)
    bench.stores = replace(bench.stores, budgets=cast("Budgets", absent))
    bench.halt = Hurry()

    bench.work(answer)()

    state = budgets.state(bench.budget)
    assert absent.left == 0
    assert state.closed_for is not None or state.stopped is not None
    assert bench.job().status is JobStatus.PENDING
    # operators are told why nothing happens, once
    away = [each for each in bench.events if isinstance(each, StoreWasAway)]
    assert [each.error for each in away] == ["away"]


def test_nobody_asks_an_absent_ledger_who_is_to_stop(bench, planned):
    work = bench.work(page(1))
    bench.halt.set()

    assert not work()
    assert bench.job().fence == 0


def test_a_request_is_made_ready_before_its_token_is_taken(bench, planned, monkeypatch):
    """What takes long then cannot make a token late."""
    taken: list[int] = []
    work = bench.work(page(1))
    monkeypatch.setattr(
        bench.source,
        "get_ready",
        lambda *_: taken.append(bench.stores.budgets.state(bench.budget).taken),
    )

    work()

    assert taken == [0]


@pytest.mark.parametrize("is_reported", [True, False])
def test_a_page_that_takes_longer_than_its_lease_keeps_it_by_telling(
    bench, planned, monkeypatch, is_reported
):
    rivals: list[bool] = []

    def unpack(shard: Shard, position: Position | None, still_here: KeepAlive) -> None:
        for _ in range(20):
            bench.clock.pass_time(timedelta(seconds=10))
            if is_reported:
                still_here()
            rivals.append(not idle(bench.stores, bench.dataset))

    work = bench.work(page(1))
    monkeypatch.setattr(bench.source, "get_ready", unpack)

    work()

    assert any(rivals) is not is_reported
    assert (bench.job().status is JobStatus.DONE) is is_reported


def test_whoever_makes_ready_hears_that_it_is_to_stop(bench, planned, monkeypatch):
    def unpack(shard: Shard, position: Position | None, still_here: KeepAlive) -> None:
        bench.halt.set()
        still_here()

    work = bench.work(page(1))
    monkeypatch.setattr(bench.source, "get_ready", unpack)

    work()

    assert bench.job().status is JobStatus.PENDING
    assert bench.source.requests == []
