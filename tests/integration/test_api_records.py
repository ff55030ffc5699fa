"""What the API promises of records, over HTTP, on each kind of database."""

import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from tests.support.api_client import OF, RECORDS, ApiResponse, Client, serving
from tests.support.workshop import Workshop, wait_until

TOWNS = ["Aachen", "Bern", "Köln", "東京", None]
REGIONS, SHOPS = f"{OF}/regions/records", f"{OF}/shops/records"


def point(number: int, **others: Any) -> dict[str, Any]:
    return {
        "id": number,
        "title": f"Point {number}",
        "town": TOWNS[number % len(TOWNS)],
        "points": number % 4,
        "seen": None
        if number % 7 == 0
        else f"2026-01-01T00:00:{number % 60:02}.{number:06}Z",
        **others,
    }


def points(count: int) -> list[dict[str, Any]]:
    return [point(number) for number in range(1, count + 1)]


def ids(records: list[Any]) -> list[int]:
    return [each["id"] for each in records]


def link_of(result: ApiResponse, way: str) -> str | None:
    """Return where a Link header points to."""
    links = re.findall(r'<([^>]*)>; rel="(\w+)"', result.headers.get("link", ""))
    return {rel: target for target, rel in links}.get(way)


# lists


def test_a_list_without_records_is_empty(api: Client):
    response = api.get(RECORDS)

    assert response.json == {
        "items": [],
        "page": {"next": None, "prev": None, "has_more": False, "limit": 50},
    }
    assert "link" not in response.headers


def test_records_are_reported_as_they_were_given(api: Client):
    whole = {
        "id": 2**63 - 1,
        "title": "Grüße \"'\\ 世界 🔌 \u2028 <&>",
        "town": "a\nb",
        "points": 1000,
        "lat": -89.123456789,
        "lon": 1e-300,
        "is_open": False,
        "day": "2024-02-29",
        "seen": "2026-01-31T12:00:00.120000Z",
        "extra": {"ü": [1, None, {"deep": [True]}], "n": 1.5},
        "kind": "fast",
        "phone": "+49 (0)30-1",
        "limit": -(2**63),
        "note": "ours",
    }

    api.store(whole)

    assert api.get(RECORDS).items == [whole]
    assert api.get(f"{RECORDS}/{2**63 - 1}").json == whole


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ({"points": "eq.2"}, lambda row: row["points"] == 2),
        ({"points": "ne.2"}, lambda row: row["points"] != 2),
        ({"points": ["gte.1", "lt.3"]}, lambda row: 1 <= row["points"] < 3),
        ({"points": "in.0,3"}, lambda row: row["points"] in {0, 3}),
        ({"town": "isnull.true"}, lambda row: row["town"] is None),
        ({"town": "ne.Bern"}, lambda row: row["town"] != "Bern"),
        ({"town": "prefix.東"}, lambda row: row["town"] == "東京"),
        ({"town": 'in."Köln",Bern'}, lambda row: row["town"] in {"Köln", "Bern"}),
        ({"seen": "isnull.true"}, lambda row: row["seen"] is None),
        (
            {"seen": "lt.2026-01-01T02:00:09.000010+02:00"},
            lambda row: row["id"] < 10 and row["seen"] is not None,
        ),
        (
            {"id": "gt.5", "points": "eq.1"},
            lambda row: row["id"] > 5 and row["points"] == 1,
        ),
        ({"field.limit": "isnull.false"}, lambda row: False),
    ],
    ids=range(12),
)
def test_conditions_hold_for_every_record_and_leave_out_no_other(
    api: Client, query: dict[str, Any], fits: Callable[[Any], bool]
):
    api.store(*points(40))

    response = api.get(RECORDS, {**query, "limit": 100}, prefer="count=exact")

    assert ids(response.items) == [row["id"] for row in points(40) if fits(row)]
    assert response.json["count"] == {"value": len(response.items), "kind": "exact"}


