"""The maintenance loop: each task is run by one process at a time."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.adapters.sqlstore.maintenance import SqlMaintenance
from penstock.domain.events import Event, MaintenanceFailed
from penstock.domain.jobs import WorkerId
from penstock.errors import Misconfigured
from penstock.flow.maintenance import (
    CLAIM_TIME,
    MAX_PAUSE,
    RENEW_INTERVAL,
    MaintenanceLoop,
    MaintenanceTask,
    OneOffTask,
    TaskKind,
    TaskRunner,
)
from penstock.ports import Stores
from penstock.ports.maintenance import TaskName, TaskProgress, TaskState
from tests.support.builders import (
    A_MOMENT,
    BEN,
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    Clock,
    sqlite_stores,
)
from tests.support.racing import in_threads
from tests.support.workshop import wait_until

UPKEEP, SLOW = TaskName("upkeep"), TaskName("slow")
PROCESSES = 8


@dataclass
class Bench:
    """Processes that share a database, and a clock for them all."""

    stores: Stores
    clock: Clock
    events: list[Event] = field(default_factory=list)
    loops: list[MaintenanceLoop] = field(default_factory=list)

    def loop(
        self, *tasks: MaintenanceTask, one_off: Mapping[str, OneOffTask] | None = None
    ) -> MaintenanceLoop:
        runner = TaskRunner(
            tasks={task.name: task for task in tasks},
            one_off=one_off or {},
            store=self.stores.maintenance,
            owner=WorkerId(f"process-{len(self.loops)}"),
            emit=self.events.append,
            redact=lambda text: text.replace("secret", "***"),
        )
        loop = MaintenanceLoop(runner, monotonic=self._seconds, jitter=lambda: 0)
        self.loops.append(loop)
        return loop

    def _seconds(self) -> float:
        return (self.clock.now - NOON).total_seconds()

    def task(self, name: TaskName = UPKEEP) -> TaskState:
        return next(
            task for task in self.stores.maintenance.tasks() if task.name == name
        )

    def pass_time(self, span: timedelta) -> None:
        self.clock.pass_time(span)

    def run(self, loop: MaintenanceLoop, name: TaskName = UPKEEP) -> TaskState:
        """Run what is due, and wait for the end of one task."""
        loop()
        wait_until(lambda: self.has_run(name))
        return self.task(name)

    def has_run(self, name: TaskName = UPKEEP) -> bool:
        task = self.task(name)
        return task.owner is None and task.last_run_at == self.clock.now


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    clock = Clock()
    database = SqliteDatabase(tmp_path / "penstock.db", clock=clock)
    stores = sqlite_stores(database)
    stores.schema.migrate()
    bench = Bench(stores, clock)
    yield bench
    for loop in bench.loops:
        loop.close()
    database.close()


def task(
    run: Callable[[], None],
    *,
    name: TaskName = UPKEEP,
    retry: timedelta | None = None,
    kind: TaskKind = TaskKind.QUICK,
) -> MaintenanceTask:
    return MaintenanceTask(
        name=name, interval=MINUTE, run=run, retry_interval=retry, kind=kind
    )


@dataclass
class Held:
    """A task that runs until it may end."""

    began: threading.Event = field(default_factory=threading.Event)
    end: threading.Event = field(default_factory=threading.Event)
    runs: int = 0

    def __call__(self) -> None:
        self.runs += 1
        self.began.set()
        assert self.end.wait(60)


class TestRunning:
    def test_of_many_processes_one_runs_what_is_due(self, bench: Bench):
        runs: list[int] = []
        loops = [bench.loop(task(lambda: runs.append(1))) for _ in range(PROCESSES)]
        for count in (1, 2):
            in_threads(*loops)
            wait_until(
                lambda: all(loop._threads[TaskKind.QUICK].is_idle for loop in loops)
            )
            assert len(runs) == count
            bench.pass_time(MINUTE)

    def test_a_task_runs_again_after_its_interval(self, bench: Bench):
        runs: list[int] = []
        loop = bench.loop(task(lambda: runs.append(1)))
        assert bench.run(loop).due_at == NOON + MINUTE
        bench.pass_time(MINUTE - A_MOMENT)
        loop()
        assert len(runs) == 1
        bench.pass_time(MAX_PAUSE)

        bench.run(loop)

        assert len(runs) == 2

    def test_an_error_is_stored_and_emitted_without_secrets(self, bench: Bench):
        def fail() -> None:
            raise Misconfigured("no folder for secret")

        loop = bench.loop(task(fail, retry=HOUR))

        failed = bench.run(loop)

        assert failed.error == "no folder for ***"
        assert failed.due_at == NOON + HOUR
        wait_until(lambda: bench.events)
        assert bench.events == [
            MaintenanceFailed(
                task=UPKEEP, worker=WorkerId("process-0"), error="no folder for ***"
            )
        ]

    def test_an_error_that_nobody_expects_ends_nothing(self, bench: Bench):
        runs: list[int] = []

        def fail() -> None:
            runs.append(1)
            raise ValueError("bug")

        loop = bench.loop(task(fail))
        assert bench.run(loop).error == "ValueError: bug"
        bench.pass_time(MINUTE)

        bench.run(loop)

        assert len(runs) == 2

    def test_quick_tasks_do_not_wait_for_slow_ones(self, bench: Bench):
        held = Held()
        quick = task(lambda: None)
        loop = bench.loop(task(held, name=SLOW, kind=TaskKind.SLOW), quick)
        loop()
        assert held.began.wait(60)
        bench.pass_time(MINUTE)

        bench.run(loop)

        held.end.set()


class CountedMaintenance(SqlMaintenance):
    reads = 0

    @override
    def waits(
        self, names: Sequence[TaskName], *, kinds: Sequence[str] = ()
    ) -> Mapping[TaskName, timedelta]:
        self.reads += 1
        return super().waits(names, kinds=kinds)


def count_reads(bench: Bench) -> CountedMaintenance:
    inner = bench.stores.maintenance
    assert isinstance(inner, SqlMaintenance)
    counted = CountedMaintenance(inner._database)
    bench.stores = replace(bench.stores, maintenance=counted)
    return counted


class TestClaims:
    def test_the_claim_of_a_long_task_is_renewed(self, bench: Bench):
        held, other = Held(), Held()
        loop, another = bench.loop(task(held)), bench.loop(task(other))
        loop()
        assert held.began.wait(60)

        for _ in range(2 * (CLAIM_TIME // RENEW_INTERVAL)):
            bench.pass_time(RENEW_INTERVAL)
            loop()
            another()

        assert bench.task().owner == "process-0"
        held.end.set()
        wait_until(lambda: bench.task().owner is None)
        assert other.runs == 0

    def test_another_continues_when_a_process_has_died(self, bench: Bench):
        bench.stores.maintenance.waits([UPKEEP])
        bench.stores.maintenance.claim(
            UPKEEP, owner=WorkerId("dead"), lasting=CLAIM_TIME
        )
        runs: list[int] = []
        loop = bench.loop(task(lambda: runs.append(1)))
        loop()
        bench.pass_time(CLAIM_TIME - A_MOMENT)
        loop()
        assert runs == []
        bench.pass_time(MAX_PAUSE)

        bench.run(loop)

        assert len(runs) == 1

    def test_an_idle_process_reads_once_until_something_is_due(self, bench: Bench):
        counted = count_reads(bench)
        loop = bench.loop(task(lambda: None))
        bench.run(loop)
        for _ in range(4):
            bench.pass_time(SECOND)
            loop()

        assert counted.reads == 1

    def test_a_process_reads_at_most_once_a_second(self, bench: Bench):
        """Also if it always comes a moment before others."""
        counted = count_reads(bench)
        loop = bench.loop(task(lambda: None))
        for _ in range(20):
            bench.stores.maintenance.waits([UPKEEP])
            bench.stores.maintenance.claim(UPKEEP, owner=BEN, lasting=SECOND / 5)
            loop()
            bench.pass_time(SECOND / 5)
        others = 20

        assert counted.reads - others == 4


def numbers(most: int, *, broken: list[bool]) -> OneOffTask:
    """Count to a number, and break once in the middle."""

    def count(
        payload: Mapping[str, Any], progress: TaskProgress
    ) -> Iterator[TaskProgress]:
        for number in range(int(progress.cursor or payload["from"]), most):
            if broken and number == most // 2:
                broken.clear()
                raise Misconfigured("broke off")
            done = progress.counts.get("done", 0) + 1
            progress = TaskProgress(cursor=str(number + 1), counts={"done": done})
            yield progress

    return count


class TestOneOffTasks:
    def test_one_is_carried_on_where_it_broke_off(self, bench: Bench):
        name = bench.stores.maintenance.submit("count", {"from": 0})
        count = {"count": numbers(10, broken=[True])}
        failed = bench.run(bench.loop(one_off=count), name)
        assert (failed.error, failed.progress.cursor) == ("broke off", "5")
        bench.pass_time(MINUTE)

        done = bench.run(bench.loop(one_off=count), name)

        assert done.due_at is None
        assert done.progress.counts == {"done": 10}

    def test_a_process_that_stops_leaves_the_rest_to_others(self, bench: Bench):
        name = bench.stores.maintenance.submit("count", {})
        reached, go_on = threading.Event(), threading.Event()

        def count(
            _: Mapping[str, Any], progress: TaskProgress
        ) -> Iterator[TaskProgress]:
            yield TaskProgress(cursor="1")
            reached.set()
            assert go_on.wait(60)
            yield TaskProgress(cursor="2")
            raise ValueError(progress)

        loop = bench.loop(one_off={"count": count})
        loop()
        assert reached.wait(60)
        loop._threads[TaskKind.SLOW].stop()
        go_on.set()
        loop.close()

        left = bench.task(name)

        assert (left.owner, left.error, left.due_at) == (None, None, NOON)
        assert left.progress.cursor == "2"

    def test_a_kind_that_a_process_does_not_know_is_left_to_others(self, bench: Bench):
        name = bench.stores.maintenance.submit("count", {"from": 0})

        bench.run(bench.loop(task(lambda: None)))

        assert bench.task(name).last_run_at is None
