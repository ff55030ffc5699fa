"""Processes that serve one socket: kept at their number, and stopped together."""

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
from penstock.entrypoints.api.accept_balancing import ConnectionCounts
from penstock.entrypoints.api.server import LONGEST_END
from penstock.errors import PenstockError
from penstock.ports import Emit, Halt

# what a process writes when it serves
READY = b"ready\n"
# the file of how many connections each has
COUNTS = "connections"
# seconds between two looks, and the least that a process lives before it is replaced
LOOK_EVERY, REST = 0.1, 1.0
# seconds beyond those that a process is given to end by itself
MERCY = 5.0


@dataclass(frozen=True, slots=True)
class Place:
    """What one process is told of the others: the socket, its number, their folder."""

    socket: int
    number: int
    folder: Path

    @property
    def counts(self) -> Path:
        """Where the processes count their connections."""
        return self.folder / COUNTS

    def __str__(self) -> str:
        return f"{self.socket}:{self.number}:{self.folder}"

    @classmethod
    def read(cls, text: str) -> "Place":
        number, place, folder = text.split(":", 2)
        return cls(int(number), int(place), Path(folder))


class Staff:
    """The processes; each is this very command, told its place."""

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
        self._begun: dict[int, float] = {}

    def start(self, halt: Halt) -> None:
        """Start all, and wait until they serve, or somebody asks to stop."""
        for number in range(self._workers):
            self._start(number)
        for process in self._processes.values():
            while not is_heard(process) and not halt.is_set():
                continue
            if not halt.is_set() and not serves(process):
                raise PenstockError(
                    "a process that should serve came to an end before it did; "
                    "what it said of that stands above"
                )

    def look_after(self, halt: Halt) -> None:
        """Replace those that die, until asked to stop."""
        while not halt.wait(LOOK_EVERY):
            for number, process in [*self._processes.items()]:
                status = process.poll()
                if status is not None:
                    # nothing is left to it any more
                    self._counts.close(number)
                # one that dies at once would be started again and again
                if status is not None and time.monotonic() > self._begun[number] + REST:
                    close_pipes(process)
                    self._emit(ServerReplaced(process=process.pid, status=status))
                    self._start(number)

    def stop(self, *, grace: float) -> None:
        """Let each finish what it has begun; whoever does not is killed."""
        # nobody is to come in by a door behind which nobody is
        self._listening.close()
        for process in self._processes.values():
            process.terminate()
        deadline = time.monotonic() + grace + LONGEST_END + MERCY
        for process in self._processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            close_pipes(process)

    def _start(self, number: int) -> None:
        place = Place(self._listening.fileno(), number, self._folder)
        self._begun[number] = time.monotonic()
        self._processes[number] = subprocess.Popen(  # noqa: S603 (our own command)
            [*self._command, "--place", str(place)],
            # closes with us, also if we are killed
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[self._listening.fileno()],
            # Ctrl-C is for us, who tell them
            process_group=0,
        )


def is_heard(process: subprocess.Popen[bytes]) -> bool:
    """Wait a moment for what a process says, or for its end."""
    pipes = [each for each in (process.stdout,) if each is not None]
    heard, _, _ = select.select(pipes, [], [], LOOK_EVERY)
    return bool(heard)


def serves(process: subprocess.Popen[bytes]) -> bool:
    return process.stdout is not None and process.stdout.read(len(READY)) == READY


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def stop_with_input() -> None:
    """Stop when standard input closes, as whoever has started us has ended."""

    def listen() -> None:
        # not by the buffer of `sys.stdin`, which nobody may hold when Python ends
        while os.read(sys.stdin.fileno(), 1024):
            continue
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=listen, name="leash", daemon=True).start()
