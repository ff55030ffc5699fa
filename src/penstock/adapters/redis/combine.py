"""Let threads that ask at the same time be answered by one call."""

import copy
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from penstock.errors import StoreUnavailable

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


@dataclass(slots=True, eq=False)
class Place(Generic[Asked, Answer]):
    """One thread in the line."""

    asked: Asked
    turn: threading.Event = field(default_factory=threading.Event)
    # one answer, once there is one
    answers: list[Answer] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def is_served(self) -> bool:
        return bool(self.answers) or self.error is not None

    def outcome(self) -> Answer:
        """Return the answer, or raise what kept it from coming.

        Each thread raises an error of its own: one that two threads raise would have a
        traceback of both.
        """
        if self.error is None:
            return self.answers[0]
        if isinstance(self.error, Exception):
            raise copy.copy(self.error) from self.error
        raise StoreUnavailable("the thread that asked for all was ended")


class Combined(Generic[Asked, Answer]):
    """One call at a time; who comes meanwhile shares the next one.

    Nothing is asked for that no thread waits for. The thread at the head of the line
    makes the call, for itself and those behind it, and hands on to the next head: no
    thread works for others longer than for itself.
    """

    def __init__(
        self, call: Callable[[Sequence[Asked]], Sequence[Answer]], *, most: int
    ) -> None:
        self._call = call
        self._most = most
        self._lock = threading.Lock()
        self._line: deque[Place[Asked, Answer]] = deque()
        self._is_busy = False

    def __call__(self, asked: Asked) -> Answer:
        mine: Place[Asked, Answer] = Place(asked)
        with self._lock:
            self._line.append(mine)
            has_to_wait, self._is_busy = self._is_busy, True
        if has_to_wait:
            mine.turn.wait()
        if not mine.is_served:
            self._serve()
        return mine.outcome()

    def _serve(self) -> None:
        with self._lock:
            count = min(self._most, len(self._line))
            served = [self._line.popleft() for _ in range(count)]
        try:
            answers = self._call([place.asked for place in served])
            for place, answer in zip(served, answers, strict=True):
                place.answers.append(answer)
        except BaseException as error:  # whoever waits must not wait for ever
            for place in served:
                place.error = error
            raise
        finally:
            self._hand_on(served)

    def _hand_on(self, served: Sequence[Place[Asked, Answer]]) -> None:
        with self._lock:
            head = self._line[0] if self._line else None
            self._is_busy = head is not None
        for place in served:
            place.turn.set()
        if head is not None:
            head.turn.set()
