"""Samples of processes and their sums, in the database that they share."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta

from typing_extensions import override

from penstock.adapters.sqlstore.database import (
    Database,
    SqlRow,
    Transaction,
    read_count,
)
from penstock.domain.formats import MICROSECOND
from penstock.domain.rollups import (
    MINUTE,
    SERIES,
    RollupWindow,
    Sample,
    Subject,
)
from penstock.ports.rollups import Rollups

HOUR = timedelta(hours=1) // MICROSECOND


class SqlRollups(Rollups):
    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    def flush(self, process: str, number: int, samples: Sequence[Sample]) -> None:
        added = [
            {
                "kind": sample.subject.kind.value,
                "name": sample.subject.name,
                "series": sample.series,
                "value": sample.value,
            }
            for sample in samples
        ]
        self._database.write(
            lambda transaction: transaction.execute(
                "add_samples",
                process=process,
                number=number,
                samples=json.dumps(added),
            )
        )

    @override
    def fold(self, *, finished: timedelta, most: int) -> int:
        def work(transaction: Transaction) -> int:
            taken = transaction.all(
                "take_samples", finished=(MINUTE + finished) // MICROSECOND, most=most
            )
            return add_sums(transaction, taken, lambda minute: minute)

        return self._database.write(work)

    @override
    def merge_hours(self, *, age: timedelta, most: int) -> int:
        def work(transaction: Transaction) -> int:
            taken = transaction.all("take_minutes", age=age // MICROSECOND, most=most)
            return add_sums(transaction, taken, lambda minute: minute - minute % HOUR)

        return self._database.write(work)

    @override
    def read(
        self, subject: Subject, window: RollupWindow
    ) -> Mapping[str, Sequence[int]]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "read_rollups",
                kind=subject.kind.value,
                name=subject.name,
                since=self._database.to_stored_time(window.since),
                until=self._database.to_stored_time(window.until),
                bucket_length=window.bucket_length // MICROSECOND,
            )
        )
        series = {name: [0] * window.buckets for name in SERIES[subject.kind]}
        for row in found:
            # not of a series that an earlier or a later version has
            if row["series"] in series:
                series[row["series"]][row["bucket"]] = row["total"]
        return series

    @override
    def count_expired(self, *, age: timedelta) -> int:
        return read_count(
            self._database.read(
                lambda transaction: transaction.one(
                    "count_old_rollups", age=age // MICROSECOND
                )
            )
        )

    @override
    def forget(self, *, age: timedelta, most: int) -> int:
        return self._database.write(
            lambda transaction: transaction.execute(
                "forget_rollups", age=age // MICROSECOND, most=most
            )
        )


def add_sums(
    transaction: Transaction, taken: Iterable[SqlRow], begin: Callable[[int], int]
) -> int:
    """Add rows that were deleted to the sums that begin then; return how many."""
    sums: Counter[tuple[str, str, int, str]] = Counter()
    count = 0
    for row in taken:
        key = (row["kind"], row["name"], begin(row["minute"]), row["series"])
        sums[key] += row["value"]
        count += 1
    if not count:
        return 0
    # in one order, so that two transactions do not wait for each other
    added = [
        {"kind": kind, "name": name, "minute": minute, "series": series, "value": value}
        for (kind, name, minute, series), value in sorted(sums.items())
    ]
    transaction.execute("add_rollups", sums=json.dumps(added))
    return count
