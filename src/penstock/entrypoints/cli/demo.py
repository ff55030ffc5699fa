"""Show the whole thing in half a minute, without a network: `demo`."""

import tempfile
import threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from penstock.domain.dataset import Dataset
from penstock.domain.job import Import, Mode, Shards
from penstock.domain.scope import Scope
from penstock.entrypoints.cli.gauges import gauge_for
from penstock.entrypoints.cli.mishap import Mishap
from penstock.entrypoints.cli.progress import PageRetries, progress
from penstock.entrypoints.cli.run import work
from penstock.entrypoints.cli.shared import (
    AsJson,
    print_json,
    session,
    stdout,
)
from penstock.entrypoints.crews import ProcessCrew
from penstock.entrypoints.reports import report
from penstock.entrypoints.threads import stop_on_signals
from penstock.flow.audit import Audited
from penstock.sandbox import Sandbox, SandboxOptions, peak_over
from penstock.wiring import Penstock

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
KILL_AFTER = 0.3

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
class Outcome:
    """What the demo found, from the ledger and from the provider's own log."""

    known: Import
    shards: Shards
    audited: Audited
    stored: int
    expected: int
    differing: int
    sent: int
    least: int
    answered_429: int
    peak: float

    @property
    def holds(self) -> bool:
        return (
            self.known.proven
            and self.audited.complete
            and self.differing == 0
            and self.answered_429 == 0
        )


def demo(
    records: Annotated[int, typer.Option(min=1, help="Charging points.")] = 20_000,
    workers: Annotated[int, typer.Option(min=2, max=16, help="Processes.")] = 4,
    as_json: AsJson = False,
) -> None:
    """Import a practice provider with faults, kill a worker on the way, prove it."""
    halt = threading.Event()
    options = SandboxOptions(records=records, rate=RATE, burst=BURST, faults=FAULTS)
    with (
        stop_on_signals(halt),
        tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder,
        Sandbox(options) as provider,
    ):
        expected = provider.expected()
        config = write_config(Path(folder), provider, expected)
        if not as_json:
            say(records, workers, provider.url)
        with session(config) as penstock:
            outcome = import_all(
                penstock, config, provider, expected, workers, halt, quiet=as_json
            )
    if as_json:
        print_json(document(outcome))
    else:
        show_summary(outcome)
    if not outcome.holds:
        raise typer.Exit(1)


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


def say(records: int, workers: int, url: str) -> None:
    typer.echo(
        f"A practice provider serves {records:,} charging points at {url},\n"
        f"allows {RATE} requests a second, and fails in about "
        f"{sum(FAULTS.values()):.0%} of its answers.\n"
        f"{workers} worker processes import it; one of them is killed on the way.\n"
    )


def import_all(
    penstock: Penstock,
    config: Path,
    provider: Sandbox,
    expected: dict[int, dict[str, object]],
    workers: int,
    halt: threading.Event,
    *,
    quiet: bool,
) -> Outcome:
    dataset = penstock.settings.dataset("poi")
    planned = penstock.plan(
        dataset,
        Scope(mode=Mode.FULL),
        declaration=penstock.declaration(dataset),
    )
    crew = ProcessCrew(config, dataset, workers=workers, threads=2)
    import_id = planned.planned.id
    gauge = gauge_for(penstock, dataset, import_id)
    with (
        progress(gauge, quiet=quiet) as show,
        Mishap(
            crew.processes,
            penstock.stores,
            import_id,
            show,
            after=KILL_AFTER * len(expected),
        ),
    ):
        work(penstock, dataset, import_id, crew, halt, show, PageRetries())
    known, shards = penstock.stores.imports.get(import_id)
    requests = provider.requests
    stored = {row[0]: row for row in penstock.stores.records.rows(dataset)}
    return Outcome(
        known=known,
        shards=shards,
        audited=penstock.audit(dataset, declaration=penstock.declaration(dataset)),
        stored=len(stored),
        expected=len(expected),
        differing=differences(dataset, stored, expected),
        sent=len(requests),
        least=least_requests(expected),
        answered_429=sum(request.status == 429 for request in requests),  # noqa: PLR2004
        peak=peak_over(requests, RATE),
    )


def least_requests(expected: dict[int, dict[str, object]]) -> int:
    """Count the full pages, and for each country the empty one that proves its end."""
    sizes: dict[int, int] = {}
    for point in expected.values():
        sizes[country_of(point)] = sizes.get(country_of(point), 0) + 1
    return sum(-(-size // PAGE) + 1 for size in sizes.values())


def differences(
    dataset: Dataset,
    stored: dict[object, tuple[object, ...]],
    expected: dict[int, dict[str, object]],
) -> int:
    """Count the points that are missing, extra, or have another title or place."""
    names = [field.name for field in dataset.fields]
    lat = names.index("lat")
    different = len(set(stored) ^ set(expected))
    for key in set(stored) & set(expected):
        address = expected[int(str(key))]["AddressInfo"]
        if isinstance(address, dict) and stored[key][lat] != address["Latitude"]:
            different += 1
    return different


def document(outcome: Outcome) -> dict[str, object]:
    return {
        **report(outcome.known, outcome.shards),
        "stored": outcome.stored,
        "expected": outcome.expected,
        "differing": outcome.differing,
        "requests_seen_by_provider": outcome.sent,
        "least_requests": outcome.least,
        "answered_429": outcome.answered_429,
        "peak_burst": round(outcome.peak, 2),
        "audit_complete": outcome.audited.complete,
        "holds": outcome.holds,
    }


def show_summary(outcome: Outcome) -> None:
    known = outcome.known
    console = stdout()
    end = known.finished_at or known.created_at
    took = max((end - known.created_at) / timedelta(seconds=1), 0.1)
    allowance = RATE * took + BURST
    same = "the same as the provider's" if not outcome.differing else "DIFFERENT"
    found = "complete" if outcome.audited.complete else "NOT COMPLETE"
    lines = {
        "records": f"{outcome.stored:,} stored, {same}",
        "requests": f"{outcome.sent:,} sent, {outcome.least:,} is the least possible; "
        "the others met a fault or a killed worker",
        "budget": f"{outcome.sent / allowance:.0%} of the allowance used in "
        f"{took:.1f} s, largest burst {outcome.peak:.1f} of {BURST}, "
        f"{outcome.answered_429} answers of 429",
        "crash": f"1 worker killed, {known.rescues} jobs taken over at their cursors",
        "audit": f"{found}: {outcome.audited.shards:,} shards, "
        f"{outcome.audited.pages:,} pages, {len(outcome.audited.findings)} findings",
    }
    console.print()
    for name, text in lines.items():
        console.print(f"  [bold]{name:9}[/bold] {text}")
    console.print()
    verdict = (
        "Every page once, never over the limit, nothing lost."
        if outcome.holds
        else "Something does not hold; see above."
    )
    console.print(verdict)
