"""Other processes that run a command of ours, and stop when we do."""

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from typing import IO, NoReturn, Protocol

STDIN, STDOUT, STDERR = range(3)
# files beside these three that a process may have open
MOST_FILES = 65_536
# seconds between two looks whether a process has ended
LOOK_EVERY = 0.01


class Process(Protocol):
    """What `subprocess.Popen` and our own copies have in common."""

    @property
    def pid(self) -> int: ...

    # whoever is on a leash reads it: it closes with us, also if we are killed
    @property
    def stdin(self) -> IO[str] | None: ...

    def poll(self) -> int | None: ...

    def send_signal(self, sig: int) -> None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


def spawned(command: Sequence[str], log: IO[str]) -> Process:
    """Run a command in a new process."""
    return subprocess.Popen(  # noqa: S603 (our own command)
        [sys.executable, "-m", "penstock", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=log,
        text=True,
    )


def copied(command: Sequence[str], log: IO[str]) -> Process:
    """Run a command in a copy of this process, which has loaded most that it needs.

    A lock that another thread holds would stay locked in a copy, and not on every
    system do libraries bear to be copied: there, and beside threads, it is a new one.
    """
    if sys.platform != "linux" or threading.active_count() > 1:
        return spawned(command, log)
    return Copy(command, log)


class Copy:
    """A forked process."""

    def __init__(self, command: Sequence[str], log: IO[str]) -> None:
        reading, writing = os.pipe()
        # what is not written yet would be written twice
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            try:
                become(command, reading, log.fileno())
            finally:
                # whatever happened: a copy never goes on with what we do
                os._exit(1)
        os.close(reading)
        self.stdin: IO[str] | None = os.fdopen(writing, "w")
        self._status: int | None = None

    def poll(self) -> int | None:
        if self._status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                # where the end of children is ignored, the system keeps none
                pid, status = self.pid, 0
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def send_signal(self, sig: int) -> None:
        # its number may be another's once its end was heard of
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        began = time.monotonic()
        while (status := self.poll()) is None:
            if timeout is not None and time.monotonic() > began + timeout:
                raise subprocess.TimeoutExpired("penstock", timeout)
            time.sleep(LOOK_EVERY)
        return status


def become(command: Sequence[str], reading: int, log: int) -> NoReturn:
    """Run a command to its end, and nothing of what this copy was doing."""
    code = 1
    try:
        from penstock.entrypoints.cli import main

        # first of all: where we had no input, the log is in its place
        os.dup2(log, STDERR)
        os.dup2(reading, STDIN)
        os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)
        # the leashes of others among them, which would not close with us
        os.closerange(STDERR + 1, MOST_FILES)
        sys.argv[1:] = command
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 (the top of a process)
        traceback.print_exc()
    try:
        sys.stderr.flush()
    finally:
        os._exit(code)
