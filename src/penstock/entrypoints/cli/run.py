"""Plan an import and work it here until it is finished: `run`."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from penstock.domain.dataset import Dataset
from penstock.domain.events import Event
from penstock.domain.job import Import, ImportId, ImportStatus, Mode
from penstock.entrypoints.cli.duplicates import refuse_duplicates, write_duplicates
from penstock.entrypoints.cli.gauges import gauge_for
from penstock.entrypoints.cli.out import refuse_unwritable, whole_file
from penstock.entrypoints.cli.outcome import document, outcome_of, show_outcome
from penstock.entrypoints.cli.plan import (
    AcceptLostFiles,
    Files,
    From,
    Name,
    TheMode,
    Until,
    read_scope,
    with_named,
)
from penstock.entrypoints.cli.progress import PageRetries, Show, progress
from penstock.entrypoints.cli.remarks import Remarks
from penstock.entrypoints.cli.shared import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    print_json,
    read_settings,
    session,
)
from penstock.entrypoints.crews import (
    OF_ANSWERS,
    OF_FILES,
    Crew,
    MixedCrew,
    ProcessCrew,
    ThreadCrew,
    sized,
)
from penstock.entrypoints.forms.bad_rows import page_by_page, write_bad_rows
from penstock.entrypoints.processes import copied
from penstock.entrypoints.threads import sleep, stop_on_signals
from penstock.errors import StoreRefused, StoreUnavailable
from penstock.ports import Emit
from penstock.wiring import Penstock

# how often the state of an import is looked at, in seconds
LOOK_EVERY = 0.25
# how many times as long as a look took until the next
LOOK_SHARE = 20
# and after how many seconds who waits would think that nothing goes on
LOOK_AGAIN = 5.0


def run(
    dataset: Name,
    mode: TheMode = Mode.FULL,
    since: From = None,
    until: Until = None,
    files: Files = None,
    accept_lost_files: AcceptLostFiles = False,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            max=64,
            help="Worker processes, this one included.  [default: 1; on PostgreSQL, "
            "where no budget limits the dataset and --threads is not given, the "
            "threads of one are shared by up to one a core]",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            min=1,
            max=64,
            help="Jobs worked at a time by a process.  "
            f"[default: {OF_ANSWERS}, of files {OF_FILES}; shared as --workers says]",
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
            help="Write the rows of files that lost to another row of their key "
            "to this file, as CSV.",
        ),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Plan, work here until finished, report; exit 1 unless proven complete."""
    scope = read_scope(mode, since, until, accept_lost_files=accept_lost_files)
    if errors is not None:
        refuse_unwritable(errors, "--errors")
    halt, remarks, retries = threading.Event(), Remarks(), PageRetries()
    settings = read_settings(config)
    declared = settings.dataset(dataset)
    if duplicates is not None:
        refuse_duplicates(declared, duplicates)
    workers, threads = sized(settings, declared, workers=workers, threads=threads)
    beside = ProcessCrew(
        config, declared, workers=workers - 1, threads=threads, begin=copied
    )
    # first of all: a copy of us that has opened nothing yet gets ready while we do
    beside.call()
    with (
        stop_on_signals(halt),
        dismissed(beside),
        session(
            config,
            lambda settings: to_all(remarks.listen(settings), retries.listen),
            threads=threads,
        ) as penstock,
    ):
        declared = penstock.settings.dataset(dataset)
        # what cannot work is told before anything is planned
        penstock.source(declared)
        remarks.look_at_references(penstock, declared)
        scope = with_named(penstock, dataset, scope, files)
        planned = penstock.plan(
            declared, scope, declaration=penstock.declaration(declared), halt=halt
        )
        import_id = planned.planned.id
        if not as_json:
            remarks.tell()
            if planned.resumed:
                typer.echo(f"Going on with import {import_id}.", err=True)
        gauge = gauge_for(penstock, declared, import_id)
        crew = MixedCrew(beside, ThreadCrew(penstock, declared, threads=threads))
        with progress(gauge, quiet=as_json) as show:
            why = work(penstock, declared, import_id, crew, halt, show, retries)
        tell_lost(crew, stopped=why)
        tend(penstock, declared)
        ended = outcome_of(penstock, declared, import_id, stopped=why)
        if errors is not None:
            write_errors(penstock, declared, import_id, errors)
        is_done = ended.known.status is ImportStatus.DONE
        if duplicates is not None and is_done:
            write_duplicates(penstock, declared, import_id, duplicates, halt)
        path = penstock.settings.sqlite_path
        if path is not None and not path.exists():
            raise StoreUnavailable(f"{path} was removed while the import ran")
    if as_json:
        print_json({**document(ended), "remarks": remarks.documents})
    else:
        show_outcome(ended, errors=errors, duplicates=duplicates)
    if ended.known.status is not ImportStatus.DONE or not ended.known.proven:
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


