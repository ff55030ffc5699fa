"""What every store promises of samples and rollups."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from penstock.domain.rollups import (
    RollupWindow,
    Sample,
    Subject,
    SubjectKind,
    last_window,
)
from penstock.flow.flush_samples import FOLD_DELAY
from penstock.ports import Stores
from tests.contracts.schema import Ask
from tests.support.builders import HOUR, MINUTE, SECOND
from tests.support.racing import in_threads

POI = Subject(SubjectKind.DATASET, "poi")
OCM = Subject(SubjectKind.BUDGET, "ocm")
DAY = timedelta(days=1)
# until the samples of the current minute may be folded
FOLDED_AFTER = FOLD_DELAY + MINUTE
Read = Mapping[str, Sequence[int]]


def pages(value: int) -> Sequence[Sample]:
    return [Sample(POI, "pages", value)]


def fold(stores: Stores, most: int = 100) -> int:
    return stores.rollups.fold(finished=FOLD_DELAY, most=most)


def window(stores: Stores, length: timedelta = HOUR, buckets: int = 1) -> RollupWindow:
    """Return the last time of such a length, with the current minute."""
    return last_window(stores.jobs.now() + SECOND, length, buckets=buckets)


def total(stores: Stores, series: str = "pages", subject: Subject = POI) -> int:
    return sum(stores.rollups.read(subject, window(stores, 40 * DAY))[series])


class RollupsContract:
    """Subclasses bring `stores`, `pass_time` and `ask`."""

    def test_samples_count_before_and_after_they_are_folded(
        self, stores: Stores, pass_time
    ):
        stores.rollups.flush("a", 1, pages(2))
        stores.rollups.flush("a", 2, pages(3))
        before = total(stores)
        pass_time(FOLDED_AFTER)

        assert fold(stores) == 2
        assert fold(stores) == 0
        assert (before, total(stores)) == (5, 5)

    def test_samples_of_two_processes_fold_to_their_sum(
        self, stores: Stores, pass_time
    ):
        for process in ("a", "b"):
            stores.rollups.flush(process, 1, [*pages(2), Sample(OCM, "tokens", 7)])
        pass_time(FOLDED_AFTER)
        fold(stores)

        assert total(stores) == 4
        assert total(stores, "tokens", OCM) == 14

    def test_later_samples_are_added_to_what_was_folded(
        self, stores: Stores, pass_time
    ):
        stores.rollups.flush("a", 1, pages(1))
        pass_time(FOLDED_AFTER)
        fold(stores)
        stores.rollups.flush("a", 2, pages(2))
        pass_time(FOLDED_AFTER)
        fold(stores)

        assert total(stores) == 3

    def test_a_flush_that_is_repeated_counts_once(self, stores: Stores, pass_time):
        stores.rollups.flush("a", 1, pages(2))
        pass_time(MINUTE)

        stores.rollups.flush("a", 1, pages(2))

        assert total(stores) == 2

    def test_samples_of_minutes_that_have_not_ended_long_ago_are_not_folded(
        self, stores: Stores, pass_time
    ):
        stores.rollups.flush("a", 1, pages(2))
        pass_time(FOLDED_AFTER - SECOND)

        assert fold(stores) == 0
        assert total(stores) == 2

    def test_samples_are_folded_in_batches(self, stores: Stores, pass_time):
        for number in range(5):
            stores.rollups.flush("a", number, pages(1))
        pass_time(FOLDED_AFTER)

        assert [fold(stores, most=2) for _ in range(4)] == [2, 2, 1, 0]
        assert total(stores) == 5

    def test_concurrent_folds_add_each_sample_once(self, stores: Stores, pass_time):
        for number in range(20):
            stores.rollups.flush("a", number, pages(1))
        pass_time(FOLDED_AFTER)

        folded = in_threads(*[lambda: fold(stores)] * 4)
        while fold(stores):
            pass

        assert sum(folded) <= 20
        assert total(stores) == 20

    def test_a_fold_that_is_killed_in_the_middle_doubles_and_loses_nothing(
        self, stores: Stores, pass_time, ask: Ask
    ):
        stores.rollups.flush("a", 1, pages(3))
        pass_time(FOLDED_AFTER)
        fold(stores)
        stores.rollups.flush("a", 2, pages(4))
        pass_time(FOLDED_AFTER)
        # the samples are deleted first, and then there is nowhere to add them to
        ask("alter table penstock_rollup rename to penstock_rollup_away")

        with pytest.raises(Exception, match="penstock_rollup"):
            fold(stores)
        ask("alter table penstock_rollup_away rename to penstock_rollup")

        assert total(stores) == 7
        assert fold(stores) == 1
        assert total(stores) == 7

    def test_the_minute_is_that_of_the_flush_on_the_clock_of_the_database(
        self, stores: Stores, pass_time
    ):
        stores.rollups.flush("a", 1, pages(1))
        pass_time(2 * MINUTE)
        stores.rollups.flush("a", 2, pages(4))

        found = stores.rollups.read(POI, window(stores, 3 * MINUTE, buckets=60))

        assert found["pages"] == [1, 0, 4]

    def test_each_series_has_a_value_for_each_bucket(self, stores: Stores, pass_time):
        for _ in range(4):
            stores.rollups.flush(f"at {stores.jobs.now()}", 1, pages(1))
            pass_time(15 * MINUTE)

        found = stores.rollups.read(POI, window(stores, 2 * HOUR, buckets=6))

        assert sum(found["pages"]) == 4
        assert {len(values) for values in found.values()} == {6}
        assert found["seen"] == [0] * 6

    def test_what_is_not_of_the_subject_or_the_time_is_not_read(
        self, stores: Stores, pass_time
    ):
        stores.rollups.flush("a", 1, [Sample(OCM, "tokens", 7)])
        stores.rollups.flush(
            "a", 2, [Sample(Subject(SubjectKind.DATASET, "ocm"), "pages", 9)]
        )
        pass_time(2 * HOUR)

        assert not any(map(sum, stores.rollups.read(POI, window(stores)).values()))
        assert not any(map(sum, stores.rollups.read(OCM, window(stores)).values()))
        assert total(stores, "tokens", OCM) == 7

    def test_a_series_of_another_version_is_left_out(self, stores: Stores):
        stores.rollups.flush("a", 1, [Sample(POI, "unheard_of", 1)])

        assert "unheard_of" not in stores.rollups.read(POI, window(stores))

    def test_old_minutes_are_merged_to_hours(self, stores: Stores, pass_time):
        for number in range(90):
            stores.rollups.flush("a", number, pages(1))
            pass_time(MINUTE)
        pass_time(FOLDED_AFTER)
        while fold(stores):
            pass
        whole = window(stores, 3 * HOUR, buckets=3)
        before = sum(stores.rollups.read(POI, whole)["pages"])
        pass_time(DAY)

        def merge() -> int:
            return stores.rollups.merge_hours(age=DAY, most=50)

        merged = [merge(), merge(), merge()]

        # the clock of the contracts starts at a full hour: 59 minutes of the first one
        # are over, and whatever of the second one is old enough is not a whole hour
        assert sum(merged) == 59
        assert before == total(stores) == 90
        pass_time(HOUR)
        assert merge() == 29
        assert merge() == 0
        assert total(stores) == 90

    def test_old_sums_are_forgotten_in_batches(self, stores: Stores, pass_time):
        for number in range(3):
            stores.rollups.flush("a", number, pages(1))
            pass_time(MINUTE)
        pass_time(DAY)
        fold(stores)
        stores.rollups.flush("a", 3, pages(10))
        age = DAY - MINUTE

        assert stores.rollups.count_expired(age=age) == 3
        assert [stores.rollups.forget(age=age, most=2) for _ in range(3)] == [2, 1, 0]
        assert stores.rollups.count_expired(age=age) == 0
        assert total(stores) == 10
