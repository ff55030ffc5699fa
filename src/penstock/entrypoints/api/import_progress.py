"""The progress of imports: what is done, the rates, and the time left."""

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from penstock.domain.formats import format_instant
from penstock.domain.jobs import Import, ImportId, Shards
from penstock.domain.progress import PACE_WINDOW, Clock, RateMeter, estimate_time_left
from penstock.domain.source import CsvSource
from penstock.entrypoints.file_progress import FileProgress
from penstock.entrypoints.import_report import report
from penstock.wiring import Container

# imports whose last samples are kept
MAX_IMPORTS = 100


class ProgressTracker:
    """Keeps samples of imports between requests, from which rates are computed."""

    def __init__(self, penstock: Container) -> None:
        self._penstock = penstock
        self._progress: OrderedDict[ImportId, ImportProgress] = OrderedDict()
        self._lock = threading.Lock()

    def document_with_progress(self, import_id: ImportId) -> Mapping[str, Any]:
        """Return an import as a response document, with its progress."""
        stores = self._penstock.stores
        found, shards = stores.imports.get(import_id)
        tracked = self._progress_of(found)
        # timestamps of imports are by the database's clock
        now = stores.jobs.now() if found.finished_at is None else found.finished_at
        progress = tracked.sample(found, shards, now)
        return {**self.document(found, shards), "progress": progress}

    def document(self, import_: Import, shards: Shards) -> dict[str, Any]:
        """Return an import as `penstock imports --json` prints it."""
        redact = self._penstock.settings.redact
        note = None if import_.note is None else redact(import_.note)
        document = report(import_, shards, self._penstock.explain_waiting(import_))
        waiting = document["waiting"]
        if isinstance(waiting, dict):
            detail = redact(waiting["detail"])
            document["waiting"] = {**with_text_times(waiting), "detail": detail}
        return {**with_text_times(document), "note": note}

    def _progress_of(self, import_: Import) -> "ImportProgress":
        with self._lock:
            progress = self._progress.get(import_.id)
            if progress is None:
                progress = self._progress[import_.id] = self._new(import_)
            self._progress.move_to_end(import_.id)
            if len(self._progress) > MAX_IMPORTS:
                self._progress.popitem(last=False)
            return progress

    def _new(self, import_: Import) -> "ImportProgress":
        # the dataset may have been removed from the settings since
        dataset = self._penstock.settings.datasets.get(import_.dataset)
        is_file = dataset is not None and isinstance(dataset.source, CsvSource)
        jobs = self._penstock.stores.jobs
        return ImportProgress(FileProgress(jobs, import_.id) if is_file else None)


class ImportProgress:
    """One import: in shards and requests, or in bytes if it reads files."""

    def __init__(
        self, files: FileProgress | None, clock: Clock = time.monotonic
    ) -> None:
        self._files = files
        self._pace = RateMeter(over=PACE_WINDOW, clock=clock)
        self._rows = RateMeter(over=PACE_WINDOW, clock=clock)
        self._lock = threading.Lock()

    def sample(
        self, import_: Import, shards: Shards, now: datetime
    ) -> Mapping[str, Any]:
        with self._lock:
            return self._sample(import_, shards, now)

    def _sample(
        self, import_: Import, shards: Shards, now: datetime
    ) -> Mapping[str, Any]:
        is_over = import_.finished_at is not None
        seconds = (now - import_.created_at).total_seconds()
        rows = rate(self._rows, import_.counts.seen, seconds, is_over=is_over)
        if self._files is None:
            unit, done, total = "shards", shards.total - shards.open, shards.total
            pace = rate(self._pace, import_.counts.requests, seconds, is_over=is_over)
            left = estimate_time_left(import_, shards, pace)
        else:
            unit, (done, total) = "bytes", self._files.read()
            pace = rate(self._pace, done, seconds, is_over=is_over)
            left = timedelta(seconds=round((total - done) / pace)) if pace else None
        return {
            "unit": unit,
            "done": done,
            "total": total,
            "share": round(done / total, 4) if total else 0.0,
            "rows_per_second": round(rows, 1),
            "requests_per_second": None if self._files else round(pace, 2),
            "bytes_per_second": round(pace) if self._files else None,
            "seconds_left": None
            if left is None or is_over
            else int(left.total_seconds()),
        }


def with_text_times(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: format_instant(value) if isinstance(value, datetime) else value
        for name, value in document.items()
    }


def rate(meter: RateMeter, done: int, seconds: float, *, is_over: bool) -> float:
    """Return the recent rate; the average if it is not measured, or at the end."""
    recent = meter.after(done)
    if meter.is_measured and not is_over:
        return recent
    return done / seconds if seconds > 0 else 0.0
