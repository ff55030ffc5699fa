"""The dashboard in a real browser: what it shows and does, and what it must not."""

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    Dialog,
    Page,
    Request,
    Route,
    expect,
    sync_playwright,
)

from penstock.domain.jobs import (
    ImportId,
    ImportStatus,
    JobError,
    JobId,
    JobStatus,
    Lease,
    WorkerId,
)
from penstock.ports import JobFilter
from penstock.ports.schedules import ScheduleStatus
from tests.contracts.workers import announce
from tests.services.find import provide_chromium
from tests.support.api_client import OF
from tests.support.api_server import Running, listening, running_api

# milliseconds that a busy machine may need to show something
PATIENCE = 20_000
expect.set_options(timeout=PATIENCE)
ANN = WorkerId("ann")
PAGES = ("/", "/imports", "/imports/1", "/imports/1/shards", "/imports/2/shards",
         "/jobs/1", "/schedules", "/schedules/nightly",
         "/budgets", "/workers", "/datasets/shops",
         "/quarantine/shops", "/upload", "/upload/shops")  # fmt: skip
# narrow phone, laptop, wide screen
WIDTHS = (360, 1280, 1920)
HOSTILE = (
    '<script>window.hacked=1</script><img src=x onerror="window.hacked=2">'
    "javascript:alert(3) {{ 7*7 }} ${7*7} =cmd|' /C calc'!A0 \u202egnp.exe\u0000"
)
STOPS = """
[datasets.stops]
key = "id"
search = ["name"]

[datasets.stops.source]
type = "csv"
files = "stops-*.csv"

[datasets.stops.fields]
id = { column = "id" }
name = { column = "name", required = true }
"""
PLACES = """
[datasets.places]
key = "id"
fields = { id = { path = "ID", type = "int" } }
source = { url = "http://127.0.0.1:9/places" }

[datasets.places.shards.country]
kind = "list"
send = "country"
values = ["AT", "BE", "<b>CH</b>"]

[datasets.places.shards.level]
kind = "list"
send = "level"
values = [1, 2, 3, 4]
"""
HOSTILE_FILE = f"id,name,{HOSTILE}\n{HOSTILE},{HOSTILE},1\n2,,3\n"
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("dashboard")
    with running_api(
        folder, 'database = "sqlite:///penstock.db"', more=STOPS + PLACES
    ) as running:
        fill(running)
        yield running


def fill(running: Running) -> None:
    """Leave an import with a failed shard, hostile texts and a schedule behind."""
    import_id = running.client.post(f"{OF}/poi/imports", {}).json["import_id"]
    running.wait_for(import_id, ImportStatus.RUNNING)
    fail_one(running)
    places = running.client.post(f"{OF}/places/imports", {}).json["import_id"]
    running.wait_for(places, ImportStatus.RUNNING)
    announce(running.stores, ANN, region="<b>eu</b>")
    running.client.post(
        "/api/v1/schedules",
        {"name": "nightly", "dataset": "poi", "cron": "30 2 * * *"},
    )
    running.stores.schedules.set_status("nightly", ScheduleStatus.PAUSED, note=HOSTILE)
    shop = {"uid": "s1", "name": HOSTILE.replace("\u0000", ""), "points": 2**53 + 1}
    running.client.store(shop, dataset="shops")


def claim_one(running: Running) -> Lease:
    declarations = running.api.penstock.declarations(["poi"])
    (lease,) = running.stores.ledger.claim(ANN, declarations=declarations, region=None)
    return lease


def fail_one(running: Running) -> None:
    running.stores.ledger.fail(
        claim_one(running), JobError(code="rejected", message=HOSTILE)
    )


def failed_job(running: Running) -> JobId:
    failed = JobFilter(import_id=ImportId(1), status=JobStatus.FAILED)
    (job,) = running.stores.jobs.find(failed, after=None, limit=2)
    return job.id


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(provide_chromium()),
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        yield browser
        browser.close()


