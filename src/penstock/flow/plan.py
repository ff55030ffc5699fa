"""Declare an import: decide its bounds, store its jobs once."""

import dataclasses
import glob
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.domain.axes import Axis, Bounds, FileAxis, ListAxis, ValuesFrom
from penstock.domain.budget import Budget
from penstock.domain.dataset import Dataset
from penstock.domain.events import ImportPlanned
from penstock.domain.job import Import, ImportStatus, Mode
from penstock.domain.parts import Slice
from penstock.domain.scope import Scope, axis_bounds, decide_scope, told_since
from penstock.domain.shard import split
from penstock.domain.source import CsvSource, Paging
from penstock.domain.text import format_instant
from penstock.errors import Interrupted, Misconfigured
from penstock.ports import Emit, Halt, Imports, Records, Source, StillHere, Survey


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
        imports: Imports,
        records: Records,
        survey: Survey,
        emit: Emit,
    ) -> None:
        self._survey = survey
        self._datasets = datasets
        self._imports = imports
        self._records = records
        self._emit = emit

    def __call__(
        self,
        dataset: Dataset,
        asked: Scope,
        *,
        declaration: str,
        halt: Halt | None = None,
    ) -> Planned:
        """Store an import's jobs, or go on with the unfinished one of the same kind.

        Asked to stop, it raises `Interrupted`; the next call goes on where it was.
        """
        scope, still_here = self.scope(dataset, asked), until_halted(halt)
        # what may be refused is asked before anything is stored
        axes = self.axes(dataset, files=scope.files, still_here=still_here)
        known, resumed = self._imports.begin(
            dataset,
            scope.mode,
            declaration=declaration,
            since=scope.since,
            until=scope.until,
            accept_lost_files=scope.accept_lost_files,
        )
        if resumed:
            refuse_other(known, asked, scope, declaration)
            if isinstance(dataset.source, CsvSource):
                planned = self._imports.shard_keys(known.id)
                refuse_other_files(known, axes, planned, exactly=bool(scope.files))
        return self.fill(dataset, known, axes, resumed=resumed, still_here=still_here)

    def fill(
        self,
        dataset: Dataset,
        known: Import,
        axes: tuple[Axis, ...],
        *,
        resumed: bool,
        still_here: StillHere,
    ) -> Planned:
        """Store the jobs of an import that has begun, and open it to workers.

        Nothing happens to one that is open already.
        """
        if known.status is ImportStatus.PLANNING and not self._repeat(
            dataset, known, axes
        ):
            shards = split(axes, bounds_of(dataset, known))
            keys = (shard.key for shard in shards)
            self._store_jobs(dataset, known, attended(keys, still_here))
        planned, counted = self._imports.get(known.id)
        self.tell(known, shards=counted.total, resumed=resumed)
        return Planned(planned=planned, resumed=resumed, shards=counted.total)

    def tell(self, known: Import, *, shards: int, resumed: bool) -> None:
        self._emit(
            ImportPlanned(
                import_id=known.id,
                dataset=known.dataset,
                mode=known.mode,
                shards=shards,
                resumed=resumed,
            )
        )

    def _repeat(self, dataset: Dataset, known: Import, axes: tuple[Axis, ...]) -> bool:
        """End an import of files that have not changed, if no row has either.

        Not where fields refer to other datasets, whose rows may have.
        """
        if not dataset.is_ranked or dataset.has_references:
            return False
        last = self._imports.still_true(dataset, known.mode)
        if last is None or last.declaration != known.declaration:
            return False
        keys = {shard.key for shard in split(axes, bounds_of(dataset, known))}
        if keys != set(self._imports.shard_keys(last.id)):
            return False
        return self._imports.repeat(dataset, known.id, of=last.id)

    def _store_jobs(self, dataset: Dataset, known: Import, keys: Iterable[str]) -> None:
        self._imports.add_jobs(known.id, keys)
        now, stored = self._imports.get(known.id)
        if now.status is ImportStatus.CANCELLED:
            raise Misconfigured(
                f"import {known.id} was cancelled while it was being planned"
            )
        if not stored.total:
            # an import of nothing would prove that there is nothing
            reason = "there was nothing to import"
            self._imports.cancel(known.id, reason=reason, only=ImportStatus.PLANNING)
            raise Misconfigured(
                f"there is no shard of {dataset.name!r} to import up to "
                f"{format_instant(known.until)}; check the bounds of its axes"
            )
        self._imports.start(known.id)

    def scope(self, dataset: Dataset, asked: Scope) -> Scope:
        watermark = self._records.watermark(dataset)
        return decide_scope(dataset, asked, watermark=watermark)

    def axes(
        self,
        dataset: Dataset,
        *,
        files: tuple[str, ...] = (),
        still_here: StillHere = lambda: None,
    ) -> tuple[Axis, ...]:
        """Return the axes with what files and other datasets hold read in.

        With `files`, as if the dataset declared just these. Reading files takes long,
        and ends with what `still_here` raises.
        """
        if isinstance(dataset.source, CsvSource):
            chosen = with_files(dataset, files) if files else dataset
            return (self._survey(chosen, still_here),)
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
    """Return a dataset as if it were declared with these files alone."""
    source = dataclasses.replace(dataset.csv, files=tuple(map(glob.escape, files)))
    return dataclasses.replace(dataset, source=source)


