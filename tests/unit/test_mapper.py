"""Any row becomes a record or a rejection, and equal content has an equal hash."""

import math
import sys
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.dataset import Field, FieldType
from penstock.domain.mapping.converters import BadValue, JsonText, compile_cast
from penstock.domain.mapping.mapper import Mapper, content_digest
from penstock.domain.mapping.written_numbers import WrittenNumber
from penstock.domain.pages import RawRow, Reason, Record, Rejection
from tests.support.builders import dataset, int_field, record, text_field, typed_field

# more digits than Python is willing to write
HUGE = 10**5000
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -(2**63) - 1, 10**400])
    | st.sampled_from([4000, 5000]).map(lambda digits: -(10**digits))
    | st.floats(allow_nan=True, allow_infinity=True)
    | ANY_TEXT
    | st.sampled_from(
        [
            *("", " ", "\x00", "\ud800", "nan", "1e999", "2026-02-30", "1_000"),
            *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"),
            *("\uff11\uff12", "9" * 5000),
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3)
    ),
    max_leaves=6,
)
EVERYTHING = dataset(
    fields=(
        int_field("id", required=True),
        *(typed_field(kind.value, kind) for kind in FieldType),
        text_field("short", max_length=3),
        text_field("shaped", pattern="^[a-z]+$"),
        text_field("chosen", choices=("a", "b")),
        int_field("ranged", min=0, max=9),
        typed_field("day", FieldType.DATE, format="%d.%m.%Y"),
        typed_field("when", FieldType.TIMESTAMP, format="%d.%m.%Y %H:%M %z"),
    )
)


def cast(field: Field, value: object) -> object:
    """Return what becomes of a value: the stored one, or the reason against it."""
    only = dataset(fields=(field,), key=(field.name,))
    outcome = Mapper(only)(RawRow((value,), b"raw", 0))
    return outcome.values[0] if isinstance(outcome, Record) else outcome.reason


def of(kind: FieldType, value: object, **declared: object) -> object:
    return cast(typed_field("it", kind, **declared), value)


@given(st.tuples(st.integers(0, 9), *[JSON] * (len(EVERYTHING.fields) - 1)))
def test_any_row_becomes_a_record_or_a_rejection(values):
    outcome = Mapper(EVERYTHING)(RawRow(values, b"raw", 3))

    assert isinstance(outcome, Record | Rejection)


@pytest.mark.parametrize("kind", list(FieldType))
@given(value=JSON)
def test_what_is_accepted_is_accepted_again_with_the_same_hash(kind, value):
    field = typed_field("it", kind)
    mapper = Mapper(dataset(fields=(field,), key=("it",)))

    first = mapper(RawRow((value,), b"raw", 0))
    second = mapper(RawRow((value,), b"raw", 9))

    assert isinstance(first, Rejection) or first == second


@pytest.mark.parametrize("kind", list(FieldType))
def test_nothing_stays_nothing(kind):
    assert of(kind, None) is None


@pytest.mark.parametrize("kind", sorted(set(FieldType) - {FieldType.JSON}))
@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_text_is_nothing(kind, blank):
    assert of(kind, blank) is None
    assert of(kind, blank, required=True) is Reason.MISSING


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("x", "x"),
        (" x ", "x"),
        ("ü🔌", "ü🔌"),
        (5, "5"),
        (0.5, "0.5"),
        (True, Reason.TYPE),
        ([], Reason.TYPE),
        ({}, Reason.TYPE),
        ("a\x00b", Reason.TYPE),
        ("\ud800", Reason.TYPE),
        pytest.param(HUGE, Reason.TYPE, id="huge"),
    ],
)
def test_a_text_is_a_text_or_a_number(value, stored):
    assert of(FieldType.TEXT, value) == stored


def test_a_text_is_retained_as_it_is_where_declared():
    assert of(FieldType.TEXT, " x ", trim=False) == " x "
    assert of(FieldType.TEXT, "", trim=False) is None


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (7, 7),
        (-0.0, 0),
        (400.0, 400),
        (" 7 ", 7),
        ("-7", -7),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (2**63, Reason.RANGE),
        (-(2**63) - 1, Reason.RANGE),
        (1e300, Reason.RANGE),
        pytest.param(HUGE, Reason.RANGE, id="huge"),
        ("9" * 30, Reason.RANGE),
        ("9" * 5000, Reason.TYPE),
        (7.5, Reason.TYPE),
        ("1.5", Reason.TYPE),
        ("x", Reason.TYPE),
        (True, Reason.TYPE),
        (math.nan, Reason.TYPE),
        (math.inf, Reason.TYPE),
        ([7], Reason.TYPE),
    ],
)
def test_a_whole_number_is_whole_and_fits_in_64_bits(value, stored):
    found = of(FieldType.INT, value)

    assert found == stored
    assert type(found) is type(stored)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (7, 7.0),
        (0.1, 0.1),
        (" 1e3 ", 1000.0),
        (math.nan, Reason.RANGE),
        (-math.inf, Reason.RANGE),
        ("NaN", Reason.TYPE),
        ("1e999", Reason.RANGE),
        (10**400, Reason.TYPE),
        pytest.param(HUGE, Reason.TYPE, id="huge"),
        ("1,5", Reason.TYPE),
        ("1_000.5", Reason.TYPE),
        (False, Reason.TYPE),
        ({}, Reason.TYPE),
    ],
)
def test_a_number_is_finite(value, stored):
    found = of(FieldType.FLOAT, value)

    assert found == stored
    assert type(found) is type(stored)


