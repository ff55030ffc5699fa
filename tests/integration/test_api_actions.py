"""What operators do over the API and by commands is noted, with who it was."""

import pytest

from penstock.errors import StoreUnavailable
from tests.support.api_client import OF, ApiResponse
from tests.support.api_server import Running

ACTIONS = "/api/v1/actions"
SCHEDULE = {"name": "hourly", "dataset": "news", "every": "1h"}


@pytest.fixture(autouse=True)
def cleared(running: Running) -> None:
    running.cancel_all()


def actions(running: Running) -> list[tuple[str, str, str]]:
    found = running.client.get(ACTIONS, {"limit": 500})
    assert found.status == 200, found.json
    return [(each["name"], each["subject"], each["via"]) for each in found.items]


def started(running: Running, key: str) -> ApiResponse:
    return running.client.post(f"{OF}/poi/imports", {}, idempotency_key=key)


class TestActions:
    def test_actions_are_noted_with_what_they_were_done_to(self, running: Running):
        import_id = started(running, "once").json["import_id"]
        running.client.ask("POST", f"/api/v1/imports/{import_id}/cancel")

        assert actions(running)[:2] == [
            ("cancelImport", f"imports/{import_id}/cancel", "api"),
            ("startImport", f"imports/{import_id}", "api"),
        ]
        (newest,) = running.client.get(ACTIONS, {"limit": 1}).items
        assert newest["actor"] == "127.0.0.1"

    def test_a_request_that_is_repeated_is_one_action(self, running: Running):
        first = started(running, "twice")
        again = started(running, "twice")
        subject = f"imports/{first.json['import_id']}"

        assert again.headers["idempotency-replayed"] == "true"
        assert [each[1] for each in actions(running)].count(subject) == 1

    def test_requests_that_change_nothing_are_no_actions(self, running: Running):
        before = actions(running)

        assert running.client.ask("POST", "/api/v1/imports/999999/cancel").status == 404
        assert running.client.post(f"{OF}/nothing/imports", {}).status == 404
        assert running.client.get("/api/v1/imports").status == 200

        assert actions(running) == before

    def test_actions_come_page_by_page(self, running: Running):
        for number in range(3):
            started(running, f"page {number}".replace(" ", "-"))
            running.cancel_all()

        first = running.client.get(ACTIONS, {"limit": 2})
        second = running.client.get(first.headers["link"].split(">")[0].strip("<"))

        ids = [each["action_id"] for each in (*first.items, *second.items)]
        assert len(ids) >= 3
        assert ids == sorted(ids, reverse=True)

    def test_the_page_leads_to_what_it_names(self, running: Running):
        import_id = started(running, "shown").json["import_id"]

        html = running.client.get("/actions", x_penstock_fragment="fresh").body.decode()

        assert "startImport" in html
        assert f'href="/imports/{import_id}"' in html

    def test_an_action_stands_although_it_cannot_be_noted(
        self, running: Running, monkeypatch
    ):
        """It has been done already, and is in the log."""

        def fail(action: object) -> None:
            raise StoreUnavailable("away")

        monkeypatch.setattr(running.stores.actions, "add", fail)

        assert started(running, "unnoted").status == 202
