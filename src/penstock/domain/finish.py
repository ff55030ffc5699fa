"""Judge the end of an import: proof, failure, and rows that went missing."""

from dataclasses import dataclass, replace

from penstock.domain.dataset import Missing
from penstock.domain.job import ImportStatus, Shards


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an import ends."""

    status: ImportStatus
    proven: bool
    note: str | None = None

    def with_note(self, note: str) -> "Ending":
        return replace(self, note=note)


def judge_ending(shards: Shards, *, unproven: int, failed: str | None) -> Ending:
    """Call an import done only if each of its shards has shown its end."""
    if failed is not None:
        return Ending(status=ImportStatus.FAILED, proven=False, note=failed)
    if shards.failed or shards.cancelled:
        lost = shards.failed + shards.cancelled
        return Ending(
            status=ImportStatus.FAILED,
            proven=False,
            note=f"{lost} of {shards.total} shards did not finish; see: penstock jobs "
            "--status failed, then: penstock jobs retry --failed",
        )
    if unproven:
        return Ending(
            status=ImportStatus.FAILED,
            proven=False,
            note=f"{unproven} of {shards.total} shards ended without proof",
        )
    return Ending(status=ImportStatus.DONE, proven=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """What a full import did not bring."""

    live: int
    missing: int
    # bad rows whose key could not be read: they may be any of the missing
    keyless: int


def judge_missing(missed: Missed, rule: Missing) -> str | None:
    """Say why missing rows must not be marked as deleted, if they must not."""
    if not missed.missing:
        return None
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