def test_the_two_zeros_are_one():
    assert str(of(FieldType.FLOAT, -0.0)) == "0.0"


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (True, True),
        (0, False),
        (1, True),
        ("YES", True),
        (" f ", False),
        (2, Reason.TYPE),
        (1.0, Reason.TYPE),
        ("maybe", Reason.TYPE),
        ([], Reason.TYPE),
    ],
)
def test_a_truth_value_may_be_spelled_out(value, stored):
    assert of(FieldType.BOOL, value) == stored


@pytest.mark.parametrize(
    ("value", "form", "stored"),
    [
        ("2026-02-28", None, date(2026, 2, 28)),
        (" 2024-02-29 ", None, date(2024, 2, 29)),
        ("2026-02-29", None, Reason.TYPE),
        ("2026-02-28T12:00:00Z", None, Reason.TYPE),
        ("28.02.2026", "%d.%m.%Y", date(2026, 2, 28)),
        ("2026-02-28", "%d.%m.%Y", Reason.TYPE),
        (20260228, None, Reason.TYPE),
    ],
)
def test_a_date_is_a_day_of_the_calendar(value, form, stored):
    assert of(FieldType.DATE, value, format=form) == stored


@pytest.mark.parametrize(
    ("value", "form", "stored"),
    [
        ("2026-02-28T12:00:00Z", None, datetime(2026, 2, 28, 12, tzinfo=UTC)),
        ("2026-02-28T12:00:00+02:00", None, datetime(2026, 2, 28, 10, tzinfo=UTC)),
        ("2026-02-28T12:00:00", None, datetime(2026, 2, 28, 12, tzinfo=UTC)),
        ("2026-02-28", None, datetime(2026, 2, 28, tzinfo=UTC)),
        ("28.2.2026 9:30", "%d.%m.%Y %H:%M", datetime(2026, 2, 28, 9, 30, tzinfo=UTC)),
        ("0001-01-01T00:00:00+05:00", None, datetime(1, 1, 1, tzinfo=UTC)),
        ("soon", None, Reason.TYPE),
        (1772280000, None, Reason.TYPE),
    ],
)
def test_a_timestamp_is_an_instant_in_utc(value, form, stored):
    found = of(FieldType.TIMESTAMP, value, format=form)

    assert found == stored


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ({"b": 1, "a": [None, "ü"]}, '{"a":[null,"ü"],"b":1}'),
        ("x", '"x"'),
        (False, "false"),
        ([math.nan], Reason.TYPE),
        ({"a": "\ud800"}, Reason.TYPE),
        ({"a": ["b\x00"]}, Reason.TYPE),
        ({"a\x00": 1}, Reason.TYPE),
        ("\\\x00", Reason.TYPE),
        # a backslash and letters, which only look like it
        ("\\u0000", r'"\\u0000"'),
        pytest.param(HUGE, Reason.TYPE, id="huge"),
    ],
)
def test_json_is_retained_in_one_form(value, stored):
    assert of(FieldType.JSON, value) == stored


@pytest.mark.parametrize(
    ("cell", "stored"),
    [
        ('{"b": 1, "a": [null, "\\u00fc"]}', '{"a":[null,"ü"],"b":1}'),
        (' "x" ', '"x"'),
        ("7.0", "7.0"),
        ("[1.10, 1E+05, -0.0, 1e-999]", "[1.10,1E+05,-0.0,1e-999]"),
        ('{"b": {"d": 2.50, "c": "\\n"}, "a": 1}', '{"a":1,"b":{"c":"\\n","d":2.50}}'),
        ("12345678901234567890.123", "12345678901234567890.123"),
        ("[1e999]", Reason.TYPE),
        ('{"a": 1, "b": 2, "a": 1}', Reason.TYPE),
        ("false", "false"),
        ("null", None),
        ("", None),
        (" \t", None),
        ("x", Reason.TYPE),
        ('{"a": 1', Reason.TYPE),
        ("{'a': 1}", Reason.TYPE),
        ("[NaN]", Reason.TYPE),
        ('"\\ud800"', Reason.TYPE),
        ('["\\u0000"]', Reason.TYPE),
        pytest.param("9" * 5000, Reason.TYPE, id="huge"),
        pytest.param("[" * 100_000, Reason.TYPE, id="deep"),
    ],
)
def test_json_in_a_file_is_read_and_retained_in_the_same_form(cell, stored):
    assert of(FieldType.JSON, JsonText(cell)) == stored


