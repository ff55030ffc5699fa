"""Imports of schedules that a person asks for, beside those of their fires."""

from pathlib import Path

import pytest

from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.domain.dataset import Dataset
from penstock.domain.events import ScheduleFired
from penstock.domain.jobs import Mode
from penstock.domain.scheduling.schedule import ScheduleDeclaration
from penstock.domain.sharding.axes import TimeAxis
from penstock.domain.source import CsvSource
from penstock.errors import Conflict, Misconfigured
from penstock.flow.plan import Plan
from penstock.flow.run_schedule import RunSchedule
from penstock.flow.tick_schedules import BeginImport, scope_now
from penstock.ports import Stores
from penstock.ports.schedules import ScheduleStatus
from penstock.settings.schedules import parse_schedule
from tests.support.builders import (
    ANN,
    HOUR,
    NOON,
    Clock,
    claim_plan,
    dataset,
    sqlite_stores,
)

POI = dataset()
DAY = 24 * HOUR
VISITS = dataset(
    "visits",
    axes=(TimeAxis(name="window", start=NOON - 30 * DAY, step=DAY),),
)
SHOPS = dataset("shops", source=CsvSource(files=("*.csv",), folder="."))
DATASETS: dict[str, Dataset] = {each.name: each for each in (POI, VISITS, SHOPS)}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stores(tmp_path: Path, clock: Clock) -> Stores:
    opened = sqlite_stores(SqliteDatabase(tmp_path / "penstock.db", clock=clock))
    opened.schema.migrate()
    for each in DATASETS.values():
        opened.schema.ensure_table(each)
    return opened


@pytest.fixture
def events() -> list[object]:
    return []


@pytest.fixture
def run(stores: Stores, events: list[object]) -> RunSchedule:
    plan = Plan(
        datasets=DATASETS,
        stores=stores,
        claim=claim_plan(stores),
        survey=lambda *_: pytest.fail("planning is the caller's"),
        emit=events.append,
    )
    return RunSchedule(
        datasets=DATASETS,
        stores=stores,
        parse=parse,
        begin_import=BeginImport(
            plan=plan,
            stores=stores,
            declaration=lambda _: "d1",
            find_files=lambda _: None,
        ),
        redact=str,
        emit=events.append,
    )


def parse(declaration: ScheduleDeclaration):
    schedule, problems = parse_schedule(declaration.name, declaration.fields, DATASETS)
    return schedule, "; ".join(sentence for _, sentence in problems) or None


def create(stores: Stores, of: str, **fields: object) -> str:
    given = {"dataset": of, "every": "1h", **fields}
    schedule, _ = parse_schedule(of, given, DATASETS)
    assert schedule is not None
    declaration = ScheduleDeclaration(
        name=schedule.name, dataset=schedule.dataset, fields=given
    )
    return stores.schedules.create(schedule, declaration).name


def test_a_full_import_accepts_what_its_schedule_accepts(
    stores: Stores, run: RunSchedule
):
    name = create(stores, "poi", accept_duplicates=True)
    schedule, _ = parse(stores.schedules.get(name).declaration)
    assert schedule is not None

    assert run(name).accepts_duplicates
    # a delta would refuse it
    assert not scope_now(schedule, Mode.DELTA).accept_duplicates


def test_a_run_begins_an_import_now_and_is_a_fire_of_its_own(
    stores: Stores, run: RunSchedule, events: list[object]
):
    name = create(stores, "poi")
    before = stores.schedules.get(name)

    begun = run(name)

    (fire,) = stores.schedules.fires(name, limit=10)
    assert (fire.import_id, fire.fire_at) == (begun.id, NOON)
    assert fire.request
    assert stores.schedules.get(name).next_run_at == before.next_run_at
    assert stores.schedules.get(name).last_run_at == NOON
    assert stores.plans.claim(begun.id, ANN) is not None
    assert [type(each) for each in events] == [ScheduleFired]


def test_a_paused_schedule_is_run_and_stays_paused(stores: Stores, run: RunSchedule):
    name = create(stores, "poi", paused=True)

    run(name)

    assert stores.schedules.get(name).status is ScheduleStatus.PAUSED


def test_a_run_does_not_adopt_an_unfinished_import(stores: Stores, run: RunSchedule):
    name = create(stores, "poi")
    begun = run(name)

    with pytest.raises(Conflict, match=rf"import {begun.id} of 'poi' \(full\) is unfi"):
        run(name)

    assert len(stores.schedules.fires(name, limit=10)) == 1


def test_a_run_of_a_backfill_reaches_from_the_previous_fire_to_now(
    stores: Stores, run: RunSchedule, clock: Clock
):
    name = create(stores, "visits", mode="backfill")
    clock.pass_time(HOUR / 2)

    begun = run(name)

    assert begun.mode is Mode.BACKFILL
    assert (begun.since, begun.until) == (NOON, NOON + HOUR / 2)


def test_a_range_can_be_imported_again(stores: Stores, run: RunSchedule):
    name = create(stores, "visits")
    first = run.backfill(name, NOON - DAY, NOON)
    stores.imports.cancel(first.id, reason="to make room")

    second = run.backfill(name, NOON - DAY, NOON)

    assert (second.since, second.until) == (NOON - DAY, NOON)
    fires = stores.schedules.fires(name, limit=10)
    assert [fire.import_id for fire in fires] == [second.id, first.id]
    assert {fire.fire_at for fire in fires} == {NOON}


@pytest.mark.parametrize(
    ("name", "message"),
    [("shops", "files, which are imported as a whole"), ("poi", "has no time axis")],
)
def test_a_dataset_without_time_ranges_has_no_backfill(
    stores: Stores, run: RunSchedule, name: str, message: str
):
    create(stores, name)

    with pytest.raises(Misconfigured, match=message):
        run.backfill(name, NOON - DAY, NOON)

    assert stores.schedules.fires(name, limit=10) == []


def test_a_broken_schedule_says_why_it_does_not_run(stores: Stores, run: RunSchedule):
    name = create(stores, "gone")

    with pytest.raises(Conflict, match="broken: dataset 'gone' is not declared"):
        run(name)


def test_a_retired_schedule_does_not_run(stores: Stores, run: RunSchedule):
    schedule, _ = parse_schedule("poi", {"dataset": "poi", "every": "1h"}, DATASETS)
    assert schedule is not None
    declaration = ScheduleDeclaration(
        name=schedule.name,
        dataset=schedule.dataset,
        fields={"dataset": "poi", "every": "1h"},
    )
    stores.schedules.declare([(schedule, declaration)], at=NOON)
    stores.schedules.declare([], at=NOON)

    with pytest.raises(Conflict, match="no longer declared"):
        run("poi")
