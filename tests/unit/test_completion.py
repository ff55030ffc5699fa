"""An import ends as what is proven of it, and nothing is deleted on a guess."""

from dataclasses import replace

import pytest

from penstock.domain.completion import (
    CompletionVerdict,
    MissingRows,
    judge_missing,
    judge_shards,
)
from penstock.domain.dataset import Delta, Missing, Tolerance, WhenMissing
from penstock.domain.jobs import ImportStatus, Shards
from penstock.domain.sharding.axes import TimeAxis
from penstock.domain.source import HttpSource, Pagination, Paging
from tests.support.builders import HOUR, NOON, dataset

DATASET = dataset(missing=Missing(do=WhenMissing.MARK, max_drop=0.2))


def ended(
    shards: Shards, *, unproven: int = 0, failed: str | None = None
) -> CompletionVerdict:
    return judge_shards(
        shards, unproven=unproven, failed=failed, again="penstock run poi"
    )


def test_an_import_is_done_when_all_shards_are():
    ending = ended(Shards(total=3, done=2, split=1))

    assert ending == CompletionVerdict(status=ImportStatus.DONE, proven=True)


@pytest.mark.parametrize(
    ("shards", "result"),
    [
        (Shards(total=3, done=2, failed=1), "1 of 3"),
        (Shards(total=3, done=1, failed=1, cancelled=1), "2 of 3"),
    ],
)
def test_a_shard_that_did_not_finish_fails_the_import(shards, result):
    ending = ended(shards)

    assert (ending.status, ending.proven) == (ImportStatus.FAILED, False)
    assert result in str(ending.note)


def test_the_way_out_depends_on_who_was_at_fault():
    ending = ended(Shards(total=3, done=2, failed=1))

    assert ending.note == (
        "1 of 3 shards did not finish; see why with: penstock jobs --status failed; "
        "if the provider was at fault: penstock jobs retry --failed; "
        "if you fix the declaration: penstock run poi"
    )


def test_a_shard_without_proof_fails_the_import():
    ending = ended(Shards(total=3, done=3), unproven=1)

    assert (ending.status, ending.proven) == (ImportStatus.FAILED, False)
    assert "without proof" in str(ending.note)


def test_a_reason_fails_the_import_whatever_the_shards_say():
    ending = ended(Shards(total=1, done=1), failed="too bad")

    assert ending == CompletionVerdict(
        status=ImportStatus.FAILED, proven=False, note="too bad"
    )


@pytest.mark.parametrize("missing", [0, 1, 20])
def test_rows_within_the_declared_drop_may_be_marked(missing):
    missed = MissingRows(live=100, missing=missing, keyless=0)

    assert judge_missing(missed, DATASET) is None


def test_too_large_a_drop_is_reported():
    result = judge_missing(MissingRows(live=100, missing=21, keyless=0), DATASET)

    assert "21.0% of 100" in str(result)


def test_a_bad_row_without_a_key_makes_it_a_guess():
    result = judge_missing(MissingRows(live=100, missing=1, keyless=2), DATASET)

    assert "2 bad rows" in str(result)


def test_nothing_missing_is_nothing_to_judge():
    assert judge_missing(MissingRows(live=0, missing=0, keyless=5), DATASET) is None


@pytest.mark.parametrize(
    ("tolerance", "bad", "seen", "at_end", "is_exceeded"),
    [
        (Tolerance(), 10**6, 10**6, True, False),
        (Tolerance(max=5), 5, 10, False, False),
        (Tolerance(max=5), 6, 10**9, False, True),
        (Tolerance(max=0), 1, 10, False, True),
        (Tolerance(max_ratio=0.05), 5, 100, True, False),
        (Tolerance(max_ratio=0.05), 6, 100, True, True),
        # a ratio over few rows says nothing before the end
        (Tolerance(max_ratio=0.05), 999, 999, False, False),
        (Tolerance(max_ratio=0.05), 51, 1000, False, True),
        (Tolerance(max_ratio=0.05), 50, 1000, False, False),
        (Tolerance(max_ratio=0), 1, 1, True, True),
        (Tolerance(max_ratio=0), 0, 0, True, False),
        (Tolerance(max=9, max_ratio=0.5), 8, 10, True, True),
    ],
)
def test_bad_rows_are_tolerated_as_declared(tolerance, bad, seen, at_end, is_exceeded):
    result = tolerance.exceeded(bad=bad, seen=seen, at_end=at_end)

    assert (result is not None) is is_exceeded


@pytest.mark.parametrize("by", [Paging.OFFSET, Paging.PAGE])
def test_missing_rows_are_retained_where_rows_can_slip_past_the_pages(by):
    source = HttpSource(url="https://example.org", pages=Pagination(by=by, send="p"))
    moving = replace(DATASET, source=source)

    result = judge_missing(MissingRows(live=100, missing=1, keyless=0), moving)

    assert result is not None
    assert f"pages by {by}" in result


def test_missing_rows_are_retained_where_windows_follow_a_field_that_changes():
    at = ("updated",)
    axis = TimeAxis(name="w", start=NOON, step=HOUR, check=at)
    moving = replace(DATASET, axes=(axis,), delta=Delta(send="since", field=at))

    assert (
        judge_missing(MissingRows(live=100, missing=1, keyless=0), moving) is not None
    )
    still = replace(moving, delta=None)
    assert judge_missing(MissingRows(live=100, missing=1, keyless=0), still) is None
