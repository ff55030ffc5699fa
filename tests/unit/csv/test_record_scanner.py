from copy import copy

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.adapters.csv.dialect import CsvDialect
from penstock.adapters.csv.record_scanner import RecordScanner

DIALECTS = [
    CsvDialect(),
    CsvDialect(quote=None),
    CsvDialect(delimiter="a", quote="b", encoding="cp1252"),
    CsvDialect(escape="\\"),
]
# an escape and what follows it are never parted
PARTS = [*'",\r\nab\0', "\\\\", '\\"', "\\a", "\\,"]


def step_by(scanner, signs):
    """Go on from record to record."""
    start = 0
    while start < len(signs):
        end = scanner.find_end(signs, start)
        start = len(signs) if end is None else end


def facts(scanner):
    opened_on = scanner.opened_on if scanner.is_quoted else None
    return scanner.line, scanner.is_quoted, opened_on


def test_a_scanner_tells_the_line_and_the_quote_that_is_open():
    scanner = RecordScanner(CsvDialect(), line=1)
    signs = 'a,"b""\n",5" c,"d"e"f\r\n"g'

    scanner.skip_to(signs, 0, len(signs))

    assert facts(scanner) == (3, True, 3)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_to_pass_by_leads_where_every_step_leads(dialect):
    stretch = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)

    @given(st.lists(stretch, max_size=6))
    @settings(max_examples=500)
    @example(['a"', '""', '"\n', '"'])
    @example(['"a\n"', '"', "b"])
    @example([',""', '"\n', '"'])
    @example(['\r""\n"'])
    @example(['5" ,"', 'a\n"b", "c,"'])
    @example(['"\\"', '"', '"'])
    @example(['"\\\\', '"\\"'])
    def holds(stretches):
        passing, stepping = (RecordScanner(dialect, line=1) for _ in range(2))
        for signs in stretches:
            # what stands around a stretch must not matter
            passing.skip_to(f'"{signs},"', 1, 1 + len(signs))
            step_by(stepping, signs)

            assert facts(passing) == facts(stepping)
            ends = [
                copy(scanner).find_end('b"\n",c\n', 0)
                for scanner in (passing, stepping)
            ]
            assert ends[0] == ends[1]

    holds()
