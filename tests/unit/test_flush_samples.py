"""What a process counts, and when it flushes that."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise

import pytest
from typing_extensions import override

from penstock.adapters.telemetry.samples import SampleCollector
from penstock.domain.events import (
    BudgetWasClosed,
    Event,
    ImportFinished,
    JobFields,
    JobPostponed,
    PageCommitted,
    TokenTaken,
    UpstreamResponded,
)
from penstock.domain.jobs import ImportId, ImportStatus, JobId
from penstock.domain.pages import Counts
from penstock.domain.rollups import (
    LATENCY_BOUNDS,
    LATENCY_SERIES,
    SERIES,
    Sample,
    SubjectKind,
    last_window,
    latency_quantile,
    window_of,
)
from penstock.errors import StoreUnavailable
from penstock.flow.flush_samples import FLUSH_INTERVAL, RETRY_TIME, FlushSamples
from penstock.ports.rollups import Rollups
from tests.support.builders import ANN, HOUR, MINUTE, NOON, SECOND

JOB = JobFields(job=JobId(1), import_id=ImportId(1), dataset="poi", worker=ANN)
MILLISECOND = timedelta(milliseconds=1)
EVENTS: Sequence[Event] = [
    UpstreamResponded(dataset="poi", status=200, took=20 * MILLISECOND),
    UpstreamResponded(dataset="poi", status=429, took=80 * MILLISECOND),
    UpstreamResponded(dataset="poi", status=None, took=90 * SECOND),
    TokenTaken(**JOB, budget="ocm", waited=SECOND),
    TokenTaken(**JOB, budget="ocm", waited=timedelta()),
    BudgetWasClosed(**JOB, budget="ocm", wait=MINUTE, reason="429"),
    PageCommitted(
        **JOB, page=1, counts=Counts(pages=1, requests=3, seen=7, inserted=5, dropped=2)
    ),
    JobPostponed(
        **JOB, shard="a", code="budget", message="", delay=MINUTE, attempts=0, snoozes=1
    ),
    JobPostponed(
        **JOB, shard="a", code="timeout", message="", delay=MINUTE, attempts=1,
        snoozes=0,
    ),
    ImportFinished(
        import_id=ImportId(1), dataset="poi", status=ImportStatus.DONE, proven=True,
        counts=Counts(pages=1, seen=7, inserted=5, deleted=4), note=None,
    ),
]  # fmt: skip


def test_events_are_added_up():
    collector = SampleCollector()
    for event in EVENTS:
        collector(event)

    found = {(each.subject.name, each.series): each.value for each in collector.take()}

    assert found == {
        ("poi", "requests_2xx"): 1,
        ("poi", "requests_4xx"): 1,
        ("poi", "requests_none"): 1,
        ("poi", "latency_25ms"): 1,
        ("poi", "latency_100ms"): 1,
        ("poi", "latency_slower"): 1,
        ("poi", "latency_us"): 90_100_000,
        ("poi", "throttled"): 1,
        ("poi", "retried"): 1,
        ("poi", "pages"): 1,
        ("poi", "seen"): 7,
        ("poi", "inserted"): 5,
        ("poi", "dropped"): 2,
        ("poi", "deleted"): 4,
        ("ocm", "tokens"): 2,
        ("ocm", "waited_us"): 1_000_000,
        ("ocm", "closures"): 1,
    }
    assert collector.take() == []


def test_all_series_that_are_collected_can_be_read():
    collector = SampleCollector()
    for event in EVENTS:
        collector(event)

    assert all(
        sample.series in SERIES[sample.subject.kind] for sample in collector.take()
    )


class FlushedSamples(Rollups):
    """Remembers flushes; the database may be away before or after the commit."""

    def __init__(self) -> None:
        self.stored: dict[int, Sequence[Sample]] = {}
        self.is_away = False
        self.loses_answers = False

    @override
    def flush(self, process, number, samples):
        if self.is_away:
            raise StoreUnavailable("away")
        self.stored.setdefault(number, samples)
        if self.loses_answers:
            raise StoreUnavailable("the connection was lost")

    @override
    def fold(self, *, finished, most):
        raise NotImplementedError

    @override
    def merge_hours(self, *, age, most):
        raise NotImplementedError

    @override
    def read(self, subject, window):
        raise NotImplementedError

    @override
    def count_expired(self, *, age):
        raise NotImplementedError

    @override
    def forget(self, *, age, most):
        raise NotImplementedError

    @property
    def requests(self) -> int:
        return sum(
            sample.value
            for samples in self.stored.values()
            for sample in samples
            if sample.series.startswith("requests_")
        )


class Process:
    """A process with a clock of its own."""

    def __init__(self) -> None:
        self.database = FlushedSamples()
        self.collector = SampleCollector()
        self.seconds = 0.0
        self.flush = FlushSamples(
            self.collector.take,
            self.database,
            process="a",
            monotonic=lambda: self.seconds,
        )

    def request(self) -> None:
        self.collector(UpstreamResponded(dataset="poi", status=200, took=SECOND))

    def wait(self, span: timedelta) -> None:
        self.seconds += span.total_seconds()
        self.flush.if_due()


@pytest.fixture
def process() -> Process:
    return Process()


def test_a_process_flushes_every_ten_seconds(process: Process):
    process.flush.if_due()
    for _ in range(60):
        process.request()
        process.wait(SECOND)

    # a killed process has counted nothing of its last ten seconds
    assert FLUSH_INTERVAL == 10 * SECOND
    assert process.database.requests == 60
    assert [len(samples) > 0 for samples in process.database.stored.values()] == [
        True
    ] * 6
    process.request()
    process.wait(9 * SECOND)
    assert process.database.requests == 60
    process.flush()
    assert process.database.requests == 61


def test_nothing_is_flushed_if_nothing_happened(process: Process):
    process.wait(MINUTE)
    process.flush()

    assert process.database.stored == {}


def test_a_flush_whose_end_is_unknown_counts_once(process: Process):
    process.request()
    process.database.loses_answers = True
    process.flush()
    process.request()
    process.database.loses_answers = False

    process.wait(FLUSH_INTERVAL)

    assert process.database.requests == 2


def test_while_the_database_is_away_only_the_first_flush_may_be_lost(process: Process):
    process.flush.if_due()
    process.database.is_away = True
    for _ in range(30):
        process.request()
        process.wait(FLUSH_INTERVAL)
    process.database.is_away = False

    process.wait(FLUSH_INTERVAL)

    # the first might have been stored, and folded since
    assert 30 * FLUSH_INTERVAL > RETRY_TIME
    assert process.database.requests == 29


def test_a_short_outage_loses_nothing(process: Process):
    process.flush.if_due()
    process.database.is_away = True
    for _ in range(4):
        process.request()
        process.wait(FLUSH_INTERVAL)
    process.database.is_away = False

    process.wait(FLUSH_INTERVAL)

    assert process.database.requests == 4


def test_a_window_has_whole_minutes_and_at_most_a_bucket_for_each():
    window = window_of(NOON + SECOND, NOON + 10 * MINUTE + SECOND, buckets=60)

    assert (window.since, window.until) == (NOON, NOON + 11 * MINUTE)
    assert window.buckets == 11
    assert window.bucket_length == MINUTE
    assert window_of(NOON, NOON, buckets=9).until == NOON + MINUTE


def test_the_last_bucket_of_a_window_may_be_shorter():
    window = window_of(NOON, NOON + 61 * MINUTE, buckets=60)

    assert (window.bucket_length, window.buckets) == (2 * MINUTE, 31)
    assert window.until == NOON + 61 * MINUTE


def test_the_last_hour_has_sixty_minutes_with_the_current_one():
    window = last_window(NOON + SECOND, HOUR, buckets=60)

    assert (window.buckets, window.until) == (60, NOON + MINUTE)


def test_quantiles_are_estimated_from_the_histogram():
    series = {name: [0, 0, 0] for name in LATENCY_SERIES}
    series["latency_100ms"] = [100, 0, 0]
    series["latency_slower"] = [0, 0, 3]

    assert latency_quantile(series, 0, 0.5) == 75 * MILLISECOND
    assert latency_quantile(series, 0, 1) == 100 * MILLISECOND
    assert latency_quantile(series, 1, 0.5) is None
    assert latency_quantile(series, 2, 0.5) == LATENCY_BOUNDS[-1] * MILLISECOND


def test_the_bounds_of_the_histogram_rise():
    assert all(lower < upper for lower, upper in pairwise(LATENCY_BOUNDS))
    assert len(LATENCY_SERIES) == len(LATENCY_BOUNDS) + 1
    assert {*LATENCY_SERIES} <= {*SERIES[SubjectKind.DATASET]}
