"""Every command as a user meets it: exit codes, words, JSON."""

import csv
import json
import os
import signal
import subprocess
import urllib.request
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from pyarrow import parquet

from penstock.domain.formats import parse_instant
from tests.e2e.conftest import OpenWorkshop
from tests.support.evidence import mapped, repeated, truth
from tests.support.workshop import (
    COLUMNS,
    COUNTRIES,
    FIELDS,
    KEY,
    PENSTOCK,
    Workshop,
    happens,
    wait_until,
)

HELP = {
    ("init",): "starter penstock.toml",
    ("check",): "validate the configuration",
    ("migrate",): "tables",
    ("plan",): "store its jobs",
    ("run",): "run an import",
    ("worker",): "until sigterm",
    ("status",): "upkeep",
    ("health",): "alive",
    ("imports",): "imports",
    ("imports", "cancel"): "cancel an import",
    ("jobs",): "retry failed",
    ("jobs", "retry"): "pending again",
    ("audit",): "coverage",
    ("quarantine",): "bad rows",
    ("quarantine", "replay"): "bad rows again",
    ("export",): "ordered by key",
    ("budgets",): "budgets",
    ("budgets", "open"): "open a budget",
    ("schedules",): "pause and run schedules",
    ("schedules", "show"): "its last fires",
    ("schedules", "backfill"): "import a time range",
    ("token",): "sign a token",
    ("sandbox",): "until ctrl-c",
    ("demo",): "sandbox",
}


@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_help_says_what_a_command_does(open_workshop, command):
    result = open_workshop(records=1).penstock(*command, "--help")

    assert result.code == 0
    assert HELP[command] in result.out.lower()


def test_a_first_use_goes_from_init_over_check_to_migrate(open_workshop):
    workshop = open_workshop(records=1)

    written = workshop.penstock("init", "--json")
    again = workshop.penstock("init")
    without_key = workshop.penstock("check", OCM_API_KEY=None)
    checked = workshop.penstock("check", "--json", OCM_API_KEY="k-1234")
    migrated = workshop.penstock("migrate", "--json", OCM_API_KEY="k-1234")
    up_to_date = workshop.penstock("migrate", OCM_API_KEY="k-1234")

    assert written.code == 0
    assert written.json == {"written": "penstock.toml"}
    assert again.code == 2
    assert "--force" in again.err
    assert without_key.code == 2
    assert "OCM_API_KEY" in without_key.err
    assert checked.code == 0
    assert checked.json["datasets"] == ["poi"]
    assert migrated.code == 0
    assert migrated.json["applied"]
    assert "up to date" in up_to_date.out


@pytest.mark.parametrize(
    "command",
    [
        ("check",),
        ("migrate",),
        ("run", "poi"),
        ("worker",),
        ("imports", "cancel", "1"),
        ("jobs",),
    ],
    ids=" ".join,
)
def test_without_a_configuration_a_command_says_how_to_get_one(open_workshop, command):
    result = open_workshop(records=1).penstock(*command, "--json")

    assert result.code == 2
    assert "penstock init" in result.err
    assert result.json["error"]["code"] == "misconfigured"


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "pio"),
        ("run", "pio"),
        ("audit", "pio"),
        ("quarantine", "pio"),
        ("export", "pio", "--out", "rows.jsonl"),
        ("worker", "--dataset", "pio"),
    ],
    ids=" ".join,
)
def test_a_misspelt_dataset_is_answered_with_the_nearest(workshop, command):
    result = workshop.penstock(*command, "--json")

    assert result.code == 2
    assert "poi" in result.json["error"]["message"].replace("'pio'", "")


@pytest.mark.parametrize(
    "command",
    [
        ("plan",),
        ("frobnicate",),
        ("jobs", "--status", "nosuch"),
        ("jobs", "retry"),
        ("jobs", "retry", "999"),
        ("jobs", "999"),
        ("imports", "999"),
        ("imports", "cancel", "999"),
        ("budgets", "open", "nosuch"),
        ("run", "poi", "--from", "2026-01-01"),
        ("run", "poi", "--mode", "backfill"),
        ("run", "poi", "--mode", "delta"),
        ("run", "poi", "--threads", "0"),
        ("export", "poi"),
        ("export", "poi", "--out", "no/such/folder/rows.jsonl"),
        ("export", "poi", "--format", "parquet", "--out", "no/such/folder/rows"),
        ("quarantine", "poi", "--export", "rows.xlsx"),
        ("audit", "poi"),
        ("sandbox", "--faults", "nosuch:0.1"),
        ("sandbox", "--port", "80000"),
    ],
    ids=" ".join,
)
def test_wrong_use_is_refused_in_a_sentence_and_a_document(workshop, command):
    result = workshop.penstock(*command, "--json")

    assert result.code == 2
    assert result.json["error"]["message"]
    assert result.err.strip()


