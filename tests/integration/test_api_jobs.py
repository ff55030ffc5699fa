"""Clients look at jobs and budgets, and set going what has come to a halt."""

from datetime import timedelta

import pytest

from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import (
    ImportId,
    ImportStatus,
    JobError,
    JobId,
    Lease,
    Mode,
    WorkerId,
)
from penstock.entrypoints.api.resources import jobs as api_jobs
from penstock.entrypoints.api.resources.jobs import MAX_JOBS
from tests.contracts.workers import announce
from tests.support.api_client import OF
from tests.support.api_server import SECRET, Running
from tests.support.builders import batch, open_import

JOBS = "/api/v1/jobs"
BUDGETS = "/api/v1/budgets"


@pytest.fixture
def import_id(running: Running) -> int:
    """Start an import of three shards."""
    response = running.client.post(f"{OF}/poi/imports", {})
    running.wait_for(response.json["import_id"], ImportStatus.RUNNING)
    return int(response.json["import_id"])


def claim(running: Running) -> Lease:
    declarations = running.api.penstock.declarations(["poi"])
    (lease,) = running.stores.ledger.claim(
        WorkerId("ann"), declarations=declarations, region=None
    )
    return lease


def fail(running: Running, *, message: str = "gone") -> Lease:
    lease = claim(running)
    running.stores.ledger.fail(lease, JobError(code="rejected", message=message))
    return lease


def end(running: Running, import_id: int) -> None:
    running.api.penstock.finish(running.api.dataset("poi"), ImportId(import_id))


class TestLooking:
    def test_jobs_come_page_by_page(self, running: Running, import_id: int):
        request = {"import": import_id, "limit": 2}

        first = running.client.get(JOBS, request)
        second = running.client.get(first.headers["link"].split(">")[0].strip("<"))

        ids = [each["job_id"] for each in first.items]
        assert first.json["page"] == {"next": ids[-1], "has_more": True, "limit": 2}
        ids += [each["job_id"] for each in second.items]
        assert ids == sorted(ids)
        # those of the shards, after that of the plan
        assert len(ids) == 4
        assert [each["kind"] for each in first.items] == ["plan", "shard"]
        assert second.json["page"] == {"next": None, "has_more": False, "limit": 2}

    def test_jobs_are_found_by_what_they_are(self, running: Running, import_id: int):
        failed = fail(running)
        leased = claim(running)

        def found(**request: object) -> list[int]:
            response = running.client.get(JOBS, {"import": import_id, **request})
            return [each["job_id"] for each in response.items]

        assert found(status="failed") == [failed.job]
        assert found(status="leased") == [leased.job]
        assert len(found(dataset="poi", kind="shard")) == 3
        assert len(found(dataset="poi", kind="plan")) == 1
        assert found(dataset="news") == []
        assert found(after=leased.job, status="pending") != []

    def test_a_job_is_reported_with_its_lease_cursor_and_errors(
        self, running: Running, import_id: int
    ):
        poi = running.api.dataset("poi")
        lease, _ = running.stores.ledger.commit_page(
            poi, claim(running), batch(seen=7, dropped=7, cursor="c1")
        )
        running.stores.ledger.postpone(
            lease,
            JobError(code="source_unavailable", message=f"key {SECRET} timed out"),
            delay=timedelta(),
            blame=True,
        )
        # it comes behind those that nobody has begun
        lease = [claim(running) for _ in range(3)][-1]

        body = running.client.get(f"{JOBS}/{lease.job}").json

        assert (body["status"], body["lease_owner"]) == ("leased", "ann")
        assert (body["pages"], body["records"]["seen"]) == (1, 7)
        assert body["lease_until"] > body["created_at"]
        assert (body["cursor"], body["attempts"], body["fence"]) == ("c1", 1, 2)
        (error,) = body["errors"]
        assert error == body["last_error"]
        assert (error["code"], error["cursor"]) == ("source_unavailable", "c1")
        assert error["message"] == "key ${CANARY} timed out"

    @pytest.mark.parametrize(
        ("requested", "flaws"),
        [
            ({"limit": MAX_JOBS + 1}, {"?limit": "range"}),
            ({"after": -1}, {"?after": "range"}),
            ({"import": "x"}, {"?import": "range"}),
            ({"status": "planning"}, {"?status": "choice"}),
            ({"job": 1}, {"?job": "unknown-parameter"}),
        ],
    )
    def test_wrong_parameters_are_named(self, running: Running, requested, flaws):
        assert running.client.get(JOBS, requested).flaws == flaws

    @pytest.mark.parametrize("wrong", ["0", "x", str(2**63), str(2**63 - 1)])
    def test_there_is_nothing_at_other_addresses(self, running: Running, wrong):
        assert running.client.get(f"{JOBS}/{wrong}").status == 404
        assert running.client.ask("POST", f"{JOBS}/{wrong}/retry").status == 404

    def test_who_asks_for_a_job_that_is_not_there_is_reported_where_they_are(
        self, running: Running
    ):
        body = running.client.get(f"{JOBS}/{2**63 - 1}").json["detail"]

        assert body == f"there is no job {2**63 - 1}; see /api/v1/jobs"