def until_halted(halt: Halt | None) -> StillHere:
    def still_here() -> None:
        if halt is not None and halt.is_set():
            raise Interrupted("stopped while planning; the same command goes on")

    return still_here


def attended(keys: Iterable[str], still_here: StillHere) -> Iterator[str]:
    for key in keys:
        still_here()
        yield key


def bounds_of(dataset: Dataset, known: Import) -> Bounds:
    return axis_bounds(dataset, known.mode, since=known.since, until=known.until)


def refuse_other(known: Import, asked: Scope, scope: Scope, declaration: str) -> None:
    """Refuse to go on with an import that was planned for something else."""
    remedy = f"let it finish, or: penstock imports cancel {known.id}"
    if known.declaration != declaration:
        raise Misconfigured(
            f"import {known.id} is unfinished and was planned under another "
            f"declaration of {known.dataset!r}; {remedy}"
        )
    # only what was asked for in words can differ; the rest follows from the clock
    other_end = asked.until is not None and scope.until != known.until
    if other_end or (asked.since is not None and scope.since != known.since):
        since = "the start" if known.since is None else format_instant(known.since)
        raise Misconfigured(
            f"import {known.id} is unfinished and covers {since} to "
            f"{format_instant(known.until)}; {remedy}"
        )


def refuse_other_files(
    known: Import, axes: tuple[Axis, ...], planned: Iterable[str], *, exactly: bool
) -> None:
    """Refuse to go on with an import of quite other files, such as an upload.

    Files that were named must be the same ones, exactly. Files that have changed since
    are not refused here: reading them tells.
    """
    ours = {part.file for axis in axes for part in slices_of(axis)}
    theirs = {Slice.of_key(key).file for key in planned}
    if theirs and (theirs != ours if exactly else theirs.isdisjoint(ours)):
        raise Misconfigured(
            f"import {known.id} is unfinished and reads {', '.join(sorted(theirs))}; "
            f"let it finish, or: penstock imports cancel {known.id}"
        )


def slices_of(axis: Axis) -> tuple[Slice, ...]:
    return axis.slices if isinstance(axis, FileAxis) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What an import would cost."""

    shards: int
    requests: int
    # true where the records are not known yet, so that there may be many more pages
    at_least: bool
    duration: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedShard:
    key: str
    first_request: str


class DryRun:
    """Foresee what a plan would store and send, without storing or sending."""

    def __init__(self, plan: Plan, records: Records) -> None:
        self._plan = plan
        self._records = records

    def __call__(self, dataset: Dataset, asked: Scope, now: datetime) -> "Foreseen":
        """Look once at what there is: files may be large, or have to be fetched."""
        scope = self._plan.scope(dataset, asked)
        # how much has changed is not known before it is asked for
        is_full = scope.mode is Mode.FULL
        return Foreseen(
            dataset=dataset,
            scope=scope,
            axes=self._plan.axes(dataset, files=scope.files),
            bounds=axis_bounds(
                dataset, scope.mode, since=scope.since, until=scope.until or now
            ),
            stored=self._records.count(dataset) if is_full else 0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """An import as it would be planned now."""

    dataset: Dataset
    scope: Scope
    axes: tuple[Axis, ...]
    bounds: Bounds
    # records that are there, and would come again
    stored: int

    def shards(self, source: Source) -> Iterator[PlannedShard]:
        since = told_since(self.dataset, self.scope.mode, self.scope.since)
        for shard in split(self.axes, self.bounds):
            yield PlannedShard(
                key=shard.key, first_request=source.preview(shard, since=since)
            )

    def estimate(self, budget: Budget) -> Estimate:
        """Count the shards, and the pages that the stored records would fill."""
        shards = sum(1 for _ in split(self.axes, self.bounds))
        source = self.dataset.source
        if isinstance(source, CsvSource):
            return Estimate(
                shards=shards, requests=0, at_least=False, duration=timedelta()
            )
        pages = source.pages
        # each shard ends with a request that only proves its end, unless a next link
        # or a single answer does so for free
        proving = pages.by in {Paging.KEYSET, Paging.OFFSET, Paging.PAGE}
        full_pages = -(-self.stored // pages.size) if pages.size else 0
        requests = max(full_pages, shards) + (shards if proving else 0)
        return Estimate(
            shards=shards,
            requests=requests,
            at_least=not self.stored,
            duration=budget.duration(requests),
        )
