"""Read from replicas that are up to date for all clients, else from the primary.

A client that has read or written something must never see an older state. So there is
a floor: the log position of the primary when this process last learned of a change. A
replica is read only once it has replayed the log up to there. One that does not get
there soon, or does not respond, leaves the rotation and is tried again later.

After a write whose log position is unknown (its response was lost), only the primary is
read, until its position has been read again.

A primary that was restored to an older state has other changes than a replica that was
not. So before a replica is read, and whenever the history is in doubt, it is checked
that the primary has the last changes of the replica.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from typing_extensions import override

from penstock.adapters.postgres.database import (
    WAL_POSITION,
    PostgresDatabase,
    PostgresTransaction,
)
from penstock.adapters.sqlstore import database as sql
from penstock.adapters.sqlstore.database import Outcome
from penstock.adapters.sqlstore.dataset_versions import has_change, read_dataset_version
from penstock.domain.history import HistoryPosition
from penstock.errors import Misconfigured, StoreTimeout, StoreUnavailable
from penstock.ports.record_access import ReplicaState

# seconds that a read waits for a replica to catch up, before the primary is used
MAX_CATCH_UP_TIME = 0.2
MIN_POLL_INTERVAL, MAX_POLL_INTERVAL = 0.005, 0.02
# seconds that a replica stays out of the rotation, doubled each time it fails again
MIN_BACKOFF, MAX_BACKOFF = 0.5, 10.0

REPLAY_POSITION = """
select case when pg_is_in_recovery()
    then pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint
