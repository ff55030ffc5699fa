"""Plan an import, or show what it would do: `plan`."""

import itertools
import threading
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal as in_bytes

from penstock.domain.budget import Budget
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import Mode
from penstock.domain.sharding.axes import FileAxis
from penstock.domain.source import CsvSource, is_url
from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    counted,
    open_readonly,
    print_json,
    read_instant,
    session,
    stdout,
)
from penstock.entrypoints.cli.output.plan_warnings import PlanWarnings
from penstock.entrypoints.worker.loop import stop_on_signals
from penstock.errors import Misconfigured
from penstock.flow.plan import Estimate, PlanPreview
from penstock.wiring import Container

Name = Annotated[str, typer.Argument(help="A dataset of the configuration.")]
TheMode = Annotated[Mode, typer.Option("--mode", help="What to import.")]
From = Annotated[
    str | None,
    typer.Option("--from", help="Lower bound, such as 2026-01-31T12:00:00Z."),
]
Until = Annotated[
    str | None, typer.Option("--until", help="Upper bound of a backfill.")
]
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--file",
        help="Import this file instead of the declared ones; may be repeated. "
        "Rows that are not in it are not marked as missing.",
    ),
]
AcceptLostFiles = Annotated[
    bool,
    typer.Option(
        "--accept-lost-files",
        help='With missing.do = "mark", also mark rows that were last seen in a file '
        "that no longer exists.",
    ),
]
AcceptDuplicates = Annotated[
    bool,
    typer.Option(
        "--accept-duplicates",
        help="Let more rows lose to another row of their key than max_duplicates.",
    ),
]
DEFAULT_LIMIT = 20


def plan(
    dataset: Name,
    mode: TheMode = Mode.FULL,
    since: From = None,
    until: Until = None,
    files: Files = None,
    accept_lost_files: AcceptLostFiles = False,
    accept_duplicates: AcceptDuplicates = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only show shards, first requests and cost."),
    ] = False,
    limit: Annotated[
        int,
        typer.Option(min=1, max=100_000, help="How many shards a dry run shows."),
    ] = DEFAULT_LIMIT,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Plan an import: store its jobs for workers to claim."""
    scope = replace(
        read_scope(mode, since, until),
        accept_lost_files=accept_lost_files,
        accept_duplicates=accept_duplicates,
    )
    if dry_run:
        with open_readonly(config) as penstock:
            scope = with_files(penstock, dataset, scope, files)
            show_dry_run(penstock, dataset, scope, limit=limit, as_json=as_json)
        return
    halt, warnings = threading.Event(), PlanWarnings()
    with stop_on_signals(halt), session(config, warnings.listen) as penstock:
        declared = penstock.settings.dataset(dataset)
        warnings.check_references(penstock, declared)
        scope = with_files(penstock, dataset, scope, files)
        result = penstock.plan(
            declared, scope, declaration=penstock.declaration(declared), halt=halt
        )
    verb = "Resumed" if result.resumed else "Planned"
    if as_json:
        print_json(
            {
                "import_id": result.planned.id,
                "mode": result.planned.mode,
                "resumed": result.resumed,
                "shards": result.shards,
            }
        )
    else:
        warnings.print()
        typer.echo(
            f"{verb} import {result.planned.id} of {dataset}: "
            f"{counted(result.shards, 'shard')}. Run it with: penstock worker"
        )


def read_scope(mode: Mode, since: str | None, until: str | None) -> ImportScope:
    return ImportScope(
        mode=mode,
        since=read_instant(since, "--from"),
        until=read_instant(until, "--until"),
    )


def with_files(
    penstock: Container, dataset: str, scope: ImportScope, files: list[Path] | None
) -> ImportScope:
    """Add files to a scope, under the names by which workers find them."""
    source = penstock.settings.dataset(dataset).source
    if not files or not isinstance(source, CsvSource):
        # files of another source are refused with the scope
        return replace(scope, files=tuple(map(str, files or ())))
    folder = Path(source.folder).absolute()
    return replace(scope, files=tuple(relative_name(folder, file) for file in files))


def relative_name(folder: Path, file: Path) -> str:
    """Name a file relative to the folder if it is inside: hosts mount it elsewhere."""
    if not file.is_file():
        raise Misconfigured(f"--file {file}: there is no such file")
    path = file.absolute()
    is_inside = path.is_relative_to(folder)
    return str(path.relative_to(folder) if is_inside else path)


def show_dry_run(
    penstock: Container, name: str, scope: ImportScope, *, limit: int, as_json: bool
) -> None:
    dataset = penstock.settings.dataset(name)
    budget = penstock.budget(dataset)
    now = penstock.stores.jobs.now()
    preview = penstock.dry_run(dataset, scope, now)
    cost = preview.estimate(budget)
    shards = itertools.islice(preview.shards(penstock.source(dataset)), limit)
    if as_json:
        print_json(
            {
                "dataset": name,
                "mode": preview.scope.mode,
                "shards": cost.shards,
                "requests": cost.requests,
                "at_least": cost.at_least,
                "seconds": cost.duration.total_seconds(),
                "first": [
                    {"shard_key": shard.key, "request": shard.first_request}
                    for shard in shards
                ],
            }
        )
        return
    console = stdout()
    for shard in shards:
        console.print(f"{shard.key}\n    {shard.first_request}", markup=False)
    if cost.shards > limit:
        console.print(f"… and {counted(cost.shards - limit, 'more shard')}")
    console.print(
        f"{counted(cost.shards, 'shard')}, {describe_cost(preview, cost, budget)}. "
        f"{describe_side_effects(preview)}"
    )


def describe_cost(preview: PlanPreview, cost: Estimate, budget: Budget) -> str:
    """Describe the work of an import: bytes of files, or requests."""
    sizes = {
        part.file: part.size
        for axis in preview.axes
        if isinstance(axis, FileAxis)
        for part in axis.slices
    }
    if sizes:
        size = in_bytes(sum(sizes.values()))
        return f"{size} in {counted(len(sizes), 'file')}"
    bound = "at least " if cost.at_least else "about "
    rates = ", ".join(map(str, budget.limits)) or "no limit"
    requests = counted(cost.requests, "request")
    return f"{bound}{requests}, {cost.duration.total_seconds():,.0f} s at {rates}"


def describe_side_effects(preview: PlanPreview) -> str:
    """Describe what a dry run has stored or sent."""
    source, named = preview.dataset.source, preview.scope.files
    files = source.files if isinstance(source, CsvSource) and not named else ()
    if any(map(is_url, files)):
        return "No job was stored; downloaded files stay in the spool for a day."
    if isinstance(source, CsvSource):
        return "Nothing was stored."
    return "Nothing was stored or sent."
