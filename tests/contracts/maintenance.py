"""What every store promises of maintenance tasks."""

from datetime import timedelta

from penstock.ports import Stores
from penstock.ports.maintenance import TaskClaim, TaskName, TaskProgress
from tests.support.builders import A_MOMENT, ANN, BEN, HOUR, MINUTE, SECOND
from tests.support.racing import in_threads

UPKEEP, SPOOL = TaskName("upkeep"), TaskName("spool")
NOW = timedelta()
CLAIMANTS = 4


def claimed(
    stores: Stores, name: TaskName = UPKEEP, *, lasting: timedelta = MINUTE
) -> TaskClaim:
    stores.maintenance.waits([name], kinds=["retry"])
    claim = stores.maintenance.claim(name, owner=ANN, lasting=lasting)
    assert claim is not None
    return claim


class MaintenanceContract:
    """Subclasses bring `stores` and `pass_time`."""

    def test_a_new_task_is_due_at_once(self, stores: Stores):
        assert stores.maintenance.waits([UPKEEP, SPOOL]) == {UPKEEP: NOW, SPOOL: NOW}
        assert stores.maintenance.waits([UPKEEP]) == {UPKEEP: NOW}

    def test_of_many_that_claim_at_once_one_gets_it(self, stores: Stores):
        stores.maintenance.waits([UPKEEP])

        def claim() -> TaskClaim | None:
            return stores.maintenance.claim(UPKEEP, owner=ANN, lasting=MINUTE)

        claims = in_threads(*[claim] * CLAIMANTS)

        assert len([claim for claim in claims if claim is not None]) == 1

    def test_a_claimed_task_is_due_when_its_claim_expires(
        self, stores: Stores, pass_time
    ):
        first = claimed(stores, lasting=MINUTE)
        assert stores.maintenance.waits([UPKEEP]) == {UPKEEP: MINUTE}
        pass_time(MINUTE - A_MOMENT)
        assert stores.maintenance.claim(UPKEEP, owner=BEN, lasting=MINUTE) is None
        pass_time(A_MOMENT)

        second = stores.maintenance.claim(UPKEEP, owner=BEN, lasting=MINUTE)

        assert second is not None
        assert second.fence > first.fence

    def test_a_renewed_claim_lasts_longer(self, stores: Stores, pass_time):
        claim = claimed(stores, lasting=MINUTE)
        pass_time(MINUTE)

        assert stores.maintenance.renew(claim, lasting=MINUTE)

        assert stores.maintenance.waits([UPKEEP]) == {UPKEEP: MINUTE}

    def test_who_has_lost_a_claim_changes_nothing(self, stores: Stores, pass_time):
        lost = claimed(stores, lasting=MINUTE)
        pass_time(MINUTE)
        claimed(stores)
        before = stores.maintenance.tasks()
        progress = TaskProgress(cursor="7", counts={"retried": 7})

        assert not stores.maintenance.renew(lost, lasting=HOUR, progress=progress)
        assert not stores.maintenance.finish(
            lost, due_in=HOUR, error="late", progress=progress
        )

        assert stores.maintenance.tasks() == before

    def test_a_finished_task_is_due_after_its_interval(self, stores: Stores, pass_time):
        claim = claimed(stores)

        assert stores.maintenance.finish(claim, due_in=HOUR)
        assert not stores.maintenance.finish(claim, due_in=HOUR)
        assert not stores.maintenance.renew(claim, lasting=HOUR)

        assert stores.maintenance.waits([UPKEEP]) == {UPKEEP: HOUR}
        assert stores.maintenance.claim(UPKEEP, owner=BEN, lasting=MINUTE) is None
        pass_time(HOUR)
        assert stores.maintenance.claim(UPKEEP, owner=BEN, lasting=MINUTE)

    def test_a_task_shows_its_last_run_and_its_last_error(
        self, stores: Stores, pass_time
    ):
        began = stores.jobs.now()
        claim = claimed(stores)
        (running,) = stores.maintenance.tasks()
        assert (running.owner, running.last_run_at) == (ANN, began)
        assert (running.took, running.error, running.failed_at) == (None, None, None)
        pass_time(SECOND)
        stores.maintenance.finish(claim, due_in=MINUTE, error="no space left")
        pass_time(MINUTE)
        stores.maintenance.finish(claimed(stores), due_in=HOUR)

        (task,) = stores.maintenance.tasks()

        assert (task.name, task.kind, task.owner) == (UPKEEP, None, None)
        assert task.last_run_at == began + SECOND + MINUTE
        assert task.took == NOW
        assert (task.error, task.failed_at) == ("no space left", began + SECOND)
        assert task.due_at == began + SECOND + MINUTE + HOUR

    def test_an_expired_claim_has_no_owner(self, stores: Stores, pass_time):
        claimed(stores, lasting=MINUTE)
        pass_time(MINUTE)

        (task,) = stores.maintenance.tasks()

        assert task.owner is None

    def test_a_one_off_task_is_carried_on_where_it_was(self, stores: Stores, pass_time):
        name = stores.maintenance.submit("retry", {"dataset": "poi"})
        stores.maintenance.submit("drop", {})
        assert stores.maintenance.waits([], kinds=["retry"]) == {name: NOW}
        first = claimed(stores, name, lasting=MINUTE)
        assert (first.kind, first.payload) == ("retry", {"dataset": "poi"})
        assert first.progress == TaskProgress()
        progress = TaskProgress(cursor="7", counts={"retried": 7})
        stores.maintenance.renew(first, lasting=MINUTE, progress=progress)
        pass_time(MINUTE)

        second = claimed(stores, name)

        assert (second.payload, second.progress) == ({"dataset": "poi"}, progress)

    def test_a_one_off_task_that_has_ended_is_never_due(self, stores: Stores):
        name = stores.maintenance.submit("retry", {})
        progress = TaskProgress(counts={"retried": 9})

        stores.maintenance.finish(claimed(stores, name), due_in=None, progress=progress)

        assert stores.maintenance.waits([], kinds=["retry"]) == {}
        assert stores.maintenance.claim(name, owner=BEN, lasting=MINUTE) is None
        (task,) = stores.maintenance.tasks()
        assert (task.due_at, task.progress) == (None, progress)

    def test_tasks_that_nobody_runs_any_more_are_forgotten(
        self, stores: Stores, pass_time
    ):
        waiting = stores.maintenance.submit("retry", {})
        ended = stores.maintenance.submit("retry", {})
        stores.maintenance.finish(claimed(stores, ended), due_in=None)
        stores.maintenance.finish(claimed(stores), due_in=NOW)
        stores.maintenance.finish(claimed(stores, SPOOL), due_in=A_MOMENT)
        pass_time(HOUR)
        assert stores.maintenance.forget(unused=HOUR) == 0
        pass_time(A_MOMENT)

        assert stores.maintenance.forget(unused=HOUR) == 2

        left = {task.name for task in stores.maintenance.tasks()}
        assert left == {waiting, SPOOL}
