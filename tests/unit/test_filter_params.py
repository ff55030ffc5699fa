"""What the parameters of an address mean, and the cursors that go with them."""

import re
import string
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.domain.dataset import DatasetName, FieldType
from penstock.domain.search import value_syntax
from penstock.domain.search.filter_params import (
    MAX_CONDITIONS,
    MAX_CONDITIONS_PER_FIELD,
    MAX_IN_VALUES,
    read_query,
)
from penstock.domain.search.list_cursor import MAX_CURSOR_LENGTH, CursorSigner
from penstock.domain.search.query import KeysetSegment, Op, Query
from penstock.entrypoints.api.openapi.schemas import filter_name, filter_schemas
from penstock.errors import BadRequest
from tests.support.builders import dataset, int_field, text_field, typed_field

EVENTS = dataset(
    fields=(
        int_field("id", required=True),
        text_field("town"),
        typed_field("share", FieldType.FLOAT),
        typed_field("price", FieldType.DECIMAL),
        typed_field("is_open", FieldType.BOOL),
        typed_field("day", FieldType.DATE),
        typed_field("seen", FieldType.TIMESTAMP, required=True),
        text_field("hidden"),
        int_field("limit"),
    ),
    filter=("town", "share", "price", "is_open", "day", "seen", "limit"),
)
FIELDS = {each.name: each for each in EVENTS.fields}
SEAL = CursorSigner(b"one secret of thirty-two bytes...")
SCHEMAS = dict(filter_schemas())
FILTERED = ("id", "town", "share", "price", "is_open", "day", "seen")

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=40)
instants = st.datetimes(timezones=st.just(UTC))
VALUES = {
    FieldType.TEXT: texts,
    FieldType.INT: st.integers(-(2**63), 2**63 - 1),
    FieldType.FLOAT: st.floats(-1e300, 1e300),
    FieldType.DECIMAL: st.decimals(-(10**250) + 1, 10**250 - 1, places=30),
    FieldType.BOOL: st.booleans(),
    FieldType.DATE: st.dates(),
    FieldType.TIMESTAMP: instants,
}


def parse(*given: tuple[str, str]) -> Query:
    return read_query(EVENTS, given)[0]


def refused(*given: tuple[str, str]) -> list[tuple[str, str]]:
    """Return the places and codes of all flaws."""
    with pytest.raises(BadRequest) as caught:
        read_query(EVENTS, given)
    return [(flaw.pointer, flaw.code) for flaw in caught.value.flaws]


def written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def fits(kind: FieldType, text: str) -> bool:
    """Say whether the published schema of a condition allows a text."""
    return any(
        text in each["enum"]
        if "enum" in each
        else re.fullmatch(each["pattern"][1:-1], text)
        and len(text) <= each["maxLength"]
        for each in SCHEMAS[filter_name(kind)]["anyOf"]
    )


@given(data=st.data(), op=st.sampled_from(["eq", "ne", "lt", "lte", "gt", "gte"]))
@pytest.mark.parametrize("name", FILTERED)
def test_a_written_value_is_read_back(name, op, data):
    value = data.draw(VALUES[FIELDS[name].type])

    (condition,) = parse((name, f"{op}.{written(value)}")).conditions

    assert (condition.field.name, condition.op, condition.value) == (name, op, value)


@given(data=st.data())
@settings(max_examples=40)
@pytest.mark.parametrize("name", FILTERED)
def test_what_the_schema_of_a_condition_allows_is_read(name, data):
    kind = FIELDS[name].type
    comparison, among, _ = SCHEMAS[filter_name(kind)]["anyOf"]
    pattern = data.draw(st.sampled_from([comparison["pattern"], among["pattern"]]))
    text = data.draw(st.from_regex(pattern[1:-1], fullmatch=True))
    if not fits(kind, text):
        return

    assert len(parse((name, text)).conditions) == 1


@given(text=st.text(max_size=30) | st.text('eqnltgt.in0123456789-+:TZ,"e', max_size=12))
@pytest.mark.parametrize("name", FILTERED)
def test_what_it_does_not_allow_is_refused(name, text):
    if not fits(FIELDS[name].type, text.replace(" ", "+")):
        assert {pointer for pointer, _ in refused((name, text))} == {f"?{name}"}


