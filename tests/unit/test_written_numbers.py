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
from penstock.domain.mapping.column_converters import compile_column
from penstock.domain.mapping.columnar import ColumnarRows
from penstock.domain.mapping.converters import BadValue, compile_cast
from penstock.domain.mapping.mapper import Mapper
from penstock.domain.pages import RawRow, Rejection
from penstock.domain.redaction import Redactor
from tests.support.builders import dataset, int_field

KINDS = (FieldType.TEXT, FieldType.INT, FieldType.FLOAT, FieldType.DECIMAL)
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
        *(
            "9" * 250,
            "9" * 251,
            "1e249",
            "1e250",
            "1e-250",
            "1e-251",
            "0." + "12" * 125,
        ),
        *(
            "1.0e250",
            f"{'7' * 250}.{'3' * 250}",
            f"-{'7' * 250}.{'3' * 251}",
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
    if kind is FieldType.DECIMAL:
        return plain(text)
    return float(text) if same_digits(text, float(text)) else Rejection


def plain(text: str) -> object:
    """Return the same digits without an exponent."""
    mantissa, _, exponent = text.lower().lstrip("+-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    at = len(whole) + int(exponent or 0)
    digits = (whole + fraction).rjust(len(whole + fraction) - min(at, 0), "0")
    at = max(at, 0)
    before = digits[:at].ljust(at, "0").lstrip("0") or "0"
    after = digits[at:]
    if len(before) > 250 or len(after) > 250:
        return Rejection
    sign = "-" if text[0] == "-" and (before + after).strip("0") else ""
    return f"{sign}{before}.{after}" if after else f"{sign}{before}"


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
    values = map(shown, records.columns[1])
    return [Rejection if at in bad else next(values) for at in range(len(rows))]


def shown(value: object) -> object:
    """Return a decimal as its characters, zeros at the end included."""
    return format(value, "f") if isinstance(value, Decimal) else value


def decoder_rows(decoder: RecordDecoder, rows: object) -> list[RawRow]:
    assert isinstance(rows, ColumnarRows)
    return decoder.read_all([row.raw for row in rows])


def outcome(mapper: Mapper):
    def of(row: RawRow) -> object:
        mapped = mapper(row)
        return Rejection if isinstance(mapped, Rejection) else shown(mapped.values[1])

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
        (FieldType.DECIMAL, "1.10", "1.10"),
        (FieldType.DECIMAL, "12345678901234567890.12", "12345678901234567890.12"),
        (FieldType.DECIMAL, "-1.5E-3", "-0.0015"),
        (FieldType.DECIMAL, "1.20e1", "12.0"),
        (FieldType.DECIMAL, "12e2", "1200"),
        (FieldType.DECIMAL, "-0.00", "0.00"),
        (FieldType.DECIMAL, "1e-251", Rejection),
        (FieldType.DECIMAL, "1e250", Rejection),
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


@pytest.mark.parametrize("point", [".", ","])
@given(cells=st.lists(NUMBERS, min_size=1, max_size=6))
def test_decimals_of_a_file_have_the_digits_of_their_cells(point, cells):
    field = Field(name="it", type=FieldType.DECIMAL, decimal=point)
    column = [f" {cell.replace('.', point)} " for cell in cells]

    found, bad = compile_column(field)(column)

    values = [Rejection if at in bad else shown(v) for at, v in enumerate(found)]
    assert values == [plain(cell) for cell in cells]


@pytest.mark.parametrize(
    "value",
    [
        *("NaN", "Infinity", "-inf", "sNaN", "1_000", "1,5", "0x1", "٣", "1 2"),
        *("1e99999999999999999999", "1e-99999999999999999999", 10**250, Decimal("NaN")),
        *(math.nan, math.inf, True, [], {}, "e5", "."),
    ],
)
def test_what_is_no_number_is_no_decimal(value):
    cast = compile_cast(Field(name="it", type=FieldType.DECIMAL))

    with pytest.raises(BadValue):
        cast(value)


def test_a_key_has_one_form_of_equal_decimals():
    cast = compile_cast(Field(name="it", type=FieldType.DECIMAL, is_normalized=True))

    texts = ["1.10", "1.1", "01.100", "100.0", "1e2", "0.00", "-0"]
    assert [shown(cast(text)) for text in texts] == [
        *("1.1", "1.1", "1.1", "100", "100", "0", "0")
    ]
