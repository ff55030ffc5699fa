"""What a client may make of a record, and that the published schema says just that."""

import json
import re
from datetime import UTC, date, datetime
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.domain.dataset import Field, FieldType
from penstock.domain.record_validation import (
    MAX_FIELD_ERRORS,
    Precondition,
    RecordDraft,
    RecordValidator,
)
from penstock.entrypoints.api.openapi.schemas import (
    field_schema,
    is_ecma,
    record_schemas,
)
from penstock.errors import BadRequest, VersionChanged
from tests.support.builders import dataset, int_field, text_field, typed_field

SHOPS = dataset(
    fields=(
        text_field("region", required=True, choices=("north", "south")),
        text_field("code", required=True, max_length=8),
        text_field("name", required=True, max_length=12),
        text_field("phone", pattern="^[0-9 ]{3,6}$"),
        text_field("slug", pattern="^[a-z]*$", trim=True),
        text_field("town"),
        int_field("points", min=0, max=9, default=3),
        typed_field("share", FieldType.FLOAT, min=0, max=1),
        typed_field("is_open", FieldType.BOOL),
        typed_field("day", FieldType.DATE, format="%d.%m.%Y"),
        typed_field("seen", FieldType.TIMESTAMP),
        typed_field("extra", FieldType.JSON),
        Field(name="note", local=True),
    ),
    key=("region", "code"),
)
KEY = ("north", "a1")
EDITOR = RecordValidator(SHOPS)
NAMES = [each.name for each in SHOPS.fields]
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
STORED = ("north", "a1", "Nora", *[None] * 10)


def put(document: object, key: tuple[object, ...] | None = KEY) -> RecordDraft:
    return EDITOR.validate_full(document, key=key)


def flaws_of(document: object, key: tuple[object, ...] | None = KEY) -> dict[str, str]:
    """Return the code of each flaw by its place."""
    with pytest.raises(BadRequest) as caught:
        put(document, key)
    return {flaw.pointer: flaw.code for flaw in caught.value.flaws}


def value_of(drafted: RecordDraft, name: str) -> object:
    return drafted.record.values[SHOPS.column(name)]


def validator(schema: Any) -> Any:
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)


def has_nul(value: object) -> bool:
    """Whether a text within JSON has what no schema excludes without recursion."""
    return r"\u0000" in json.dumps(value)


def test_a_record_is_read_by_json_s_types():
    drafted = put(
        {
            "name": "  Nora  ",
            "points": 4.0,
            "share": 1,
            "is_open": True,
            "day": "2026-01-31",
            "seen": "2026-01-31T14:00:00+02:00",
            "extra": {"b": [1, None], "a": "x"},
            "note": "ours",
        }
    )

    assert drafted.record.key == KEY
    assert drafted.record.values == (
        *("north", "a1", "Nora", None, None, None, 4, 1.0, True),
        *(date(2026, 1, 31), NOW, '{"a":"x","b":[1,null]}'),
    )
    assert drafted.local == {"note": "ours"}


def test_what_is_not_named_is_empty_or_the_default():
    drafted = put({"name": "Nora"})

    assert value_of(drafted, "points") == 3
    assert value_of(drafted, "town") is None
    assert drafted.local == {"note": None}


def test_a_change_leaves_the_rest_alone():
    drafted = EDITOR.validate_patch(STORED, {"town": "Ulm", "note": "new"})

    assert value_of(drafted, "name") == "Nora"
    assert value_of(drafted, "points") is None
    assert value_of(drafted, "town") == "Ulm"
    assert drafted.local == {"note": "new"}


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("name", None, "missing"),
        ("name", "", "missing"),
        ("name", " \t\u3000", "missing"),
        ("name", 5, "type"),
        ("name", "x" * 13, "length"),
        # what is cut off counts, or the schema would not say it all
        ("name", "x" * 12 + " ", "length"),
        ("name", "a\x00b", "type"),
        ("name", "\ud800", "type"),
        ("phone", "12", "pattern"),
        ("phone", "123\n", "pattern"),
        ("phone", "", "pattern"),
        ("slug", " abc", "pattern"),
        ("points", "4", "type"),
        ("points", True, "type"),
        ("points", 4.5, "type"),
        ("points", 10, "range"),
        ("points", -1, "range"),
        ("points", 2**63, "range"),
        ("points", 10**400, "range"),
        ("share", 1.0001, "range"),
        ("share", "0.5", "type"),
        ("share", 10**400, "type"),
        ("is_open", 1, "type"),
        ("is_open", "true", "type"),
        ("day", "31.01.2026", "type"),
        ("day", "2026-02-30", "type"),
        ("day", "20260131", "type"),
        ("day", "", "type"),
        ("seen", "2026-01-31", "type"),
        ("seen", "2026-01-31T12:00:00", "type"),
        ("seen", 1_700_000_000, "type"),
        ("extra", "\x00", "type"),
        ("extra", {"a": ["\x00"]}, "type"),
        ("extra", {"\x00": 1}, "type"),
        ("note", 5, "type"),
    ],
    ids=range(35),
)
def test_what_a_field_does_not_allow_is_refused_at_its_place(name, value, code):
    assert flaws_of({"name": "Nora", name: value}) == {f"/{name}": code}


def test_every_flaw_is_reported_at_once():
    assert flaws_of({"points": -1, "share": 2}) == {
        "/name": "missing",
        "/points": "range",
        "/share": "range",
    }


@pytest.mark.parametrize("document", [None, [], "x", 5, [{"name": "x"}]], ids=range(5))
def test_what_is_no_object_is_refused(document):
    assert flaws_of(document) == {"/": "type"}


