"""Clients start imports, once however often they ask, and see what becomes of them."""

import csv
import dataclasses
import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from secrets import token_hex

import pytest

from penstock.domain.auth_claims import AccessScope as Access
from penstock.domain.events import Event, RequestFailed
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import ImportId, ImportStatus, Mode, WorkerId
from penstock.domain.pages import Proof, Reason, Rejection
from penstock.entrypoints.api.concurrency.background import PLAN_THREADS
from penstock.entrypoints.api.openapi.import_shapes import MAX_IMPORTS
from penstock.entrypoints.api.resources.start_import import (
    PlanInterruptedImports,
    digest_of,
)
from penstock.ports.idempotency import IdempotentRequest, ImportSpec, RequestClaim
from penstock.wiring.auth import signer_of
from tests.contracts.workers import announce
from tests.support.api_client import OF, ApiResponse
from tests.support.api_server import SECRET, Running, running_api
from tests.support.builders import ANN, batch
from tests.support.workshop import wait_until

POI = f"{OF}/poi/imports"
NEWS = f"{OF}/news/imports"
SHOPS = f"{OF}/shops/imports"
OF_SHOPS = "/api/v1/imports?dataset=shops"
IMPORTS = "/api/v1/imports"


def start(
    running: Running, path: str = POI, key: str = "", **request: str
) -> ApiResponse:
    headers = {"Idempotency-Key": key} if key else {}
    return running.client.ask("POST", path, document=request, headers=headers)


def started(running: Running, path: str = POI, **request: str) -> int:
    response = start(running, path, **request)
    assert response.status == 202, response.body
    import_id = response.json["import_id"]
    running.wait_for(import_id, ImportStatus.RUNNING)
    return int(import_id)


def newest(running: Running) -> int:
    found = running.client.get(IMPORTS, {"limit": 1}).items
    return int(found[0]["import_id"]) if found else 0