class TestRetrying:
    def test_a_failed_job_goes_on_from_its_cursor(
        self, running: Running, import_id: int
    ):
        poi = running.api.dataset("poi")
        lease, _ = running.stores.ledger.commit_page(
            poi, claim(running), batch(cursor="c1")
        )
        fault = JobError(code="rejected", message="gone")
        running.stores.ledger.fail(lease, fault)

        response = running.client.ask("POST", f"{JOBS}/{lease.job}/retry")

        assert response.status == 200
        assert (response.json["status"], response.json["cursor"]) == ("pending", "c1")

    def test_its_import_runs_again(self, running: Running, import_id: int):
        leases = [fail(running) for _ in range(3)]
        end(running, import_id)
        known = running.stores.imports.peek(ImportId(import_id))
        assert known.status is ImportStatus.FAILED

        response = running.client.ask("POST", f"{JOBS}/{leases[0].job}/retry")

        assert response.status == 200
        running.wait_for(import_id, ImportStatus.RUNNING)

    def test_a_job_that_has_not_failed_is_left_alone(
        self, running: Running, import_id: int
    ):
        lease = claim(running)

        response = running.client.ask("POST", f"{JOBS}/{lease.job}/retry")

        assert response.status == 409
        assert "is leased" in response.json["detail"]
        assert running.stores.jobs.get(JobId(lease.job)).fence == lease.fence

    def test_a_newer_import_of_the_kind_is_in_the_way(
        self, running: Running, import_id: int
    ):
        lease, *_ = [fail(running) for _ in range(3)]
        end(running, import_id)
        assert running.client.post(f"{OF}/poi/imports", {}).status == 202

        response = running.client.ask("POST", f"{JOBS}/{lease.job}/retry")

        assert response.status == 409
        assert "newer import" in response.json["detail"]

    def test_all_failed_jobs_of_an_import_are_retried(
        self, running: Running, import_id: int
    ):
        for _ in range(2):
            fail(running)

        response = running.client.post(f"{JOBS}/retry", {"import_id": float(import_id)})

        assert response.status == 200
        wanted = {"import_id": import_id, "retried": 2, "has_more": False}
        assert response.json == wanted
        _, shards = running.stores.imports.get(ImportId(import_id))
        assert (shards.failed, shards.pending) == (0, 3)

    def test_only_so_many_at_a_time(
        self, running: Running, import_id: int, monkeypatch
    ):
        monkeypatch.setattr(api_jobs, "MAX_RETRIES", 2)
        for _ in range(3):
            fail(running)

        body = [
            running.client.post(f"{JOBS}/retry", {"import_id": import_id}).json
            for _ in range(2)
        ]

        assert [each["retried"] for each in body] == [2, 1]
        assert [each["has_more"] for each in body] == [True, False]

    @pytest.mark.parametrize(
        ("document", "flaws"),
        [
            ({}, {"/import_id": "missing"}),
            ([], {"/import_id": "missing"}),
            ({"import_id": "1"}, {"/import_id": "type"}),
            ({"import_id": True}, {"/import_id": "type"}),
            ({"import_id": 0}, {"/import_id": "type"}),
            ({"import_id": 1.5}, {"/import_id": "type"}),
            ({"import_id": None}, {"/import_id": "type"}),
            ({"import_id": 1, "all": 1}, {"/all": "unknown"}),
        ],
    )
    def test_flaws_are_named_by_their_place(self, running: Running, document, flaws):
        response = running.client.post(f"{JOBS}/retry", document)

        assert response.status == 422
        assert response.flaws == flaws

    def test_jobs_of_no_import_are_not_found(self, running: Running):
        response = running.client.post(f"{JOBS}/retry", {"import_id": 2**60})

        assert response.status == 404


