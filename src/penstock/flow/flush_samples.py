"""Flush what this process has counted to the database, and fold what all have."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from penstock.domain.rollups import Sample
from penstock.errors import PenstockError
from penstock.ports.rollups import Rollups

FLUSH_INTERVAL = timedelta(seconds=10)
# A flush whose end is unknown is repeated for so long, and then given up. Minutes are
# folded only later, so that a repeated flush finds its first attempt.
RETRY_TIME = timedelta(minutes=1)
FOLD_DELAY = timedelta(minutes=3)
# after which a chart shows hours
MINUTES_AGE = timedelta(days=2)
# samples and sums in one transaction
FOLD_BATCH = 5_000


class FlushSamples:
    """Flushes the samples of one process; its threads may share it."""

    def __init__(
        self,
        take: Callable[[], Sequence[Sample]],
        rollups: Rollups,
        *,
        process: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._take = take
        self._rollups = rollups
        self._process = process
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._due_at = -math.inf
        self._number = 0
        # a flush whose end is unknown, and when it was tried first
        self._pending: Sequence[Sample] = ()
        self._tried_at = 0.0

    def if_due(self) -> None:
        """Flush if the last flush was long enough ago.

        Errors are not raised: without a database, the work itself reports it.
        """
        if self._monotonic() >= self._due_at:
            self()

    def __call__(self) -> None:
        """Flush now; no error leaves this function, and the next call tries again."""
        with self._lock, suppress(PenstockError):
            self._due_at = self._monotonic() + FLUSH_INTERVAL.total_seconds()
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._try_again()
        self._pending = self._take()
        if self._pending:
            self._number += 1
            self._tried_at = self._monotonic()
            self._store()

    def _try_again(self) -> None:
        if self._monotonic() - self._tried_at < RETRY_TIME.total_seconds():
            self._store()
            return
        # stores nothing, but fails while the database is away: what was counted since
        # the flush that is given up stays where it is until then
        self._rollups.flush(self._process, self._number, ())
        self._pending = ()

    def _store(self) -> None:
        self._rollups.flush(self._process, self._number, self._pending)
        self._pending = ()


class FoldSamples:
    """Fold the samples of finished minutes, and merge old minutes to hours."""

    def __init__(self, rollups: Rollups) -> None:
        self._rollups = rollups

    def __call__(self) -> timedelta | None:
        """Do one batch of each; return when to continue, if there is more."""
        folded = self._rollups.fold(finished=FOLD_DELAY, most=FOLD_BATCH)
        merged = self._rollups.merge_hours(age=MINUTES_AGE, most=FOLD_BATCH)
        return timedelta() if FOLD_BATCH in {folded, merged} else None
