"""Declare an import: decide its bounds, store its jobs once."""

import dataclasses
import glob
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import NoReturn, TypeAlias

from penstock.domain.budget import Budget
from penstock.domain.dataset import Dataset
from penstock.domain.events import ImportPlanned
from penstock.domain.formats import format_instant
from penstock.domain.import_scope import (
    ImportScope,
    axis_bounds,
    decide_scope,
    request_lower_bound,
)
from penstock.domain.jobs import Import, ImportStatus, Mode
from penstock.domain.plan_cursor import digest_of_plan
from penstock.domain.sharding.axes import Axis, Bounds, FileAxis, ListAxis, ValuesFrom
from penstock.domain.sharding.parts import Slice
from penstock.domain.sharding.shard import plan_shards
from penstock.domain.source import CsvSource, Paging
from penstock.errors import Interrupted, Misconfigured
from penstock.flow.plan_lease import STOPPED, ClaimPlan, PlanLease
from penstock.flow.span_attributes import describe_plan
from penstock.ports import (
    Emit,
    KeepAlive,
    NoScannedSlices,
    Records,
    ScannedSlices,
    Source,
    StopSignal,
    Stores,
    Survey,
)
from penstock.ports.tracing import NO_TRACER, Tracer

# shards stored in one transaction, to bound memory and the time other writers wait
SHARD_BATCH = 5_000
# seconds between looks at an import that another process plans
PLAN_POLL_INTERVAL = 0.2
# raises `Misconfigured` if the rows of a first import would overwrite each other
CheckFirst: TypeAlias = Callable[[Dataset, tuple[Axis, ...], KeepAlive], None]


def accept_any(dataset: Dataset, axes: tuple[Axis, ...], still_here: KeepAlive) -> None:
    del dataset, axes, still_here


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    planned: Import
    resumed: bool
    shards: int


