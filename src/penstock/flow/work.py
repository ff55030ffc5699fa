"""Claim a job, import its shard, settle it by its error's kind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from penstock.domain.budget import LONGEST_CLOSURE, LONGEST_REST, closure
from penstock.domain.dataset import Dataset
from penstock.domain.events import (
    BudgetWasClosed,
    BudgetWasStopped,
    JobClaimed,
    JobFailed,
    JobPostponed,
    JobReleased,
    LeaseWasLost,
    StoreWasAway,
    WorkerFailed,
)
from penstock.domain.job import Fault, Lease, backoff
from penstock.errors import (
    AccessStopped,
    BudgetClosed,
    BudgetStopped,
    Interrupted,
    LeaseLost,
    PenstockError,
    Rejected,
    RetryLater,
    StoreUnavailable,
    Throttled,
    TooManyBadRows,
)
from penstock.flow.claims import Claims
from penstock.flow.finish import Finish
from penstock.flow.import_shard import Held, ImportShard
from penstock.ports import Declarations, Emit, Host, Redact, Stores

# a job that has waited so often without a page gets no more patience
MOST_SNOOZES = 10_000
# how long work rests about after a store did not answer
STORE_REST = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """A dataset with all that is needed to work it."""

    dataset: Dataset
    declaration: str
    import_shard: ImportShard
    budget: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What every job is worked under."""

    lease: timedelta
    # errors in a row before a job is a dead letter
    attempts: int
    redact: Redact


