"""A dataset is dropped or converted beside a process that serves it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.domain.dataset import Dataset, FieldType
from tests.support.api_client import OF
from tests.support.api_server import Running, running_api
from tests.support.postgres import own_schema

DATASETS = """
[datasets.added]
key = "id"
search = ["title"]
filter = ["town"]
source = { url = "http://127.0.0.1:9/added" }

[datasets.added.fields]
id = { path = "ID", type = "int" }
title = "Title"
town = "Town"
points = { path = "Points", type = "int" }
"""
OF_ADDED = f"{OF}/added"
RECORDS = f"{OF_ADDED}/records"
ROW = {"title": "Market", "town": "Ulm", "points": 7}


@pytest.fixture(params=["sqlite", "postgres"])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    if request.param == "sqlite":
        with running_api(
            tmp_path, 'database = "sqlite:///penstock.db"', more=DATASETS
        ) as running:
            yield running
        return
    with own_schema(request.getfixturevalue("postgres_url")) as place:
        database = f'database = "{place.url}"\nschema = "{place.schema}"'
        with running_api(tmp_path, database, more=DATASETS) as running:
            yield running


def statuses(running: Running) -> dict[str, int]:
    """Return how everything that a client may do with the dataset is answered."""
    client = running.client
    return {
        "describe": client.get(OF_ADDED).status,
        "list": client.get(RECORDS).status,
        "count": client.get(RECORDS, prefer="count=exact").status,
        "get": client.get(f"{RECORDS}/1").status,
        "search": client.get(f"{OF_ADDED}/search", {"q": "market"}).status,
        "suggest": client.get(f"{OF_ADDED}/suggest", {"q": "mar"}).status,
        "facets": client.get(f"{OF_ADDED}/facets", {"by": "town"}).status,
        "changes": client.get(f"{OF_ADDED}/changes").status,
        "put": client.put(f"{RECORDS}/1", ROW).status,
        "patch": client.patch(f"{RECORDS}/1", {"town": "Bonn"}).status,
        "upsert": client.post(RECORDS, [{"id": 2, **ROW}]).status,
        "delete": client.delete(f"{RECORDS}/1").status,
        "import": client.post(f"{OF_ADDED}/imports", {}, idempotency_key="k-1").status,
    }


def names(running: Running) -> list[str]:
    listed = running.client.get(OF)
    assert listed.status == 200
    return [item["name"] for item in listed.json["items"]]


def test_a_dropped_dataset_is_gone_and_hides_no_other(running: Running):
    assert running.client.put(f"{RECORDS}/1", ROW).status == 201
    before = names(running)

    assert list(running.stores.schema.datasets.drop("added"))
    listed, found = names(running), statuses(running)
    problem = running.client.get(OF_ADDED).json
    running.stores.schema.ensure_table(running.api.dataset("added"))
    again = running.client.put(f"{RECORDS}/1", ROW)

    assert set(before) - set(listed) == {"added"}
    assert found == dict.fromkeys(found, 410)
    assert problem["code"] == "dataset-gone"
    assert again.status == 201
    assert names(running) == before


def converted(dataset: Dataset, name: str, kind: FieldType) -> Dataset:
    fields = tuple(
        replace(field, type=kind) if field.name == name else field
        for field in dataset.fields
    )
    return replace(dataset, fields=fields)


@pytest.mark.parametrize("kind", [FieldType.TEXT, FieldType.FLOAT])
def test_after_a_conversion_no_older_declaration_writes(
    running: Running, kind: FieldType
):
    assert running.client.put(f"{RECORDS}/1", ROW).status == 201
    dataset = running.api.dataset("added")

    running.stores.schema.datasets.retype(converted(dataset, "points", kind))
    found = statuses(running)

    writes = {"put", "patch", "upsert", "delete", "import"}
    assert {name: found[name] for name in writes} == dict.fromkeys(writes, 409)
    # the change feed begins anew
    assert found.pop("changes") == 410
    assert {found[name] for name in found.keys() - writes} <= {200, 409}
