"""Claim a job, import its shard, and settle it by the kind of its error."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from penstock.domain.budget import BUDGET_POLL_INTERVAL, MAX_CLOSURE, closure_duration
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
    job_fields,
)
from penstock.domain.jobs import ImportId, JobError, Lease, backoff
from penstock.errors import (
    AccessRefused,
    BudgetClosed,
    BudgetStopped,
    FiltersIgnored,
    Interrupted,
    LeaseLost,
    PenstockError,
    Rejected,
    RetryLater,
    StoreUnavailable,
    Throttled,
    TooManyBadRows,
)
from penstock.flow.finish_import import FinishImport
from penstock.flow.import_shard import ActiveLease, ImportShard
from penstock.flow.job_claimer import ClaimedJob, JobClaimer
from penstock.flow.span_attributes import describe_lease
from penstock.ports import Declarations, Emit, Redact, Runtime, Stores

# a job that was postponed so often without a page costs an attempt each time
MAX_SNOOZES = 10_000
# the average pause after a store was unavailable
STORE_RETRY_INTERVAL = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRuntime:
    """A dataset with everything a worker needs to import it."""

    dataset: Dataset
    declaration: str
    import_shard: ImportShard
    budget: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPolicy:
    """The settings that hold for every job."""

    lease: timedelta
    # consecutive errors before a job becomes a dead letter
    attempts: int
    redact: Redact


class Work:
    """The work of one thread; all shared state is in the stores."""

    def __init__(
        self,
        claims: JobClaimer,
        *,
        runtimes: Mapping[str, DatasetRuntime],
        stores: Stores,
        policy: WorkPolicy,
        finish: FinishImport,
        host: Runtime,
        emit: Emit,
    ) -> None:
        self._claimer = claims
        self._worker = claims.worker
        self._runtimes = runtimes
        self._ledger = stores.ledger
        self._budgets = stores.budgets
        self._policy = policy
        self._finish = finish
        self._halt = host.halt
        self._jitter = host.jitter
        self._monotonic = host.monotonic
        self._tracer = host.tracer
        self._emit = emit
        # budget -> until when it is closed by the local clock: its jobs are not claimed
        self._closed_until: dict[str, float] = {}
        # imports of worked jobs that may have ended
        self._worked: dict[ImportId, Dataset] = {}

    def __call__(self) -> bool:
        """Work one job as far as possible; False if none was due."""
        claim = self._claimer.take(self._open_declarations())
        if claim is None:
            self.finish_worked()
            return False
        lease = claim.lease
        self._trace_claim(claim)
        self._emit(
            JobClaimed(
                **job_fields(lease),
                shard=lease.shard_key,
                fence=lease.fence,
                rescued=lease.rescues > 0,
            )
        )
        runtime = self._runtimes[lease.dataset]
        active = ActiveLease(
            lease, trusted_until=claim.requested_at + self._policy.lease.total_seconds()
        )
        try:
            self._import(runtime, active)
        except LeaseLost:
            self._emit(
                LeaseWasLost(
                    **job_fields(lease),
                    shard=lease.shard_key,
                    fence=lease.fence,
                )
            )
        self._worked[lease.import_id] = runtime.dataset
        # a worker that stops does not come back
        self.finish_worked(besides=None if self._halt.is_set() else lease.import_id)
        return True

    def _trace_claim(self, claim: ClaimedJob) -> None:
        """Record the claim of a job; one that finds nothing is no part of a trace."""
        if not self._tracer.is_enabled:
            return
        seconds = self._monotonic() - claim.requested_at
        with self._tracer.record(
            "claim job", seconds=seconds, parent=claim.lease.traceparent
        ) as span:
            if span.is_recording:
                describe_lease(span, claim.lease)

    def finish_worked(self, *, besides: ImportId | None = None) -> None:
        """End the imports of earlier jobs if none of their jobs is open.

        Not after every job: as long as the next one is of the same import, it is open.
        No job is claimed meanwhile, which an error or a long end would hold up.
        """
        for import_id, dataset in [*self._worked.items()]:
            if import_id != besides:
                self._finish(dataset, import_id)
                del self._worked[import_id]

    def rest(self, longest: timedelta) -> timedelta:
        """Return how long no job can be due, as far as is known now."""
        now = self._monotonic()
        reopened = [at - now for at in self._closed_until.values() if at > now]
        due = self._ledger.next_due(
            declarations=self._open_declarations(), region=self._worker.region
        )
        waits = [timedelta(seconds=seconds) for seconds in reopened]
        return min([longest, *waits, *([] if due is None else [due])])

    def _open_declarations(self) -> Declarations:
        now = self._monotonic()
        return {
            name: runtime.declaration
            for name, runtime in self._runtimes.items()
            if self._closed_until.get(runtime.budget, 0.0) <= now
        }

    def _import(self, runtime: DatasetRuntime, active: ActiveLease) -> None:  # noqa: C901 (a line a kind)
        """Import the shard; whatever happens, the job is settled."""
        try:
            runtime.import_shard(active)
        except LeaseLost:
            raise
        except Interrupted:
            self._ledger.release(
                active.lease, messages=self._claimer.continuation(active.lease)
            )
            self._emit(
                JobReleased(
                    **job_fields(active.lease),
                    shard=active.lease.shard_key,
                )
            )
        except Throttled as error:
            self._close_budget(runtime, active, error)
        except AccessRefused as error:
            self._stop_budget(runtime, active, error)
        except (BudgetClosed, BudgetStopped) as error:
            self._pause_budget(error.budget, active.lease, None, wait=error.wait)
        except StoreUnavailable as error:
            self._postpone_for_store(runtime, active, error)
        except RetryLater as error:
            self._retry(active.lease, error, error.retry_after)
        except (FiltersIgnored, TooManyBadRows) as error:
            self._finish.fail(
                runtime.dataset, active.lease.import_id, reason=str(error)
            )
        except Rejected as error:
            self._fail(active.lease, self._job_error(error))
        except Exception as error:  # noqa: BLE001 (the one place that catches all)
            self._emit(
                WorkerFailed(**job_fields(active.lease), error=self._describe(error))
            )
            self._retry(active.lease, error, None)

    def _close_budget(
        self, runtime: DatasetRuntime, active: ActiveLease, error: Throttled
    ) -> None:
        lease, wait = active.lease, closure_duration(error.retry_after)
        if error.retry_after is None:
            wait += backoff(lease.snoozes, jitter=self._jitter())
        reason = self._describe(error)
        self._retry_while_leased(
            active,
            lambda: self._budgets.close(runtime.budget, wait=wait, reason=reason),
        )
        self._emit(
            BudgetWasClosed(
                **job_fields(lease), budget=runtime.budget, wait=wait, reason=reason
            )
        )
        blame = lease.snoozes >= MAX_SNOOZES
        if blame and lease.attempts + 1 >= self._policy.attempts:
            self._fail(lease, self._job_error(error))
        else:
            self._pause_budget(
                runtime.budget, lease, self._job_error(error), wait=wait, blame=blame
            )

    def _stop_budget(
        self, runtime: DatasetRuntime, active: ActiveLease, error: AccessRefused
    ) -> None:
        reason = self._describe(error)
        self._retry_while_leased(
            active, lambda: self._budgets.stop(runtime.budget, reason=reason)
        )
        self._emit(
            BudgetWasStopped(
                **job_fields(active.lease), budget=runtime.budget, reason=reason
            )
        )
        self._pause_budget(
            runtime.budget,
            active.lease,
            self._job_error(error),
            wait=BUDGET_POLL_INTERVAL,
        )

    def _pause_budget(
        self,
        budget: str,
        lease: Lease,
        job_error: JobError | None,
        *,
        wait: timedelta,
        blame: bool = False,
    ) -> None:
        """Put a job back because of its budget, and do not use that budget for a while.

        The budget waits, not the job: after an operator opens it, work continues within
        `BUDGET_POLL_INTERVAL`, however long the closure was meant to last.
        """
        rest = min(wait, BUDGET_POLL_INTERVAL)
        self._closed_until[budget] = self._monotonic() + rest.total_seconds()
        self._postpone(lease, job_error, delay=timedelta(), blame=blame)

    def _postpone_for_store(
        self, runtime: DatasetRuntime, active: ActiveLease, error: StoreUnavailable
    ) -> None:
        """Put a job back while a store is unavailable; costs no attempt.

        If that store is the ledger, this is retried until the lease ends: a lease that
        only expires would look like a dead worker.
        """
        rest = STORE_RETRY_INTERVAL * (0.5 + self._jitter())
        self._closed_until[runtime.budget] = self._monotonic() + rest.total_seconds()
        self._retry_while_leased(
            active,
            lambda: self._postpone(
                active.lease, self._job_error(error), delay=timedelta(), blame=False
            ),
        )

    def _retry_while_leased(
        self, active: ActiveLease, action: Callable[[], None]
    ) -> None:
        """Retry an action that other workers depend on until the store is back.

        Only as long as the lease lasts: after that another worker has the job.
        """
        is_reported = False
        while True:
            try:
                action()
            except StoreUnavailable as error:
                if not is_reported:
                    reason = self._describe(error)
                    self._emit(StoreWasAway(**job_fields(active.lease), error=reason))
                is_reported = True
                now = self._monotonic()
                rest = STORE_RETRY_INTERVAL * (0.5 + self._jitter())
                if now >= active.trusted_until or self._halt.wait(rest.total_seconds()):
                    raise
            else:
                return

    def _retry(
        self, lease: Lease, error: Exception, retry_after: timedelta | None
    ) -> None:
        job_error = self._job_error(error)
        if lease.attempts + 1 >= self._policy.attempts:
            self._fail(lease, job_error)
            return
        delay = backoff(lease.attempts, jitter=self._jitter())
        if retry_after is not None:
            delay = max(delay, min(retry_after, MAX_CLOSURE))
        self._postpone(lease, job_error, delay=delay, blame=True)

    def _postpone(
        self, lease: Lease, job_error: JobError | None, *, delay: timedelta, blame: bool
    ) -> None:
        self._ledger.postpone(lease, job_error, delay=delay, blame=blame)
        self._emit(
            JobPostponed(
                **job_fields(lease),
                shard=lease.shard_key,
                code="budget" if job_error is None else job_error.code,
                message="waiting for the budget"
                if job_error is None
                else job_error.message,
                delay=delay,
                attempts=lease.attempts + blame,
                snoozes=lease.snoozes + (not blame),
            )
        )

    def _fail(self, lease: Lease, job_error: JobError) -> None:
        self._ledger.fail(lease, job_error)
        self._emit(
            JobFailed(
                **job_fields(lease),
                shard=lease.shard_key,
                code=job_error.code,
                message=job_error.message,
            )
        )

    def _job_error(self, error: Exception) -> JobError:
        code = error.code if isinstance(error, PenstockError) else "internal"
        return JobError(code=code, message=self._describe(error))

    def _describe(self, error: Exception) -> str:
        """Describe an error in one short line without secrets."""
        text = str(error)
        if not isinstance(error, PenstockError):
            text = f"{type(error).__name__}: {text}"
        # shortened before, a part of a secret would stay
        return " ".join(self._policy.redact(text).split())[:500]
