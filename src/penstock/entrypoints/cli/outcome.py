"""What an import came to, as `run` tells it."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.filesize import decimal as in_bytes

from penstock.domain.dataset import Dataset
from penstock.domain.job import Import, ImportId, ImportStatus, JobStatus, Shards
from penstock.domain.source import CsvSource
from penstock.entrypoints.cli.shared import counted, doubt_key, show_table, stdout
from penstock.entrypoints.extent import Extent, Read
from penstock.entrypoints.reports import report
from penstock.ports import JobFilter, ReasonCount
from penstock.wiring import Penstock


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    known: Import
    shards: Shards
    rejections: Sequence[ReasonCount]
    # of files only
    read: Read | None
    # what ended the first job that failed
    error: str | None
    # why nobody works it any more, though it is not finished
    stopped: str | None
    # why the key may be wrong
    doubt: str | None = None


def outcome_of(
    penstock: Penstock, dataset: Dataset, import_id: ImportId, *, stopped: str | None
) -> Outcome:
    stores = penstock.stores
    known, shards = stores.imports.get(import_id)
    is_read = isinstance(dataset.source, CsvSource)
    return Outcome(
        known=known,
        shards=shards,
        rejections=stores.records.rejections_by_reason(import_id),
        read=Extent(stores.jobs, import_id).look() if is_read else None,
        error=last_error(penstock, known),
        stopped=stopped,
        doubt=key_doubt(dataset, known) if is_read else None,
    )


def key_doubt(dataset: Dataset, known: Import) -> str | None:
    counts = known.counts
    rows = counts.seen - counts.quarantined - counts.dropped
    return doubt_key(dataset, rows=rows, keys=rows - counts.duplicates)


def document(ended: Outcome) -> dict[str, object]:
    return {
        **report(ended.known, ended.shards),
        "bytes": None if ended.read is None else ended.read._asdict(),
        "rejections": [dataclasses.asdict(each) for each in ended.rejections],
        "error": ended.error,
        "stopped": ended.stopped,
        "doubt": ended.doubt,
    }


def show_outcome(
    ended: Outcome, *, errors: Path | None, duplicates: Path | None = None
) -> None:
    known, shards = ended.known, ended.shards
    counts = known.counts
    proof = "proven complete" if known.proven else "NOT proven complete"
    # nobody runs it any more when this is read
    status = "unfinished" if known.status is ImportStatus.RUNNING else known.status
    say = stdout().print
    say(
        f"Import {known.id} of {known.dataset} ({known.mode}) is {status}, "
        f"{proof}{duration(known)}."
    )
    say(
        f"  shards   {shards.done:,} done, {shards.split:,} split, "
        f"{shards.failed:,} failed, {shards.cancelled:,} cancelled, "
        f"{shards.open:,} open"
    )
    say(f"  pages    {counts.pages:,} with {cost_of(ended)}")
    say(
        f"  records  {counts.seen:,} seen: {counts.inserted:,} inserted, "
        f"{counts.updated:,} updated, {counts.unchanged:,} unchanged, "
        f"{counts.quarantined:,} quarantined, {counts.dropped:,} dropped, "
        f"{counts.duplicates:,} duplicates; {counts.deleted:,} deleted"
    )
    for name, text in (
        ("error", ended.error),
        ("note", known.note),
        ("doubt", ended.doubt),
        ("duplicates", listed(ended, duplicates)),
    ):
        if text is not None:
            say(f"  {name:8} {text}", markup=False)
    if ended.rejections:
        show_rejections(ended, errors)
    if ended.stopped is not None:
        typer.echo(f"penstock: {ended.stopped}", err=True)


def listed(ended: Outcome, duplicates: Path | None) -> str | None:
    """Say where the duplicates are listed, if somebody asked for them."""
    if duplicates is None:
        return None
    if ended.known.status is ImportStatus.FAILED:
        return "not listed: the import failed"
    if ended.known.status is not ImportStatus.DONE:
        return "not listed: which rows win is decided when all of them are read"
    return f"see: {duplicates}"


def cost_of(ended: Outcome) -> str:
    if ended.read is None:
        return counted(ended.known.counts.requests, "request")
    return f"{in_bytes(ended.read.done)} of {in_bytes(ended.read.total)}"


def show_rejections(ended: Outcome, errors: Path | None) -> None:
    dataset = ended.known.dataset
    seen = f"penstock quarantine {dataset}" if errors is None else str(errors)
    stdout().print(f"  bad rows see: {seen}", markup=False)
    show_table(
        "bad rows by reason",
        [
            {"rows": each.rows, "reason": each.reason.value, "field": each.field}
            for each in ended.rejections
        ],
        empty="",
    )


def duration(known: Import) -> str:
    end = known.finished_at
    return (
        "" if end is None else f" in {(end - known.created_at).total_seconds():.1f} s"
    )


def last_error(penstock: Penstock, known: Import) -> str | None:
    """Return what ended the first job that failed."""
    wanted = JobFilter(status=JobStatus.FAILED, import_id=known.id)
    for job in penstock.stores.jobs.find(wanted, after=None, limit=1):
        if job.errors:
            return f"{job.shard_key}: {job.errors[-1].message}"
    return None
