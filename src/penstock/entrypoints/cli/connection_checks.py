"""Check what a configuration names: servers, clocks, one request per dataset."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path

from penstock.domain.dataset import Dataset
from penstock.domain.source import CsvSource, is_url
from penstock.entrypoints.cli.common import (
    counted,
    ignore_event,
    open_readonly,
    read_settings,
    warn_about_key,
)
from penstock.errors import PenstockError
from penstock.flow.sample_page import SampleResult
from penstock.ports import Diagnostic, ServerDiagnostics
from penstock.settings import Settings
from penstock.wiring import (
    Container,
    check_broker,
    open_container,
    server_diagnostics,
)

# clocks that differ by more are reported, or fail the check
MAX_UNREPORTED_SKEW, MAX_SKEW = timedelta(seconds=1), timedelta(seconds=30)
# of several readings of a clock, the quickest is the most exact
CLOCK_READINGS = 3
# checks that do not tell whether a store can be used
ADVISORY = frozenset({"broker", "clocks", "connections"})


def run_checks(config: Path, *, threads: int) -> list[Diagnostic]:
    """Run all checks, also after one has failed."""
    settings = read_settings(config)
    results = list(check_servers(config, settings, threads=threads))
    if not all(result.is_ok for result in results if result.what not in ADVISORY):
        # a request that its budget cannot count is not sent
        skipped = "skipped: its request could not be counted; fix the stores first"
        return results + [
            Diagnostic(what=f"datasets.{name}", is_ok=False, message=skipped)
            for name in settings.datasets
        ]
    try:
        with open_readonly(config) as penstock:
            results += [
                check_sample(penstock, dataset)
                for dataset in settings.datasets.values()
            ]
    except PenstockError as error:
        results.append(Diagnostic(what="stores", is_ok=False, message=str(error)))
    return results


def check_servers(
    config: Path, settings: Settings, *, threads: int
) -> Iterator[Diagnostic]:
    reached = []
    if settings.sqlite_path is not None:
        yield check_file(config, settings.sqlite_path)
    with ExitStack() as stack:
        for server in server_diagnostics(settings, stack):
            try:
                yield from server.about(settings.datasets.values(), threads=threads)
            except PenstockError as error:
                yield Diagnostic(what=server.server, is_ok=False, message=str(error))
                continue
            reached.append(server)
            if server.server == "database":
                yield check_tables(settings)
        if reached:
            yield compare_clocks(reached)
    yield from try_broker(settings)


def try_broker(settings: Settings) -> Iterator[Diagnostic]:
    try:
        queues = check_broker(settings)
    except PenstockError as error:
        yield Diagnostic(what="broker", is_ok=False, message=str(error))
        return
    if queues is not None:
        yield Diagnostic(what="broker", is_ok=True, message=queues)


def check_file(config: Path, path: Path) -> Diagnostic:
    detail = f"sqlite:///{path.name}"
    try:
        with open_readonly(config) as penstock:
            detail = penstock.settings.place
    except PenstockError as error:
        return Diagnostic(what="database", is_ok=False, message=str(error))
    has_folder = path.parent.is_dir()
    if not has_folder:
        detail += " cannot be created: its folder does not exist"
    elif not path.exists():
        detail += " does not exist yet; run or migrate will create it"
    return Diagnostic(what="database", is_ok=has_folder, message=detail)


def check_tables(settings: Settings) -> Diagnostic:
    try:
        with open_container(settings, ignore_event) as penstock:
            steps = pending(penstock)
    except PenstockError as error:
        return Diagnostic(what="tables", is_ok=False, message=str(error))
    if steps:
        detail = (
            f"{settings.place}: not up to date ({', '.join(steps)}); "
            "run: penstock migrate"
        )
        return Diagnostic(what="tables", is_ok=False, message=detail)
    return Diagnostic(what="tables", is_ok=True, message="up to date")


def pending(penstock: Container) -> list[str]:
    """Return what `penstock migrate` would do."""
    schema, datasets = penstock.stores.schema, penstock.settings.datasets.values()
    steps = [*schema.pending()]
    if not schema.exists():
        return [*steps, *(f"create table {dataset.name}" for dataset in datasets)]
    for dataset in datasets:
        steps += schema.pending_table_changes(dataset)
        steps += schema.pending_maintenance(dataset)
    return steps


def compare_clocks(servers: Sequence[ServerDiagnostics]) -> Diagnostic:
    """Compare the clocks of servers with each other and with this host's.

    Leases and budgets use only the servers' clocks, so no difference loses data.
    """
    try:
        offsets = {server.server: clock_offset(server.now) for server in servers}
    except PenstockError as error:
        return Diagnostic(what="clocks", is_ok=False, message=str(error))
    skew = max(
        abs(one - other)
        for one, other in combinations([timedelta(0), *offsets.values()], 2)
    )
    detail = ", ".join(
        f"{name} is {format_offset(offset)}" for name, offset in offsets.items()
    )
    if skew > MAX_UNREPORTED_SKEW:
        detail += (
            "; synchronise them (NTP): leases and budgets use the servers' clocks and "
            "are safe, but time windows end by the database's clock, and logs, --from, "
            "--until and TLS use this host's"
        )
    return Diagnostic(what="clocks", is_ok=skew <= MAX_SKEW, message=detail)


def clock_offset(now: Callable[[], datetime]) -> timedelta:
    """Return how far a clock is ahead of this host's."""
    readings = []
    for _ in range(CLOCK_READINGS):
        before = datetime.now(UTC)
        reading = now()
        after = datetime.now(UTC)
        round_trip = after - before
        readings.append((round_trip, reading - (before + round_trip / 2)))
    return min(readings)[1]


