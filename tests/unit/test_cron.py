"""Fire times against an oracle that looks at every minute."""

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.domain.scheduling.cron import (
    CronExpression,
    next_clock_change,
    next_fires,
)

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",  # half hours
    "America/Havana",  # changes at midnight
    "Australia/Lord_Howe",  # changes by half an hour
    "Africa/Casablanca",  # changes for Ramadan
    "Asia/Kathmandu",  # 5:45, never changes
    "Pacific/Apia",  # left a day out
    "America/Santiago",  # the southern hemisphere, at midnight
]
MINUTE = timedelta(minutes=1)
# the minutes a day that a fire may be late, or a zone leave out
MARGIN = timedelta(days=2)


def members(field: str, low: int, high: int) -> set[int]:
    """Read a field of numbers, ranges and steps in the plainest way."""
    result: set[int] = set()
    for term in field.split(","):
        body, _, step = term.partition("/")
        first, _, last = body.partition("-")
        if body == "*":
            values = range(low, high + 1)
        elif last:
            values = range(int(first), int(last) + 1)
        else:
            values = range(int(first), int(first) + 1)
        result.update(values[:: int(step or 1)])
    return result


def wall_time(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None)


def minutes(start: datetime, end: datetime) -> list[datetime]:
    return [start + n * MINUTE for n in range(int((end - start) / MINUTE))]


@lru_cache(maxsize=32)
def wall_times(
    start: datetime, end: datetime, zone: ZoneInfo
) -> Sequence[tuple[datetime, datetime]]:
    """Return each minute with its wall time."""
    return [(instant, wall_time(instant, zone)) for instant in minutes(start, end)]


@lru_cache(maxsize=32)
def first_occurrences(
    start: datetime, end: datetime, zone: ZoneInfo
) -> Mapping[datetime, datetime]:
    """Return the first instant of each wall time, or the end of the gap it is in."""
    first: dict[datetime, datetime] = {}
    previous = None
    for instant, wall in wall_times(start, end, zone):
        for skipped in minutes(previous or wall, wall):
            first.setdefault(skipped, instant)
        first.setdefault(wall, instant)
        previous = wall
    return first


def oracle(text: str, start: datetime, end: datetime, zone: ZoneInfo) -> list[datetime]:
    """Return the fires in (start, end) by looking at each minute."""
    minute, hour, day, month, weekday = text.split()
    wanted_minutes, wanted_hours = members(minute, 0, 59), members(hour, 0, 23)
    wanted_days, wanted_months = members(day, 1, 31), members(month, 1, 12)
    wanted_weekdays = members(weekday, 0, 6)

    def matches(wall: datetime) -> bool:
        on_day = wall.day in wanted_days
        on_weekday = wall.isoweekday() % 7 in wanted_weekdays
        is_both = "*" in {day[0], weekday[0]}
        return (
            wall.minute in wanted_minutes
            and wall.hour in wanted_hours
            and wall.month in wanted_months
            and (on_day and on_weekday if is_both else on_day or on_weekday)
        )

    period = (start - MARGIN, end + MARGIN, zone)
    if hour[0] == "*" and "," not in hour:
        fires = {instant for instant, wall in wall_times(*period) if matches(wall)}
    else:
        first = first_occurrences(*period)
        fires = {instant for wall, instant in first.items() if matches(wall)}
    return sorted(fire for fire in fires if start < fire < end)


def fires_between(
    text: str, start: datetime, end: datetime, zone: ZoneInfo
) -> list[datetime]:
    fires = CronExpression(text).fires_after(start, zone)
    return list(takewhile(lambda fire: fire < end, fires))


