"""The supervisor of the processes that serve one socket."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.domain.events import ServerReplaced
from penstock.entrypoints.api.server.accept_balancing import ConnectionCounts
from penstock.entrypoints.api.server.uvicorn_server import SHUTDOWN_TIMEOUT
from penstock.errors import PenstockError
from penstock.ports import Emit, StopSignal

# a process writes this to standard output when it serves
READY = b"ready\n"
# the file with the number of connections of each process
COUNTS = "connections"
# seconds between two checks, and the least between two starts of a process
POLL_INTERVAL, MIN_UPTIME = 0.1, 1.0
# seconds after its own shutdown timeout before a process is killed
KILL_DELAY = 5.0


@dataclass(frozen=True, slots=True)
class WorkerSlot:
    """The arguments of one process: shared socket, its number, shared folder."""

    # a file descriptor
    socket: int
    number: int
    folder: Path

    @property
    def counts(self) -> Path:
        """The file in which the processes count their connections."""
        return self.folder / COUNTS

    def __str__(self) -> str:
        return f"{self.socket}:{self.number}:{self.folder}"

    @classmethod
    def parse(cls, text: str) -> "WorkerSlot":
        descriptor, number, folder = text.split(":", 2)
        return cls(int(descriptor), int(number), Path(folder))


class Supervisor:
    """Starts, replaces and stops the processes; each runs this command with a slot."""

    def __init__(
        self,
        command: Sequence[str],
        listening: socket.socket,
        *,
        workers: int,
        folder: Path,
        emit: Emit,
    ) -> None:
        self._command = command
        self._listening = listening
        self._folder = folder
        self._emit = emit
        self._workers = workers
        self._counts = ConnectionCounts.create(folder / COUNTS, processes=workers)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._started: dict[int, float] = {}

    def start(self, halt: StopSignal) -> None:
        """Start all processes, and wait until they serve, or `halt` is set."""
        for number in range(self._workers):
            self._start(number)
        for process in self._processes.values():
            while not has_output(process) and not halt.is_set():
                continue
            if not halt.is_set() and not serves(process):
                raise PenstockError(
                    "a process exited before it could serve; its error is above"
                )

    def supervise(self, halt: StopSignal) -> None:
        """Replace processes that die, until `halt` is set."""
        while not halt.wait(POLL_INTERVAL):
            for number, process in [*self._processes.items()]:
                status = process.poll()
                if status is not None:
                    # the others no longer leave connections to it
                    self._counts.close(number)
                # a process that dies at once must not be restarted in a tight loop
                if (
                    status is not None
                    and time.monotonic() > self._started[number] + MIN_UPTIME
                ):
                    close_pipes(process)
                    self._emit(ServerReplaced(process=process.pid, status=status))
                    self._start(number)

    def stop(self, *, grace: float) -> None:
        """Let each finish its requests; a process that takes too long is killed."""
        # new connections are refused rather than left in the backlog
        self._listening.close()
        for process in self._processes.values():
            process.terminate()
        deadline = time.monotonic() + grace + SHUTDOWN_TIMEOUT + KILL_DELAY
        for process in self._processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            close_pipes(process)

    def _start(self, number: int) -> None:
        slot = WorkerSlot(self._listening.fileno(), number, self._folder)
        self._started[number] = time.monotonic()
        self._processes[number] = subprocess.Popen(  # noqa: S603 (our own command)
            [*self._command, "--place", str(slot)],
            # closed when this process ends, also if it is killed
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[self._listening.fileno()],
            # Ctrl-C reaches this process only, which then stops them
            process_group=0,
        )


def has_output(process: subprocess.Popen[bytes]) -> bool:
    """Wait a moment for output of a process, or for its end."""
    pipes = [pipe for pipe in (process.stdout,) if pipe is not None]
    readable, _, _ = select.select(pipes, [], [], POLL_INTERVAL)
    return bool(readable)


def serves(process: subprocess.Popen[bytes]) -> bool:
    return process.stdout is not None and process.stdout.read(len(READY)) == READY


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def stop_on_closed_stdin() -> None:
    """Stop when standard input is closed, as the parent process has ended."""

    def listen() -> None:
        # not through `sys.stdin`, whose buffer must not be locked when Python exits
        while os.read(sys.stdin.fileno(), 1024):
            continue
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=listen, name="stdin", daemon=True).start()
