"""The dashboard as a browser gets it: whole pages, their content, and their files."""

import re
import time
from datetime import timedelta
from html import unescape

import pytest

from penstock.domain.jobs import (
    Claim,
    ClaimOutcome,
    Fence,
    ImportId,
    ImportStatus,
    JobError,
    Lease,
    Shards,
    WorkerId,
)
from penstock.domain.rollups import Sample, Subject, SubjectKind
from penstock.entrypoints.dashboard.page_cache import PageCache
from penstock.entrypoints.dashboard.pages import timeline
from penstock.entrypoints.dashboard.pages.explore import with_operator
from penstock.entrypoints.dashboard.pages.imports import draw_buckets
from penstock.entrypoints.dashboard.pages.jobs import tell_history
from penstock.entrypoints.dashboard.rendering import duration, number, span, visible
from penstock.ports.schedules import ScheduleStatus
from tests.contracts.workers import announce
from tests.support.api_client import OF
from tests.support.api_server import FORM, SECRET, Running
from tests.support.builders import SECOND, Clock
from tests.support.workshop import wait_until

FILES = ("dashboard.css", "dashboard.js", "upload.js", "favicon.svg")


def page(running: Running, path: str = "/") -> str:
    """Return the content as it is now; other watchers may get that of a second ago."""
    response = running.client.get(path, x_penstock_fragment="fresh")
    assert response.status == 200
    return response.body.decode()


def wait_for(running: Running, text: str) -> str:
    """Return a page that shows a text."""
    wait_until(lambda: text in page(running), within=20)
    return page(running)


def test_all_watchers_share_a_page_for_a_moment():
    clock = Clock()
    cache = PageCache(monotonic=lambda: clock().timestamp())
    rendered: list[str] = []

    def render() -> str:
        rendered.append("page")
        return "page"

    cache.get("/", render)
    clock.pass_time(SECOND / 2)
    cache.get("/", render)
    assert len(rendered) == 1
    cache.get("/", render, is_fresh=True)
    clock.pass_time(SECOND)
    cache.get("/", render)

    assert len(rendered) == 3


def test_a_page_is_whole_and_runs_nothing_foreign(running: Running):
    response = running.client.get("/")

    html = response.body.decode()
    assert response.headers["content-type"].startswith("text/html")
    policy = response.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert re.findall(r"<script(?! type=\"module\" src=\"/)|<style| on\w+=", html) == []
    assert re.findall(r"(?:href|src)=\"(?!/|#)[^\"]*", html) == []


@pytest.mark.parametrize("name", FILES)
def test_its_files_are_served_and_known_again(running: Running, name: str):
    first = running.client.get(f"/assets/{name}")
    again = running.client.get(f"/assets/{name}", if_none_match=first.headers["etag"])

    assert (first.status, again.status) == (200, 304)
    assert running.client.get("/assets/../overview.py").status == 404


def test_a_page_asks_for_its_content_only(running: Running):
    content = running.client.get("/", x_penstock_fragment="1")

    html = content.body.decode()
    assert "<html" not in html
    assert "<h1>Overview</h1>" in html
    assert content.headers["vary"] == "x-penstock-fragment"
    assert "<html" in running.client.get("/").body.decode()


def test_the_overview_shows_imports_and_what_they_wait_for(running: Running):
    started = running.client.post(f"{OF}/poi/imports", {})
    running.wait_for(started.json["import_id"], ImportStatus.RUNNING)

    html = wait_for(running, f"full import {started.json['import_id']}")

    assert "no worker" in html


def test_what_is_broken_needs_attention(running: Running):
    name = running.api.penstock.budget(running.api.dataset("poi")).name
    running.stores.budgets.stop(name, reason="<script>alert(1)</script>")
    try:
        html = wait_for(running, f"budget {name} is stopped")
    finally:
        running.stores.budgets.open(name)

    assert "&lt;script&gt;" in html
    assert "<script>alert" not in html