def test_what_is_no_json_is_reported_as_it_stands_in_the_file():
    only = dataset(fields=(typed_field("it", FieldType.JSON),), key=("it",))

    outcome = Mapper(only)(RawRow((JsonText("[NaN]"),), b"raw", 0))

    assert isinstance(outcome, Rejection)
    assert outcome.detail == "'[NaN]' is not of type json"


def test_a_document_of_a_transform_has_the_digits_that_it_was_given():
    given = {2: (WrittenNumber("1.10"), 0.5), 1: [True, None, "x"]}

    assert of(FieldType.JSON, given) == '{"1":[true,null,"x"],"2":[1.10,0.5]}'
    assert of(FieldType.JSON, {"a": [WrittenNumber("1.5"), math.nan]}) is Reason.TYPE
    assert of(FieldType.JSON, {"a": [WrittenNumber("1.5"), {1}]}) is Reason.TYPE


@pytest.mark.parametrize("trim", [True, False])
def test_the_text_of_a_document_is_plain_text_to_other_fields(trim):
    found = of(FieldType.TEXT, JsonText("[1]"), trim=trim)

    assert (found, type(found)) == ("[1]", str)


def test_json_that_is_too_deep_is_refused():
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]

    assert of(FieldType.JSON, deep) is Reason.TYPE


@pytest.mark.parametrize(
    ("field", "value", "stored"),
    [
        (int_field("it", min=0, max=9), 9, 9),
        (int_field("it", min=0, max=9), 0, 0),
        (int_field("it", min=0, max=9), 10, Reason.RANGE),
        (int_field("it", min=0), -1, Reason.RANGE),
        (text_field("it", max_length=2), "ab", "ab"),
        (text_field("it", max_length=2), "abc", Reason.LENGTH),
        (text_field("it", pattern="^[a-z]+$"), "abc", "abc"),
        (text_field("it", pattern="^[a-z]+$"), "ABC", Reason.PATTERN),
        (text_field("it", choices=("a", "b")), "b", "b"),
        (text_field("it", choices=("a", "b")), "c", Reason.CHOICE),
        (int_field("it", default=4), None, 4),
        (text_field("it", default="none"), " ", "none"),
        (text_field("it", required=True), None, Reason.MISSING),
        # what is not there is not checked
        (text_field("it", max_length=2, pattern="x"), None, None),
    ],
)
def test_a_field_checks_what_it_declares(field, value, stored):
    assert cast(field, value) == stored


# rejections


POI = dataset(
    fields=(int_field("id", required=True), text_field("title", max_length=3))
)


def test_a_rejection_names_field_place_key_and_raw_form():
    outcome = Mapper(POI)(RawRow((7, "too long"), b'{"id": 7}', 12))

    assert outcome == Rejection(
        position=12,
        reason=Reason.LENGTH,
        detail="8 characters are more than 3",
        raw=b'{"id": 7}',
        field="title",
        key=(7,),
    )


def test_a_rejection_without_a_readable_key_has_none():
    outcome = Mapper(POI)(RawRow(("x", "ok"), b"", 0))

    assert isinstance(outcome, Rejection)
    assert (outcome.field, outcome.key) == ("id", None)


def test_a_row_that_could_not_be_read_is_rejected_as_such():
    row = RawRow((), b"\xff", 4, unreadable="is not JSON")

    outcome = Mapper(POI)(row)

    assert outcome == Rejection(
        position=4, reason=Reason.UNREADABLE, detail="is not JSON", raw=b"\xff"
    )
    assert Mapper(POI).key_of(row) is None


def test_a_long_value_is_reported_in_short():
    outcome = Mapper(dataset(fields=(int_field("id"),)))(RawRow(("x" * 999,), b"", 0))

    assert isinstance(outcome, Rejection)
    assert len(outcome.detail) < 100


# hashes


def test_the_hash_of_an_example_never_changes():
    values = (
        7,
        "Grüße",
        0.1,
        True,
        None,
        date(2026, 2, 28),
        datetime(2026, 2, 28, 12, tzinfo=UTC),
        '{"a":1}',
    )

    assert content_digest(values).hex() == "5f555f4b164400be7098fbb64c046079"