def ordered(rows: list[dict[str, Any]], field: str, *, down: bool) -> list[int]:
    full = [row for row in rows if row[field] is not None]
    full.sort(key=lambda row: (row[field], row["id"]), reverse=down)
    empty = [row for row in rows if row[field] is None]
    return ids(full) + ids(sorted(empty, key=lambda row: row["id"], reverse=down))


@pytest.mark.parametrize("limit", [1, 7, 200])
@pytest.mark.parametrize("sort", ["id", "-id", "town", "-points", "seen", "-seen,-id"])
def test_a_walk_there_and_back_meets_every_record_once_in_order(
    api: Client, sort: str, limit: int
):
    api.store(*points(25))
    field = sort.strip("-").partition(",")[0]
    wanted = ordered(points(25), field, down=sort.startswith("-"))
    target: str | None = f"{RECORDS}?sort={quote(sort)}&limit={limit}&id=gt.0"
    there: list[int] = []
    last: ApiResponse | None = None
    while target is not None:
        last = api.get(target)
        there += ids(last.items)
        assert last.json["page"]["has_more"] is (link_of(last, "next") is not None)
        target = link_of(last, "next")
    assert there == wanted

    assert last is not None
    back, target = ids(last.items), link_of(last, "prev")
    while target is not None:
        response = api.get(target)
        back = ids(response.items) + back
        target = link_of(response, "prev")
    assert back == wanted


def test_links_and_the_page_name_the_same_cursors(api: Client):
    api.store(*points(9))
    first = api.get(RECORDS, {"limit": 3, "town": "isnull.false", "fields": "id"})
    response = api.get(link_of(first, "next") or "")

    page = response.json["page"]
    for way in ("next", "prev"):
        target = urlsplit(link_of(response, way) or "")
        assert target.path == RECORDS
        assert dict(parse_qsl(target.query)) == {
            "limit": "3",
            "town": "isnull.false",
            "fields": "id",
            "cursor": page[way],
        }


def test_only_the_chosen_fields_come_in_the_chosen_order(api: Client):
    api.store(point(1))

    assert api.get(RECORDS, {"fields": "town,id"}).body.startswith(
        b'{"items":[{"town":"Bern","id":1}]'
    )
    assert api.get(f"{RECORDS}/1", {"fields": "title"}).json == {"title": "Point 1"}


@pytest.mark.parametrize(
    ("query", "flaws"),
    [
        ({"tonw": "eq.x"}, {"?tonw": "unknown-parameter"}),
        ({"title": "eq.x"}, {"?title": "not-filterable"}),
        ({"points": "x"}, {"?points": "operator"}),
        ({"points": "eq.x"}, {"?points": "value"}),
        ({"limit": "201"}, {"?limit": "range"}),
        ({"limit": ["5", "6"]}, {"?limit": "repeated"}),
        ({"sort": "title"}, {"?sort": "not-sortable"}),
        ({"sort": "points,-id"}, {"?sort": "mixed-directions"}),
        ({"fields": "id,titel"}, {"?fields": "unknown-field"}),
        ({"cursor": "nonsense"}, {"?cursor": "cursor"}),
        (
            {"points": "eq.x", "limit": "0"},
            {"?points": "value", "?limit": "range"},
        ),
    ],
    ids=range(11),
)
def test_what_was_not_understood_is_named(
    api: Client, query: dict[str, Any], flaws: dict[str, str]
):
    response = api.get(RECORDS, query)

    assert response.status == 400
    assert response.flaws == flaws


