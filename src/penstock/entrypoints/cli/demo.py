"""Import from a local sandbox with faults and a killed worker: `demo`."""

import tempfile
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from penstock.domain.dataset import Dataset
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import Import, Mode, Shards
from penstock.entrypoints.cli.common import AsJson, print_json, session, stdout
from penstock.entrypoints.cli.demo_kill import WorkerKiller
from penstock.entrypoints.cli.demo_serve import SCHEDULE, change_points, dashboard
from penstock.entrypoints.cli.output.import_progress import gauge_for
from penstock.entrypoints.cli.output.progress_display import PageRetries, progress
from penstock.entrypoints.cli.run import work
from penstock.entrypoints.import_report import report
from penstock.entrypoints.worker.loop import stop_on_signals
from penstock.entrypoints.worker.pool import ProcessWorkerPool
from penstock.flow.audit import AuditReport
from penstock.sandbox import Sandbox, SandboxOptions, peak_over
from penstock.wiring import Container

FAULTS = {
    "500": 0.02,
    "503": 0.005,
    "reset": 0.01,
    "truncated": 0.01,
    "html": 0.01,
    "empty": 0.01,
    "disorder": 0.01,
}
RATE, BURST, PAGE = 20, 10, 100
# the share of the records after which a worker is killed
KILL_AFTER_SHARE = 0.3

CONFIG = """\
[penstock]
database = "sqlite:///demo.db"
lease = "5s"
wait = "1s"
commit_timeout = "1s"
attempts = 12

[budgets.sandbox]
rate = "{rate}/s"
burst = {burst}

[datasets.poi]
key = "id"
search = ["title", "town"]
geo = ["lat", "lon"]
filter = ["country_id", "town"]
missing = {{ do = "mark" }}

[datasets.poi.fields]
id = {{ path = "ID", type = "int", required = true }}
title = {{ path = "AddressInfo.Title", required = true }}
town = "AddressInfo.Town"
country_id = {{ path = "AddressInfo.CountryID", type = "int" }}
lat = {{ path = "AddressInfo.Latitude", type = "float", min = -90, max = 90 }}
lon = {{ path = "AddressInfo.Longitude", type = "float", min = -180, max = 180 }}
points = {{ path = "NumberOfPoints", type = "int" }}
updated_at = {{ path = "DateLastStatusUpdate", type = "timestamp" }}

[datasets.poi.source]
type = "http"
url = "{url}"
query = {{ output = "json", compact = "true", verbose = "false" }}
budget = "sandbox"
timeout = "2s"

[datasets.poi.source.pages]
by = "keyset"
send = "greaterthanid"
field = "ID"
order = {{ sortby = "id_asc" }}
size = {{ send = "maxresults", value = {page} }}

[datasets.poi.shards]
country = {{ kind = "list", send = "countryid", values = [{countries}], \
check = "AddressInfo.CountryID" }}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """What the ledger and the provider's own log show."""

    import_: Import
    shards: Shards
    audit: AuditReport
    stored: int
    expected: int
    differing: int
    sent: int
    min_requests: int
    responses_429: int
    peak: float

    @property
    def holds(self) -> bool:
        return (
            self.import_.proven
            and self.audit.complete
            and self.differing == 0
            and self.responses_429 == 0
        )


def demo(
    records: Annotated[
        int, typer.Option(min=1, help="Number of charging points.")
    ] = 20_000,
    workers: Annotated[int, typer.Option(min=2, max=16, help="Worker processes.")] = 4,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve",
            help="Open a dashboard on the run, and keep it open until Ctrl-C, "
            "with a provider whose data changes.",
        ),
    ] = False,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65_535, help="The port of the dashboard; 0 takes a free one."
        ),
    ] = 8000,
    as_json: AsJson = False,
) -> None:
    """Import from a faulty sandbox, kill a worker meanwhile, and audit the result."""
    halt = threading.Event()
    options = SandboxOptions(records=records, rate=RATE, burst=BURST, faults=FAULTS)
    with (
        stop_on_signals(halt),
        tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder,
        Sandbox(options) as provider,
        ExitStack() as opened,
    ):
        expected = provider.expected()
        config = write_config(Path(folder), provider, expected)
        if not as_json:
            print_introduction(records, workers, provider.url)
        url = serve_dashboard(opened, config, port) if serve else None
        if url is not None and not as_json:
            typer.echo(f"Watch it at {url}\n")
        with session(config) as penstock:
            result = import_all(
                penstock, config, provider, expected, workers, halt, quiet=as_json
            )
        if as_json:
            print_json(document(result) | ({} if url is None else {"url": url}))
        else:
            show_summary(result)
            print_next(url)
        if url is not None and result.holds:
            change_points(provider, [*expected], halt)
    if not result.holds:
        raise typer.Exit(1)


def serve_dashboard(opened: ExitStack, config: Path, port: int) -> str:
    """Serve until the end of the demo, with imports that follow the first one."""
    with session(config):
        # creates the tables, for which no two processes should race
        pass
    config.write_text(config.read_text("utf-8") + SCHEDULE, encoding="utf-8")
    return opened.enter_context(dashboard(config, port))


def print_next(url: str | None) -> None:
    if url is None:
        typer.echo("See it in the browser: penstock demo --serve")
        return
    typer.echo(
        f"The provider's data changes now, and every 30 s an import follows: {url}\n"
        "Press Ctrl-C to stop."
    )


