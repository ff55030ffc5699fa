"""Child processes that run a penstock command, and exit with this process."""

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
# file descriptors up to this one are closed in a forked process
MAX_FILES = 65_536
# seconds between two checks whether a process has exited
POLL_INTERVAL = 0.01


class Process(Protocol):
    """What `subprocess.Popen` and `ForkedProcess` have in common."""

    @property
    def pid(self) -> int: ...

    # read by `worker --leashed`: it closes with this process, also if that is killed
    @property
    def stdin(self) -> IO[str] | None: ...

    def poll(self) -> int | None: ...

    def send_signal(self, sig: int) -> None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


def spawn(command: Sequence[str], log: IO[str]) -> Process:
    """Run a command in a new process."""
    return subprocess.Popen(  # noqa: S603 (our own command)
        [sys.executable, "-m", "penstock", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=log,
        text=True,
    )


def fork(command: Sequence[str], log: IO[str]) -> Process:
    """Run a command in a fork of this process, which has imported most modules.

    A lock that another thread holds would stay locked in a fork, and not every system
    has libraries that can be forked: in these cases a new process is spawned.
    """
    if sys.platform != "linux" or threading.active_count() > 1:
        return spawn(command, log)
    return ForkedProcess(command, log)


class ForkedProcess:
    """A forked process, with the interface of `subprocess.Popen`."""

    def __init__(self, command: Sequence[str], log: IO[str]) -> None:
        reading, writing = os.pipe()
        # buffered output would be written twice
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            try:
                run_in_child(command, reading, log.fileno())
            finally:
                # the child must never continue with the code of the parent
                os._exit(1)
        os.close(reading)
        self.stdin: IO[str] | None = os.fdopen(writing, "w")
        self._status: int | None = None

    def poll(self) -> int | None:
        if self._status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                # with SIGCHLD ignored, the system keeps no exit status
                pid, status = self.pid, 0
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def send_signal(self, sig: int) -> None:
        # once reaped, its pid may belong to another process
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
            time.sleep(POLL_INTERVAL)
        return status


def run_in_child(command: Sequence[str], reading: int, log: int) -> NoReturn:
    """Run a command in the forked child, and exit."""
    code = 1
    try:
        from penstock.entrypoints.cli import main

        # first: if standard input was closed, the log may have its descriptor
        os.dup2(log, STDERR)
        os.dup2(reading, STDIN)
        os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)
        # among them the input pipes of other workers, which must close with the parent
        os.closerange(STDERR + 1, MAX_FILES)
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