@pytest.mark.parametrize(
    "text",
    ['in."open', 'in."a"b', "in." + ",".join("1" * (MAX_IN_VALUES + 1))],
)
def test_a_list_that_cannot_be_distinguished_is_refused(text):
    assert refused(("town", text)) == [("?town", "value")]


def test_a_list_holds_commas_and_quotes_in_quotes():
    (condition,) = parse(("town", 'in."a,b",c,"say ""hi""",line\nbreak')).conditions

    assert condition.value == ("a,b", "c", 'say "hi"', "line\nbreak")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("id", "eq.9223372036854775808"),
        ("id", "eq." + "1" * 400),
        ("id", "eq.1.0"),
        ("id", "eq.\uff11"),
        ("id", "eq.0x10"),
        ("share", "eq.1e400"),
        ("price", "eq.1e5"),
        ("price", "eq." + "1" * 251),
        ("price", "eq.0." + "1" * 251),
        ("price", "eq.Infinity"),
        ("share", "eq.nan"),
        ("share", "eq.inf"),
        ("day", "eq.2026-02-29"),
        ("day", "eq.20260301"),
        ("day", "eq.2026-W01-1"),
        ("seen", "eq.2026-01-01T24:00:00Z"),
        ("seen", "eq.yesterday"),
        ("is_open", "eq.1"),
        ("is_open", "prefix.tr"),
        ("town", "eq.\x00"),
        ("town", "eq.\ud800"),
        ("town", "isnull.maybe"),
    ],
)
def test_what_no_value_of_a_field_can_be_is_refused(name, text):
    assert refused((name, text)) == [(f"?{name}", "value")]


@pytest.mark.parametrize("text", ["", "eq", "=5", "like.a", "EQ.5", ".5", "eq5"])
def test_a_condition_without_an_operator_is_refused(text):
    assert refused(("id", text)) == [("?id", "operator")]


def test_the_plus_of_a_zone_may_come_unescaped():
    (condition,) = parse(("seen", "gte.2026-01-31T12:00:00 02:00")).conditions

    assert condition.value == datetime(2026, 1, 31, 10, tzinfo=UTC)


def test_a_day_stands_for_its_midnight_in_utc():
    (condition,) = parse(("seen", "gte.2026-01-31")).conditions

    assert condition.value == datetime(2026, 1, 31, tzinfo=UTC)


def test_bounds_are_held():
    many = [("id", "gt.1")] * (MAX_CONDITIONS_PER_FIELD + 1)
    assert refused(*many) == [("?id", "too-many")]

    spread = [(name, "isnull.false") for name in FILTERED for _ in range(2)]
    assert len(spread) > MAX_CONDITIONS
    assert refused(*spread) == [("?", "too-many")]

    assert refused(("town", "eq." + "x" * 600)) == [("?town", "length")]
    assert refused(("town", "in." + "x" * 4000)) == [("?town", "length")]


def test_every_flaw_is_reported_at_once():
    found = refused(
        ("tonw", "eq.x"),
        ("hidden", "eq.x"),
        ("id", "eq.x"),
        ("limit", "0"),
        ("limit", "5"),
        ("sort", "hidden"),
        ("fields", "id,nothing"),
    )

    assert found == [
        ("?tonw", "unknown-parameter"),
        ("?hidden", "not-filterable"),
        ("?id", "value"),
        ("?limit", "repeated"),
        ("?sort", "not-sortable"),
        ("?fields", "unknown-field"),
    ]


def test_a_field_that_is_called_like_a_parameter_has_a_prefix():
    query = parse(("field.limit", "eq.3"), ("limit", "7"))

    assert query.limit == 7
    assert [(each.field.name, each.value) for each in query.conditions] == [
        ("limit", 3)
    ]


@pytest.mark.parametrize("text", ["0", "201", "-1", "1.0", "ten", "", "9" * 30])
def test_a_limit_has_bounds(text):
    assert refused(("limit", text)) == [("?limit", "range")]


