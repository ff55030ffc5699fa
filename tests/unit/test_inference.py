"""What `penstock init --from` thinks of columns."""

import re
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.domain.dataset import Field, FieldType
from penstock.domain.formats import EPOCH
from penstock.domain.inference.dialect import (
    NotTabular,
    SampleTable,
    guess_delimiter,
    guess_layout,
    read_table,
)
from penstock.domain.inference.draft import guess_dataset
from penstock.domain.inference.encoding import guess_encoding
from penstock.domain.inference.field_names import MAX_NAME_LENGTH, field_names
from penstock.domain.inference.types import guess_type
from penstock.domain.mapping.converters import JsonText, compile_cast
from penstock.domain.mapping.exact_values import with_spaces
from penstock.domain.time_formats import format_unit
from penstock.settings.models.base import as_own_name


def draft_of(text):
    layout = guess_layout(text, is_whole=True)
    return guess_dataset(read_table([text], layout, is_whole=True))


def table(columns, *rows):
    return SampleTable(columns=tuple(columns), rows=rows)


@pytest.mark.parametrize(
    ("values", "kind", "form", "why"),
    [
        (["1", "-2"], "int", None, "whole numbers"),
        (["0", "1"], "int", None, "maybe a bool"),
        (["1", "2.5", "-3"], "float", None, "numbers"),
        (["1.0", "2.5"], "float", None, "numbers"),
        (["1", "2.5", "1e3"], "text", None, "'1e3' would become '1000'"),
        (["12E4"], "text", None, "would become"),
        (["1.10", "1.1"], "text", None, "'1.10' would become '1.1'"),
        (["9007199254740993", "1.5"], "text", None, "would become"),
        (["12345678901234567890", "-1"], "text", None, "would become"),
        (["-0"], "text", None, "would become"),
        (["007", "8"], "text", None, "a first zero would be lost"),
        (["+49", "8"], "text", None, "a plus would be lost"),
        (["9" * 20, "1"], "text", None, "more digits"),
        (["1,5", "-2,25", "7"], "float", None, "decimal comma"),
        (["1,5", "1.000,25"], "text", None, "dots between thousands"),
        (["1,500", "27"], "text", None, "commas may separate thousands"),
        (["01,5", "1,5"], "text", None, "a first zero would be lost"),
        (["1,5", "x"], "text", None, "up to 3 characters"),
        (["yes", "no"], "bool", None, "only no and yes"),
        (["TRUE"], "bool", None, "only true"),
        (["y", "n"], "bool", None, "only n and y"),
        (["n"], "text", None, "only n"),
        (["NO"], "text", None, "only no"),
        (["yes", "No"], "bool", None, "only no and yes"),
        (["yes", "no", "No"], "text", None, "in several ways"),
        (["2026-01-31"], "date", None, "ISO 8601"),
        (["2026-01-31T10:00:00Z"], "timestamp", None, "ISO 8601 times"),
        (["2026-01-31 10:00"], "timestamp", None, "without a zone it is UTC"),
        (["2026-01-31", "2026-01-31 10:00"], "text", None, "not all written alike"),
        (["2026-01-31T10:00:00.123Z"], "timestamp", None, "ISO 8601 times"),
        (["2026-01-31T10:00:00.123456789Z"], "text", None, "finer than micro"),
        (["2026-01-31T10:00:00+02:00"], "text", None, "not in UTC"),
        (["31.01.2026", "01.02.2026"], "date", "%d.%m.%Y", "this format"),
        (["31.1.2026", "1.2.2026"], "date", "%d.%m.%Y", "this format"),
        (["31.01.2026", "1.2.2026"], "text", None, "not all written alike"),
        (["31/01/2026", "01/02/2026"], "date", "%d/%m/%Y", "this format"),
        (["01/31/2026", "01/02/2026"], "date", "%m/%d/%Y", "this format"),
        (["01/02/2026"], "text", None, "day and month look alike"),
        (["31.01.2026 10:00"], "timestamp", "%d.%m.%Y %H:%M", "UTC"),
        (['{"a": 1}', "[]"], "json", None, "JSON"),
        (['{"b": 1, "a": 1.10}'], "text", None, "order of names would change"),
        (["{a}", "[]"], "text", None, "up to 3 characters"),
        (["1"] * 9 + ["NA"], "text", None, "most are numbers, but 'NA' is not"),
        (["2026-01-31"] * 9 + ["?"], "text", None, "most are dates, but '?' is not"),
        ([], "text", None, "empty in all rows"),
    ],
)
def test_a_type_is_guessed_from_the_values(values, kind, form, why):
    guess = guess_type("it", values)

    assert (guess.type, guess.format) == (FieldType(kind), form)
    assert why in guess.reason


