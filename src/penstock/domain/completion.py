"""Decide how an import ends: proven or failed, and which rows are missing."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

from penstock.domain.dataset import Dataset, WhenMissing
from penstock.domain.formats import shorten
from penstock.domain.import_scope import time_axis
from penstock.domain.jobs import Import, ImportStatus, Mode, Shards
from penstock.domain.lost_files import FilesNotRead
from penstock.domain.pages import Counts
from penstock.domain.source import HttpSource, Paging

# how far a provider's clock may be ahead of the database's
MAX_CLOCK_AHEAD = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionVerdict:
    """The final status of an import, and what its end changes."""

    status: ImportStatus
    proven: bool
    note: str | None = None
    # the dataset's new watermark; None leaves it
    watermark: datetime | None = None
    marks_missing: bool = False
    # missing rows that are not marked, because their files were not read
    lost: FilesNotRead = field(default_factory=FilesNotRead)
    # everything was read again: quarantined rows of earlier imports are resolved
    settles_quarantine: bool = False


class CompletionFacts(Protocol):
    """Counts that decide the end of an import; each is queried only if needed."""

    def unproven(self) -> int:
        """Count the jobs that are done without proof."""
        ...

    def watermark(self) -> datetime | None: ...

    def repeated_keys(self) -> Sequence[str]:
        """Return some of the keys that several rows had."""
        ...

    def missed(self) -> "MissingRows": ...

    def lost(self) -> FilesNotRead:
        """Find the missing rows whose file this import did not read."""
        ...


def decide_completion(
    current: Import,
    shards: Shards,
    dataset: Dataset,
    facts: CompletionFacts,
    *,
    failed: str | None,
) -> CompletionVerdict:
    """Decide the end of an import that has no open job."""
    exceeded_tolerance = dataset.bad.exceeded(
        bad=current.counts.quarantined, seen=current.counts.seen, at_end=True
    )
    again = f"penstock run {dataset.name}"
    if current.mode is not Mode.FULL:
        again += f" --mode {current.mode}"
    verdict = judge_shards(
        shards,
        unproven=facts.unproven(),
        failed=failed or exceeded_tolerance,
        again=again,
    )
    is_full = current.mode is Mode.FULL
    if verdict.proven and is_full and not current.accepts_duplicates:
        refusal = judge_duplicates(current.counts, dataset, facts)
        verdict = verdict if refusal is None else fail(refusal)
    if not verdict.proven:
        return verdict
    verdict = replace(
        verdict,
        watermark=next_watermark(current, dataset, current=facts.watermark()),
        settles_quarantine=is_full,
    )
    if not (is_full and current.tracked) or dataset.missing.do is WhenMissing.KEEP:
        return verdict
    missed, lost = facts.missed(), FilesNotRead()
    if missed.missing and dataset.is_ranked and not current.accepts_lost_files:
        lost = facts.lost()
    missed = replace(missed, missing=missed.missing - lost.rows)
    refusal = judge_missing(missed, dataset)
    return replace(
        verdict,
        note="; ".join(filter(None, (refusal, lost.note(dataset)))) or None,
        marks_missing=refusal is None and missed.missing > 0,
        lost=lost,
    )


def is_tracked(dataset: Dataset, mode: Mode) -> bool:
    """Return whether rows must store which import has seen them last.

    It is needed to find missing rows, to know since when they are missing, and to
    choose between rows of the same key.
    """
    finds_missing = (
        dataset.missing.do is WhenMissing.MARK or dataset.archive is not None
    )
    return dataset.is_ranked or (mode is Mode.FULL and finds_missing)


def judge_shards(
    shards: Shards, *, unproven: int, failed: str | None, again: str
) -> CompletionVerdict:
    """Return done only if the end of each shard is proven.

    `again` is the command that starts another import.
    """
    if failed is not None:
        return fail(failed)
    if shards.failed or shards.cancelled:
        lost = shards.failed + shards.cancelled
        return fail(
            f"{lost} of {shards.total} shards did not finish; see why with: "
            "penstock jobs --status failed; if the provider was at fault: penstock "
            f"jobs retry --failed; if you fix the declaration: {again}"
        )
    if unproven:
        return fail(f"{unproven} of {shards.total} shards ended without proof")
    return CompletionVerdict(status=ImportStatus.DONE, proven=True)


def fail(note: str) -> CompletionVerdict:
    return CompletionVerdict(status=ImportStatus.FAILED, proven=False, note=note)


def judge_duplicates(
    counts: Counts, dataset: Dataset, facts: CompletionFacts
) -> str | None:
    """Return why so many rows that lost to another of their key are an error, or None.

    Each shard may be complete: with a wrong key the rows overwrite each other.
    """
    rows = counts.seen - counts.quarantined - counts.dropped
    lost = counts.duplicates
    if lost <= dataset.max_duplicates * rows:
        return None
    examples = () if dataset.has_row_key else facts.repeated_keys()
    return describe_repeated_keys(dataset, lost=lost, rows=rows, examples=examples)


def describe_repeated_keys(
    dataset: Dataset, *, lost: int, rows: int, examples: Sequence[str]
) -> str:
    """Describe that too many rows lost to another row of their key, and what to do."""
    share = f"{lost:,} of {rows:,} rows ({lost / rows:.1%})"
    limit = f"more than max_duplicates = {dataset.max_duplicates:g}"
    once = f"penstock run {dataset.name} --accept-duplicates"
    if dataset.has_row_key:
        return f"{share} are equal to another row, {limit}; to accept them once: {once}"
    shown = ", ".join(map(shorten, examples))
    return (
        f"{share} lost to another row of their key, {limit}: the key "
        f"({', '.join(dataset.key)}) is not unique"
        + (f", as in {shown}" if shown else "")
        + "; declare fields that together are different in each row, or, if the last "
        f"row of a key is the one to store, max_duplicates = 1; to accept them once: "
        f"{once}"
    )


def next_watermark(
    ended: Import, dataset: Dataset, *, current: datetime | None
) -> datetime | None:
    """Return the instant up to which all changes are imported after a proven import.

    It is the provider's time at the start of the scan. None leaves the watermark as it
    is: a backfill reads the past only, and a delta that started after the watermark
    leaves a gap.
    """
    if ended.mode is Mode.BACKFILL:
        return None
    if ended.mode is Mode.DELTA and (
        current is None or (ended.since is not None and ended.since > current)
    ):
        return None
    # a provider whose clock runs far ahead would hide its changes from every delta
    started = min(
        ended.scan_started_at or ended.created_at, ended.created_at + MAX_CLOCK_AHEAD
    )
    if time_axis(dataset) is not None:
        # its windows end there: later records were not requested
        started = min(started, ended.until)
    if current is None or ended.mode is Mode.FULL:
        return started
    return max(started, current)


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRows:
    """Counts of live rows that a full import did not contain."""

    live: int
    missing: int
    # bad rows whose key could not be read: each may be one of the missing rows
    keyless: int


def judge_missing(missed: MissingRows, dataset: Dataset) -> str | None:
    """Return why missing rows must not be marked as deleted, or None."""
    doubt = doubt_missing(missed, dataset, aim="to have missing rows marked")
    return (
        None if doubt is None else f"{missed.missing} missing rows were kept: {doubt}"
    )


def doubt_missing(missed: MissingRows, dataset: Dataset, *, aim: str) -> str | None:
    """Return why it is not certain enough that rows are missing, or None.

    `aim` is why a user would follow the advice.
    """
    if not missed.missing:
        return None
    moves = moving_order(dataset, aim=aim)
    if moves is not None:
        return moves
    if missed.keyless:
        return (
            f"{missed.keyless} bad rows have no readable key, so it is not known which "
            "rows are missing"
        )
    drop, most = missed.missing / missed.live, dataset.missing.max_drop
    if drop > most:
        return f"{drop:.1%} of {missed.live} is more than missing.max_drop = {most:g}"
    return None


def moving_order(dataset: Dataset, *, aim: str) -> str | None:
    """Return how a scan of every page can still miss a row, or None."""
    if not isinstance(dataset.source, HttpSource):
        return None
    paging = dataset.source.pages.by
    if paging in {Paging.OFFSET, Paging.PAGE}:
        return (
            f"pages by {paging} pass over a row when one before it is "
            f"removed; page by keyset {aim}"
        )
    axis = time_axis(dataset)
    changing = None if dataset.delta is None else dataset.delta.field
    if axis is not None and axis.check is not None and axis.check == changing:
        return (
            f"a row that changes during the scan leaves its {axis.name!r}; cut along a "
            f"field that does not change {aim}"
        )
    return None