class Plan:
    def __init__(
        self,
        *,
        datasets: Mapping[str, Dataset],
        stores: Stores,
        survey: Survey,
        claim: ClaimPlan,
        emit: Emit,
        check_first: CheckFirst = accept_any,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self._tracer = tracer
        self._survey = survey
        self.claim = claim
        self.check_first = check_first
        self._datasets = datasets
        self._imports = stores.imports
        self._plans = stores.plans
        self._records = stores.records
        self._emit = emit

    def __call__(
        self,
        dataset: Dataset,
        requested: ImportScope,
        *,
        declaration: str,
        halt: StopSignal | None = None,
    ) -> Planned:
        """Store an import's jobs, or resume the unfinished import of the same kind.

        Raises `Interrupted` when stopped; the next call resumes.
        """
        with self._tracer.span("plan import") as span:
            planned = self._plan(
                dataset, requested, declaration, halt or threading.Event()
            )
            if span.is_recording:
                describe_plan(span, planned.planned, planned.shards)
            return planned

    def _plan(
        self,
        dataset: Dataset,
        requested: ImportScope,
        declaration: str,
        halt: StopSignal,
    ) -> Planned:
        scope, still_here = self.scope(dataset, requested), stop_check(halt)
        # this may raise, so it comes before anything is stored
        axes = self.axes(dataset, files=scope.files, still_here=still_here)
        if not scope.accept_duplicates and not self._has_unfinished(dataset):
            self.check_first(dataset, axes, still_here)
        import_, resumed = self._imports.begin(
            dataset,
            scope,
            declaration=declaration,
            traceparent=self._tracer.traceparent(),
        )
        if resumed:
            refuse_different_import(import_, requested, scope, declaration)
            if isinstance(dataset.source, CsvSource):
                shard_keys = self._imports.shard_keys(import_.id)
                refuse_different_files(
                    import_, axes, shard_keys, exactly=bool(scope.files)
                )
        plan = self._wait_for_plan(import_, halt)
        if plan is not None:
            with plan.released_on_error():
                self.fill(dataset, import_, axes, plan)
        planned, jobs = self._imports.get(import_.id)
        self.emit_planned(import_, shards=jobs.total, resumed=resumed)
        return Planned(planned=planned, resumed=resumed, shards=jobs.total)

    def _has_unfinished(self, dataset: Dataset) -> bool:
        """Return whether an import may be resumed, which was checked when it began."""
        newest = self._imports.newest(dataset.name)
        unfinished = {ImportStatus.PLANNING, ImportStatus.RUNNING}
        return newest is not None and newest.status in unfinished

    def _wait_for_plan(self, import_: Import, halt: StopSignal) -> PlanLease | None:
        """Claim the plan of an import, after another planner that may have it.

        None if that has planned it.
        """
        while (
            import_.status is ImportStatus.PLANNING
            and (plan := self.claim(import_.id, halt)) is None
        ):
            if halt.wait(PLAN_POLL_INTERVAL):
                raise Interrupted(STOPPED)
            import_ = self._imports.peek(import_.id)
        return plan if import_.status is ImportStatus.PLANNING else None

    def fill(
        self,
        dataset: Dataset,
        import_: Import,
        axes: tuple[Axis, ...],
        plan: PlanLease,
        *,
        is_stored: bool = False,
    ) -> None:
        """Store the shards of an import in planning, and open it to workers.

        With `is_stored`, its shards were stored while its files were scanned.
        """
        last = self._find_repeated(dataset, import_, axes)
        if last is not None:
            self._plans.repeat(dataset, plan.lease, of=last.id)
            return
        if not is_stored:
            self._store(dataset, import_, axes, plan)
        self._plans.finish(plan.lease)

    def _store(
        self,
        dataset: Dataset,
        import_: Import,
        axes: tuple[Axis, ...],
        plan: PlanLease,
    ) -> None:
        bounds = import_bounds(dataset, import_)
        digest = digest_of_plan(axes, bounds)
        stored = plan.stored_of(digest)
        keys = (shard.key for shard in plan_shards(axes, bounds))
        rest = itertools.islice(keys, stored, None)
        while batch := list(itertools.islice(rest, SHARD_BATCH)):
            plan.still_here()
            stored += len(batch)
            plan.add_shards(batch, digest=digest, stored=stored)
        if not stored:
            self._end_empty(dataset, import_)

    def emit_planned(self, import_: Import, *, shards: int, resumed: bool) -> None:
        self._emit(
            ImportPlanned(
                import_id=import_.id,
                dataset=import_.dataset,
                mode=import_.mode,
                shards=shards,
                resumed=resumed,
            )
        )

    def _find_repeated(
        self, dataset: Dataset, import_: Import, axes: tuple[Axis, ...]
    ) -> Import | None:
        """Return the last import if neither its files nor any row have changed since.

        Not where fields reference other datasets, whose rows may have changed.
        """
        if not dataset.is_ranked or dataset.has_references:
            return None
        last = self._imports.last_reusable(dataset, import_.mode)
        if last is None or last.declaration != import_.declaration:
            return None
        if last.accepts_duplicates and not import_.accepts_duplicates:
            # it may have had too many
            return None
        keys = (
            shard.key for shard in plan_shards(axes, import_bounds(dataset, import_))
        )
        stored = self._imports.shard_keys(last.id)
        return last if digest_of_keys(keys) == digest_of_keys(stored) else None

    def _end_empty(self, dataset: Dataset, import_: Import) -> NoReturn:
        """End an import without shards, which would prove that there are no records."""
        reason = "there was nothing to import"
        self._imports.cancel(import_.id, reason=reason, only=ImportStatus.PLANNING)
        raise Misconfigured(
            f"there is no shard of {dataset.name!r} to import up to "
            f"{format_instant(import_.until)}; check the bounds of its axes"
        )

    def scope(self, dataset: Dataset, requested: ImportScope) -> ImportScope:
        watermark = self._records.watermark(dataset)
        return decide_scope(dataset, requested, watermark=watermark)

    def axes(
        self,
        dataset: Dataset,
        *,
        files: tuple[str, ...] = (),
        still_here: KeepAlive = lambda: None,
        scanned: ScannedSlices | None = None,
    ) -> tuple[Axis, ...]:
        """Return the axes with the values read from files and other datasets.

        With `files`, as if the dataset declared only these. Scanning files may take
        long; whatever `still_here` raises ends it.
        """
        if isinstance(dataset.source, CsvSource):
            chosen = with_files(dataset, files) if files else dataset
            return (self._survey(chosen, still_here, scanned or NoScannedSlices()),)
        return tuple(self._with_values(dataset, axis) for axis in dataset.axes)

    def _with_values(self, dataset: Dataset, axis: Axis) -> Axis:
        if not isinstance(axis, ListAxis) or not isinstance(axis.values, ValuesFrom):
            return axis
        parent = self._datasets[axis.values.dataset]
        values = tuple(self._records.distinct(parent, axis.values.field))
        if not values:
            raise Misconfigured(
                f"datasets.{dataset.name}.shards.{axis.name}: dataset {parent.name!r} "
                f"has no {axis.values.field!r} yet; penstock run {parent.name} first"
            )
        return dataclasses.replace(axis, values=values)


def with_files(dataset: Dataset, files: Iterable[str]) -> Dataset:
    """Return the dataset as if only these files were declared."""
    source = dataclasses.replace(dataset.csv, files=tuple(map(glob.escape, files)))
    return dataclasses.replace(dataset, source=source)


def stop_check(halt: StopSignal | None) -> KeepAlive:
    def still_here() -> None:
        if halt is not None and halt.is_set():
            raise Interrupted(STOPPED)

    return still_here


def digest_of_keys(keys: Iterable[str]) -> bytes:
    """Return one digest for the same keys in the same order, in bounded memory."""
    digest = blake2b()
    for key in keys:
        digest.update(f"{key}\n".encode())
    return digest.digest()


def import_bounds(dataset: Dataset, import_: Import) -> Bounds:
    return axis_bounds(dataset, import_.mode, since=import_.since, until=import_.until)


def refuse_different_import(
    import_: Import, requested: ImportScope, scope: ImportScope, declaration: str
) -> None:
    """Refuse to resume an import that was planned for another scope or declaration."""
    remedy = f"let it finish, or: penstock imports cancel {import_.id}"
    if import_.declaration != declaration:
        raise Misconfigured(
            f"import {import_.id} is unfinished and was planned under another "
            f"declaration of {import_.dataset!r}; {remedy}"
        )
    # only explicit bounds can differ; the others follow from the clock
    other_end = requested.until is not None and scope.until != import_.until
    if other_end or (requested.since is not None and scope.since != import_.since):
        since = "the start" if import_.since is None else format_instant(import_.since)
        raise Misconfigured(
            f"import {import_.id} is unfinished and covers {since} to "
            f"{format_instant(import_.until)}; {remedy}"
        )


def refuse_different_files(
    import_: Import, axes: tuple[Axis, ...], planned: Iterable[str], *, exactly: bool
) -> None:
    """Refuse to resume an import of different files, such as an upload.

    Files that were named must match exactly. Files whose content has changed are not
    detected here, but when they are read.
    """
    requested = {part.file for axis in axes for part in file_slices(axis)}
    existing = {Slice.of_key(key).file for key in planned}
    if existing and (
        existing != requested if exactly else existing.isdisjoint(requested)
    ):
        raise Misconfigured(
            f"import {import_.id} is unfinished and reads "
            f"{', '.join(sorted(existing))}; "
            f"let it finish, or: penstock imports cancel {import_.id}"
        )


def file_slices(axis: Axis) -> tuple[Slice, ...]:
    return axis.slices if isinstance(axis, FileAxis) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What an import would cost."""

    shards: int
    requests: int
    # true if nothing is stored yet, so that there may be many more pages
    at_least: bool
    duration: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedShard:
    key: str
    first_request: str


class DryRun:
    """Preview what a plan would store and send."""

    def __init__(self, plan: Plan, records: Records) -> None:
        self._plan = plan
        self._records = records

    def __call__(
        self, dataset: Dataset, requested: ImportScope, now: datetime
    ) -> "PlanPreview":
        """Scan the source once: files may be large, or must be downloaded."""
        scope = self._plan.scope(dataset, requested)
        # how many records have changed is not known in advance
        is_full = scope.mode is Mode.FULL
        return PlanPreview(
            dataset=dataset,
            scope=scope,
            axes=self._plan.axes(dataset, files=scope.files),
            bounds=axis_bounds(
                dataset, scope.mode, since=scope.since, until=scope.until or now
            ),
            stored=self._records.count(dataset) if is_full else 0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPreview:
    """An import as it would be planned now."""

    dataset: Dataset
    scope: ImportScope
    axes: tuple[Axis, ...]
    bounds: Bounds
    # stored records, which a full import would fetch again
    stored: int

    def shards(self, source: Source) -> Iterator[PlannedShard]:
        since = request_lower_bound(self.dataset, self.scope.mode, self.scope.since)
        for shard in plan_shards(self.axes, self.bounds):
            yield PlannedShard(
                key=shard.key, first_request=source.preview(shard, since=since)
            )

    def estimate(self, budget: Budget) -> Estimate:
        """Count the shards, and the pages that the stored records would fill."""
        shards = sum(1 for _ in plan_shards(self.axes, self.bounds))
        source = self.dataset.source
        if isinstance(source, CsvSource):
            return Estimate(
                shards=shards, requests=0, at_least=False, duration=timedelta()
            )
        pages = source.pages
        # each shard needs a last request to prove its end, unless a next link or a
        # single response proves it
        has_final_request = pages.by in {Paging.KEYSET, Paging.OFFSET, Paging.PAGE}
        full_pages = -(-self.stored // pages.size) if pages.size else 0
        requests = max(full_pages, shards) + (shards if has_final_request else 0)
        return Estimate(
            shards=shards,
            requests=requests,
            at_least=not self.stored,
            duration=budget.duration(requests),
        )
