"""Virtual time: actors that take turns, one at a time, as a seed decides.

The flow is synchronous, so each actor is a real thread; but a thread runs only while
it holds the turn, and hands it on wherever it would wait for something outside. The
thread that hands over picks the next one itself, so there is no scheduler between.
Nothing depends on real time or on the operating system: the same seed gives the same
trace, byte for byte.
"""

import random
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from penstock.domain.formats import EPOCH, MICROSECOND

START = datetime(2026, 3, 1, tzinfo=UTC)

MOST_STEPS = 200_000
WATCHDOG = 60.0
SHOWN_LINES = 50


def microseconds(span: timedelta) -> int:
    return span // MICROSECOND


class Crashed(BaseException):
    """The process of an actor is gone; nothing that it wanted to do is done."""


class Ended(BaseException):
    """The world is over."""


class Broken(BaseException):
    """A promise is broken; not an error that a worker may catch."""


class SimulationFailed(AssertionError):
    """A seed under which a promise does not hold, with the end of its trace."""

    def __init__(self, seed: int, failure: str, trace: list[str]) -> None:
        shown = "\n".join(trace[-SHOWN_LINES:])
        super().__init__(f"seed {seed}: {failure}\n{shown}\nseed {seed}: {failure}")
        self.seed = seed
        self.failure = failure


@dataclass(eq=False)
class Actor:
    """Somebody who acts in virtual time, on a host with a clock of its own."""

    name: str
    main: Callable[["Actor"], None]
    wake_at: int
    # how the host's monotonic clock differs from true time
    offset: int = 0
    drift: float = 0.0
    turn: threading.Lock = field(default_factory=threading.Lock)
    thread: threading.Thread | None = None


class World:
    """The one true time, and whose turn it is."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = microseconds(START - EPOCH)
        self.trace: list[str] = []
        self.running: Actor | None = None
        self._began = self.now
        self._actors: list[Actor] = []
        self._picked: Actor | None = None
        self._steps = 0
        self._over = False
        self._finished = threading.Event()
        self._failure: str | None = None

    @property
    def elapsed(self) -> timedelta:
        return timedelta(microseconds=self.now - self._began)

    def clock(self) -> datetime:
        return EPOCH + timedelta(microseconds=self.now)

    def spawn(self, name: str, main: Callable[[Actor], None]) -> None:
        actor = Actor(
            name,
            main,
            wake_at=self.now + self.random.randrange(1_000_000),
            offset=self.random.randrange(10**12),
            drift=self.random.uniform(-1e-5, 1e-5),
        )
        actor.turn.acquire()
        actor.thread = threading.Thread(
            target=self._live, args=(actor,), name=name, daemon=True
        )
        self._actors.append(actor)

    def run(self) -> None:
        """Let everybody act until somebody ends the world; raise what went wrong."""
        actors = list(self._actors)
        for actor in actors:
            if actor.thread is not None:
                actor.thread.start()
        self._pass_turn()
        if not self._finished.wait(WATCHDOG):
            self._over = True
            raise SimulationFailed(self.seed, "hangs in real time", self.trace)
        # one after the other: even an unwinding thread never runs beside another
        for actor in actors:
            if actor.thread is not None and actor.thread.is_alive():
                if actor.turn.locked():
                    actor.turn.release()
                actor.thread.join(WATCHDOG)
        if self._failure is not None:
            raise SimulationFailed(self.seed, self._failure, self.trace)

    def sleep(self, span: int) -> None:
        """Let so many microseconds pass for the running actor, and others act."""
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise Broken(f"no end after {MOST_STEPS} steps")
        me = self.me
        me.wake_at = self.now + span
        if self._pick() is me:
            self.now = max(self.now, me.wake_at)
            return
        self._pass_turn()
        me.turn.acquire()
        if self._over:
            raise Ended

    @property
    def me(self) -> Actor:
        if self.running is None:
            raise Broken("nobody has the turn")
        return self.running

    def monotonic(self) -> float:
        """Read the clock of the running actor's host."""
        me = self.me
        return (self.now + self.now * me.drift + me.offset) / 1e6

    def note(self, text: str) -> None:
        name = "world" if self.running is None else self.running.name
        self.trace.append(f"{(self.now - self._began) / 1e6:.6f} {name} {text}")

    def _pick(self) -> Actor:
        soonest = min(actor.wake_at for actor in self._actors)
        ready = max(soonest, self.now)
        first = [actor for actor in self._actors if actor.wake_at <= ready]
        picked = first[0] if len(first) == 1 else self.random.choice(first)
        self._picked = picked
        return picked

    def _pass_turn(self) -> None:
        picked = self._picked or self._pick()
        self.now = max(self.now, picked.wake_at)
        self.running = picked
        picked.turn.release()

    def _live(self, actor: Actor) -> None:
        actor.turn.acquire()
        try:
            if not self._over:
                actor.main(actor)
        except Ended:
            pass
        except Broken as broken:
            self._failure = str(broken)
        except BaseException:  # noqa: BLE001 (the top of a thread: told by `run`)
            self._failure = traceback.format_exc()
        self._over = True
        self._finished.set()