@pytest.mark.parametrize("name", ["phone", "home_phone", "zip", "plz", "ean"])
def test_digits_that_name_something_stay_text(name):
    assert guess_type(name, ["12345"]).type is FieldType.TEXT


@given(st.lists(st.text(min_size=1).map(str.strip).filter(bool), max_size=5))
@example(['{"a": 1}', "[]"])
@example(["[NaN]"])
@example(["1,5", "2"])
@example(['["\\u0000"]'])
def test_what_is_guessed_is_accepted_by_an_import(values):
    kind = guess_type("it", values)
    field = Field(
        name="it", type=kind.type, format=kind.format, decimal=kind.decimal or "."
    )
    as_read = JsonText if kind.type is FieldType.JSON else str

    for value in values if kind.type is not FieldType.TEXT else ():
        assert compile_cast(field)(as_read(value)) is not None


@given(st.lists(st.text(max_size=60)))
def test_every_column_gets_a_name_of_its_own(columns):
    names = [*field_names(columns)]

    assert len(set(names)) == len(names) == len(columns)
    assert all(as_own_name(name) == name for name in names)


@pytest.mark.parametrize(
    ("column", "name"),
    [
        ("Name", "name"),
        ("CountryID", "country_id"),
        ("URLPath", "url_path"),
        ("Straße / Nr.", "strasse_nr"),
        ("Größe", "grosse"),
        ("2019", "c_2019"),
        ("penstock_id", "c_penstock_id"),
        ("CTID", "c_ctid"),
        ("名前", "column_1"),
        ("", "column_1"),
        ("x" * 90, "x" * MAX_NAME_LENGTH),
    ],
)
def test_a_name_is_made_of_what_a_column_is_called(column, name):
    assert [*field_names([column])] == [name]


@pytest.mark.parametrize(
    ("text", "delimiter", "columns"),
    [
        ("a,b\n1,2\n", ",", 2),
        ("a;b;c\n1,5;2,5;3,5\n1,5;2,5;3,5\n", ";", 3),
        ("a\tb\n1\t2\n", "\t", 2),
        ("a|b\n1|2\n", "|", 2),
        ("a,b\nx;y;z,2\nx;y;z,2\n", ",", 2),
        ('a,b\n"x,y\nz",2\n', ",", 2),
        ("a\r1\r2\r", ",", 1),
        ("a\nx, y\nz\n", ",", 1),
        # decimal commas, and rows that are not as they should be
        ("a;b\n" + "1,5;2,5\n" * 50 + "1,5;2,5;x\n" * 2, ";", 2),
        ("a;b\n" + "1,5;2,5;\n" * 50, ";", 2),
    ],
)
def test_the_delimiter_is_what_cuts_evenly(text, delimiter, columns):
    layout = guess_layout(text, is_whole=True)

    assert layout.delimiter.value == delimiter
    assert len(read_table([text], layout, is_whole=True).columns) == columns


