"""Check the configuration, and create or update tables: `check`, `migrate`."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from textwrap import wrap
from typing import Annotated, Any

import typer

from penstock.domain.completion import moving_order
from penstock.domain.dataset import SYSTEM_COLUMNS, WhenMissing
from penstock.domain.formats import format_instant
from penstock.domain.scheduling.schedule import Schedule, ScheduleDeclaration
from penstock.domain.sharding.ignored_filters import unchecked_parameters
from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    counted,
    ignore_event,
    print_json,
    read_settings,
)
from penstock.entrypoints.cli.connection_checks import (
    as_documents,
    find_key_warnings,
    pending,
    run_checks,
)
from penstock.entrypoints.cli.retention import (
    retention_document,
    summarize_retention,
)
from penstock.entrypoints.schedule_report import describe_trigger, upcoming_fires
from penstock.errors import Misconfigured
from penstock.settings import Settings
from penstock.settings.schedules import parse_schedule
from penstock.wiring import (
    Container,
    check_hook_functions,
    list_statements,
    load_transform,
    open_container,
    try_hooks,
)

COMMENT_WIDTH = 77


def check(
    config: Config = DEFAULT_CONFIG,
    connect: Annotated[
        bool,
        typer.Option(
            "--connect",
            help="Also connect to the servers, and send one request per dataset.",
        ),
    ] = False,
    threads: Annotated[
        int,
        typer.Option(
            "--threads",
            min=1,
            max=64,
            help="Threads per worker, to check that connections suffice.",
        ),
    ] = 4,
    test_hooks: Annotated[
        bool,
        typer.Option(
            "--test-hooks", help="Also send each hook a message of the type 'test'."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Validate the configuration; nothing is changed."""
    settings = read_settings(config)
    for dataset in settings.datasets.values():
        load_transform(settings, dataset)
    check_hook_functions(settings)
    document: dict[str, object] = {
        "config": str(config),
        "datasets": sorted(settings.datasets),
        "budgets": sorted(settings.budgets),
    }
    notes = [
        *find_name_conflicts(settings),
        *find_tied_pages(settings),
        *find_unchecked_filters(settings),
        *find_archives(settings),
        *(() if connect else find_key_warnings(settings)),
    ]
    if notes:
        document["notes"] = notes
    schedules = preview_schedules(settings)
    if schedules:
        document["schedules"] = schedules
    results = [
        *(run_checks(config, threads=threads) if connect else ()),
        *(try_hooks(settings) if test_hooks else ()),
    ]
    checks = as_documents(results, settings)
    if connect or test_hooks:
        document["connections"] = checks
    if as_json:
        print_json(document)
    else:
        typer.echo(
            f"{config} is valid: {counted(len(settings.datasets), 'dataset')}, "
            f"{counted(len(settings.budgets), 'budget')}."
        )
        for note in notes:
            typer.echo(f"note {note}")
        for schedule in schedules:
            print_schedule(schedule)
        for result in checks:
            mark = "ok  " if result["ok"] else "FAIL"
            typer.echo(f"{mark} {result['what']}: {result['detail']}")
    if not all(result["ok"] for result in checks):
        raise typer.Exit(1)


def preview_schedules(settings: Settings) -> list[dict[str, object]]:
    """Return when each declared schedule fires, in words and by its next fires."""
    now = datetime.now(UTC)
    return [
        {
            "name": name,
            "dataset": schedule.dataset,
            "trigger": describe_trigger(schedule),
            "jitter_seconds": schedule.delay.total_seconds(),
            "upcoming": upcoming_fires(schedule, now),
        }
        for name, declaration in settings.schedules.items()
        if (schedule := read_schedule(settings, declaration)) is not None
    ]


def read_schedule(
    settings: Settings, declaration: ScheduleDeclaration
) -> Schedule | None:
    schedule, _ = parse_schedule(
        declaration.name, declaration.fields, settings.datasets
    )
    return schedule


def print_schedule(schedule: Mapping[str, Any]) -> None:
    typer.echo(f"schedule {schedule['name']}: {schedule['trigger']}")
    for fire in schedule["upcoming"]:
        exception = fire["exception"]
        skipped = "" if exception is None else f", skipped by except {exception!r}"
        typer.echo(f"  {fire['local']} = {format_instant(fire['fire_at'])}{skipped}")


def find_name_conflicts(settings: Settings) -> list[str]:
    """Find fields whose names PostgreSQL tables reserve, while SQLite is used."""
    if settings.postgres_url is not None:
        return []
    return [
        f"datasets.{dataset.name}.fields.{field.name}: every PostgreSQL table has a "
        f"column of this name; rename it to {field.name}_value if you may move there"
        for dataset in settings.datasets.values()
        for field in dataset.fields
        if field.name in SYSTEM_COLUMNS
    ]