class TestStarting:
    def test_an_import_is_planned_after_the_answer(self, running: Running):
        response = start(running)

        assert response.status == 202
        assert response.json["dataset"] == "poi"
        assert (response.json["mode"], response.json["resumed"]) == ("full", False)
        assert response.headers["location"] == f"{IMPORTS}/{response.json['import_id']}"
        assert "idempotency-replayed" not in response.headers
        running.wait_for(response.json["import_id"], ImportStatus.RUNNING)
        known = running.client.get(response.headers["location"]).json
        assert known["shards"]["pending"] == 3

    def test_an_import_may_accept_rows_that_overwrite_each_other(
        self, running: Running
    ):
        response = running.client.post(POI, {"accept_duplicates": True})

        assert response.status == 202, response.body
        import_id = ImportId(response.json["import_id"])
        assert running.stores.imports.peek(import_id).accepts_duplicates

    def test_an_import_says_what_it_waits_for(self, running: Running):
        import_id = started(running)
        poi = running.api.dataset("poi")

        alone = running.client.get(f"{IMPORTS}/{import_id}").json["waiting"]
        announce(
            running.stores,
            WorkerId("ann"),
            poi=running.api.penstock.declarations(["poi"])["poi"],
        )
        worked = running.client.get(f"{IMPORTS}/{import_id}").json["waiting"]
        running.stores.budgets.close(
            running.api.penstock.budget(poi).name,
            wait=timedelta(minutes=9),
            reason="the provider answered 429",
        )
        (listed,) = running.client.get(IMPORTS, {"limit": 1}).items
        running.stores.budgets.open(running.api.penstock.budget(poi).name)
        running.stores.workers.remove(WorkerId("ann"))

        assert (alone["reason"], alone["until"]) == ("no_worker", None)
        assert worked is None
        assert listed["waiting"]["reason"] == "budget_closed"
        assert "the provider answered 429" in listed["waiting"]["detail"]
        assert listed["waiting"]["until"] > listed["created_at"]

    def test_an_unfinished_one_is_taken_up(self, running: Running):
        first = started(running)

        response = start(running)

        assert (response.json["import_id"], response.json["resumed"]) == (first, True)

    def test_a_part_of_time_is_imported(self, running: Running):
        bounds = {"from": "2026-02-01T00:00:00Z", "until": "2026-02-04T00:00:00+00:00"}

        response = start(running, NEWS, mode="backfill", **bounds)

        assert response.status == 202, response.body
        assert response.json["since"] == "2026-02-01T00:00:00Z"
        assert response.json["until"] == "2026-02-04T00:00:00Z"
        running.wait_for(response.json["import_id"], ImportStatus.RUNNING)
        _, shards = running.stores.imports.get(response.json["import_id"])
        assert shards.total == 3

    def test_an_unfinished_one_of_other_bounds_is_in_the_way(self, running: Running):
        start(running, NEWS, mode="delta", **{"from": "2026-02-01T00:00:00Z"})

        response = start(
            running, NEWS, mode="delta", **{"from": "2026-02-02T00:00:00Z"}
        )

        assert response.status == 409
        assert "is unfinished and covers" in response.json["detail"]

    def test_what_cannot_be_requested_now_is_refused_in_words_of_the_api(
        self, running: Running
    ):
        response = start(running, POI, mode="delta")

        assert response.status == 409
        assert "use mode full" in response.json["detail"]

    def test_a_file_that_is_missing_is_a_problem_and_nothing_is_stored(
        self, running: Running
    ):
        for file in running.folder.glob("shops-*.csv"):
            file.unlink()
        before = running.client.get(OF_SHOPS).json["items"]
        response = start(running, SHOPS)

        assert response.status == 409
        assert "no file matches shops-*.csv" in response.json["detail"]
        assert running.client.get(OF_SHOPS).json["items"] == before

    @pytest.mark.parametrize(
        ("document", "flaws"),
        [
            ({"mod": "full"}, {"/mod": "unknown"}),
            ({"mode": "fast"}, {"/mode": "choice"}),
            ({"mode": ["full"]}, {"/mode": "choice"}),
            ({"mode": "delta", "from": "2026-02-01"}, {"/from": "type"}),
            ({"mode": "delta", "from": 7}, {"/from": "type"}),
            ({"mode": "delta", "from": "9999-01-01T00:00:00Z"}, {"/from": "type"}),
            ({"from": "2026-02-01T00:00:00Z"}, {"/from": "misplaced"}),
            ({"until": "2026-02-01T00:00:00Z"}, {"/until": "misplaced"}),
            ({"mode": "backfill"}, {"/from": "missing"}),
            ({"accept_duplicates": 1}, {"/accept_duplicates": "type"}),
            (
                {"mode": "delta", "accept_duplicates": True},
                {"/accept_duplicates": "misplaced"},
            ),
            ([], {"/": "type"}),
            ("full", {"/": "type"}),
        ],
    )
    def test_flaws_are_named_by_their_place(self, running: Running, document, flaws):
        response = running.client.post(NEWS, document)

        assert response.status == 422
        assert response.flaws == flaws

    def test_a_backfill_ends_after_it_begins(self, running: Running):
        at = "2026-02-01T00:00:00Z"

        response = start(running, NEWS, mode="backfill", until=at, **{"from": at})

        assert response.status == 409
        assert response.json["detail"] == "until must be later than from"

    @pytest.mark.parametrize(
        ("headers", "body", "status"),
        [
            ({"Content-Type": "text/csv"}, b"uid\n1\n", 415),
            ({"Content-Type": ""}, b"", 415),
            ({"Content-Type": "application/json"}, b"{", 400),
            ({"Content-Type": "application/json"}, b"", 400),
            ({"Content-Type": "application/json"}, b"[" * 100_000, 413),
        ],
        ids=["another type", "no type", "no JSON", "nothing", "too much"],
    )
    def test_what_is_no_body_of_ours_is_refused(
        self, running: Running, headers, body, status
    ):
        response = running.client.ask("POST", POI, body=body, headers=headers)

        assert response.status == status

    def test_addresses_are_held_against_what_there_is(self, running: Running):
        assert start(running, f"{OF}/nothing/imports").status == 404
        response = running.client.ask("POST", POI, document={}, query={"mode": "full"})
        assert response.flaws == {"?mode": "unknown-parameter"}
        assert running.client.get(POI).status == 405