class Watched:
    """A page of the browser, and what it must not do."""

    def __init__(self, page: Page, host: str) -> None:
        self.page = page
        self._host = host
        self.errors: list[str] = []
        self.foreign: list[str] = []
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self._look)

    def _note(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.errors.append(text)

    def _look(self, request: Request) -> None:
        split = urlsplit(request.url)
        if split.scheme != "data" and split.netloc != self._host:
            self.foreign.append(request.url)


@pytest.fixture
def watched(browser: Browser, running: Running) -> Iterator[Watched]:
    context = browser.new_context(base_url=running.client.url)
    context.set_default_timeout(PATIENCE)
    watched = Watched(context.new_page(), urlsplit(running.client.url).netloc)
    yield watched
    assert watched.errors == []
    assert watched.foreign == []
    assert not watched.page.evaluate("window.hacked")
    context.close()


@pytest.fixture
def page(watched: Watched) -> Page:
    return watched.page


@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_each_screen_and_is_accessible_in_both_themes(
    page: Page, path: str
):
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(path)
            expect(page.locator("h1")).to_be_visible()
            overflow = "document.documentElement.scrollWidth - innerWidth"
            assert page.evaluate(overflow) <= 0, (theme, width)
        assert serious_findings(page) == []


def serious_findings(page: Page) -> list[str]:
    """Return what axe finds to be serious or critical."""
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
    result = page.evaluate("axe.run()")
    return [
        f"{found['id']}: {found['nodes'][0]['html'][:200]}"
        for found in result["violations"]
        if found["impact"] in {"serious", "critical"}
    ]


def test_hostile_texts_are_shown_as_they_are(page: Page):
    page.goto("/imports/1")
    cell = page.get_by_role("cell", name="<script>window.hacked=1</script>")
    expect(cell).to_contain_text("{{ 7*7 }} ${7*7}")
    expect(cell).to_contain_text("\N{SYMBOL FOR SUBSTITUTE}gnp.exe\N{SYMBOL FOR NULL}")

    page.goto("/schedules/nightly")
    expect(page.locator(".notice")).to_contain_text("<script>")
    page.goto("/")
    expect(page.locator(".alerts")).to_contain_text("<script>")
    page.goto("/datasets/shops")
    expect(page.get_by_role("cell", name="<script>")).to_be_visible()
    # more than a number of JavaScript can hold
    expect(page.get_by_role("cell", name="9007199254740993")).to_be_visible()


def test_a_page_keeps_itself_up_to_date(page: Page, running: Running):
    page.goto("/workers")
    expect(page.get_by_role("row", name="other")).to_have_count(0)

    announce(running.stores, WorkerId("other"), region="other")

    expect(page.get_by_role("row", name="other")).to_be_visible()
    running.stores.workers.remove(WorkerId("other"))


def test_a_failed_shard_is_retried_after_a_question(page: Page, running: Running):
    page.goto("/imports/1")
    questions: list[str] = []

    def accept(dialog: Dialog) -> None:
        questions.append(dialog.message)
        dialog.accept()

    page.once("dialog", accept)

    page.get_by_role("button", name="Retry 1 failed").click()

    expect(page.locator("#result")).to_contain_text("done")
    expect(page.get_by_role("button", name="Retry 1 failed")).to_have_count(0)
    assert "Retry 1 failed shard of import 1?" in questions[0]
    fail_one(running)


def test_a_failed_shard_leads_to_its_job(page: Page, running: Running):
    job = failed_job(running)
    page.goto("/imports/1")
    failed = page.get_by_role("region", name="Failed shards")
    failed.get_by_role("link", name=str(job), exact=True).click()
    expect(page.locator("h1")).to_have_text(f"Job {job}")
    history = page.locator(".history")
    expect(history.get_by_text("failed", exact=True).first).to_be_visible()
    expect(history).to_contain_text("<script>window.hacked=1</script>")
    expect(history).to_contain_text("\N{SYMBOL FOR SUBSTITUTE}gnp.exe")

    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy as JSON").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert (copied["job_id"], copied["status"]) == (job, "failed")


def test_a_timeline_leads_to_jobs_and_its_table_stays_open(
    page: Page, running: Running
):
    page.goto("/imports/1")
    bar = page.locator(".worker rect.failed").first
    page.get_by_text("As a table").click()
    table = page.get_by_role("region", name="Claims by worker")
    expect(table.get_by_role("row", name="ann")).to_be_visible()
    lease = claim_one(running)
    # the content has been put in place anew
    last = page.get_by_role("region", name="The last claims")
    expect(last.get_by_role("row", name="running")).to_be_visible()
    running.stores.ledger.release(lease)

    bar.click()

    expect(page.locator("h1")).to_contain_text("Job ")


def test_arrows_move_in_a_matrix_and_a_cell_leads_to_its_shards(page: Page):
    page.goto("/imports/2")
    grid = page.get_by_role("grid")
    expect(grid.get_by_role("link")).to_have_count(12)
    expect(grid.locator("a[tabindex='0']")).to_have_count(1)
    grid.locator("a[tabindex='0']").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "End", "ArrowLeft", "Home"):
        page.keyboard.press(key)
    page.keyboard.press("ArrowRight")
    cell = grid.get_by_role("link", name="country:<b>CH</b>, level:2: 1 open")
    expect(cell).to_be_focused()
    expect(grid.locator("a[tabindex='0']")).to_have_count(1)

    page.keyboard.press("Enter")

    expect(page.locator("h1")).to_have_text("Shards")
    listed = page.get_by_role("region", name="All shards of country:<b>CH</b>, level:2")
    expect(listed.get_by_role("row")).to_have_count(2)
    page.get_by_role("link", name="Only missing and failed").click()
    page.get_by_role("link", name="Of the whole import").click()
    expect(page.get_by_role("region", name="Missing").get_by_role("row")).to_have_count(
        13
    )