def say_indexes_are_built(penstock: Penstock, known: Import, show: Show) -> None:
    """Say what is done between the end of an import and that of the command."""
    waiting = penstock.explain_waiting(known)
    if waiting is not None:
        show.say(f"{known.dataset} {known.mode}: {waiting.detail}")


def to_all(*listeners: Emit) -> Emit:
    """Return what hands an event to each of these."""

    def emit(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return emit


@contextmanager
def dismissed(crew: Crew) -> Iterator[None]:
    """Send a crew away at last, whatever happens."""
    try:
        yield
    finally:
        crew.stop()


def work(
    penstock: Penstock,
    dataset: Dataset,
    import_id: ImportId,
    crew: Crew,
    halt: threading.Event,
    show: Show,
    retries: PageRetries,
) -> str | None:
    """Watch a crew work; say why it stopped before the end, if it did."""
    crew.start()
    bell = penstock.stores.bell
    try:
        rest, rings, absent = LOOK_EVERY, bell.rings, ""
        while not halt.is_set():
            try:
                rest_until_end(penstock, import_id, rest, halt, rings=rings)
                if halt.is_set():
                    break
                # first of all: what rings while we look is heard after it
                began, rings = time.monotonic(), bell.rings
                known, shards = penstock.stores.imports.get(import_id)
                show(known, shards)
                retries.read_log(crew.new_lines())
                for line in retries.take():
                    show.say(line)
                if known.status is not ImportStatus.RUNNING:
                    say_indexes_are_built(penstock, known, show)
                    return None
                # after the look: what is due to be built takes a while
                penstock.sweep()
                reason = stopped(penstock, dataset, crew)
            except StoreUnavailable as error:
                # the workers bear it as well, and go on when the store does
                if str(error) != absent:
                    absent = str(error)
                    show.say(f"waiting for a store that is away: {absent}")
                continue
            absent = ""
            if reason is not None:
                return reason
            # counting many jobs takes the database a while: it has better to do
            took = time.monotonic() - began
            rest = min(max(LOOK_EVERY, LOOK_SHARE * took), LOOK_AGAIN)
    finally:
        crew.stop()
    known, shards = penstock.stores.imports.get(import_id)
    show(known, shards)
    if known.status is not ImportStatus.RUNNING:
        return None
    return f"stopped after the last page; go on with: penstock run {dataset.name}"


def tell_lost(crew: Crew, *, stopped: str | None) -> None:
    """Say that some processes did not last, if that did not stop us but slowed us."""
    lost = crew.complaint()
    if lost is not None and stopped is None:
        typer.echo(
            f"penstock: not all worker processes lasted until the end: {lost}", err=True
        )


def rest_until_end(
    penstock: Penstock,
    import_id: ImportId,
    seconds: float,
    halt: threading.Event,
    *,
    rings: int,
) -> None:
    """Sleep so long, unless the import ends meanwhile.

    It may have ended since the bell had rung as often as is told.
    """
    deadline = time.monotonic() + seconds
    bell, peek = penstock.stores.bell, penstock.stores.imports.peek
    is_running = True
    while is_running and not halt.is_set() and time.monotonic() < deadline:
        sleep(deadline - time.monotonic(), bell=bell, rings=rings, halt=halt)
        heard = bell.rings
        if heard != rings:
            rings = heard
            is_running = peek(import_id).status is ImportStatus.RUNNING


def stopped(penstock: Penstock, dataset: Dataset, crew: Crew) -> str | None:
    """Say why nobody can go on, if nobody can."""
    refusal = penstock.stopped(dataset)
    if refusal is not None:
        budget = penstock.budget(dataset).name
        return (
            f"budget {budget} was stopped: {refusal}; mend the cause, then: "
            f"penstock budgets open {budget}, and: penstock run {dataset.name}"
        )
    if not crew.is_alive():
        return crew.complaint() or "all workers have ended"
    return None


def write_errors(
    penstock: Penstock, dataset: Dataset, import_id: ImportId, errors: Path
) -> None:
    """Write the bad rows of an import, also those that were mended on its way."""
    rejected = penstock.stores.records.rejected
    rows = page_by_page(
        lambda after, limit: rejected(import_id, after=after, limit=limit)
    )
    with whole_file(errors, "--errors") as file:
        write_bad_rows(dataset, penstock.source(dataset), rows, file)
