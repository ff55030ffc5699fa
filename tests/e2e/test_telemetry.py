"""What processes expose and log is what the ledger and the provider have seen."""

import json
import re
import urllib.request
from collections import Counter

from prometheus_client.parser import text_string_to_metric_families

from tests.support.stores import SqliteStore, everywhere
from tests.support.workshop import Process, Workshop, wait_until

Samples = dict[tuple[str, ...], float]
# of a `.sql` file, several of them, or by the first word
NAME_OF_STATEMENT = re.compile(r"[a-z_]+(\+[a-z_]+)*|records:[a-z_]+")
STORES_PAGE = re.compile("^add_page|^records:(store|repeat)_page$")


def address_of(workshop: Workshop, process: Process) -> str:
    def served() -> list[str]:
        log = workshop.log_of(process)
        return [line["url"] for line in log if line["event"] == "metrics_served"]

    wait_until(served)
    return served()[0]


def scrape(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=30) as response:
        text = response.read().decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_of_a_worker_agree_with_the_ledger_and_the_provider(workshop: Workshop):
    workshop.penstock("plan", "poi")
    before = len(workshop.sandbox.requests)
    worker = workshop.worker("--metrics-port", "0", "--verbose")
    url = address_of(workshop, worker)
    # gauges are read once in five seconds
    wait_until(lambda: workshop.ask("select * from penstock_worker"))
    wait_until(
        lambda: scrape(url).get(("penstock_imports_finished_total", "poi", "done"))
    )

    found = scrape(url)

    (stored,) = workshop.ask("select * from penstock_import")
    jobs = workshop.ask(
        "select count(*) as n from penstock_job "
        "where kind = 'shard' and status = 'done'"
    )
    requests = Counter(
        f"{request.status // 100}xx" for request in workshop.sandbox.requests[before:]
    )
    assert found["penstock_pages_total", "poi"] == workshop.pages()
    assert found["penstock_records_total", "poi", "inserted"] == stored["inserted"]
    assert found["penstock_job_claims_total", "poi"] == jobs[0]["n"]
    assert found["penstock_job_ends_total", "poi", "done"] == jobs[0]["n"]
    for status, count in requests.items():
        assert found["penstock_upstream_requests_total", "poi", status] == count
    responses = found["penstock_upstream_request_seconds_count", "poi"]
    assert responses == requests.total()
    tokens = found["penstock_token_wait_seconds_count", "practice"]
    assert tokens == requests.total()
    assert found["penstock_live_workers", ""] == 1
    assert found["penstock_live_worker_threads", ""] == 2

    worker.terminate()
    assert workshop.output_of(worker).code == 0
    # nothing but JSON, and each line of a job says whose it is
    lines = [json.loads(line) for line in errors_of(workshop)]
    assert [lines[0]["event"], lines[-1]["event"]] == [
        "metrics_served",
        "worker_stopped",
    ]
    assert lines[-1]["jobs"] == jobs[0]["n"]
    (name,) = {line["worker"] for line in lines if line["event"] == "worker_started"}
    for line in lines:
        if "job" in line:
            assert (line["worker"], line["import_id"]) == (name, stored["id"])
            assert line["dataset"] == "poi"


def errors_of(workshop: Workshop) -> list[str]:
    return (workshop.folder / "0.err").read_text("utf-8").splitlines()


def test_gauges_of_the_stores_agree_with_the_ledger(workshop: Workshop):
    workshop.penstock("plan", "poi")
    (planned,) = workshop.ask(
        "select count(*) as n from penstock_job where kind = 'shard'"
    )
    scheduler = workshop.start("scheduler", "--metrics-port", "0")

    found = scrape(address_of(workshop, scheduler))

    assert found["penstock_due_jobs", "poi", ""] == planned["n"]
    assert found["penstock_leased_jobs", "poi", ""] == 0
    assert found["penstock_oldest_due_seconds", "poi", ""] >= 0
    assert found["penstock_useful_jobs", ""] > 0
    assert found["penstock_live_workers", ""] == 0
    assert found["penstock_dataset_bad_rows", "poi"] == 0
    assert found["penstock_budget_rate", "practice"] == 5000
    assert found["penstock_budget_stopped", "practice"] == 0
    assert found["penstock_running_imports", "poi"] == 1
    assert found["penstock_waiting_imports", "poi", "no_worker"] == 1
    for place in ("spool", "database"):
        size = found["penstock_disk_size_bytes", place]
        assert 0 < found["penstock_disk_free_bytes", place] <= size
    assert found[("penstock_store_reads_failed",)] == 0
    scheduler.terminate()
    assert workshop.output_of(scheduler).code == 0


