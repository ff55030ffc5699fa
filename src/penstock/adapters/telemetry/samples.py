"""Add up events until they are flushed to the database."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.domain.events import (
    BudgetWasClosed,
    Event,
    ImportFinished,
    JobPostponed,
    PageCommitted,
    TokenTaken,
    UpstreamResponded,
)
from penstock.domain.formats import MICROSECOND
from penstock.domain.rollups import (
    RECORD_SERIES,
    Sample,
    Subject,
    SubjectKind,
    latency_series,
    request_series,
)

TOO_MANY_REQUESTS = 429
# put back without an error: its budget is used up
WAITS_FOR_BUDGET = "budget"


class SampleCollector:
    """A listener that adds up; its memory is bounded by the declared names."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: Counter[tuple[Subject, str]] = Counter()
        self._listeners: Mapping[type[Event], Callable[[Any], None]] = {
            BudgetWasClosed: self._count_closure,
            ImportFinished: self._count_finished,
            JobPostponed: self._count_postponed,
            PageCommitted: self._count_page,
            TokenTaken: self._count_token,
            UpstreamResponded: self._count_response,
        }

    def __call__(self, event: Event) -> None:
        listener = self._listeners.get(type(event))
        if listener is not None:
            with self._lock:
                listener(event)

    def take(self) -> Sequence[Sample]:
        """Return the sums since the last call."""
        with self._lock:
            sums, self._sums = self._sums, Counter()
        return [
            Sample(subject, series, value)
            for (subject, series), value in sums.items()
            if value
        ]

    def _count_response(self, event: UpstreamResponded) -> None:
        subject = Subject(SubjectKind.DATASET, event.dataset)
        self._sums[subject, request_series(event.status)] += 1
        self._sums[subject, latency_series(event.took)] += 1
        self._sums[subject, "latency_us"] += event.took // MICROSECOND
        if event.status == TOO_MANY_REQUESTS:
            self._sums[subject, "throttled"] += 1

    def _count_postponed(self, event: JobPostponed) -> None:
        if event.code != WAITS_FOR_BUDGET:
            self._sums[Subject(SubjectKind.DATASET, event.dataset), "retried"] += 1

    def _count_page(self, event: PageCommitted) -> None:
        subject = Subject(SubjectKind.DATASET, event.dataset)
        self._sums[subject, "pages"] += 1
        for series in RECORD_SERIES:
            self._sums[subject, series] += getattr(event.counts, series)

    def _count_finished(self, event: ImportFinished) -> None:
        # all other counts are those of its pages
        subject = Subject(SubjectKind.DATASET, event.dataset)
        self._sums[subject, "deleted"] += event.counts.deleted

    def _count_token(self, event: TokenTaken) -> None:
        subject = Subject(SubjectKind.BUDGET, event.budget)
        self._sums[subject, "tokens"] += 1
        self._sums[subject, "waited_us"] += event.waited // MICROSECOND

    def _count_closure(self, event: BudgetWasClosed) -> None:
        self._sums[Subject(SubjectKind.BUDGET, event.budget), "closures"] += 1
