"""Events as lines of a log."""

import io
import json
from datetime import timedelta

import pytest

from penstock.adapters.telemetry.log import log_events
from penstock.domain.events import (
    Event,
    FileSurveyed,
    ImportFinished,
    JobFailed,
    JobFields,
    JobPostponed,
    PageCommitted,
    WorkerStopped,
)
from penstock.domain.jobs import ImportId, ImportStatus, JobId, WorkerId
from penstock.domain.pages import Counts

JOB = JobFields(
    job=JobId(7), import_id=ImportId(3), dataset="poi", worker=WorkerId("host:1")
)


def test_a_list_is_reported_as_a_list_without_secrets():
    out = io.StringIO()
    emit = log_events(
        redact=lambda text: text.replace("s3cr3t", "${KEY}"), as_json=True, stream=out
    )

    emit(
        FileSurveyed(
            dataset="shops",
            file="a.csv",
            size=9,
            shards=1,
            warnings=("delimiter ';' is a guess", "column 's3cr3t' is not declared"),
        )
    )

    body = json.loads(out.getvalue())
    assert body["event"] == "file_surveyed"
    assert body["warnings"] == [
        "delimiter ';' is a guess",
        "column '${KEY}' is not declared",
    ]


def finished(status: ImportStatus) -> ImportFinished:
    return ImportFinished(
        import_id=ImportId(3),
        dataset="poi",
        status=status,
        proven=False,
        counts=Counts(),
        note=None,
    )


def postponed(code: str) -> JobPostponed:
    return JobPostponed(
        **JOB,
        shard="*",
        code=code,
        message="later",
        delay=timedelta(),
        attempts=0,
        snoozes=1,
    )


DEAD_LETTER = JobFailed(**JOB, shard="*", code="rejected", message="no")
PAGE = PageCommitted(**JOB, page=1, counts=Counts(seen=2))


def written(event: Event, *, verbose: bool = False) -> list[dict[str, object]]:
    out = io.StringIO()
    log_events(redact=str, as_json=True, verbose=verbose, stream=out)(event)
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (finished(ImportStatus.DONE), "info"),
        (finished(ImportStatus.FAILED), "error"),
        (DEAD_LETTER, "warning"),
        (postponed("budget"), "info"),
        (postponed("source_unavailable"), "warning"),
        (WorkerStopped(worker=WorkerId("host:1"), jobs=2), "info"),
    ],
)
def test_the_level_of_a_line_is_that_of_its_event(event: Event, level: str):
    assert [line["level"] for line in written(event)] == [level]


def test_frequent_events_are_logged_only_if_verbose():
    assert written(PAGE) == []
    assert [line["level"] for line in written(PAGE, verbose=True)] == ["debug"]


@pytest.mark.parametrize("event", [DEAD_LETTER, PAGE, postponed("budget")])
def test_a_line_of_a_job_has_all_ids(event: Event):
    (line,) = written(event, verbose=True)

    assert {name: line[name] for name in JOB} == dict(JOB)
