"""Start an import on request of a client, exactly once per idempotency key."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

from penstock.domain.dataset import Dataset
from penstock.domain.formats import EPOCH
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import (
    Import,
    ImportId,
    ImportStatus,
    JobError,
    Mode,
    backoff,
)
from penstock.domain.sharding.axes import Bounds
from penstock.domain.sharding.parts import Slice
from penstock.domain.sharding.shard import plan_shards
from penstock.domain.source import CsvSource
from penstock.errors import (
    Conflict,
    FilesMissing,
    Interrupted,
    LeaseLost,
    Misconfigured,
    NotFound,
    PenstockError,
    RetryLater,
    StoreUnavailable,
)
from penstock.flow.plan import Plan, refuse_different_import, stop_check
from penstock.flow.plan_lease import PlanLease
from penstock.flow.planned_files import PlannedFiles
from penstock.flow.span_attributes import describe_plan
from penstock.ports import KeepAlive, Redact, StopSignal, Stores, Uploads
from penstock.ports.idempotency import (
    IdempotentRequest,
    ImportSpec,
    RequestClaim,
    StartedImport,
)
from penstock.ports.tracing import NO_TRACER, Tracer

# seconds until planning is retried after a store was unavailable
RETRY_INTERVAL = 5.0
# until another host is expected to have tried a plan whose files this one lacks
OTHER_HOST_DELAY = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The import that a request has started, or found."""

    import_: Import
    # an unfinished import was found
    resumed: bool
    # the result of an earlier request with the same key
    replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StartImport:
    plan: Plan
    stores: Stores
    uploads: Uploads
    datasets: Mapping[str, Dataset]
    declaration: Callable[[Dataset], str]
    redact: Redact
    # raises `Misconfigured` where a file of a dataset is missing
    find_files: Callable[[Dataset], object]
    # how often a plan is tried while a provider is away
    attempts: int
    tracer: Tracer = NO_TRACER

    def of_source(
        self, dataset: Dataset, requested: ImportScope, request: IdempotentRequest
    ) -> Started:
        """Start an import of the declared source; it has to be planned afterwards.

        Raises `Conflict` if it cannot start now.
        """
        claim = self.stores.requests.claim(request)
        if isinstance(claim, StartedImport):
            return build_started(claim, replayed=True)
        with self._release_on_error(claim), as_conflict(self.redact):
            scope = self.plan.scope(dataset, requested)
            if isinstance(dataset.source, CsvSource):
                # only checks that they exist: scanning them may take an hour
                self.find_files(dataset)
            else:
                self.plan.axes(dataset)
            declaration = self.declaration(dataset)

            spec = ImportSpec(
                scope=scope,
                declaration=declaration,
                approve=lambda import_, _: refuse_different_import(
                    import_, requested, scope, declaration
                ),
                traceparent=self.tracer.traceparent(),
            )
            return build_started(self.stores.requests.begin(claim, dataset, spec))

    def of_file(
        self,
        dataset: Dataset,
        file: str,
        request: IdempotentRequest,
        *,
        accept_duplicates: bool = False,
        corrects: ImportId | None = None,
        halt: StopSignal | None = None,
    ) -> Started:
        """Start an import of one uploaded file; workers may start at once.

        It only adds rows: rows that it lacks are not treated as missing. Raises
        `Misconfigured` for a file that does not fit the dataset, and `Conflict` if it
        cannot correct that import. A file that no import reads is removed.
        """
        try:
            started = self._of_file(
                dataset,
                file,
                request,
                accept_duplicates=accept_duplicates,
                corrects=corrects,
                still_here=stop_check(halt),
            )
        except StoreUnavailable:
            # the import may be stored nevertheless; if not, the spool cleanup removes
            # the file later
            raise
        except BaseException:
            self.uploads.remove(dataset, file)
            raise
        if started.resumed or started.replayed:
            self.uploads.remove(dataset, file)
        return started

    def _of_file(
        self,
        dataset: Dataset,
        file: str,
        request: IdempotentRequest,
        *,
        accept_duplicates: bool,
        corrects: ImportId | None,
        still_here: KeepAlive,
    ) -> Started:
        claim = self.stores.requests.claim(request)
        if isinstance(claim, StartedImport):
            return build_started(claim, replayed=True)
        with (
            self._release_on_error(claim),
            self.tracer.child("plan import") as span,
        ):
            if corrects is not None:
                self._check_corrected(dataset, corrects)
            axes = self.plan.axes(dataset, files=(file,), still_here=still_here)
            if not accept_duplicates:
                self.plan.check_first(dataset, axes, still_here)
            shards = plan_shards(axes, Bounds(until=EPOCH))
            spec = ImportSpec(
                scope=ImportScope(
                    mode=Mode.BACKFILL, accept_duplicates=accept_duplicates
                ),
                declaration=self.declaration(dataset),
                shard_keys=[shard.key for shard in shards],
                corrects=corrects,
                approve=lambda import_, planned: refuse_different_content(
                    import_, planned(), spec
                ),
                traceparent=self.tracer.traceparent(),
            )
            stored = self.stores.requests.begin(claim, dataset, spec)
            count = len(spec.shard_keys)
            if span.is_recording:
                describe_plan(span, stored.import_, count)
        self.plan.emit_planned(stored.import_, shards=count, resumed=stored.resumed)
        return build_started(stored)

    def _check_corrected(self, dataset: Dataset, import_id: ImportId) -> None:
        try:
            corrected = self.stores.imports.peek(import_id)
        except NotFound as error:
            raise Conflict(f"there is no import {import_id} to correct") from error
        if corrected.dataset != dataset.name:
            raise Conflict(
                f"import {import_id} is of {corrected.dataset!r}, so a file of "
                f"{dataset.name!r} cannot correct it"
            )
        if corrected.finished_at is None:
            raise Conflict(f"import {import_id} is unfinished; correct it when it ends")

    def plan_import(self, import_id: ImportId, halt: StopSignal) -> None:
        """Plan a stored import, or fail it if that is impossible.

        Does nothing while another process plans it. When stopped, it leaves the rest to
        the next process that finds the plan due.
        """
        plan: PlanLease | None = None
        while not halt.is_set():
            try:
                import_ = self.stores.imports.peek(import_id)
                if not self._is_declared(import_):
                    return
                plan = plan or self.plan.claim(import_id, halt)
                if plan is not None:
                    self._fill_or_fail(import_, plan)
            except StoreUnavailable:
                halt.wait(RETRY_INTERVAL)
            except LeaseLost:
                return
            except Interrupted:
                break
            else:
                return
        if plan is not None:
            plan.release()

    def _is_declared(self, import_: Import) -> bool:
        dataset = self.datasets.get(import_.dataset)
        return dataset is not None and import_.declaration == self.declaration(dataset)

    def _fill_or_fail(self, import_: Import, plan: PlanLease) -> None:
        try:
            with self.tracer.span("plan import", parent=plan.lease.traceparent) as span:
                shards = self._fill(import_, plan)
                if span.is_recording:
                    describe_plan(span, import_, shards)
        except (Interrupted, StoreUnavailable, LeaseLost):
            raise
        except FilesMissing as error:
            self._leave_to_other_hosts(plan, self.redact(str(error)))
        except RetryLater as error:
            self._retry_later(plan, error)
        except PenstockError as error:
            plan.fail("unplannable", self.redact(str(error)))
        except Exception:
            # other processes would fail on it in the same way, again and again
            plan.fail("error", "see the log for why")
            raise

    def _leave_to_other_hosts(self, plan: PlanLease, message: str) -> None:
        """Give a plan back, unless no host that has a live worker sees its files."""
        error = JobError(code=FilesMissing.code, message=message)
        tried = self.stores.jobs.get(plan.lease.job).errors
        hosts = {
            host_of(entry.owner) for entry in tried if entry.code == error.code
        } | {host_of(plan.lease.owner)}
        others = {host_of(worker.id) for worker in self.stores.workers.live()} - hosts
        if others:
            plan.postpone(error, OTHER_HOST_DELAY, blame=False)
        else:
            plan.fail(error.code, f"{message} (on {', '.join(sorted(hosts))})")

    def _retry_later(self, plan: PlanLease, error: RetryLater) -> None:
        fault = JobError(code=error.code, message=self.redact(str(error)))
        attempt = plan.lease.attempts
        if attempt + 1 >= self.attempts:
            plan.fail(fault.code, fault.message)
        else:
            delay = error.retry_after or backoff(attempt + 1, jitter=1)
            plan.postpone(fault, delay, blame=True)

    def _fill(self, import_: Import, plan: PlanLease) -> int:
        """Store the shards of an import; return how many."""
        dataset, files = self.datasets[import_.dataset], plan.cursor.files
        scanned = PlannedFiles(plan, self.stores.imports)
        axes = self.plan.axes(
            dataset, files=files, still_here=plan.still_here, scanned=scanned
        )
        if not import_.accepts_duplicates:
            self.plan.check_first(dataset, axes, plan.still_here)
        is_stored = isinstance(dataset.source, CsvSource)
        self.plan.fill(dataset, import_, axes, plan, is_stored=is_stored)
        _, jobs = self.stores.imports.get(import_.id)
        self.plan.emit_planned(import_, shards=jobs.total, resumed=False)
        return jobs.total

    @contextmanager
    def _release_on_error(self, claim: RequestClaim) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with suppress(PenstockError):
                self.stores.requests.give_up(claim)
            raise