@pytest.mark.parametrize(
    ("text", "has_header"),
    [
        ("id,name\n1,a\n2,b\n", True),
        ("1,a\n2,b\n", False),
        ("a,2026-01-01\nb,2026-01-02\n", False),
        ("ann,berlin\nben,paris\ncid,berlin\n", False),
        ("name,town\nben,paris\ncid,berlin\n", True),
        ("id,2019,2020\n1,5,6\n", True),
        ("name,town\nben,paris\nname,town\ncid,rome\n", True),
        ("name,town\n", True),
    ],
)
def test_a_header_holds_names_and_no_values(text, has_header):
    assert guess_layout(text, is_whole=True).header.value is has_header


@pytest.mark.parametrize(
    ("row", "escape"),
    [
        ('1,"say \\"hi\\", you",2', "\\"),
        ('1,"say ""hi"", you",2', None),
        # a path that ends in a backslash escapes nothing
        ('1,"C:\\",2', None),
        ("1,5\\' pipe,2", None),
    ],
)
def test_a_backslash_is_an_escape_where_quotes_make_no_sense_without(row, escape):
    layout = guess_layout(f"id,name,points\n{row}\n{row}\n", is_whole=True)

    assert (layout.escape and layout.escape.value) == escape
    assert layout.delimiter.value == ","


def test_rows_that_end_in_a_delimiter_are_rows_of_a_draft():
    text = "id,name\n" + "1,a,\n" * 199 + "2,Smith, John,\n"
    layout = guess_layout(text, is_whole=True)

    table = read_table([text], layout, is_whole=True)

    assert table.rows == (("1", "a"),) * 199
    assert table.odd == 1


def test_a_row_that_goes_on_behind_what_is_read_is_not_judged():
    text = "a;b|c\n1;2|3\n4|5"

    assert guess_delimiter(text, is_whole=False).value == ";"
    assert guess_delimiter(text, is_whole=True).value == "|"


@pytest.mark.parametrize(
    ("quote", "delimiter"), [('"', ","), ("'", ";"), (None, ","), (",", ";")]
)
def test_what_stands_in_quotes_delimits_nothing(quote, delimiter):
    text = "a;b\n" + "'1,1,1';2\n" * 9 if quote == "'" else "a,b\n1,2\n3;4,5\n"

    assert guess_delimiter(text, quote=quote, is_whole=True).value == delimiter


@pytest.mark.parametrize(
    ("chunks", "encoding", "why"),
    [
        ([b"a,b\n", b"c\n"], "utf-8", "plain ASCII so far"),
        ([b"a,b\n", "ü\n".encode()], "utf-8", "valid UTF-8"),
        ([b"a,b\n", "ü\n".encode("cp1252")], "cp1252", "no UTF-8"),
        ([b"a\n", "100 €\n".encode("cp1252")], "cp1252", "no UTF-8"),
        # a byte that Windows does not know
        ([b"M\xfcller\n", b"\x81\n"], "latin-1", "no UTF-8"),
        ([b"\xff\n", "äöüß\n".encode()], "utf-8", "but for 1 broken"),
        # what somebody else has replaced before
        (["\ufffd\n".encode()], "utf-8", "valid UTF-8"),
        (["\ufffd\n".encode(), b"\xff\xfe\n"], "utf-8", "but for 2 broken"),
        (["Café\n".encode(), b"\xe9 \xff \xe9\n"], "utf-8", "but for 3 broken"),
        (["Москва\n".encode("cp1251")], "cp1251", "Cyrillic"),
        (["Иван,Казань\n".encode("koi8_r")], "koi8_r", "Cyrillic"),
        (["Łódź,Gdańsk\n".encode("cp1250")], "cp1250", "Central European"),
        (["Αθήνα\n".encode("cp1253")], "cp1253", "Greek"),
        (["山田太郎,東京都\n".encode("shift_jis")], "cp932", "Japanese"),
        (["王小明,北京市\n".encode("gbk")], "gb18030", "Chinese"),
        (["Crème brûlée\n".encode("latin-1")], "cp1252", "no UTF-8"),
        (["Bob\u2019s\n".encode("cp1252")], "cp1252", "no UTF-8"),
        (["id,größe\n".encode("utf-16-le")], "utf-16-le", "every other byte"),
        (["id,größe\n".encode("utf-16-be")], "utf-16-be", "every other byte"),
    ],
)
def test_the_encoding_is_what_most_characters_are_built_in(chunks, encoding, why):
    guess = guess_encoding(chunks, is_whole=True)

    assert guess.value == encoding
    assert why in guess.reason