def test_paused_schedules_need_attention(running: Running):
    created = running.client.post(
        "/api/v1/schedules", {"name": "hourly", "dataset": "poi", "every": "1h"}
    )
    assert created.status == 201
    running.stores.schedules.set_status(
        "hourly", ScheduleStatus.PAUSED, note="while they move"
    )

    wait_for(running, "schedule hourly is paused: while they move")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(seconds=0.4), "0 s"),
        (timedelta(seconds=61), "1 min 1 s"),
        (timedelta(hours=2), "2 h"),
        (timedelta(days=2, seconds=5), "2 d"),
        (3_725, "1 h 2 min"),
        (None, "\N{EN DASH}"),
    ],
)
def test_durations_are_written_in_two_units(value, text):
    assert duration(value).replace("\xa0", " ") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(timedelta(0), "0 ms"), (0.25 * SECOND, "250 ms"), (1.26 * SECOND, "1.3 s"),
     (61 * SECOND, "1 min 1 s")],
)  # fmt: skip
def test_short_spans_are_written_with_parts_of_a_second(value, text):
    assert span(value).replace("\xa0", " ") == text


def test_numbers_have_groups_and_control_characters_are_seen():
    assert number(1_234_567).replace("\u202f", " ") == "1 234 567"
    assert number(2.25) == "2.2"
    assert visible("a\x00b\u202ec") == "a␀b␚c"


class TestImports:
    def test_an_import_shows_its_coverage_and_what_can_be_done(self, running: Running):
        started = running.client.post(f"{OF}/poi/imports", {}).json["import_id"]
        running.wait_for(started, ImportStatus.RUNNING)
        fail_one(running)

        html = page(running, f"/imports/{started}")

        assert "0 of 3 shards done, 0 running, 1 failed, 2 open" in html
        assert "Retry 1 failed" in html
        assert f'data-post="/api/v1/imports/{started}/cancel"' in html
        assert "the provider says &lt;b&gt;no&lt;/b&gt;" in html

    def test_an_import_shows_who_worked_when(self, running: Running):
        started = running.client.post(f"{OF}/poi/imports", {}).json["import_id"]
        running.wait_for(started, ImportStatus.RUNNING)
        path = f"/imports/{started}"
        # its planner has, before any worker
        assert "<title>plan: done" in page(running, path)
        lease = claim_one(running, "<i>ann</i>\u202e")
        fail_one(running)

        html = page(running, path)

        assert "&lt;i&gt;ann&lt;/i&gt;\N{SYMBOL FOR SUBSTITUTE}: 1 running" in html
        assert "<title>country:1: running" in html
        assert "<title>country:2: failed" in html
        assert f'data-go="/jobs/{lease.job}"' in html
        assert f'href="/jobs/{lease.job}"' in html
        assert "<i>ann" not in html

    def test_a_timeline_of_many_claims_is_drawn_in_bundles(
        self, running: Running, monkeypatch
    ):
        monkeypatch.setattr(timeline, "MAX_BARS", 1)
        monkeypatch.setattr(timeline, "MAX_CLAIMS", 2)
        started = running.client.post(f"{OF}/poi/imports", {}).json["import_id"]
        running.wait_for(started, ImportStatus.RUNNING)
        for _ in range(3):
            fail_one(running)
            # claims of one moment are in one picture
            time.sleep(0.01)

        html = page(running, f"/imports/{started}")

        assert "filled in proportion to how they ended" in html
        assert "ann: 2 failed" in html
        link = re.search(r'href="(\?before=[^"]+)">Earlier', html)
        assert link is not None
        earlier = page(running, f"/imports/{started}{link[1]}")
        assert "ann: 1 failed" in earlier
        assert "The last ones" in earlier

    def test_the_time_of_a_timeline_must_be_one(self, running: Running):
        assert running.client.get("/imports/1?before=noon").status == 400

    def test_imports_are_listed_by_dataset_and_state(self, running: Running):
        started = running.client.post(f"{OF}/poi/imports", {}).json["import_id"]
        running.wait_for(started, ImportStatus.RUNNING)

        link = f'href="/imports/{started}"'
        assert link in page(running, "/imports?dataset=poi&status=running")
        assert link not in page(running, "/imports?dataset=shops")

    def test_an_import_that_is_not_there_is_not_found(self, running: Running):
        assert running.client.get("/imports/999999").status == 404


