"""Judge the end of an import: proof, failure, and rows that went missing."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

from penstock.domain.dataset import Dataset, WhenMissing
from penstock.domain.job import Import, ImportStatus, Mode, Shards
from penstock.domain.lost_files import Lost
from penstock.domain.scope import time_axis
from penstock.domain.source import HttpSource, Paging

# how far a provider's clock may be ahead of the database's
MOST_AHEAD = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an import ends, and what its end changes."""

    status: ImportStatus
    proven: bool
    note: str | None = None
    # the dataset's new watermark; None leaves it
    watermark: datetime | None = None
    marks_missing: bool = False
    # what of the missing rows is not marked
    lost: Lost = field(default_factory=Lost)
    # everything was read anew: complaints of earlier imports are settled
    settles_quarantine: bool = False


class Facts(Protocol):
    """What has to be counted before an import can end; asked only as far as needed."""

    def unproven(self) -> int:
        """Count the jobs that are done without proof."""
        ...

    def watermark(self) -> datetime | None: ...

    def missed(self) -> "Missed": ...

    def lost(self) -> Lost:
        """Find the missing rows whose file this import did not read."""
        ...


def settle(
    known: Import, shards: Shards, dataset: Dataset, facts: Facts, *, failed: str | None
) -> Ending:
    """Decide the end of an import none of whose jobs is open."""
    too_bad = dataset.bad.exceeded(
        bad=known.counts.quarantined, seen=known.counts.seen, at_end=True
    )
    again = f"penstock run {dataset.name}"
    if known.mode is not Mode.FULL:
        again += f" --mode {known.mode}"
    ending = judge_ending(
        shards, unproven=facts.unproven(), failed=failed or too_bad, again=again
    )
    if not ending.proven:
        return ending
    is_full = known.mode is Mode.FULL
    ending = replace(
        ending,
        watermark=next_watermark(known, dataset, current=facts.watermark()),
        settles_quarantine=is_full,
    )
    if not (is_full and known.tracked) or dataset.missing.do is WhenMissing.KEEP:
        return ending
    missed, lost = facts.missed(), Lost()
    if missed.missing and dataset.is_ranked and not known.accepts_lost_files:
        lost = facts.lost()
    missed = replace(missed, missing=missed.missing - lost.rows)
    refusal = judge_missing(missed, dataset)
    return replace(
        ending,
        note="; ".join(filter(None, (refusal, lost.note(dataset)))) or None,
        marks_missing=refusal is None and missed.missing > 0,
        lost=lost,
    )


def is_tracked(dataset: Dataset, mode: Mode) -> bool:
    """Say whether rows have to tell which import has seen them last.

    The end of an import asks it, or another row of the same key does.
    """
    is_marked = dataset.missing.do is WhenMissing.MARK
    return dataset.is_ranked or (mode is Mode.FULL and is_marked)


def judge_ending(
    shards: Shards, *, unproven: int, failed: str | None, again: str
) -> Ending:
    """Call an import done only if each of its shards has shown its end.

    `again` is the command that begins another one.
    """
    if failed is not None:
        return Ending(status=ImportStatus.FAILED, proven=False, note=failed)
    if shards.failed or shards.cancelled:
        lost = shards.failed + shards.cancelled
        return Ending(
            status=ImportStatus.FAILED,
            proven=False,
            note=f"{lost} of {shards.total} shards did not finish; see why with: "
            "penstock jobs --status failed; if the provider was at fault: penstock "
            f"jobs retry --failed; if you mend the declaration: {again}",
        )
    if unproven:
        return Ending(
            status=ImportStatus.FAILED,
            proven=False,
            note=f"{unproven} of {shards.total} shards ended without proof",
        )
    return Ending(status=ImportStatus.DONE, proven=True)


def next_watermark(
    ended: Import, dataset: Dataset, *, current: datetime | None
) -> datetime | None:
    """Return the instant up to which changes are known after a proven import.

    It is the provider's time at the start of the scan. None leaves it where it is: a
    backfill looks at the past only, and a delta that began behind the watermark has
    left a gap before it.
    """
    if ended.mode is Mode.BACKFILL:
        return None
    if ended.mode is Mode.DELTA and (
        current is None or (ended.since is not None and ended.since > current)
    ):
        return None
    # a provider whose clock runs far ahead would hide its changes from every delta
    started = min(
        ended.scan_started_at or ended.created_at, ended.created_at + MOST_AHEAD
    )
    if time_axis(dataset) is not None:
        # its windows end there: what came later was not asked for
        started = min(started, ended.until)
    if current is None or ended.mode is Mode.FULL:
        return started
    return max(started, current)


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """What a full import did not bring."""

    live: int
    missing: int
    # bad rows whose key could not be read: they may be any of the missing
    keyless: int


def judge_missing(missed: Missed, dataset: Dataset) -> str | None:
    """Say why missing rows must not be marked as deleted, if they must not."""
    rule = dataset.missing
    if not missed.missing:
        return None
    moves = moving_order(dataset)
    if moves is not None:
        return f"{missed.missing} missing rows were kept: {moves}"
    if missed.keyless:
        return (
            f"{missed.missing} missing rows were kept: {missed.keyless} bad rows have "
            "no readable key, so it is not known which rows are missing"
        )
    drop = missed.missing / missed.live
    if drop > rule.max_drop:
        return (
            f"{missed.missing} missing rows were kept: {drop:.1%} of {missed.live} is "
            f"more than missing.max_drop = {rule.max_drop:g}"
        )
    return None


def moving_order(dataset: Dataset) -> str | None:
    """Say how a row can slip past a scan that saw every page, if it can."""
    if not isinstance(dataset.source, HttpSource):
        return None
    paging = dataset.source.pages.by
    if paging in {Paging.OFFSET, Paging.PAGE}:
        return (
            f"pages by {paging} pass over a row when one before it is "
            "removed; page by keyset to have missing rows marked"
        )
    axis = time_axis(dataset)
    changing = None if dataset.delta is None else dataset.delta.field
    if axis is not None and axis.check is not None and axis.check == changing:
        return (
            f"a row that changes during the scan leaves its {axis.name!r}; cut along a "
            "field that does not change to have missing rows marked"
        )
    return None
