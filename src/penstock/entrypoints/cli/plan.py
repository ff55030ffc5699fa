"""Plan an import, or show what it would do: `plan`."""

import itertools
import threading
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal as in_bytes

from penstock.domain.axes import FileAxis
from penstock.domain.budget import Budget
from penstock.domain.job import Mode
from penstock.domain.scope import Scope
from penstock.domain.source import CsvSource, is_address
from penstock.entrypoints.cli.remarks import Remarks
from penstock.entrypoints.cli.shared import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    counted,
    look,
    print_json,
    read_instant,
    session,
    stdout,
)
from penstock.entrypoints.threads import stop_on_signals
from penstock.errors import Misconfigured
from penstock.flow.plan import Estimate, Foreseen
from penstock.wiring import Penstock

Name = Annotated[str, typer.Argument(help="A dataset of the configuration.")]
TheMode = Annotated[Mode, typer.Option("--mode", help="What to import.")]
From = Annotated[
    str | None, typer.Option("--from", help="Lower bound, as 2026-01-31T12:00:00Z.")
]
Until = Annotated[
    str | None, typer.Option("--until", help="Upper bound of a backfill.")
]
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--file",
        help="Import this file instead of the declared ones; give it again for more. "
        "What is not in them is not missing.",
    ),
]
AcceptLostFiles = Annotated[
    bool,
    typer.Option(
        "--accept-lost-files",
        help='With missing.do = "mark", mark also rows that were last seen in a file '
        "which is not there any more.",
    ),
]
SHOWN = 20


def plan(
    dataset: Name,
    mode: TheMode = Mode.FULL,
    since: From = None,
    until: Until = None,
    files: Files = None,
    accept_lost_files: AcceptLostFiles = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show shards, first requests and cost only."),
    ] = False,
    limit: Annotated[
        int,
        typer.Option(min=1, max=100_000, help="How many shards a dry run shows."),
    ] = SHOWN,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Store an import's jobs for workers to claim."""
    scope = read_scope(mode, since, until, accept_lost_files=accept_lost_files)
    if dry_run:
        with look(config) as penstock:
            scope = with_named(penstock, dataset, scope, files)
            show_dry_run(penstock, dataset, scope, limit=limit, as_json=as_json)
        return
    halt, remarks = threading.Event(), Remarks()
    with stop_on_signals(halt), session(config, remarks.listen) as penstock:
        declared = penstock.settings.dataset(dataset)
        remarks.look_at_references(penstock, declared)
        scope = with_named(penstock, dataset, scope, files)
        done = penstock.plan(
            declared, scope, declaration=penstock.declaration(declared), halt=halt
        )
    verb = "Resumed" if done.resumed else "Planned"
    if as_json:
        print_json(
            {
                "import_id": done.planned.id,
                "mode": done.planned.mode,
                "resumed": done.resumed,
                "shards": done.shards,
            }
        )
    else:
        remarks.tell()
        typer.echo(
            f"{verb} import {done.planned.id} of {dataset}: "
            f"{counted(done.shards, 'shard')}. Work with: penstock worker"
        )


def read_scope(
    mode: Mode, since: str | None, until: str | None, *, accept_lost_files: bool
) -> Scope:
    return Scope(
        mode=mode,
        since=read_instant(since, "--from"),
        until=read_instant(until, "--until"),
        accept_lost_files=accept_lost_files,
    )


def with_named(
    penstock: Penstock, dataset: str, scope: Scope, files: list[Path] | None
) -> Scope:
    """Add files to a scope by the names under which workers find them."""
    source = penstock.settings.dataset(dataset).source
    if not files or not isinstance(source, CsvSource):
        # what has no meaning is refused with the scope
        return replace(scope, files=tuple(map(str, files or ())))
    folder = Path(source.folder).absolute()
    return replace(scope, files=tuple(name_below(folder, file) for file in files))


def name_below(folder: Path, file: Path) -> str:
    """Name a file as others do whose folder is elsewhere, if it is below it."""
    if not file.is_file():
        raise Misconfigured(f"--file {file}: there is no such file")
    found = file.absolute()
    is_below = found.is_relative_to(folder)
    return str(found.relative_to(folder) if is_below else found)


def show_dry_run(
    penstock: Penstock, name: str, scope: Scope, *, limit: int, as_json: bool
) -> None:
    dataset = penstock.settings.dataset(name)
    budget = penstock.budget(dataset)
    now = penstock.stores.jobs.now()
    foreseen = penstock.dry_run(dataset, scope, now)
    cost = foreseen.estimate(budget)
    some = itertools.islice(foreseen.shards(penstock.source(dataset)), limit)
    if as_json:
        print_json(
            {
                "dataset": name,
                "mode": foreseen.scope.mode,
                "shards": cost.shards,
                "requests": cost.requests,
                "at_least": cost.at_least,
                "seconds": cost.duration.total_seconds(),
                "first": [
                    {"shard_key": each.key, "request": each.first_request}
                    for each in some
                ],
            }
        )
        return
    console = stdout()
    for each in some:
        console.print(f"{each.key}\n    {each.first_request}", markup=False)
    if cost.shards > limit:
        console.print(f"… and {counted(cost.shards - limit, 'more shard')}")
    shards = counted(cost.shards, "shard")
    console.print(f"{shards}, {work_of(foreseen, cost, budget)}. {left_by(foreseen)}")


def work_of(foreseen: Foreseen, cost: Estimate, budget: Budget) -> str:
    """Say what an import would have to do: read files, or ask a provider."""
    sizes = {
        part.file: part.size
        for axis in foreseen.axes
        if isinstance(axis, FileAxis)
        for part in axis.slices
    }
    if sizes:
        size = in_bytes(sum(sizes.values()))
        return f"{size} in {counted(len(sizes), 'file')}"
    least = "at least " if cost.at_least else "about "
    rates = ", ".join(map(str, budget.limits)) or "no limit"
    requests = counted(cost.requests, "request")
    return f"{least}{requests}, {cost.duration.total_seconds():,.0f} s at {rates}"


def left_by(foreseen: Foreseen) -> str:
    """Say what a dry run leaves behind."""
    source, named = foreseen.dataset.source, foreseen.scope.files
    files = source.files if isinstance(source, CsvSource) and not named else ()
    if any(map(is_address, files)):
        return "No job was stored; what was fetched lies in the spool for a day."
    is_read = isinstance(source, CsvSource)
    return "Nothing was stored." if is_read else "Nothing was stored or sent."
