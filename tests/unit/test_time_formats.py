"""What a declared format writes it also reads, in every place that declares one."""

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.dataset import Delta, FieldType
from penstock.domain.formats import EPOCH, in_utc
from penstock.domain.mapping.converters import BadValue, compile_cast
from penstock.domain.sharding.axes import Bounds, TimeAxis
from penstock.domain.sharding.shard import Shard, build_outside_check, plan_shards
from penstock.domain.time_formats import (
    any_time_reader,
    format_time,
    format_unit,
    is_time_format,
    recognise_epoch_format,
    round_down,
    time_reader,
)
from penstock.settings.units import parse_time_format
from penstock.settings.validation_errors import InvalidValue
from tests.support.builders import HOUR, dataset, int_field, typed_field

MILLISECOND = timedelta(milliseconds=1)
FORMATS = (
    *("%s", "%Q", "%s.%f", "/Date(%Q)/", "%s %z", "%sZ"),
    *("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d", "%F", "%FT%T", "%FT%T.%f%z", "%Y%m%d%H%M%S"),
    *("%d.%m.%Y", "%d.%m.%Y %H:%M", "%m/%d/%Y %H:%M:%S", "%Y/%j", "%d %b %Y %T"),
    *("%Y%d%m", "%d%m%Y", "%H:%M %d-%m-%Y", "%d %B %y"),
)
# years that a format of two digits can mean, and that have four
INSTANTS = st.datetimes(
    datetime(1970, 1, 1),  # noqa: DTZ001 (the zone is given beside)
    datetime(2068, 12, 31),  # noqa: DTZ001
    timezones=st.just(UTC),
)


@given(INSTANTS, st.sampled_from(FORMATS))
def test_what_a_format_writes_it_reads_at_all_three_places(instant, form):
    assert parse_time_format(form) == form
    assert is_time_format(form)
    representable = round_down(instant, format_unit(form))
    written = format_time(representable, form)

    read = time_reader(form)(written)
    stamped = typed_field("t", FieldType.TIMESTAMP, format=form)

    assert read is not None
    assert in_utc(read) == representable
    assert compile_cast(stamped)(written) == representable
    assert any_time_reader(form)(written) == representable
    assert is_inside(delta_judge(form, representable), written)
    assert is_inside(window_judge(form, representable), written)


@given(st.integers(-(2**40), 2**40), st.sampled_from(["%s", "%Q"]))
def test_counts_since_1970_are_read_as_numbers_and_as_text(count, form):
    cast = compile_cast(typed_field("t", FieldType.TIMESTAMP, format=form))
    try:
        instant = EPOCH + count * format_unit(form)
    except OverflowError:
        instant = None
    for value in (count, str(count), f" {count} ", f"{count}.000"):
        if instant is None:
            with pytest.raises(BadValue):
                cast(value)
        else:
            assert cast(value) == instant
            assert format_time(instant, form) == str(count)


@pytest.mark.parametrize(
    ("form", "value", "expected"),
    [
        ("%s", 1794933027.25, timedelta(seconds=1794933027.25)),
        ("%s", "1794933027.123456", timedelta(seconds=1794933027, microseconds=123456)),
        ("%s", "1794933027.1", timedelta(seconds=1794933027.1)),
        ("%Q", 1794933027123, 1794933027123 * MILLISECOND),
        ("%Q", "1794933027123.5", 1794933027123 * MILLISECOND + MILLISECOND / 2),
        ("%s.%f", "1794933027.5", timedelta(seconds=1794933027.5)),
        ("%s", -1, timedelta(seconds=-1)),
    ],
)
def test_a_count_may_have_a_fraction(form, value, expected):
    cast = compile_cast(typed_field("t", FieldType.TIMESTAMP, format=form))

    assert cast(value) == EPOCH + expected


@pytest.mark.parametrize(
    "value",
    [
        True,
        float("nan"),
        float("inf"),
        10**40,
        "1e9",
        "1_000",
        "",
        [],
        {},
        "soon",
        "\u0661",
    ],
)
def test_what_is_no_count_is_refused_and_never_raises(value):
    for form in ("%s", "%Q", "%s.%f", "/Date(%Q)/"):
        assert time_reader(form)(value) is None


@given(st.text(), st.none() | st.booleans() | st.integers() | st.floats() | st.text())
def test_any_format_and_any_value_give_a_time_or_none(form, value):
    if is_time_format(form):
        assert isinstance(time_reader(form)(value), datetime | None)