def test_cursors_are_good_for_their_own_list_only(api: Client):
    api.store(*points(9))
    api.store({"code": "n"}, {"code": "s"}, dataset="regions")
    query = {"limit": 2, "sort": "points", "town": "isnull.false"}
    cursor = api.get(RECORDS, query).json["page"]["next"]
    foreign = api.get(REGIONS, {"limit": 1}).json["page"]["next"]

    for wrong, code in (
        ({**query, "sort": "-points"}, "cursor-mismatch"),
        ({**query, "sort": "id"}, "cursor-mismatch"),
        ({**query, "town": "isnull.true"}, "cursor-mismatch"),
        ({**query, "id": "gt.0"}, "cursor-mismatch"),
        ({**query, "cursor": foreign}, "cursor-mismatch"),
        ({**query, "cursor": cursor[:-1]}, "cursor"),
        ({**query, "cursor": cursor[:20]}, "cursor"),
        ({**query, "cursor": cursor + "A"}, "cursor"),
        ({**query, "cursor": cursor.swapcase()}, "cursor"),
        ({**query, "cursor": f"{cursor[:30]}!{cursor[30:]}"}, "cursor"),
        ({**query, "cursor": ""}, "cursor"),
        ({**query, "cursor": "東京"}, "cursor"),
    ):
        response = api.get(RECORDS, {"cursor": cursor, **wrong})
        assert (response.status, response.flaws) == (400, {"?cursor": code}), wrong

    assert api.get(RECORDS, {**query, "limit": 9, "cursor": cursor}).status == 200


@pytest.mark.parametrize("kind", ["exact", "planned", "none"])
def test_counts_say_how_they_were_found(api: Client, kind: str):
    api.store(*points(12))

    response = api.get(RECORDS, {"limit": 5}, prefer=f"respond-async, count={kind}")

    assert response.headers["preference-applied"] == f"count={kind}"
    count = response.json.get("count")
    if kind == "none":
        assert count is None
    else:
        assert count["kind"] in {"exact", "planned"}
        assert count["value"] == 12 or count["kind"] == "planned"


def test_nothing_is_counted_unless_requested(api: Client):
    response = api.get(RECORDS, prefer="handling=strict")

    assert "count" not in response.json
    assert "preference-applied" not in response.headers


# versions


def test_a_known_list_is_not_sent_again(api: Client):
    api.store(*points(3))
    response = api.get(RECORDS)
    etag = response.headers["etag"]

    again = api.get(RECORDS, if_none_match=f'"other", {etag}')
    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == etag

    assert api.get(RECORDS, {"limit": 2}, if_none_match=etag).status == 200
    api.put(f"{RECORDS}/3", {"title": "new"})
    changed = api.get(RECORDS, if_none_match=etag)
    assert changed.status == 200
    assert changed.items[-1]["title"] == "new"


def test_a_known_record_is_not_sent_again(api: Client):
    api.store(*points(2))
    etag = api.get(f"{RECORDS}/1").headers["etag"]
    api.put(f"{RECORDS}/2", {"title": "another"})

    assert api.get(f"{RECORDS}/1", if_none_match=etag).status == 304
    assert api.get(f"{RECORDS}/1", if_none_match=f"W/{etag}").status == 304
    assert api.get(f"{RECORDS}/1", if_none_match="*").status == 304
    assert api.get(f"{RECORDS}/9", if_none_match="*").status == 404
    assert api.get(RECORDS, {"no": "1"}, if_none_match="*").status == 400


def test_a_choice_of_fields_is_known_by_itself(api: Client):
    api.store(point(1))
    path, query = f"{RECORDS}/1", {"fields": "id,town"}
    etag = api.get(path, query).headers["etag"]

    assert api.get(path, query, if_none_match=etag).status == 304
    assert api.get(path, if_none_match=etag).status == 200
    assert api.patch(path, {"town": "Ulm"}, if_match=etag).status == 200


def test_head_tells_the_same_without_a_body(api: Client):
    api.store(*points(3))
    for path in (RECORDS, f"{RECORDS}/1", OF, f"{OF}/poi", f"{OF}/poi/changes"):
        there, head = api.get(path), api.ask("HEAD", path)
        assert (head.status, head.body) == (200, b"")
        for name in ("content-type", "content-length", "etag"):
            assert head.headers.get(name) == there.headers.get(name), (path, name)
    assert api.ask("HEAD", f"{RECORDS}/9").status == 404


