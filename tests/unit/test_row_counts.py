"""A dataset is counted as well as can be done in a moment, and not twice."""

from typing import Any, cast

import pytest

from penstock.entrypoints.api.cache.row_counts import (
    MAX_AGE,
    MAX_EXACT_COUNT,
    RowCounts,
)
from penstock.errors import StoreTimeout
from penstock.ports.record_access import Count, CountKind, DatasetVersion
from tests.support.builders import dataset

POI = dataset()


class Table:
    """Rows of which the database expects a number, and knows it when it counts."""

    def __init__(self, *, expected: Count, rows: int) -> None:
        self._expected = expected
        self.rows = rows
        self.requests: list[CountKind] = []

    def count(self, query: Any, kind: CountKind) -> Count:
        assert not query.conditions
        self.requests.append(kind)
        if kind is CountKind.EXACT:
            return Count(self.rows, CountKind.EXACT)
        return self._expected


def at(change_seq: int) -> DatasetVersion:
    return DatasetVersion(generation=1, change_seq=change_seq)


@pytest.mark.parametrize(
    ("expected", "result"),
    [
        (Count(3, CountKind.PLANNED), Count(7, CountKind.EXACT)),
        (Count(MAX_EXACT_COUNT, CountKind.PLANNED), Count(7, CountKind.EXACT)),
        (Count(5_000_000, CountKind.PLANNED), Count(5_000_000, CountKind.PLANNED)),
        (Count(7, CountKind.EXACT), Count(7, CountKind.EXACT)),
        (Count(10_000, CountKind.CAPPED), Count(10_000, CountKind.CAPPED)),
    ],
    ids=["few", "just so many", "many", "counted", "capped"],
)
def test_few_are_counted_and_many_are_reported_as_expected(expected, result):
    table = Table(expected=expected, rows=7)

    assert RowCounts(cast("Any", table)).of(POI, at(1)) == result


def test_what_cannot_be_counted_now_is_not_reported():
    class Held(Table):
        def count(self, query: Any, kind: CountKind) -> Count:
            raise StoreTimeout("held")

    table = Held(expected=Count(3, CountKind.PLANNED), rows=3)

    assert RowCounts(cast("Any", table)).of(POI, at(1)) is None


def test_it_is_counted_anew_once_it_has_changed_or_long_after():
    now = [0.0]
    table = Table(expected=Count(3, CountKind.PLANNED), rows=3)
    sizes = RowCounts(cast("Any", table), clock=lambda: now[0])
    sizes.of(POI, at(1))
    table.rows = 4
    now[0] += MAX_AGE - 1
    assert sizes.of(POI, at(1)) == Count(3, CountKind.EXACT)

    assert sizes.of(POI, at(2)) == Count(4, CountKind.EXACT)
    table.rows = 5
    now[0] += MAX_AGE
    assert sizes.of(POI, at(2)) == Count(5, CountKind.EXACT)
    assert len(table.requests) == 6