@pytest.mark.parametrize("form", ["%Y%Y", "%s%s%", "%", "", "%E", "plain"])
def test_a_format_that_cannot_be_read_is_refused(form):
    assert not is_time_format(form)


def test_a_day_is_stored_as_it_is_written_whatever_its_zone():
    day = compile_cast(typed_field("t", FieldType.DATE, format="%d.%m.%Y %H:%M %z"))

    assert day("21.02.2026 00:30 +0200") == date(2026, 2, 21)


def test_a_field_may_be_written_in_another_format_than_the_bound_is_sent():
    stamped = typed_field("t", FieldType.TIMESTAMP, format="%Q")
    sent = Delta(send="since", field=("t",), format="%Y-%m-%d")
    since = datetime(2026, 3, 1, tzinfo=UTC)
    request = dataset(fields=(int_field("id"), stamped), delta=sent)

    judge = build_outside_check(request, Shard((), ()), since)

    assert judge([1, 1772323200000]) is None
    assert judge([1, "2026-03-01T00:00:00Z"]) is None
    assert "before 2026-03-01" in str(judge([1, 1772323199999]))


def test_a_record_stamped_with_whole_seconds_is_not_before_a_part_of_its_own():
    stamped = typed_field("t", FieldType.TIMESTAMP, format="%s")
    sent = Delta(send="since", field=("t",), format="%Q")
    request = dataset(fields=(int_field("id"), stamped), delta=sent)
    since = EPOCH + timedelta(seconds=1794933027.5)

    judge = build_outside_check(request, Shard((), ()), since)

    assert judge([1, 1794933027]) is None
    assert judge([1, 1794933026]) is not None


def test_a_number_where_no_format_allows_one_is_reported_with_its_format():
    request = dataset(delta=Delta(send="since", field=("title",)))
    judge = build_outside_check(request, Shard((), ()), EPOCH)
    cast = compile_cast(typed_field("t", FieldType.TIMESTAMP))

    assert 'format = "%s"' in str(judge([1, 1794933027]))
    assert 'format = "%Q"' in str(judge([1, "1794933027123"]))
    with pytest.raises(BadValue, match='declare format = "%s"'):
        cast(1794933027)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (1794933027, "%s"),
        ("1794933028", "%s"),
        (1794933027.5, "%s"),
        (1794933027123, "%Q"),
        ("1794933028123", "%Q"),
        (12, None),
        (True, None),
        ("2026-01-01", None),
        (10**400, None),
        (float("nan"), None),
    ],
)
def test_counts_since_1970_are_recognised(value, form):
    assert recognise_epoch_format(value) == form


def test_an_axis_with_whole_milliseconds_tells_no_finer_time():
    assert format_unit("%Q") == MILLISECOND
    with pytest.raises(InvalidValue):
        parse_time_format("%q")


def delta_judge(form, since):
    changed = dataset(delta=Delta(send="since", field=("title",), format=form))
    return build_outside_check(changed, Shard((), ()), since)


def window_judge(form, start):
    axis = TimeAxis(
        name="window", start=start, step=HOUR, format=form, check=("title",)
    )
    windowed = dataset(axes=(axis,))
    bounds = Bounds(until=start + timedelta(days=2))
    return build_outside_check(windowed, next(plan_shards(windowed.axes, bounds)), None)


def is_inside(judge, written):
    return judge([None, written]) is None


@pytest.mark.parametrize(
    ("value", "formats"),
    [
        ("31.12.2025", '"%d.%m.%Y"'),
        ("12/31/2025 10:30", '"%m/%d/%Y %H:%M"'),
        ("01-02-2025", '"%d-%m-%Y" or "%m-%d-%Y"'),
        ("2025/12/31T10:30:00", '"%Y/%m/%dT%H:%M:%S"'),
    ],
)
def test_a_day_that_is_not_iso_is_refused_with_the_format_to_declare(value, formats):
    for kind in (FieldType.DATE, FieldType.TIMESTAMP):
        with pytest.raises(BadValue) as refused:
            compile_cast(typed_field("t", kind))(value)
        assert refused.value.detail.endswith(f"declare format = {formats}")


@given(st.text("0123456789./-: T", max_size=20))
def test_any_text_is_refused_in_a_sentence(text):
    cast = compile_cast(typed_field("t", FieldType.DATE))
    with suppress(BadValue):
        assert isinstance(cast(text), date | None)
