"""Which fires begin an import, and why the others do not."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.domain.dataset import DatasetName
from penstock.domain.scheduling.cron import CronExpression
from penstock.domain.scheduling.exception_windows import ExceptionWindow
from penstock.domain.scheduling.fires import (
    MAX_FIRES,
    DueFires,
    ScheduleState,
    SkippedFires,
    SkipReason,
    decide_fires,
    due_fires,
    next_run,
    previous_fire,
)
from penstock.domain.scheduling.schedule import (
    UTC_ZONE,
    CatchUp,
    CronTrigger,
    IntervalTrigger,
    OnceTrigger,
    Overlap,
    Schedule,
    ScheduleName,
    import_interval,
)

HOUR = timedelta(hours=1)
START = datetime(2026, 11, 18, 6, tzinfo=UTC)
HOURLY = Schedule(
    name=ScheduleName("poi"),
    dataset=DatasetName("poi"),
    trigger=IntervalTrigger(interval=HOUR),
)
IDLE = ScheduleState(considered_until=START)


def decide(schedule, state, now):
    due = due_fires(schedule, after=state.considered_until, now=now)
    return decide_fires(schedule, state, due, now=now)


def skipped(first, count, reason, step=HOUR):
    last = first + (count - 1) * step
    return SkippedFires(first=first, last=last, count=count, reason=reason)


def test_nothing_is_begun_before_its_time():
    decision = decide(HOURLY, IDLE, START + timedelta(minutes=59))

    assert (decision.start, decision.considered_until) == (None, START)


def test_a_due_fire_begins_an_import():
    decision = decide(HOURLY, IDLE, START + HOUR)

    assert (decision.start, decision.considered_until) == (START + HOUR, START + HOUR)
    assert next_run(HOURLY, decision.considered_until) == START + 2 * HOUR


def test_intervals_stand_still_across_restarts():
    started_late = START + timedelta(minutes=17)

    assert next_run(HOURLY, started_late) == START + HOUR


def test_the_delay_is_the_same_each_time_and_within_the_jitter():
    schedule = replace(HOURLY, jitter=timedelta(minutes=10))

    delays = {
        replace(schedule, name=ScheduleName(name)).delay for name in ("a", "b", "c")
    }
    assert len(delays) == 3
    assert all(timedelta() <= delay < schedule.jitter for delay in delays)
    assert next_run(schedule, START) == START + HOUR + schedule.delay


def test_a_delayed_fire_keeps_its_time():
    schedule = replace(HOURLY, jitter=timedelta(minutes=10))
    before = START + HOUR + schedule.delay - timedelta(seconds=1)

    assert decide(schedule, IDLE, before).start is None
    assert decide(schedule, IDLE, before + timedelta(seconds=1)).start == START + HOUR


def test_the_latest_of_the_missed_fires_is_caught_up():
    decision = decide(HOURLY, IDLE, START + timedelta(hours=5, minutes=30))

    assert decision.start == START + 5 * HOUR
    assert decision.skipped == (skipped(START + HOUR, 4, SkipReason.NO_SCHEDULER),)


def test_without_catching_up_a_late_fire_is_missed():
    schedule = replace(HOURLY, catch_up=CatchUp.NONE)

    late = decide(schedule, IDLE, START + timedelta(hours=2, minutes=2))
    on_time = decide(schedule, IDLE, START + timedelta(hours=2, seconds=50))

    assert late.start is None
    assert late.skipped == (skipped(START + HOUR, 2, SkipReason.NO_SCHEDULER),)
    assert on_time.start == START + 2 * HOUR


def test_what_is_too_old_is_not_caught_up():
    schedule = replace(HOURLY, catch_up_age=timedelta(minutes=20))

    decision = decide(schedule, IDLE, START + timedelta(hours=1, minutes=21))

    assert decision.start is None
    assert decision.skipped == (skipped(START + HOUR, 1, SkipReason.TOO_OLD),)


def test_all_ranges_are_caught_up_one_after_the_other():
    schedule = replace(
        HOURLY, catch_up=CatchUp.ALL, overlap=Overlap.QUEUE, catch_up_max=3
    )
    now = START + timedelta(hours=5, minutes=30)

    first = decide(schedule, IDLE, now)
    state = replace(IDLE, considered_until=first.considered_until, is_running=True)
    second = decide(schedule, state, now)
    state = replace(
        state, considered_until=second.considered_until, waiting=second.wait
    )
    third = decide(schedule, state, now)
    fourth = decide(schedule, replace(state, is_running=False), now)

    assert first.skipped == (skipped(START + HOUR, 2, SkipReason.NO_SCHEDULER),)
    assert first.start == START + 3 * HOUR
    assert second.wait == START + 4 * HOUR
    # the fifth is decided when the fourth has begun
    assert (third.wait, third.skipped) == (None, ())
    assert third.considered_until == START + 4 * HOUR
    assert fourth.start == START + 4 * HOUR


def test_a_fire_in_an_exception_is_skipped():
    window = ExceptionWindow.parse("07:00-09:00")
    schedule = replace(HOURLY, exceptions=(window,))

    decision = decide(schedule, IDLE, START + HOUR)

    assert decision.start is None
    assert decision.skipped == (skipped(START + HOUR, 1, SkipReason.EXCEPTION),)


def test_no_fire_is_caught_up_in_an_exception():
    schedule = replace(HOURLY, exceptions=(ExceptionWindow.parse("07:10-07:50"),))

    decision = decide(schedule, IDLE, START + timedelta(hours=1, minutes=30))

    assert decision.skipped == (skipped(START + HOUR, 1, SkipReason.EXCEPTION),)


@pytest.mark.parametrize("reason", [SkipReason.PAUSED, SkipReason.BROKEN])
def test_a_stopped_schedule_skips_its_fires_with_the_reason(reason):
    decision = decide(HOURLY, replace(IDLE, stopped=reason), START + 2 * HOUR)

    assert decision.start is None
    assert decision.skipped == (skipped(START + HOUR, 2, reason),)
    assert decision.considered_until == START + 2 * HOUR


def test_pausing_ends_the_wait_of_a_fire():
    state = replace(IDLE, waiting=START, is_running=True, stopped=SkipReason.PAUSED)

    decision = decide(HOURLY, state, START + 2 * HOUR)

    assert decision.skipped == (skipped(START, 1, SkipReason.PAUSED),)
    assert decision.considered_until == START


@pytest.mark.parametrize(
    ("overlap", "start", "wait", "reasons"),
    [
        (Overlap.SKIP, None, None, [SkipReason.OVERLAP]),
        (Overlap.QUEUE, None, START + HOUR, []),
        (Overlap.CANCEL, START + HOUR, None, []),
    ],
)
def test_an_unfinished_import_is_met_as_declared(overlap, start, wait, reasons):
    schedule = replace(HOURLY, overlap=overlap)

    decision = decide(schedule, replace(IDLE, is_running=True), START + HOUR)

    assert (decision.start, decision.wait) == (start, wait)
    assert [group.reason for group in decision.skipped] == reasons
    assert decision.cancel_running is (overlap is Overlap.CANCEL)


def test_one_fire_waits_at_most():
    schedule = replace(HOURLY, overlap=Overlap.QUEUE)
    state = replace(IDLE, waiting=START, is_running=True)

    decision = decide(schedule, state, START + HOUR)

    assert decision.wait is None
    assert decision.skipped == (skipped(START + HOUR, 1, SkipReason.OVERLAP),)


def test_a_waiting_fire_begins_when_the_other_import_has_ended():
    schedule = replace(HOURLY, overlap=Overlap.QUEUE)

    decision = decide(schedule, replace(IDLE, waiting=START), START + HOUR)

    assert (decision.start, decision.considered_until) == (START, START)


def test_a_date_fires_once():
    schedule = replace(HOURLY, trigger=OnceTrigger(at=START + HOUR))

    decision = decide(schedule, IDLE, START + HOUR)

    assert decision.start == START + HOUR
    assert next_run(schedule, decision.considered_until) is None


@pytest.mark.parametrize(
    ("text", "previous"),
    [
        ("* * * * *", "2026-11-18T05:59"),
        ("0 6 * * *", "2026-11-17T06:00"),
        ("0 6 18 11 *", "2025-11-18T06:00"),
        ("0 0 29 2 *", "2024-02-29T00:00"),
    ],
)
def test_the_previous_fire_is_found_however_long_ago(text, previous):
    trigger = CronTrigger(expression=CronExpression(text), zone=UTC_ZONE)

    found = previous_fire(replace(HOURLY, trigger=trigger), START)

    assert found == datetime.fromisoformat(previous).replace(tzinfo=UTC)


def test_a_long_absence_is_decided_in_bounded_steps():
    second = timedelta(seconds=1)
    schedule = replace(HOURLY, trigger=IntervalTrigger(interval=second))
    now = START + timedelta(seconds=MAX_FIRES + 10)

    first = decide(schedule, IDLE, now)
    rest = decide(schedule, replace(IDLE, considered_until=first.considered_until), now)

    assert first.start is None
    assert first.skipped == (
        skipped(START + second, MAX_FIRES, SkipReason.NO_SCHEDULER, second),
    )
    assert rest.start == now


@settings(max_examples=200, deadline=None)
@given(
    overlap=st.sampled_from(Overlap),
    catch_up=st.sampled_from(CatchUp),
    passes=st.lists(
        st.tuples(st.integers(0, 400), st.booleans(), st.booleans()), max_size=12
    ),
)
def test_every_fire_is_decided_once_in_order(overlap, catch_up, passes):
    """Whatever happens meanwhile, no fire is lost, doubled or without a reason."""
    trigger = CronTrigger(expression=CronExpression("*/20 * * * *"), zone=UTC_ZONE)
    schedule = replace(
        HOURLY, trigger=trigger, overlap=overlap, catch_up=catch_up, catch_up_max=2
    )
    now, state = START, IDLE
    begun, waiting, reasons = [], [], 0
    for minutes, is_running, is_paused in passes:
        now += timedelta(minutes=minutes)
        stopped = SkipReason.PAUSED if is_paused else None
        state = replace(state, is_running=is_running, stopped=stopped)
        decision = decide(schedule, state, now)
        still_waiting = state.waiting
        if decision.start is not None:
            begun.append(decision.start)
        if still_waiting in {decision.start, *(g.first for g in decision.skipped)}:
            still_waiting = None
        if decision.wait is not None:
            waiting.append(decision.wait)
            still_waiting = decision.wait
        reasons += sum(group.count for group in decision.skipped)
        assert decision.considered_until >= state.considered_until
        state = replace(
            state, considered_until=decision.considered_until, waiting=still_waiting
        )

    assert begun == sorted(set(begun))
    considered = due_fires(schedule, after=START, now=state.considered_until)
    left = 0 if state.waiting is None else 1
    assert len(begun) + reasons + left == len(considered.fires)


def test_no_fire_is_due_twice():
    due = DueFires(fires=[START + HOUR], is_all=True)

    decision = decide_fires(HOURLY, IDLE, due, now=START + HOUR)

    assert not due_fires(
        HOURLY, after=decision.considered_until, now=START + HOUR
    ).fires


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("Mon-Fri 08:00-10:00", "2026-11-18T08:00", "2026-11-18T10:00"),
        ("Mon-Fri 08:00-10:00", "2026-11-20T09:59", "2026-11-21T09:00"),
        ("22:00-02:00", "2026-11-18T01:59", "2026-11-18T02:00"),
        # a window belongs to the day on which it begins
        ("fri 22:00-02:00", "2026-11-21T01:00", "2026-11-20T01:00"),
        ("Sat,Sun 00:00-24:00", "2026-11-22T23:59", "2026-11-23T00:00"),
        ("Fri-Mon 12:00-13:00", "2026-11-23T12:30", "2026-11-24T12:30"),
    ],
)
def test_a_window_holds_its_wall_times(text, inside, outside):
    window = ExceptionWindow.parse(text)

    def contains(instant):
        return window.contains(
            datetime.fromisoformat(instant).replace(tzinfo=UTC), UTC_ZONE
        )

    assert contains(inside)
    assert not contains(outside)


@pytest.mark.parametrize(
    "text", ["8-10", "Mon 25:00-26:00", "Foo 08:00-10:00", "08:00-08:00", ""]
)
def test_a_bad_window_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        ExceptionWindow.parse(text)


def test_a_dataset_of_working_days_is_imported_every_three_days():
    weekdays = CronTrigger(expression=CronExpression("0 9 * * 1-5"), zone=UTC_ZONE)
    working_days = replace(HOURLY, trigger=weekdays)

    for hours in range(0, 168, 5):
        now = START + hours * HOUR
        assert import_interval([working_days], now) == 72 * HOUR
        # the schedule that imports most often counts
        assert import_interval([working_days, HOURLY], now) == HOUR


def test_a_dataset_that_is_imported_once_has_no_interval():
    once = replace(HOURLY, trigger=OnceTrigger(at=START + HOUR))

    assert import_interval([once], START) is None
    assert import_interval([], START) is None