def fail_one(running: Running) -> None:
    lease = claim_one(running, "ann")
    error = JobError(code="rejected", message="the provider says <b>no</b>")
    running.stores.ledger.fail(lease, error)


class TestShards:
    @pytest.fixture
    def started(self, running: Running) -> str:
        started = running.client.post(f"{OF}/poi/imports", {}).json["import_id"]
        running.wait_for(started, ImportStatus.RUNNING)
        return f"/imports/{started}/shards"

    def test_only_missing_and_failed_ones_are_listed_at_first(
        self, running: Running, started: str
    ):
        lease = claim_one(running, "ann")
        fail_one(running)

        missing = page(running, started)
        everything = page(running, f"{started}?show=all")

        link = f'href="/jobs/{lease.job}"'
        assert link not in missing
        assert f'href="/jobs/{lease.job + 1}"' in missing
        assert "the provider says &lt;b&gt;no&lt;/b&gt;" in missing
        assert link in everything

    def test_a_cell_lists_its_shards_alone(self, running: Running, started: str):
        first = claim_one(running, "ann").job + 1

        html = page(running, f"{started}?first={first}&last={first}")

        assert f'href="/jobs/{first}"' in html
        assert f'href="/jobs/{first + 1}"' not in html
        assert running.client.get(f"{started}?first=1").status == 400

    def test_an_import_with_one_axis_has_no_matrix(
        self, running: Running, started: str
    ):
        assert 'role="grid"' not in page(running, started)


class TestJobs:
    def test_a_job_shows_who_had_it_and_how_that_ended(self, running: Running):
        started = running.client.post(f"{OF}/poi/imports", {}).json["import_id"]
        running.wait_for(started, ImportStatus.RUNNING)
        lease = claim_one(running, "<i>ann</i>\u202e")
        running.stores.ledger.postpone(
            lease,
            JobError(code="source_unavailable", message=f"503 of ?key={SECRET}"),
            delay=timedelta(0),
            blame=True,
        )
        # the others were due before
        while (again := claim_one(running, "ben")).job != lease.job:
            pass
        running.stores.ledger.fail(
            again, JobError(code="rejected", message="it says <b>no</b>")
        )

        path = f"/jobs/{lease.job}"
        html = page(running, path)

        text = " ".join(re.sub(r"<[^>]*>", " ", html).split())
        assert f"Job {lease.job} failed" in text
        assert "stopped by an error" in text
        assert "waited to try again" in text
        assert "&lt;i&gt;ann&lt;/i&gt;\N{SYMBOL FOR SUBSTITUTE}" in html
        assert "it says &lt;b&gt;no&lt;/b&gt;" in html
        assert "The last 2 errors" in html
        assert SECRET not in html
        assert f'data-post="/api/v1/jobs/{lease.job}/retry"' in html
        assert f'href="/api/v1/jobs/{lease.job}"' in html
        assert f'href="{path}"' in page(running, f"/imports/{started}")

    def test_a_job_of_an_import_that_was_cancelled_cannot_be_retried(
        self, running: Running
    ):
        started = running.client.post(f"{OF}/poi/imports", {}).json["import_id"]
        running.wait_for(started, ImportStatus.RUNNING)
        lease = claim_one(running, "ann")
        running.stores.ledger.fail(lease, JobError(code="rejected", message="no"))
        running.stores.imports.cancel(ImportId(started), reason="no")

        assert "/retry" not in page(running, f"/jobs/{lease.job}")

    def test_a_job_that_is_not_there_is_not_found(self, running: Running):
        assert running.client.get("/jobs/999999").status == 404
        assert running.client.get("/jobs/none").status == 404

    def test_pauses_are_known_only_between_claims_that_are_logged(
        self, running: Running
    ):
        started = running.client.post(f"{OF}/poi/imports", {}).json["import_id"]
        running.wait_for(started, ImportStatus.RUNNING)
        lease = claim_one(running, "ann")
        job = running.stores.jobs.get(lease.job)
        at = job.created_at
        logged = [
            Claim(
                job=job.id,
                fence=Fence(fence),
                shard_key=job.shard_key,
                owner=WorkerId("ann"),
                claimed_at=at + fence * SECOND,
                ended_at=at + fence * SECOND + SECOND / 4,
                outcome=ClaimOutcome.WAITING,
                code=None,
            )
            for fence in (1, 2, 4)
        ]

        steps = [*tell_history(job, logged, now=at + 5 * SECOND)]

        assert [step.pause for step in steps] == [SECOND, 0.75 * SECOND, None]
        assert [step.took for step in steps] == [SECOND / 4] * 3