@pytest.mark.parametrize(
    ("command", "result"),
    [
        (("jobs", "ID"), "'ID' is not a number"),
        (("serve", "--port", "8000x"), "'8000x' is not a number"),
        (("serve", "--grace", "soon"), "'soon' is not a number"),
    ],
    ids=str,
)
def test_what_is_no_number_is_reported_so(workshop, command, result):
    refused = workshop.penstock(*command, "--json")

    assert refused.code == 2
    assert refused.json["error"]["message"] == result
    assert refused.err.endswith(f": {result}\n")


def test_a_field_that_no_record_has_a_value_for_is_reported(workshop):
    text = workshop.config.read_text()
    workshop.config.write_text(text.replace("AddressInfo.Town", "AddressInfo.Twon"))

    before = workshop.penstock("check", "--connect", "--json").json["connections"]

    result = {each["what"]: each for each in before}["datasets.poi"]
    assert result["ok"] is True
    assert result["detail"].endswith(
        "; none of them has a value for town (AddressInfo.Twon)"
    )


def test_all_problems_of_a_configuration_are_reported_at_once(workshop):
    text = workshop.config.read_text()
    workshop.config.write_text(
        text.replace("commit_timeout", "comit_timeout")
        .replace('type = "float"', 'type = "flaot"', 1)
        .replace('rate = "5000/s"', 'rate = "5000 a second"')
    )

    result = workshop.penstock("check")

    assert result.code == 2
    assert "penstock.comit_timeout: unknown key; did you mean" in result.err
    assert "datasets.poi.fields.lat.type" in result.err
    assert "budgets.practice.rate" in result.err
    assert len(result.err.splitlines()) == 3


def test_all_rules_that_do_not_hold_are_reported_at_once(workshop):
    text = workshop.config.read_text()
    workshop.config.write_text(
        text.replace('lease = "4s"', 'lease = "2s"')
        .replace('key = "id"', 'key = "idd"')
        .replace('budget = "practice"', 'budget = "practise"')
    )

    result = workshop.penstock("check", "--json")

    assert result.code == 2
    assert "penstock.lease = 2s" in result.err
    assert "did you mean 'id'?" in result.err
    assert "did you mean 'practice'?" in result.err
    assert result.json["error"]["message"].count("\n") == 2


@pytest.mark.parametrize(
    ("database", "result"),
    [("no/such/folder/penstock.db", "folder"), ("penstock.toml", "not a database")],
)
def test_a_database_that_cannot_be_used_is_reported_in_a_sentence(
    workshop, database, result
):
    text = workshop.config.read_text()
    workshop.config.write_text(
        text.replace("sqlite:///penstock.db", f"sqlite:///{database}")
    )

    refused = workshop.penstock("run", "poi", "--json")
    connected = workshop.penstock("check", "--connect", "--json")

    assert refused.code == 2
    assert result in refused.json["error"]["message"]
    assert connected.code == 1
    assert connected.json["connections"][0]["ok"] is False


def test_check_connect_tries_the_database_and_one_request_each(workshop):
    good = workshop.penstock("check", "--connect", "--json")
    sent = len(workshop.sandbox.requests)
    bad = workshop.penstock("check", "--connect", "--json", PRACTICE_KEY="wrong-9d2e")

    assert good.code == 0
    assert [each["ok"] for each in good.json["connections"]] == [True, True]
    assert sent == 1
    assert bad.code == 1
    assert "403" in bad.json["connections"][1]["detail"]
    assert "wrong-9d2e" not in bad.out


