"""Remove what is older than the settings say, in small batches."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, partial

from penstock.domain.jobs import ImportId
from penstock.domain.retention import (
    EndedImport,
    Expiry,
    KeepReason,
    RetentionPolicy,
    can_remove_pages,
)
from penstock.ports import ActionLog, ClaimLog, Jobs, Retention, Rollups
from penstock.ports.retention import EndPosition

# after it was first shown what is removed; time to change the settings
NOTICE = timedelta(days=1)
# how long a task works, and then lets others work
SHIFT = timedelta(seconds=3)
BREAK = timedelta(seconds=5)
# imports that are read at a time
IMPORT_BATCH = 200
# claims, rollups, actions and fires that are removed in one transaction
REMOVAL_BATCH = 1_000
# entries of the change feed; one may have all changes of a page
CHANGE_BATCH = 500


@dataclass(slots=True)
class RetentionReport:
    """What is removed, by kind, and why old imports stay."""

    removed: Counter[str] = field(default_factory=Counter)
    stays: Counter[KeepReason] = field(default_factory=Counter)


class ApplyRetention:
    def __init__(
        self,
        *,
        retention: Retention,
        claims: ClaimLog,
        rollups: Rollups,
        actions: ActionLog,
        jobs: Jobs,
        policy: RetentionPolicy,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._retention = retention
        self._claims = claims
        self._rollups = rollups
        self._actions = actions
        self._jobs = jobs
        self._policy = policy
        self._monotonic = monotonic

    @property
    def begins_at(self) -> datetime | None:
        """When maintenance begins to remove; None: it was not shown yet what goes."""
        shown_at = self._retention.shown_at()
        return None if shown_at is None else shown_at + NOTICE

    def show(self) -> RetentionReport:
        """Return what would be removed now, and store that it was shown."""
        report = self.preview()
        self._retention.note_shown()
        return report

    def preview(self) -> RetentionReport:
        """Return what would be removed now."""
        report = RetentionReport()
        removed = report.removed
        removed["fires"] = sum(
            self._retention.count_fires(schedule, age=self._policy.imports)
            for schedule in self._retention.schedules()
        )
        expiry = self._expiry()
        imports = [*self._expired_imports(expiry, report)]
        # the pages of imports that stay
        paged = [*self.paged_imports(expiry)]
        size = self._retention.measure(imports)
        removed["imports"], removed["jobs"] = len(imports), size.jobs
        removed["pages"] = size.pages + self._retention.measure(paged).pages
        removed["changes"] = sum(
            self._retention.count_changes(dataset, age=self._policy.changes)
            for dataset in self._retention.datasets()
        )
        removed["bad_rows"] = self._retention.count_bad_rows(
            age=self._policy.quarantine
        )
        removed["claims"] = self._retention.count_claims(age=self._policy.pages)
        removed["rollups"] = self._rollups.count_expired(age=self._policy.rollups)
        removed["actions"] = self._actions.count_old(age=self._policy.imports)
        return report

    def __call__(self) -> RetentionReport:
        """Remove everything that may go; return what it was."""
        report = RetentionReport()
        for kind, count in self._remove(report):
            report.removed[kind] += count
        return report

    def run_shift(self) -> timedelta | None:
        """Remove for a few seconds; return when to continue, if there is more.

        Nothing is removed before it was shown, and time to change the settings given.
        """
        begins_at = self.begins_at
        if begins_at is None or self._jobs.now() < begins_at:
            return None
        end = self._monotonic() + SHIFT.total_seconds()
        for _, count in self._remove(RetentionReport()):
            # a shift that has removed nothing would be repeated for ever
            if count and self._monotonic() > end:
                return BREAK
        return None

    def _remove(self, report: RetentionReport) -> Iterator[tuple[str, int]]:
        """Remove batch by batch; yield what each contained."""
        for schedule in self._retention.schedules():
            remove = partial(
                self._retention.remove_fires, schedule, age=self._policy.imports
            )
            yield from (("fires", count) for count in batches(remove))
        for dataset in self._retention.datasets():
            remove = partial(
                self._retention.remove_changes, dataset, age=self._policy.changes
            )
            yield from (("changes", count) for count in changes_of(remove))
        # before their imports, which stay as long as they have any
        for count in self._retention.remove_bad_rows(age=self._policy.quarantine):
            yield "bad_rows", count
        forget = partial(self._claims.forget, ended=self._policy.pages)
        yield from (("claims", count) for count in batches(forget))
        forget = partial(self._rollups.forget, age=self._policy.rollups)
        yield from (("rollups", count) for count in batches(forget))
        forget = partial(self._actions.forget, age=self._policy.imports)
        yield from (("actions", count) for count in batches(forget))
        for import_id in self._expired_imports(self._expiry(), report):
            yield from self._retention.remove_import(import_id)
        for import_id in self.paged_imports():
            for count in self._retention.remove_pages(import_id):
                yield "pages", count

    def _expiry(self) -> Expiry:
        last_fires = {
            import_id
            for schedule in self._retention.schedules()
            for import_id in self._retention.last_fires(schedule)
        }
        # asked once for each dataset: it reads all rows
        named_by_rows = cache(self._retention.imports_of_rows)
        return Expiry(last_fires=last_fires, named_by_rows=named_by_rows)

    def _expired_imports(
        self, expiry: Expiry, report: RetentionReport
    ) -> Iterator[ImportId]:
        """Yield the imports to remove, and count why others stay."""
        for found in self._ended_imports(self._policy.imports, with_pages=False):
            reason = expiry.judge(found)
            if reason is None:
                yield found.id
            else:
                report.stays[reason] += 1

    def paged_imports(self, expiry: Expiry | None = None) -> Iterator[ImportId]:
        """Yield the imports that stay, and whose pages may be removed."""
        for found in self._ended_imports(self._policy.pages, with_pages=True):
            current = found if expiry is None else expiry.without_expired(found)
            is_expired = expiry is not None and found.id in expiry.expired
            if can_remove_pages(current) and not is_expired:
                yield found.id

    def _ended_imports(
        self, age: timedelta, *, with_pages: bool
    ) -> Iterator[EndedImport]:
        before = None
        while batch := self._retention.ended_imports(
            age=age,
            bad_rows=self._policy.quarantine,
            with_pages=with_pages,
            before=before,
            limit=IMPORT_BATCH,
        ):
            yield from batch
            before = EndPosition(batch[-1].finished_at, batch[-1].id)


def batches(remove: Callable[..., int]) -> Iterator[int]:
    """Repeat a removal until less than a whole batch is left."""
    count = REMOVAL_BATCH
    while count == REMOVAL_BATCH:
        count = remove(most=REMOVAL_BATCH)
        yield count


def changes_of(remove: Callable[..., int]) -> Iterator[int]:
    """Repeat a removal of changes, of which a database may store many in one row."""
    while count := remove(most=CHANGE_BATCH):
        yield count
