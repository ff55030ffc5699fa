"""A shard notices that its pages go round, and its cursor survives the way to disk."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.jobs import backoff, cursor_fingerprint
from penstock.domain.pages import Cursor, LoopDetector
from penstock.errors import CursorUnreadable, PageRepeats
from tests.support.builders import SECOND

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def walk(*pages) -> int:
    """Follow these pages; return how many were accepted."""
    trail = LoopDetector()
    for number, keys in enumerate(pages, start=1):
        try:
            trail = trail.after(keys, page=number)
        except PageRepeats:
            return number - 1
    return len(pages)


def test_a_page_that_repeats_is_refused():
    assert walk([1, 2], [3, 4], [3, 4]) == 2


def test_a_page_with_no_unseen_key_is_refused():
    assert walk([1, 2, 3], [2, 3]) == 1


def test_a_page_with_one_unseen_key_is_progress():
    assert walk([1, 2], [2, 3], [3, 4], [4, 5]) == 4


def test_empty_pages_are_no_repeat():
    assert walk([], [], [1], []) == 4


def test_the_message_tells_where_to_look():
    with pytest.raises(PageRepeats, match=r"page 2 .* source\.pages"):
        LoopDetector().after([1], page=1).after([1], page=2)


@given(tail=st.integers(0, 20), circle=st.integers(1, 40))
def test_a_circle_of_any_length_is_noticed(tail, circle):
    pages = [[n] for n in range(tail + circle)]
    going_round = pages + pages[tail:] * 5

    # within three times the way that leads into it and once around
    assert tail + circle <= walk(*going_round) < 3 * (tail + circle) + 1


@given(st.lists(st.lists(st.integers(), max_size=5), max_size=30))
def test_pages_of_new_keys_always_go_on(pages):
    fresh = [[(number, key) for key in keys] for number, keys in enumerate(pages)]

    assert walk(*fresh) == len(fresh)


def test_keys_of_other_types_are_other_keys():
    assert walk([1], ["1"], [1.5], [None]) == 4


@given(st.dictionaries(st.text(), JSON), st.integers(0), st.sets(st.integers()))
def test_a_cursor_is_read_back_as_it_was_written(position, rows, keys):
    trail = LoopDetector().after(keys, page=1).after([object], page=2)
    cursor = Cursor(position=position, rows=rows, loop_detector=trail)

    assert Cursor.decode(cursor.encode()) == cursor


def test_a_circle_is_noticed_across_a_restart():
    trail = LoopDetector().after([1, 2], page=1)
    again = Cursor.decode(Cursor(position={}, loop_detector=trail).encode())

    with pytest.raises(PageRepeats):
        again.loop_detector.after([1, 2], page=2)


def test_a_cursor_of_another_version_is_refused():
    body = json.loads(Cursor(position={}).encode())

    with pytest.raises(CursorUnreadable, match="version 2"):
        Cursor.decode(json.dumps(body | {"v": 2}))


def test_a_position_has_all_digits_of_its_number():
    text = '{"v":1,"at":{"after":0.12345678901234567890,"most":3},"rows":3'

    cursor = Cursor.decode(f'{text},"previous":"","anchor":""}}')

    assert cursor.position == {"after": Decimal("0.12345678901234567890"), "most": 3}
    assert cursor.encode().startswith(text)


@pytest.mark.parametrize("number", ["1E+20", "1e-9", "-0.0", "9e-5000", "1.50"])
def test_a_position_is_decoded_as_it_was_encoded(number):
    cursor = Cursor(position={"after": Decimal(number), "below": None, "full": True})

    assert Cursor.decode(cursor.encode()) == cursor
    assert len(cursor.encode()) < 200


@pytest.mark.parametrize(
    "text", ["", "{", "null", "[]", "7", "{}", '{"v":1}', '"v"', '{"v":1,"at":{}}']
)
def test_a_text_that_is_no_cursor_is_refused(text):
    with pytest.raises(CursorUnreadable):
        Cursor.decode(text)


@given(st.text())
def test_no_text_makes_reading_a_cursor_fail_in_another_way(text):
    with pytest.raises(CursorUnreadable):
        Cursor.decode(text)


def test_a_mark_tells_one_cursor_from_another():
    assert cursor_fingerprint(None) is None
    assert cursor_fingerprint("a") == cursor_fingerprint("a") != cursor_fingerprint("b")


@pytest.mark.parametrize(
    ("attempt", "longest"),
    [(1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (50, 300), (5000, 300)],
)
def test_a_retry_waits_up_to_twice_as_long_each_time(attempt, longest):
    assert backoff(attempt, jitter=1) == longest * SECOND
    assert backoff(attempt, jitter=0.5) == longest * SECOND / 2
    assert backoff(attempt, jitter=0) == 0 * SECOND