@pytest.mark.parametrize(
    ("text", "field", "descending"),
    [
        ("town", "town", False),
        ("-town", "town", True),
        ("-town,-id", "town", True),
        ("id", None, False),
        ("-id", None, True),
    ],
)
def test_a_list_is_sorted_by_one_field_and_the_key(text, field, descending):
    query = parse(("sort", text))

    assert (query.sort.name if query.sort else None) == field
    assert query.descending is descending


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "not-sortable"),
        ("hidden", "not-sortable"),
        ("--id", "not-sortable"),
        ("town,-id", "mixed-directions"),
        ("town,day", "too-many"),
    ],
)
def test_an_order_that_no_index_gives_is_refused(text, code):
    assert refused(("sort", text)) == [("?sort", code)]


@st.composite
def places(draw) -> tuple[Query, tuple[object, ...]]:
    sort = draw(st.sampled_from([None, *FILTERED[1:]]))
    query = parse(*([("sort", sort)] if sort else []))
    place = []
    for field in query.order:
        values = VALUES[field.type]
        place.append(draw(values if field.required else st.none() | values))
    return query, tuple(place)


@given(place=places(), backward=st.booleans())
def test_a_cursor_carries_its_place(place, backward):
    query, values = place

    again = SEAL.read(query, SEAL.write(query, values, backward=backward))

    assert (again.after, again.backward) == (values, backward)


@given(
    place=places(),
    at=st.integers(0),
    letter=st.sampled_from(string.ascii_letters + string.digits + "-_=!. é"),
    cut=st.integers(0),
)
def test_a_cursor_that_was_touched_is_refused(place, at, letter, cut):
    query, values = place
    text = SEAL.write(query, values)
    at %= len(text)
    touched = {
        text[:at] + letter + text[at + 1 :],
        text[:at] + letter + text[at:],
        text[: cut % len(text)],
        text + letter,
    }
    for each in touched - {text}:
        with pytest.raises(BadRequest, match="cursor"):
            SEAL.read(query, each)


def test_the_last_letter_of_a_cursor_counts():
    """Two letters may stand for the same last bits."""
    query = parse()
    text = next(
        text
        for number in range(100)
        if len(text := SEAL.write(query, (number,))) % 4 in {2, 3}
    )
    alphabet = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
    twin = text[:-1] + alphabet[alphabet.index(text[-1]) ^ 1]
    padding = "=" * (-len(text) % 4)
    assert urlsafe_b64decode(twin + padding) == urlsafe_b64decode(text + padding)

    with pytest.raises(BadRequest, match="cursor"):
        SEAL.read(query, twin)


@pytest.mark.parametrize(
    "other",
    [
        [("sort", "town")],
        [("sort", "-id")],
        [("id", "gt.4")],
        [("id", "gte.5")],
        [("id", "gt.5"), ("town", "eq.x")],
        [],
    ],
    ids=range(6),
)
def test_a_cursor_is_good_for_its_own_list_only(other):
    text = SEAL.write(parse(("id", "gt.5")), (7,))

    with pytest.raises(BadRequest) as caught:
        SEAL.read(parse(*other), text)

    assert [flaw.code for flaw in caught.value.flaws] == ["cursor-mismatch"]


def test_a_cursor_of_another_dataset_is_refused():
    query = parse()
    other = replace(query, dataset=replace(EVENTS, name=DatasetName("others")))

    with pytest.raises(BadRequest, match="another list"):
        SEAL.read(other, SEAL.write(query, (7,)))


def test_a_cursor_of_another_installation_is_refused():
    query = parse()

    with pytest.raises(BadRequest, match="given out here"):
        SEAL.read(query, CursorSigner(b"another secret").write(query, (7,)))


def test_a_list_may_be_repeated_or_have_commas():
    repeated = parse(("fields", "town"), ("fields", "id,share"))

    assert repeated.fields == parse(("fields", "town,id,share")).fields


def test_the_choice_of_fields_and_the_length_of_pages_do_not_bind_a_cursor():
    query = parse()
    other = parse(("fields", "town"), ("limit", "3"))

    assert SEAL.read(other, SEAL.write(query, (7,))).after == (7,)


def test_a_number_is_no_cursor_and_the_other_way_round():
    query = parse()
    number, cursor = SEAL.write_number("poi", 7), SEAL.write(query, (7,))

    assert SEAL.read_number("poi", number) == 7
    assert SEAL.read_number("other", number) is None
    assert SEAL.read_number("poi", cursor) is None
    with pytest.raises(BadRequest, match="cursor"):
        SEAL.read(query, number)


