"""Plan an import and work it here until it is finished: `run`."""

import threading
import time
from pathlib import Path
from typing import Annotated

import typer

from penstock.domain.dataset import Dataset
from penstock.domain.job import (
    Import,
    ImportId,
    ImportStatus,
    JobStatus,
    Mode,
    Shards,
)
from penstock.entrypoints.cli.plan import From, Name, TheMode, Until, read_scope
from penstock.entrypoints.cli.progress import Show, progress
from penstock.entrypoints.cli.shared import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    counted,
    print_json,
    report,
    session,
    stdout,
)
from penstock.entrypoints.cli.worker import Threads
from penstock.entrypoints.crews import Crew, ProcessCrew, ThreadCrew
from penstock.entrypoints.threads import stop_on_signals
from penstock.errors import StoreRefused, StoreUnavailable
from penstock.ports import JobFilter
from penstock.wiring import Penstock

# how often the state of an import is looked at, in seconds
LOOK_EVERY = 0.25
# how many times as long as a look took until the next
LOOK_SHARE = 20


def run(
    dataset: Name,
    mode: TheMode = Mode.FULL,
    since: From = None,
    until: Until = None,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=64, help="Worker processes.")
    ] = 1,
    threads: Threads = 4,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Plan, work here until finished, report; exit 1 unless proven complete."""
    scope = read_scope(mode, since, until)
    halt = threading.Event()
    with stop_on_signals(halt), session(config, threads=threads) as penstock:
        declared = penstock.settings.dataset(dataset)
        # what cannot work is told before anything is planned
        penstock.source(declared)
        planned = penstock.plan(
            declared, scope, declaration=penstock.declaration(declared), halt=halt
        )
        if planned.resumed and not as_json:
            typer.echo(f"Going on with import {planned.planned.id}.", err=True)
        crew = crew_for(penstock, declared, config, workers=workers, threads=threads)
        with progress(penstock.budget(declared), quiet=as_json) as show:
            why = work(penstock, declared, planned.planned.id, crew, halt, show)
        tend(penstock, declared)
        known, shards = penstock.stores.imports.get(planned.planned.id)
        error = last_error(penstock, known)
        path = penstock.settings.sqlite_path
        if path is not None and not path.exists():
            raise StoreUnavailable(f"{path} was removed while the import ran")
    if as_json:
        print_json({**report(known, shards), "error": error, "stopped": why})
    else:
        show_report(known, shards, error)
        if why is not None:
            typer.echo(f"penstock: {why}", err=True)
    if known.status is not ImportStatus.DONE or not known.proven:
        raise typer.Exit(1)


def tend(penstock: Penstock, dataset: Dataset) -> None:
    """Build the indexes that are due; without them the table is only slow."""
    try:
        penstock.stores.schema.tend(dataset)
    except (StoreRefused, StoreUnavailable) as error:
        typer.echo(
            f"penstock: the indexes of {dataset.name} could not be built: {error}; "
            "build them with: penstock migrate",
            err=True,
        )


def crew_for(
    penstock: Penstock, dataset: Dataset, config: Path, *, workers: int, threads: int
) -> Crew:
    if workers == 1:
        return ThreadCrew(penstock, dataset, threads=threads)
    return ProcessCrew(config, dataset, workers=workers, threads=threads)


def work(
    penstock: Penstock,
    dataset: Dataset,
    import_id: ImportId,
    crew: Crew,
    halt: threading.Event,
    show: Show,
) -> str | None:
    """Watch a crew work; say why it stopped before the end, if it did."""
    crew.start()
    try:
        rest = LOOK_EVERY
        while not halt.wait(rest):
            began = time.monotonic()
            try:
                penstock.sweep()
                known, shards = penstock.stores.imports.get(import_id)
                show(known, shards)
                if known.status is not ImportStatus.RUNNING:
                    return None
                reason = stopped(penstock, dataset, crew)
            except StoreUnavailable:
                # the workers bear it as well, and go on when the store does
                continue
            if reason is not None:
                return reason
            # counting many jobs takes the database a while: it has better to do
            rest = max(LOOK_EVERY, LOOK_SHARE * (time.monotonic() - began))
    finally:
        crew.stop()
    known, shards = penstock.stores.imports.get(import_id)
    show(known, shards)
    if known.status is not ImportStatus.RUNNING:
        return None
    return f"stopped after the last page; go on with: penstock run {dataset.name}"


def stopped(penstock: Penstock, dataset: Dataset, crew: Crew) -> str | None:
    """Say why nobody can go on, if nobody can."""
    budget = penstock.budget(dataset)
    refusal = penstock.stores.budgets.state(budget).stopped
    if refusal is not None:
        return (
            f"budget {budget.name} was stopped: {refusal}; mend the cause, then: "
            f"penstock budgets open {budget.name}, and: penstock run {dataset.name}"
        )
    if not crew.is_alive():
        return crew.complaint() or "all workers have ended"
    return None


def show_report(known: Import, shards: Shards, error: str | None) -> None:
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
    say(f"  pages    {counts.pages:,} with {counted(counts.requests, 'request')}")
    say(
        f"  records  {counts.seen:,} seen: {counts.inserted:,} inserted, "
        f"{counts.updated:,} updated, {counts.unchanged:,} unchanged, "
        f"{counts.quarantined:,} quarantined, {counts.dropped:,} dropped, "
        f"{counts.duplicates:,} duplicates; {counts.deleted:,} deleted"
    )
    if counts.quarantined:
        say(f"  bad rows see: penstock quarantine {known.dataset}")
    for name, text in (("error", error), ("note", known.note)):
        if text is not None:
            say(f"  {name:8} {text}", markup=False)


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
