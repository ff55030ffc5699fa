"""Copies of a process that run a command of ours."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.entrypoints.worker.subprocesses import ForkedProcess, fork

CONFIG = """\
[penstock]
database = "sqlite:///poi.db"

[datasets.poi]
key = "id"

[datasets.poi.fields]
id = { type = "int" }

[datasets.poi.source]
type = "http"
url = "http://127.0.0.1:1/poi"
"""
WAITED = """
import sys, tempfile
from penstock.entrypoints.worker.subprocesses import ForkedProcess, fork
with tempfile.TemporaryFile("w+") as log:
    print("once")
    copy = fork(sys.argv[1:], log)
    assert isinstance(copy, ForkedProcess)
    print(copy.wait(30), copy.poll())
    log.seek(0)
    print(log.read())
"""
LEASHED = """
import tempfile, time
from penstock.entrypoints.worker.subprocesses import fork
with tempfile.TemporaryFile("w+") as log:
    copies = [fork(["worker", "--leashed"], log) for _ in range(2)]
    print(*[copy.pid for copy in copies], flush=True)
    time.sleep(60)
"""
linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere, no process is copied"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "penstock.toml").write_text(CONFIG)
    return tmp_path


def is_there(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    # one that has ended is listed until somebody asks for its end
    return status.rpartition(")")[2].split()[0] != "Z"


def waited(folder: Path, shell: str, *command: str) -> list[str]:
    """Return the lines of a process that waits for a copy which runs a command."""
    done = subprocess.run(
        ["sh", "-c", shell, "sh", sys.executable, "-c", WAITED, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout.splitlines()


@linux_only
@pytest.mark.parametrize(
    ("command", "status", "result"),
    [
        (["worker", "--until-idle"], 0, ""),
        (["worker", "--config", "none.toml"], 2, "penstock: none.toml"),
    ],
)
def test_a_copy_ends_as_the_command_does(folder, command, status, result):
    first, ended, *rest = waited(folder, 'exec "$@"', *command)

    assert (first, ended) == ("once", f"{status} {status}")
    assert result in "\n".join(rest)


@linux_only
def test_a_process_without_input_hears_what_its_copy_says(folder):
    _, ended, *rest = waited(folder, 'exec "$@" <&-', "worker", "--config", "none.toml")

    assert ended == "2 2"
    assert "penstock: none.toml" in "\n".join(rest)


@linux_only
def test_where_the_end_of_children_is_ignored_it_is_noticed_all_the_same(folder):
    _, ended, *_ = waited(folder, "trap '' CHLD; exec \"$@\"", "worker", "--until-idle")

    assert ended == "0 0"


@linux_only
def test_copies_end_with_a_process_that_is_killed(folder):
    with subprocess.Popen(
        [sys.executable, "-c", LEASHED], cwd=folder, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pids = [*map(int, process.stdout.readline().split())]
        assert all(map(is_there, pids))
        process.kill()

    deadline = time.monotonic() + 30
    while any(map(is_there, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [pid for pid in pids if is_there(pid)]
    for pid in left:
        os.kill(pid, 9)
    assert len(pids) == 2
    assert left == []


def test_beside_threads_a_new_process_is_started(tmp_path, folder, monkeypatch):
    monkeypatch.setattr("threading.active_count", lambda: 2)

    with (tmp_path / "log").open("w+") as log:
        process = fork(["--version"], log)
        assert process.wait(30) == 0

    assert not isinstance(process, ForkedProcess)
    assert process.stdin is not None
    process.stdin.close()