def test_a_dry_run_shows_the_first_requests_and_the_cost_and_stores_nothing(
    open_workshop,
):
    workshop = open_workshop(records=60)
    dataset = workshop.poi(
        shards=COUNTRIES % [87, 80],
        query='output = "json", key = "${PRACTICE_KEY}"',
    )
    workshop.declare(dataset, rate=2, burst=1)

    result = workshop.penstock("plan", "poi", "--dry-run", "--json")
    shown = workshop.penstock("plan", "poi", "--dry-run", "--limit", "1")

    first = result.json["first"][0]
    method, url = first["request"].split(" ", 1)
    request = parse_qs(urlsplit(url).query)
    assert result.code == shown.code == 0
    assert first["shard_key"] == "country:87"
    assert method == "GET"
    assert url.startswith(workshop.sandbox.url)
    assert request["countryid"] == ["87"]
    assert request["sortby"] == ["id_asc"]
    assert request["maxresults"] == ["100"]
    assert "PRACTICE_KEY" in url
    assert result.json["shards"] == 2
    assert result.json["requests"] == 4
    assert result.json["at_least"] is True
    assert result.json["seconds"] == 1.5
    assert first["request"] in shown.out
    assert "1 more" in shown.out
    assert workshop.penstock("imports", "--json").json["imports"] == []
    assert workshop.sandbox.requests == []


def test_the_first_request_is_the_one_that_the_dry_run_shows(open_workshop):
    workshop = open_workshop(records=30)
    workshop.declare(workshop.poi(shards=COUNTRIES % [87]))

    body = workshop.penstock("plan", "poi", "--dry-run", "--json").json
    workshop.penstock("run", "poi")

    shown = parse_qs(urlsplit(body["first"][0]["request"]).query)
    sent = workshop.sandbox.requests[0].query
    assert {name: [value] for name, value in sent.items()} == shown


def test_a_planned_import_is_worked_until_nothing_is_left(workshop):
    planned = workshop.penstock("plan", "poi", "--json")
    again = workshop.penstock("plan", "poi", "--json")
    worked = workshop.penstock("worker", "--until-idle", "--json")

    assert planned.code == again.code == worked.code == 0
    assert planned.json["resumed"] is False
    assert again.json["resumed"] is True
    assert again.json["import_id"] == planned.json["import_id"]
    assert worked.json["jobs_worked"] == planned.json["shards"]
    assert workshop.rows() == truth(workshop)


def test_a_run_reports_what_it_did(workshop):
    done = workshop.penstock("run", "poi", "--json")
    again = workshop.penstock("run", "poi")

    body = done.json
    records = len(truth(workshop))
    assert done.code == again.code == 0
    assert done.err == ""
    assert body["import_id"] == 1
    assert body["mode"] == "full"
    assert body["status"] == "done"
    assert body["proven"] is True
    assert body["shards"]["done"] == body["shards"]["total"]
    assert body["records"]["seen"] == body["records"]["inserted"] == records
    assert body["requests"] == body["pages"] == len(workshop.sandbox.requests) / 2
    assert body["seconds"] > 0
    assert "Import 2 of poi (full): done, proven complete" in again.out
    assert f"{records} unchanged" in again.out


def test_imports_and_jobs_can_be_looked_at(imported):
    every = imported.penstock("imports", "--json")
    one = imported.penstock("imports", "1", "--json")
    shown = imported.penstock("imports")
    one_shown = imported.penstock("imports", "1")
    done = imported.penstock("jobs", "--status", "done", "--import", "1", "--json")
    job = imported.penstock("jobs", "1", "--json")
    none = imported.penstock("jobs", "--status", "failed", "--json")
    jobs_shown = imported.penstock("jobs", "--limit", "2")

    assert every.json["imports"][0] == one.json
    assert one.json["proven"] is True
    assert "poi" in shown.out
    assert "import_id" in one_shown.out
    plan, *shards = done.json["jobs"]
    assert (plan["kind"], {shard["kind"] for shard in shards}) == ("plan", {"shard"})
    assert len(shards) == one.json["shards"]["total"]
    assert job.json == plan
    assert {shard["proof"] for shard in shards} == {"empty_page"}
    assert none.json == {"jobs": []}
    assert "country:" in jobs_shown.out


def test_a_cancelled_import_ends_and_the_next_run_begins_anew(workshop):
    workshop.penstock("plan", "poi")

    cancelled = workshop.penstock("imports", "cancel", "1", "--json")
    jobs = workshop.penstock("jobs", "--status", "cancelled", "--limit", "1", "--json")
    run = workshop.penstock("run", "poi", "--json")
    of_a_done_one = workshop.penstock("imports", "cancel", "2", "--json")

    assert cancelled.code == 0
    assert cancelled.json["status"] == "cancelled"
    first, _ = workshop.ask("select * from penstock_action order by id")
    assert (first["name"], first["subject"]) == ("cancelImport", "imports/1")
    assert (first["via"], "@" in first["actor"]) == ("command", True)
    assert len(jobs.json["jobs"]) == 1
    assert run.code == 0
    assert run.json["import_id"] == 2
    assert workshop.status(2) == "done"
    assert of_a_done_one.code in {0, 2}


