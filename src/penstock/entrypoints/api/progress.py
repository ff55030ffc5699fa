"""How far an import is, how fast it goes on, and how long it will still take."""

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from penstock.domain.job import Import, ImportId, Shards
from penstock.domain.progress import PACE_OVER, Clock, Speed, time_left
from penstock.domain.source import CsvSource
from penstock.domain.text import format_instant
from penstock.entrypoints.extent import Extent
from penstock.entrypoints.reports import report
from penstock.wiring import Penstock

# imports whose last looks are remembered
MOST_GAUGES = 100


class Gauges:
    """Looks at imports; what one look found makes the next tell the pace."""

    def __init__(self, penstock: Penstock) -> None:
        self._penstock = penstock
        self._gauges: OrderedDict[ImportId, Gauge] = OrderedDict()
        self._lock = threading.Lock()

    def look(self, import_id: ImportId) -> Mapping[str, Any]:
        """Return an import as it is told, with its progress."""
        stores = self._penstock.stores
        known, shards = stores.imports.get(import_id)
        gauge = self._gauge(known)
        # only the database's own clock knows how long an import runs
        now = stores.jobs.now() if known.finished_at is None else known.finished_at
        progress = gauge.read(known, shards, now)
        return {**self.told(known, shards), "progress": progress}

    def told(self, known: Import, shards: Shards) -> dict[str, Any]:
        """Return an import as `penstock imports --json` tells it."""
        redact = self._penstock.settings.redact
        note = None if known.note is None else redact(known.note)
        document = report(known, shards, self._penstock.explain_waiting(known))
        waiting = document["waiting"]
        if isinstance(waiting, dict):
            detail = redact(waiting["detail"])
            document["waiting"] = {**with_text_times(waiting), "detail": detail}
        return {**with_text_times(document), "note": note}

    def _gauge(self, known: Import) -> "Gauge":
        with self._lock:
            gauge = self._gauges.get(known.id)
            if gauge is None:
                gauge = self._gauges[known.id] = self._new(known)
            self._gauges.move_to_end(known.id)
            if len(self._gauges) > MOST_GAUGES:
                self._gauges.popitem(last=False)
            return gauge

    def _new(self, known: Import) -> "Gauge":
        # perhaps it was declared only when it was imported
        dataset = self._penstock.settings.datasets.get(known.dataset)
        is_file = dataset is not None and isinstance(dataset.source, CsvSource)
        jobs = self._penstock.stores.jobs
        return Gauge(Extent(jobs, known.id) if is_file else None)


class Gauge:
    """One import: in shards and requests, or in bytes where it reads files."""

    def __init__(self, extent: Extent | None, clock: Clock = time.monotonic) -> None:
        self._extent = extent
        self._pace = Speed(over=PACE_OVER, clock=clock)
        self._rows = Speed(over=PACE_OVER, clock=clock)
        self._lock = threading.Lock()

    def read(self, known: Import, shards: Shards, now: datetime) -> Mapping[str, Any]:
        with self._lock:
            return self._read(known, shards, now)

    def _read(self, known: Import, shards: Shards, now: datetime) -> Mapping[str, Any]:
        is_over = known.finished_at is not None
        seconds = (now - known.created_at).total_seconds()
        rows = speed(self._rows, known.counts.seen, seconds, is_over=is_over)
        if self._extent is None:
            unit, done, total = "shards", shards.total - shards.open, shards.total
            asked = known.counts.requests
            pace = speed(self._pace, asked, seconds, is_over=is_over)
            left = time_left(known, shards, pace)
        else:
            unit, (done, total) = "bytes", self._extent.look()
            pace = speed(self._pace, done, seconds, is_over=is_over)
            left = timedelta(seconds=round((total - done) / pace)) if pace else None
        return {
            "unit": unit,
            "done": done,
            "total": total,
            "share": round(done / total, 4) if total else 0.0,
            "rows_per_second": round(rows, 1),
            "requests_per_second": None if self._extent else round(pace, 2),
            "bytes_per_second": round(pace) if self._extent else None,
            "seconds_left": None
            if left is None or is_over
            else int(left.total_seconds()),
        }


def with_text_times(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: format_instant(value) if isinstance(value, datetime) else value
        for name, value in document.items()
    }


def speed(measured: Speed, done: int, seconds: float, *, is_over: bool) -> float:
    """Return the pace of late; where it is not known, or all is over, the average."""
    lately = measured.after(done)
    if measured.is_measured and not is_over:
        return lately
    return done / seconds if seconds > 0 else 0.0
