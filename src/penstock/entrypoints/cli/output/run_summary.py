"""The summary that `run` prints at the end."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.filesize import decimal as in_bytes

from penstock.domain.dataset import Dataset
from penstock.domain.jobs import Import, ImportId, ImportStatus, JobStatus, Shards
from penstock.domain.source import CsvSource
from penstock.entrypoints.cli.common import counted, show_table, stdout, warn_about_key
from penstock.entrypoints.file_progress import BytesRead, FileProgress
from penstock.entrypoints.import_report import report
from penstock.ports import JobFilter, ReasonCount
from penstock.wiring import Container


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    import_: Import
    shards: Shards
    rejections: Sequence[ReasonCount]
    # only for files
    read: BytesRead | None
    # the last error of the first failed job
    error: str | None
    # why the run summary before the import did
    stopped: str | None
    # why the key may be wrong
    key_warning: str | None = None


def summarize(
    penstock: Container, dataset: Dataset, import_id: ImportId, *, stopped: str | None
) -> RunSummary:
    stores = penstock.stores
    import_, shards = stores.imports.get(import_id)
    has_files = isinstance(dataset.source, CsvSource)
    return RunSummary(
        import_=import_,
        shards=shards,
        rejections=stores.records.rejections_by_reason(import_id),
        read=FileProgress(stores.jobs, import_id).read() if has_files else None,
        error=last_error(penstock, import_),
        stopped=stopped,
        key_warning=warn_about_import_key(dataset, import_),
    )


def warn_about_import_key(dataset: Dataset, import_: Import) -> str | None:
    if import_.status is ImportStatus.FAILED:
        # its note says why
        return None
    counts = import_.counts
    rows = counts.seen - counts.quarantined - counts.dropped
    return warn_about_key(dataset, rows=rows, keys=rows - counts.duplicates)


def document(summary: RunSummary) -> dict[str, object]:
    return {
        **report(summary.import_, summary.shards),
        "bytes": None if summary.read is None else summary.read._asdict(),
        "rejections": [
            {"reason": count.reason, "field": count.field, "rows": count.rows}
            for count in summary.rejections
        ],
        "error": summary.error,
        "stopped": summary.stopped,
        "doubt": summary.key_warning,
    }


def show_summary(
    summary: RunSummary, *, errors: Path | None, duplicates: Path | None = None
) -> None:
    import_, shards = summary.import_, summary.shards
    counts = import_.counts
    proof = "proven complete" if import_.proven else "NOT proven complete"
    # nothing runs it any more when this is read
    status = "unfinished" if import_.status is ImportStatus.RUNNING else import_.status
    show = stdout().print
    show(
        f"Import {import_.id} of {import_.dataset} ({import_.mode}): {status}, "
        f"{proof}{duration(import_)}."
    )
    show(
        f"  shards   {shards.done:,} done, {shards.split:,} split, "
        f"{shards.failed:,} failed, {shards.cancelled:,} cancelled, "
        f"{shards.open:,} open"
    )
    show(f"  pages    {counts.pages:,} with {describe_cost(summary)}")
    show(
        f"  records  {counts.seen:,} seen: {counts.inserted:,} inserted, "
        f"{counts.updated:,} updated, {counts.unchanged:,} unchanged, "
        f"{counts.quarantined:,} quarantined, {counts.dropped:,} dropped, "
        f"{counts.duplicates:,} duplicates; {counts.deleted:,} deleted"
    )
    for name, text in (
        ("error", summary.error),
        ("note", import_.note),
        ("warning", summary.key_warning),
        ("duplicates", describe_duplicates(summary, duplicates)),
    ):
        if text is not None:
            show(f"  {name:8} {text}", markup=False)
    if summary.rejections:
        show_rejections(summary, errors)
    if summary.stopped is not None:
        typer.echo(f"penstock: {summary.stopped}", err=True)


def describe_duplicates(summary: RunSummary, duplicates: Path | None) -> str | None:
    """Describe where duplicates are listed, if `--duplicates` was given."""
    if duplicates is None:
        return None
    if summary.import_.status is ImportStatus.FAILED:
        return "not listed: the import failed"
    if summary.import_.status is not ImportStatus.DONE:
        return "not listed: duplicates are import_ only when all rows are read"
    return f"see: {duplicates}"


def describe_cost(summary: RunSummary) -> str:
    if summary.read is None:
        return counted(summary.import_.counts.requests, "request")
    return f"{in_bytes(summary.read.done)} of {in_bytes(summary.read.total)}"


def show_rejections(summary: RunSummary, errors: Path | None) -> None:
    dataset = summary.import_.dataset
    source = f"penstock quarantine {dataset}" if errors is None else str(errors)
    stdout().print(f"  bad rows see: {source}", markup=False)
    show_table(
        "bad rows by reason",
        [
            {"rows": count.rows, "reason": count.reason.value, "field": count.field}
            for count in summary.rejections
        ],
        empty="",
    )


def duration(import_: Import) -> str:
    end = import_.finished_at
    return (
        "" if end is None else f" in {(end - import_.created_at).total_seconds():.1f} s"
    )


def last_error(penstock: Container, import_: Import) -> str | None:
    """Return the last error of the first failed job."""
    failed = JobFilter(status=JobStatus.FAILED, import_id=import_.id)
    for job in penstock.stores.jobs.find(failed, after=None, limit=1):
        if job.errors:
            return f"{job.shard_key}: {job.errors[-1].message}"
    return None