def claim_one(running: Running, owner: str) -> Lease:
    declarations = running.api.penstock.declarations(["poi"])
    (lease,) = running.stores.ledger.claim(
        WorkerId(owner), declarations=declarations, region=None
    )
    return lease


def shards(**counts: int) -> Shards:
    return Shards(total=sum(counts.values()), **counts)


def test_shards_in_a_row_in_one_state_are_one_segment():
    buckets = [shards(done=1)] * 3 + [shards(failed=1)] + [shards(pending=2)] * 2

    segments = [(s.state, s.x, s.width, s.height) for s in draw_buckets(buckets)]

    assert segments == [("done", 0, 3, 1), ("failed", 3, 1, 1), ("open", 4, 2, 1)]


def test_one_failure_among_many_shards_is_drawn_in_proportion():
    buckets = [shards(done=99, failed=1), shards(done=100)]

    segments = [*draw_buckets(buckets)]

    assert [(s.state, s.height) for s in segments] == [
        ("failed", 0.01),
        ("done", 0.99),
        ("done", 1),
    ]
    assert [s.x for s in segments] == [0, 0, 1]


class TestSchedules:
    @pytest.fixture
    def nightly(self, running: Running):
        running.client.post(
            "/api/v1/schedules",
            {
                "name": "nightly",
                "dataset": "poi",
                "cron": "30 2 * * *",
                "timezone": "Europe/Berlin",
            },
        )
        yield "nightly"
        running.client.delete("/api/v1/schedules/nightly")

    def test_a_schedule_shows_its_fires_in_words_and_zones(
        self, running: Running, nightly: str
    ):
        assert "At 02:30 every day" in page(running, "/schedules")

        html = page(running, f"/schedules/{nightly}")

        assert html.count("02:30:00") == 10
        assert ">Europe/Berlin</th>" in html
        assert f'data-post="/api/v1/schedules/{nightly}/pause"' in html

    def test_what_became_of_its_fires_is_shown(self, running: Running, nightly: str):
        ran = running.client.post(f"/api/v1/schedules/{nightly}/run", None)
        assert ran.status == 202, ran.body

        html = page(running, f"/schedules/{nightly}")

        assert "by hand" in html
        assert re.search(r'href="/imports/\d+">import \d+', html)

    def test_a_schedule_that_is_not_there_is_not_found(self, running: Running):
        assert running.client.get("/schedules/none").status == 404


def test_a_stopped_budget_can_be_opened_from_its_page(running: Running):
    name = running.api.penstock.budget(running.api.dataset("poi")).name
    running.stores.budgets.stop(name, reason="the key was refused")
    try:
        html = page(running, "/budgets")
    finally:
        running.stores.budgets.open(name)

    assert "the key was refused" in html
    assert f'data-post="/api/v1/budgets/{name}/open"' in html
    assert "used by poi" in html


def test_a_budget_shows_what_was_used_of_it_in_the_last_hour(running: Running):
    running.stores.rollups.flush(
        "a",
        1,
        [
            Sample(Subject(SubjectKind.BUDGET, "practice"), "tokens", 75),
            Sample(Subject(SubjectKind.BUDGET, "practice"), "waited_us", 2_000_000),
        ],
    )

    html = page(running, "/budgets")

    # the budget allows 5 a second
    assert "75 in all, at most 75 in a minute, 300 allowed" in html
    assert 'y="75.0%" height="25.0%"' in html
    assert ": 75</title></rect>" in html
    # one figure: nothing was used of the other budgets
    assert html.count("<figcaption") == 1