class Work:
    """One thread's work; everything it shares with others is in the stores."""

    def __init__(
        self,
        claims: Claims,
        *,
        desks: Mapping[str, Desk],
        stores: Stores,
        terms: Terms,
        finish: Finish,
        host: Host,
        emit: Emit,
    ) -> None:
        self._claims = claims
        self._worker = claims.worker
        self._desks = desks
        self._ledger = stores.ledger
        self._budgets = stores.budgets
        self._terms = terms
        self._finish = finish
        self._halt = host.halt
        self._jitter = host.jitter
        self._monotonic = host.monotonic
        self._emit = emit
        # budgets known to be closed, until when by our own clock: no use claiming
        self._closed: dict[str, float] = {}

    def __call__(self) -> bool:
        """Work one job as far as it goes; False if none was due."""
        claim = self._claims.take(self._workable())
        if claim is None:
            return False
        lease = claim.lease
        self._emit(
            JobClaimed(
                job=lease.job,
                dataset=lease.dataset,
                shard=lease.shard_key,
                fence=lease.fence,
                rescued=lease.rescues > 0,
            )
        )
        desk = self._desks[lease.dataset]
        held = Held(
            lease, trusted_until=claim.asked + self._terms.lease.total_seconds()
        )
        try:
            self._import(desk, held)
        except LeaseLost:
            self._emit(
                LeaseWasLost(
                    job=lease.job,
                    dataset=lease.dataset,
                    shard=lease.shard_key,
                    fence=lease.fence,
                )
            )
        self._finish(desk.dataset, lease.import_id)
        return True

    def rest(self, longest: timedelta) -> timedelta:
        """Say how long it is no use asking for a job, as far as is known now."""
        now = self._monotonic()
        reopened = [at - now for at in self._closed.values() if at > now]
        due = self._ledger.next_due(
            declarations=self._workable(), region=self._worker.region
        )
        known = [timedelta(seconds=each) for each in reopened]
        return min([longest, *known, *([] if due is None else [due])])

    def _workable(self) -> Declarations:
        now = self._monotonic()
        return {
            name: desk.declaration
            for name, desk in self._desks.items()
            if self._closed.get(desk.budget, 0.0) <= now
        }

    def _import(self, desk: Desk, held: Held) -> None:  # noqa: C901 (a line a kind)
        """Import the shard; whatever happens, the job is put where it belongs."""
        try:
            desk.import_shard(held)
        except LeaseLost:
            raise
        except Interrupted:
            self._ledger.release(held.lease)
            self._emit(
                JobReleased(
                    job=held.lease.job,
                    dataset=held.lease.dataset,
                    shard=held.lease.shard_key,
                )
            )
        except Throttled as error:
            self._throttle(desk, held, error)
        except AccessStopped as error:
            self._stop(desk, held, error)
        except (BudgetClosed, BudgetStopped) as error:
            self._rest(error.budget, held.lease, None, wait=error.wait)
        except StoreUnavailable as error:
            self._outlast(desk, held, error)
        except RetryLater as error:
            self._retry(held.lease, error, error.retry_after)
        except TooManyBadRows as error:
            self._finish.fail(desk.dataset, held.lease.import_id, reason=str(error))
        except Rejected as error:
            self._fail(held.lease, self._fault(error))
        except Exception as error:  # noqa: BLE001 (the one place that catches all)
            self._emit(WorkerFailed(worker=self._worker.owner, error=self._told(error)))
            self._retry(held.lease, error, None)

    def _throttle(self, desk: Desk, held: Held, error: Throttled) -> None:
        lease, wait = held.lease, closure(error.retry_after)
        if error.retry_after is None:
            wait += backoff(lease.snoozes, jitter=self._jitter())
        reason = self._told(error)
        self._insist(
            held, lambda: self._budgets.close(desk.budget, wait=wait, reason=reason)
        )
        self._emit(BudgetWasClosed(budget=desk.budget, wait=wait, reason=reason))
        blame = lease.snoozes >= MOST_SNOOZES
        if blame and lease.attempts + 1 >= self._terms.attempts:
            self._fail(lease, self._fault(error))
        else:
            self._rest(desk.budget, lease, self._fault(error), wait=wait, blame=blame)

    def _stop(self, desk: Desk, held: Held, error: AccessStopped) -> None:
        reason = self._told(error)
        self._insist(held, lambda: self._budgets.stop(desk.budget, reason=reason))
        self._emit(BudgetWasStopped(budget=desk.budget, reason=reason))
        self._rest(desk.budget, held.lease, self._fault(error), wait=LONGEST_REST)

    def _rest(
        self,
        budget: str,
        lease: Lease,
        fault: Fault | None,
        *,
        wait: timedelta,
        blame: bool = False,
    ) -> None:
        """Put a job back because of its budget, and leave that budget alone a while.

        It is the budget that waits, not the job: once an operator opens it, work goes
        on within the longest rest, however long the closure was to be.
        """
        rest = min(wait, LONGEST_REST)
        self._closed[budget] = self._monotonic() + rest.total_seconds()
        self._postpone(lease, fault, delay=timedelta(), blame=blame)

    def _outlast(self, desk: Desk, held: Held, error: StoreUnavailable) -> None:
        """Give a job back while a store is away, without blame.

        If it is the ledger that is away, that has to wait too, as long as the lease
        lasts: a lease that ends without a word would look like a dead worker.
        """
        rest = STORE_REST * (0.5 + self._jitter())
        self._closed[desk.budget] = self._monotonic() + rest.total_seconds()
        self._insist(
            held,
            lambda: self._postpone(
                held.lease, self._fault(error), delay=timedelta(), blame=False
            ),
        )

    def _insist(self, held: Held, action: Callable[[], None]) -> None:
        """Do what others have to know of, as soon as the store is back.

        As long as the lease lasts: then somebody else has the job, and finds out alone.
        """
        is_told = False
        while True:
            try:
                action()
            except StoreUnavailable as error:
                if not is_told:
                    told = self._told(error)
                    self._emit(StoreWasAway(worker=self._worker.owner, error=told))
                is_told = True
                now = self._monotonic()
                rest = STORE_REST * (0.5 + self._jitter())
                if now >= held.trusted_until or self._halt.wait(rest.total_seconds()):
                    raise
            else:
                return

    def _retry(
        self, lease: Lease, error: Exception, retry_after: timedelta | None
    ) -> None:
        fault = self._fault(error)
        if lease.attempts + 1 >= self._terms.attempts:
            self._fail(lease, fault)
            return
        delay = backoff(lease.attempts, jitter=self._jitter())
        if retry_after is not None:
            delay = max(delay, min(retry_after, LONGEST_CLOSURE))
        self._postpone(lease, fault, delay=delay, blame=True)

    def _postpone(
        self, lease: Lease, fault: Fault | None, *, delay: timedelta, blame: bool
    ) -> None:
        self._ledger.postpone(lease, fault, delay=delay, blame=blame)
        self._emit(
            JobPostponed(
                job=lease.job,
                dataset=lease.dataset,
                shard=lease.shard_key,
                code="budget" if fault is None else fault.code,
                message="waiting for the budget" if fault is None else fault.message,
                delay=delay,
                attempts=lease.attempts + blame,
                snoozes=lease.snoozes + (not blame),
            )
        )

    def _fail(self, lease: Lease, fault: Fault) -> None:
        self._ledger.fail(lease, fault)
        self._emit(
            JobFailed(
                job=lease.job,
                dataset=lease.dataset,
                shard=lease.shard_key,
                code=fault.code,
                message=fault.message,
            )
        )

    def _fault(self, error: Exception) -> Fault:
        code = error.code if isinstance(error, PenstockError) else "internal"
        return Fault(code=code, message=self._told(error))

    def _told(self, error: Exception) -> str:
        """Describe an error in one short line without secrets."""
        told = str(error)
        if not isinstance(error, PenstockError):
            told = f"{type(error).__name__}: {told}"
        return self._terms.redact(" ".join(told.split())[:500])
