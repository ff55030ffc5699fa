"""Start an import on request of a client, exactly once per idempotency key."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from penstock.domain.dataset import Dataset
from penstock.domain.formats import EPOCH
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import Import, ImportId, ImportStatus, Mode
from penstock.domain.sharding.axes import Bounds
from penstock.domain.sharding.parts import Slice
from penstock.domain.sharding.shard import plan_shards
from penstock.domain.source import CsvSource
from penstock.errors import (
    Conflict,
    Interrupted,
    Misconfigured,
    NotFound,
    PenstockError,
    StoreUnavailable,
)
from penstock.flow.plan import Plan, refuse_different_import, stop_check
from penstock.flow.planning_lease import PlanningLease
from penstock.ports import KeepAlive, Redact, StopSignal, Stores, Uploads
from penstock.ports.idempotency import (
    IdempotentRequest,
    ImportSpec,
    RequestClaim,
    StartedImport,
)

# seconds until planning is retried after a store was unavailable
RETRY_INTERVAL = 5.0


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
    # returns a unique name for the holder of a planning lease
    new_planner: Callable[[], str]
    monotonic: Callable[[], float] = time.monotonic

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
            )
            return build_started(self.stores.requests.begin(claim, dataset, spec))

    def of_file(
        self,
        dataset: Dataset,
        file: str,
        request: IdempotentRequest,
        *,
        accept_duplicates: bool = False,
        halt: StopSignal | None = None,
    ) -> Started:
        """Start an import of one uploaded file; workers may start at once.

        It only adds rows: rows that it lacks are not treated as missing. Raises
        `Misconfigured` for a file that does not fit the dataset. A file that no import
        reads is removed.
        """
        try:
            started = self._of_file(
                dataset,
                file,
                request,
                accept_duplicates=accept_duplicates,
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
        still_here: KeepAlive,
    ) -> Started:
        claim = self.stores.requests.claim(request)
        if isinstance(claim, StartedImport):
            return build_started(claim, replayed=True)
        with self._release_on_error(claim):
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
                approve=lambda import_, planned: refuse_different_content(
                    import_, planned(), spec
                ),
            )
            stored = self.stores.requests.begin(claim, dataset, spec)
        count = len(spec.shard_keys)
        self.plan.emit_planned(stored.import_, shards=count, resumed=stored.resumed)
        return build_started(stored)

    def plan_import(self, import_id: ImportId, halt: StopSignal) -> None:
        """Plan a stored import; cancel it if that is impossible.

        Does nothing while another process plans it. When stopped, it leaves the rest to
        the next process that finds the import in `unplanned`.
        """
        planning = PlanningLease(
            import_id,
            self.new_planner(),
            requests=self.stores.requests,
            halt=halt,
            monotonic=self.monotonic,
        )
        while not halt.is_set():
            try:
                self._plan_under_lease(import_id, planning)
            except StoreUnavailable:
                halt.wait(RETRY_INTERVAL)
            except Interrupted:
                return
            else:
                return

    def _plan_under_lease(self, import_id: ImportId, planning: PlanningLease) -> None:
        if not planning.take():
            return
        try:
            self._fill_or_cancel(import_id, planning)
        finally:
            with suppress(StoreUnavailable):
                planning.release()

    def _fill_or_cancel(self, import_id: ImportId, planning: PlanningLease) -> None:
        try:
            self._fill(import_id, planning.still_here)
        except (Interrupted, StoreUnavailable):
            raise
        except PenstockError as error:
            # another process may have planned it meanwhile
            planning.renew()
            reason = self.redact(f"it could not be planned: {error}")
            self._cancel(import_id, reason)
        except Exception:
            # other processes would fail on it in the same way, again and again
            self._cancel(import_id, "it could not be planned: see the log for why")
            raise

    def _cancel(self, import_id: ImportId, reason: str) -> None:
        self.stores.imports.cancel(import_id, reason=reason, only=ImportStatus.PLANNING)

    def _fill(self, import_id: ImportId, still_here: KeepAlive) -> None:
        import_ = self.stores.imports.peek(import_id)
        dataset = self.datasets.get(import_.dataset)
        is_declared = dataset and import_.declaration == self.declaration(dataset)
        is_planning = import_.status is ImportStatus.PLANNING
        if not dataset or not is_declared or not is_planning:
            return
        axes = self.plan.axes(dataset, still_here=still_here)
        if not import_.accepts_duplicates:
            self.plan.check_first(dataset, axes, still_here)
        self.plan.fill(dataset, import_, axes, resumed=False, still_here=still_here)

    @contextmanager
    def _release_on_error(self, claim: RequestClaim) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with suppress(PenstockError):
                self.stores.requests.give_up(claim)
            raise


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