def test_a_hash_depends_on_values_alone():
    shared = "a town"
    interned = (sys.intern("charging"), shared, shared)
    built = tuple(bytes(each, "ascii").decode() for each in interned)

    assert content_digest(interned) == content_digest(built)


@pytest.mark.parametrize("kind", [FieldType.INT, FieldType.FLOAT])
def test_a_number_has_one_hash_however_it_is_written(kind):
    mapper = Mapper(dataset(fields=(typed_field("id", kind),)))

    outcomes = {mapper(RawRow((value,), b"", 0)) for value in (400, 400.0, "400")}

    assert len(outcomes) == 1


def test_only_declared_columns_are_hashed():
    noted = dataset(fields=(*POI.fields, text_field("note", local=True)), axes=POI.axes)

    plain = Mapper(POI)(RawRow((1, "x"), b"one", 0))
    other = Mapper(noted)(RawRow((1, "x"), b"another", 5))

    assert plain == other


def test_each_column_counts():
    hashes = {record(1, "a").digest, record(1, "b").digest, record(2, "a").digest}

    assert len(hashes) == 3
    assert content_digest(("a", None)) != content_digest((None, "a"))
    assert content_digest(("ab", "c")) != content_digest(("a", "bc"))
    assert content_digest(("1",)) != content_digest((1,))


# duplicates in a page


def test_of_two_records_of_one_key_the_last_wins():
    found = Mapper(POI).resolve([record(1, "a"), record(2, "b"), record(1, "c")])

    assert {each.key: each.values[1] for each in found} == {(1,): "c", (2,): "b"}


@pytest.mark.parametrize(
    ("versions", "stored"),
    [
        ([1, 2], 2),
        ([2, 1], 2),
        ([None, 1], 1),
        ([1, None], 1),
        ([None, None], None),
    ],
)
def test_of_two_versions_in_a_page_the_newest_wins(versions, stored):
    versioned = dataset(fields=(int_field("id"), int_field("v")), version="v")
    records = [record(1, version, of=versioned) for version in versions]

    (found,) = Mapper(versioned).resolve(records)

    assert found.values == (1, stored)


def test_a_key_may_have_several_fields():
    pairs = dataset(
        fields=(text_field("title"), int_field("a"), int_field("b")), key=("b", "a")
    )

    outcome = Mapper(pairs)(RawRow(("x", 1, 2), b"", 0))

    assert isinstance(outcome, Record)
    assert outcome.key == (2, 1)


@pytest.mark.parametrize(
    ("declared", "as_it_stands", "rewritten"),
    [
        ({"type": FieldType.INT}, ["40", "-7", "0"], ["00040", "+7", "-0", " 07 "]),
        (
            {"type": FieldType.FLOAT},
            ["1.5", "7", "7.0", "1e-05"],
            ["1.10", "07.5", "+1.5", "1.", ".5", "-0.0", "1E5"],
        ),
        ({"type": FieldType.FLOAT, "decimal": ","}, ["1,5", "7"], ["1,50", "01,5"]),
        ({"type": FieldType.BOOL}, ["true", "No", "Y"], ["1", "0"]),
        ({"type": FieldType.DATE}, ["2026-01-31"], ["20260131", "2026-W05-6"]),
        (
            {"type": FieldType.DATE, "format": "%d.%m.%Y"},
            ["31.01.2026", "1.2.2026"],
            ["01.2.2026"],
        ),
        (
            {"type": FieldType.TIMESTAMP},
            ["2026-01-31T10:00:00Z", "2026-01-31 10:00", "2026-01-31T10:00:00.123Z"],
            ["2026-01-31T10:00:00+02:00", "2026-01-31T10:00:00.1234567Z", "2026-01-31"],
        ),
        (
            {"type": FieldType.TIMESTAMP, "format": "%s"},
            ["1700000000"],
            ["01700000000"],
        ),
    ],
)
def test_exact_fields_take_only_what_they_can_write_back(
    declared, as_it_stands, rewritten
):
    cast = compile_cast(Field(name="it", exact=True, **declared))
    lenient = compile_cast(Field(name="it", **declared))

    for text in as_it_stands:
        assert cast(f" {text} ") == lenient(text)
    for text in rewritten:
        assert lenient(text) is not None
        with pytest.raises(BadValue, match="would be stored as"):
            cast(text)


def test_exact_documents_keep_their_text():
    cast = compile_cast(Field(name="it", type=FieldType.JSON, exact=True))

    assert cast(JsonText('{"a":1.10}')) == '{"a":1.10}'
    assert cast(JsonText('{"a": [1.10, 2e5]}')) == '{"a":[1.10,2e5]}'
    assert cast("a text in JSON") == '"a text in JSON"'
    with pytest.raises(BadValue, match="would be stored as"):
        cast(JsonText('{"a":-0}'))