def test_cancelling_stops_the_workers_of_an_import(open_workshop):
    workshop = open_workshop(records=500, latency=timedelta(milliseconds=100))
    workshop.declare(workshop.by_country(size=5))
    run = workshop.start("run", "poi", "--json")
    wait_until(lambda: workshop.pages() >= 5)

    workshop.penstock("imports", "cancel", "1")
    ended = workshop.output_of(run)

    assert ended.code == 1
    assert ended.json["status"] == "cancelled"
    assert ended.json["shards"]["leased"] == ended.json["shards"]["pending"] == 0


@pytest.mark.parametrize("how", ["each", "--failed"])
def test_failed_jobs_are_retried_from_their_cursors(open_workshop, how):
    workshop = open_workshop(records=300, faults={"500": 0.15})
    workshop.declare(workshop.by_country(size=10), attempts=1)

    first = workshop.penstock("run", "poi", "--json")
    failed = workshop.penstock("jobs", "--status", "failed", "--json").json["jobs"]
    ids = [str(job["id"]) for job in failed] if how == "each" else [how]
    retried = workshop.penstock("jobs", "retry", *ids, "--json")
    before = workshop.config.read_text()
    workshop.config.write_text(before.replace("attempts = 1", "attempts = 30"))
    done = workshop.penstock("run", "poi", "--json")

    assert first.code == 1
    assert first.json["status"] == "failed"
    assert "jobs retry --failed" in first.json["note"]
    assert failed[0]["errors"][-1]["code"] == "source_unavailable"
    assert retried.code == 0
    assert retried.json["retried"] == [job["id"] for job in failed]
    assert done.code == 0
    assert done.json["import_id"] == 1
    assert repeated(workshop.sandbox.requests) == 0
    assert workshop.rows() == truth(workshop)


BAD = {"records": 400, "bad": 0.2}


def test_bad_rows_are_listed_exported_and_replayed_after_a_fix(open_workshop):
    workshop = open_workshop(**BAD)
    workshop.declare(workshop.poi())
    flaws = workshop.sandbox.flaws()
    titleless = {key for key, flaw in flaws.items() if flaw == "no title"}

    run = workshop.penstock("run", "poi", "--json")
    listed = workshop.penstock("quarantine", "poi", "--limit", "1000", "--json")
    shown = workshop.penstock("quarantine", "poi", "--limit", "5")
    as_lines = workshop.penstock("quarantine", "poi", "--export", "bad.jsonl", "--json")
    workshop.penstock("quarantine", "poi", "--export", "bad.csv")
    useless = workshop.penstock("quarantine", "replay", "poi", "--json")
    workshop.declare(workshop.poi(fields=FIELDS.replace(", required = true", "")))
    tried = workshop.penstock("quarantine", "replay", "poi", "--dry-run", "--json")
    replayed = workshop.penstock("quarantine", "replay", "poi", "--json")

    rows = listed.json["rows"]
    lines = [json.loads(line) for line in read(workshop, "bad.jsonl").splitlines()]
    table = list(csv.DictReader(read(workshop, "bad.csv").splitlines()))
    stored = workshop.rows()
    assert run.code == 0
    assert run.json["records"]["quarantined"] == len(flaws) == len(rows)
    assert {row["reason"] for row in rows} == {"missing", "range", "type"}
    assert "AddressInfo" in rows[0]["raw"]
    assert shown.code == 0
    assert as_lines.json == {"written": len(flaws), "file": "bad.jsonl"}
    assert lines == rows
    assert [row["detail"] for row in table] == [row["detail"] for row in rows]
    assert useless.json == {"accepted": 0, "superseded": 0, "still_bad": len(flaws)}
    # it has stored nothing that the replay would have found
    assert tried.json == replayed.json
    assert replayed.json["accepted"] == len(titleless)
    assert replayed.json["still_bad"] == len(flaws) - len(titleless)
    assert titleless <= set(stored)
    points = workshop.sandbox.expected()
    assert {key: stored[key] for key in titleless} == {
        key: mapped(points[key]) for key in titleless
    }


