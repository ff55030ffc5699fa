"""What every store promises of schedules and their fires."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import ImportStatus, Mode
from penstock.domain.scheduling.fires import SkippedFires, SkipReason
from penstock.domain.scheduling.schedule import ScheduleDeclaration
from penstock.errors import Conflict, NotFound
from penstock.ports import Stores
from penstock.ports.idempotency import ImportSpec
from penstock.ports.schedules import (
    FireRequest,
    ScheduleChange,
    ScheduleFilter,
    ScheduleOrder,
    ScheduleOrigin,
    SchedulePosition,
    ScheduleStatus,
    StoredSchedule,
)
from penstock.settings.schedules import parse_schedule
from tests.support.builders import ANN, HOUR, MINUTE, SECOND, dataset, open_import
from tests.support.racing import in_threads

POI = dataset()
HOURLY = {"dataset": "poi", "every": "1h"}


def declared(name="poi", fields=HOURLY):
    schedule, problems = parse_schedule(name, fields, {"poi": POI})
    assert schedule is not None, problems
    declaration = ScheduleDeclaration(
        name=schedule.name, dataset=schedule.dataset, fields=fields
    )
    return schedule, declaration


def refuse(*_: object) -> None:
    raise Conflict("an import is unfinished")


def fire_request(at: datetime, *, request: str = "") -> FireRequest:
    spec = ImportSpec(
        scope=ImportScope(mode=Mode.FULL), declaration="d", approve=refuse
    )
    return FireRequest(fire_at=at, request=request, spec=spec)


def advanced(schedule: StoredSchedule, **changes) -> ScheduleChange:
    at = schedule.next_run_at
    assert at is not None
    return ScheduleChange(considered_until=at, next_run_at=at + HOUR, **changes)


def skipped(first: datetime, count: int, reason=SkipReason.PAUSED) -> SkippedFires:
    last = first + (count - 1) * HOUR
    return SkippedFires(first=first, last=last, count=count, reason=reason)


class SchedulesContract:
    """Subclasses bring `stores` and `pass_time`."""

    @pytest.fixture
    def hourly(self, stores: Stores, now) -> StoredSchedule:
        stores.schema.ensure_table(POI)
        stores.schedules.declare([declared()], at=now())
        return stores.schedules.get("poi")

    @pytest.fixture
    def now(self, stores: Stores):
        return stores.jobs.now

    def test_a_declared_schedule_is_due_at_its_next_fire(
        self, stores: Stores, pass_time, hourly
    ):
        assert hourly.next_run_at is not None
        wait = stores.fires.upcoming().wait
        assert wait is not None
        assert timedelta() < wait <= HOUR
        assert stores.fires.due(limit=10) == []

        pass_time(HOUR)

        assert [each.name for each in stores.fires.due(limit=10)] == ["poi"]

    def test_declaring_again_changes_nothing(self, stores: Stores, pass_time, hourly):
        pass_time(2 * HOUR)
        stores.schedules.declare([declared()], at=stores.jobs.now())

        again = stores.schedules.get("poi")

        assert again.considered_until == hourly.considered_until
        assert again.next_run_at == hourly.next_run_at

    def test_changed_fields_begin_anew(self, stores: Stores, pass_time, hourly):
        pass_time(5 * HOUR)
        fields = {**HOURLY, "every": "2h"}

        stores.schedules.declare([declared(fields=fields)], at=stores.jobs.now())

        changed = stores.schedules.get("poi")
        assert changed.declaration.fields == fields
        assert changed.considered_until > hourly.considered_until
        assert stores.fires.due(limit=10) == []

    def test_what_is_no_longer_declared_retires_with_its_history(
        self, stores: Stores, pass_time, hourly
    ):
        stores.fires.begin(
            hourly, advanced(hourly), POI, fire_request(hourly.next_run_at)
        )
        pass_time(HOUR)

        stores.schedules.declare([], at=stores.jobs.now())

        assert stores.schedules.get("poi").status is ScheduleStatus.RETIRED
        assert len(stores.schedules.fires("poi", limit=10)) == 1
        pass_time(HOUR)
        assert stores.fires.due(limit=10) == []
        stores.schedules.declare([declared()], at=stores.jobs.now())
        assert stores.schedules.get("poi").status is ScheduleStatus.ACTIVE

    def test_the_process_that_started_last_declares(self, stores: Stores, now, hourly):
        fields = {**HOURLY, "every": "2h"}

        conflicts = stores.schedules.declare(
            [declared(fields=fields)], at=now() - MINUTE
        )

        current = stores.schedules.get("poi")
        assert conflicts == ["poi"]
        assert current.declaration.fields == HOURLY
        assert "declares other fields" in (current.conflict or "")
        stores.schedules.declare([declared()], at=now() + SECOND)
        assert stores.schedules.get("poi").conflict is None

    def test_an_older_process_retires_nothing(self, stores: Stores, now, hourly):
        assert stores.schedules.declare([], at=now() - MINUTE) == ["poi"]
        assert stores.schedules.get("poi").status is ScheduleStatus.ACTIVE

    def test_a_pause_survives_a_restart(self, stores: Stores, now, hourly):
        stores.schedules.set_status("poi", ScheduleStatus.PAUSED, note="by hand")

        stores.schedules.declare([declared()], at=now() + SECOND)
        changed = {**HOURLY, "jitter": "1m"}
        stores.schedules.declare([declared(fields=changed)], at=now() + SECOND)

        paused = stores.schedules.get("poi")
        assert (paused.status, paused.note) == (ScheduleStatus.PAUSED, "by hand")

    def test_a_declared_pause_ends_with_its_declaration(self, stores: Stores, now):
        fields = {**HOURLY, "paused": True}
        stores.schedules.declare([declared(fields=fields)], at=now())
        assert stores.schedules.get("poi").status is ScheduleStatus.PAUSED

        stores.schedules.declare([declared()], at=now() + SECOND)

        assert stores.schedules.get("poi").status is ScheduleStatus.ACTIVE

    def test_a_created_schedule_is_changed_and_deleted(self, stores: Stores):
        created = stores.schedules.create(*declared())
        assert created.origin is ScheduleOrigin.CREATED
        with pytest.raises(Conflict, match="there is a schedule 'poi' already"):
            stores.schedules.create(*declared())

        fields = {**HOURLY, "every": "2h"}
        changed = stores.schedules.change(
            *declared(fields=fields), revision=created.revision
        )
        assert changed.declaration.fields == fields
        with pytest.raises(Conflict, match="has changed meanwhile"):
            stores.schedules.change(*declared(), revision=created.revision)

        stores.schedules.delete("poi")
        with pytest.raises(NotFound, match="there is no schedule 'poi'"):
            stores.schedules.get("poi")

    def test_a_declared_schedule_is_changed_in_the_file_only(
        self, stores: Stores, hourly
    ):
        with pytest.raises(Conflict, match=r"declared in penstock\.toml; change it"):
            stores.schedules.change(*declared(), revision=hourly.revision)
        with pytest.raises(Conflict, match=r"declared in penstock\.toml; remove it"):
            stores.schedules.delete("poi")

    def test_a_file_does_not_take_over_a_created_schedule(self, stores: Stores, now):
        stores.schedules.create(*declared())

        assert stores.schedules.declare([declared()], at=now()) == ["poi"]
        assert stores.schedules.get("poi").origin is ScheduleOrigin.CREATED

    def test_schedules_are_found_by_status_and_dataset(self, stores: Stores):
        for name in ("a", "b", "c"):
            stores.schedules.create(*declared(name))
        stores.schedules.set_status("b", ScheduleStatus.PAUSED, note=None)

        def find(**chosen):
            found = stores.schedules.find(ScheduleFilter(**chosen), limit=10)
            return [schedule.name for schedule in found]

        assert find() == ["a", "b", "c"]
        assert find(status=ScheduleStatus.PAUSED) == ["b"]
        assert find(dataset="other") == []
        after = SchedulePosition(name="a")
        page = stores.schedules.find(ScheduleFilter(), after=after, limit=1)
        assert [schedule.name for schedule in page] == ["b"]

    def test_schedules_are_listed_by_their_times(self, stores: Stores, pass_time):
        stores.schema.ensure_table(POI)
        for name, interval in (("a", "3h"), ("b", "1h"), ("c", "2h")):
            fields = {**HOURLY, "every": interval}
            stores.schedules.create(*declared(name, fields))
            pass_time(MINUTE)
        run = stores.schedules.get("b")
        stores.fires.begin(run, None, POI, fire_request(run.created_at, request="r"))

        def pages(order: ScheduleOrder, time: Callable[[StoredSchedule], Any]):
            after, names = None, list[str]()
            while page := stores.schedules.find(
                ScheduleFilter(dataset="poi"), order=order, after=after, limit=1
            ):
                names.append(page[0].name)
                after = SchedulePosition(name=page[0].name, at=time(page[0]))
            return names

        next_runs = pages(ScheduleOrder.NEXT_RUN, lambda each: each.next_run_at)
        assert next_runs == sorted(
            "abc", key=lambda name: (stores.schedules.get(name).next_run_at, name)
        )
        assert pages(ScheduleOrder.LAST_RUN, lambda each: each.last_run_at) == ["b"]
        created = pages(ScheduleOrder.CREATION, lambda each: each.created_at)
        assert created == ["c", "b", "a"]

    def test_a_fire_begins_one_import(self, stores: Stores, hourly):
        request = fire_request(hourly.next_run_at)

        begun = in_threads(
            *[lambda: stores.fires.begin(hourly, advanced(hourly), POI, request)] * 4
        )

        (started,) = [each for each in begun if each is not None]
        (fire,) = stores.schedules.fires("poi", limit=10)
        assert (fire.import_id, fire.fire_at) == (started.id, hourly.next_run_at)
        assert fire.import_status is ImportStatus.PLANNING
        after = stores.schedules.get("poi")
        assert after.considered_until == hourly.next_run_at
        assert after.last_run_at is not None

    def test_its_import_is_left_to_be_planned(self, stores: Stores, hourly):
        request = fire_request(hourly.next_run_at)
        started = stores.fires.begin(hourly, advanced(hourly), POI, request)

        assert started is not None
        assert stores.plans.claim(started.id, ANN) is not None

    def test_a_fire_begins_no_second_import_whatever_its_schedule_says(
        self, stores: Stores, hourly
    ):
        request = fire_request(hourly.next_run_at)
        started = stores.fires.begin(hourly, advanced(hourly), POI, request)
        assert started is not None
        stores.imports.cancel(started.id, reason="to make room")

        again = stores.fires.begin(
            stores.schedules.get("poi"), advanced(hourly), POI, request
        )

        assert again is None
        assert len(stores.schedules.fires("poi", limit=10)) == 1

    def test_a_fire_does_not_adopt_an_unfinished_import(self, stores: Stores, hourly):
        stores.imports.begin(POI, ImportScope(mode=Mode.FULL), declaration="d")
        request = fire_request(hourly.next_run_at)

        assert stores.fires.unfinished(POI.name, Mode.FULL) is not None
        assert stores.fires.unfinished(POI.name, Mode.DELTA) is None

        with pytest.raises(Conflict, match="an import is unfinished"):
            stores.fires.begin(hourly, advanced(hourly), POI, request)

        assert stores.schedules.get("poi") == hourly
        assert stores.schedules.fires("poi", limit=10) == []

    def test_a_person_may_ask_for_a_fire_again(self, stores: Stores, hourly):
        at = hourly.next_run_at
        first = stores.fires.begin(hourly, None, POI, fire_request(at, request="r1"))
        assert first is not None
        stores.imports.cancel(first.id, reason="to make room")

        second = stores.fires.begin(hourly, None, POI, fire_request(at, request="r2"))

        assert second is not None
        assert len(stores.schedules.fires("poi", limit=10)) == 2
        assert stores.schedules.get("poi").considered_until == hourly.considered_until

    def test_another_version_than_the_given_one_is_not_deleted(self, stores: Stores):
        created = stores.schedules.create(*declared())
        stores.schedules.set_status("poi", ScheduleStatus.PAUSED, note=None)

        with pytest.raises(Conflict, match="changed meanwhile"):
            stores.schedules.delete("poi", revision=created.revision)

        current = stores.schedules.get("poi").revision
        stores.schedules.delete("poi", revision=current)
        with pytest.raises(NotFound):
            stores.schedules.get("poi")

    def test_what_has_ended_is_not_resumed(self, stores: Stores, hourly):
        change = advanced(hourly, status=ScheduleStatus.ENDED)
        assert stores.fires.record(hourly, change)

        with pytest.raises(Conflict, match="no fire is left"):
            stores.schedules.set_status("poi", ScheduleStatus.ACTIVE, note=None)

        assert stores.schedules.get("poi").status is ScheduleStatus.ENDED

    def test_a_schedule_deleted_meanwhile_begins_nothing(self, stores: Stores):
        created = stores.schedules.create(*declared())
        stores.schedules.delete("poi")
        request = fire_request(created.considered_until, request="r1")

        assert stores.fires.begin(created, None, POI, request) is None

        assert stores.imports.recent(limit=1) == []
        assert stores.schedules.fires("poi", limit=1) == []

    def test_fires_skipped_in_a_row_are_one_row(self, stores: Stores, hourly):
        first = hourly.next_run_at
        change = ScheduleChange(
            considered_until=first + HOUR,
            next_run_at=first + 2 * HOUR,
            skipped=[skipped(first, 2)],
        )
        assert stores.fires.record(hourly, change)
        later = ScheduleChange(
            considered_until=first + 4 * HOUR,
            next_run_at=first + 5 * HOUR,
            skipped=[
                skipped(first + 2 * HOUR, 2),
                skipped(first + 4 * HOUR, 1, SkipReason.NO_SCHEDULER),
            ],
        )
        assert stores.fires.record(stores.schedules.get("poi"), later)

        rows = stores.schedules.fires("poi", limit=10)

        assert [(row.outcome, row.reason, row.count) for row in rows] == [
            ("missed", "no_scheduler", 1),
            ("skipped", "paused", 4),
        ]
        assert rows[1].last_fire_at == first + 3 * HOUR

    def test_a_decision_of_an_old_state_changes_nothing(self, stores: Stores, hourly):
        assert stores.fires.record(hourly, advanced(hourly))

        again = advanced(hourly, skipped=[skipped(hourly.next_run_at, 1)])

        assert not stores.fires.record(hourly, again)
        assert stores.schedules.fires("poi", limit=10) == []

    def test_a_waiting_fire_is_looked_at_until_it_begins(self, stores: Stores, hourly):
        at = hourly.next_run_at
        assert not stores.fires.upcoming().has_pending
        stores.fires.record(hourly, advanced(hourly, waiting=at))
        (waiting,) = stores.fires.due(limit=10)
        assert stores.fires.upcoming().has_pending
        assert [fire.outcome for fire in stores.schedules.fires("poi", limit=9)] == [
            "waiting"
        ]

        stores.fires.begin(waiting, advanced(hourly), POI, fire_request(at))

        (fire,) = stores.schedules.fires("poi", limit=10)
        assert fire.outcome == "started"
        assert stores.fires.due(limit=10) == []

    def test_a_wait_that_ends_says_why(self, stores: Stores, hourly):
        at = hourly.next_run_at
        stores.fires.record(hourly, advanced(hourly, waiting=at))
        waiting = stores.schedules.get("poi")

        stores.fires.record(waiting, advanced(hourly, skipped=[skipped(at, 1)]))

        (fire,) = stores.schedules.fires("poi", limit=10)
        assert (fire.outcome, fire.reason) == ("skipped", "paused")

    def test_the_results_of_a_schedule_are_counted_since_it_was_resumed(
        self, stores: Stores, pass_time, hourly
    ):
        schedule = hourly
        for _ in range(2):
            request = fire_request(schedule.next_run_at)
            started = stores.fires.begin(schedule, advanced(schedule), POI, request)
            assert started is not None
            open_import(stores, started.id, ["all"])
            stores.imports.close(POI, started.id, failed="too many bad rows")
            pass_time(HOUR)
            schedule = stores.schedules.get("poi")

        assert stores.fires.results(schedule, limit=5) == [False, False]
        resumed = stores.schedules.set_status("poi", ScheduleStatus.ACTIVE, note=None)
        assert stores.fires.results(resumed, limit=5) == []

    def test_a_schedule_that_follows_imports_is_always_looked_at(
        self, stores: Stores, now
    ):
        fields = {"dataset": "poi", "after": ["poi"]}
        stores.schedules.declare([declared(fields=fields)], at=now())

        assert [each.name for each in stores.fires.due(limit=10)] == ["poi"]
        assert stores.fires.upcoming().wait is None
        assert stores.fires.newest_proven([POI.name]) == {}