@pytest.mark.parametrize("encoding", ["cp1252", "cp1251", "gb18030"])
def test_the_encoding_is_reported_by_words_far_behind_the_first(encoding):
    words = {"cp1252": "Müller,Zürich", "cp1251": "Москва", "gb18030": "王小明,北京市"}
    plain = b"id,name,city\n" + b"1,Smith,London\n" * 20_000
    chunk = plain + f"{words[encoding]}\n".encode(encoding) + plain

    assert guess_encoding([chunk], is_whole=True).value == encoding
    assert guess_encoding([plain, chunk], is_whole=True).value == encoding


def test_a_character_that_goes_on_behind_what_is_read_is_not_broken():
    chunk = "a,é".encode()[:-1]

    assert guess_encoding([chunk], is_whole=False).value == "utf-8"
    assert guess_encoding([chunk], is_whole=True).value == "cp1252"


def test_chunks_that_were_cut_inside_a_cell_are_not_looked_at():
    begin, good, bad = "a,b\n1,2\n", "3,4\n", "x\n5,6,7\n8\n"
    layout = guess_layout(begin, is_whole=True)

    read = read_table([begin, good, bad], layout, is_whole=True)

    assert read.rows == (("1", "2"), ("3", "4"))


def test_a_quote_that_is_never_closed_is_reported():
    text = '"a,b\n' + "1,2\n" * 500
    with pytest.raises(NotTabular, match="is a quote never closed"):
        draft_of(text)


def test_rows_of_another_width_are_counted():
    layout = guess_layout("a,b\n1,2\n3\n4,5,6\n7,8\n", is_whole=True)

    assert read_table(["a,b\n1,2\n3\n4,5,6\n"], layout, is_whole=True).odd == 2


NOT_UNIQUE = "no column, and no two together, tell the rows apart"


@pytest.mark.parametrize(
    ("text", "key", "why"),
    [
        ("name,shop_id\na,1\nb,2\n", ("shop_id",), "its name says so"),
        ("x,y\na,1\nb,1\n", ("x",), "never twice"),
        ("x,y\na,1\na,2\n", ("y",), "never twice"),
        ("x,y\na,1\na,2\nb,1\n", ("x", "y"), "both together"),
        ("x,y\na,1\na,1\n", ("*",), NOT_UNIQUE),
        ("id,y\n,1\n2,2\n", ("y",), "never twice"),
        ("day,nr\n2026-01-01,5\n2026-01-02,6\n", ("nr",), "its name says so"),
        ("a,b,id\n", ("id",), "no rows"),
        ("a,b\n", ("a",), "the first column"),
        ("share\n0.5\n", ("*",), NOT_UNIQUE),
        # zeros at their ends make texts of degrees, until they are known as such
        ("id,lat,lon\n1,48.0010,8.5\n1,48.0020,8.5\n", ("*",), NOT_UNIQUE),
    ],
)
def test_the_key_is_what_tells_rows_apart(text, key, why):
    guess = draft_of(text).key

    assert guess.value == key
    assert why in guess.reason


def numbered(empty: int = 0, repeated: int = 0, rows: int = 1000) -> list[str]:
    """Return a value for each row, some of them empty or the same."""
    values = [f"R-{number}" for number in range(rows)]
    values[:empty] = [""] * empty
    values[empty : empty + repeated] = values[-1:] * repeated
    return values