def test_workers_are_shown_with_what_there_is_to_do(running: Running):
    announce(running.stores, WorkerId("ann"), region="eu")

    html = page(running, "/workers")

    assert 'title="ann">host</th>' in html
    assert "Demand" in html
    assert "Maintenance" in html


class TestRecords:
    @pytest.fixture
    def stored(self, running: Running):
        running.client.store(
            *({"uid": f"s{n}", "name": f"shop <{n}>", "points": n} for n in range(60)),
            dataset="shops",
        )

    def test_records_are_listed_page_by_page(self, running: Running, stored: None):
        html = page(running, "/datasets/shops?limit=20")

        assert html.count("<tr>") == 21
        assert "shop &lt;0&gt;" in html
        link = re.search(r'<p class="more"><a href="([^"]+)"', html)
        assert link is not None
        following = page(running, "/datasets/shops" + unescape(link[1]))
        assert following.count("<tr>") == 21
        assert "shop &lt;0&gt;" not in following

    def test_the_same_query_is_shown_for_the_command_line(
        self, running: Running, stored: None
    ):
        html = unescape(page(running, "/datasets/shops?limit=1"))

        assert "/api/v1/datasets/shops/records?limit=1" in html

    def test_a_query_that_is_refused_says_why(self, running: Running, stored: None):
        html = page(running, "/datasets/shops?name=Berlin&sort=&nothing=")

        assert "?name: " in html

    def test_a_dataset_that_is_not_there_is_not_found(self, running: Running):
        assert running.client.get("/datasets/none").status == 404


@pytest.mark.parametrize(
    ("given", "meant"),
    [("Berlin", "eq.Berlin"), ("gt.5", "gt.5"), ("eq.x", "eq.x"), ("gt", "eq.gt")],
)
def test_a_value_stands_for_itself(given, meant):
    assert with_operator("town", given) == meant


class TestBadRows:
    @pytest.fixture
    def rejected(self, running: Running):
        body = b"uid,name,points\nx1,one,<b>many</b>\nx2,two,2\n"
        sent = running.client.ask(
            "POST",
            f"{OF}/shops/imports",
            body=form(body),
            headers={"Content-Type": "multipart/form-data; boundary=edge"},
        )
        assert sent.status == 202, sent.body
        running.work()

    def test_bad_rows_are_shown_as_they_came(self, running: Running, rejected: None):
        html = page(running, "/quarantine/shops")

        assert "&lt;b&gt;many&lt;/b&gt;" in html
        assert "line 2" in html
        assert "Replay 1" in html
        assert 'href="/quarantine/shops"' in page(running)

    def test_they_can_be_tried_again(self, running: Running, rejected: None):
        route = f"{OF}/shops/quarantine/replay"

        result = running.client.ask("POST", route).json

        assert result["accepted"] == 0
        assert result["still_bad"] >= 1

    def test_without_any_there_is_nothing_to_do(self, running: Running):
        assert "There are no bad rows." in page(running, "/quarantine/news")


def form(content: bytes) -> bytes:
    head = b'--edge\r\nContent-Disposition: form-data; name="file"; filename="s.csv"'
    return head + b"\r\n\r\n" + content + b"\r\n--edge--\r\n"


def test_only_datasets_of_files_take_one(running: Running):
    html = page(running, "/upload")

    assert 'href="/upload/shops"' in html
    assert 'href="/upload/poi"' not in html
    assert running.client.get("/upload/poi").status == 404
    assert running.client.get("/upload/absent").status == 404


def test_a_page_names_the_columns_that_a_file_needs(running: Running):
    html = unescape(page(running, "/upload/shops"))

    assert "<td>whole number</td>" in html
    assert "at least 0<" in html


def test_an_import_counts_its_bad_rows_by_reason(running: Running):
    rows = b"uid,name,points\na,Ann,1\nb,,2\nc,,3\nd,Dora,-1\n"
    sent = running.client.ask(
        "POST", f"{OF}/shops/imports", body=form(rows), headers=FORM
    )
    running.work()

    html = page(running, f"/imports/{sent.json['import_id']}")

    text = " ".join(re.sub(r"<[^>]*>", " ", html).split())
    assert "missing name 2 range points 1" in text
