"""Numbers are stored as they were written, or they are bad: nothing is rounded."""

import json
import math
import os
import sys
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from random import SystemRandom

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from penstock.adapters.http.body_parser import BodyReader
from penstock.adapters.http.record_decoder import NumberPaths, RecordDecoder
from penstock.domain.dataset import Field, FieldType
from penstock.domain.mapping.columnar import ColumnarRows
from penstock.domain.mapping.mapper import Mapper
from penstock.domain.pages import RawRow, Rejection
from penstock.domain.redaction import Redactor
from tests.support.builders import dataset, int_field

KINDS = (FieldType.TEXT, FieldType.INT, FieldType.FLOAT)
DIGITS = st.text("0123456789", max_size=22)
SIGNS = st.sampled_from(["", "-"])
# what the last digits of a float are lost in
EDGES = st.sampled_from(
    [
        *("1.10", "1E5", "1e-400", "12345678901234567890.12", "9007199254740993.0"),
        *("9007199254740993", "-0.0", "0e9", "5e-324", "1e23", "1.0e2", "0.10"),
        *("9223372036854775807.0", "9223372036854775808.0", "1e308", "0e-500"),
        *(
            "0.00000005960464477539063",
            "0.1000000000000000055511151231257827",
            "0.30000000000000001",
            "1e400",
        ),
    ]
)
WHOLE = st.integers(-(10**22), 10**22).map(str)
FLOATS = st.floats(allow_nan=False, allow_infinity=False).map(repr)


@st.composite
def written(draw: st.DrawFn) -> str:
    """Draw a number with any digits, as JSON allows it."""
    whole = str(int("0" + draw(DIGITS)))
    fraction = draw(DIGITS)
    exponent = draw(st.none() | st.integers(-330, 285))
    text = draw(SIGNS) + whole + (f".{fraction}" if fraction else "")
    text += "" if exponent is None else f"{draw(st.sampled_from('eE'))}{exponent:d}"
    # an integer of JSON that is zero has no sign
    return "0" if text == "-0" else text


NUMBERS = EDGES | WHOLE | FLOATS | written()
PAGES = st.lists(st.tuples(NUMBERS, st.booleans()), min_size=1, max_size=6)


def expected(kind: FieldType, text: str, *, quoted: bool) -> object:
    """Return what is stored of a number; `BadNumber` for none."""
    if kind is FieldType.TEXT:
        return text
    if kind is FieldType.INT:
        exact = Fraction(text)
        is_whole = exact.denominator == 1 and -(2**63) <= exact < 2**63
        # an integer that is written as text has digits only
        is_plain = not quoted or text.lstrip("-").isdigit()
        return int(exact) if is_whole and is_plain else Rejection
    return float(text) if same_digits(text, float(text)) else Rejection


def same_digits(text: str, number: float) -> bool:
    if math.isinf(number):
        return False
    with localcontext(prec=17, rounding=ROUND_HALF_EVEN, Emin=-(10**6), Emax=10**6):
        rounded = (+Decimal(text)).normalize()
    last_digit = Fraction(10) ** int(rounded.as_tuple().exponent)
    return 2 * abs(Fraction(number) - Fraction(rounded)) <= last_digit


def body_of(page: list[tuple[str, bool]]) -> bytes:
    parts = [
        f'{{"id": {number}, "more": {{"value": {json.dumps(text) if quoted else text}}}'
        f', "skipped": {text.replace("1e400", "1e4")}}}'
        for number, (text, quoted) in enumerate(page)
    ]
    return f"[{', '.join(parts)}]".encode()


def read(field: Field, body: bytes) -> tuple[list[object], list[object]]:
    """Return the stored values of a page, mapped as a whole and row by row."""
    of = dataset(fields=(int_field("id"), field), key=("id",))
    decoder = RecordDecoder(of.paths, NumberPaths.of(of))
    reader = BodyReader((), None, rows=decoder, redactor=Redactor({}))
    rows = reader.read(body, content_type=None).rows
    mapper = Mapper(of)
    return by_column(mapper, rows), [*map(outcome(mapper), decoder_rows(decoder, rows))]


def by_column(mapper: Mapper, rows: object) -> list[object]:
    assert isinstance(rows, ColumnarRows)
    records, bad = mapper.map_all(rows.columns)
    values = iter(records.columns[1])
    return [Rejection if at in bad else next(values) for at in range(len(rows))]


def decoder_rows(decoder: RecordDecoder, rows: object) -> list[RawRow]:
    assert isinstance(rows, ColumnarRows)
    return decoder.read_all([row.raw for row in rows])


def outcome(mapper: Mapper):
    def of(row: RawRow) -> object:
        mapped = mapper(row)
        return Rejection if isinstance(mapped, Rejection) else mapped.values[1]

    return of


def compare(kind: FieldType, page: list[tuple[str, bool]]) -> None:
    # a number without an end makes its whole record no JSON, as parsers see it
    page = [(text, quoted or text == "1e400") for text, quoted in page]
    field = Field(name="value", path=("more", "value"), type=kind)
    at_once, one_by_one = read(field, body_of(page))
    wanted = [expected(kind, text, quoted=quoted) for text, quoted in page]
    assert list(map(repr, at_once)) == list(map(repr, map(unsigned, wanted)))
    assert one_by_one == at_once


def unsigned(value: object) -> object:
    """The two zeros are one."""
    return 0.0 if value == 0 and isinstance(value, float) else value


@pytest.mark.parametrize("kind", KINDS)
@given(page=PAGES)
def test_numbers_are_stored_as_written_or_are_bad(kind, page):
    compare(kind, page)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_more_numbers_are_stored_as_written_or_are_bad(kind, capsys):
    first = int(os.environ.get("PENSTOCK_SEED", SystemRandom().randrange(2**32)))
    with capsys.disabled():
        sys.stdout.write(f"\nwritten numbers: PENSTOCK_SEED={first}\n")
    many = settings(max_examples=3_000)
    many(seed(first)(given(page=PAGES)(lambda page: compare(kind, page))))()


@pytest.mark.parametrize(
    ("kind", "text", "stored"),
    [
        (FieldType.TEXT, "1.10", "1.10"),
        (FieldType.TEXT, "12345678901234567890.12", "12345678901234567890.12"),
        (FieldType.TEXT, "1E5", "1E5"),
        (FieldType.INT, "9007199254740993.0", 9007199254740993),
        (FieldType.INT, "1e3", 1000),
        (FieldType.INT, "9007199254740993.5", Rejection),
        (FieldType.FLOAT, "1e-400", Rejection),
        (FieldType.FLOAT, "12345678901234567890.12", Rejection),
        (FieldType.FLOAT, "9007199254740993", Rejection),
        (FieldType.FLOAT, "0.1000000000000000055511151231257827", 0.1),
        (FieldType.FLOAT, "1.10", 1.1),
    ],
)
def test_a_number_of_a_provider_has_its_digits(kind, text, stored):
    assert expected(kind, text, quoted=False) == stored
    compare(kind, [(text, False)])
    # among others, too
    compare(kind, [("7", False), (text, False), ("1.5", True)])


def test_a_bad_number_is_shown_with_its_digits():
    of = dataset(fields=(int_field("id"),), key=("id",))
    decoder = RecordDecoder(of.paths, NumberPaths.of(of))
    bad = Mapper(of)(decoder.read(b'{"id": 9007199254740993.5}', 0))
    assert isinstance(bad, Rejection)
    assert bad.detail == "9007199254740993.5 is not of type int"