@pytest.mark.parametrize(
    ("name", "values", "key"),
    [
        ("retailer_no", numbered(empty=5), ("retailer_no",)),
        ("retailer", numbered(repeated=5), ("*",)),
        ("retailer_no", numbered(empty=11), ("*",)),
        ("retailer_id", numbered(empty=5, repeated=5), ("retailer_id",)),
        ("retailer_id", numbered(empty=6, repeated=5), ("*",)),
        ("row_key", numbered(empty=500), ("*",)),
    ],
)
def test_a_column_that_is_not_nearly_unique_is_no_key(name, values, key):
    """Not even one that is filled, and the only one that is."""
    rows = [(value, f"town {at // 100}") for at, value in enumerate(values)]

    draft = guess_dataset(table([name, "town"], *rows))

    assert draft.key.value == key
    [doubt, *_] = draft.doubts
    for count, fact in (
        (values.count(""), f"empty in {values.count('')}"),
        (values.count("R-999") - 1, "of rows with the same value only the last"),
        (key == ("*",), "equal rows are one"),
    ):
        assert (fact in doubt) is (bool(count) and (key == ("*",)) is ("equal" in fact))
    assert "row_key" not in {column.name for column in draft.columns}


def test_a_nearly_unique_column_comes_before_pairs():
    rows = [
        (value, f"street {at // 40}", f"{at % 40}")
        for at, value in enumerate(numbered(empty=5))
    ]

    with_number = guess_dataset(table(["number", "street", "house"], *rows))
    without = guess_dataset(table(["street", "house"], *(row[1:] for row in rows)))

    assert with_number.key.value == ("number",)
    assert without.key.value == ("house", "street")


def test_columns_are_given_their_use():
    names = ["id", "name", "note", "region", "phone", "site", "seen", "lat", "lng"]
    rows = [
        (
            str(number),
            f"Shop {number}",
            f"some words of {number}",
            ["North", "South"][number % 2],
            f"+49 {number}",
            f"https://example.org/{number}",
            f"2026-01-{number + 1:02}",
            str(50 + number % 3),
            "8.5",
        )
        for number in range(20)
    ]

    draft = guess_dataset(table(names, *rows))

    assert [each.value for each in draft.search] == ["name", "note"]
    assert [each.value for each in draft.filter] == ["region", "phone", "seen"]
    assert draft.geo is not None
    assert draft.geo.value == ("lat", "lng")
    types = {column.name: column.kind.type for column in draft.columns}
    assert types["lat"] is types["lng"] is FieldType.FLOAT


def test_degrees_with_a_decimal_comma_are_a_place():
    draft = guess_dataset(table(["lat", "lon"], ("48,1", "11,5"), ("-90", "180")))

    assert draft.geo is not None
    assert [column.kind.decimal for column in draft.columns] == [",", ","]


def test_degrees_beyond_the_globe_are_no_place():
    assert guess_dataset(table(["lat", "lon"], ("91", "8"))).geo is None


def test_words_for_nothing_are_null_and_no_text():
    draft = guess_dataset(table(["id", "n"], ("1", "NULL"), ("2", "3"), ("3", "\\N")))

    assert draft.null.value == ("", "NULL", "\\N")
    assert draft.columns[1].kind.type is FieldType.INT


def test_columns_that_cannot_be_distinguished_are_left_out():
    draft = guess_dataset(table(["a", "a", "", "b"], ("1", "2", "3", "4")))

    assert [column.column for column in draft.columns] == ["b"]
    assert len(draft.left_out) == 3


def test_thousands_of_columns_become_as_many_fields_as_a_table_holds():
    columns = [f"c{number}" for number in range(5000)]

    draft = guess_dataset(table(columns, tuple(map(str, range(5000)))))

    assert len(draft.columns) == 1000
    assert draft.left_out == ("4000 more columns: a table holds 1000 here",)


