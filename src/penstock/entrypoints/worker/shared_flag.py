"""A flag that a process shares with those that it forks later."""

import mmap
import time

from typing_extensions import override

from penstock.ports import StopSignal

# seconds between two looks at the flag
LOOK_INTERVAL = 0.2


class SharedFlag(StopSignal):
    """A byte of shared memory: without locks, so a signal handler may set it."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 1)

    def set(self) -> None:
        self._memory[0] = 1

    @override
    def is_set(self) -> bool:
        return self._memory[0] == 1

    @override
    def wait(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while not self.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, LOOK_INTERVAL))
        return True