# changes of single records


def test_a_record_is_created_once_and_replaced_after_that(api: Client):
    first = api.put(f"{RECORDS}/7", {"title": "one", "town": "Ulm", "note": "mine"})
    second = api.put(f"{RECORDS}/7", {"title": "two"})

    assert (first.status, second.status) == (201, 200)
    assert first.headers["location"] == f"{RECORDS}/7"
    assert first.headers["etag"] != second.headers["etag"]
    assert first.json["town"] == "Ulm"
    for result in (second, api.get(f"{RECORDS}/7")):
        assert result.json["title"] == "two"
        # what is not named is empty, or the default
        assert [result.json[name] for name in ("town", "points", "note")] == [
            None,
            0,
            None,
        ]
    assert api.get(f"{RECORDS}/7").headers["etag"] == second.headers["etag"]


def test_a_patch_leaves_the_rest_as_it_is(api: Client):
    api.store(point(7, note="mine", extra={"a": [1]}, day="2026-01-31"))

    response = api.ask(
        "PATCH",
        f"{RECORDS}/7",
        body=b'{"town": null, "points": 9}',
        headers={"Content-Type": "application/merge-patch+json; charset=utf-8"},
    )

    assert response.status == 200
    wanted = point(7, note="mine", extra={"a": [1]}, day="2026-01-31", points=9)
    for name, value in (wanted | {"town": None}).items():
        assert response.json[name] == value
    assert api.get(f"{RECORDS}/7").json == response.json


def test_a_deleted_record_is_gone_and_can_come_back(api: Client):
    api.store(point(7))

    gone = api.delete(f"{RECORDS}/7")

    assert (gone.status, gone.body) == (204, b"")
    assert api.get(f"{RECORDS}/7").status == 404
    assert api.get(RECORDS).items == []
    assert api.delete(f"{RECORDS}/7").status == 404
    assert api.patch(f"{RECORDS}/7", {"town": "x"}).status == 404
    assert api.put(f"{RECORDS}/7", {"title": "again"}).status == 201


def test_changes_are_made_only_to_the_version_that_was_meant(api: Client):
    path = f"{RECORDS}/7"
    old = api.put(path, {"title": "one"}).headers["etag"]
    new = api.put(path, {"title": "two"}).headers["etag"]

    for change in (
        lambda: api.put(path, {"title": "three"}, if_match=old),
        lambda: api.patch(path, {"title": "three"}, if_match=f'W/{new}, "x"'),
        lambda: api.delete(path, if_match=old),
        lambda: api.delete(path, if_match="nonsense"),
        lambda: api.patch(path, {"title": "three"}, if_match='"*"'),
        lambda: api.put(path, {"title": "three"}, if_none_match="*"),
        lambda: api.put(f"{RECORDS}/8", {"title": "x"}, if_match="*"),
    ):
        result = change()
        assert result.status == 412, result.body
        assert result.json["code"] == "version-changed"
    assert api.get(path).json["title"] == "two"
    assert api.get(f"{RECORDS}/8").status == 404

    patched = api.patch(path, {"points": 1}, if_match=f'"other", {new}')
    assert patched.status == 200
    assert api.put(path, {"title": "x"}, if_match="*").status == 200
    assert api.put(f"{RECORDS}/8", {"title": "x"}, if_none_match="*").status == 201
    last = api.get(f"{RECORDS}/8").headers["etag"]
    assert api.delete(f"{RECORDS}/8", if_match=last).status == 204
    result = api.put(path, {"title": "x"}, if_none_match='"x"')
    assert (result.status, result.flaws) == (400, {"#If-None-Match": "value"})


