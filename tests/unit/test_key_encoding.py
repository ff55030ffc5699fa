"""Keys as text: written by whichever encoder is faster, they are the same."""

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.adapters.sqlstore.key_encoding import encode_key, encode_keys_text

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), TEXTS, st.booleans())))
def test_plain_keys_are_written_as_one_key_is(keys):
    assert encode_keys_text(keys) == encode_key(keys)


@pytest.mark.parametrize(
    "value", [datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1), 1e16, 0.1]
)
def test_what_encoders_write_differently_is_left_to_ours(value):
    keys = [(1, value), (2, value)]

    assert encode_keys_text(keys) == encode_key(keys)