# a column as people and programs write one, of every kind, tidy or not
numbers = st.integers(-(10**20), 10**20).map(str) | st.sampled_from(
    [
        "1.10",
        "1.1",
        "5",
        "5.0",
        "5.50",
        "-0",
        "0.1",
        "12E4",
        "1e-07",
        "9007199254740993",
    ]
)
floats = st.floats(allow_nan=False, allow_infinity=False).map(repr)
fixed = st.floats(-1e6, 1e6).map("{:.2f}".format)
truths = st.sampled_from(["NO", "no", "yes", "Yes", "true", "false", "TRUE", "n", "t"])
moments = st.datetimes().map(lambda at: at.isoformat()) | st.builds(
    lambda at, ending: at.isoformat(timespec="milliseconds") + ending,
    st.datetimes(),
    st.sampled_from(["Z", "+00:00", "+02:00", "456789Z", ""]),
)
days = st.dates().map(str) | st.dates().map(lambda day: f"{day.day}.{day.month}.2026")
written_days = st.dates().map(lambda day: day.strftime("%d/%m/%Y"))
epochs = st.integers(10**9, 4 * 10**9).map(str)
documents = st.sampled_from(
    ['{"a":1}', '{"a": 1}', '{"b":1,"a":2}', "[1.10]", "[]", '{"a":1,"a":2}']
)
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
nothing = st.sampled_from(["", "NULL", " NULL", "N/A ", "  "])
CELLS = (
    *(numbers, floats, fixed, truths, moments, days, written_days, epochs, documents),
    *(any_text, numbers.map("+{}".format), numbers.map("0{}".format)),
    numbers.map(lambda text: text.replace(".", ",")),
)
columns_of_cells = st.sampled_from(CELLS).flatmap(
    lambda cells: st.lists(cells | cells | cells | nothing, min_size=1, max_size=6)
)


@given(columns_of_cells, st.sampled_from(["it", "updated_at"]))
@example(["NO"], "it")
@example(["12345678901234567890", "-1"], "it")
@example(["9007199254740993", "1.5"], "it")
@example(["1.10", "1.1"], "it")
@example(["12E4"], "it")
@example(["2026-01-31T10:00:00.123456789Z"], "it")
@example(["1794933027", "1794933028"], "updated_at")
@example([" NULL", "5"], "it")
def test_what_is_guessed_is_written_back_as_it_stands(cells, name):
    draft = guess_dataset(table(["id", name], *enumerate_cells(cells)))
    column = draft.columns[1]
    cast = compile_cast(column.kind.field)
    as_read = JsonText if column.kind.type is FieldType.JSON else str
    # as an import does: null is compared as it stands, and text is trimmed
    present = [cell for cell in cells if cell not in draft.null.value and cell.strip()]
    if any("\0" in cell for cell in present):
        return

    stored = [cast(as_read(cell)) for cell in present]

    texts = [cell.strip() for cell in present]
    ways = ways_to_write(column.kind, texts)
    assert any([*map(write, stored)] == texts for write in ways), column.kind


def enumerate_cells(cells):
    return [(str(number), cell) for number, cell in enumerate(cells)]


