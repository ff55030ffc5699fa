"""Begin an import of a schedule on request: one now, or one of a past time range."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from penstock.domain.dataset import Dataset
from penstock.domain.events import ScheduleFired
from penstock.domain.formats import in_utc
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import Import, Mode
from penstock.domain.scheduling.fires import previous_fire
from penstock.domain.scheduling.schedule import Schedule
from penstock.domain.source import CsvSource
from penstock.errors import Conflict, Misconfigured
from penstock.flow.tick_schedules import (
    BeginImport,
    ImportUnfinished,
    ParseSchedule,
    scope_now,
)
from penstock.ports import Emit, Redact, Stores
from penstock.ports.schedules import FireRequest, ScheduleStatus, StoredSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSchedule:
    """Begins imports that have to be planned afterwards; also of paused schedules.

    Raises `Conflict` while an import of the same dataset and mode is unfinished, and if
    the schedule does not fit its dataset, or is no longer declared.
    """

    datasets: Mapping[str, Dataset]
    stores: Stores
    parse: ParseSchedule
    begin_import: BeginImport
    redact: Redact
    emit: Emit

    def __call__(self, name: str) -> Import:
        """Begin the import that a fire at this moment would begin."""
        stored, schedule, dataset = self._find(name)
        now = self.stores.jobs.now()
        mode = self.begin_import.mode(dataset, schedule.mode)
        requested = scope_now(schedule, mode)
        if mode is Mode.BACKFILL:
            since = previous_fire(schedule, now)
            requested = ImportScope(mode=mode, since=since, until=now)
        return self._begin(stored, dataset, requested, fire_at=now)

    def backfill(self, name: str, since: datetime, until: datetime) -> Import:
        """Import a time range, also one that a fire has imported already.

        Raises `Misconfigured` for a dataset that has no time ranges.
        """
        stored, _, dataset = self._find(name)
        if isinstance(dataset.source, CsvSource):
            raise Misconfigured(
                f"datasets.{dataset.name} has files, which are imported as a whole; "
                "a backfill needs a source with a time axis"
            )
        requested = ImportScope(
            mode=Mode.BACKFILL, since=in_utc(since), until=in_utc(until)
        )
        return self._begin(stored, dataset, requested, fire_at=in_utc(until))

    def _find(self, name: str) -> tuple[StoredSchedule, Schedule, Dataset]:
        stored = self.stores.schedules.get(name)
        if stored.status is ScheduleStatus.RETIRED:
            raise Conflict(f"schedule {name!r} is no longer declared")
        schedule, problem = self.parse(stored.declaration)
        dataset = self.datasets.get(stored.declaration.dataset)
        if schedule is None or dataset is None or problem is not None:
            raise Conflict(self.redact(f"schedule {name!r} is broken: {problem}"))
        return stored, schedule, dataset

    def _begin(
        self,
        stored: StoredSchedule,
        dataset: Dataset,
        requested: ImportScope,
        *,
        fire_at: datetime,
    ) -> Import:
        fire = FireRequest(
            fire_at=fire_at,
            request=secrets.token_hex(8),
            spec=self.begin_import.spec(dataset, requested),
        )
        try:
            started = self.stores.fires.begin(stored, None, dataset, fire)
        except ImportUnfinished as error:
            (unfinished,) = error.args
            raise Conflict(
                f"import {unfinished} of {dataset.name!r} ({requested.mode}) is "
                "unfinished; let it finish, or cancel it"
            ) from None
        if started is None:
            raise Conflict(f"schedule {stored.name!r} was deleted meanwhile")
        self.emit(
            ScheduleFired(
                schedule=stored.name,
                dataset=dataset.name,
                import_id=started.id,
                fire_at=fire_at,
            )
        )
        return started
