"""Plan an import, and run its jobs until it is finished: `run`."""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Annotated

import typer

from penstock.domain.dataset import Dataset
from penstock.domain.jobs import Import, ImportId, ImportStatus, Mode
from penstock.domain.source import CsvSource
from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    print_json,
    read_settings,
    session,
)
from penstock.entrypoints.cli.output.import_progress import gauge_for
from penstock.entrypoints.cli.output.output_file import atomic_file, refuse_unwritable
from penstock.entrypoints.cli.output.plan_warnings import PlanWarnings
from penstock.entrypoints.cli.output.progress_display import (
    PageRetries,
    ProgressDisplay,
    progress,
)
from penstock.entrypoints.cli.output.run_summary import (
    document,
    show_summary,
    summarize,
)
from penstock.entrypoints.cli.plan import (
    AcceptDuplicates,
    AcceptLostFiles,
    Files,
    From,
    Name,
    TheMode,
    Until,
    read_scope,
    with_files,
)
from penstock.entrypoints.exports.csv import csv_line, quote_safely
from penstock.entrypoints.exports.rejected_rows import read_all, write_bad_rows
from penstock.entrypoints.worker.loop import sleep_until_notified, stop_on_signals
from penstock.entrypoints.worker.pool import (
    API_JOBS,
    FILE_JOBS,
    CompositeWorkerPool,
    ProcessWorkerPool,
    ThreadWorkerPool,
    WorkerPool,
    pool_size,
)
from penstock.entrypoints.worker.subprocesses import fork
from penstock.errors import Misconfigured, StoreRefused, StoreUnavailable
from penstock.flow.find_duplicates import Duplicate
from penstock.wiring import Container, fan_out

# seconds between two polls of an import
POLL_INTERVAL = 0.25
# the first one; each is twice the one before, so that a short import ends at once
MIN_POLL_INTERVAL = 0.03
# a slow poll is followed by a pause of this many times its duration
POLL_BACKOFF = 20
# but not longer, in seconds: the display would seem frozen
MAX_POLL_INTERVAL = 5.0
DUPLICATES_OPTION = "--duplicates"
DUPLICATE_COLUMNS = ("file", "line", "offset", "key", "kept_file", "kept_line")
DUPLICATE_FIELDS = ("file", "line", "offset", "key", "winner_file", "winner_line")