end as position"""


class Replica:
    """One replica, and its state."""

    def __init__(
        self, database: PostgresDatabase, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.database = database
        self._clock = clock
        # it never falls, so it is only read again when it is below the floor
        self._replayed = -1
        self._backoff = MIN_BACKOFF
        self._out_until = -1e9
        # the value of `_history_checks` for which it has the history of the primary
        self.verified = -1

    @property
    def is_in_rotation(self) -> bool:
        return self._clock() >= self._out_until

    def has(self, floor: int) -> bool:
        """Return whether it has replayed up to the floor, after a short wait."""
        deadline, interval = time.monotonic() + MAX_CATCH_UP_TIME, MIN_POLL_INTERVAL
        while self._replayed < floor:
            self._replayed = self.database.read(replay_position)
            if self._replayed >= floor:
                break
            if self._replayed < 0 or time.monotonic() + interval > deadline:
                return False
            time.sleep(interval)
            interval = min(2 * interval, MAX_POLL_INTERVAL)
        return True

    def check(self, floor: int, has_history: Callable[["Replica"], bool]) -> None:
        """Check whether it can be read, and else take it out of the rotation."""
        if not self.is_in_rotation:
            return
        self._reset()
        try:
            is_readable = self.has(floor) and has_history(self)
        except (StoreUnavailable, Misconfigured):
            is_readable = False
        if is_readable:
            self.reset_backoff()
        else:
            self.leave_rotation()

    def leave_rotation(self) -> None:
        """Stay out of the rotation for the backoff time."""
        self._out_until = self._clock() + self._backoff
        self._backoff = min(2 * self._backoff, MAX_BACKOFF)
        # another server may be there afterwards
        self._reset()

    def _reset(self) -> None:
        """Forget its position and history, so that they are checked again."""
        self._replayed = self.verified = -1

    def reset_backoff(self) -> None:
        self._backoff = MIN_BACKOFF


class ReplicatedDatabase(sql.Database):
    """A primary for writes, and replicas for reads."""

    def __init__(self, primary: PostgresDatabase, replicas: Sequence[Replica]) -> None:
        self.primary = primary
        self.replicas = replicas
        self._turns = itertools.count()
        self._floor = 0
        # writes with an unknown log position, and how many of them the floor includes
        self._unknown_writes = self._covered_writes = 0
        # how often the primary may have been restored to an older state
        self._history_checks = 0
        self._lock = threading.Lock()

    def raise_floor(self) -> None:
        """Raise the floor to the current position of the primary."""
        unknown_writes, floor = self._unknown_writes, self._floor
        position = self.primary.read(wal_position)
        if position < floor:
            # it was further before, so it has another history now
            with self._lock:
                if self._floor == floor:
                    self._floor = position
            self.doubt()
        self._raise_floor(position, covered_writes=unknown_writes)

    def doubt(self) -> None:
        """Check the history of each replica before it is read again."""
        with self._lock:
            self._history_checks += 1

    def _has_history(self, replica: Replica) -> bool:
        """Return whether the primary has the last changes of a replica."""
        check = self._history_checks
        if replica.verified == check:
            return True
        replicated = replica.database.read(last_changes)

        def has_changes(transaction: PostgresTransaction) -> bool:
            differing = replicated - last_changes(transaction)
            return all(
                has_change(transaction, name, position) for name, position in differing
            )

        if not self.primary.read(has_changes):
            return False
        replica.verified = check
        return True

    def _raise_floor(self, position: int, *, covered_writes: int = 0) -> None:
        with self._lock:
            self._floor = max(self._floor, position)
            self._covered_writes = max(self._covered_writes, covered_writes)

    def states(self) -> Sequence[ReplicaState]:
        """Return how far each replica is behind; one that is out is not read."""
        return [self._state(replica) for replica in self.replicas]

    def _state(self, replica: Replica) -> ReplicaState:
        lag = None
        if replica.is_in_rotation:
            # the primary first: what it writes meanwhile is no lag
            position = self.primary.read(wal_position)
            try:
                replayed = replica.database.read(replay_position)
            except (StoreUnavailable, Misconfigured):
                replica.leave_rotation()
            else:
                lag = max(position - replayed, 0)
        return ReplicaState(
            name=replica.database.place,
            is_in_rotation=replica.is_in_rotation,
            lag=lag,
        )

    def failure(self) -> str | None:
        """Check all replicas; return which are out of the rotation, or None."""
        for replica in self.replicas:
            replica.check(self._floor, self._has_history)
        places = [
            replica.database.place
            for replica in self.replicas
            if not replica.is_in_rotation
        ]
        return f"{', '.join(places)}: out of the rotation for now" if places else None

    @override
    def write(
        self, work: Callable[[PostgresTransaction], Outcome], *, slow: bool = False
    ) -> Outcome:
        outcome, position = self.primary.write_returning_position(work, slow=slow)
        if position is None:
            with self._lock:
                self._unknown_writes += 1
        else:
            self._raise_floor(position)
        return outcome

    @override
    def read(self, work: Callable[[PostgresTransaction], Outcome]) -> Outcome:
        if self._covered_writes < self._unknown_writes:
            return self._read_primary(work)
        for replica in self._rotation():
            try:
                if replica.has(self._floor) and self._has_history(replica):
                    outcome = replica.database.read(work)
                    replica.reset_backoff()
                    return outcome
            except StoreTimeout:
                # the primary would take as long
                raise
            except (StoreUnavailable, Misconfigured):
                # the primary may succeed, or raise an error of its own
                pass
            replica.leave_rotation()
        return self.primary.read(work)

    def _read_primary(self, work: Callable[[PostgresTransaction], Outcome]) -> Outcome:
        """Read from the primary, and raise the floor to its position."""
        # the position does not include writes from here on
        unknown_writes = self._unknown_writes
        position, outcome = self.primary.read(
            lambda transaction: (wal_position(transaction), work(transaction))
        )
        self._raise_floor(position, covered_writes=unknown_writes)
        return outcome

    @override
    def stream(self) -> AbstractContextManager[PostgresTransaction]:
        return self.primary.stream()

    @override
    def to_stored_time(self, of: datetime | None) -> object:
        return self.primary.to_stored_time(of)

    @override
    def instant(self, stored: Any) -> datetime:
        return self.primary.instant(stored)

    def _rotation(self) -> Iterator[Replica]:
        first = next(self._turns)
        count = len(self.replicas)
        for offset in range(count):
            replica = self.replicas[(first + offset) % count]
            if replica.is_in_rotation:
                yield replica


def replay_position(transaction: PostgresTransaction) -> int:
    row = transaction.connection.execute(REPLAY_POSITION).fetchone()
    # null on a replica that was promoted to a primary
    return -1 if row is None or row["position"] is None else int(row["position"])


def last_changes(
    transaction: PostgresTransaction,
) -> set[tuple[str, HistoryPosition]]:
    """Return the last change of each dataset."""
    return {
        (row["name"], read_dataset_version(row).position)
        for row in transaction.all("dataset_states")
    }


def wal_position(transaction: PostgresTransaction) -> int:
    row = transaction.connection.execute(WAL_POSITION).fetchone()
    return 0 if row is None else int(row["position"])