@everywhere
def test_gauges_show_failed_jobs_and_schedules(open_workshop):
    workshop = open_workshop()
    schedules = (
        '[schedules.nightly]\ndataset = "poi"\nevery = "12h"\n'
        '[schedules.later]\ndataset = "poi"\nevery = "1h"\npaused = true\n'
    )
    nowhere = workshop.by_country(path="/nowhere/")
    workshop.declare(nowhere, schedules, attempts=1)
    workshop.penstock("plan", "poi")
    worker = workshop.worker("--metrics-port", "0", "--with-scheduler")
    url = address_of(workshop, worker)
    wait_until(workshop.is_finished)
    wait_until(lambda: scrape(url).get(("penstock_failed_jobs", "poi")))

    found = scrape(url)

    (failed,) = workshop.ask(
        "select count(*) as n from penstock_job where status = 'failed'"
    )
    assert found["penstock_failed_jobs", "poi"] == failed["n"] > 0
    assert found["penstock_dataset_import_failed", "poi"] == 1
    assert ("penstock_running_imports", "poi") not in found
    assert found["penstock_schedules", "poi", "active"] == 1
    # that one is paused in its declaration
    assert ("penstock_schedules", "poi", "paused") not in found
    assert found["penstock_schedule_overdue_seconds", "poi"] == 0
    assert found["penstock_dataset_interval_seconds", "poi"] == 12 * 3600
    assert found["penstock_maintenance_overdue_seconds", "leases"] < 60
    assert found["penstock_maintenance_failing_tasks", "leases"] == 0
    assert found[("penstock_store_reads_failed",)] == 0

    worker.terminate()
    assert workshop.output_of(worker).code == 0


def test_a_failed_import_is_an_error_in_the_log(open_workshop):
    workshop = open_workshop()
    # no row can be stored: each lacks a required field
    workshop.declare(
        workshop.by_country(
            fields='id = { path = "ID", type = "int" }\n'
            'title = { path = "Nowhere", required = true }\n'
        )
    )
    workshop.penstock("plan", "poi")
    worker = workshop.worker("--until-idle")
    workshop.output_of(worker)

    (ended,) = (
        line for line in workshop.log_of(worker) if line["event"] == "import_finished"
    )
    assert (ended["status"], ended["level"]) == ("failed", "error")


@everywhere
def test_statements_and_connections_are_counted_by_their_process(workshop: Workshop):
    workshop.penstock("plan", "poi")
    server = workshop.start("serve", "--port", "0")
    worker = workshop.worker("--metrics-port", "0")
    url = address_of(workshop, worker)
    wait_until(workshop.is_finished)
    wait_until(lambda: workshop.log_of(server))
    api = workshop.log_of(server)[0]["url"]
    with urllib.request.urlopen(f"{api}/api/v1/datasets/poi", timeout=30) as response:
        response.read()

    of_worker, of_api = scrape(url), scrape(f"{api}/metrics")

    def committed(samples: Samples) -> float:
        """Return how often a page was stored."""
        return sum(
            value
            for (name, *labels), value in samples.items()
            if name == "penstock_statement_seconds_count"
            and STORES_PAGE.search(labels[0])
        )

    # on PostgreSQL one may be tried as new rows first
    assert committed(of_worker) >= workshop.pages() > 0
    assert committed(of_api) == 0
    statements = {
        labels[0]
        for (name, *labels), _ in [*of_worker.items(), *of_api.items()]
        if name == "penstock_statement_seconds_count"
    }
    assert all(NAME_OF_STATEMENT.fullmatch(name) for name in statements), statements
    pools = {
        labels[0]: value
        for (name, *labels), value in of_api.items()
        if name == "penstock_pool_size"
    }
    if isinstance(workshop.store, SqliteStore):
        assert pools == {}
        return
    # what serves reads has connections of its own
    assert pools.keys() == {"ledger", "api"}
    for samples, pool in ((of_worker, "ledger"), (of_api, "ledger"), (of_api, "api")):
        size = samples["penstock_pool_size", pool]
        in_use, idle = (
            samples[f"penstock_pool_{state}", pool] for state in ("in_use", "idle")
        )
        assert 0 <= in_use <= in_use + idle <= size
        assert samples["penstock_pool_wait_seconds_total", pool] >= 0
