"""What every store of plans must do."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import (
    ImportId,
    ImportStatus,
    JobError,
    JobKind,
    JobStatus,
    Lease,
    Mode,
)
from penstock.domain.plan_cursor import PlanCursor
from penstock.domain.sharding.axes import Bounds, RangeAxis
from penstock.domain.sharding.shard import plan_shards
from penstock.errors import LeaseLost
from penstock.flow.plan import SHARD_BATCH
from penstock.ports import JobFilter, Plans, Stores
from tests.support.builders import (
    A_MOMENT,
    ANN,
    BEN,
    LEASE,
    MINUTE,
    NOON,
    begin,
    claim_any,
    dataset,
    jobs_of,
    last,
    planner,
    record,
    repeat,
    run,
)
from tests.support.racing import in_threads

POI = dataset()
DECLARED = {"poi": "d1"}
FULL = ImportScope(mode=Mode.FULL)


def due(stores: Stores) -> list[ImportId]:
    return [*stores.plans.due(declarations=DECLARED)]


def status(stores: Stores, import_id: ImportId) -> ImportStatus:
    return stores.imports.peek(import_id).status


NUMBERS = RangeAxis(name="ids", start=0, until=2 * SHARD_BATCH + 1, step=1)


class Killed(BaseException):
    """The process is gone: it handles nothing and releases nothing."""


class Gone:
    """What a process that was killed calls no more."""

    def __getattr__(self, name: str) -> Any:
        raise Killed


GONE: Any = Gone()


class KilledPlans:
    """Plans whose planner is killed after some batches."""

    def __init__(self, plans: Plans, *, after: int) -> None:
        self._plans = plans
        self._left = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plans, name)

    def add_shards(self, *args: Any, **named: Any) -> Lease:
        if not self._left:
            raise Killed
        self._left -= 1
        return self._plans.add_shards(*args, **named)


class CountedPlans:
    """Plans that count the shards that are stored."""

    def __init__(self, plans: Plans) -> None:
        self._plans = plans
        self.stored = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plans, name)

    def add_shards(self, lease: Lease, keys: Sequence[str], *, cursor: str) -> Lease:
        self.stored += len(keys)
        return self._plans.add_shards(lease, keys, cursor=cursor)


class PlansContract:
    """Subclasses bring `stores` and `pass_time`."""

    @pytest.fixture
    def planned(self, stores: Stores) -> ImportId:
        """An import that nobody plans yet."""
        stores.schema.ensure_table(POI)
        return begin(stores, POI).id

    def test_others_find_a_plan_if_nobody_has_claimed_it_for_a_while(
        self, stores: Stores, planned: ImportId, pass_time: Callable[[timedelta], None]
    ):
        assert due(stores) == []
        pass_time(MINUTE)
        assert due(stores) == [planned]
        assert stores.plans.due(declarations={"poi": "another"}) == []

        assert stores.plans.claim(planned, ANN)

        assert due(stores) == []

    def test_a_plan_is_claimed_at_once_by_who_began_the_import(
        self, stores: Stores, planned: ImportId
    ):
        lease = stores.plans.claim(planned, ANN)

        assert lease is not None
        assert (lease.import_id, lease.owner, lease.fence) == (planned, ANN, 1)
        assert lease.cursor is None
        assert stores.plans.claim(planned, BEN) is None

    def test_the_files_of_an_import_are_in_its_plan(self, stores: Stores):
        stores.schema.ensure_table(POI)
        begun = begin(stores, POI, files=("a.csv",))

        lease = stores.plans.claim(begun.id, ANN)

        assert lease is not None
        assert PlanCursor.decode(lease.cursor) == PlanCursor(files=("a.csv",))

    def test_of_many_planners_at_once_one_gets_a_plan(
        self, stores: Stores, planned: ImportId
    ):
        leases = in_threads(
            *(lambda: stores.plans.claim(planned, ANN) for _ in range(6))
        )

        assert sum(lease is not None for lease in leases) == 1

    def test_workers_do_not_get_a_plan(self, stores: Stores, planned: ImportId):
        assert claim_any(stores, DECLARED) is None
        lease = stores.plans.claim(planned, ANN)
        assert lease is not None
        stores.plans.add_shards(lease, ["a"], cursor="1")

        assert claim_any(stores, DECLARED) is None

    def test_a_planner_that_is_gone_is_followed_by_another(
        self, stores: Stores, planned: ImportId, pass_time: Callable[[timedelta], None]
    ):
        lease = stores.plans.claim(planned, ANN)
        assert lease is not None
        stores.plans.add_shards(lease, ["a", "b"], cursor="2")
        pass_time(LEASE + A_MOMENT)
        assert due(stores) == [planned]

        second = stores.plans.claim(planned, BEN)

        assert second is not None
        assert (second.fence, second.cursor, second.rescues) == (2, "2", 1)
        stores.plans.add_shards(second, ["b", "c"], cursor="3")
        stores.plans.finish(second)
        assert [job.shard_key for job in jobs_of(stores, planned)] == ["a", "b", "c"]
        assert status(stores, planned) is ImportStatus.RUNNING

    def test_a_lease_is_renewed_with_each_batch_and_in_between(
        self, stores: Stores, planned: ImportId, pass_time: Callable[[timedelta], None]
    ):
        lease = stores.plans.claim(planned, ANN)
        assert lease is not None
        for number in range(3):
            pass_time(LEASE / 2)
            lease = stores.plans.add_shards(lease, [str(number)], cursor="1")
            pass_time(LEASE / 2)
            stores.ledger.renew(lease)

        assert due(stores) == []
        stores.ledger.release(lease)
        assert due(stores) == [planned]

    def test_without_its_lease_a_planner_writes_nothing(
        self, stores: Stores, planned: ImportId, pass_time: Callable[[timedelta], None]
    ):
        stale = stores.plans.claim(planned, ANN)
        assert stale is not None
        pass_time(LEASE + A_MOMENT)
        current = stores.plans.claim(planned, BEN)
        assert current is not None
        stores.plans.add_shards(current, ["a"], cursor="1")

        for write in (
            lambda: stores.plans.add_shards(stale, ["b"], cursor="9"),
            lambda: stores.plans.restart(stale, cursor="9"),
            lambda: stores.plans.finish(stale),
            lambda: stores.plans.repeat(POI, stale, of=planned),
            lambda: stores.plans.fail(stale, JobError(code="x", message="y")),
            lambda: stores.ledger.renew(stale),
        ):
            with pytest.raises(LeaseLost):
                write()

        assert [job.shard_key for job in jobs_of(stores, planned)] == ["a"]
        assert status(stores, planned) is ImportStatus.PLANNING

    def test_a_cancelled_import_is_planned_no_further(
        self, stores: Stores, planned: ImportId, pass_time: Callable[[timedelta], None]
    ):
        lease = stores.plans.claim(planned, ANN)
        assert lease is not None
        stores.imports.cancel(planned, reason="not needed")

        with pytest.raises(LeaseLost):
            stores.plans.add_shards(lease, ["a"], cursor="1")

        pass_time(MINUTE)
        assert due(stores) == []
        assert stores.plans.claim(planned, BEN) is None
        assert jobs_of(stores, planned) == []

    def test_a_plan_begins_anew(self, stores: Stores, planned: ImportId):
        lease = stores.plans.claim(planned, ANN)
        assert lease is not None
        lease = stores.plans.add_shards(lease, ["a", "b"], cursor="2")

        lease = stores.plans.restart(lease, cursor="0")

        assert jobs_of(stores, planned) == []
        stores.plans.add_shards(lease, ["b"], cursor="1")
        assert [job.shard_key for job in jobs_of(stores, planned)] == ["b"]

    def test_a_repeat_leaves_nothing_of_what_was_stored(self, stores: Stores):
        of = run(stores, POI, last(record(1))).id
        begun = begin(stores, POI)
        lease = stores.plans.claim(begun.id, ANN)
        assert lease is not None
        stores.plans.add_shards(lease, ["other"], cursor="1")

        stores.plans.repeat(POI, lease, of=of)

        assert [job.shard_key for job in jobs_of(stores, begun.id)] == ["all"]
        assert status(stores, begun.id) is ImportStatus.DONE

    def test_a_finished_plan_is_a_job_that_is_done(
        self, stores: Stores, planned: ImportId
    ):
        lease = stores.plans.claim(planned, ANN)
        assert lease is not None
        stores.plans.add_shards(lease, ["a"], cursor="1")
        stores.plans.finish(lease)

        (plan,) = stores.jobs.find(
            JobFilter(import_id=planned, kind=JobKind.PLAN), after=None, limit=9
        )
        assert (plan.status, plan.fence, plan.lease_owner) == (
            JobStatus.DONE,
            1,
            None,
        )
        assert stores.imports.get(planned)[1].total == 1
        with pytest.raises(LeaseLost):
            stores.plans.finish(lease)

    def test_a_plan_that_fails_fails_its_import_until_it_is_retried(
        self, stores: Stores, planned: ImportId
    ):
        lease = stores.plans.claim(planned, ANN)
        assert lease is not None
        stores.plans.add_shards(lease, ["a"], cursor="1")

        stores.plans.fail(lease, JobError(code="rejected", message="no file"))

        ended = stores.imports.peek(planned)
        assert ended.status is ImportStatus.FAILED
        assert ended.note == "it could not be planned: no file"
        assert ended.finished_at is not None
        assert claim_any(stores, DECLARED) is None

        assert stores.jobs.retry(lease.job)

        assert status(stores, planned) is ImportStatus.PLANNING
        assert due(stores) == [planned]
        again = stores.plans.claim(planned, BEN)
        assert again is not None
        assert again.cursor == "1"

    def test_all_failed_jobs_of_an_import_include_its_plan(
        self, stores: Stores, planned: ImportId
    ):
        lease = stores.plans.claim(planned, ANN)
        assert lease is not None
        stores.plans.fail(lease, JobError(code="rejected", message="no file"))

        assert stores.jobs.problems()[0].failed_jobs == 1
        assert stores.jobs.retry_failed(planned, after=None, most=9) == [lease.job]
        assert status(stores, planned) is ImportStatus.PLANNING

    def test_a_plan_that_kills_its_planners_is_given_up(
        self, stores: Stores, planned: ImportId, pass_time: Callable[[timedelta], None]
    ):
        for _ in range(3):
            assert stores.plans.claim(planned, ANN)
            pass_time(LEASE + A_MOMENT)
        assert due(stores) == []
        assert stores.plans.claim(planned, BEN) is None

        stores.jobs.sweep()
        stores.plans.fail_lost()

        ended = stores.imports.peek(planned)
        assert ended.status is ImportStatus.FAILED
        assert "expired 3 times" in str(ended.note)

    def test_the_lease_of_a_planner_that_has_ended_expires_at_once(
        self, stores: Stores, planned: ImportId, pass_time: Callable[[timedelta], None]
    ):
        assert stores.plans.claim(planned, ANN)
        assert stores.jobs.lease_owners() == [ANN]

        stores.jobs.expire_leases([ANN])
        pass_time(A_MOMENT)

        assert due(stores) == [planned]

    def test_the_newest_import_may_be_one_that_was_never_planned(
        self, stores: Stores, planned: ImportId
    ):
        lease = stores.plans.claim(planned, ANN)
        assert lease is not None
        stores.plans.fail(lease, JobError(code="rejected", message="no file"))
        assert stores.imports.newest("poi", planned=True) is None
        done = run(stores, POI, last(record(1)))
        begun = begin(stores, POI)

        newest = stores.imports.newest("poi")
        newest_planned = stores.imports.newest("poi", planned=True)

        assert newest is not None
        assert newest.id == begun.id
        assert newest_planned == done

    def test_a_repeated_import_is_not_planned(self, stores: Stores):
        of = run(stores, POI, last(record(1))).id
        begun = begin(stores, POI)
        repeat(stores, POI, begun.id, of)

        assert stores.plans.claim(begun.id, ANN) is None

    @pytest.mark.parametrize("batches", [0, 1, 2])
    def test_another_planner_goes_on_behind_what_was_stored(
        self,
        stores: Stores,
        pass_time: Callable[[timedelta], None],
        batches: int,
    ):
        """However far a killed planner was, the shards are those of one plan."""
        numbers = replace(POI, axes=(NUMBERS,))
        stores.schema.ensure_table(numbers)
        killed: Any = KilledPlans(stores.plans, after=batches)
        with pytest.raises(Killed):
            planner(replace(stores, plans=killed, ledger=GONE), numbers)(
                numbers, FULL, declaration="d1"
            )
        pass_time(LEASE + A_MOMENT)
        counted: Any = CountedPlans(stores.plans)

        result = planner(replace(stores, plans=counted), numbers)(
            numbers, FULL, declaration="d1"
        )

        expected = [shard.key for shard in plan_shards((NUMBERS,), Bounds(until=NOON))]
        keys = [*stores.imports.shard_keys(result.planned.id)]
        assert keys == expected
        assert counted.stored == len(expected) - batches * SHARD_BATCH
        assert (result.resumed, result.planned.status) == (True, ImportStatus.RUNNING)

    def test_no_import_has_shards_of_two_readings(
        self, stores: Stores, pass_time: Callable[[timedelta], None]
    ):
        """What a killed planner read may have changed since."""
        numbers = replace(POI, axes=(NUMBERS,))
        stores.schema.ensure_table(numbers)
        killed: Any = KilledPlans(stores.plans, after=1)
        with pytest.raises(Killed):
            planner(replace(stores, plans=killed, ledger=GONE), numbers)(
                numbers, FULL, declaration="d1"
            )
        pass_time(LEASE + A_MOMENT)
        fewer = replace(NUMBERS, start=5_000)
        other = replace(POI, axes=(fewer,))

        result = planner(stores, other)(other, FULL, declaration="d1")

        expected = [shard.key for shard in plan_shards((fewer,), Bounds(until=NOON))]
        assert [*stores.imports.shard_keys(result.planned.id)] == expected