def test_what_goes_wrong_with_a_plan_is_reported_by_the_id_that_its_client_knows(
    running: Running, monkeypatch
):
    class Broken:
        def __getattr__(self, name: str) -> object:
            return getattr(running.api.penstock.plan, name)

        def axes(self, *_: object, **__: object) -> None:
            raise ZeroDivisionError

    events: list[Event] = []
    start_import = running.api.penstock.start_import
    broken = dataclasses.replace(start_import, plan=Broken())  # type: ignore[arg-type]
    monkeypatch.setitem(vars(running.api.penstock), "start_import", broken)
    monkeypatch.setattr(running.api.background, "_emit", events.append)

    (running.folder / "shops-1.csv").write_bytes(b"id,name\n1,a\n")
    answer = start(running, SHOPS)

    wait_until(lambda: events)
    assert isinstance(events[0], RequestFailed)
    assert events[0].trace_id == answer.headers["x-trace-id"]


class TestAPlanLeftBehind:
    """By a process that began an import, and is gone."""

    def begun(self, running: Running) -> ImportId:
        poi = running.api.dataset("poi")
        ask = IdempotentRequest(
            scope="ann imports poi", key=token_hex(8), digest=b"full"
        )
        claim = running.stores.requests.claim(ask)
        assert isinstance(claim, RequestClaim)
        wanted = ImportSpec(
            scope=ImportScope(mode=Mode.FULL),
            declaration=running.api.penstock.declaration(poi),
            approve=lambda *_: None,
        )
        return running.stores.requests.begin(claim, poi, wanted).import_.id

    def test_another_goes_on_with_it(self, running: Running):
        import_id = self.begun(running)

        PlanInterruptedImports(running.api.penstock, running.api.background)()

        running.wait_for(import_id, ImportStatus.RUNNING)

    def test_none_does_while_somebody_plans_it(self, running: Running):
        import_id = self.begun(running)
        assert running.stores.plans.claim(import_id, ANN)

        PlanInterruptedImports(running.api.penstock, running.api.background)()

        assert running.api.background._planned == set()
        known = running.stores.imports.peek(import_id)
        assert known.status is ImportStatus.PLANNING


class TestAskingAgain:
    def test_the_same_request_has_the_same_answer(self, running: Running):
        first = start(running, key="one")
        again = start(running, key="one")

        assert (first.status, again.status) == (202, 202)
        assert again.body == first.body
        assert again.headers["location"] == first.headers["location"]
        assert again.headers["idempotency-replayed"] == "true"
        assert newest(running) == first.json["import_id"]

    def test_it_has_even_after_the_import_has_ended(self, running: Running):
        first = start(running, key="two")
        running.stores.imports.cancel(first.json["import_id"], reason="enough")

        again = start(running, key="two")

        assert again.body == first.body
        assert newest(running) == first.json["import_id"]

    def test_another_request_with_the_same_key_is_refused(self, running: Running):
        start(running, NEWS, key="three", mode="full")

        response = start(running, NEWS, key="three", mode="delta")

        assert response.status == 422
        assert response.json["code"] == "key-reused"

    def test_keys_of_one_dataset_are_none_of_another(self, running: Running):
        first = start(running, POI, key="four")
        other = start(running, NEWS, key="four")

        assert first.json["dataset"] == "poi"
        assert other.json["dataset"] == "news"
        assert "idempotency-replayed" not in other.headers

    def test_while_the_first_is_worked_on_others_wait(self, running: Running):
        # somebody has taken it up, and has not answered yet
        digest = digest_of(ImportScope(mode=Mode.FULL))
        held = running.stores.requests.claim(
            IdempotentRequest(scope=" imports poi", key="six", digest=digest)
        )

        response = start(running, key="six")

        assert response.status == 409
        assert response.headers["retry-after"] == "1"
        assert isinstance(held, RequestClaim)
        running.stores.requests.give_up(held)
        assert start(running, key="six").status == 202

    def test_of_many_at_once_one_makes_an_import(self, running: Running):
        before = newest(running)
        with ThreadPoolExecutor(8) as pool:
            results = [*pool.map(lambda _: start(running, key="seven"), range(16))]

        assert {each.status for each in results} <= {202, 409}
        answered = {each.body for each in results if each.status == 202}
        assert len(answered) == 1
        fresh = [
            each
            for each in results
            if each.status == 202 and "idempotency-replayed" not in each.headers
        ]
        assert len(fresh) == 1
        assert newest(running) == before + 1

    def test_a_request_that_was_refused_can_be_mended(self, running: Running):
        assert start(running, NEWS, key="eight", mode="delta").status == 409
        assert start(running, NEWS, key="eight", mode="full").status == 202

    @pytest.mark.parametrize("key", ["", " ", "two words", "k" * 256, "schlüssel"])
    def test_a_key_has_visible_characters(self, running: Running, key):
        headers = {"Idempotency-Key": key.encode().decode("latin-1")}

        response = running.client.ask("POST", POI, document={}, headers=headers)

        assert response.status == 400
        assert response.flaws == {"#Idempotency-Key": "value"}

    @pytest.mark.parametrize("key", ["a", "k" * 255, '"8e03978e-40d5"', "!~"])
    def test_any_other_key_is_taken(self, running: Running, key):
        assert start(running, key=key).status == 202
        assert start(running, key=key).headers["idempotency-replayed"] == "true"


