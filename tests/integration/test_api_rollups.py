"""Clients read what happened per minute."""

from datetime import timedelta

import pytest

from penstock.domain.formats import format_instant
from penstock.domain.rollups import SERIES, Sample, Subject, SubjectKind
from tests.support.api_server import Running
from tests.support.builders import MINUTE

ROLLUPS = "/api/v1/rollups"
POI = Subject(SubjectKind.DATASET, "poi")
PRACTICE = Subject(SubjectKind.BUDGET, "practice")


@pytest.fixture
def flushed(running: Running) -> Running:
    running.stores.rollups.flush(
        "a",
        1,
        [
            Sample(POI, "requests_2xx", 3),
            Sample(POI, "latency_100ms", 3),
            Sample(POI, "inserted", 40),
            Sample(PRACTICE, "tokens", 3),
        ],
    )
    return running


def test_the_last_hour_of_a_dataset_is_read(flushed: Running):
    document = flushed.client.get(ROLLUPS, {"dataset": "poi"}).json

    series, latency = document["series"], document["latency_seconds"]
    assert (document["dataset"], document["budget"]) == ("poi", None)
    assert {*series} == {*SERIES[SubjectKind.DATASET]}
    assert document["bucket_seconds"] == 60
    assert {len(values) for values in (*series.values(), *latency.values())} == {60}
    assert (sum(series["requests_2xx"]), sum(series["inserted"])) == (3, 40)
    assert [value for value in latency["p50"] if value is not None] == [0.075]
    assert [value for value in latency["p95"] if value is not None] == [0.0975]


def test_a_budget_has_its_tokens(flushed: Running):
    document = flushed.client.get(ROLLUPS, {"budget": "practice", "buckets": 1}).json

    assert (document["dataset"], document["budget"]) == (None, "practice")
    assert document["series"] == {"tokens": [3], "waited_us": [0], "closures": [0]}
    assert document["latency_seconds"] == {}


def test_a_time_is_read_in_buckets(flushed: Running):
    now = flushed.stores.jobs.now()
    before = {
        "dataset": "poi",
        "from": format_instant(now - timedelta(days=2)),
        "until": format_instant(now - timedelta(days=1)),
        "buckets": 4,
    }
    since = {**before, "until": format_instant(now + 2 * MINUTE), "buckets": 2}

    assert flushed.client.get(ROLLUPS, before).json["series"]["inserted"] == [0] * 4
    assert flushed.client.get(ROLLUPS, since).json["series"]["inserted"] == [0, 40]


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"dataset": "poi", "budget": "practice"},
        {"dataset": "poi", "buckets": 501},
        {"dataset": "poi", "from": "yesterday"},
        {"dataset": "poi", "from": "9999-01-01T00:00:00Z"},
        {"dataset": "poi", "from": "2300-01-01T00:00:00Z"},
        {"dataset": "poi", "from": "2000-01-01T00:00:00Z"},
        {
            "dataset": "poi",
            "from": "2026-02-01T00:00:00Z",
            "until": "2026-01-01T00:00:00Z",
        },
        {"dataset": "poi", "step": "1m"},
    ],
)
def test_what_cannot_be_read_is_refused(running: Running, query):
    assert running.client.get(ROLLUPS, query).status == 400


@pytest.mark.parametrize("query", [{"dataset": "poy"}, {"budget": "poi"}])
def test_a_name_that_is_not_declared_is_not_found(running: Running, query):
    assert running.client.get(ROLLUPS, query).status == 404
