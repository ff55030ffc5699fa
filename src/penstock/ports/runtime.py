"""What the process provides: clock, randomness, stop signal, events."""

import random
import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from penstock.domain.events import Event
from penstock.ports.tracing import NO_TRACER, Tracer

Emit: TypeAlias = Callable[[Event], None]
# removes secrets from a text
Redact: TypeAlias = Callable[[str], str]
# long operations call it regularly; it raises if they must end
KeepAlive: TypeAlias = Callable[[], None]


class StopSignal(Protocol):
    """A request to stop; `threading.Event` implements it."""

    @abstractmethod
    def is_set(self) -> bool: ...

    @abstractmethod
    def wait(self, timeout: float) -> bool:
        """Sleep until the timeout or the signal; return whether the signal is set."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The stop signal, the clock, the randomness and the tracer of the process."""

    halt: StopSignal
    monotonic: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random
    tracer: Tracer = NO_TRACER