def test_an_unknown_field_is_named_as_a_pointer_names_it():
    assert flaws_of({"name": "x", "a/b~c": 1}) == {"/a~1b~0c": "unknown-field"}


def test_no_more_flaws_are_reported_than_somebody_reads():
    assert len(flaws_of({f"x{n}": n for n in range(10_000)})) == MAX_FIELD_ERRORS


def test_a_key_may_be_repeated_but_not_changed():
    assert put({"name": "x", "region": "north", "code": "a1"}).record.key == KEY
    assert flaws_of({"name": "x", "code": "a2"}) == {"/code": "type"}
    assert flaws_of({"name": "x", "code": "a2"}, key=None) == {"/region": "missing"}


@pytest.mark.parametrize(
    ("key", "place"),
    [
        (("north", ""), "{code}"),
        (("north", " a1"), "{code}"),
        (("north", "x" * 9), "{code}"),
        (("west", "a1"), "{region}"),
    ],
    ids=range(4),
)
def test_a_key_that_no_import_would_bring_is_not_created(key, place):
    assert [*flaws_of({"name": "x"}, key)] == [place]


@pytest.mark.parametrize(
    "parts", [["a"], ["a", "b", "c"], ["a", "\x00"], ["a", "x" * 601]], ids=range(4)
)
def test_what_is_no_key_is_refused(parts):
    with pytest.raises(BadRequest) as caught:
        EDITOR.read_key(parts)

    assert caught.value.flaws[0].pointer.startswith("{")


def test_keys_are_read_by_the_types_of_their_fields():
    of = dataset(
        fields=(
            int_field("id", required=True),
            typed_field("day", FieldType.DATE, required=True),
        ),
        key=("id", "day"),
    )

    assert RecordValidator(of).read_key(["-7", "2026-01-31"]) == (-7, date(2026, 1, 31))


@pytest.mark.parametrize(
    ("terms", "version", "holds"),
    [
        (Precondition(), None, True),
        (Precondition(), "v1", True),
        (Precondition(must_be_new=True), None, True),
        (Precondition(must_be_new=True), "v1", False),
        (Precondition(match=frozenset({"v1", "v2"})), "v2", True),
        (Precondition(match=frozenset({"v1"})), "v2", False),
        (Precondition(match=frozenset({"v1"})), None, False),
        (Precondition(match=frozenset({"*"})), "v2", True),
        (Precondition(match=frozenset({"*"})), None, False),
        (Precondition(match=frozenset()), "v1", False),
    ],
    ids=range(10),
)
def test_a_change_is_meant_for_some_versions(terms, version, holds):
    if holds:
        terms.check(version)
    else:
        with pytest.raises(VersionChanged):
            terms.check(version)


BLANKS = " \t\n\r\x1c\x1f\x85\xa0\u2003\u2028\u3000"
LETTERS = st.characters(codec="utf-8")
ANY_TEXT = (
    st.text(LETTERS, max_size=14)
    | st.text("az09 \x00é" + BLANKS, max_size=14)
    | st.text("0123456789 \n", min_size=2, max_size=7)
    | st.sampled_from(["north", "2026-01-31", "2024-02-29", "2023-02-29"])
    | st.dates().map(date.isoformat)
    | st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat)
)
ANY_NUMBER = (
    st.integers() | st.integers(-2, 12) | st.floats(-1e9, 1e9) | st.floats(0, 2)
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | ANY_NUMBER | ANY_TEXT,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3)
    ),
    max_leaves=5,
)


VALIDATORS = {each.name: validator(field_schema(each)) for each in SHOPS.fields}


@given(data=st.data())
@settings(max_examples=200)
@pytest.mark.parametrize("name", NAMES)
def test_the_schema_of_a_field_allows_what_is_accepted_and_nothing_else(name, data):
    value = data.draw(ANY_NUMBER | ANY_TEXT | ANY_JSON)
    assume(name != "extra" or not has_nul(value))
    try:
        EDITOR.validate_full(
            {"region": "north", "code": "a", "name": "x", name: value}, key=None
        )
    except BadRequest:
        is_accepted = False
    else:
        is_accepted = True

    # as it travels
    sent = json.loads(json.dumps(value))
    assert VALIDATORS[name].is_valid(sent) is is_accepted


@given(document=st.dictionaries(st.sampled_from([*NAMES, "other"]), ANY_JSON))
def test_the_schema_of_a_record_demands_what_is_demanded(document):
    assume(not has_nul(document.get("extra")))
    try:
        EDITOR.validate_full(document, key=None)
    except BadRequest:
        is_accepted = False
    else:
        is_accepted = True

    row = dict(record_schemas(SHOPS, "Shops"))["ShopsRow"]
    assert validator(row).is_valid(json.loads(json.dumps(document))) is is_accepted


@pytest.mark.parametrize(
    ("pattern", "is_shown"),
    [
        ("^[A-Z]{2}[0-9]+$", True),
        (r"^\d{5}$", True),
        (r"^\+?[0-9 ()-]{6,20}$", True),
        (r"^a\\b$", True),
        (r"^[\[\]]$", True),
        ("(?i)abc", False),
        ("(?P<year>[0-9]+)", False),
        (r"\Aabc\Z", False),
        (r"^\w+$", False),
        ("a{,3}", False),
        ("a++", False),
        ("(?>a)b", False),
        ("[]a]", False),
    ],
)
def test_a_pattern_is_shown_where_others_understand_it(pattern, is_shown):
    re.compile(pattern)

    assert is_ecma(pattern) is is_shown


def test_a_pattern_that_others_would_misunderstand_is_reported_in_words():
    result = field_schema(text_field("name", pattern=r"^\w+$"))

    assert result["description"] == r"Must match (in Python) ^\w+$."
    assert r"\w" not in json.dumps({**result, "description": ""})
