"""Read from replicas that have all that a client may know of, else from the primary.

A client that has read something, or written it, must never meet an older state. So
there is a floor: how far the primary had come when somebody here last learned of a
change. A replica is asked only once it has replayed its log up to there. One that does
not get there soon, or does not answer, leaves the rotation and is tried again later.

Where a change took effect and the primary could not say how far it had come, only the
primary is read, until it has said so.

A primary that was put back to an older state has other changes than a replica that was
not. So before a replica is read from, and whenever the history is in doubt, the primary
is asked whether it knows the last changes that the replica has.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from typing_extensions import override

from penstock.adapters.postgres.database import POSITION, Database, Transaction
from penstock.adapters.sql import database as sql
from penstock.adapters.sql.database import Outcome
from penstock.adapters.sql.states import has_change, to_state
from penstock.domain.history import Position
from penstock.errors import Misconfigured, StoreTooSlow, StoreUnavailable

# seconds that a read waits for a replica to get there; then the primary is asked
LONGEST_WAIT = 0.2
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.02
# seconds that a replica stays out of the rotation, longer each time it fails again
FIRST_REST, LONGEST_REST = 0.5, 10.0

REPLAYED = """
select case when pg_is_in_recovery()
    then pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint
end as position"""


class Replica:
    """One replica, and what is known of it."""

    def __init__(
        self, database: Database, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.database = database
        self._clock = clock
        # it never falls, so what was once seen need not be asked again
        self._replayed = -1
        self._rest = FIRST_REST
        self._out_until = -1e9
        # the doubt after which it was last found to have the history of the primary
        self.verified = -1

    @property
    def is_in_rotation(self) -> bool:
        return self._clock() >= self._out_until

    def has(self, floor: int) -> bool:
        """Say whether it has got there, and wait a moment for it."""
        deadline, pause = time.monotonic() + LONGEST_WAIT, FIRST_PAUSE
        while self._replayed < floor:
            self._replayed = self.database.read(replayed)
            if self._replayed >= floor:
                break
            if self._replayed < 0 or time.monotonic() + pause > deadline:
                return False
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return True

    def look(self, floor: int, has_history: Callable[["Replica"], bool]) -> None:
        """See whether it is there and has got so far, though nobody reads from it."""
        if not self.is_in_rotation:
            return
        self.forget()
        try:
            is_there = self.has(floor) and has_history(self)
        except (StoreUnavailable, Misconfigured):
            is_there = False
        if is_there:
            self.is_well()
        else:
            self.leave()

    def leave(self) -> None:
        """Stay out of the rotation for a while."""
        self._out_until = self._clock() + self._rest
        self._rest = min(2 * self._rest, LONGEST_REST)
        # it may come back as another one
        self.forget()

    def forget(self) -> None:
        """See anew how far it is, and of which history."""
        self._replayed = self.verified = -1

    def is_well(self) -> None:
        self._rest = FIRST_REST


class Replicated(sql.Database):
    """A primary that is written to, and replicas that are read from."""

    def __init__(self, primary: Database, replicas: Sequence[Replica]) -> None:
        self.primary = primary
        self.replicas = replicas
        self._turns = itertools.count()
        self._floor = 0
        # writes after which the floor is unknown, and how many of them it is above
        self._doubts = self._settled = 0
        # how often it was in doubt whether the primary has gone back
        self._histories = 0
        self._lock = threading.Lock()

    def rise(self) -> None:
        """Let nobody read less than the primary has now."""
        doubts, floor = self._doubts, self._floor
        position = self.primary.read(written)
        if position < floor:
            # it was there before: its log is that of another history
            with self._lock:
                if self._floor == floor:
                    self._floor = position
            self.doubt()
        self._rise_to(position, settled=doubts)

    def doubt(self) -> None:
        """Read from no replica before it is known to have the primary's history."""
        with self._lock:
            self._histories += 1

    def _has_history(self, replica: Replica) -> bool:
        """Say whether the primary knows the last changes that a replica has."""
        doubt = self._histories
        if replica.verified == doubt:
            return True
        theirs = replica.database.read(last_changes)

        def is_known(look: Transaction) -> bool:
            doubtful = theirs - last_changes(look)
            return all(has_change(look, name, each) for name, each in doubtful)

        if not self.primary.read(is_known):
            return False
        replica.verified = doubt
        return True

    def _rise_to(self, position: int, *, settled: int = 0) -> None:
        with self._lock:
            self._floor = max(self._floor, position)
            self._settled = max(self._settled, settled)

    def trouble(self) -> str | None:
        """Name the replicas from which nobody reads, or None; asks all others."""
        for each in self.replicas:
            each.look(self._floor, self._has_history)
        out = [each for each in self.replicas if not each.is_in_rotation]
        places = ", ".join(each.database.place for each in out)
        return f"{places}: not asked for a while" if out else None

    @override
    def write(
        self, work: Callable[[Transaction], Outcome], *, slow: bool = False
    ) -> Outcome:
        outcome, position = self.primary.write_and_tell(work, slow=slow)
        if position is None:
            with self._lock:
                self._doubts += 1
        else:
            self._rise_to(position)
        return outcome

    @override
    def read(self, work: Callable[[Transaction], Outcome]) -> Outcome:
        if self._settled < self._doubts:
            return self._read_primary(work)
        for replica in self._rotation():
            try:
                if replica.has(self._floor) and self._has_history(replica):
                    outcome = replica.database.read(work)
                    replica.is_well()
                    return outcome
            except StoreTooSlow:
                # no fault of the replica: the primary would take as long
                raise
            except (StoreUnavailable, Misconfigured):
                # the primary may know better; what is wrong with both, it tells
                pass
            replica.leave()
        return self.primary.read(work)

    def _read_primary(self, work: Callable[[Transaction], Outcome]) -> Outcome:
        """Read from the primary, and learn how far it has come."""
        # what comes into doubt from here on, its answer does not settle
        doubts = self._doubts
        position, outcome = self.primary.read(lambda look: (written(look), work(look)))
        self._rise_to(position, settled=doubts)
        return outcome

    @override
    def stream(self) -> AbstractContextManager[Transaction]:
        return self.primary.stream()

    @override
    def moment(self, of: datetime | None) -> object:
        return self.primary.moment(of)

    @override
    def instant(self, stored: Any) -> datetime:
        return self.primary.instant(stored)

    def _rotation(self) -> Iterator[Replica]:
        first = next(self._turns)
        count = len(self.replicas)
        for at in range(count):
            replica = self.replicas[(first + at) % count]
            if replica.is_in_rotation:
                yield replica


def replayed(look: Transaction) -> int:
    row = look.connection.execute(REPLAYED).fetchone()
    # a replica that was made a primary goes its own way
    return -1 if row is None or row["position"] is None else int(row["position"])


def last_changes(look: Transaction) -> set[tuple[str, Position]]:
    """Return the last change of each dataset."""
    return {(row["name"], to_state(row).position) for row in look.all("dataset_states")}


def written(look: Transaction) -> int:
    row = look.connection.execute(POSITION).fetchone()
    return 0 if row is None else int(row["position"])
