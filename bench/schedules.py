"""What a tick of the scheduler costs, and what a year of imports leaves behind."""

import contextlib
import dataclasses
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from bench.server import server
from bench.stage import PENSTOCK, verdict
from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.adapters.sqlite.ledger import NoNotifier, SqliteLedger
from penstock.adapters.sqlite.schema import SqliteSchema
from penstock.adapters.sqlstore.stores import build_stores
from penstock.domain.dataset import Dataset, DatasetName
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import Mode, WorkerId
from penstock.domain.pages import Batch, Proof
from penstock.domain.retention import RetentionPolicy
from penstock.domain.scheduling.schedule import ScheduleDeclaration, ScheduleName
from penstock.entrypoints.cli.common import session
from penstock.flow.apply_retention import ApplyRetention
from penstock.ports import Stores
from penstock.wiring import Container


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured."""

    schedules: int
    # of which the median is taken
    ticks: int
    # for how long a dataset is imported
    days: int
    # how many imports a day begin
    daily: int


FULL = Sizes(schedules=10_000, ticks=20, days=365, daily=96)
SMALL = Sizes(schedules=20, ticks=2, days=3, daily=4)
DUE = 10
# times as long as a tick over the due schedules alone
TICK_GOAL = 2.0
# a ledger of a year, and claims in it
MEGABYTES_GOAL, CLAIM_GOAL = 200, 1.5
LEASE = timedelta(minutes=1)
CONFIG = """\
[penstock]
database = "{database}"

[datasets.points]
key = "id"
fields = {{ id = {{ path = "ID", type = "int" }} }}

[datasets.points.source]
url = "http://127.0.0.1:1/points"
pages = {{ by = "single" }}
"""


def measure(*, small: bool = False) -> bool:
    sizes = SMALL if small else FULL
    held = []
    with server(small=small) as postgres, postgres.database() as database:
        held.append(compare_ticks("PostgreSQL", database, sizes))
    held.append(compare_ticks("SQLite", "sqlite:///bench.db", sizes))
    held.append(keep_a_year(sizes))
    return all(held)


# ticks


def compare_ticks(name: str, database: str, sizes: Sizes) -> bool:
    """Compare ticks that decide ten schedules, alone and among thousands."""
    with opened(database) as penstock:
        add_schedules(penstock, 0, DUE)
        few = tick(penstock, sizes)
        add_schedules(penstock, DUE, sizes.schedules)
        many = tick(penstock, sizes)
    return verdict(
        f"tick over {sizes.schedules:,} schedules, {name}",
        holds=many <= TICK_GOAL * few,
        message=f"{many * 1e3:.1f} ms; over {DUE}, all due, {few * 1e3:.1f} ms: "
        f"{many / few:.2f} times (at most {TICK_GOAL:g})",
    )


@contextlib.contextmanager
def opened(database: str) -> Iterator[Container]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        place = database.replace("sqlite:///", f"sqlite:///{name}/")
        config = Path(name, "penstock.toml")
        config.write_text(CONFIG.format(database=place), encoding="utf-8")
        subprocess.run(
            [*PENSTOCK, "migrate"], cwd=name, check=True, stdout=subprocess.DEVNULL
        )
        with session(config) as penstock:
            yield penstock


def add_schedules(penstock: Container, first: int, end: int) -> None:
    """The first ten are due all the time, the others for years not."""
    for number in range(first, end):
        declaration = ScheduleDeclaration(
            name=ScheduleName(f"s{number}"),
            dataset=DatasetName("points"),
            fields={"dataset": "points", "every": "1s" if number < DUE else "3650d"},
        )
        schedule, problem = penstock.parse_schedule(declaration)
        assert schedule is not None, problem
        penstock.stores.schedules.create(schedule, declaration)


def tick(penstock: Container, sizes: Sizes) -> float:
    """Return the median of ticks that each decide the due schedules."""
    run = penstock.tick_schedules(lambda _: None, started_at=penstock.stores.jobs.now())
    run()
    seconds = []
    for _ in range(sizes.ticks):
        time.sleep(1.1)
        due = len(penstock.stores.fires.due(limit=10 * DUE))
        assert due == DUE, due
        seconds.append(timed(run))
    return statistics.median(seconds)


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# a year


def keep_a_year(sizes: Sizes) -> bool:
    """Import a dataset for a year of the database's time, and remove what is old."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        path = Path(name, "bench.db")
        clock = Clock()
        with (
            contextlib.closing(SqliteDatabase(path, clock=clock)) as database,
            opened("sqlite:///points.db") as penstock,
        ):
            points = penstock.settings.dataset("points")
            stores = open_stores(database)
            stores.schema.migrate()
            stores.schema.ensure_table(points)
            retention = ApplyRetention(
                retention=stores.retention,
                claims=stores.claims,
                rollups=stores.rollups,
                actions=stores.actions,
                jobs=stores.jobs,
                policy=RetentionPolicy(),
            )
            retention.show()
            days = []
            for _ in range(sizes.days):
                days.append(import_a_day(stores, points, clock, sizes.daily))
                retention()
        megabytes = path.stat().st_size / 1e6
    week = max(len(days) // 50, 1)
    first, last = statistics.median(days[:week]), statistics.median(days[-week:])
    return verdict(
        f"{sizes.days} days of {sizes.daily} imports, SQLite",
        holds=megabytes <= MEGABYTES_GOAL and last <= CLAIM_GOAL * first,
        message=f"{megabytes:.1f} MB (at most {MEGABYTES_GOAL}); a claim takes "
        f"{last * 1e3:.2f} ms, at first {first * 1e3:.2f} ms: {last / first:.2f} times "
        f"(at most {CLAIM_GOAL:g})",
    )


@dataclass
class Clock:
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def open_stores(database: SqliteDatabase) -> Stores:
    return build_stores(
        database,
        schema=SqliteSchema(database),
        ledger=SqliteLedger(database, lease=LEASE),
        lease=LEASE,
        notifier=NoNotifier(),
    )


def import_a_day(stores: Stores, dataset: Dataset, clock: Clock, daily: int) -> float:
    """Import an empty page so often; return the median time of a claim."""
    claims = []
    for _ in range(daily):
        clock.now += timedelta(days=1) / daily
        begun, _ = stores.imports.begin(
            dataset, ImportScope(mode=Mode.FULL), declaration="d"
        )
        plan = stores.plans.claim(begun.id, WorkerId("planner"))
        assert plan is not None
        stores.plans.add_shards(plan, ["all"], cursor="1")
        stores.plans.finish(dataclasses.replace(plan, cursor="1"))
        claim = partial(
            stores.ledger.claim,
            WorkerId("worker"),
            declarations={dataset.name: "d"},
            region=None,
        )
        began = time.perf_counter()
        (lease,) = claim()
        claims.append(time.perf_counter() - began)
        page = Batch(records=(), seen=0, proof=Proof.EMPTY_PAGE)
        stores.ledger.commit_page(dataset, lease, page)
        ended = stores.imports.close(dataset, begun.id, failed=None)
        assert ended is not None
    return statistics.median(claims)
