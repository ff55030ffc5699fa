"""Worker processes on one import: lost, replaced, and asked what they went through."""

import re
from typing import Any

from tests.support.workshop import Process, Workshop


class Fleet:
    def __init__(self, workshop: Workshop, *, size: int, threads: int = 2) -> None:
        self._workshop = workshop
        self._threads = threads
        self._started: list[Process] = []
        self._running: list[Process] = []
        self._grow(size)

    def is_at_work(self) -> bool:
        """Say whether everybody has had a job."""
        return all(
            any(
                line["event"] == "job_claimed" for line in self._workshop.log_of(worker)
            )
            for worker in self._running
        )

    def kill_half(self) -> int:
        """Kill the older half and start as many; return how many threads died."""
        lost = len(self._running) // 2
        for worker in self._running[:lost]:
            worker.kill()
            worker.wait()
        del self._running[:lost]
        self._grow(lost)
        return lost * self._threads

    def stop(self) -> list[int]:
        """Ask all to stop; return how they ended."""
        for worker in self._running:
            worker.terminate()
        return [self._workshop.output_of(worker).code for worker in self._running]

    def ended(self) -> list[str]:
        """Return the last words of those who have ended unasked."""
        gone = [worker for worker in self._running if worker.poll() is not None]
        return [self._workshop.output_of(worker).err[-1000:] for worker in gone]

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Return the events of a kind that any of its workers told."""
        return [
            entry
            for worker in self._started
            for entry in self._workshop.log_of(worker)
            if entry["event"] == event
        ]

    def stumbles(self) -> list[str]:
        """Return what threads met that no store and no provider can have caused."""
        results = [entry["error"] for entry in self.logged("worker_failed")]
        # only what nobody expected is told with the name of its class
        return [error for error in results if re.match(r"[A-Z]\w+: ", error)]

    def _grow(self, number: int) -> None:
        grown = [self._workshop.worker(threads=self._threads) for _ in range(number)]
        self._started += grown
        self._running += grown
