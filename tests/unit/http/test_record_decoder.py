import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.adapters.http.record_decoder import (
    NumberPaths,
    RecordDecoder,
    value_at_path,
)
from penstock.domain.mapping.documents import write_document
from penstock.domain.source import parse_path

NAMES = st.sampled_from(["a", "b", "class", "0", "1", "é", 'q"', "", "a b", "None"])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
)
VALUES = st.recursive(
    LEAVES,
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(NAMES, below, max_size=4)
    ),
    max_leaves=12,
)
RECORDS = st.dictionaries(NAMES, VALUES, max_size=6)
PATHS = st.lists(st.lists(NAMES, max_size=4).map(tuple), max_size=6, unique=True)

DEEP = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def reader(*paths: str) -> RecordDecoder:
    return RecordDecoder(tuple(map(parse_path, paths)))


@given(RECORDS, PATHS)
def test_typed_and_untyped_reading_give_the_same_values(record, paths):
    raw = json.dumps(record).encode()
    fast = RecordDecoder(tuple(paths))
    assert fast.read(raw, 3) == fast._read_untyped(raw, 3)


@given(RECORDS, PATHS)
def test_values_stand_where_the_paths_lead(record, paths):
    row = RecordDecoder(tuple(paths)).read(json.dumps(record).encode(), 0)
    expected = [value_at_path(record, path) for path in paths]
    assert row.unreadable is None
    assert [*row.values] == expected


@given(st.binary(max_size=60), PATHS)
def test_any_bytes_give_a_row(raw, paths):
    row = RecordDecoder(tuple(paths)).read(raw, 7)
    assert len(row.values) == len(paths)
    assert (row.raw, row.position) == (raw, 7)


def test_a_number_in_a_path_counts_in_a_list():
    raw = b'{"Connections": [{"PowerKW": 22}, {"PowerKW": 50}]}'
    paths = ("Connections.0.PowerKW", "Connections.1.PowerKW", "Connections.2.PowerKW")
    assert reader(*paths).read(raw, 0).values == (22, 50, None)


def test_a_path_may_begin_another():
    raw = b'{"AddressInfo": {"Town": "Bonn"}, "ID": 1}'
    row = reader("AddressInfo.Town", "AddressInfo", "ID", "").read(raw, 0)
    address = {"Town": "Bonn"}
    assert row.values == ("Bonn", address, 1, {"AddressInfo": address, "ID": 1})


def test_a_null_in_the_middle_of_a_path_is_nothing():
    row = reader("AddressInfo.Town.Name", "ID").read(b'{"AddressInfo":null,"ID":1}', 0)
    assert row.values == (None, 1)


def test_a_text_where_an_object_was_expected_is_nothing():
    row = reader("AddressInfo.Town", "ID").read(b'{"AddressInfo":"x","ID":1}', 0)
    assert row.values == (None, 1)
    assert row.unreadable is None


def test_the_last_of_two_equal_names_counts():
    assert reader("a.b").read(b'{"a":{"b":1},"a":{"b":2}}', 0).values == (2,)


def test_a_huge_integer_is_retained_whole():
    number = 10**40
    assert reader("a").read(b'{"a":%d}' % number, 0).values == (number,)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "is not JSON"),
        (b"<html>", "is not JSON"),
        (b'{"a": NaN}', "is not JSON"),
        (b'{"a": "\xff"}', "is not JSON"),
        (b'{"a": "\\ud800"}', "half of a character"),
        (b'{"a": "x\\ud83dx"}', "half of a character"),
        (b'{"a": "\\ude00"}', "half of a character"),
        (b'{"a": "\\ud83d\\ude00', "truncated"),
        (b'{"a": "\\\\ud83d', "truncated"),
        (b'{"a": 1} {}', "is not JSON"),
        (b"[1]", "is a list, not an object"),
        (b"null", "is null, not an object"),
        (b"3", "is a number, not an object"),
        (DEEP, "is nested too deeply"),
    ],
    ids=range(14),
)
@pytest.mark.parametrize("path", ["a", "a.b", "a.0", ""])
def test_what_is_no_object_is_unreadable(raw, said, path):
    row = reader(path).read(raw, 0)
    assert row.unreadable is not None
    assert said in row.unreadable
    assert row.values == (None,)


def test_what_is_not_declared_is_not_looked_at():
    row = reader("a").read(b'{"a": 1, "b": "\xff"}', 0)
    assert row.values == (1,)


@pytest.mark.parametrize("others", [[], ["a"], ["a.b"], ["a.0"], ["x"]])
def test_documents_have_the_digits_of_their_text(others):
    paths = tuple(map(parse_path, ["id", "a", *others]))
    texts = ['{"b":1.10,"c":[1E5]}', "[2.50,null]", "1.0", "null", '{"b":0.5}']
    raws = [f'{{"id":{at},"a":{text}}}'.encode() for at, text in enumerate(texts)]
    raws.append(b'{"id":5}')
    numbers = NumberPaths(
        exact=frozenset(map(parse_path, others)), documents=frozenset({("a",)})
    )
    decoder = RecordDecoder(paths, numbers)

    columns = decoder.read_columns(b"[" + b",".join(raws) + b"]", lambda _: [])
    rows = decoder.read_all(raws)

    assert columns is not None
    for values in (columns.columns[1], [row.values[1] for row in rows]):
        assert [*map(write_document, values)] == [*texts, "null"]


def test_infinite_numbers_do_not_come_out():
    row = reader("a").read(b'{"a": 1e999}', 0)
    assert row.unreadable is not None


def test_all_rows_are_read_in_order():
    raws = [msgspec.json.encode({"a": each}) for each in range(4)]
    rows = reader("a").read_all(raws)
    assert [(row.position, row.values[0]) for row in rows] == [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
    ]


def test_floats_are_exact():
    assert reader("a").read(b'{"a": 0.1}', 0).values == (0.1,)
    assert math.copysign(1, reader("a").read(b'{"a": -0.0}', 0).values[0]) == -1  # type: ignore[arg-type]