def format_offset(offset: timedelta) -> str:
    seconds = offset.total_seconds()
    if abs(offset) <= MAX_UNREPORTED_SKEW:
        return "within 1 s of this host"
    side = "ahead of" if seconds > 0 else "behind"
    return f"{abs(seconds):,.1f} s {side} this host"


def check_sample(penstock: Container, dataset: Dataset) -> Diagnostic:
    """Request one page, and compare it with the declaration and another shard."""
    what = f"datasets.{dataset.name}"
    try:
        sample = sample_of(penstock, dataset)
    except PenstockError as error:
        return Diagnostic(what=what, is_ok=False, message=str(error))
    if sample.moved_to is not None:
        return Diagnostic(
            what=what, is_ok=True, message=f"redirects to {sample.moved_to}"
        )
    detail = f"{counted(sample.rows, 'record')} in the first page, {sample.valid} valid"
    if sample.failure_reason is not None:
        detail += f"; the first invalid one: {sample.failure_reason}"
    if sample.empty:
        detail += f"; none of them has a value for {', '.join(sample.empty)}"
    if sample.outside:
        detail += (
            f"; {sample.outside} would be refused by the check of their shard: "
            f"{sample.outside_reason}"
        )
    warning = warn_about_key(dataset, rows=sample.valid, keys=sample.keys)
    if warning is not None:
        detail += f"; {warning}"
    if sample.ignored is not None:
        detail += f"; {sample.ignored}"
    worst = max(sample.outside, sample.rows - sample.valid)
    is_ok = worst * 2 <= sample.rows and sample.ignored is None
    return Diagnostic(what=what, is_ok=is_ok, message=detail)


def find_key_warnings(settings: Settings) -> Iterator[str]:
    """Sample local files, and yield a warning for each key that seems not unique."""
    with open_container(settings, ignore_event, scratch=True) as penstock:
        for dataset in settings.datasets.values():
            source = dataset.source
            if not isinstance(source, CsvSource) or any(map(is_url, source.files)):
                continue
            try:
                sample = sample_of(penstock, dataset)
            except PenstockError:
                # `check --connect` reports missing and invalid files
                continue
            warning = warn_about_key(dataset, rows=sample.valid, keys=sample.keys)
            if warning is not None:
                yield f"datasets.{dataset.name}: {warning}"


def sample_of(penstock: Container, dataset: Dataset) -> SampleResult:
    return penstock.sample(
        dataset,
        penstock.source(dataset),
        penstock.budget(dataset),
        longest=penstock.settings.longest_wait,
    )


def as_documents(
    results: Iterable[Diagnostic], settings: Settings
) -> list[dict[str, object]]:
    """Return results as `check --json` prints them, with secrets redacted."""
    return [
        {
            "what": result.what,
            "ok": result.is_ok,
            "detail": settings.redact(result.message),
        }
        for result in results
    ]