def cron_fields(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    # a range of one value with a step is open-ended for some, empty for others
    pairs = st.tuples(number, number).filter(lambda pair: pair[0] < pair[1])
    span = pairs.map(lambda pair: f"{pair[0]}-{pair[1]}")
    step = st.integers(1, 7).map(lambda step: f"*/{step}")
    spaced = st.tuples(span, st.integers(1, 5)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    listed = st.lists(number, min_size=2, max_size=3).map(
        lambda values: ",".join(map(str, values))
    )
    return st.one_of(st.just("*"), number.map(str), span, step, spaced, listed)


EXPRESSIONS = st.builds(
    lambda minute, hour, weekday: f"{minute} {hour} * * {weekday}",
    cron_fields(0, 59),
    cron_fields(0, 23),
    st.one_of(st.just("*"), cron_fields(0, 6)),
)


def clock_change(zone: ZoneInfo, seed: int) -> datetime:
    """Return a change of the clock, or any time of a zone without one."""
    base = datetime(2026, 1, 1, tzinfo=UTC)
    if zone.key == "Pacific/Apia":
        base = datetime(2011, 8, 1, tzinfo=UTC)
    change = next_clock_change(base + timedelta(days=seed * 180), zone)
    return change.replace(second=0)


@settings(max_examples=60, deadline=None)
@given(text=EXPRESSIONS, zone=st.sampled_from(ZONES), seed=st.integers(0, 1))
def test_fires_around_a_clock_change_are_those_of_the_oracle(text, zone, seed):
    info = ZoneInfo(zone)
    start = clock_change(info, seed) - timedelta(days=2)
    end = start + timedelta(days=4)

    found = fires_between(text, start, end, info)

    assert found == oracle(text, start, end, info)


@settings(max_examples=20, deadline=None)
@given(text=EXPRESSIONS, zone=st.sampled_from(ZONES), seed=st.integers(0, 40))
def test_fires_of_a_random_week_are_those_of_the_oracle(text, zone, seed):
    info = ZoneInfo(zone)
    start = datetime(2020, 1, 1, tzinfo=UTC) + seed * timedelta(days=59, minutes=7)
    end = start + timedelta(days=7)

    found = fires_between(text, start, end, info)

    assert found == oracle(text, start, end, info)


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
def test_fires_of_whole_years_are_those_of_the_oracle(zone):
    info = ZoneInfo(zone)
    chosen = random.Random()
    for _ in range(10):
        hour = chosen.choice(["*", "*/3", "2", "0,2", "1-3", "0"])
        minute = chosen.choice(["0", "*/15", "30", "5,35"])
        day, weekday = chosen.choice([("*", "*"), ("1", "*"), ("*", "0"), ("13", "5")])
        text = f"{minute} {hour} {day} * {weekday}"
        start = datetime(chosen.randint(2000, 2030), 1, 1, tzinfo=UTC)
        end = start + timedelta(days=366)
        assert fires_between(text, start, end, info) == oracle(text, start, end, info)


@pytest.mark.parametrize(
    ("text", "start", "fires"),
    [
        # the hour from 2:00 to 3:00 comes twice on 25 October 2026
        ("30 2 * * *", "2026-10-24T22:00", ["2026-10-25T00:30", "2026-10-26T01:30"]),
        ("0,40 2 * * *", "2026-10-25T00:20", ["2026-10-25T00:40", "2026-10-26T01:00"]),
        # and not at all on 29 March 2026: it ends at 01:00 UTC
        ("30 2 * * *", "2026-03-28T23:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
        ("*/15 2 * * *", "2026-03-28T23:00", ["2026-03-29T01:00", "2026-03-30T00:00"]),
        ("0 2,3 * * *", "2026-03-28T23:00", ["2026-03-29T01:00", "2026-03-30T00:00"]),
        # real time counts
        ("45 * * * *", "2026-03-29T00:30", ["2026-03-29T00:45", "2026-03-29T01:45"]),
        ("45 */1 * * *", "2026-10-25T00:30", ["2026-10-25T00:45", "2026-10-25T01:45"]),
    ],
)
def test_a_clock_change_loses_and_doubles_no_fire(text, start, fires):
    instant = datetime.fromisoformat(start).replace(tzinfo=UTC)

    found = next_fires(CronExpression(text), instant, BERLIN, count=2)

    assert [f"{fire:%Y-%m-%dT%H:%M}" for fire in found] == fires


def test_a_quarter_of_an_hour_is_one_all_year():
    start = datetime(2026, 1, 1, tzinfo=UTC)
    fires = next_fires(CronExpression("*/15 * * * *"), start, BERLIN, count=40_000)

    assert fires == [start + n * timedelta(minutes=15) for n in range(1, 40_001)]


def test_a_fire_at_the_instant_itself_is_not_later_than_it():
    start = datetime(2026, 10, 25, 1, 0, tzinfo=UTC)  # the clock goes back here

    fires = next_fires(CronExpression("0 * * * *"), start, BERLIN, count=1)

    assert fires == [start + timedelta(hours=1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("* * * *", "five fields"),
        ("0 0 * * * *", "five fields"),
        ("@reboot", "five fields"),
        ("61 * * * *", "bad minute in '61 \\* \\* \\* \\*'"),
        ("* * * * FRI-MON", "bad day-of-week"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("0 0 */30 2 MON#5", "names a date that never comes"),
    ],
)
def test_a_bad_expression_is_refused_with_its_field(text, message):
    with pytest.raises(ValueError, match=message):
        CronExpression(text)


def test_macros_and_names_are_read():
    start = datetime(2026, 11, 18, tzinfo=UTC)

    daily = next_fires(CronExpression("@daily"), start, BERLIN, count=1)
    named = next_fires(CronExpression("0 6 * jan Mon-Fri"), start, BERLIN, count=1)

    assert daily == [datetime(2026, 11, 18, 23, tzinfo=UTC)]
    assert named == [datetime(2027, 1, 1, 5, tzinfo=UTC)]


def test_an_expression_is_explained_in_words():
    assert CronExpression("*/15 * * * *").in_words == "Every 15th minute of every hour"