def write_config(
    folder: Path, provider: Sandbox, expected: dict[int, dict[str, object]]
) -> Path:
    countries = sorted({country_of(point) for point in expected.values()})
    config = folder / "penstock.toml"
    config.write_text(
        CONFIG.format(
            url=provider.url,
            rate=RATE,
            burst=BURST,
            page=PAGE,
            countries=", ".join(map(str, countries)),
        ),
        encoding="utf-8",
    )
    return config


def country_of(point: dict[str, object]) -> int:
    address = point["AddressInfo"]
    return int(address["CountryID"]) if isinstance(address, dict) else 0


def print_introduction(records: int, workers: int, url: str) -> None:
    typer.echo(
        f"A sandbox provider serves {records:,} charging points at {url},\n"
        f"allows {RATE} requests a second, and fails "
        f"{sum(FAULTS.values()):.0%} of its requests.\n"
        f"{workers} worker processes import it; one of them is killed meanwhile.\n"
    )


def import_all(
    penstock: Container,
    config: Path,
    provider: Sandbox,
    expected: dict[int, dict[str, object]],
    workers: int,
    halt: threading.Event,
    *,
    quiet: bool,
) -> DemoResult:
    dataset = penstock.settings.dataset("poi")
    planned = penstock.plan(
        dataset,
        ImportScope(mode=Mode.FULL),
        declaration=penstock.declaration(dataset),
    )
    pool = ProcessWorkerPool(config, dataset, workers=workers, threads=2)
    import_id = planned.planned.id
    gauge = gauge_for(penstock, dataset, import_id)
    with (
        progress(gauge, quiet=quiet) as display,
        WorkerKiller(
            pool.processes,
            penstock.stores,
            import_id,
            display,
            after=KILL_AFTER_SHARE * len(expected),
        ),
    ):
        work(penstock, dataset, import_id, pool, halt, display, PageRetries())
    import_, shards = penstock.stores.imports.get(import_id)
    requests = provider.requests
    stored = {row[0]: row for row in penstock.stores.records.rows(dataset)}
    return DemoResult(
        import_=import_,
        shards=shards,
        audit=penstock.audit(dataset, declaration=penstock.declaration(dataset)),
        stored=len(stored),
        expected=len(expected),
        differing=differences(dataset, stored, expected),
        sent=len(requests),
        min_requests=min_requests(expected),
        responses_429=sum(request.status == 429 for request in requests),  # noqa: PLR2004
        peak=peak_over(requests, RATE),
    )


def min_requests(expected: dict[int, dict[str, object]]) -> int:
    """Count the pages, with one empty page per country that proves its end."""
    sizes: dict[int, int] = {}
    for point in expected.values():
        sizes[country_of(point)] = sizes.get(country_of(point), 0) + 1
    return sum(-(-size // PAGE) + 1 for size in sizes.values())


def differences(
    dataset: Dataset,
    stored: dict[object, tuple[object, ...]],
    expected: dict[int, dict[str, object]],
) -> int:
    """Count the points that are missing, extra, or have another latitude."""
    names = [field.name for field in dataset.fields]
    lat = names.index("lat")
    different = len(set(stored) ^ set(expected))
    for key in set(stored) & set(expected):
        address = expected[int(str(key))]["AddressInfo"]
        if isinstance(address, dict) and stored[key][lat] != address["Latitude"]:
            different += 1
    return different


def document(result: DemoResult) -> dict[str, object]:
    return {
        **report(result.import_, result.shards),
        "stored": result.stored,
        "expected": result.expected,
        "differing": result.differing,
        "requests_seen_by_provider": result.sent,
        "least_requests": result.min_requests,
        "answered_429": result.responses_429,
        "peak_burst": round(result.peak, 2),
        "audit_complete": result.audit.complete,
        "holds": result.holds,
    }


def show_summary(result: DemoResult) -> None:
    import_ = result.import_
    console = stdout()
    end = import_.finished_at or import_.created_at
    took = max((end - import_.created_at) / timedelta(seconds=1), 0.1)
    allowance = RATE * took + BURST
    same = "the same as the provider's" if not result.differing else "DIFFERENT"
    verdict = "complete" if result.audit.complete else "NOT COMPLETE"
    lines = {
        "records": f"{result.stored:,} stored, {same}",
        "requests": f"{result.sent:,} sent, {result.min_requests:,} needed at least; "
        "the others repeat those lost by a fault or the killed worker",
        "budget": f"{result.sent / allowance:.0%} of the allowance used in "
        f"{took:.1f} s, largest burst {result.peak:.1f} of {BURST}, "
        f"{result.responses_429} responses with status 429",
        "crash": f"1 worker killed, {import_.rescues} jobs resumed from their cursors",
        "audit": f"{verdict}: {result.audit.shards:,} shards, "
        f"{result.audit.pages:,} pages, {len(result.audit.findings)} findings",
    }
    console.print()
    for name, text in lines.items():
        console.print(f"  [bold]{name:9}[/bold] {text}")
    console.print()
    conclusion = (
        "Each page stored once, rate limit kept, nothing lost."
        if result.holds
        else "A guarantee was violated; see above."
    )
    console.print(conclusion)