def test_too_many_bad_rows_fail_the_import_clearly(open_workshop):
    workshop = open_workshop(**BAD)
    workshop.declare(workshop.poi(dataset="bad = { max = 10 }"))

    ended = workshop.penstock("run", "poi", "--json")

    assert ended.code == 1
    assert ended.json["status"] == "failed"
    assert "bad" in ended.json["note"]


def read(workshop: Workshop, name: str) -> str:
    return (workshop.folder / name).read_text("utf-8")


def typed(row: dict[str, str]) -> dict[str, object]:
    whole, real = ("id", "country_id", "points"), ("lat", "lon")
    return {
        name: None
        if value == ""
        else int(value)
        if name in whole
        else float(value)
        if name in real
        else value
        for name, value in row.items()
    } | {"updated_at": parse_instant(row["updated_at"])}


def test_an_export_holds_what_was_imported_in_each_form(imported):

    printed = imported.penstock("export", "poi")
    lines = imported.penstock("export", "poi", "--out", "poi.jsonl", "--json")
    imported.penstock("export", "poi", "--format", "csv", "--out", "poi.csv")
    imported.penstock("export", "poi", "--format", "parquet", "--out", "poi.parquet")

    expected = [row for _, row in sorted(truth(imported).items())]
    from_lines = [json.loads(line) for line in read(imported, "poi.jsonl").splitlines()]
    with (imported.folder / "poi.csv").open(encoding="utf-8", newline="") as file:
        from_csv = [typed(row) for row in csv.DictReader(file)]
    from_parquet = parquet.read_table(imported.folder / "poi.parquet").to_pylist()
    assert printed.out == read(imported, "poi.jsonl")
    assert lines.json == {
        "dataset": "poi",
        "rows": len(expected),
        "file": "poi.jsonl",
    }
    assert list(from_lines[0]) == list(COLUMNS)
    assert [
        row | {"updated_at": parse_instant(row["updated_at"])} for row in from_lines
    ] == expected
    assert from_csv == expected
    assert from_parquet == expected