def test_of_many_who_change_one_version_one_succeeds(api: Client):
    path = f"{RECORDS}/7"
    etag = api.put(path, {"title": "start"}).headers["etag"]
    statuses: list[int] = []

    def change(number: int) -> None:
        response = api.patch(path, {"points": number}, if_match=etag)
        statuses.append(response.status)

    threads = [threading.Thread(target=change, args=(n,)) for n in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert sorted(statuses) == [200, *[412] * 7]


@pytest.mark.parametrize(
    ("document", "flaws"),
    [
        ({}, {"/title": "missing"}),
        ({"title": "x", "points": -1}, {"/points": "range"}),
        ({"title": "x" * 41}, {"/title": "length"}),
        ({"title": "x", "phone": "12345"}, {"/phone": "pattern"}),
        ({"title": "x", "kind": "medium"}, {"/kind": "choice"}),
        ({"title": "x", "points": "5"}, {"/points": "type"}),
        ({"title": "x", "id": 8}, {"/id": "type"}),
        ({"title": "x", "nothing": 1}, {"/nothing": "unknown-field"}),
        ({"title": 5, "lat": 91}, {"/title": "type", "/lat": "range"}),
        ([], {"/": "type"}),
    ],
    ids=range(10),
)
def test_a_record_that_breaks_a_rule_is_refused(
    api: Client, document: Any, flaws: dict[str, str]
):
    response = api.put(f"{RECORDS}/7", document)

    assert (response.status, response.flaws) == (422, flaws)
    assert api.get(f"{RECORDS}/7").status == 404


@pytest.mark.parametrize(
    ("name", "number", "code"),
    [("points", "1.00000000000000000001", "type"), ("lat", "1e-400", "range")],
)
def test_a_number_is_not_rounded_until_it_fits(
    api: Client, name: str, number: str, code: str
):
    body = f'{{"title": "x", "{name}": {number}}}'.encode()

    response = api.ask("PUT", f"{RECORDS}/7", body=body)

    assert (response.status, response.flaws) == (422, {f"/{name}": code})


def test_keys_of_several_fields_may_hold_anything(api: Client):
    api.store({"code": "ä,b/c?d#e %2C\n"}, dataset="regions")
    region = quote("ä,b/c?d#e %2C\n".strip(), safe="")
    name = quote("東京;=&+.", safe="")
    path = f"{SHOPS}/{region},{name}"

    created = api.put(path, {"opened": "2026-01-31"})

    assert created.status == 201, created.body
    assert created.headers["location"] == path
    assert api.get(created.headers["location"]).json == {
        "region": "ä,b/c?d#e %2C",
        "name": "東京;=&+.",
        "opened": "2026-01-31",
    }
    response = api.get(f"{OF}/shops/changes").items[-1]
    assert response["key"] == ["ä,b/c?d#e %2C", "東京;=&+."]
    assert api.delete(path).status == 204


def test_a_key_may_hold_a_line_break(api: Client):
    api.store({"code": "a\nb"}, dataset="regions")

    assert api.get(f"{REGIONS}/a%0Ab").json["code"] == "a\nb"
    assert api.delete(f"{REGIONS}/a%0Ab").status == 204


@pytest.mark.parametrize(
    "path",
    [
        f"{RECORDS}/x",
        f"{RECORDS}/1.0",
        f"{RECORDS}/{2**63}",
        f"{RECORDS}/",
        f"{RECORDS}/1/2",
        f"{RECORDS}/%ff",
        f"{REGIONS}/%00",
        f"{REGIONS}/%ED%A0%80",
        f"{REGIONS}/" + "x" * 601,
        f"{SHOPS}/a",
        f"{SHOPS}/a,b,c",
        f"{SHOPS}/a%2Cb",
    ],
)
def test_what_is_no_key_is_refused(api: Client, path: str):
    for result in (api.get(path), api.put(path, {"title": "x"}), api.delete(path)):
        assert result.status == 400, result.body
        assert next(iter(result.flaws)).startswith("{")


def test_a_key_is_stored_only_as_an_import_would_bring_it(api: Client):
    for key in ("%20a", "a%20", "%20", "x" * 301):
        response = api.put(f"{REGIONS}/{key}", {})
        assert (response.status, [*response.flaws]) == (400, ["{code}"]), key
    assert api.get(REGIONS).items == []


def test_values_must_be_known_where_a_field_refers_to(api: Client):
    api.store({"code": "n"}, dataset="regions")

    assert api.put(f"{SHOPS}/n,one", {}).status == 201
    response = api.put(f"{SHOPS}/x,one", {})
    assert (response.status, response.flaws) == (422, {"/region": "reference"})
    rows = [{"region": "n", "name": "a"}, {"region": "y", "name": "b"}]
    many = api.post(SHOPS, rows)
    assert (many.status, many.flaws) == (422, {"/1/region": "reference"})
    assert len(api.get(SHOPS).items) == 1


def test_an_import_takes_back_what_is_the_provider_s_and_keeps_ours(
    api: Client, api_workshop: Workshop
):
    api.store(point(1, note="keep"), point(2))
    api.patch(f"{RECORDS}/1", {"title": "Mine"})
    head = "id,title,town,points,lat,lon,is_open,day,seen,extra,kind,phone,limit"
    rows = f"{head}\n1,Theirs,Ulm,,,,,,,,,,\n3,New,Ulm,,,,,,,,,,\n"
    (api_workshop.folder / "poi-1.csv").write_text(rows, encoding="utf-8")
    try:
        assert api_workshop.penstock("run", "poi").code == 0
    finally:
        (api_workshop.folder / "poi-1.csv").unlink()

    wait_until(lambda: len(api.get(RECORDS).items) == 3, within=10)
    body = api.get(f"{RECORDS}/1").json
    assert (body["title"], body["note"]) == ("Theirs", "keep")


# many at once


def test_many_records_are_stored_at_once_with_their_versions(api: Client):
    api.store(point(2))
    rows = [point(number) for number in range(1000, 0, -1)]

    response = api.post(RECORDS, rows)

    assert response.status == 200
    assert (response.json["created"], response.json["updated"]) == (999, 1)
    assert [each["key"]["id"] for each in response.json["items"]] == ids(rows)
    etag = response.json["items"][0]["etag"]
    assert api.get(f"{RECORDS}/1000").headers["etag"] == etag
    assert api.patch(f"{RECORDS}/1000", {"points": 5}, if_match=etag).status == 200


def test_of_a_key_that_comes_twice_the_last_one_counts(api: Client):
    response = api.post(RECORDS, [point(1, title="first"), point(1, title="second")])

    assert (response.json["created"], len(response.json["items"])) == (1, 1)
    assert api.get(f"{RECORDS}/1").json["title"] == "second"


def test_all_are_stored_or_none(api: Client):
    response = api.post(RECORDS, [point(1), point(2, points=-1), {"id": 3}])

    assert response.status == 422
    assert response.flaws == {"/1/points": "range", "/2/title": "missing"}
    assert api.get(RECORDS).items == []


@pytest.mark.parametrize(
    "document", [{}, [], [point(1)] * 1001, "x", [1], [[]]], ids=range(6)
)
def test_what_is_no_list_of_records_is_refused(api: Client, document: Any):
    response = api.post(RECORDS, document)

    assert response.status == 422
    assert api.get(RECORDS).items == []


# what a client wrote, and what it may still see


def test_a_client_reads_what_it_wrote_in_another_process(
    api: Client, api_workshop: Workshop
):
    with serving(api_workshop) as other:
        for number in range(40):
            # it knows that there is none, and how long the list is
            assert other.get(f"{RECORDS}/{number}").status == 404
            assert len(other.get(RECORDS, {"limit": 200}).items) == number
            response = api.put(f"{RECORDS}/{number}", {"title": "x"})
            token = response.headers["x-consistency-token"]

            seen = other.get(f"{RECORDS}/{number}", x_consistency_token=token)
            assert (seen.status, seen.json.get("title")) == (200, "x"), number
            listed = other.get(RECORDS, {"limit": 200}, x_consistency_token=token)
            assert len(listed.items) == number + 1


def test_a_token_of_another_dataset_or_none_of_ours_changes_nothing(api: Client):
    api.store({"code": "n"}, dataset="regions")
    token = api.put(f"{REGIONS}/n", {}).headers["x-consistency-token"]

    for each in (token, "nonsense", "", "é", "x" * 5000):
        assert api.get(RECORDS, x_consistency_token=each).status == 200


def test_what_is_not_there_is_found_as_soon_as_it_is(api: Client):
    assert api.get(f"{RECORDS}/5").status == 404
    assert api.get(f"{RECORDS}/5").status == 404

    api.put(f"{RECORDS}/5", {"title": "now"})
    assert api.get(f"{RECORDS}/5").json["title"] == "now"

    api.delete(f"{RECORDS}/5")
    assert api.get(f"{RECORDS}/5").status == 404


def test_another_process_hears_of_a_change_within_moments(
    api: Client, api_workshop: Workshop
):
    with serving(api_workshop) as other:
        assert other.get(f"{RECORDS}/5").status == 404
        api.put(f"{RECORDS}/5", {"title": "x"})
        wait_until(lambda: other.get(f"{RECORDS}/5").status == 200, within=30)


def test_changes_are_reported_in_order_without_gaps(api: Client):
    begin = api.get(f"{OF}/poi").json["change_seq"]
    api.store(point(1), point(2))
    api.patch(f"{RECORDS}/1", {"points": 3})
    api.delete(f"{RECORDS}/2")
    changes: list[Any] = []
    after = begin
    while True:
        response = api.get(f"{OF}/poi/changes", {"after": after, "limit": 3})
        changes += response.items
        after = response.json["after"]
        if not response.json["has_more"]:
            break

    assert [each["seq"] - begin for each in changes] == [1, 2, 3, 4]
    assert [(each["kind"], each["key"]) for each in changes] == [
        ("created", [1]),
        ("created", [2]),
        ("updated", [1]),
        ("deleted", [2]),
    ]
    for query in ({"after": "-1"}, {"wait": "31"}, {"limit": "0"}, {"x": "1"}):
        assert api.get(f"{OF}/poi/changes", query).status == 400


def test_who_waits_for_changes_hears_of_the_next(api: Client):
    begin = api.get(f"{OF}/poi").json["change_seq"]
    heard: list[ApiResponse] = []

    def wait() -> None:
        query = {"after": begin, "wait": 20}
        heard.append(api.get(f"{OF}/poi/changes", query))

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.5)
    api.put(f"{RECORDS}/1", {"title": "news"})
    waiting.join(10)

    assert [each["key"] for each in heard[0].items] == [[1]]


