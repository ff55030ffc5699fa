"""A malformed request costs no lane, no thread and no trip to Redis."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from penstock.domain.client_rate import ClientRate
from penstock.entrypoints.api.app import all_endpoints, build_api
from penstock.entrypoints.api.concurrency.lanes import Lanes
from penstock.entrypoints.api.endpoints import ignore_params
from penstock.entrypoints.api.resources.swagger_ui import parse_page
from penstock.entrypoints.dashboard.pages.explore import parse_explore
from penstock.errors import BadRequest
from penstock.ports.rate_limits import RequestBatch, SharedRateLimiter
from penstock.ports.response_cache import SharedCache
from tests.support.api_client import OF, Client
from tests.support.api_server import Running, listening, running_api

PARTS = {
    "dataset": "poi",
    "key:key": "1",
    "import": "1",
    "job": "1",
    "name": "practice",
    # there are none of these
    "code": "no-such",
    "file": "no-such",
}
PLACES = """
[datasets.places]
key = "id"
filter = ["points"]
search = ["title"]
source = { type = "csv", files = "places-*.csv" }

[datasets.places.fields]
id = { column = "id", type = "int" }
title = { column = "title" }
points = { column = "points", type = "int" }
"""
MALFORMED = (
    *("poi/records?limit=0", "poi/records?limit=201", "poi/records?fields=no"),
    *("poi/records?sort=no", "poi/records?title=eq.x", "poi/records?cursor=abc"),
    *("poi/records?%63ursor=abc", "poi/records/x", "poi/records/1?fields=no"),
    *("poi/search?q=!!", "poi/search?near=1", "poi/search", "poi/suggest?q="),
    *("places/search?q=tea&cursor=abc", "places/search?q=tea&limit=0"),
    *("places/suggest?q=tea&limit=99", "places/facets?by=no", "places/facets?q=%00"),
    *("poi/facets?by=no", "poi/changes?after=x", "poi/changes?wait=99"),
    *("poi/changes?limit=0", "poi/changes?wait=30&wait=30", "poi?a=b"),
)


@dataclass
class CountingRedis(SharedCache, SharedRateLimiter):
    """Grants everything, stores nothing, and counts its calls."""

    calls: list[str] = field(default_factory=list)

    def find(self, name: str) -> tuple[bytes, float] | None:
        self.calls.append(f"find {name}")
        return None

    def store(self, name: str, value: bytes, *, seconds: float) -> None:
        del value, seconds
        self.calls.append(f"store {name}")

    def take(self, client: str, rate: ClientRate, *, most: int) -> RequestBatch:
        self.calls.append(f"take {client}")
        return RequestBatch(granted=most, left=rate.burst, wait=0.0)

    def failure(self) -> str | None:
        return None


@pytest.fixture(scope="module")
def searchable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("admission")
    database = 'database = "sqlite:///penstock.db"'
    with running_api(folder, database, more=PLACES) as running:
        yield running


@contextmanager
def exhausted(running: Running) -> Iterator[tuple[Client, CountingRedis]]:
    """Serve with a lane that admits no request, and count the calls of Redis."""
    redis = CountingRedis()
    known = running.api
    api = build_api(known.penstock, known.served, threads=1, shared=redis, rates=redis)
    with listening(api) as url:
        # whoever needs a thread, or waits for changes, is refused
        api.lanes.close()
        api.lanes = Lanes(1, max_feeds=0)
        api.lanes.close()
        yield Client(url), redis


def test_what_is_malformed_takes_no_thread_and_no_trip(searchable: Running):
    token = searchable.api.records.cursor_signer.write_number("poi", 10**9)
    with exhausted(searchable) as (client, redis):
        for target in MALFORMED:
            for headers in ({}, {"X-Consistency-Token": token}):
                response = client.ask("GET", f"{OF}/{target}", headers=headers)
                assert response.status == 400, (target, response.body)
                assert "ratelimit" in response.headers
        for target in ("imports", "jobs"):
            for query in ("limit=0", "status=no", "limit=1&limit=1", "no=1"):
                assert client.get(f"/api/v1/{target}?{query}").status == 400
            for path in ("0", "x", f"{2**63}"):
                assert client.get(f"/api/v1/{target}/{path}").status == 404

        assert redis.calls == []

        # and what is well-formed does take them
        assert client.get(f"{OF}/poi/records").status >= 500
        assert client.get(f"{OF}/poi/changes").status == 503
        assert redis.calls


def test_every_endpoint_parses_before_it_runs(searchable: Running):
    with exhausted(searchable) as (client, redis):
        for endpoint in all_endpoints():
            # the last one shows beside its form what is wrong with it
            if endpoint.parse in {ignore_params, parse_page, parse_explore}:
                continue
            target = endpoint.path
            for name, value in PARTS.items():
                target = target.replace("{" + name + "}", value)
            response = client.ask(endpoint.method, f"{target}?nonsense=1")
            is_page = target.endswith("no-such")
            assert response.status == (404 if is_page else 400), target
            if "{dataset}" in endpoint.path:
                elsewhere = target.replace("/poi", "/nowhere")
                assert client.ask(endpoint.method, elsewhere).status == 404, target

        assert client.get("/nowhere").status == 404
        assert client.ask("PUT", f"{OF}/poi/records").status == 405
        assert client.ask("POST", "/api/v1/budgets/no/open").status == 404
        start = {"Content-Type": "application/json", "Idempotency-Key": "a b"}
        assert client.ask("POST", f"{OF}/poi/imports", headers=start).status == 400
        assert redis.calls == []


def test_a_cursor_is_verified_later_until_the_signer_is_loaded(searchable: Running):
    known = searchable.api
    records = build_api(known.penstock, known.served, threads=1).records
    dataset = known.dataset("poi")

    assert records.loaded_signer is None
    assert records.parse(dataset, [("cursor", "abc")]).cursor == "abc"
    with pytest.raises(BadRequest):
        known.records.parse(dataset, [("cursor", "abc")])