def host_of(owner: str | None) -> str:
    return (owner or "").partition(":")[0]


def build_started(stored: StartedImport, *, replayed: bool = False) -> Started:
    return Started(import_=stored.import_, resumed=stored.resumed, replayed=replayed)


@contextmanager
def as_conflict(redact: Redact) -> Iterator[None]:
    """Raise `Misconfigured` as a `Conflict`, with secrets redacted."""
    try:
        yield
    except NotFound:
        raise
    except Misconfigured as error:
        raise Conflict(redact(str(error))) from error


def refuse_different_content(
    import_: Import, planned: Iterable[str], spec: ImportSpec
) -> None:
    """Refuse to resume an import unless its files have exactly this content."""
    same_content = file_contents(planned) == file_contents(spec.shard_keys)
    can_resume = same_content and import_.declaration == spec.declaration
    if not can_resume or import_.status is not ImportStatus.RUNNING:
        raise Conflict(
            f"import {import_.id} of {import_.dataset!r} ({import_.mode}) is "
            "unfinished; let it finish, or cancel it, then send the file again"
        )


def file_contents(shard_keys: Iterable[str]) -> set[tuple[object, ...]]:
    parts = map(Slice.of_key, shard_keys)
    return {(part.fingerprint, part.size, part.start, part.end) for part in parts}
