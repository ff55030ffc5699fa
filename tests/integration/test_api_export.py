"""All records that fulfil the filters, as one stream that is whole or aborted."""

import csv
import http.client
import io
import json
from contextlib import closing
from dataclasses import replace
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from penstock.domain.search.filter_params import EXPORT_BATCH
from penstock.domain.search.query import Query
from penstock.entrypoints.api.app import build_api
from penstock.entrypoints.api.resources.exports import MAX_EXPORTS
from penstock.errors import StoreUnavailable
from penstock.flow.list_records import ListRecords
from penstock.ports.record_access import RecordPage, RecordReader
from tests.support.api_client import OF, Client
from tests.support.api_server import Running, listening

EXPORT = f"{OF}/poi/export"
MANY = 2 * EXPORT_BATCH + 7
HOSTILE = '=1+1,"\r\n</script>'


def lines(body: bytes) -> list[Any]:
    return [json.loads(line) for line in body.splitlines()]


def table(body: bytes) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(body.decode(), newline=""))]


def test_all_records_come_in_the_order_of_their_keys(api: Client):
    for start in range(0, MANY, 1000):
        api.store(*({"id": n, "title": f"t{n}"} for n in range(start, start + 1000)))

    response = api.get(EXPORT)

    assert response.headers["content-type"] == "application/jsonl"
    assert response.headers["content-disposition"] == (
        'attachment; filename="poi.jsonl"'
    )
    assert [row["id"] for row in lines(response.body)] == list(range(3000))
    assert lines(response.body)[5] == api.get(f"{OF}/poi/records/5").json


def test_filters_sort_and_fields_are_those_of_lists(api: Client):
    api.store(
        {"id": 1, "title": "a", "town": "Bonn", "points": 1},
        {"id": 2, "title": "b", "town": "Berlin", "points": 2},
        {"id": 3, "title": "c", "town": "Bonn", "points": 3},
    )

    response = api.get(
        EXPORT, {"town": "eq.Bonn", "sort": "-points", "fields": "id,town"}
    )

    assert lines(response.body) == [
        {"id": 3, "town": "Bonn"},
        {"id": 1, "town": "Bonn"},
    ]


def test_a_table_has_every_value_and_runs_nothing(api: Client):
    api.store({"id": 1, "title": HOSTILE, "points": 7}, {"id": 2, "title": "é"})

    safe = table(api.get(EXPORT, {"format": "csv"}).body)
    raw = table(api.get(EXPORT, {"format": "csv", "raw": "true"}).body)

    assert [row["title"] for row in safe] == ["'" + HOSTILE, "é"]
    assert [row["title"] for row in raw] == [HOSTILE, "é"]
    assert [row["points"] for row in raw] == ["7", "0"]
    assert [*raw[0]] == [*api.get(f"{OF}/poi/records/1").json]


def test_no_records_are_an_empty_file(api: Client):
    assert api.get(EXPORT).body == b""
    assert len(api.get(EXPORT, {"format": "csv"}).body.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("format", "parquet", "choice"),
        ("raw", "1", "type"),
        ("cursor", "x", "unknown-parameter"),
        ("sort", "nothing", "not-sortable"),
    ],
)
def test_what_is_wrong_is_reported(api: Client, name: str, value: str, code: str):
    response = api.get(EXPORT, {name: value})

    assert response.status == 400
    assert response.flaws == {f"?{name}": code}


class Breaking:
    """A database that is gone after the first batch."""

    def __init__(self, reads: RecordReader) -> None:
        self._reads = reads

    def page(self, query: Query) -> RecordPage:
        if query.after is not None:
            raise StoreUnavailable("gone")
        return replace(self._reads.page(query), has_more=True, last=(1,))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reads, name)


def test_an_export_that_breaks_does_not_look_complete(running: Running):
    reads = cast("RecordReader", Breaking(running.api.served.reads))
    api = build_api(running.api.penstock, running.api.served, threads=4)
    api.records = ListRecords(running.api.penstock.settings.datasets, reads)
    with listening(api) as url:
        server = urlsplit(url).netloc
        with closing(http.client.HTTPConnection(server, timeout=20)) as connection:
            connection.request("GET", f"{OF}/shops/export")
            response = connection.getresponse()
            assert response.status == 200
            with pytest.raises(http.client.IncompleteRead):
                response.read()
            response.close()


def test_only_some_run_at_a_time(running: Running):
    slots = [
        running.api.background.slot("exports", limit=MAX_EXPORTS)
        for _ in range(MAX_EXPORTS)
    ]
    for slot in slots:
        slot.__enter__()
    try:
        refused = running.client.get(f"{OF}/shops/export")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    finally:
        for slot in slots:
            slot.__exit__(None, None, None)
    assert running.client.get(f"{OF}/shops/export").status == 200
