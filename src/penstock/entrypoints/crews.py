"""Workers that one command starts and stops: threads here, or processes."""

import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol, TypeAlias

from typing_extensions import override

from penstock.domain.dataset import Dataset
from penstock.domain.source import CsvSource
from penstock.entrypoints.processes import Process, spawned
from penstock.entrypoints.threads import work_in_threads
from penstock.settings import Settings
from penstock.wiring import Penstock

# jobs worked at a time: most of the time they wait for answers, and never for files,
# where more would only be in each other's way
OF_ANSWERS, OF_FILES = 4, 2
# runs a command in another process, whose errors go to a file
Begin: TypeAlias = Callable[[Sequence[str], IO[str]], Process]
# how long a process gets to finish its page before it is killed
GRACE = 60.0


def sized(
    settings: Settings, dataset: Dataset, *, workers: int | None, threads: int | None
) -> tuple[int, int]:
    """Return how many processes there are to be, and threads of each."""
    jobs = OF_FILES if isinstance(dataset.source, CsvSource) else OF_ANSWERS
    if workers is None and threads is None and is_boundless(settings, dataset):
        return spread(jobs, cores=cores())
    return workers or 1, threads or jobs


def is_boundless(settings: Settings, dataset: Dataset) -> bool:
    """Say whether only processors limit an import: no budget, and no single writer."""
    budget = dataset.source.budget
    is_limited = budget is not None and bool(settings.budgets[budget].limits)
    return settings.sqlite_path is None and not is_limited


def spread(jobs: int, *, cores: int) -> tuple[int, int]:
    """Return how many processes work so many jobs at a time, and threads of each."""
    processes = next(
        each for each in range(min(cores, jobs), 0, -1) if jobs % each == 0
    )
    return processes, jobs // processes


def cores() -> int:
    """Return on how many processors we may run."""
    allowed = getattr(os, "sched_getaffinity", None)
    return (os.cpu_count() or 1) if allowed is None else len(allowed(0))


class Crew(Protocol):
    """Workers for one dataset."""

    def call(self) -> None:
        """Let them get ready, and do nothing yet."""
        return

    def start(self) -> None: ...

    def is_alive(self) -> bool: ...

    def stop(self) -> None:
        """Let each finish its page and release its job, then wait for it."""
        ...

    def new_lines(self) -> Sequence[str]:
        """Return what workers that log elsewhere have logged since the last call."""
        return []

    def complaint(self) -> str | None:
        """Return what went wrong, if the workers ended by themselves."""
        ...


class ThreadCrew(Crew):
    """Threads in this process."""

    def __init__(self, penstock: Penstock, dataset: Dataset, *, threads: int) -> None:
        self._penstock = penstock
        self._dataset = dataset
        self._threads = threads
        self._halt = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="crew", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            work_in_threads(
                self._penstock,
                {self._dataset.name: self._dataset},
                threads=self._threads,
                halt=self._halt,
            )
        except Exception as error:  # noqa: BLE001 (told by `complaint`)
            self._error = error

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._halt.set()
        if self._thread.is_alive():
            self._thread.join(GRACE)

    def complaint(self) -> str | None:
        return None if self._error is None else str(self._error)


class MixedCrew(Crew):
    """Processes of their own, and threads in this one: it need not be started first."""

    def __init__(self, *crews: Crew) -> None:
        self._crews = crews

    def call(self) -> None:
        for crew in self._crews:
            crew.call()

    def start(self) -> None:
        for crew in self._crews:
            crew.start()

    def is_alive(self) -> bool:
        return any(crew.is_alive() for crew in self._crews)

    def stop(self) -> None:
        for crew in self._crews:
            crew.stop()

    @override
    def new_lines(self) -> Sequence[str]:
        return [line for crew in self._crews for line in crew.new_lines()]

    def complaint(self) -> str | None:
        told = (crew.complaint() for crew in self._crews)
        return next(filter(None, told), None)


class ProcessCrew(Crew):
    """Processes of their own, as they would run on other machines."""

    def __init__(
        self,
        config: Path,
        dataset: Dataset,
        *,
        workers: int,
        threads: int,
        begin: Begin = spawned,
    ) -> None:
        self._command = [
            *("worker", "--config", str(config)),
            *("--dataset", dataset.name),
            *("--threads", str(threads)),
            # a worker that outlived us would wait for work for ever
            "--leashed",
        ]
        self._workers = workers
        self._begin = begin
        # what they say, as long as there are any
        self._logs: IO[str] | None = None
        # how much of it was read by `new_lines`, in bytes
        self._read = 0
        # what was wrong when they were stopped
        self._told: str | None = None
        self.processes: list[Process] = []

    def call(self) -> None:
        if self._logs is None and self._workers:
            self._logs = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 (closed in stop)
        for _ in range(self._workers - len(self.processes)):
            assert self._logs is not None  # noqa: S101 (there are workers)
            self.processes.append(self._begin(self._command, self._logs))

    def start(self) -> None:
        self.call()
        for process in self.processes:
            assert process.stdin is not None  # noqa: S101 (see `call`)
            # one that has ended already is told by its complaint
            with suppress(BrokenPipeError):
                process.stdin.write("\n")
                process.stdin.flush()

    def is_alive(self) -> bool:
        return any(process.poll() is None for process in self.processes)

    def stop(self) -> None:
        if self._logs is None:
            return
        self._told = self.complaint()
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.close()
        self._logs.close()
        self._logs = None

    @override
    def new_lines(self) -> Sequence[str]:
        if self._logs is None:
            return []
        descriptor = self._logs.fileno()
        # by position: the processes write where the file is read up to
        added = os.fstat(descriptor).st_size - self._read
        text = os.pread(descriptor, added, self._read)
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode(errors="replace").splitlines()

    def complaint(self) -> str | None:
        if self._logs is None:
            return self._told
        if not any(process.poll() for process in self.processes):
            return None
        self._logs.seek(0)
        told = [line for line in self._logs if line.startswith("penstock: ")]
        if not told:
            return "some ended without a word"
        return told[-1].strip().removeprefix("penstock: ")