def test_a_request_is_recognised_by_the_digest_of_earlier_versions():
    start, end = (datetime(2026, month, 1, tzinfo=UTC) for month in (1, 2))
    scope = ImportScope(mode=Mode.BACKFILL, since=start, until=end)

    # as version 0.1.0 stored it
    assert digest_of(scope).hex() == "0ac965b2ff8fcf07e2abd2f768d86fb8"


class TestLooking:
    def test_imports_come_page_by_page_the_newest_first(self, running: Running):
        ids = []
        for _ in range(5):
            ids.append(started(running))
            running.stores.imports.cancel(ImportId(ids[-1]), reason="enough")
        request = {"dataset": "poi", "limit": 2}

        first = running.client.get(IMPORTS, request)
        second = running.client.get(first.headers["link"].split(">")[0].strip("<"))

        assert [each["import_id"] for each in first.items] == [ids[4], ids[3]]
        assert first.json["page"] == {"next": ids[3], "has_more": True, "limit": 2}
        assert first.headers["link"] == (
            f'<{IMPORTS}?dataset=poi&limit=2&before={ids[3]}>; rel="next"'
        )
        assert [each["import_id"] for each in second.items] == [ids[2], ids[1]]
        last = running.client.get(IMPORTS, {"limit": 1, "before": 1})
        assert last.items == []
        assert last.json["page"]["next"] is None
        assert "link" not in last.headers

    def test_imports_are_found_by_dataset_and_state(self, running: Running):
        poi, news = started(running), started(running, NEWS)

        def found(**request: str) -> list[int]:
            response = running.client.get(IMPORTS, request)
            return [each["import_id"] for each in response.items]

        assert found(status="running") == [news, poi]
        assert found(status="running", dataset="poi") == [poi]
        assert found(status="planning") == []
        assert found(dataset="nothing") == []

    def test_an_import_is_reported_as_the_command_line_tells_it(self, running: Running):
        import_id = started(running)

        body = running.client.get(f"{IMPORTS}/{import_id}").json
        listed = running.client.get(IMPORTS, {"limit": 1}).items[0]

        progress = body.pop("progress")
        assert body == listed
        assert body == running.api.progress_tracker.document(
            *running.stores.imports.get(ImportId(import_id))
        )
        assert (progress["unit"], progress["done"], progress["total"]) == (
            "shards",
            0,
            3,
        )
        assert (progress["share"], progress["seconds_left"]) == (0.0, None)

    def test_progress_tells_pace_and_what_is_left(self, running: Running):
        import_id = started(running)
        work_one(running, rows=500)
        body = running.client.get(f"{IMPORTS}/{import_id}").json["progress"]

        assert (body["done"], body["share"]) == (1, 0.3333)
        assert body["rows_per_second"] > 0
        assert body["requests_per_second"] > 0
        assert body["seconds_left"] >= 0

    @pytest.mark.parametrize(
        ("requested", "flaws"),
        [
            ({"limit": MAX_IMPORTS + 1}, {"?limit": "range"}),
            ({"limit": 0}, {"?limit": "range"}),
            ({"limit": "ten"}, {"?limit": "range"}),
            ({"before": 0}, {"?before": "range"}),
            ({"before": 2**63}, {"?before": "range"}),
            ({"status": "lost"}, {"?status": "choice"}),
            ({"stat": "done"}, {"?stat": "unknown-parameter"}),
            ({"limit": [1, 2]}, {"?limit": "repeated"}),
        ],
    )
    def test_wrong_parameters_are_named(self, running: Running, requested, flaws):
        response = running.client.get(IMPORTS, requested)

        assert response.status == 400
        assert response.flaws == flaws

    @pytest.mark.parametrize("wrong", ["0", "-1", "x", "1.0", str(2**63), "9" * 400])
    @pytest.mark.parametrize("rest", ["", "/events", "/errors.csv"])
    def test_there_is_nothing_at_other_addresses(self, running: Running, wrong, rest):
        assert running.client.get(f"{IMPORTS}/{wrong}{rest}").status == 404

    def test_an_import_that_is_not_there_is_not_found(self, running: Running):
        missing = f"{IMPORTS}/{2**63 - 1}"
        for path in ("", "/events", "/errors.csv"):
            response = running.client.get(missing + path)
            assert response.status == 404
            assert response.json["detail"].endswith("; see /api/v1/imports")
        assert running.client.ask("POST", f"{missing}/cancel").status == 404


