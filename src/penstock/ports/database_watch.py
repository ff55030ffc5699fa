"""What a database tells of its statements and its connections."""

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Protocol

from penstock.domain.events import StatementName


class PoolUse(NamedTuple):
    """The state of a connection pool, and what it has counted since it was opened."""

    # the most connections that it opens
    size: int
    in_use: int
    idle: int
    # threads that wait for a connection now
    waiting: int
    # uses that had to wait, and for how many seconds in all
    waits: int
    waited: float


class DatabaseWatch(Protocol):
    """Hears of every statement, and reads the state of pools when it is asked."""

    @abstractmethod
    def observe(self, statement: StatementName, seconds: float, /) -> None: ...

    @abstractmethod
    def add_pool(self, name: str, read: Callable[[], PoolUse], /) -> None: ...
