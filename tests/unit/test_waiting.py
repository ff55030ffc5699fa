"""An import that does not go on says what it waits for, and how long."""

from datetime import timedelta
from pathlib import Path

import pytest

from penstock.domain.budget import Budget
from penstock.domain.dataset import Dataset
from penstock.domain.jobs import ImportId
from penstock.domain.waiting import Waiting, WaitReason
from penstock.entrypoints.waiting_text import describe_waiting
from penstock.errors import StoreUnavailable
from penstock.flow.explain_waiting import ExplainWaiting
from penstock.ports import Stores
from tests.contracts.workers import announce
from tests.support.builders import (
    ANN,
    BEN,
    TIMEOUT,
    begin,
    budget,
    claim,
    dataset,
    job_of,
    last,
    open_sqlite,
    per_hour,
    plan,
    record,
    run,
)

IN_EUROPE = dataset(region="eu")
POI = dataset()
ALLOWED = budget(per_hour(3))
MINUTE = timedelta(minutes=1)


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    opened = open_sqlite(tmp_path / "penstock.db")
    opened.schema.migrate()
    opened.schema.ensure_table(POI)
    return opened


def explained(
    stores: Stores, import_id: ImportId, *, of: Dataset = POI
) -> Waiting | None:
    explain = ExplainWaiting(
        stores=stores, datasets={of.name: of}, budget=lambda _: ALLOWED, attempts=8
    )
    return explain(stores.imports.peek(import_id))


def reason(
    stores: Stores, import_id: ImportId, *, of: Dataset = POI
) -> WaitReason | None:
    waiting = explained(stores, import_id, of=of)
    return None if waiting is None else waiting.reason


def test_an_import_that_goes_on_waits_for_nothing(stores: Stores):
    import_id = plan(stores, POI, "a", "b")
    announce(stores, poi="d1")
    before = reason(stores, import_id)
    claim(stores, POI)

    assert (before, reason(stores, import_id)) == (None, None)


def test_one_that_has_ended_waits_for_nothing(stores: Stores):
    import_id = plan(stores, POI, "a")
    stores.budgets.stop("ocm", reason="401")

    stores.imports.cancel(import_id, reason="no more")

    assert reason(stores, import_id) is None


def test_one_that_is_being_planned_says_since_when(stores: Stores):
    begun = begin(stores, POI)

    waiting = explained(stores, begun.id)

    assert waiting is not None
    assert (waiting.reason, waiting.since) == (WaitReason.PLANNING, begun.created_at)


def test_a_closed_budget_says_why_and_until_when(stores: Stores):
    import_id = plan(stores, POI, "a")
    announce(stores, poi="d1")

    before = stores.jobs.now()
    stores.budgets.close("ocm", wait=MINUTE, reason="the provider answered 429")
    waiting = explained(stores, import_id)

    assert waiting is not None
    assert waiting.reason is WaitReason.BUDGET_CLOSED
    assert "the provider answered 429" in waiting.detail
    assert waiting.until is not None
    assert abs(waiting.until - stores.jobs.now() - MINUTE) < MINUTE / 2
    assert waiting.since is not None
    assert before <= waiting.since <= stores.jobs.now()


def test_a_stopped_budget_waits_for_an_operator(stores: Stores):
    import_id = plan(stores, POI, "a")

    before = stores.jobs.now()
    stores.budgets.stop("ocm", reason="the provider answered 401")
    waiting = explained(stores, import_id)

    assert waiting is not None
    assert (waiting.reason, waiting.until) == (WaitReason.BUDGET_STOPPED, None)
    assert waiting.since is not None
    assert before <= waiting.since <= stores.jobs.now()
    assert describe_waiting(waiting).endswith("then: penstock budgets open ocm")


def test_a_quota_that_is_used_up_says_until_when(stores: Stores):
    import_id = plan(stores, POI, "a")
    announce(stores, poi="d1")
    before = stores.jobs.now()
    for _ in range(3):
        assert reason(stores, import_id) is None
        stores.budgets.take(ALLOWED, longest=MINUTE)

    waiting = explained(stores, import_id)

    assert waiting is not None
    assert waiting.reason is WaitReason.BUDGET_USED_UP
    assert "3/h" in waiting.detail
    assert waiting.until is not None
    assert waiting.until > stores.jobs.now() + 30 * MINUTE
    # a quota is counted by the hundredth of its period
    assert waiting.since is not None
    assert before - MINUTE < waiting.since <= stores.jobs.now()


def test_a_store_of_budgets_that_is_away_is_named(stores: Stores):
    import_id = plan(stores, POI, "a")

    def away(_: Dataset) -> Budget:
        raise StoreUnavailable("redis at 127.0.0.1:9 is away")

    explain = ExplainWaiting(
        stores=stores, datasets={"poi": POI}, budget=away, attempts=8
    )
    waiting = explain(stores.imports.peek(import_id))

    assert waiting == Waiting(
        reason=WaitReason.STORE_AWAY, detail="redis at 127.0.0.1:9 is away"
    )


