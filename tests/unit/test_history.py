"""A position names a change by number and tag, and is read as it was written."""

import pytest

from penstock.adapters.sqlstore.table_protocols import version_of
from penstock.domain.history import (
    HISTORY_START,
    MAX_CHANGE_SEQ,
    HistoryPosition,
    parse_position,
)
from penstock.domain.search.filter_params import read_query
from penstock.domain.search.list_cursor import CursorSigner
from penstock.errors import BadRequest
from tests.support.builders import dataset

SEAL = CursorSigner(b"a secret of thirty-two bytes, yes")


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("0", HISTORY_START),
        ("17", HistoryPosition(17)),
        ("17-0", HistoryPosition(17, 0)),
        ("17-ffffffffffff", HistoryPosition(17, 2**48 - 1)),
        ("0-abc", HISTORY_START),
        ("9" * 19, HistoryPosition(MAX_CHANGE_SEQ)),
        *((text, None) for text in ("", "-1", "1-", "1-G", "1-0000000000000", "1.5")),
        *((text, None) for text in ("+1", " 1", "1_0", "٣", "9" * 20, "1-a-b")),
    ],
)
def test_a_position_is_a_number_or_a_number_and_a_tag(text, position):
    assert parse_position(text) == position


def test_a_position_is_read_as_it_was_written():
    for position in (
        HISTORY_START,
        HistoryPosition(17),
        HistoryPosition(17, 0),
        HistoryPosition(17, 0xABC),
    ):
        assert parse_position(str(position)) == position
        token = SEAL.write_position("poi", position)
        assert SEAL.read_position("poi", token) == position
        assert SEAL.read_position("other", token) is None


def test_a_token_of_an_earlier_version_is_a_number_without_a_tag():
    token = SEAL.write_number("poi", 17)

    assert SEAL.read_position("poi", token) == HistoryPosition(17)


def test_a_token_is_no_cursor():
    query, _ = read_query(dataset(), [])

    with pytest.raises(BadRequest, match="not one that was given out here"):
        SEAL.read(query, SEAL.write_position("poi", HistoryPosition(17, 1)))


def test_a_version_of_the_same_time_is_another_with_other_local_fields():
    versions = {
        version_of(b"\x01" * 32, 5, local) for local in ((), ("a",), ("b",), (None,))
    }

    assert len(versions) == 4
