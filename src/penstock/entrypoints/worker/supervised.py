"""A command that runs beside this process, and is started again when it exits."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from penstock.domain.events import ProcessRestarted
from penstock.ports import Emit

# seconds between two checks
POLL_INTERVAL = 0.2
# seconds until a process that exits at once is started again, doubled each time
MIN_RESTART_DELAY, MAX_RESTART_DELAY = 1.0, 30.0
# seconds for which a process must have run to count as working
MIN_UPTIME = 60.0
# seconds after SIGTERM before a process is killed: it finishes its pages
STOP_TIMEOUT = 60.0


@contextmanager
def supervised(command: Sequence[str], emit: Emit) -> Iterator[None]:
    """Run `penstock COMMAND --leashed` meanwhile, and stop it at the end."""
    process = SupervisedProcess([*command, "--leashed"], emit)
    process.start()
    try:
        yield
    finally:
        process.stop()


class SupervisedProcess:
    def __init__(self, command: Sequence[str], emit: Emit) -> None:
        self._command = command
        self._emit = emit
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="supervisor")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let it finish its pages; killed if that takes too long."""
        self._halt.set()
        self._thread.join()

    def _supervise(self) -> None:
        delay = MIN_RESTART_DELAY
        while not self._halt.is_set():
            started = time.monotonic()
            process = self._spawn()
            while process.poll() is None and not self._halt.wait(POLL_INTERVAL):
                continue
            status = stop(process)
            if self._halt.is_set():
                return
            if time.monotonic() - started > MIN_UPTIME:
                delay = MIN_RESTART_DELAY
            name = self._command[0]
            self._emit(ProcessRestarted(command=name, pid=process.pid, status=status))
            self._halt.wait(delay)
            delay = min(delay * 2, MAX_RESTART_DELAY)

    def _spawn(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(  # noqa: S603 (our own command)
            [sys.executable, "-m", "penstock", *self._command],
            # closed when this process ends, also if it is killed
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            # Ctrl-C reaches this process only, which then stops it
            process_group=0,
        )
        if process.stdin is not None:
            # its start signal
            process.stdin.write(b"\n")
            process.stdin.flush()
        return process


def stop(process: subprocess.Popen[bytes]) -> int:
    """End a process, if it has not exited; return its status."""
    process.terminate()
    try:
        return process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
    finally:
        if process.stdin is not None:
            process.stdin.close()
