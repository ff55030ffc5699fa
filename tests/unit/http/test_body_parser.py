import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.adapters.http import body_parser
from penstock.adapters.http.body_parser import Body, BodyReader
from penstock.adapters.http.record_decoder import RecordDecoder
from penstock.domain.redaction import MASK, Redactor
from penstock.domain.source import parse_path
from penstock.errors import Misconfigured, SourceUnavailable

REDACTOR = Redactor({"s3cr3t-value": MASK})


def read(body: bytes, records: str = "", following: str | None = None):
    path = None if following is None else parse_path(following)
    rows = RecordDecoder((("a",),))
    reader = BodyReader(parse_path(records), path, rows=rows, redactor=REDACTOR)
    return reader.read(body, content_type="application/json")


def raws(body: Body) -> list[bytes]:
    return [row.raw for row in body.rows]


def test_the_body_may_be_the_list():
    assert raws(read(b'[{"a": 1} , 2]')) == [b'{"a": 1}', b"2"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("data", b'{"data": [1, 2]}'),
        ("a.b.c", b'{"x": [9], "a": {"b": {"c": [1, 2]}}}'),
        ("0.items", b'[{"items": [1, 2]}, 5]'),
        ("results.1.items", b'{"results": [{}, {"items": [1, 2]}]}'),
    ],
)
def test_the_list_may_stand_at_any_path(path, body):
    assert raws(read(body, path)) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"data": [], "meta": {"next": "x"}}', "x"),
        (b'{"data": [], "meta": {"next": 7}}', 7),
        (b'{"data": [], "meta": {"next": null}}', None),
        (b'{"data": [], "meta": null}', None),
        (b'{"data": []}', None),
    ],
)
def test_the_next_token_is_found(body, value):
    assert read(body, "data", "meta.next").next == value


def test_a_byte_order_mark_is_no_data():
    assert raws(read(b"\xef\xbb\xbf[1]")) == [b"1"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  \n",
        b"\xef\xbb\xbf",
        b"<html><body>down</body></html>",
        b'[{"a": 1}',
        b'[{"a": 1}, {"b"',
        b'[{"a": 1}] <!-- cached -->',
        b'[{"a": 1},]',
        b'[,{"a": 1}]',
        b'[{"a": }]',
        b'[{"a": "\\ud800"}, {"b": }]',
        b'[{"a": "\\ud800"}',
        b'[{"a": "\\ud800"}, {"b": 1}}',
        b'[{"a": NaN}]]',
        b"[1 2]",
        b"null",
        b"{}",
        b'{"error": "quota"}',
        b'"text"',
        b"[" * 100_000,
        b"\xff\xfe[\x00]\x00",
    ],
)
def test_what_is_not_a_whole_list_is_no_data(body):
    with pytest.raises(SourceUnavailable):
        read(body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{}", "nothing"),
        (b'{"data": null}', "null"),
        (b'{"data": {"a": 1}}', "an object"),
        (b'{"data": "x"}', "a string"),
        (b"[]", "nothing"),
        (b"3", "nothing"),
    ],
)
def test_the_sentence_says_what_stands_in_the_place_of_the_list(body, said):
    with pytest.raises(SourceUnavailable, match=f"no list at data but {said} "):
        read(body, "data")


def test_the_sentence_shows_a_little_and_no_secret():
    body = b"<html>s3cr3t-value\n\x00\x1b[31m" + b"x" * 500
    with pytest.raises(SourceUnavailable) as caught:
        read(body)
    assert "s3cr3t" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert "application/json" in str(caught.value)
    assert "is not complete JSON" in str(caught.value)
    assert "525 bytes" in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "odd",
    [
        b'{"a": "\\ud800"}',
        b'{"a": "\\udc00, [\\"]"}',
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b"[" * 5000 + b"]" * 5000,
    ],
    ids=range(5),
)
def test_one_odd_record_does_not_take_the_others_with_it(odd):
    body = b'{"data": [ {"id": 1} , ' + odd + b' ,{"id": 2}], "next": "x"}'
    found = read(body, "data", "next")
    assert raws(found) == [b'{"id": 1}', odd, b'{"id": 2}']
    assert found.next == "x"


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(st.characters(), max_size=5),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(st.text(max_size=3), below, max_size=3)
    ),
    max_leaves=10,
)