def ways_to_write(kind, texts):  # noqa: PLR0911 (one for each type)
    """Return how a column of this kind may be written, all of it in one way."""
    match kind.type:
        case FieldType.TEXT | FieldType.INT:
            return [str]
        case FieldType.FLOAT:
            point = kind.decimal or "."
            return [
                lambda it: repr(it).replace(".", point),
                lambda it: re.sub(r"\.0$", "", repr(it)).replace(".", point),
            ]
        case FieldType.BOOL:
            words = {
                text.casefold() in {"true", "yes", "y", "t"}: text for text in texts
            }
            return [words.__getitem__]
        case FieldType.DATE if kind.format is None:
            return [str]
        case FieldType.TIMESTAMP if kind.format is None:
            return [
                lambda it, way=way: it.replace(tzinfo=None).isoformat(*way[:2]) + way[2]
                for way in product(
                    ("T", " "),
                    ("auto", "minutes", "seconds", "milliseconds", "microseconds"),
                    ("Z", "", "+00:00"),
                )
            ]
        case FieldType.JSON:
            return [str, with_spaces]
        case _ if kind.format in {"%s", "%Q"}:
            return [lambda it: str((it - EPOCH) // format_unit(kind.format))]
        case _:
            return [
                lambda it: it.strftime(kind.format),
                lambda it: re.sub(r"\b0(?=[0-9])", "", it.strftime(kind.format)),
            ]


@pytest.mark.parametrize(
    ("text", "skip", "delimiter", "columns"),
    [
        ("id,name\n1,a\n", 0, ",", 2),
        ("sep=;\nid;name\n1;a\n", 1, ";", 2),
        ("SEP=,\r\nid,name\r\n1,a\r\n", 1, ",", 2),
        ("Report of May\nid,name,x\n1,a,b\n2,c,d\n", 1, ",", 3),
        ("Report of May\n\nid;name\n1;a,5\n2;b,5\n", 1, ";", 2),
        ("Report,,\n,,\nid,name,x\n1,a,b\n", 2, ",", 3),
        ("Report\nAll shops\nid,name,x\n1,a,b\n", 2, ",", 3),
        # a header that is one name short is no title
        ("id\n1,a\n2,b\n", 0, ",", 2),
        ("one column\na\nb\n", 0, ",", 1),
        (",,\n1,2,3\n", 0, ",", 3),
    ],
)
def test_lines_above_the_header_are_distinguished_from_it(
    text, skip, delimiter, columns
):
    layout = guess_layout(text, is_whole=True)

    assert (layout.skip.value, layout.delimiter.value) == (skip, delimiter)
    if skip:
        assert len(read_table([text], layout, is_whole=True).columns) == columns


@pytest.mark.parametrize(
    ("text", "has_header", "doubts"),
    [
        ("Berlin,DE\nParis,FR\nRome,IT\n", False, 1),
        ("A-1001,ann\nA-1002,ben\nA-1003,cid\n", False, 1),
        ("ann@example.org,x\nben@example.net,y\ncid@example.org,z\n", False, 1),
        ("Name,ID\nAnn,DE\nBen,FR\n", True, 0),
        ("first,second\nann,berlin\nben,paris\n", True, 1),
        ("id,name\n1,a\n", True, 0),
        ("1,a\n2,b\n", False, 1),
    ],
)
def test_a_header_that_nothing_proves_is_doubted(text, has_header, doubts):
    layout = guess_layout(text, is_whole=True)

    assert layout.header.value is has_header
    assert len([*layout.doubts]) == doubts


def test_texts_that_no_index_holds_become_neither_key_nor_filter():
    rows = [
        (f"{number % 2}" * 301, str(number // 2), "x" * 160) for number in range(20)
    ]
    rows = [
        (long, half, f"{number:0160}") for number, (long, half, _) in enumerate(rows)
    ]

    draft = guess_dataset(table(["code_id", "half", "padded_id"], *rows))

    used = {*draft.key.value, *(each.value for each in draft.filter)}
    assert "code_id" not in used
    assert draft.key.value == ("padded_id",)
    long = [(f"{number % 4:0160}", f"{number // 4:0160}") for number in range(16)]
    assert guess_dataset(table(["a", "b"], *long)).key.value == ("*",)


def test_every_doubt_is_a_sentence():
    rows = [("1.10", " a ", "NO"), ("1.1", "b", "NO")] * 3
    draft = guess_dataset(table(["version", "word", "country"], *rows))

    version, country, padded = (
        next(each for each in draft.doubts if name in each)
        for name in ("version is text", "country is text", "word")
    )

    assert 'declare type = "float"' in version
    assert 'declare type = "bool"' in country
    assert "spaces around values are removed in word" in padded
    assert "no column tells the rows apart" in next(iter(draft.doubts))


def test_places_with_zeros_at_their_ends_stay_places_and_say_so():
    draft = guess_dataset(table(["lat", "lon"], ("52.50", "13.40"), ("48.1", "11.5")))

    assert draft.geo is not None
    assert [column.kind.type for column in draft.columns] == [FieldType.FLOAT] * 2
    assert any("without zeros at their ends" in each for each in draft.doubts)
