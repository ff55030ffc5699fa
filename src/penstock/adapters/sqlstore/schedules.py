"""Schedules and their fires, in the database that holds the imports they begin."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from typing_extensions import override

from penstock.adapters.sqlstore.database import Database, SqlRow, Transaction
from penstock.adapters.sqlstore.hook_messages import HookMessages
from penstock.adapters.sqlstore.idempotency import shard_keys_reader
from penstock.adapters.sqlstore.imports import begin
from penstock.adapters.sqlstore.jobs import read_clock
from penstock.adapters.sqlstore.row_mappers import RowMappers, decode_json
from penstock.domain.dataset import Dataset, DatasetName
from penstock.domain.formats import MICROSECOND, format_instant
from penstock.domain.jobs import Import, ImportId, ImportStatus, Mode
from penstock.domain.scheduling.fires import FireOutcome, SkippedFires, next_run
from penstock.domain.scheduling.schedule import (
    AfterTrigger,
    Schedule,
    ScheduleDeclaration,
    ScheduleName,
)
from penstock.errors import Conflict, NotFound
from penstock.ports.schedules import (
    Fire,
    FireId,
    FireLog,
    FireRequest,
    ScheduleChange,
    ScheduleFilter,
    ScheduleOrder,
    ScheduleOrigin,
    SchedulePosition,
    Schedules,
    ScheduleStatus,
    StoredSchedule,
    Upcoming,
)

LISTS: Mapping[ScheduleOrder, str] = {
    ScheduleOrder.NAME: "list_schedules",
    ScheduleOrder.NEXT_RUN: "list_schedules_by_next_run",
    ScheduleOrder.LAST_RUN: "list_schedules_by_last_run",
    ScheduleOrder.CREATION: "list_schedules_by_creation",
}
PAUSED_AS_DECLARED = "declared as paused"


class DecidedMeanwhile(Exception):
    """Another process has decided fires of the schedule; the transaction ends."""


@dataclass(frozen=True, slots=True)
class ScheduleRows:
    rows: RowMappers

    def read(self, row: SqlRow) -> StoredSchedule:
        instant_or_none = self.rows.instant_or_none
        return StoredSchedule(
            declaration=ScheduleDeclaration(
                name=ScheduleName(row["name"]),
                dataset=DatasetName(row["dataset"]),
                fields=decode_json(row["fields"]),
            ),
            origin=ScheduleOrigin(row["origin"]),
            status=ScheduleStatus(row["status"]),
            note=row["note"],
            considered_until=self.rows.instant(row["considered_until"]),
            waiting=instant_or_none(row["waiting"]),
            next_run_at=instant_or_none(row["next_run_at"]),
            last_run_at=instant_or_none(row["last_run_at"]),
            counted_since=self.rows.instant(row["counted_since"]),
            declared_at=instant_or_none(row["declared_at"]),
            conflict=row["conflict"],
            revision=row["revision"],
            created_at=self.rows.instant(row["created_at"]),
        )

    def read_fire(self, row: SqlRow) -> Fire:
        status, import_id = row["import_status"], row["import_id"]
        return Fire(
            id=FireId(row["id"]),
            schedule=ScheduleName(row["schedule"]),
            request=row["request"],
            fire_at=self.rows.instant(row["fire_at"]),
            last_fire_at=self.rows.instant(row["last_fire_at"]),
            count=row["count"],
            outcome=FireOutcome(row["outcome"]),
            reason=row["reason"],
            detail=row["detail"],
            import_id=None if import_id is None else ImportId(import_id),
            import_status=None if status is None else ImportStatus(status),
            decided_at=self.rows.instant(row["decided_at"]),
        )


class SqlSchedules(Schedules):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = ScheduleRows(RowMappers(database.instant))

    @override
    def declare(
        self, schedules: Sequence[tuple[Schedule, ScheduleDeclaration]], *, at: datetime
    ) -> Sequence[ScheduleName]:
        def work(transaction: Transaction) -> Sequence[ScheduleName]:
            stored = {
                row["name"]: self._rows.read(row)
                for row in transaction.all("declared_schedules")
            }
            conflicts = []
            for schedule, declaration in sorted(
                schedules, key=lambda pair: pair[0].name
            ):
                existing = stored.pop(schedule.name, None)
                if not self._declare(transaction, schedule, declaration, existing, at):
                    conflicts.append(schedule.name)
            for name, existing in sorted(stored.items()):
                if is_newer(existing, at):
                    self._note_conflict(transaction, name, "does not declare it", at)
                    conflicts.append(name)
                elif existing.status is not ScheduleStatus.RETIRED:
                    self._set_status(
                        transaction, existing, ScheduleStatus.RETIRED, None, at
                    )
            return conflicts

        return self._database.write(work)

    def _declare(
        self,
        transaction: Transaction,
        schedule: Schedule,
        declaration: ScheduleDeclaration,
        existing: StoredSchedule | None,
        at: datetime,
    ) -> bool:
        """Store one declaration; False if another one stays."""
        if existing is None:
            added = self._add(
                transaction, schedule, declaration, ScheduleOrigin.DECLARED, at
            )
            if added is None:
                message = "declares one of this name, too"
                self._note_conflict(transaction, schedule.name, message, at)
            return added is not None
        is_same = existing.declaration.fields == declaration.fields
        if is_newer(existing, at):
            if not is_same:
                message = "declares other fields"
                self._note_conflict(transaction, schedule.name, message, at)
            return is_same
        if is_same and existing.status is not ScheduleStatus.RETIRED:
            transaction.execute(
                "confirm_schedule",
                name=schedule.name,
                declared_at=self._database.to_stored_time(at),
            )
            return True
        status, note = status_after_change(existing, schedule)
        self._change(
            transaction,
            schedule,
            declaration,
            revision=existing.revision,
            status=status,
            note=note,
            declared_at=at,
        )
        return True

    def _note_conflict(
        self, transaction: Transaction, name: str, what: str, at: datetime
    ) -> None:
        conflict = f"a process that started at {format_instant(at)} {what}"
        transaction.execute("note_schedule_conflict", name=name, conflict=conflict)

    def _add(
        self,
        transaction: Transaction,
        schedule: Schedule,
        declaration: ScheduleDeclaration,
        origin: ScheduleOrigin,
        declared_at: datetime | None,
    ) -> SqlRow | None:
        paused = schedule.paused
        return transaction.one(
            "add_schedule",
            **self._params(transaction, schedule, declaration),
            origin=origin,
            status=ScheduleStatus.PAUSED if paused else ScheduleStatus.ACTIVE,
            note=PAUSED_AS_DECLARED if paused else None,
            declared_at=self._database.to_stored_time(declared_at),
        )

    def _change(
        self,
        transaction: Transaction,
        schedule: Schedule,
        declaration: ScheduleDeclaration,
        *,
        revision: int,
        status: ScheduleStatus,
        note: str | None,
        declared_at: datetime | None,
    ) -> SqlRow | None:
        return transaction.one(
            "change_schedule",
            **self._params(transaction, schedule, declaration),
            revision=revision,
            status=status,
            note=note,
            declared_at=self._database.to_stored_time(declared_at),
        )

    def _params(
        self,
        transaction: Transaction,
        schedule: Schedule,
        declaration: ScheduleDeclaration,
    ) -> dict[str, object]:
        trigger = schedule.trigger
        after = list(trigger.datasets) if isinstance(trigger, AfterTrigger) else None
        next_run_at = next_run(schedule, read_clock(transaction))
        return {
            "name": schedule.name,
            "dataset": schedule.dataset,
            "fields": json.dumps(dict(declaration.fields)),
            "after": None if after is None else json.dumps(after),
            "next_run_at": self._database.to_stored_time(next_run_at),
        }

    @override
    def create(
        self, schedule: Schedule, declaration: ScheduleDeclaration
    ) -> StoredSchedule:
        row = self._database.write(
            lambda transaction: self._add(
                transaction, schedule, declaration, ScheduleOrigin.CREATED, None
            )
        )
        if row is None:
            raise Conflict(f"there is a schedule {schedule.name!r} already")
        return self._rows.read(row)

    @override
    def change(
        self, schedule: Schedule, declaration: ScheduleDeclaration, *, revision: int
    ) -> StoredSchedule:
        def work(transaction: Transaction) -> StoredSchedule:
            existing = self._hold(transaction, schedule.name)
            refuse_declared(existing, "change it there")
            status, note = status_after_change(existing, schedule)
            row = self._change(
                transaction,
                schedule,
                declaration,
                revision=revision,
                status=status,
                note=note,
                declared_at=None,
            )
            if row is None:
                raise Conflict(f"schedule {schedule.name!r} has changed meanwhile")
            return self._rows.read(row)

        return self._database.write(work)

    @override
    def set_status(
        self, name: str, status: ScheduleStatus, *, note: str | None
    ) -> StoredSchedule:
        def work(transaction: Transaction) -> StoredSchedule:
            existing = self._hold(transaction, name)
            if existing.status is ScheduleStatus.RETIRED:
                raise Conflict(f"schedule {name!r} is no longer declared")
            if existing.status is ScheduleStatus.ENDED:
                raise Conflict(f"schedule {name!r} has ended: no fire is left")
            return self._set_status(transaction, existing, status, note)

        return self._database.write(work)

    def _set_status(
        self,
        transaction: Transaction,
        existing: StoredSchedule,
        status: ScheduleStatus,
        note: str | None,
        declared_at: datetime | None = None,
    ) -> StoredSchedule:
        row = transaction.one(
            "set_schedule_status",
            name=existing.name,
            revision=existing.revision,
            status=status,
            note=note,
            declared_at=self._database.to_stored_time(declared_at),
        )
        if row is None:
            raise Conflict(f"schedule {existing.name!r} has changed meanwhile")
        return self._rows.read(row)

    @override
    def delete(self, name: str, *, revision: int | None = None) -> None:
        def work(transaction: Transaction) -> None:
            existing = self._hold(transaction, name)
            if revision not in {None, existing.revision}:
                raise Conflict(f"schedule {name!r} has changed meanwhile")
            if existing.status is not ScheduleStatus.RETIRED:
                refuse_declared(existing, "remove it there")
            transaction.execute("delete_fires", name=name)
            transaction.execute("delete_schedule", name=name)

        self._database.write(work)

    @override
    def get(self, name: str) -> StoredSchedule:
        return self._database.read(
            lambda transaction: self._read_one(
                transaction.one("get_schedule", name=name), name
            )
        )

    def _hold(self, transaction: Transaction, name: str) -> StoredSchedule:
        return self._read_one(transaction.one("hold_schedule", name=name), name)

    def _read_one(self, row: SqlRow | None, name: str) -> StoredSchedule:
        if row is None:
            raise NotFound(f"there is no schedule {name!r}", among="schedules")
        return self._rows.read(row)

    @override
    def find(
        self,
        chosen: ScheduleFilter,
        *,
        order: ScheduleOrder = ScheduleOrder.NAME,
        after: SchedulePosition | None = None,
        limit: int,
    ) -> Sequence[StoredSchedule]:
        params: dict[str, object] = {
            "status": chosen.status,
            "dataset": chosen.dataset,
            "after": None if after is None else after.name,
            "limit": limit,
        }
        if order is not ScheduleOrder.NAME:
            at = None if after is None else after.at
            params["at"] = self._database.to_stored_time(at)
        found = self._database.read(
            lambda transaction: transaction.all(LISTS[order], **params)
        )
        return [*map(self._rows.read, found)]

    @override
    def fires(
        self, name: str, *, before: FireId | None = None, limit: int
    ) -> Sequence[Fire]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "recent_fires", schedule=name, before=before, limit=limit
            )
        )
        return [*map(self._rows.read_fire, found)]


class SqlFireLog(FireLog):
    def __init__(self, database: Database, hooks: HookMessages | None = None) -> None:
        self._database = database
        self._hooks = hooks or HookMessages()
        self._mappers = RowMappers(database.instant)
        self._rows = ScheduleRows(self._mappers)

    @override
    def due(self, *, limit: int) -> Sequence[StoredSchedule]:
        found = self._database.read(
            lambda transaction: transaction.all("due_schedules", limit=limit)
        )
        return [*map(self._rows.read, found)]

    @override
    def upcoming(self) -> Upcoming:
        row = self._database.read(lambda transaction: transaction.one("next_schedule"))
        if row is None:
            return Upcoming(wait=None, has_pending=False)
        wait = row["wait"]
        return Upcoming(
            wait=None if wait is None else wait * MICROSECOND,
            has_pending=bool(row["has_pending"]),
        )

    @override
    def unfinished(self, dataset: DatasetName, mode: Mode) -> ImportId | None:
        row = self._database.read(
            lambda transaction: transaction.one(
                "find_unfinished_import", dataset=dataset, mode=mode
            )
        )
        return None if row is None else ImportId(row["id"])

    @override
    def newest_proven(
        self, datasets: Sequence[DatasetName]
    ) -> Mapping[DatasetName, datetime]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "newest_proven_imports", datasets=json.dumps(datasets)
            )
        )
        return {
            DatasetName(row["dataset"]): self._database.instant(row["finished_at"])
            for row in found
        }

    @override
    def results(self, schedule: StoredSchedule, *, limit: int) -> Sequence[bool]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "schedule_results",
                schedule=schedule.name,
                since=self._database.to_stored_time(schedule.counted_since),
                limit=limit,
            )
        )
        return [row["status"] == ImportStatus.DONE for row in found]

    @override
    def record(self, schedule: StoredSchedule, change: ScheduleChange) -> bool:
        def work(transaction: Transaction) -> None:
            self._advance(transaction, schedule, change)

        try:
            self._database.write(work)
        except DecidedMeanwhile:
            return False
        return True

    @override
    def begin(
        self,
        schedule: StoredSchedule,
        change: ScheduleChange | None,
        dataset: Dataset,
        fire: FireRequest,
    ) -> Import | None:
        def work(transaction: Transaction) -> Import:
            if change is None:
                if not transaction.execute("note_run", name=schedule.name):
                    raise DecidedMeanwhile
            else:
                self._advance(transaction, schedule, change, has_run=True)
            spec = fire.spec
            started, resumed = begin(
                self._database,
                transaction,
                dataset,
                spec.scope,
                declaration=spec.declaration,
                traceparent=spec.traceparent,
            )
            if resumed:
                spec.approve(started, shard_keys_reader(transaction, started.id))
            fire_row = FireRow(
                schedule=schedule.name,
                first=fire.fire_at,
                outcome=FireOutcome.STARTED,
                request=fire.request,
                import_id=started.id,
            )
            self._add_fire(transaction, fire_row)
            return started

        try:
            return self._database.write(work)
        except DecidedMeanwhile:
            return None

    def _advance(
        self,
        transaction: Transaction,
        schedule: StoredSchedule,
        change: ScheduleChange,
        *,
        has_run: bool = False,
    ) -> None:
        stored_time = self._database.to_stored_time
        advanced = transaction.one(
            "advance_schedule",
            name=schedule.name,
            revision=schedule.revision,
            considered_until=stored_time(change.considered_until),
            waiting=stored_time(change.waiting),
            next_run_at=stored_time(change.next_run_at),
            status=change.status,
            note=change.note,
            has_run=has_run,
        )
        if advanced is None:
            raise DecidedMeanwhile
        for skipped in change.skipped:
            self._add_skipped(transaction, schedule, skipped, change.detail)
            if skipped.outcome is FireOutcome.MISSED:
                self._hooks.add_missed_fires(transaction, schedule, skipped)
        if change.waiting is not None and change.waiting != schedule.waiting:
            waiting = FireRow(
                schedule=schedule.name,
                first=change.waiting,
                outcome=FireOutcome.WAITING,
            )
            self._add_fire(transaction, waiting)

    def _add_skipped(
        self,
        transaction: Transaction,
        schedule: StoredSchedule,
        skipped: SkippedFires,
        detail: str | None,
    ) -> None:
        stored_time = self._database.to_stored_time
        extended = skipped.first != schedule.waiting and transaction.execute(
            "extend_fires",
            schedule=schedule.name,
            outcome=skipped.outcome,
            reason=skipped.reason,
            detail=detail,
            fire_at=stored_time(skipped.first),
            last_fire_at=stored_time(skipped.last),
            count=skipped.count,
        )
        if not extended:
            row = FireRow(
                schedule=schedule.name,
                first=skipped.first,
                last=skipped.last,
                count=skipped.count,
                outcome=skipped.outcome,
                reason=skipped.reason,
                detail=detail,
            )
            self._add_fire(transaction, row)

    def _add_fire(self, transaction: Transaction, fire: "FireRow") -> None:
        stored_time = self._database.to_stored_time
        added = transaction.one(
            "add_fire",
            schedule=fire.schedule,
            request=fire.request,
            fire_at=stored_time(fire.first),
            last_fire_at=stored_time(fire.last or fire.first),
            count=fire.count,
            outcome=fire.outcome,
            reason=fire.reason,
            detail=fire.detail,
            import_id=fire.import_id,
        )
        if added is None:
            raise DecidedMeanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class FireRow:
    schedule: ScheduleName
    first: datetime
    # none: it is one fire
    last: datetime | None = None
    count: int = 1
    outcome: FireOutcome
    reason: str | None = None
    detail: str | None = None
    request: str = ""
    import_id: ImportId | None = None


def is_newer(existing: StoredSchedule, at: datetime) -> bool:
    return existing.declared_at is not None and existing.declared_at > at


def refuse_declared(existing: StoredSchedule, remedy: str) -> None:
    if existing.origin is ScheduleOrigin.DECLARED:
        message = f"schedule {existing.name!r} is declared in penstock.toml"
        raise Conflict(f"{message}; {remedy}")


def status_after_change(
    existing: StoredSchedule, schedule: Schedule
) -> tuple[ScheduleStatus, str | None]:
    """Return the status under new fields: an operator's pause survives them."""
    was_declared_paused = bool(existing.declaration.fields.get("paused"))
    if schedule.paused:
        return ScheduleStatus.PAUSED, PAUSED_AS_DECLARED
    if existing.status is ScheduleStatus.PAUSED and not was_declared_paused:
        return ScheduleStatus.PAUSED, existing.note
    return ScheduleStatus.ACTIVE, None
