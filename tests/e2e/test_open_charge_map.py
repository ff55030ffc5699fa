"""The example of Open Charge Map, run as it is, but for the address it asks."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.evidence import mapped, text
from tests.support.workshop import COLUMNS, KEY, Workshop

EXAMPLE = Path(__file__).parents[2] / "examples" / "open-charge-map" / "penstock.toml"
ADDRESS = "https://api.openchargemap.io"
GERMANY, FRANCE = 87, 80


@pytest.fixture
def example(open_workshop) -> Workshop:
    """Lay the example before a provider in the shape of the real one."""
    workshop: Workshop = open_workshop(records=6000, duplicates=0.1)
    result = EXAMPLE.read_text("utf-8")
    assert result.count(ADDRESS) == 1
    workshop.config.write_text(result.replace(ADDRESS, workshop.sandbox.base_url))
    workshop.environ["OCM_API_KEY"] = KEY
    return workshop


def wanted(workshop: Workshop) -> dict[int, dict[str, Any]]:
    """Return the points of both countries as they have to be stored."""
    points = workshop.sandbox.expected().values()
    return {
        point["ID"]: mapped(point) | {"address": text(address.get("AddressLine1"))}
        for point in points
        if (address := point["AddressInfo"])["CountryID"] in {GERMANY, FRANCE}
    }


def stored(workshop: Workshop) -> dict[int, dict[str, Any]]:
    live = workshop.ask(
        f"select {', '.join(COLUMNS)}, address from poi where _deleted_at is null"
    )
    return {
        row["id"]: row | {"updated_at": workshop.store.instant(row["updated_at"])}
        for row in live
    }


def test_the_example_is_looked_at_before_anything_is_sent(example):
    checked = example.penstock("check")
    shown = example.penstock("plan", "poi", "--dry-run")

    assert (checked.code, shown.code) == (0, 0)
    for country in (GERMANY, FRANCE):
        assert f"countryid={country}" in shown.out
    assert example.sandbox.requests == []


def test_the_example_brings_every_point_of_its_countries_and_proves_it(example):
    ran = example.penstock("run", "poi", "--json")

    assert ran.code == 0, ran.err
    assert ran.json["proven"] is True
    assert ran.json["shards"]["done"] == 2
    assert stored(example) == wanted(example)
    assert len(stored(example)) > 1000
    requests = example.sandbox.requests
    assert len(requests) > 4
    assert {request.status for request in requests} == {200}
    assert {request.query["maxresults"] for request in requests} == {"500"}
    assert {request.query["sortby"] for request in requests} == {"id_asc"}
    assert example.penstock("audit", "poi").code == 0


def test_the_delta_of_the_example_brings_what_changed_since(example):
    assert example.penstock("run", "poi").code == 0
    changed = min(wanted(example))
    example.sandbox.edit(changed, {"AddressInfo.Title": "Changed"})
    example.sandbox.forget_requests()

    ran = example.penstock("run", "poi", "--mode", "delta", "--json")

    assert ran.code == 0, ran.err
    assert ran.json["records"]["updated"] == 1
    assert stored(example) == wanted(example)
    assert all("modifiedsince" in each.query for each in example.sandbox.requests)


def test_a_wrong_key_stops_the_example_at_once(example):
    ran = example.penstock("run", "poi", OCM_API_KEY="not-the-key")

    assert ran.code == 1
    assert len(example.sandbox.requests) <= 2
    assert "penstock budgets open ocm" in ran.out + ran.err