# datasets, and what cannot be done


def test_datasets_are_described(api: Client):
    names = [each["name"] for each in api.get(OF).items]
    body = api.get(f"{OF}/poi").json

    assert names == ["poi", "regions", "shops"]
    assert body["key"] == ["id"]
    assert body["filter"] == ["id", "town", "points", "seen", "limit"]
    assert {"name": "note", "type": "text", "required": False, "local": True} in body[
        "fields"
    ]
    before = body["generation"]
    api.store(point(1))
    assert api.get(f"{OF}/poi").json["generation"] == before + 1
    for path in (OF, f"{OF}/poi"):
        assert api.get(path, {"x": "1"}).flaws == {"?x": "unknown-parameter"}


def test_datasets_say_how_many_records_they_have(api: Client):
    def reported() -> list[Any]:
        listed = {each["name"]: each["count"] for each in api.get(OF).items}
        assert api.get(f"{OF}/poi").json["count"] == listed["poi"]
        return [listed["poi"], listed["shops"]]

    nothing = {"value": 0, "kind": "exact"}
    assert reported() == [nothing, nothing]
    api.store(*points(30))
    assert reported() == [{"value": 30, "kind": "exact"}, nothing]
    api.delete(f"{RECORDS}/3")
    assert reported() == [{"value": 29, "kind": "exact"}, nothing]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not-found"),
        ("GET", f"{OF}/", 404, "not-found"),
        ("GET", f"{OF}/nothing", 404, "not-found"),
        ("GET", f"{OF}/nothing/records", 404, "not-found"),
        ("PUT", f"{OF}/nothing/records/1", 404, "not-found"),
        ("GET", f"{RECORDS}/1", 404, "not-found"),
        ("DELETE", RECORDS, 405, "method-not-allowed"),
        ("PUT", RECORDS, 405, "method-not-allowed"),
        ("POST", f"{RECORDS}/1", 405, "method-not-allowed"),
        ("PROPFIND", RECORDS, 405, "method-not-allowed"),
        ("PUT", f"{RECORDS}/1", 415, "unsupported-media-type"),
        ("POST", RECORDS, 415, "unsupported-media-type"),
    ],
)
def test_problems_say_what_happened(
    api: Client, method: str, path: str, status: int, code: str
):
    response = api.ask(method, path)

    assert response.status == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["cache-control"] == "no-store"
    problem = response.json
    assert problem["type"] == f"/api/problems/{code}"
    assert (problem["status"], problem["code"], problem["instance"]) == (
        *(status, code),
        path,
    )
    assert problem["title"]
    assert problem["detail"]
    assert problem["trace_id"] == response.headers["x-trace-id"]
    explained = api.get(problem["type"]).json
    assert (explained["code"], explained["status"]) == (code, status)


