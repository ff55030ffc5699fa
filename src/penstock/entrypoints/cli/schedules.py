"""List, show, pause and run schedules: `schedules`."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from penstock.domain.jobs import Import, ImportStatus
from penstock.domain.scheduling.schedule import ScheduleDeclaration
from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    WithDefault,
    default_help,
    log_action,
    open_readonly,
    print_json,
    read_instant,
    session,
    show_fields,
    show_table,
)
from penstock.entrypoints.schedule_report import (
    describe_fires,
    describe_schedule,
    describe_trigger,
    upcoming_fires,
)
from penstock.entrypoints.worker.loop import stop_on_signals
from penstock.errors import Misconfigured, NotFound
from penstock.ports.schedules import (
    ScheduleFilter,
    ScheduleOrder,
    SchedulePosition,
    ScheduleStatus,
    StoredSchedule,
)
from penstock.wiring import Container

app = typer.Typer(
    cls=WithDefault,
    help=default_help("List, show, pause and run schedules.", "schedules"),
)

Row = Mapping[str, object]
Name = Annotated[str, typer.Argument(help="A schedule.")]
NO_SCHEDULES = 'There are no schedules. Add one to a dataset, such as: every = "1h"'
# how an import ends that nobody can plan, or that has nothing to import
UNPLANNED = (ImportStatus.FAILED, ImportStatus.CANCELLED)
NOT_STORED = "not stored yet"
NO_SCHEDULER = "no scheduler has run; start one with: penstock worker --with-scheduler"
OUTDATED = "penstock.toml has other fields, for which no scheduler has started yet"


@app.command("list")
def show_all(
    status: Annotated[
        ScheduleStatus | None, typer.Option(help="Only schedules in this state.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Only schedules of this dataset.")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", help="Start after this name.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 100,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Show schedules ordered by name, with their next and last runs."""
    chosen = ScheduleFilter(status=status, dataset=dataset)
    with open_readonly(config, is_prepared=False) as penstock:
        rows = list_schedules(penstock, chosen, after=after, limit=limit)
    if as_json:
        print_json({"schedules": rows})
        return
    show_table("schedules", [*map(schedule_row, rows)], empty=NO_SCHEDULES)


def list_schedules(
    penstock: Container, chosen: ScheduleFilter, *, after: str | None, limit: int
) -> list[dict[str, object]]:
    """Return stored schedules, and the declared ones that no scheduler has stored."""
    position = None if after is None else SchedulePosition(name=after)
    found = penstock.stores.schedules.find(chosen, after=position, limit=limit)
    rows = {stored.name: describe_stored(penstock, stored) for stored in found}
    if chosen.status is None:
        for declaration in penstock.settings.schedules.values():
            is_of_page = after is None or declaration.name > after
            is_chosen = chosen.dataset in {None, declaration.dataset}
            if is_of_page and is_chosen and declaration.name not in rows:
                rows[declaration.name] = describe_declared(penstock, declaration)
    return [rows[name] for name in sorted(rows)[:limit]]


def list_important(penstock: Container, *, limit: int) -> list[dict[str, object]]:
    """Return schedules that need attention, then those that are due next."""
    broken = ScheduleFilter(status=ScheduleStatus.BROKEN)
    paused = ScheduleFilter(status=ScheduleStatus.PAUSED)
    active = ScheduleFilter(status=ScheduleStatus.ACTIVE)
    find = penstock.stores.schedules.find
    found = [
        *find(broken, limit=limit),
        *find(paused, limit=limit),
        *find(active, order=ScheduleOrder.NEXT_RUN, limit=limit),
        # also those that fire after imports
        *find(active, limit=limit),
    ]
    rows = {stored.name: describe_stored(penstock, stored) for stored in found[:limit]}
    every = list_schedules(penstock, ScheduleFilter(), after=None, limit=limit)
    return [*rows.values(), *(row for row in every if row["status"] == NOT_STORED)]


def describe_stored(penstock: Container, stored: StoredSchedule) -> dict[str, object]:
    schedule, _ = penstock.parse_schedule(stored.declaration)
    document = describe_schedule(stored, schedule)
    declared = penstock.settings.schedules.get(stored.name)
    if stored.conflict is None and declared is not None:
        is_outdated = declared.fields != stored.declaration.fields
        document["conflict"] = OUTDATED if is_outdated else None
    return document


def describe_declared(
    penstock: Container, declaration: ScheduleDeclaration
) -> dict[str, object]:
    """Describe a schedule of the file that no scheduler has stored."""
    schedule, _ = penstock.parse_schedule(declaration)
    return {
        "name": declaration.name,
        "dataset": declaration.dataset,
        "origin": "declared",
        "fields": dict(declaration.fields),
        "trigger": None if schedule is None else describe_trigger(schedule),
        "status": NOT_STORED,
        "note": NO_SCHEDULER,
        "conflict": None,
        "waiting": None,
        "next_run_at": None,
        "last_run_at": None,
        "created_at": None,
    }


def schedule_row(document: Row) -> Row:
    """Return the row of a table; `schedules` and `status` show the same."""
    return {
        "name": document["name"],
        "dataset": document["dataset"],
        "trigger": document["trigger"],
        "status": document["status"],
        "next_run": document["next_run_at"],
        "last_run": document["last_run_at"],
        "note": document["note"] or document["conflict"],
    }


