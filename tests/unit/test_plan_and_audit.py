"""A plan is stored once and resumed; an audit judges it by what it was planned from."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from penstock.adapters.csv.source import CsvSourceReader
from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.domain.budget import unlimited_budget
from penstock.domain.dataset import Dataset, Delta, Missing, WhenMissing
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import ImportStatus, Mode
from penstock.domain.sharding.axes import (
    FileAxis,
    ListAxis,
    RangeAxis,
    TimeAxis,
    ValuesFrom,
)
from penstock.domain.sharding.parts import Slice
from penstock.domain.source import CsvSource
from penstock.errors import Interrupted, Misconfigured, NotFound
from penstock.flow.audit import Audit, CoverageFlaw
from penstock.flow.plan import DryRun, Plan
from penstock.ports import KeepAlive, ScannedSlices
from tests.support.builders import (
    NOON,
    SECOND,
    Clock,
    claim,
    claim_any,
    claim_plan,
    dataset,
    last,
    record,
    run,
    sqlite_stores,
)

FULL = ImportScope(mode=Mode.FULL)
RANGE = RangeAxis(name="id", start=0, until=100, step=50, send_from="f")
POI = dataset(axes=(RANGE,))


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def stores(tmp_path, clock):
    database = SqliteDatabase(tmp_path / "plan.db", clock=clock)
    opened = sqlite_stores(database)
    opened.schema.migrate()
    yield opened
    database.close()


def planner(stores, *datasets: Dataset) -> Plan:
    for each in datasets:
        stores.schema.ensure_table(each)
    return Plan(
        datasets={each.name: each for each in datasets},
        stores=stores,
        claim=claim_plan(stores),
        survey=lambda *_: FileAxis(),
        emit=lambda _: None,
    )


def finish(stores, of: Dataset) -> None:
    """Import every job of a dataset with one record each."""
    while lease := claim_any(stores, {of.name: "d1"}):
        stores.ledger.commit_page(of, lease, last(record(int(lease.job))))
        stores.imports.close(of, lease.import_id, failed=None)


def audit(stores, of: Dataset, declaration="d1"):
    checked = Audit(imports=stores.imports, jobs=stores.jobs)
    return checked(of, declaration=declaration)


def test_an_unfinished_import_of_the_same_kind_is_resumed_not_doubled(stores):
    plan = planner(stores, POI)

    first = plan(POI, FULL, declaration="d1")
    second = plan(POI, FULL, declaration="d1")

    assert (first.resumed, second.resumed) == (False, True)
    assert (second.planned.id, second.shards) == (first.planned.id, 2)


def test_an_import_planned_under_another_declaration_is_not_resumed(stores):
    plan = planner(stores, POI)
    plan(POI, FULL, declaration="d1")

    with pytest.raises(Misconfigured, match="penstock imports cancel 1"):
        plan(POI, FULL, declaration="d2")


def test_the_same_delta_is_resumed_though_its_bound_was_rounded(stores):
    daily = dataset(delta=Delta(send="since", field=("at",), format="%Y-%m-%d"))
    plan = planner(stores, daily)
    request = ImportScope(mode=Mode.DELTA, since=NOON)

    plan(daily, request, declaration="d1")

    assert plan(daily, request, declaration="d1").resumed


def test_an_import_of_nothing_is_refused_and_leaves_nothing_running(stores):
    axis = TimeAxis(name="w", start=NOON, step=timedelta(hours=1), send_until="u")
    nothing = dataset(axes=(axis,))

    with pytest.raises(Misconfigured, match="no shard"):
        planner(stores, nothing)(nothing, FULL, declaration="d1")

    ((known, shards),) = stores.imports.recent(dataset="poi", limit=9)
    assert (known.status, shards.total) == (ImportStatus.CANCELLED, 0)


def test_a_parent_without_values_is_named_before_anything_is_stored(stores):
    regions = dataset("regions")
    axis = ListAxis(name="r", values=ValuesFrom(dataset="regions", field="id"))
    child = dataset(axes=(axis,))

    with pytest.raises(Misconfigured, match="penstock run regions"):
        planner(stores, regions, child)(child, FULL, declaration="d1")

    assert stores.imports.recent(dataset="poi", limit=9) == []


def test_a_finished_import_is_complete(stores):
    planner(stores, POI)(POI, FULL, declaration="d1")
    finish(stores, POI)

    found = audit(stores, POI)

    assert found.complete
    assert (found.shards, found.pages) == (2, 2)


def test_without_an_import_there_is_nothing_to_audit(stores):
    with pytest.raises(NotFound, match="penstock run poi"):
        audit(stores, POI)


def test_a_changed_declaration_is_one_finding_and_no_crash(stores):
    planner(stores, POI)(POI, FULL, declaration="d1")
    finish(stores, POI)
    changed = replace(POI, axes=(RANGE, ListAxis(name="c", values=("a",), send="c")))

    found = audit(stores, changed, declaration="d2")

    assert [each.flaw for each in found.findings] == [CoverageFlaw.REDECLARED]


def test_a_split_is_judged_by_its_own_axis_whatever_smallest_says_now(stores):
    times = TimeAxis(
        name="w",
        start=NOON - timedelta(hours=2),
        until=NOON,
        step=timedelta(hours=2),
        smallest=timedelta(hours=2),
        send_from="f",
        send_until="u",
    )
    both = dataset(axes=(times, replace(RANGE, step=100)))
    planner(stores, both)(both, FULL, declaration="d1")
    lease = claim(stores, both)
    window = lease.shard_key.partition("|")[0]
    stores.ledger.split(lease, [f"{window}|id:0..50", f"{window}|id:50..100"])
    finish(stores, both)

    smaller = replace(times, smallest=timedelta(minutes=1))
    found = audit(stores, replace(both, axes=(smaller, both.axes[1])))

    assert found.complete


def test_a_child_that_a_split_lost_is_a_gap(stores):
    planner(stores, POI)(POI, FULL, declaration="d1")
    stores.ledger.split(claim(stores, POI), ["id:0..25"])
    finish(stores, POI)

    found = audit(stores, POI)

    assert [(each.flaw, each.shard) for each in found.findings] == [
        (CoverageFlaw.GAP, "id:25..50")
    ]


def test_a_parent_that_grew_since_is_no_gap(stores, clock):
    regions = dataset("regions")
    axis = ListAxis(name="r", values=ValuesFrom(dataset="regions", field="id"))
    child = dataset(axes=(axis,))
    plan = planner(stores, regions, child)
    run(stores, regions, last(record(1), record(2)))
    plan(child, FULL, declaration="d1")
    finish(stores, child)
    clock.pass_time(SECOND)
    run(stores, regions, last(record(1), record(2), record(3)))

    assert audit(stores, child).complete


def test_marking_that_begins_in_mid_import_marks_nothing(stores, clock):
    stored = dataset()
    run(stores, stored, last(record(1), record(2)))
    clock.pass_time(SECOND)
    planner(stores, stored)(stored, FULL, declaration="d1")
    lease = claim(stores, stored)
    marked = replace(stored, missing=Missing(do=WhenMissing.MARK, max_drop=1.0))
    stores.ledger.commit_page(marked, lease, last(record(1)))

    ended = stores.imports.close(marked, lease.import_id, failed=None)

    assert ended is not None
    assert ended.proven
    assert ended.counts.deleted == 0
    assert stores.records.count(marked) == 2


def test_a_plan_that_is_interrupted_goes_on_where_it_was(stores):
    plan = planner(stores, POI)
    halt = threading.Event()
    halt.set()

    with pytest.raises(Interrupted):
        plan(POI, FULL, declaration="d1", halt=halt)

    assert plan(POI, FULL, declaration="d1").shards == 2


def test_a_dry_run_reads_files_once(stores):
    """They may be large, or have to be fetched."""
    polls = []

    def read(
        dataset: Dataset, still_here: KeepAlive, scanned: ScannedSlices
    ) -> FileAxis:
        polls.append(dataset.name)
        return FileAxis(slices=(part(1), part(2)))

    def part(number: int) -> Slice:
        return Slice(
            number=number,
            file=f"{number}.csv",
            size=9,
            fingerprint="f",
            start=0,
            end=9,
            line=1,
        )

    shops = dataset("shops", source=CsvSource(files=("*.csv",)), axes=(FileAxis(),))
    stores.schema.ensure_table(shops)
    plan = Plan(
        datasets={"shops": shops},
        stores=stores,
        claim=claim_plan(stores),
        survey=read,
        emit=print,
    )

    foreseen = DryRun(plan, stores.records)(shops, FULL, NOON)
    cost = foreseen.estimate(unlimited_budget("none"))
    shown = [*foreseen.shards(CsvSourceReader(shops))]

    assert polls == ["shops"]
    assert cost.shards == len(shown) == 2
    assert shown[0].first_request == "1.csv from byte 0, line 1, to byte 9"