def test_a_job_is_retried_on_its_page(page: Page, running: Running):
    page.goto(f"/jobs/{failed_job(running)}")

    page.get_by_role("button", name="Retry").click()

    expect(page.locator("#result")).to_contain_text("done")
    expect(page.locator(".history")).to_contain_text("waits for a worker")
    expect(page.get_by_role("button", name="Retry")).to_have_count(0)
    fail_one(running)


def test_a_retry_goes_on_while_there_is_more(page: Page):
    more = [False, True, True]

    def answer(route: Route) -> None:
        route.fulfill(json={"import_id": 1, "retried": 1000, "has_more": more.pop()})

    page.route("**/api/v1/jobs/retry", answer)
    page.goto("/imports/1")
    page.once("dialog", lambda dialog: dialog.accept())

    page.get_by_role("button", name="Retry 1 failed").click()

    expect(page.locator("#result")).to_contain_text("done")
    assert more == []


def test_a_question_that_is_declined_changes_nothing(page: Page):
    page.goto("/imports/1")
    page.once("dialog", lambda dialog: dialog.dismiss())

    page.get_by_role("button", name="Cancel").click()

    expect(page.locator("h1 + .state")).to_contain_text("running")


def test_a_stopped_budget_is_opened(page: Page, running: Running):
    running.stores.budgets.stop("practice", reason=HOSTILE)
    page.goto("/budgets")
    page.once("dialog", lambda dialog: dialog.accept())

    page.get_by_role("button", name="Open now").click()

    expect(page.get_by_role("button", name="Open now")).to_have_count(0)
    assert (
        running.stores.budgets.state(running.api.penstock.budgets["practice"]).stopped
        is None
    )


def test_a_schedule_is_resumed_and_paused(page: Page, running: Running):
    page.goto("/schedules/nightly")

    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.get_by_role("button", name="Pause").click()

    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert running.stores.schedules.get("nightly").status is ScheduleStatus.PAUSED
    running.stores.schedules.set_status("nightly", ScheduleStatus.PAUSED, note=HOSTILE)


def test_keys_lead_everywhere(page: Page):
    page.goto("/")
    for keys, heading in (("gi", "Imports"), ("gu", "Upload"),
                          ("gs", "Schedules"), ("gb", "Budgets"), ("gw", "Workers"),
                          ("ge", "news records"), ("go", "Overview")):  # fmt: skip
        page.locator("body").press(keys[0])
        page.locator("body").press(keys[1])
        expect(page.locator("h1")).to_have_text(heading)
    page.goto("/imports")
    page.locator("body").press("j")
    page.locator("body").press("Enter")
    expect(page).to_have_url(re.compile("/imports/"))
    page.go_back()
    expect(page.locator("h1")).to_have_text("Imports")
    page.locator("body").press("?")
    expect(page.locator("#keys")).to_be_visible()