def run(
    dataset: Name,
    mode: TheMode = Mode.FULL,
    since: From = None,
    until: Until = None,
    files: Files = None,
    accept_lost_files: AcceptLostFiles = False,
    accept_duplicates: AcceptDuplicates = False,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            max=64,
            help="Worker processes, including this one.  [default: 1; on PostgreSQL, "
            "if no budget limits the dataset and --threads is not given, the default "
            "threads are spread over up to one process per core]",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            min=1,
            max=64,
            help="Concurrent jobs per process.  "
            f"[default: {API_JOBS}, for files {FILE_JOBS}; see --workers]",
        ),
    ] = None,
    errors: Annotated[
        Path | None,
        typer.Option("--errors", help="Write the bad rows to this file, as CSV."),
    ] = None,
    duplicates: Annotated[
        Path | None,
        typer.Option(
            "--duplicates",
            help="Write the rows of files that another row with the same key replaced "
            "to this file, as CSV.",
        ),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Plan and run an import, and report it; exit 1 unless proven complete."""
    scope = replace(
        read_scope(mode, since, until),
        accept_lost_files=accept_lost_files,
        accept_duplicates=accept_duplicates,
    )
    if errors is not None:
        refuse_unwritable(errors, "--errors")
    halt, warnings, retries = threading.Event(), PlanWarnings(), PageRetries()
    settings = read_settings(config)
    declared = settings.dataset(dataset)
    if duplicates is not None:
        refuse_duplicates(declared, duplicates)
    workers, threads = pool_size(settings, declared, workers=workers, threads=threads)
    processes = ProcessWorkerPool(
        config, declared, workers=workers - 1, threads=threads, begin=fork
    )
    # before anything is opened: the processes are forked, and start up meanwhile
    processes.prepare()
    with (
        stop_on_signals(halt),
        stop_at_exit(processes),
        session(
            config,
            lambda settings: fan_out(warnings.listen(settings), retries.listen),
            threads=threads,
        ) as penstock,
    ):
        declared = penstock.settings.dataset(dataset)
        # raises if the source cannot work, before anything is planned
        penstock.source(declared)
        warnings.check_references(penstock, declared)
        scope = with_files(penstock, dataset, scope, files)
        planned = penstock.plan(
            declared, scope, declaration=penstock.declaration(declared), halt=halt
        )
        import_id = planned.planned.id
        if not as_json:
            warnings.print()
            if planned.resumed:
                typer.echo(f"Resuming import {import_id}.", err=True)
        gauge = gauge_for(penstock, declared, import_id)
        pool = CompositeWorkerPool(
            processes, ThreadWorkerPool(penstock, declared, threads=threads)
        )
        with progress(gauge, quiet=as_json) as display:
            reason = work(penstock, declared, import_id, pool, halt, display, retries)
        warn_about_failed_workers(pool, stopped=reason)
        # also what this process has counted after its workers had stopped
        penstock.flush_samples()
        build_indexes(penstock, declared)
        deliver_hooks(penstock)
        summary = summarize(penstock, declared, import_id, stopped=reason)
        if errors is not None:
            write_errors(penstock, declared, import_id, errors)
        is_done = summary.import_.status is ImportStatus.DONE
        if duplicates is not None and is_done:
            write_duplicates(penstock, declared, import_id, duplicates, halt)
        path = penstock.settings.sqlite_path
        if path is not None and not path.exists():
            raise StoreUnavailable(f"{path} was removed while the import ran")
    if as_json:
        print_json({**document(summary), "remarks": warnings.documents})
    else:
        show_summary(summary, errors=errors, duplicates=duplicates)
    if not (is_done and summary.import_.proven):
        raise typer.Exit(1)


def build_indexes(penstock: Container, dataset: Dataset) -> None:
    """Build missing indexes; without them the table is only slow."""
    try:
        penstock.stores.schema.maintain(dataset)
    except (StoreRefused, StoreUnavailable) as error:
        typer.echo(
            f"penstock: the indexes of {dataset.name} could not be built: {error}; "
            "build them with: penstock migrate",
            err=True,
        )


def deliver_hooks(penstock: Container) -> None:
    """Deliver what hooks are told of the import; this may be the only process.

    What fails is delivered by whichever process runs next.
    """
    # what cannot be read now stays in the outbox
    with suppress(StoreUnavailable):
        for deliver in penstock.hook_deliveries.values():
            deliver()


def say_indexes_are_built(
    penstock: Container, import_: Import, display: ProgressDisplay
) -> None:
    """Print what is still done after the import has ended."""
    waiting = penstock.explain_waiting(import_)
    if waiting is not None:
        display.say(f"{import_.dataset} {import_.mode}: {waiting.detail}")


@contextmanager
def stop_at_exit(pool: WorkerPool) -> Iterator[None]:
    try:
        yield
    finally:
        pool.stop()


def work(
    penstock: Container,
    dataset: Dataset,
    import_id: ImportId,
    pool: WorkerPool,
    halt: threading.Event,
    display: ProgressDisplay,
    retries: PageRetries,
) -> str | None:
    """Run a worker pool and show progress; return why it stopped early, if so."""
    pool.start()
    notifier = penstock.stores.notifier
    try:
        pause, seen_count, outage = MIN_POLL_INTERVAL, notifier.notification_count, ""
        least = MIN_POLL_INTERVAL
        while not halt.is_set():
            try:
                wait_for_end(penstock, import_id, pause, halt, seen_count=seen_count)
                if halt.is_set():
                    break
                # read first: notifications during the poll trigger the next one
                began, seen_count = time.monotonic(), notifier.notification_count
                import_, shards = penstock.stores.imports.get(import_id)
                display(import_, shards)
                retries.read_log(pool.new_lines())
                for line in retries.take():
                    display.say(line)
                if import_.status is not ImportStatus.RUNNING:
                    say_indexes_are_built(penstock, import_, display)
                    return None
                # at once; the maintenance of the workers would do it soon
                penstock.sweep.finish_imports()
                reason = find_stop_reason(penstock, dataset, pool)
            except StoreUnavailable as error:
                # workers wait too, and continue when the store is back
                if str(error) != outage:
                    outage = str(error)
                    display.say(f"waiting for an unavailable store: {outage}")
                continue
            outage = ""
            if reason is not None:
                return reason
            # counting many jobs is slow: leave the database time for the import
            took = time.monotonic() - began
            least = min(2 * least, POLL_INTERVAL)
            pause = min(max(least, POLL_BACKOFF * took), MAX_POLL_INTERVAL)
    finally:
        pool.stop()
    import_, shards = penstock.stores.imports.get(import_id)
    display(import_, shards)
    if import_.status is not ImportStatus.RUNNING:
        return None
    return f"stopped after the last page; resume with: penstock run {dataset.name}"


def warn_about_failed_workers(pool: WorkerPool, *, stopped: str | None) -> None:
    """Warn about worker processes that exited, unless that stopped the import."""
    failure = pool.failure_reason()
    if failure is not None and stopped is None:
        typer.echo(
            f"penstock: a worker process exited before the end: {failure}", err=True
        )


def wait_for_end(
    penstock: Container,
    import_id: ImportId,
    seconds: float,
    halt: threading.Event,
    *,
    seen_count: int,
) -> None:
    """Sleep until the import ends, but not longer than `seconds`.

    `seen_count` is the number of notifications that the caller has seen already.
    """
    deadline = time.monotonic() + seconds
    notifier, peek = penstock.stores.notifier, penstock.stores.imports.peek
    is_running = True
    while is_running and not halt.is_set() and time.monotonic() < deadline:
        remaining = deadline - time.monotonic()
        sleep_until_notified(
            remaining, notifier=notifier, seen_count=seen_count, halt=halt
        )
        if notifier.notification_count != seen_count:
            seen_count = notifier.notification_count
            is_running = peek(import_id).status is ImportStatus.RUNNING


def find_stop_reason(
    penstock: Container, dataset: Dataset, pool: WorkerPool
) -> str | None:
    """Return why the import cannot continue, if it cannot."""
    refusal = penstock.stopped(dataset)
    if refusal is not None:
        budget = penstock.budget(dataset).name
        return (
            f"budget {budget} was stopped: {refusal}; fix the cause, then: "
            f"penstock budgets open {budget}, and: penstock run {dataset.name}"
        )
    if not pool.is_alive():
        return pool.failure_reason() or "all workers have exited"
    return None


def write_errors(
    penstock: Container, dataset: Dataset, import_id: ImportId, errors: Path
) -> None:
    """Write the bad rows of an import, also those a valid row has replaced."""
    rejected = penstock.stores.records.rejected
    rows = read_all(lambda after, limit: rejected(import_id, after=after, limit=limit))
    with atomic_file(errors, "--errors") as file:
        write_bad_rows(dataset, penstock.source(dataset), rows, file)


def refuse_duplicates(dataset: Dataset, out: Path) -> None:
    """Raise early what would fail only after the import."""
    if not isinstance(dataset.source, CsvSource):
        raise Misconfigured(
            f"{DUPLICATES_OPTION} works only with files: records of "
            f"{dataset.name!r} come from an API, so they have no file and line"
        )
    refuse_unwritable(out, DUPLICATES_OPTION)


def write_duplicates(
    penstock: Container,
    dataset: Dataset,
    import_id: ImportId,
    out: Path,
    halt: threading.Event,
) -> int:
    """Read the files again, write the replaced rows, and return their number."""
    rows = penstock.duplicates(dataset, penstock.source(dataset), import_id, halt=halt)
    with atomic_file(out, DUPLICATES_OPTION) as file:
        return write_duplicates_table(rows, file)


def write_duplicates_table(rows: Iterable[Duplicate], file: IO[bytes]) -> int:
    file.write(csv_line(DUPLICATE_COLUMNS))
    written = 0
    for row in rows:
        values = (getattr(row, name) for name in DUPLICATE_FIELDS)
        file.write(csv_line(quote_safely(str(value)) for value in values))
        written += 1
    return written