def wait_for(event: threading.Event) -> None:
    assert event.wait(20)


class TestCancelling:
    def test_an_import_is_cancelled_with_its_jobs(self, running: Running):
        import_id = started(running)

        response = running.client.ask("POST", f"{IMPORTS}/{import_id}/cancel")

        assert response.status == 200
        assert (response.json["import_id"], response.json["status"]) == (
            import_id,
            "cancelled",
        )
        assert response.json["shards"]["cancelled"] == 3

    def test_again_it_is_the_same(self, running: Running):
        path = f"{IMPORTS}/{started(running)}/cancel"

        first = running.client.ask("POST", path)

        assert running.client.ask("POST", path, document={}).body == first.body

    def test_one_that_has_ended_is_left_alone(self, running: Running):
        import_id = started(running)
        for _ in range(3):
            work_one(running)
        running.api.penstock.finish(running.api.dataset("poi"), ImportId(import_id))

        response = running.client.ask("POST", f"{IMPORTS}/{import_id}/cancel")

        assert response.status == 409
        assert response.json["detail"] == f"import {import_id} is already done"

    def test_nothing_else_is_read(self, running: Running):
        path = f"{IMPORTS}/{started(running)}/cancel"

        assert running.client.post(path, {"why": "so"}).status == 422
        assert running.client.get(path).status == 405

    def test_it_does_not_wait_for_plans_and_files_of_others(self, running: Running):
        import_id = started(running)
        let_go = threading.Event()
        for _ in range(PLAN_THREADS):
            running.api.background.submit_once(partial(wait_for, let_go), trace_id="t")
        try:
            response = running.client.ask("POST", f"{IMPORTS}/{import_id}/cancel")
        finally:
            let_go.set()

        assert response.status == 200, response.body

    def test_it_is_refused_early_where_too_much_waits(
        self, running: Running, monkeypatch
    ):
        import_id = started(running)
        monkeypatch.setattr(running.api.background, "_max_open", 0)

        response = running.client.ask("POST", f"{IMPORTS}/{import_id}/cancel")

        assert response.status == 503
        assert response.headers["retry-after"] == "1"
        assert running.client.get("/api/health").status == 200


class TestBadRows:
    def test_they_come_as_csv_that_is_safe_in_a_spreadsheet(self, running: Running):
        import_id = with_bad_rows(running, ["=1+1", "plain", 'a "b", c'])

        response = running.client.get(f"{IMPORTS}/{import_id}/errors.csv")

        assert response.headers["content-type"] == "text/csv; charset=utf-8"
        assert response.headers["content-disposition"] == (
            f'attachment; filename="import-{import_id}-errors.csv"'
        )
        rows = [*csv.DictReader(io.StringIO(response.body.decode()))]
        assert [each["value"] for each in rows] == ["'=1+1", "plain", 'a "b", c']
        assert {each["reason"] for each in rows} == {"pattern"}
        assert [*rows[0]][:4] == ["file", "line", "offset", "field"]

    def test_raw_ones_are_as_they_were(self, running: Running):
        import_id = with_bad_rows(running, ["=1+1"])

        path = f"{IMPORTS}/{import_id}/errors.csv"
        response = running.client.get(path, {"raw": "true"})

        (row,) = csv.DictReader(io.StringIO(response.body.decode()))
        assert row["value"] == "=1+1"
        assert running.client.get(path, {"raw": "yes"}).flaws == {"?raw": "type"}

    def test_many_come_in_their_order(self, running: Running):
        values = [f"v{number:04}" for number in range(1234)]
        import_id = with_bad_rows(running, values)

        response = running.client.get(f"{IMPORTS}/{import_id}/errors.csv")

        rows = csv.DictReader(io.StringIO(response.body.decode()))
        assert [each["value"] for each in rows] == values

    def test_without_any_there_is_a_header(self, running: Running):
        path = f"{IMPORTS}/{started(running)}/errors.csv"

        assert running.client.get(path).body.count(b"\r\n") == 1
        assert running.client.ask("HEAD", path).status == 200


