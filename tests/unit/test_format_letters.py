"""Formats of other programs are translated, and those that read wrongly refused."""

from datetime import date

import pytest

from penstock.domain.dataset import FieldType
from penstock.domain.mapping.converters import compile_cast
from penstock.domain.time_formats import is_time_format
from penstock.settings.format_letters import (
    describe_wrong_format,
    find_format_problems,
    translate_letters,
)
from tests.support.builders import typed_field

DAY = date(2026, 11, 24)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("dd.mm.yyyy", "24.11.2026"),
        ("DD.MM.YYYY", "24.11.2026"),
        ("yyyy-mm-dd", "2026-11-24"),
        ("mm/dd/yyyy", "11/24/2026"),
        ("dd/mm/yy", "24/11/26"),
        ("yyyymmdd", "20261124"),
        ("dd-mmm-yyyy", "24-Nov-2026"),
        ("mm.yyyy dd", "11.2026 24"),
    ],
)
def test_the_proposed_format_reads_each_day_as_it_is(written, text):
    proposed = translate_letters(written)

    assert repr(proposed) in describe_wrong_format(written)
    assert not [*find_format_problems(proposed, is_date=True)]
    assert compile_cast(typed_field("d", FieldType.DATE, format=proposed))(text) == DAY


@pytest.mark.parametrize(
    ("written", "proposed"),
    [
        ("dd.mm.yyyy hh:mm", "%d.%m.%Y %H:%M"),
        ("DD.MM.YYYY HH:MM", "%d.%m.%Y %H:%M"),
        ("hh:mm:ss dd.mm.yyyy", "%H:%M:%S %d.%m.%Y"),
        ("yyyymmddhhmmss", "%Y%m%d%H%M%S"),
        ("yyyy-MM-dd'T'HH:mm:ss", "%Y-%m-%d'T'%H:%M:%S"),
    ],
)
def test_minutes_stand_behind_hours_or_before_seconds(written, proposed):
    assert translate_letters(written) == proposed
    assert is_time_format(proposed)
    assert not [*find_format_problems(proposed, is_date=False)]


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%Y/%j", "%s", "%Q", "%F", "%d %b %Y"])
def test_a_format_with_a_month_and_no_time_is_one_of_a_date(form):
    assert not [*find_format_problems(form, is_date=True)]


@pytest.mark.parametrize(
    "form", ["%d.%M.%Y", "%Y", "%H:%M %d", "%d.%m.%Y %H:%M", "%FT%T"]
)
def test_other_formats_are_not(form):
    assert [*find_format_problems(form, is_date=True)]