def test_workers_that_would_not_claim_are_distinguished(stores: Stores):
    import_id = plan(stores, IN_EUROPE, "a")
    found = [reason(stores, import_id, of=IN_EUROPE)]

    announce(stores, other="d1")
    found.append(reason(stores, import_id, of=IN_EUROPE))
    announce(stores, poi="another")
    found.append(reason(stores, import_id, of=IN_EUROPE))
    announce(stores, region="us", poi="d1")
    found.append(reason(stores, import_id, of=IN_EUROPE))
    announce(stores, region="eu", poi="d1")
    found.append(reason(stores, import_id, of=IN_EUROPE))
    announce(stores, poi="d1")
    found.append(reason(stores, import_id, of=IN_EUROPE))

    assert found == [
        *(WaitReason.NO_WORKER, WaitReason.NO_WORKER, WaitReason.OTHER_DECLARATION),
        *(WaitReason.NO_WORKER_IN_REGION, None, None),
    ]


def test_without_workers_an_import_waits_since_the_last_has_left(stores: Stores):
    import_id = plan(stores, POI, "a")
    first = explained(stores, import_id)
    announce(stores, ANN, poi="d1")
    announce(stores, BEN, other="d1")

    stores.workers.remove(ANN)
    left = stores.jobs.now()
    stores.workers.remove(BEN)
    later = explained(stores, import_id)

    assert first is not None
    assert first.since == stores.imports.peek(import_id).created_at
    assert later is not None
    assert later.reason is WaitReason.NO_WORKER
    assert later.since is not None
    assert first.since < later.since <= left


def test_shards_of_a_worker_that_stopped_reporting_say_so(stores: Stores):
    import_id = plan(stores, POI, "a", "b")
    announce(stores, ANN, poi="d1")
    announce(stores, BEN, poi="d1")
    lease = claim(stores, POI, owner=ANN)
    working = reason(stores, import_id)

    stores.workers.remove(ANN)
    waiting = explained(stores, import_id)

    assert working is None
    assert waiting is not None
    assert waiting.reason is WaitReason.WORKER_LOST
    assert waiting.since is not None
    assert waiting.since <= stores.jobs.now()
    assert waiting.until == job_of(stores, lease).lease_until
    assert waiting.until is not None
    assert describe_waiting(waiting).startswith(
        f"held by a worker that stopped reporting, until {waiting.until:%H:%M:%S} UTC ("
    )
    claim(stores, POI, owner=BEN)
    assert reason(stores, import_id) is None


def test_a_process_that_is_known_to_have_ended_does_not_report(stores: Stores):
    import_id = plan(stores, POI, "a")
    announce(stores, ANN, poi="d1")
    announce(stores, BEN, poi="d1")
    claim(stores, POI, owner=ANN)

    explain = ExplainWaiting(
        stores=stores,
        datasets={"poi": POI},
        budget=lambda _: ALLOWED,
        attempts=8,
        has_ended=lambda worker: worker == ANN,
    )
    waiting = explain(stores.imports.peek(import_id))

    assert waiting is not None
    assert waiting.reason is WaitReason.WORKER_LOST


def test_if_no_other_worker_is_running_both_is_said(stores: Stores):
    import_id = plan(stores, POI, "a")
    claim(stores, POI)

    waiting = explained(stores, import_id)

    assert waiting is not None
    assert waiting.reason is WaitReason.NO_WORKER
    assert waiting.detail == (
        "no worker of dataset 'poi' is running, "
        "and its shards are held by a worker that stopped reporting"
    )
    assert waiting.until is not None


def test_shards_that_are_tried_again_later_say_why(stores: Stores):
    import_id = plan(stores, POI, "a")
    announce(stores, poi="d1")

    stores.ledger.postpone(claim(stores, POI), TIMEOUT, delay=MINUTE, blame=True)
    waiting = explained(stores, import_id)

    assert waiting is not None
    assert waiting.reason is WaitReason.RETRYING
    assert waiting.detail == "timed out (attempt 1 of 8)"
    assert waiting.since is not None
    assert waiting.until is not None
    assert waiting.until - waiting.since >= MINUTE


def test_a_sentence_says_how_long_is_left(stores: Stores):
    now = stores.jobs.now().replace(microsecond=0)
    waiting = Waiting(
        reason=WaitReason.BUDGET_CLOSED, detail="it is closed", until=now + MINUTE
    )

    text = describe_waiting(waiting, now=now)

    assert text == f"it is closed, until {now + MINUTE:%H:%M:%S} UTC (0:01:00 left)"


def test_every_reason_is_explained_to_operators():
    page = Path("docs/howto/troubleshooting.md").read_text("utf-8")

    assert not [each for each in WaitReason if f"| `{each}` |" not in page]


def test_an_import_whose_rows_are_not_indexed_yet_says_so(stores: Stores):
    searched = dataset(search=("title",))
    first = run(stores, searched, last(record(1)))
    ended = run(stores, searched, last(record(2)))

    before = explained(stores, ended.id, of=searched)
    stores.schema.maintain(searched)

    assert before is not None
    assert before.reason is WaitReason.BUILDING_INDEXES
    assert before.since == ended.finished_at
    assert reason(stores, ended.id, of=searched) is None
    assert reason(stores, first.id, of=searched) is None