class TestSecrets:
    def test_no_answer_shows_one(self, running: Running):
        import_id = started(running)
        text = f"the provider said {SECRET}"
        running.stores.imports.cancel(ImportId(import_id), reason=text)
        running.stores.budgets.stop("practice", reason=text)

        for path in (IMPORTS, f"{IMPORTS}/{import_id}", "/api/v1/budgets"):
            body = running.client.get(path).body
            assert b"the provider said ${CANARY}" in body
            assert SECRET.encode() not in body
        running.stores.budgets.open("practice")


AUTH = """
[auth]
issuer = "penstock"
audience = "penstock"
secret = "a secret of more than thirty-two bytes, yes"
"""


def test_keys_of_one_client_are_none_of_another(tmp_path):
    text = 'database = "sqlite:///penstock.db"'
    with running_api(tmp_path, text, more=AUTH) as running:
        signer = signer_of(running.api.penstock.settings)

        def ask(subject: str, *scopes: Access) -> ApiResponse:
            signed = signer.sign(subject, scopes, lifetime=timedelta(minutes=1))
            headers = {
                "Authorization": f"Bearer {signed.token}",
                "Idempotency-Key": "same",
            }
            return running.client.ask("POST", POI, document={}, headers=headers)

        first = ask("ann", Access.OPERATE)
        other = ask("ben", Access.OPERATE)
        # with another token of hers
        again = ask("ann", Access.OPERATE, Access.WRITE)

        assert (first.status, other.status) == (202, 202)
        assert "idempotency-replayed" not in other.headers
        assert again.headers["idempotency-replayed"] == "true"
        assert again.body == first.body
        assert ask("ann", Access.READ, Access.WRITE).status == 403
        assert start(running).status == 401


def test_a_plan_that_was_broken_off_goes_on_with_the_next_process(tmp_path):
    text = 'database = "sqlite:///penstock.db"'
    ask = IdempotentRequest(scope=" imports poi", key="k", digest=b"d")
    with running_api(tmp_path, text) as first:
        poi = first.api.dataset("poi")
        wanted = ImportSpec(
            scope=ImportScope(mode=Mode.FULL),
            declaration=first.api.penstock.declaration(poi),
            approve=lambda *_: None,
        )
        claim = first.stores.requests.claim(ask)
        assert isinstance(claim, RequestClaim)
        begun = first.stores.requests.begin(claim, poi, wanted).import_
        assert begun.status is ImportStatus.PLANNING

    with running_api(tmp_path, text) as second:
        second.wait_for(begun.id, ImportStatus.RUNNING)

        _, shards = second.stores.imports.get(begun.id)
        assert shards.total == 3


def work_one(running: Running, *, rows: int = 1) -> None:
    """Work the next job of `poi` to its end."""
    poi = running.api.dataset("poi")
    declarations = running.api.penstock.declarations(["poi"])
    ledger = running.stores.ledger
    (lease,) = ledger.claim(WorkerId("ann"), declarations=declarations, region=None)
    page = batch(proof=Proof.EMPTY_PAGE, seen=rows, dropped=rows)
    ledger.commit_page(poi, dataclasses.replace(lease, sent=2), page)


def with_bad_rows(running: Running, values: list[str]) -> int:
    """Import these, none of which is good."""
    import_id = started(running)
    poi = running.api.dataset("poi")
    rejections = [
        Rejection(
            position=position,
            reason=Reason.PATTERN,
            detail="does not match",
            raw=b'{"ID": 1, "Title": %s}' % json_text(value),
            field="title",
        )
        for position, value in enumerate(values)
    ]
    declarations = running.api.penstock.declarations(["poi"])
    ledger = running.stores.ledger
    (lease,) = ledger.claim(WorkerId("ann"), declarations=declarations, region=None)
    ledger.commit_page(poi, lease, batch(rejections=rejections, proof=Proof.EMPTY_PAGE))
    return import_id


def json_text(text: str) -> bytes:
    return json.dumps(text).encode()
