"""What a page is recognised by when it comes again."""

from dataclasses import replace
from datetime import timedelta

import pytest

from penstock.domain.jobs import Fence, ImportId, JobId, Lease, Mode
from penstock.domain.page_reuse import can_reuse_pages, page_fingerprint, summarize_page
from penstock.domain.pages import Page, Proof
from tests.support.builders import ANN, NOON, batch, dataset, last, record, rejection

LEASE = Lease(
    job=JobId(1),
    fence=Fence(1),
    owner=ANN,
    import_id=ImportId(1),
    dataset=dataset().name,
    mode=Mode.FULL,
    tracked=False,
    shard_key="whole",
    since=None,
    cursor=None,
    page_seq=0,
    attempts=0,
    rescues=0,
    snoozes=0,
)


@pytest.mark.parametrize(
    "other",
    [
        page_fingerprint(LEASE, b"other content"),
        page_fingerprint(replace(LEASE, shard_key="other"), b"content"),
        page_fingerprint(replace(LEASE, cursor="other"), b"content"),
    ],
    ids=["content", "shard", "cursor"],
)
def test_all_that_decides_about_a_page_is_in_its_imprint(other):
    assert (
        page_fingerprint(LEASE, b"content")
        == page_fingerprint(LEASE, b"content")
        != other
    )


def test_what_does_not_decide_is_not():
    later = replace(LEASE, fence=Fence(9), page_seq=7, import_id=ImportId(8))

    assert page_fingerprint(later, b"content") == page_fingerprint(LEASE, b"content")


@pytest.mark.parametrize(
    ("declared", "held"),
    [
        (dataset(transform="cleaning:clean"), LEASE),
        (dataset(), replace(LEASE, tracked=True)),
        (dataset(), replace(LEASE, mode=Mode.DELTA, since=NOON - timedelta(days=1))),
    ],
    ids=["code that may have changed", "rows to be marked", "a delta"],
)
def test_some_pages_have_to_be_read(declared, held):
    assert can_reuse_pages(dataset(), LEASE)
    assert not can_reuse_pages(declared, held)


RISING = Page(rows=(), rises=True)


@pytest.mark.parametrize(
    ("page", "brought"),
    [
        (Page(rows=()), batch(record(1))),
        (RISING, batch(record(1), rejections=[rejection()])),
        (RISING, batch()),
    ],
    ids=["it has a trail", "it has a bad row", "it is empty"],
)
def test_some_pages_leave_no_memo(page, brought):
    assert summarize_page(page, brought) is None


def test_a_memo_tells_what_a_page_brought():
    memo = summarize_page(RISING, batch(record(3), record(1), seen=5, dropped=2))
    end = summarize_page(Page(rows=(), proof=Proof.EMPTY_PAGE), last(record(1)))

    assert memo is not None
    assert (memo.first, memo.last, memo.records) == ((1,), (3,), 2)
    assert (memo.seen, memo.dropped, memo.cursor, memo.proof) == (5, 2, "next", None)
    assert end is not None
    assert (end.cursor, end.proof) == (None, Proof.EMPTY_PAGE)


def test_the_order_of_a_page_does_not_matter_to_its_rows():
    one = summarize_page(RISING, batch(record(1), record(2)))
    other = summarize_page(RISING, batch(record(2), record(1)))

    assert one == other