def test_a_chosen_theme_stays(page: Page):
    page.goto("/")
    for theme in ("light", "dark"):
        page.locator("#theme").click()
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
    page.reload()

    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_a_hidden_page_asks_for_nothing(page: Page):
    page.goto("/")
    page.clock.install()
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))

    page.clock.run_for(60_000)

    assert requests == []


# the button to choose a file is there before, and its name ends in upload
LOAD = re.compile("^Load .* into stops$")


def drop_file(page: Page, name: str, content: str) -> None:
    """Drop a file on the page, as from a folder."""
    dropped = page.evaluate_handle(
        "([name, content]) => { const dropped = new DataTransfer();"
        "dropped.items.add(new File([content], name)); return dropped; }",
        [name, content],
    )
    page.dispatch_event("#drop", "drop", {"dataTransfer": dropped})


def test_a_dropped_file_is_read_checked_loaded_and_searched(
    page: Page, running: Running
):
    rows = "".join(f"{number};Stop {number};x\n" for number in range(2, 40))
    page.goto("/upload/stops")
    drop_file(page, "stops.csv", f"id;name;note\n1;Waterloo;x\n{rows}40;;x\n")

    expect(page.locator("#file-facts")).to_contain_text("separated by semicolon")
    expect(page.locator("#rows tr")).to_have_count(20)
    expect(page.locator("#match-verdict")).to_have_text("2 columns matched, 1 ignored.")
    expect(page.locator("#check-verdict")).to_contain_text("39 good, 1 bad")
    expect(page.locator("#reasons")).to_contain_text("is required")
    page.get_by_role("button", name=LOAD).click()
    page.wait_for_url("**/imports/*")
    # its worker may begin when the tab is long closed
    running.work("stops")
    expect(page.locator("h1 + .state")).to_have_text("done")
    expect(page.get_by_role("row", name="missing name 1")).to_be_visible()
    page.get_by_role("link", name="Records", exact=True).last.click()
    page.get_by_role("searchbox").fill("waterlo")
    page.get_by_role("searchbox").press("Enter")

    expect(page.get_by_role("cell", name="Waterloo")).to_be_visible()
    expect(page.get_by_role("cell", name="Stop 2")).to_have_count(0)


def test_bad_rows_are_downloaded_corrected_and_uploaded(page: Page, running: Running):
    page.goto("/upload/stops")
    drop_file(page, "stops.csv", "id,name\n501,Euston\n502,\n,Nowhere\n")
    page.get_by_role("button", name=LOAD).click()
    page.wait_for_url("**/imports/*")
    running.work("stops")
    page.reload()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the rows to correct").click()
    assert download.value.path().read_text() == "id,name\n502,\n,Nowhere\n"
    page.get_by_role("link", name="upload them corrected").click()
    expect(page.get_by_text("This upload corrects the bad rows of")).to_be_visible()
    drop_file(page, "corrected.csv", "id,name\n502,Angel\n503,Nowhere\n")
    page.get_by_role("button", name=LOAD).click()
    page.wait_for_url("**/imports/*")
    running.work("stops")

    stops = running.api.dataset("stops")
    bad = running.stores.records.quarantine(stops, after=0, limit=99)
    assert {row.rejection.raw for row in bad} & {
        b'{"id": "502", "name": ""}',
        b'{"id": "", "name": "Nowhere"}',
    } == set()


def test_bad_rows_are_tried_and_discarded_after_a_question(
    page: Page, running: Running
):
    page.goto("/upload/stops")
    drop_file(page, "stops.csv", "id,name,x\n601,\n602,Bank,x\n")
    page.get_by_role("button", name=LOAD).click()
    page.wait_for_url("**/imports/*")
    running.work("stops")
    page.goto("/quarantine/stops")
    questions: list[str] = []

    def accept(dialog: Dialog) -> None:
        questions.append(dialog.message)
        dialog.accept()

    page.on("dialog", accept)
    page.get_by_role("button", name="Try a replay").click()
    expect(page.locator("#result")).to_contain_text("0 would be stored")
    expect(page.locator("#result")).to_contain_text("too few values 1")
    assert questions == []

    page.get_by_role("button", name="Discard too few values").click()

    expect(page.locator("#result")).to_have_text("Discard 1: 1 discarded.")
    (question,) = questions
    assert "Discard 1 bad row of stops for too few values?" in question
    stops = running.api.dataset("stops")
    bad = running.stores.records.quarantine(stops, after=0, limit=99)
    assert "too_few_values" not in {row.rejection.reason for row in bad}
    assert serious_findings(page) == []


