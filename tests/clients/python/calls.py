"""Ten calls through the Python client that is generated beside this file."""

import sys
import time
from datetime import UTC, date, datetime
from typing import TypeVar

from penstock_client import Client
from penstock_client.api.budgets import list_budgets
from penstock_client.api.datasets import list_datasets
from penstock_client.api.imports import get_import
from penstock_client.api.jobs import list_jobs
from penstock_client.api.poi import (
    count_poi,
    get_poi,
    list_poi,
    list_poi_changes,
    patch_poi,
    search_poi,
    start_poi_import,
)
from penstock_client.models import (
    BudgetList,
    BudgetState,
    CountPoiByItem,
    CountPoiResponse200,
    DatasetList,
    ImportDetails,
    ImportDetailsStatus,
    JobList,
    JobStatus,
    ListPoiFieldsItem,
    ListPoiSort,
    Poi,
    PoiChangeKind,
    PoiChangeList,
    PoiKindType0,
    PoiList,
    PoiPatch,
    Problem,
    SearchPoiResponse200,
    StartedImport,
    StartPoiImportJsonBodyType0,
)
from penstock_client.types import UNSET

T = TypeVar("T")
ENDED = {
    ImportDetailsStatus.DONE,
    ImportDetailsStatus.FAILED,
    ImportDetailsStatus.CANCELLED,
}


def typed(kind: type[T], parsed: object) -> T:
    assert isinstance(parsed, kind), parsed
    return parsed


def main(url: str) -> None:
    with Client(base_url=url, raise_on_unexpected_status=True) as client:
        read_records(client)
        change_a_record(client)
        search_records(client)
        run_an_import(client)


def read_records(client: Client) -> None:
    datasets = typed(DatasetList, list_datasets.sync(client=client))
    assert {each.name for each in datasets.items} == {
        "import",
        "poi",
        "regions",
        "rows",
        "shops",
    }

    page = typed(
        PoiList,
        list_poi.sync(
            client=client,
            town=["eq.Bonn"],
            points=["gte.3", "lt.11"],
            sort=ListPoiSort("-points"),
            fields=[ListPoiFieldsItem.ID, ListPoiFieldsItem.KIND],
            limit=3,
        ),
    )
    assert [each.id for each in page.items] == [9, 7, 5]
    assert page.items[0].kind is PoiKindType0.FAST
    # what was not requested is not there
    assert page.items[0].title is UNSET
    assert page.items[0].points is UNSET

    assert isinstance(page.page.next_, str)
    rest = typed(
        PoiList,
        list_poi.sync(
            client=client,
            town=["eq.Bonn"],
            points=["gte.3", "lt.11"],
            sort=ListPoiSort("-points"),
            fields=[ListPoiFieldsItem.ID, ListPoiFieldsItem.KIND],
            limit=3,
            cursor=page.page.next_,
        ),
    )
    assert [each.id for each in rest.items] == [3]
    assert rest.page.next_ is None


def change_a_record(client: Client) -> None:
    got = get_poi.sync_detailed(7, client=client)
    record = typed(Poi, got.parsed)
    assert record.title == "Harbour 7"
    assert record.points == 7
    assert record.lat == 50.07
    assert record.is_open is True
    assert record.day == date(2026, 1, 7)
    assert record.seen == datetime(2026, 1, 7, 12, tzinfo=UTC)
    assert record.extra == {"tags": ["a", 7, None], "deep": {"is": True}}
    assert record.note is None
    missing = typed(Problem, get_poi.sync(99, client=client))
    assert missing.status == 404

    etag = got.headers["etag"]
    patch = PoiPatch(note="Checked")
    done = typed(Poi, patch_poi.sync(7, client=client, body=patch, if_match=etag))
    # the fields that have defaults are as they were
    assert (done.note, done.points, done.title) == ("Checked", 7, "Harbour 7")
    again = typed(Problem, patch_poi.sync(7, client=client, body=patch, if_match=etag))
    assert again.status == 412


def search_records(client: Client) -> None:
    found = typed(
        SearchPoiResponse200,
        search_poi.sync(
            client=client, q="harbour", near="50.01,7.0", within=3.0, limit=2
        ),
    )
    assert [each.record.id for each in found.items] == [1, 2]
    assert found.items[0].match.km == 0

    counts = typed(
        CountPoiResponse200,
        count_poi.sync(client=client, by=[CountPoiByItem.TOWN, CountPoiByItem.POINTS]),
    )
    assert counts.rows == 12
    assert [each.field.value for each in counts.facets] == ["town", "points"]
    assert {each.value: each.rows for each in counts.facets[0].values} == {
        "Bonn": 6,
        "Ulm": 6,
    }

    changes = typed(PoiChangeList, list_poi_changes.sync(client=client, after=0))
    first, last = changes.items[0], changes.items[-1]
    assert (first.kind, first.import_id) == (PoiChangeKind.CREATED, 1)
    assert (last.kind, last.key) == (PoiChangeKind.UPDATED, [7])
    assert last.import_id is None


def run_an_import(client: Client) -> None:
    started = typed(
        StartedImport,
        start_poi_import.sync(
            client=client,
            body=StartPoiImportJsonBodyType0(mode="full"),
            idempotency_key="generated",
        ),
    )
    number = started.import_id
    details = typed(ImportDetails, get_import.sync(number, client=client))
    deadline = time.monotonic() + 120
    while details.status not in ENDED and time.monotonic() < deadline:
        time.sleep(0.1)
        details = typed(ImportDetails, get_import.sync(number, client=client))
    assert details.status is ImportDetailsStatus.DONE, details
    assert details.proven
    assert isinstance(details.finished_at, datetime)
    assert details.records.seen == 12

    jobs = typed(JobList, list_jobs.sync(client=client, import_=number))
    assert {each.status for each in jobs.items} == {JobStatus.DONE}

    budgets = typed(BudgetList, list_budgets.sync(client=client))
    states = {each.name: each.state for each in budgets.items}
    assert states["practice"] is BudgetState.OPEN


if __name__ == "__main__":
    main(sys.argv[1])