def test_an_export_into_a_closed_pipe_ends_in_silence(imported):
    with subprocess.Popen(
        [*PENSTOCK, "export", "poi"],
        cwd=imported.folder,
        env=imported.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        result = process.stderr.read()
        process.wait(30)

    assert b"Traceback" not in result
    assert b"Exception" not in result


def test_budgets_show_what_is_left(open_workshop):
    workshop = open_workshop(records=20)
    workshop.declare(workshop.poi(), rate=50, burst=5)
    workshop.penstock("run", "poi")

    body = workshop.penstock("budgets", "--json").json["budgets"]
    shown = workshop.penstock("budgets")
    opened = workshop.penstock("budgets", "open", "practice", "--json")

    assert body[0]["name"] == "practice"
    assert body[0]["state"] == "open"
    assert body[0]["rate"] == "50/s"
    assert body[0]["taken"] == len(workshop.sandbox.requests)
    assert "practice" in shown.out
    assert opened.json == {"opened": "practice"}


def test_the_status_shows_what_runs_waits_and_failed(open_workshop):
    workshop = open_workshop(records=20)
    workshop.declare(workshop.poi(), rate=50, burst=5)
    nothing = workshop.penstock("status")
    workshop.penstock("plan", "poi")

    planned = workshop.penstock("status", "--json").json
    shown = workshop.penstock("status")
    workshop.penstock("run", "poi")
    done = workshop.penstock("status", "--json").json

    assert "No import is running." in nothing.out
    (waiting,) = planned["imports"]
    assert waiting["waiting"]["reason"] == "no_worker"
    assert planned["budgets"][0]["name"] == "practice"
    assert (planned["workers"], planned["maintenance"]) == ([], [])
    assert "start one with: penstock worker" in " ".join(shown.out.split())
    assert (done["imports"], done["problems"]) == ([], [])
    tasks = {task["name"].partition(":")[0]: task for task in done["maintenance"]}
    assert tasks.keys() >= {"leases", "indexes", "spool", "expired"}
    assert tasks["leases"]["last_run_at"] is not None
    assert tasks["leases"]["error"] is None


def test_a_probe_tells_whether_a_worker_of_this_host_is_alive(workshop):
    alone = workshop.penstock("health")
    worker = workshop.worker()
    wait_until(lambda: workshop.penstock("health").code == 0)
    shown = workshop.penstock("health", "--json").json
    worker.kill()
    worker.wait()

    assert (alone.code, alone.out) == (1, "")
    assert alone.err.endswith("has reported lately\n")
    assert shown["healthy"] is True
    assert [found["pid"] for found in shown["workers"]] == [worker.pid]
    assert happens(lambda: workshop.penstock("health").code == 1, within=60)


def test_a_database_that_is_away_is_no_reason_to_restart_workers(workshop):
    text = workshop.config.read_text("utf-8").replace(
        workshop.store.declaration(),
        'database = "postgresql://nobody@127.0.0.1:1/nothing"',
    )
    workshop.config.write_text(text, encoding="utf-8")

    checked = workshop.penstock("health", "--json")

    assert (checked.code, checked.json["healthy"]) == (0, True)
    assert "unknown: " in checked.json["detail"]


def test_the_sandbox_serves_until_ctrl_c(open_workshop):
    workshop = open_workshop(records=1)
    sandbox = workshop.start("sandbox", "--port", "0", "--records", "30", "--json")
    output = workshop.folder / "0.out"
    wait_until(lambda: output.read_text().endswith("\n"))

    url = json.loads(output.read_text())["url"]
    with urllib.request.urlopen(f"{url}?maxresults=5", timeout=5) as answer:
        points = json.load(answer)
    sandbox.send_signal(signal.SIGINT)
    ended = workshop.output_of(sandbox)

    assert len(points) == 5
    assert ended.code == 0
    assert ended.err == ""


def test_the_demo_holds(open_workshop):
    workshop = open_workshop(records=1)

    done = workshop.penstock("demo", "--records", "8000", "--workers", "3", "--json")

    body = done.json
    assert done.code == 0
    assert body["holds"] is True
    assert body["differing"] == body["answered_429"] == 0
    assert body["stored"] == body["expected"] == 8000
    assert body["rescues"] >= 1
    assert body["audit_complete"] is True


def test_the_demo_stays_open_in_the_browser(open_workshop):
    workshop = open_workshop(records=1)

    demo = workshop.start(
        *("demo", "--records", "300", "--workers", "2", "--serve", "--port", "0"),
        "--json",
    )
    output = workshop.folder / "0.out"
    wait_until(lambda: output.read_text().endswith("\n"), within=60)
    body = json.loads(output.read_text())
    with urllib.request.urlopen(body["url"], timeout=20) as response:
        page = response.read().decode()
    demo.send_signal(signal.SIGINT)
    ended = workshop.output_of(demo)

    assert body["holds"] is True
    assert "<title>Overview" in page
    assert ended.code == 0
    assert ended.err == ""


def test_a_changed_declaration_is_not_mixed_into_an_unfinished_import(workshop):
    workshop.penstock("plan", "poi")
    workshop.declare(workshop.by_country(size=7))

    refused = workshop.penstock("run", "poi", "--json")

    assert refused.code == 2
    assert "penstock imports cancel 1" in refused.json["error"]["message"]


def test_a_new_key_goes_on_with_an_unfinished_import(open_workshop: OpenWorkshop):
    workshop = open_workshop(key=None)
    workshop.declare(workshop.by_country())
    workshop.penstock("plan", "poi", PRACTICE_KEY="another-key-0815")

    done = workshop.penstock("run", "poi", "--json")

    assert done.code == 0
    assert done.json["import_id"] == 1


def test_the_key_is_nowhere_but_in_the_requests(open_workshop):
    workshop = open_workshop(records=60, faults={"500": 0.1, "reset": 0.1})
    workshop.declare(
        workshop.poi(query='output = "json", key = "${PRACTICE_KEY}"', pages=None)
    )
    run = workshop.start("run", "poi", "--workers", "2")
    ended = workshop.output_of(run)
    worker = workshop.penstock("worker", "--until-idle", "--verbose")
    workshop.penstock("export", "poi", "--out", "rows.jsonl")
    jobs = workshop.penstock("jobs", "--json")

    stored = b"".join(
        path.read_bytes()
        for path in workshop.folder.iterdir()
        if path.name != "penstock.toml"
    )
    assert ended.code == 0
    assert KEY not in ended.out + ended.err + worker.err + jobs.out
    assert KEY.encode() not in stored
    assert os.fsencode(KEY) not in workshop.config.read_bytes()