def test_a_file_that_lacks_a_column_is_not_sent(page: Page):
    page.goto("/upload/stops")
    drop_file(page, "wrong.csv", "id,naem\n1,a\n")

    expect(page.locator("#match li.failed")).to_have_text("namemissing")
    expect(page.locator("#problems")).to_contain_text("did you mean 'naem'?")
    expect(page.get_by_role("button", name="Load")).to_be_disabled()
    # the right one, by keyboard
    with page.expect_file_chooser() as chooser:
        page.locator("#choose").press("Enter")
    chooser.value.set_files(
        {"name": "right.csv", "mimeType": "text/csv", "buffer": b"id,name\n1,a\n"}
    )
    expect(page.get_by_role("button", name="Load")).to_be_enabled()
    assert serious_findings(page) == []


def test_what_no_import_can_read_is_named(page: Page, watched: Watched):
    page.goto("/upload/stops")
    drop_file(page, "stops.xlsx", "PK\u0003\u0004 xl/")

    expect(page.locator("#said")).to_contain_text("Excel workbook")
    expect(page.locator("#preview")).to_be_hidden()
    # the browser logs each response that is an error
    watched.errors.clear()


def test_a_hostile_file_is_shown_as_it_is(page: Page):
    page.goto("/upload/stops")
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        drop_file(page, f"{HOSTILE}.csv", HOSTILE_FILE.replace("\u0000", "\u0007"))

        expect(page.locator("#file-name")).to_contain_text("<script>")
        cell = page.get_by_role("cell", name="<script>").first
        expect(cell).to_contain_text(
            "\N{SYMBOL FOR SUBSTITUTE}gnp.exe\N{SYMBOL FOR BELL}"
        )
        overflow = "document.documentElement.scrollWidth - innerWidth"
        assert page.evaluate(overflow) <= 0

    page.goto("/upload")
    drop_file(page, f"{HOSTILE}.csv", HOSTILE_FILE.replace("\u0000", ""))
    expect(page.locator("#toml")).to_contain_text("<script>")
    assert page.evaluate("/[\u202e]/.test(document.body.textContent)") is False


def test_a_file_of_a_new_kind_becomes_a_draft_to_copy(page: Page):
    page.goto("/upload")
    drop_file(page, "towns.csv", "code,people\nBER,3700000\nZRH,400000\n")

    expect(page.locator("#toml")).to_contain_text("[datasets.towns.fields]")
    assert serious_findings(page) == []
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()


def test_an_upload_that_breaks_is_sent_again_as_the_same(page: Page, watched: Watched):
    page.goto("/upload/stops")
    drop_file(page, "stops.csv", "id,name\n77,Once\n")
    keys: list[str | None] = []
    page.on(
        "request",
        lambda request: (
            keys.append(request.headers.get("idempotency-key"))
            if request.url.endswith("/imports")
            else None
        ),
    )
    page.route("**/stops/imports", lambda route: route.abort())
    page.get_by_role("button", name=LOAD).click()
    expect(page.locator("#load-error")).to_contain_text("connection was lost")
    page.unroute("**/stops/imports")

    page.get_by_role("button", name=LOAD).click()

    page.wait_for_url("**/imports/*")
    assert len(keys) == 2
    assert len({*keys}) == 1
    watched.errors.clear()


def test_a_server_that_is_away_is_noticed_and_met_again(
    browser: Browser, running: Running
):
    # the last test: the end of its server ends the threads that all share
    context = browser.new_context()
    page = context.new_page()
    with listening(running.api) as url:
        page.goto(url)
        expect(page.locator("h1")).to_have_text("Overview")
        # as if the server was gone
        page.route("**/*", lambda route: route.abort())
        expect(page.locator("#connection")).to_contain_text(
            "Not up to date", timeout=30_000
        )

        page.unroute("**/*")

        expect(page.locator("#connection")).to_be_hidden(timeout=30_000)
    context.close()
