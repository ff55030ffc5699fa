"""What the process itself brings."""

import random
import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from penstock.domain.events import Event

Emit: TypeAlias = Callable[[Event], None]
# removes what must not be shown from a text
Redact: TypeAlias = Callable[[str], str]
# what takes long calls it now and then; it raises where that must not go on
StillHere: TypeAlias = Callable[[], None]


class Halt(Protocol):
    """A wish to stop; `threading.Event` is one."""

    @abstractmethod
    def is_set(self) -> bool: ...

    @abstractmethod
    def wait(self, timeout: float) -> bool:
        """Sleep so many seconds, or less if the wish comes; say whether it came."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the process itself brings: its clock, its dice, the wish to stop."""

    halt: Halt
    monotonic: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random