def test_a_method_that_is_not_there_is_reported_which_are(api: Client):
    assert api.ask("DELETE", RECORDS).headers["allow"] == "GET, HEAD, POST"
    assert (
        api.ask("POST", f"{RECORDS}/1").headers["allow"]
        == "DELETE, GET, HEAD, PATCH, PUT"
    )


def test_a_trace_goes_on(api: Client):
    trace = "0af7651916cd43dd8448eb211c80319c"

    results = api.get("/nowhere", traceparent=f"00-{trace}-b7ad6b7169203331-01")

    assert results.json["trace_id"] == results.headers["x-trace-id"] == trace


def test_a_body_that_is_too_large_is_not_read(api: Client):
    head = f"PUT {RECORDS}/1 HTTP/1.1\r\nHost: localhost\r\n"
    head += "Content-Type: application/json\r\n"
    declared = f"{head}Content-Length: {9 * 1024 * 1024}\r\n\r\n"

    response = api.raw(declared.encode())

    assert (response.status, response.json["code"]) == (413, "too-large")


def test_a_body_is_stopped_where_it_becomes_too_large(api: Client):
    """It does not say how long it is."""
    head = f"PUT {RECORDS}/1 HTTP/1.1\r\nHost: localhost\r\n"
    head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"

    response = api.raw(head.encode() + chunk * 9)

    assert response.status == 413


def test_a_dataset_may_be_called_like_a_part_of_its_address(
    tmp_path, api_workshop: Workshop
):
    """There is one called records, and one called like a resource."""
    config = api_workshop.config.read_text("utf-8")
    named = config.replace("datasets.regions", "datasets.records").replace(
        "regions.code", "records.code"
    )
    api_workshop.config.write_text(named, encoding="utf-8")
    try:
        assert api_workshop.penstock("migrate").code == 0
        with serving(api_workshop) as other:
            path = f"{OF}/records/records/n%2F1"
            assert other.put(path, {"name": "north"}).status == 201
            assert other.get(path).json == {"code": "n/1", "name": "north"}
            json.loads(other.get("/openapi.json").body)
    finally:
        api_workshop.config.write_text(config, encoding="utf-8")


def test_parameters_that_are_no_text_are_refused(api: Client):
    response = api.ask("GET", f"{RECORDS}?town=eq.%ff")

    assert response.status == 400
    assert response.json["detail"] == "the parameters are not UTF-8 text"
