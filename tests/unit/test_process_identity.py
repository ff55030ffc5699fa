"""A worker id says which process it is, and whether that has ended."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock.domain.jobs import WorkerId
from penstock.wiring.process_identity import has_ended, new_worker_id

CHILD = """
import sys
from penstock.wiring import new_worker_id
print(new_worker_id(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    """Run a process that prints a worker id and waits."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def worker_of(child: subprocess.Popen[str]) -> WorkerId:
    assert child.stdout is not None
    return WorkerId(child.stdout.readline().strip())


def test_a_process_has_ended_once_it_was_killed(child: subprocess.Popen[str]):
    worker = worker_of(child)
    running = has_ended(worker)

    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    unnoticed_by_its_parent = has_ended(worker)
    child.wait()

    assert (running, unnoticed_by_its_parent, has_ended(worker)) == (False, True, True)


def test_another_process_with_the_same_number_is_another(child: subprocess.Popen[str]):
    host, pid, space, started, token = worker_of(child).split(":")

    later = WorkerId(":".join([host, pid, space, str(int(started) - 1), token]))

    assert has_ended(later)


@pytest.mark.parametrize("part", [0, 2])
def test_of_another_host_or_namespace_nothing_is_known(
    child: subprocess.Popen[str], part: int
):
    worker = worker_of(child)
    child.kill()
    child.wait()
    parts = worker.split(":")
    parts[part] = "another"

    assert not has_ended(WorkerId(":".join(parts)))


@pytest.mark.parametrize(
    "worker", ["", "ann", "host:1:2f3a", "host:x:-:-:ab", "a:b:c:d:e:f"]
)
def test_ids_that_say_nothing_are_of_workers_that_may_run(worker: str):
    assert not has_ended(WorkerId(worker))


def test_two_ids_of_one_process_differ():
    assert new_worker_id() != new_worker_id()