def find_tied_pages(settings: Settings) -> list[str]:
    """Find keysets over a field of which several records may have the same value."""
    return [
        f"datasets.{dataset.name}.source.pages.field: "
        f"{'.'.join(dataset.source.order)!r} is not the key, so records may share a "
        "value of it: they are read again where a page ends, and a page that holds "
        "one value only fails its shard; page by the key if the provider offers it"
        for dataset in settings.datasets.values()
        if dataset.source.order is not None and not dataset.pages_by_key
    ]


def find_unchecked_filters(settings: Settings) -> list[str]:
    """Find axes whose records are not compared with their shard."""
    return [
        f"datasets.{dataset.name}.shards.{axis.name}: sends {', '.join(names)} and has "
        "no check, so a provider that ignores it is noticed only if shards begin with "
        "the same records; name the field of a record by which to check it"
        for dataset in settings.datasets.values()
        for axis in dataset.axes
        if (names := unchecked_parameters(axis))
    ]


def find_archives(settings: Settings) -> list[str]:
    """Find what an archive costs, and those that nothing is ever moved to."""
    notes = []
    for dataset in settings.datasets.values():
        if dataset.archive is None:
            continue
        place = f"datasets.{dataset.name}.archive"
        moves = moving_order(dataset, aim="to have rows archived")
        if moves is not None:
            notes.append(f"{place}: nothing is archived: {moves}")
        elif dataset.missing.do is WhenMissing.KEEP and not dataset.is_ranked:
            notes.append(
                f"{place}: full imports write which rows they have seen, so pages that "
                "are the same as before are not recognised, and take as long as others"
            )
    return notes


def migrate(
    check_only: Annotated[
        bool,
        typer.Option(
            "--check", help="Only show what would be done; exit 1 if there is anything."
        ),
    ] = False,
    show_sql: Annotated[
        str | None,
        typer.Option(
            "--show-sql",
            metavar="DATASET",
            help="Only print the SQL of a dataset, each statement with its use.",
        ),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Create or update the tables, and build missing indexes."""
    settings = read_settings(config)
    if show_sql is not None:
        if check_only:
            raise Misconfigured("--check and --show-sql are two commands: use one")
        print_statements(show_sql, settings, as_json=as_json)
        return
    if check_only:
        steps = find_pending(settings)
        print_steps("pending", steps, settings, as_json=as_json)
        if steps:
            raise typer.Exit(1)
        return
    with open_container(settings, ignore_event) as penstock:
        steps = bring_up_to_date(penstock)
        document = show_retention(penstock)
    print_steps("applied", steps, settings, as_json=as_json, retention=document)
    if document is not None and not as_json:
        typer.echo(summarize_retention(document))


def print_statements(name: str, settings: Settings, *, as_json: bool) -> None:
    """Print the statements of a dataset as a script that can be run by parts."""
    statements = list_statements(settings, name)
    if as_json:
        print_json({"dataset": name, "statements": [*map(asdict, statements)]})
        return
    for statement in statements:
        typer.echo(f"-- {statement.name}")
        for line in wrap(statement.use, COMMENT_WIDTH):
            typer.echo(f"-- {line}")
        given = [f"{number}={what}" for number, what in statement.parameters.items()]
        for line in wrap(", ".join(given), COMMENT_WIDTH):
            typer.echo(f"-- {line}")
        typer.echo(f"{statement.sql.strip()};\n")


def find_pending(settings: Settings) -> list[str]:
    path = settings.sqlite_path
    # opening a missing file would create it
    is_new = path is not None and not path.exists()
    with open_container(settings, ignore_event, scratch=is_new) as penstock:
        return pending(penstock)


def bring_up_to_date(penstock: Container) -> list[str]:
    """Apply what is pending; return what this process has done."""
    schema, datasets = penstock.stores.schema, penstock.settings.datasets.values()
    done = [*schema.migrate()]
    for dataset in datasets:
        # raises if a declaration is refused, before any table is changed
        schema.pending_table_changes(dataset)
    for dataset in datasets:
        done += schema.ensure_table(dataset)
    for dataset in datasets:
        done += schema.maintain(dataset)
    return done


def show_retention(penstock: Container) -> Mapping[str, Any] | None:
    """Return what retention will remove, the first time that it is shown."""
    if penstock.retention.begins_at is not None:
        return None
    return retention_document(penstock, penstock.retention.show(), is_dry=True)


def print_steps(
    what: str,
    steps: list[str],
    settings: Settings,
    *,
    as_json: bool,
    retention: Mapping[str, Any] | None = None,
) -> None:
    if as_json:
        more = {} if retention is None else {"retention": retention}
        print_json({what: steps, "datasets": sorted(settings.datasets), **more})
    elif steps:
        typer.echo("\n  ".join([f"{what.capitalize()}:", *steps]))
    else:
        typer.echo("The schema is up to date.")