@given(st.lists(VALUES, max_size=5), st.sampled_from([None, 2]))
def test_lenient_cutting_finds_the_elements(values, indent):
    text = json.dumps(values, indent=indent).encode()
    found = [json.loads(each) for each in body_parser.split_items(text)]
    assert repr(found) == repr(values)


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=5))
def test_lenient_cutting_finds_the_members(values):
    found = body_parser.split_members(json.dumps(values).encode())
    assert {name: repr(json.loads(found[name])) for name in found} == {
        name: repr(values[name]) for name in values
    }


@given(st.binary(max_size=40))
def test_lenient_cutting_never_fails_otherwise(text):
    for cut in (body_parser.split_items, body_parser.split_members):
        try:
            cut(text)
        except ValueError:
            continue


def test_a_next_path_needs_a_body_that_is_no_list():
    with pytest.raises(Misconfigured, match=r"source\.records"):
        BodyReader((), ("next",), rows=RecordDecoder(()), redactor=REDACTOR)


REPEATED = [
    ("data", b'{"data": [{"a": 1}], "data": []}'),
    ("data", b'{"data": [], "x": 1, "d\\u0061ta" : [{"a": 1}]}'),
    ("x.data", b'{"x": {"data": [], "n": 1, "n": 1}}'),
    ("data", b'{"data": [{"a": 1}], "more": 1, "more": 2}'),
    # not JSON to a strict parser
    ("data", b'{"data": [{"a": NaN}], "data": []}'),
]


@pytest.mark.parametrize(("path", "body"), REPEATED)
def test_a_body_with_two_values_of_one_name_is_refused(path, body):
    with pytest.raises(SourceUnavailable, match="twice in one object"):
        read(body, path)


def test_a_name_twice_beside_the_page_is_refused_where_it_would_prove_the_end():
    reader = BodyReader(("data",), None, rows=RecordDecoder(()), redactor=REDACTOR)
    with pytest.raises(SourceUnavailable, match="'more' twice"):
        reader.read_end_claims(b'{"data": [], "meta": {"more": true, "more": false}}')


names = st.sampled_from(["data", "a", "b", 'q"u', "é", "", "\\"])
spaces = st.sampled_from(["", " ", "\n\t"])


@given(st.lists(st.tuples(names, st.booleans(), spaces)), st.booleans())
def test_names_are_compared_as_they_are_meant(members, strict):
    """However they are spelt, and whatever is between them."""
    value = '{"data":[1,{"a":",}"}]}' if strict else "[NaN]"
    parts = [
        f"{space}{json.dumps(name, ensure_ascii=escaped)}{space}:{space}{value}{space}"
        for name, escaped, space in members
    ]
    body = f'{{"items":[]{"".join("," + part for part in parts)}}}'.encode()
    if len({name for name, *_ in members}) == len(members):
        assert raws(read(body, "items")) == []
    else:
        with pytest.raises(SourceUnavailable, match="twice"):
            read(body, "items")


@pytest.mark.parametrize("position", [0, 999, 500])
def test_records_with_a_name_twice_are_bad(position):
    """All of a page, where one that is sampled has one."""
    records = [b'{"a": %d}' % number for number in range(1000)]
    records[0] = records[position] = b'{"b": {"a": 1, "a": 2}}'
    rows = list(read(b"[" + b",".join(records) + b"]").rows)
    bad = {number for number, row in enumerate(rows) if row.unreadable}
    assert bad == {0, position}
    assert rows[0].unreadable == "the record has the name 'a' twice in one object"
    assert rows[1].values == (1,)


def test_a_bad_record_stays_bad_when_it_is_read_alone():
    decoder = RecordDecoder((("a",),))
    assert decoder.read_with_names(b'{"a": 1, "a": 1}', 0).unreadable
    assert not decoder.read_with_names(b'{"a": {"a": 1}}', 0).unreadable