@app.command("show")
def show_one(
    name: Name,
    fires: Annotated[
        int, typer.Option("--fires", min=0, max=1000, help="How many past fires.")
    ] = 20,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Show a schedule with its next and its last fires, and why fires were skipped."""
    with open_readonly(config, is_prepared=False) as penstock:
        schedules = penstock.stores.schedules
        declaration = penstock.settings.schedules.get(name)
        try:
            stored = schedules.get(name)
        except NotFound:
            if declaration is None:
                raise
            document = describe_declared(penstock, declaration)
            past = []
        else:
            declaration = stored.declaration
            document = describe_stored(penstock, stored)
            past = describe_fires(schedules.fires(name, limit=fires)) if fires else []
        schedule, _ = penstock.parse_schedule(declaration)
        now = penstock.stores.jobs.now()
    upcoming = [] if schedule is None else upcoming_fires(schedule, now)
    if as_json:
        print_json({**document, "upcoming": upcoming, "fires": past})
        return
    show_fields(document)
    show_table("next fires", upcoming, empty="No fire is known in advance.")
    show_table("last fires", [*map(fire_row, past)], empty="It has not fired yet.")


def fire_row(fire: Row) -> Row:
    return {
        "id": fire["fire_id"],
        "fire": fire["fire_at"],
        "count": fire["count"],
        "requested": fire["requested"],
        "outcome": fire["outcome"],
        "reason": fire["reason"],
        "detail": fire["detail"],
        "import": fire["import_id"],
        "status": fire["import_status"],
    }


@app.command("pause")
def pause(
    name: Name,
    note: Annotated[
        str, typer.Option("--note", help="Why; shown until it is resumed.")
    ] = "paused by an operator",
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Pause a schedule until it is resumed; its fires are skipped."""
    set_status(config, name, ScheduleStatus.PAUSED, note=note, as_json=as_json)


@app.command("resume")
def resume(
    name: Name, config: Config = DEFAULT_CONFIG, as_json: AsJson = False
) -> None:
    """Resume a paused schedule; skipped fires are not made up for."""
    set_status(config, name, ScheduleStatus.ACTIVE, note=None, as_json=as_json)


def set_status(
    config: Path, name: str, status: ScheduleStatus, *, note: str | None, as_json: bool
) -> None:
    with open_stored(config, name) as penstock:
        stored = penstock.stores.schedules.set_status(name, status, note=note)
        verb = "pause" if status is ScheduleStatus.PAUSED else "resume"
        log_action(penstock, f"{verb}Schedule", f"schedules/{name}")
        document = describe_stored(penstock, stored)
    if as_json:
        print_json(document)
    else:
        typer.echo(f"Schedule {name} is {stored.status}.")


@app.command("run")
def run(name: Name, config: Config = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """Begin an import of a schedule now, for workers to run; also of a paused one."""
    with open_stored(config, name) as penstock:
        begun = penstock.run_schedule(name)
        log_action(penstock, "runSchedule", f"imports/{begun.id}")
        started = plan_begun(penstock, begun)
    print_begun(started, as_json=as_json)


@app.command("backfill")
def backfill(
    name: Name,
    since: Annotated[
        str, typer.Option("--from", help="Lower bound, such as 2026-01-31T12:00:00Z.")
    ],
    until: Annotated[str, typer.Option("--until", help="Upper bound.")],
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Import a time range for a schedule, also one that was imported before."""
    begin, end = read_instant(since, "--from"), read_instant(until, "--until")
    if begin is None or end is None:
        raise Misconfigured("a backfill needs --from and --until")
    with open_stored(config, name) as penstock:
        begun = penstock.run_schedule.backfill(name, begin, end)
        log_action(penstock, "backfillSchedule", f"imports/{begun.id}")
        started = plan_begun(penstock, begun)
    print_begun(started, as_json=as_json)


@contextmanager
def open_stored(config: Path, name: str) -> Iterator[Container]:
    """Open the stores; says what to do for a schedule that is only declared."""
    with session(config) as penstock:
        try:
            penstock.stores.schedules.get(name)
        except NotFound:
            if name not in penstock.settings.schedules:
                raise
            raise Misconfigured(
                f"schedule {name!r} is declared, but {NOT_STORED}: {NO_SCHEDULER}"
            ) from None
        yield penstock


def plan_begun(penstock: Container, begun: Import) -> Import:
    """Plan an import here; if this is interrupted, a scheduler or serve goes on."""
    halt = threading.Event()
    with stop_on_signals(halt):
        penstock.start_import.plan_import(begun.id, halt)
    return penstock.stores.imports.peek(begun.id)


def print_begun(import_: Import, *, as_json: bool) -> None:
    """Print what has begun; exit 1 if it could not be planned."""
    if as_json:
        print_json(
            {
                "import_id": import_.id,
                "dataset": import_.dataset,
                "mode": import_.mode,
                "status": import_.status,
                "since": import_.since,
                "until": import_.until,
                "note": import_.note,
            }
        )
    elif import_.status in UNPLANNED:
        typer.echo(f"Import {import_.id} was not planned: {import_.note}")
    else:
        status = import_.status.value
        typer.echo(
            f"Import {import_.id} of {import_.dataset} ({import_.mode}) is {status}; "
            "workers run it. See: penstock imports"
        )
    if import_.status in UNPLANNED:
        raise typer.Exit(1)
