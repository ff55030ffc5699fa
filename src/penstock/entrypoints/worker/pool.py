"""Worker pools that a command starts and stops: threads or processes."""

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
from penstock.entrypoints.worker.loop import work_in_threads
from penstock.entrypoints.worker.subprocesses import Process, spawn
from penstock.settings import Settings
from penstock.wiring import Container

# concurrent jobs of a process: those of an API mostly wait for responses, those of
# files never do, and more would only contend
API_JOBS, FILE_JOBS = 4, 2
# starts a penstock command in another process, with standard error in a file
StartProcess: TypeAlias = Callable[[Sequence[str], IO[str]], Process]
# seconds a process has to finish its page before it is killed
STOP_TIMEOUT = 60.0


def pool_size(
    settings: Settings, dataset: Dataset, *, workers: int | None, threads: int | None
) -> tuple[int, int]:
    """Return the number of processes, and of threads per process."""
    jobs = FILE_JOBS if isinstance(dataset.source, CsvSource) else API_JOBS
    if workers is None and threads is None and is_cpu_bound(settings, dataset):
        return spread(jobs, cores=cores())
    return workers or 1, threads or jobs


def is_cpu_bound(settings: Settings, dataset: Dataset) -> bool:
    """Return whether only CPUs limit an import: no budget, and no single writer."""
    budget = dataset.source.budget
    is_limited = budget is not None and bool(settings.budgets[budget].limits)
    return settings.sqlite_path is None and not is_limited


def spread(jobs: int, *, cores: int) -> tuple[int, int]:
    """Spread concurrent jobs evenly; return processes, and threads per process."""
    processes = next(
        count for count in range(min(cores, jobs), 0, -1) if jobs % count == 0
    )
    return processes, jobs // processes


def cores() -> int:
    """Return how many CPUs this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return (os.cpu_count() or 1) if allowed is None else len(allowed(0))


class WorkerPool(Protocol):
    """Workers for one dataset."""

    def prepare(self) -> None:
        """Let the workers start up; they run no jobs before `start`."""
        return

    def start(self) -> None: ...

    def is_alive(self) -> bool: ...

    def stop(self) -> None:
        """Stop the workers after their current page, and wait for them."""
        ...

    def new_lines(self) -> Sequence[str]:
        """Return the lines that other processes have logged since the last call."""
        return []

    def failure_reason(self) -> str | None:
        """Return why workers have exited by themselves, if they have."""
        ...


class ThreadWorkerPool(WorkerPool):
    """Threads in this process."""

    def __init__(self, penstock: Container, dataset: Dataset, *, threads: int) -> None:
        self._penstock = penstock
        self._dataset = dataset
        self._threads = threads
        self._halt = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(
            target=self._run, name="worker-pool", daemon=True
        )

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
        except Exception as error:  # noqa: BLE001 (returned by `failure_reason`)
            self._error = error

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._halt.set()
        if self._thread.is_alive():
            self._thread.join(STOP_TIMEOUT)

    def failure_reason(self) -> str | None:
        return None if self._error is None else str(self._error)


class CompositeWorkerPool(WorkerPool):
    """Several pools as one, such as processes and threads of this process."""

    def __init__(self, *pools: WorkerPool) -> None:
        self._pools = pools

    def prepare(self) -> None:
        for pool in self._pools:
            pool.prepare()

    def start(self) -> None:
        for pool in self._pools:
            pool.start()

    def is_alive(self) -> bool:
        return any(pool.is_alive() for pool in self._pools)

    def stop(self) -> None:
        for pool in self._pools:
            pool.stop()

    @override
    def new_lines(self) -> Sequence[str]:
        return [line for pool in self._pools for line in pool.new_lines()]

    def failure_reason(self) -> str | None:
        failures = (pool.failure_reason() for pool in self._pools)
        return next(filter(None, failures), None)


class ProcessWorkerPool(WorkerPool):
    """Worker processes, as they would run on other machines."""

    def __init__(
        self,
        config: Path,
        dataset: Dataset,
        *,
        workers: int,
        threads: int,
        begin: StartProcess = spawn,
    ) -> None:
        self._command = [
            *("worker", "--config", str(config)),
            *("--dataset", dataset.name),
            *("--threads", str(threads)),
            # exit with this process, else they would wait for jobs for ever
            "--leashed",
        ]
        self._workers = workers
        self._start_process = begin
        # standard error of the processes, while there are any
        self._logs: IO[str] | None = None
        # the bytes of it that `new_lines` has returned
        self._read = 0
        # why processes had exited when the pool was stopped
        self._failure: str | None = None
        self.processes: list[Process] = []

    def prepare(self) -> None:
        if self._logs is None and self._workers:
            self._logs = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 (closed in stop)
        for _ in range(self._workers - len(self.processes)):
            assert self._logs is not None  # noqa: S101 (there are workers)
            self.processes.append(self._start_process(self._command, self._logs))

    def start(self) -> None:
        self.prepare()
        for process in self.processes:
            assert process.stdin is not None  # noqa: S101 (a pipe, see `spawn`)
            # `failure_reason` reports processes that have exited already
            with suppress(BrokenPipeError):
                process.stdin.write("\n")
                process.stdin.flush()

    def is_alive(self) -> bool:
        return any(process.poll() is None for process in self.processes)

    def stop(self) -> None:
        if self._logs is None:
            return
        self._failure = self.failure_reason()
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(STOP_TIMEOUT)
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
        # pread: the processes share the position of the file
        added = os.fstat(descriptor).st_size - self._read
        text = os.pread(descriptor, added, self._read)
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode(errors="replace").splitlines()

    def failure_reason(self) -> str | None:
        if self._logs is None:
            return self._failure
        if not any(process.poll() for process in self.processes):
            return None
        self._logs.seek(0)
        errors = [line for line in self._logs if line.startswith("penstock: ")]
        if not errors:
            return "a worker process exited unexpectedly, without an error message"
        return errors[-1].strip().removeprefix("penstock: ")
