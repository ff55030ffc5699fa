"""Clients look at schedules, create, change, pause and run them."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from penstock.domain.jobs import ImportStatus, Mode
from penstock.ports.schedules import ScheduleStatus
from tests.support.api_client import ApiResponse
from tests.support.api_server import Running
from tests.support.builders import MINUTE

SCHEDULES = "/api/v1/schedules"
HOURLY = {"dataset": "news", "every": "1h"}
DAY = {"from": "2026-02-01T00:00:00Z", "until": "2026-02-02T00:00:00Z"}


@pytest.fixture(autouse=True)
def without_schedules(running: Running) -> Iterator[None]:
    yield
    running.cancel_all()
    for each in running.client.get(SCHEDULES, {"limit": 200}).items:
        if each["origin"] == "created":
            running.client.delete(f"{SCHEDULES}/{each['name']}")


def create(running: Running, name: str = "hourly", **fields: object) -> ApiResponse:
    body = {"name": name, **(fields or HOURLY)}
    response = running.client.post(SCHEDULES, body)
    assert response.status == 201, response.json
    return response


def errors(response: ApiResponse) -> dict[str, str]:
    return {each["pointer"]: each["detail"] for each in response.json["errors"]}


class TestWriting:
    def test_a_schedule_is_created_and_found(self, running: Running):
        created = create(running)

        found = running.client.get(created.headers["location"])

        assert found.json == created.json
        assert found.headers["etag"] == created.headers["etag"]
        assert (found.json["origin"], found.json["status"]) == ("created", "active")
        assert found.json["fields"] == HOURLY
        assert found.json["trigger"] == "Every hour"
        upcoming = [each["fire_at"] for each in found.json["upcoming"]]
        assert upcoming[0] == found.json["next_run_at"]
        assert len(upcoming) == 3

    def test_a_name_is_given_once(self, running: Running):
        create(running)

        again = running.client.post(SCHEDULES, {"name": "hourly", **HOURLY})

        assert (again.status, again.json["code"]) == (409, "conflict")

    def test_every_error_is_named_with_its_place(self, running: Running):
        wrong = {
            "name": "poi",
            "dataset": "nowhere",
            "cron": "99 * * * *",
            "every": "0s",
            "timezone": "Europe/Berlinn",
            "evry": "1h",
        }

        refused = running.client.post(SCHEDULES, wrong)

        assert (refused.status, refused.json["code"]) == (422, "unprocessable")
        found = errors(refused)
        assert found.keys() == {"/cron", "/every", "/timezone", "/evry"}
        assert "did you mean 'Europe/Berlin'?" in found["/timezone"]
        assert "did you mean 'every'?" in found["/evry"]

    @pytest.mark.parametrize(
        ("fields", "pointer"),
        [
            ({"dataset": "nowhere", "every": "1h"}, "/dataset"),
            ({"dataset": "shops", "every": "1h", "mode": "backfill"}, "/mode"),
            ({"dataset": "poi", "after": ["news", "nowhere"]}, "/after/1"),
            ({"dataset": "poi"}, "/"),
            ({"dataset": "poi", "every": None}, "/every"),
            ({"dataset": "poi", "at": "0001-01-01T00:00:00+14:00"}, "/at"),
            ({"dataset": "poi", "every": "1h", "name": "A B"}, "/name"),
        ],
    )
    def test_what_does_not_fit_the_datasets_is_refused(
        self, running: Running, fields: dict[str, object], pointer: str
    ):
        refused = running.client.post(SCHEDULES, {"name": "wrong", **fields})

        assert refused.status == 422
        assert [*errors(refused)] == [pointer]

    def test_schedules_that_would_start_each_other_are_refused(self, running: Running):
        create(running, "a", dataset="poi", after=["news"])
        create(running, "b", dataset="shops", after=["poi"])

        refused = running.client.post(
            SCHEDULES, {"name": "c", "dataset": "news", "after": ["shops"]}
        )
        changed = running.client.patch(f"{SCHEDULES}/a", {"after": ["shops"]})

        assert [*errors(refused)] == ["/after"]
        assert "would start itself" in errors(refused)["/after"]
        assert [*errors(changed)] == ["/after"]

    def test_fields_are_changed_and_removed(self, running: Running):
        create(running, "news", **HOURLY, mode="full")
        path = f"{SCHEDULES}/news"

        changed = running.client.patch(path, {"every": "2h", "mode": None})
        refused = running.client.patch(path, {"cron": "0 2 * * *"})

        assert changed.json["fields"] == {**HOURLY, "every": "2h"}
        assert refused.status == 422
        assert running.client.get(path).json == changed.json

    def test_a_change_of_another_version_is_refused(self, running: Running):
        etag = create(running).headers["etag"]
        path = f"{SCHEDULES}/hourly"

        def patch(every: str, tag: str) -> ApiResponse:
            return running.client.patch(path, {"every": every}, if_match=tag)

        first = patch("2h", etag)
        second = patch("3h", etag)
        deleted = running.client.delete(path, if_match=etag)

        assert first.status == 200
        assert (second.status, second.json["code"]) == (412, "version-changed")
        assert deleted.status == 412
        assert patch("3h", "*").status == 200

    def test_a_deleted_schedule_is_gone(self, running: Running):
        create(running)
        path = f"{SCHEDULES}/hourly"

        assert running.client.delete(path).status == 204

        assert running.client.get(path).status == 404
        assert running.client.get(f"{path}/fires").status == 404
        assert running.client.delete(path).status == 404


class TestLooking:
    def names(self, running: Running, **request: object) -> list[str]:
        return [each["name"] for each in running.client.get(SCHEDULES, request).items]

    def test_schedules_are_found_by_what_they_are(self, running: Running):
        create(running, "a", dataset="poi", every="1h")
        create(running, "b")
        create(running, "c", **HOURLY, paused=True)

        assert self.names(running) == ["a", "b", "c"]
        assert self.names(running, dataset="news") == ["b", "c"]
        assert self.names(running, status="paused") == ["c"]
        assert self.names(running, sort="-last_run_at") == []
        assert self.names(running, sort="-created_at") == ["c", "b", "a"]

    @pytest.mark.parametrize("sort", ["name", "next_run_at", "-created_at"])
    def test_schedules_come_page_by_page(self, running: Running, sort: str):
        for name in ("a", "b", "c"):
            create(running, name)
        whole = self.names(running, sort=sort)

        first = running.client.get(SCHEDULES, {"sort": sort, "limit": 2})
        second = running.client.get(first.headers["link"].split(">")[0].strip("<"))

        assert first.json["page"]["has_more"]
        assert [each["name"] for each in (*first.items, *second.items)] == whole
        assert second.json["page"] == {"next": None, "has_more": False, "limit": 2}

    @pytest.mark.parametrize(
        "request_",
        [
            {"cursor": "a,b"},
            {"cursor": "a", "sort": "next_run_at"},
            {"cursor": "0001-01-01T00:00:00+14:00,a", "sort": "next_run_at"},
            {"sort": "dataset"},
            {"limit": 0},
        ],
    )
    def test_what_is_no_page_is_refused(
        self, running: Running, request_: dict[str, object]
    ):
        assert running.client.get(SCHEDULES, request_).status == 400


class TestActing:
    def test_a_pause_has_a_note_until_it_is_resumed(self, running: Running):
        create(running)
        path = f"{SCHEDULES}/hourly"

        paused = running.client.post(f"{path}/pause", {"note": "they move"})
        resumed = running.client.ask("POST", f"{path}/resume")
        again = running.client.ask("POST", f"{path}/pause")
        wrong = running.client.post(f"{path}/pause", {"note": "a\nb", "why": 1})

        assert (paused.json["status"], paused.json["note"]) == ("paused", "they move")
        assert (resumed.json["status"], resumed.json["note"]) == ("active", None)
        assert again.json["note"] == "paused by a client of the API"
        assert errors(wrong).keys() == {"/note", "/why"}

    def test_a_paused_schedule_is_run_and_its_import_planned(self, running: Running):
        create(running, **HOURLY, paused=True)
        path = f"{SCHEDULES}/hourly"

        begun = running.client.ask("POST", f"{path}/run")

        assert begun.status == 202
        running.wait_for(begun.json["import_id"], ImportStatus.RUNNING)
        (fire,) = running.client.get(f"{path}/fires").items
        assert fire["import_id"] == begun.json["import_id"]
        assert (fire["requested"], fire["outcome"]) == (True, "started")
        again = running.client.ask("POST", f"{path}/run")
        assert (again.status, again.json["code"]) == (409, "conflict")
        assert "is unfinished; let it finish, or cancel it" in again.json["detail"]

    def test_a_range_is_imported_again(self, running: Running):
        create(running)
        path = f"{SCHEDULES}/hourly"

        first = running.client.post(f"{path}/backfill", DAY)
        running.wait_for(first.json["import_id"], ImportStatus.RUNNING)
        running.cancel_all()
        second = running.client.post(f"{path}/backfill", DAY)

        assert (first.status, second.status) == (202, 202)
        assert second.json["mode"] == Mode.BACKFILL
        assert (second.json["since"], second.json["until"]) == tuple(DAY.values())
        fires = running.client.get(f"{path}/fires", {"limit": 1})
        older = running.client.get(
            f"{path}/fires", {"before": fires.json["page"]["next"]}
        )
        ids = [each["import_id"] for each in (*fires.items, *older.items)]
        assert ids == [second.json["import_id"], first.json["import_id"]]

    @pytest.mark.parametrize(
        ("body", "pointers"),
        [
            ({}, {"/from", "/until"}),
            ({"from": DAY["until"], "until": DAY["from"]}, {"/until"}),
            ({**DAY, "mode": "full"}, {"/mode"}),
            ({**DAY, "from": "yesterday"}, {"/from"}),
        ],
    )
    def test_a_range_has_two_ends(
        self, running: Running, body: dict[str, object], pointers: set[str]
    ):
        create(running)

        refused = running.client.post(f"{SCHEDULES}/hourly/backfill", body)

        assert refused.status == 422
        assert errors(refused).keys() == pointers

    def test_files_have_no_backfill(self, running: Running):
        create(running, dataset="shops", every="1h")

        refused = running.client.post(f"{SCHEDULES}/hourly/backfill", DAY)

        assert refused.status == 409
        assert "imported as a whole" in refused.json["detail"]
        assert running.stores.imports.recent(status=ImportStatus.RUNNING, limit=1) == []

    def test_what_is_not_there_cannot_be_run(self, running: Running):
        for name in ("nothing", "NO", "%00", "a%2Fb"):
            refused = running.client.ask("POST", f"{SCHEDULES}/{name}/run")
            assert refused.status == 404


class TestDeclared:
    @pytest.fixture
    def declared(self, running: Running) -> Iterator[str]:
        """Store a schedule as a process with another file has declared it."""
        penstock = running.api.penstock
        create(running, "nightly")
        stored = penstock.stores.schedules.get("nightly")
        schedule, _ = penstock.parse_schedule(stored.declaration)
        assert schedule is not None
        penstock.stores.schedules.delete("nightly")
        at = penstock.stores.jobs.now()
        penstock.stores.schedules.declare([(schedule, stored.declaration)], at=at)
        yield f"{SCHEDULES}/nightly"
        penstock.stores.schedules.declare([], at=at + timedelta(seconds=1))
        running.client.delete(f"{SCHEDULES}/nightly")

    def test_its_fields_are_those_of_the_file(self, running: Running, declared: str):
        patched = running.client.patch(declared, {"every": "2h"})
        deleted = running.client.delete(declared)

        assert (patched.status, deleted.status) == (409, 409)
        assert "declared in penstock.toml" in patched.json["detail"]

    def test_it_is_paused_and_run(self, running: Running, declared: str):
        paused = running.client.ask("POST", f"{declared}/pause")
        begun = running.client.ask("POST", f"{declared}/run")

        assert (paused.status, paused.json["status"]) == (200, ScheduleStatus.PAUSED)
        assert begun.status == 202
        at = datetime.fromisoformat(begun.json["created_at"])
        assert abs(running.stores.jobs.now() - at) < 10 * MINUTE

    def test_what_has_retired_is_not_resumed_but_deleted(
        self, running: Running, declared: str
    ):
        at = running.stores.jobs.now()
        running.stores.schedules.declare([], at=at)

        assert running.client.ask("POST", f"{declared}/resume").status == 409
        assert running.client.ask("POST", f"{declared}/run").status == 409
        assert running.client.delete(declared).status == 204
