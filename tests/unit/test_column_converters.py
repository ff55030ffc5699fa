"""A column as a whole gives what its values give one by one."""

from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.domain.dataset import Field, FieldType
from penstock.domain.mapping.column_converters import cast_each, compile_column
from penstock.domain.mapping.columnar import ColumnarRecords, ColumnarRows
from penstock.domain.mapping.converters import compile_cast
from penstock.domain.mapping.mapper import Mapper
from penstock.domain.mapping.written_numbers import WrittenNumber
from penstock.domain.pages import RawRow, Record, RowLocation
from tests.support.builders import dataset, int_field, text_field, typed_field

RAW = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        [
            *("", " ", " x ", "7", "-7", "+7", "007", " 7 ", "1_000", "٣", "7.0"),
            *("1e5", ".5", "5.", "-0.0", "1e400", "nan", "inf", "1e", "9" * 19),
            *("true", "no", "2026-02-28", "2026-02-30", " 2026-02-28 "),
            *("2026-02-28T12:00:00Z", "2026-02-28T12:00:00+02:00", "20260228"),
            *("2026-02-28T12:00:00", "0001-01-01T00:00:00+14:00", "a\x00b", "\ud800"),
            *(0.0, -0.0, 2**63, -(2**63), 10**400),
            *("1.10", "-0.00", "1,5", "9" * 250, "9" * 251, "1e-250", "1e-251"),
            *(WrittenNumber("1.10"), WrittenNumber("1E2"), WrittenNumber("-0.0")),
        ]
    ),
    st.lists(st.integers(), max_size=2),
)
KINDS = st.sampled_from([*FieldType])
# most columns hold one kind of value, and those take the short way
COLUMNS = st.one_of(
    st.lists(RAW, max_size=6),
    st.lists(st.integers(), max_size=6),
    st.lists(st.floats(), max_size=6),
    st.lists(st.integers(0, 99).map(str), max_size=6),
    st.lists(st.floats(allow_nan=False).map(str), max_size=6),
    st.lists(st.decimals(-(10**20), 10**20).map(str), max_size=6),
    st.lists(st.decimals(-(10**20), 10**20).map(str).map(WrittenNumber), max_size=6),
    st.lists(st.datetimes().map(lambda at: at.isoformat() + "Z"), max_size=6),
    st.lists(st.dates().map(str) | st.none(), max_size=6),
    st.lists(st.sampled_from(["a", "b ", None, "ccc"]), max_size=6),
)


def rules(kind: FieldType) -> st.SearchStrategy[dict[str, object]]:
    fitting: dict[str, st.SearchStrategy[object]] = {"required": st.booleans()}
    if kind is FieldType.TEXT:
        fitting |= {
            "trim": st.booleans(),
            "max_length": st.sampled_from([None, 2, 9]),
            "pattern": st.sampled_from([None, "^[a-z]+$"]),
            "choices": st.sampled_from([None, ("a", "b")]),
            "default": st.sampled_from([None, "d"]),
        }
    if kind in {FieldType.INT, FieldType.FLOAT, FieldType.DECIMAL}:
        fitting |= {
            "min": st.sampled_from([None, -5, 0]),
            "max": st.sampled_from([None, 5, 1e9]),
            "default": st.sampled_from([None, 0]),
        }
    if kind is FieldType.DECIMAL:
        fitting |= {
            "decimal": st.sampled_from([".", ","]),
            "is_normalized": st.booleans(),
        }
    if kind is not FieldType.TEXT:
        fitting["exact"] = st.booleans()
    return st.fixed_dictionaries(fitting)


@st.composite
def fields(draw) -> Field:
    kind = draw(KINDS)
    return Field(name="it", path=("it",), type=kind, **draw(rules(kind)))


def written(values) -> list[str]:
    """Tell 1 from 1.0 and True, and the two zeros from each other."""
    return [f"{type(each).__name__} {each!r}" for each in values]


@given(field=fields(), column=COLUMNS)
@example(field=Field(name="it", type=FieldType.FLOAT), column=[0.5, -0.0])
@example(field=Field(name="it", type=FieldType.FLOAT), column=["1_0", "2"])
@example(field=Field(name="it", type=FieldType.INT), column=["٣", "4"])
@example(field=Field(name="it", type=FieldType.INT), column=["", "4"])
@example(field=Field(name="it", required=True), column=["a", None])
@example(field=Field(name="it"), column=["a", "\x00"])
@example(field=Field(name="it"), column=["ä", "\ud800"])
def test_a_column_gives_what_its_values_give(field, column):
    expected, bad = cast_each(column, compile_cast(field))

    found, found_bad = compile_column(field)(column)

    assert written(found) == written(expected)
    assert list(found_bad) == bad


PAIR = dataset(
    fields=(
        int_field("id"),
        text_field("name"),
        typed_field("at", FieldType.TIMESTAMP),
        typed_field("price", FieldType.DECIMAL),
    )
)


def test_rows_by_column_give_the_records_of_rows():
    rows = [
        (1, "a", "2026-02-28T12:00:00Z", "1.10"),
        (2, None, None, None),
        (3, "ä", None, "12345678901234567890.12"),
    ]
    mapper = Mapper(PAIR)

    sheet, bad = mapper.map_all([*zip(*rows, strict=True)])

    assert list(bad) == []
    assert list(sheet) == [mapper(RawRow(row, b"", 0)) for row in rows]


def test_bad_rows_are_distinguished_from_the_others():
    mapper = Mapper(PAIR)
    columns = [(1, "x", 3, 4), ("a", "b", "c", "d"), (None, None, None, "never")]
    columns.append(("1", "2", "3", "4"))

    sheet, bad = mapper.map_all(columns)

    assert list(bad) == [1, 3]
    assert list(sheet) == [mapper(RawRow((1, "a", None, "1"), b"", 0)), mapper(C)]


C = RawRow((3, "c", None, "3"), b"", 0)


def test_a_sheet_is_ordered_by_key():
    records = [Record((key,), (key,), bytes([key])) for key in (2, 1, 3)]

    assert list(ColumnarRecords.of(records).by_key()) == sorted(records)


class MarkedText(str):
    """A text that says more of itself than that."""

    __slots__ = ()


def test_texts_become_plain_also_where_they_are_not_trimmed():
    cast = compile_column(text_field("title", trim=False))

    found, bad = cast([MarkedText(" a "), MarkedText("b")])

    assert [(type(each), each) for each in found] == [(str, " a "), (str, "b")]
    assert list(bad) == []


def test_counted_times_follow_their_rows():
    times = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    sheet = ColumnarRecords(
        [(3,), (1,), (2,)], [(3, 1, 2), times], [b""] * 3, {1: (10, 20, 30)}
    )

    ordered = sheet.by_key()

    assert [*ordered.columns[1]] == [times[1], times[2], times[0]]
    assert [*ordered.counted[1]] == [20, 30, 10]


def test_rows_are_made_of_columns_only_when_requested():
    def details(positions):
        return [(b"%d" % at, RowLocation(line=at, offset=10 * at)) for at in positions]

    sheet = ColumnarRows([(1, 2, 3), ("a", "b", "c")], details)

    assert sheet[1] == RawRow((2, "b"), b"1", 1, place=RowLocation(1, 10))
    assert [row.raw for row in sheet.first_rows(2)] == [b"0", b"1"]
    assert [row.values for row in sheet.at([2])] == [(3, "c")]
