"""Recompute the coverage of an import from the ledger alone."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from penstock.domain.dataset import Dataset
from penstock.domain.jobs import (
    Import,
    ImportId,
    ImportStatus,
    Job,
    JobId,
    JobStatus,
    PageEntry,
    cursor_fingerprint,
)
from penstock.domain.pages import Proof
from penstock.domain.sharding.axes import Axis, ListAxis, ValuesFrom
from penstock.domain.sharding.parts import Choice, Slice, find_coverage_errors
from penstock.domain.sharding.shard import (
    Shard,
    divide_along,
    parse_shard_key,
    plan_shards,
)
from penstock.domain.source import CsvSource
from penstock.errors import NotFound
from penstock.flow.plan import import_bounds
from penstock.ports import Imports, Jobs


class CoverageFlaw(StrEnum):
    """What can be wrong with the coverage of an import."""

    GAP = "gap"
    OVERLAP = "overlap"
    UNPROVEN = "unproven"
    UNFINISHED = "unfinished"
    BROKEN_CHAIN = "broken_chain"
    MISCOUNT = "miscount"
    REDECLARED = "redeclared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    flaw: CoverageFlaw
    shard: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    audited: Import
    shards: int
    pages: int
    findings: tuple[Finding, ...]

    @property
    def complete(self) -> bool:
        return not self.findings


@dataclass(slots=True)
class Coverage:
    """State of the scan over the jobs: splits and roots, not pages."""

    roots: set[str] = field(default_factory=set)
    children: dict[JobId, set[str]] = field(default_factory=dict)
    split: dict[JobId, str] = field(default_factory=dict)
    jobs: int = 0
    pages: int = 0
    seen: int = 0


class Audit:
    def __init__(self, *, imports: Imports, jobs: Jobs) -> None:
        self._imports = imports
        self._jobs = jobs

    def __call__(
        self, dataset: Dataset, *, declaration: str, wanted: ImportId | None = None
    ) -> AuditReport:
        """Check one import, or the newest that was planned and not cancelled."""
        if wanted is not None:
            chosen = self._imports.peek(wanted)
            if chosen.dataset != dataset.name:
                raise NotFound(f"import {wanted} is not one of {dataset.name!r}")
            return self.check(dataset, chosen, declaration)
        newest = self._imports.newest(dataset.name, planned=True)
        if newest is None:
            raise NotFound(
                f"there is no import of {dataset.name!r} to audit; "
                f"run penstock run {dataset.name} first"
            )
        return self.check(dataset, newest, declaration)

    def check(self, dataset: Dataset, import_: Import, declaration: str) -> AuditReport:
        coverage = Coverage()
        findings = list(self._scan_jobs(import_, coverage))
        if not coverage.roots:
            detail = "no shard was planned"
            findings.append(Finding(flaw=CoverageFlaw.GAP, shard="all", detail=detail))
        if isinstance(dataset.source, CsvSource):
            # its shards come from the files, which may have changed since
            findings += check_files(dataset, coverage)
        elif import_.declaration == declaration:
            findings += check_roots(dataset, import_, coverage)
            findings += check_splits(dataset, coverage)
        else:
            findings.append(
                Finding(
                    flaw=CoverageFlaw.REDECLARED,
                    shard="all",
                    detail="the declaration has changed since the import was planned, "
                    "so its shards cannot be compared; run a new one",
                )
            )
        findings += check_counts(import_, coverage)
        return AuditReport(
            audited=import_,
            shards=coverage.jobs,
            pages=coverage.pages,
            findings=tuple(findings),
        )

    def _scan_jobs(self, import_: Import, coverage: Coverage) -> Iterator[Finding]:
        for job, pages in self._jobs_with_pages(import_):
            coverage.jobs += 1
            coverage.seen += job.counts.seen
            if job.parent is None:
                coverage.roots.add(job.shard_key)
            else:
                coverage.children.setdefault(job.parent, set()).add(job.shard_key)
            if job.status is JobStatus.SPLIT:
                coverage.split[job.id] = job.shard_key
            else:
                yield from check_proof(job)
            if import_.pages_removed:
                # they were complete then: only imports that were done lose them
                coverage.pages += job.page_seq
            else:
                yield from check_pages(job, pages, coverage)

    def _jobs_with_pages(
        self, import_: Import
    ) -> Iterator[tuple[Job, Iterator[PageEntry]]]:
        """Yield each job with its pages, which are read for many jobs at once."""
        for batch in self._jobs.of_import(import_.id):
            pages = PageCoverage(self._jobs.pages([job.id for job in batch]))
            for job in batch:
                yield job, pages.of(job.id)


class PageCoverage:
    """Splits a stream of pages, ordered by job id, into one iterator per job."""

    def __init__(self, pages: Iterator[tuple[JobId, PageEntry]]) -> None:
        self._pages = pages
        self._next = next(pages, None)

    def of(self, job: JobId) -> Iterator[PageEntry]:
        while self._next is not None and self._next[0] <= job:
            owner, page = self._next
            self._next = next(self._pages, None)
            if owner == job:
                yield page


def check_pages(
    job: Job, pages: Iterator[PageEntry], coverage: Coverage
) -> Iterator[Finding]:
    """Check that each page starts where the previous one ended."""
    expected, mark, seen, fence = 1, None, 0, 0
    for page in pages:
        if page.page_seq != expected:
            detail = f"page {expected} is missing before page {page.page_seq}"
            yield Finding(flaw=CoverageFlaw.GAP, shard=job.shard_key, detail=detail)
        elif page.cursor_before != mark:
            detail = f"page {page.page_seq} does not begin where the last one ended"
            yield Finding(
                flaw=CoverageFlaw.BROKEN_CHAIN, shard=job.shard_key, detail=detail
            )
        if page.fence < fence:
            detail = f"page {page.page_seq} has a smaller fence than one before it"
            yield Finding(flaw=CoverageFlaw.OVERLAP, shard=job.shard_key, detail=detail)
        expected, mark = page.page_seq + 1, page.cursor_after
        seen, fence = seen + page.seen, page.fence
    coverage.pages += expected - 1
    if expected - 1 != job.page_seq or mark != cursor_fingerprint(job.cursor):
        detail = f"the job counts {job.page_seq} pages, the ledger holds {expected - 1}"
        yield Finding(
            flaw=CoverageFlaw.BROKEN_CHAIN, shard=job.shard_key, detail=detail
        )
    if seen != job.counts.seen and job.proof is not Proof.UNCHANGED:
        detail = f"the job counts {job.counts.seen} records, its pages hold {seen}"
        yield Finding(flaw=CoverageFlaw.MISCOUNT, shard=job.shard_key, detail=detail)


def check_files(dataset: Dataset, coverage: Coverage) -> Iterator[Finding]:
    shards = {key: parse_shard_key(dataset.axes, key) for key in sorted(coverage.roots)}
    keys = {shard.parts[0]: key for key, shard in shards.items()}
    slices = [part for part in keys if isinstance(part, Slice)]
    for part, detail in find_coverage_errors(slices):
        yield Finding(flaw=CoverageFlaw.GAP, shard=keys[part], detail=detail)


def check_roots(
    dataset: Dataset, import_: Import, coverage: Coverage
) -> Iterator[Finding]:
    """Shard the dataset again and compare with the planned shards."""
    unexpected = set(coverage.roots)
    axes = axes_as_planned(dataset, coverage)
    for shard in plan_shards(axes, import_bounds(dataset, import_)):
        if shard.key in unexpected:
            unexpected.remove(shard.key)
        else:
            yield Finding(
                flaw=CoverageFlaw.GAP,
                shard=shard.key,
                detail="the declaration has this shard, the ledger does not",
            )
    for key in sorted(unexpected):
        yield Finding(
            flaw=CoverageFlaw.OVERLAP,
            shard=key,
            detail="the ledger has this shard, the declaration does not",
        )


def axes_as_planned(dataset: Dataset, coverage: Coverage) -> tuple[Axis, ...]:
    """Return the axes with the values another dataset had at planning time.

    Its current values may differ, and are not what this import had to cover.
    """
    return tuple(
        replace(axis, values=planned_values(dataset, coverage, index))
        if isinstance(axis, ListAxis) and isinstance(axis.values, ValuesFrom)
        else axis
        for index, axis in enumerate(dataset.axes)
    )


def planned_values(dataset: Dataset, coverage: Coverage, index: int) -> tuple[str, ...]:
    found = (parse_shard_key(dataset.axes, key).parts[index] for key in coverage.roots)
    return tuple(sorted({part.value for part in found if isinstance(part, Choice)}))


def check_proof(job: Job) -> Iterator[Finding]:
    if job.status is not JobStatus.DONE:
        last = f": {job.errors[-1].message}" if job.errors else ""
        yield Finding(
            flaw=CoverageFlaw.UNFINISHED,
            shard=job.shard_key,
            detail=f"job {job.id} is {job.status}{last}",
        )
    elif job.proof is None:
        yield Finding(
            flaw=CoverageFlaw.UNPROVEN,
            shard=job.shard_key,
            detail=f"job {job.id} is done without proof of its end",
        )


def check_splits(dataset: Dataset, coverage: Coverage) -> Iterator[Finding]:
    """Check that the children of every split shard cover it exactly."""
    for job, key in coverage.split.items():
        found = coverage.children.get(job, set())
        expected = closest_division(parse_shard_key(dataset.axes, key), found)
        for lost in sorted(expected - found):
            yield Finding(
                flaw=CoverageFlaw.GAP, shard=lost, detail=f"lost in the split of {key}"
            )
        for extra in sorted(found - expected):
            yield Finding(
                flaw=CoverageFlaw.OVERLAP, shard=extra, detail=f"not a part of {key}"
            )


def closest_division(shard: Shard, found: set[str]) -> set[str]:
    """Return the complete division, along any axis, that is closest to the one found.

    The smallest allowed size may have changed since the split.
    """
    divisions = [
        {child.key for child in divide_along(shard, index)}
        for index in range(len(shard.axes))
    ]
    return max(divisions, key=lambda keys: len(keys & found), default=set())


def check_counts(import_: Import, coverage: Coverage) -> Iterator[Finding]:
    for name, counted, found in (
        ("pages", import_.counts.pages, coverage.pages),
        ("records", import_.counts.seen, coverage.seen),
    ):
        if counted != found:
            yield Finding(
                flaw=CoverageFlaw.MISCOUNT,
                shard="all",
                detail=f"the import counts {counted} {name}, its jobs hold {found}",
            )
    if import_.status is ImportStatus.DONE and not import_.proven:
        yield Finding(
            flaw=CoverageFlaw.UNPROVEN,
            shard="all",
            detail="the import is done without proof",
        )