class TestBudgets:
    def test_all_are_reported_with_what_is_left(self, running: Running):
        response = running.client.get(BUDGETS).items

        assert [each["name"] for each in response] == [
            "dataset:news",
            "dataset:shops",
            "practice",
        ]
        assert response[2]["state"] == "open"
        assert response[2]["limits"] == [{"rate": "5/s", "remaining": 1}]
        assert response[2]["reason"] is None

    def test_a_closed_one_says_why_and_how_long(self, running: Running):
        running.stores.budgets.close(
            "practice", wait=timedelta(minutes=5), reason="429"
        )

        response = running.client.get(BUDGETS).items[2]

        assert (response["state"], response["reason"]) == ("closed", "429")
        assert 200 < response["closed_seconds"] <= 300
        running.stores.budgets.open("practice")

    def test_a_stopped_one_is_opened(self, running: Running):
        running.stores.budgets.stop("practice", reason=f"401 {SECRET}")
        before = running.client.get(BUDGETS).items[2]

        response = running.client.ask("POST", f"{BUDGETS}/practice/open")

        assert (before["state"], before["reason"]) == ("stopped", "401 ${CANARY}")
        assert response.status == 200
        assert (response.json["state"], response.json["reason"]) == ("open", None)

    def test_one_that_is_not_there_is_not_found(self, running: Running):
        response = running.client.ask("POST", f"{BUDGETS}/ocm/open")

        assert response.status == 404
        assert (
            "there are: dataset:news, dataset:shops, practice"
            in response.json["detail"]
        )
        assert running.client.get(f"{BUDGETS}/practice/open").status == 405
        assert running.client.get(BUDGETS, {"name": "x"}).status == 400


def test_a_job_that_no_worker_would_take_is_not_retried(running: Running):
    imports, ledger = running.stores.imports, running.stores.ledger
    other, _ = imports.begin(
        running.api.dataset("poi"), ImportScope(mode=Mode.DELTA), declaration="another"
    )
    open_import(running.stores, other.id, ["a"])
    (lease,) = ledger.claim(
        WorkerId("ann"), declarations={"poi": "another"}, region=None
    )
    ledger.fail(lease, JobError(code="rejected", message="gone"))

    response = running.client.ask("POST", f"{JOBS}/{lease.job}/retry")

    assert response.status == 409
    assert "another declaration" in response.json["detail"]


class TestWorkers:
    def test_workers_are_listed_with_their_jobs(self, running: Running, import_id: int):
        announce(running.stores, WorkerId("ann"), region="eu", idle=timedelta())
        claim(running)

        (worker,) = running.client.get("/api/v1/workers").items

        assert (worker["id"], worker["region"], worker["jobs"]) == ("ann", "eu", 1)
        assert worker["last_claim_at"] == worker["last_seen_at"]

    def test_autoscalers_learn_how_many_workers_are_useful(
        self, running: Running, import_id: int
    ):
        claim(running)

        every = running.client.get("/api/v1/scaling", {"threads": 1}).json
        none = running.client.get("/api/v1/scaling", {"region": "us"}).json
        refused = running.client.get("/api/v1/scaling", {"threads": 0})

        assert (every["due_jobs"], every["leased_jobs"]) == (2, 1)
        assert every["useful_workers"] == every["useful_jobs"] == 3
        assert [region["region"] for region in every["regions"]] == [None]
        assert (none["useful_workers"], none["regions"]) == (0, [])
        assert refused.status == 400

    def test_jobs_of_a_closed_budget_need_no_worker(
        self, running: Running, import_id: int
    ):
        name = running.api.penstock.budget(running.api.dataset("poi")).name
        running.stores.budgets.stop(name, reason="the key was refused")

        found = running.client.get("/api/v1/scaling").json

        assert (found["due_jobs"], found["useful_workers"]) == (0, 0)
        assert found["regions"][0]["closed"] == [name]
