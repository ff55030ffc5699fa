"""Workers in this process and beside it, as one crew."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from penstock.entrypoints.worker.pool import (
    CompositeWorkerPool,
    ProcessWorkerPool,
    WorkerPool,
    spread,
)
from tests.support.builders import dataset


@dataclass
class Hand(WorkerPool):
    failure: str | None = None
    runs: bool = False
    is_ready: bool = False

    def prepare(self) -> None:
        self.is_ready = True

    def start(self) -> None:
        self.runs = True

    def is_alive(self) -> bool:
        return self.runs

    def stop(self) -> None:
        self.runs = False

    def failure_reason(self) -> str | None:
        return self.failure


def test_all_are_started_and_stopped_together():
    hands = [Hand(), Hand()]
    pool = CompositeWorkerPool(*hands)

    pool.start()
    started = [hand.runs for hand in hands]
    pool.stop()

    assert started == [True, True]
    assert [hand.runs for hand in hands] == [False, False]


def test_all_are_called_before_they_are_started():
    hands = [Hand(), Hand()]

    CompositeWorkerPool(*hands).prepare()

    assert [(hand.is_ready, hand.runs) for hand in hands] == [(True, False)] * 2


def test_a_pool_is_alive_as_long_as_one_of_it_is():
    assert CompositeWorkerPool(Hand(runs=False), Hand(runs=True)).is_alive()
    assert not CompositeWorkerPool(Hand(), Hand()).is_alive()


def test_what_went_wrong_with_any_of_it_is_reported():
    assert (
        CompositeWorkerPool(Hand(), Hand(failure="no memory")).failure_reason()
        == "no memory"
    )
    assert CompositeWorkerPool(Hand(), Hand()).failure_reason() is None


def test_as_many_jobs_are_worked_at_a_time_by_however_many_processes():
    assert spread(4, cores=1) == (1, 4)
    assert spread(4, cores=2) == (2, 2)
    assert spread(2, cores=2) == (2, 1)
    assert spread(4, cores=64) == (4, 1)


def test_jobs_that_cannot_be_shared_evenly_have_fewer_processes():
    assert spread(4, cores=3) == (2, 2)


def test_what_processes_log_is_returned_once_and_by_whole_lines(tmp_path):
    def begin(_: Sequence[str], logs: IO[str]) -> subprocess.Popen[str]:
        script = "printf 'one\\ntw' >&2; read go; printf 'o\\n' >&2"
        return subprocess.Popen(
            ["/bin/sh", "-c", script], stdin=subprocess.PIPE, stderr=logs, text=True
        )

    pool = ProcessWorkerPool(tmp_path, dataset(), workers=1, threads=1, begin=begin)
    pool.prepare()
    lines: list[str] = []

    def hear(count: int) -> None:
        while len(lines) < count:
            lines.extend(pool.new_lines())

    hear(1)
    pool.start()
    hear(2)
    pool.stop()

    assert lines == ["one", "two"]
    assert pool.new_lines() == []
