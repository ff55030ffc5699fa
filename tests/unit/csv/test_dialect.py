import codecs

import pytest

from penstock.adapters.csv.dialect import CsvDialect, DeclaredDialect, detect
from penstock.adapters.csv.encoding import find_encoding
from penstock.errors import Misconfigured


def found(sample: bytes, *, is_whole: bool = True, **declared):
    return detect(sample, DeclaredDialect(**declared), is_whole=is_whole)


@pytest.mark.parametrize(
    ("mark", "codec"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ],
)
def test_a_byte_order_mark_names_the_encoding(mark, codec):
    detected = found(mark + "uid;né\n1;2\n".encode(codec))

    assert detected.mark == len(mark)
    assert detected.dialect == CsvDialect(delimiter=";", encoding=codec)


@pytest.mark.parametrize(
    ("mark", "codec"), [(codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le")]
)
def test_a_byte_order_mark_counts_more_than_what_was_declared_and_is_reported(
    mark, codec
):
    sample = mark + "a,b\n".encode(codec)

    detected = found(sample, delimiter=",", encoding="cp1252")

    assert detected.dialect.encoding == codec
    (result,) = detected.warnings
    assert result.startswith("encoding 'cp1252' is declared, but its byte order mark")
    assert result.endswith(f"says {codec!r}, which is used")


@pytest.mark.parametrize(
    ("mark", "encoding", "is_reported"),
    [
        (codecs.BOM_UTF8, "UTF8", False),
        (codecs.BOM_UTF8, "utf-8-sig", False),
        (codecs.BOM_UTF8, "utf-16", True),
        (codecs.BOM_UTF16_LE, "utf-16", False),
        (codecs.BOM_UTF16_BE, "utf-16", False),
        (codecs.BOM_UTF16_BE, "utf-16-be", False),
        (codecs.BOM_UTF16_BE, "utf-16-le", True),
        (codecs.BOM_UTF16_LE, "utf-8", True),
        # which could not be read without the mark
        (codecs.BOM_UTF8, "gbk", True),
    ],
)
def test_a_byte_order_mark_that_was_declared_is_no_warning(mark, encoding, is_reported):
    assert bool(found(mark, delimiter=",", encoding=encoding).warnings) is is_reported


@pytest.mark.parametrize(
    ("sample", "encoding"),
    [
        (b"uid,name\n", "utf-8"),
        ("uid,Müller\n".encode(), "utf-8"),
        ("uid,Müller\n".encode("cp1252"), "cp1252"),
        ("uid,100 €\n".encode("cp1252"), "cp1252"),
        # bytes that cp1252 does not know
        (b"uid,M\xfcller,\x81\n", "iso8859-1"),
        # one broken byte among many whole characters
        ("äöüäöü".encode() + b"\xff", "utf-8"),
    ],
)
def test_an_encoding_that_is_not_declared_is_found(sample, encoding):
    detected = found(sample, delimiter=",")

    assert detected.dialect.encoding == encoding
    is_valid = encoding == "utf-8" and b"\xff" not in sample
    assert bool(detected.warnings) is not is_valid


@pytest.mark.parametrize(
    ("sample", "result"),
    [
        ("uid,Müller\n".encode("cp1252"), "encoding 'cp1252' (Western European)"),
        ("äöüäöü".encode() + b"\xff", "1 characters are no UTF-8: rows that hold"),
        ("uid,name\n".encode("utf-16-le"), "encoding 'utf-16-le' is a guess"),
    ],
)
def test_an_encoding_that_is_in_doubt_is_reported(sample, result):
    (warning,) = found(sample, delimiter=",").warnings

    assert result in warning


def test_a_character_that_goes_on_behind_the_sample_is_not_broken():
    cut_off = "a,é".encode()[:-1]

    assert found(cut_off, is_whole=False).dialect.encoding == "utf-8"
    assert found(cut_off, is_whole=True).dialect.encoding == "cp1252"


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a,b\n1,2\n", ","),
        ("a;b\n1;2\n", ";"),
        ("a\tb\n1\t2\n", "\t"),
        ("a|b\n1|2\n", "|"),
        ("a;b;c\n1,5;2,5;3,5\n2,5;3,5;4,5\n", ";"),
        ("a;b\n1;Smith, John\n2;Ng, Ann\n", ";"),
        ('a;b\n"1,1,1";"x\n,\n"\n"2,2,2";y\n', ";"),
        # decimal commas, and rows that are not as they should be
        ("a;b\n" + "1,5;2,5\n" * 50 + "1,5;2,5;x\n" * 2, ";"),
        ("a;b\n" + "1,5;2,5;\n" * 50, ";"),
        ("uid\n1\n2\n", ","),
        ("", ","),
    ],
)
def test_the_delimiter_is_the_one_that_cuts_evenly(text, delimiter):
    assert found(text.encode()).dialect.delimiter == delimiter


def test_a_record_that_goes_on_behind_the_sample_is_not_judged():
    sample = b"a;b|c\n1;2|3\n4|5"

    assert found(sample, is_whole=False).dialect.delimiter == ";"
    assert found(sample, is_whole=True).dialect.delimiter == "|"


def test_a_guess_is_reported():
    assert found(b"a;b\n").warnings == (
        "delimiter ';' is a guess from the first records",
    )
    assert found(b"a;b\n", delimiter=";").warnings == ()


@pytest.mark.parametrize(
    "encoding", ["gbk", "shift_jis", "utf-7", "utf-32", "iso2022_jp", "hz", "cp037"]
)
def test_an_encoding_whose_records_cannot_be_found_is_refused(encoding):
    with pytest.raises(Misconfigured, match="is not supported\nconvert"):
        find_encoding(encoding)


@pytest.mark.parametrize("encoding", ["utf-9", "hex", "rot13", ""])
def test_an_encoding_that_nobody_knows_is_refused(encoding):
    with pytest.raises(Misconfigured, match="is not known"):
        find_encoding(encoding)


@pytest.mark.parametrize("encoding", ["latin-1", "iso8859-15", "cp1250", "koi8-r"])
def test_every_encoding_of_one_byte_a_character_is_read(encoding):
    assert find_encoding(encoding).is_single


@pytest.mark.parametrize(
    "wrong",
    [
        {"delimiter": ""},
        {"delimiter": "::"},
        {"delimiter": "\n"},
        {"delimiter": "\0"},
        {"delimiter": "§"},
        {"delimiter": "€", "encoding": "latin-1"},
        {"quote": "\r"},
        {"quote": ","},
        {"escape": '"'},
        {"escape": ","},
        {"escape": "\\\\"},
    ],
)
def test_what_cannot_delimit_or_quote_is_refused(wrong):
    with pytest.raises(Misconfigured):
        CsvDialect(**wrong)


def test_one_byte_in_its_own_encoding_may_delimit():
    assert CsvDialect(delimiter="§", encoding="cp1252").delimiter_unit == "§"
    assert CsvDialect(delimiter="€", encoding="cp1252").delimiter_unit == "\x80"