def test_the_longest_place_that_an_index_holds_fits_into_a_cursor():
    of = replace(EVENTS, fields=(text_field("id", required=True), text_field("town")))
    query = read_query(replace(of, filter=("town",)), [("sort", "town")])[0]
    place = ("\x1f" * 300, "\x1f" * 300)

    text = SEAL.write(query, place)

    assert len(text) <= MAX_CURSOR_LENGTH
    assert SEAL.read(query, text).after == place


def test_a_cursor_may_be_of_any_length_but_not_read_beyond_its_bound():
    body = urlsafe_b64encode(b"x" * 10_000).decode()

    with pytest.raises(BadRequest, match="cursor"):
        SEAL.read(parse(), body)


def after(
    place: tuple[Any, ...] | None, part: KeysetSegment, row: tuple[Any, ...]
) -> bool:
    """Say whether a row comes behind a place, as a database compares rows."""
    if place is None:
        return True
    placed = row if part.nulls is not True else row[1:]
    return placed < place if part.descending else placed > place


def page_of(rows: list[tuple[Any, ...]], query: Query) -> list[tuple[Any, ...]]:
    """Read a page part by part, as a database would."""
    found: list[tuple[Any, ...]] = []
    for part in query.parts():
        some = [
            row
            for row in rows
            if (part.nulls is None or (row[0] is None) is part.nulls)
            and after(part.after, part, row)
        ]
        by = itemgetter(1) if part.nulls else lambda row: row
        some.sort(key=by, reverse=part.descending)
        found += some
    page = found[: query.limit]
    return page[::-1] if query.backward else page


@given(
    values=st.lists(st.none() | st.integers(0, 3), max_size=12),
    limit=st.integers(1, 5),
    down=st.booleans(),
)
def test_parts_give_the_whole_list_there_and_back(values, limit, down):
    rows: list[tuple[Any, ...]] = [(value, key) for key, value in enumerate(values)]
    full = sorted((row for row in rows if row[0] is not None), reverse=down)
    empty = sorted(
        (row for row in rows if row[0] is None), key=itemgetter(1), reverse=down
    )
    sort = "-limit" if down else "limit"
    query = replace(parse(("sort", sort)), limit=limit)

    there = page_of(rows, query)
    while there and (more := page_of(rows, query.starting_after(there[-1]))):
        there += more
    assert there == full + empty

    if there:
        back = there[-1:]
        while more := page_of(rows, query.starting_after(back[0], backward=True)):
            back = more + back
        assert back == there


@given(value=st.dates() | st.dates(date(1999, 2, 26), date(2001, 3, 2)))
def test_every_day_of_the_calendar_is_a_day(value):
    assert value_syntax.parse_date(value.isoformat()) == value


@given(year=st.integers(1, 9999), month=st.integers(0, 13), of=st.integers(0, 32))
def test_no_other_day_is(year, month, of):
    text = f"{year:04}-{month:02}-{of:02}"
    try:
        known = date.fromisoformat(text)
    except ValueError:
        known = None

    assert value_syntax.parse_date(text) == known


@given(value=st.integers(-(2**64), 2**64) | st.integers(2**63 - 9, 2**63 + 9))
def test_whole_numbers_end_where_a_database_ends_them(value):
    is_stored = -(2**63) <= value < 2**63

    assert value_syntax.parse_int(str(value)) == (value if is_stored else None)
    assert value_syntax.parse_int(str(-value)) == (
        -value if -(2**63) <= -value < 2**63 else None
    )


@given(
    instant=instants,
    offset=st.integers(-23 * 60, 23 * 60).map(lambda m: timedelta(minutes=m)),
)
def test_instants_are_read_in_every_zone(instant, offset):
    sign = "-" if offset < timedelta() else "+"
    minutes = abs(offset) // timedelta(minutes=1)
    zone = f"{sign}{minutes // 60:02}:{minutes % 60:02}"
    local = instant.replace(tzinfo=None)
    if not 2 < local.year < 9998:
        return

    found = value_syntax.parse_json_timestamp(f"{local.isoformat()}{zone}")

    assert found == instant - offset


def test_every_operator_is_reported():
    text = "".join(schema["description"] for _, schema in filter_schemas())

    assert all(op in text for op in Op)
