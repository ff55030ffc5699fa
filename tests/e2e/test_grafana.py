"""The dashboards for Grafana ask a real Prometheus what real processes expose."""

import json
import re
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deploy.grafana import generate as dashboards
from docs import generate

from tests.services.private import PrivatePrometheus
from tests.support.stores import everywhere
from tests.support.workshop import Process, Workshop, wait_until

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
METRIC = re.compile(r"\b(?:penstock|process)_[a-z0-9_]+\b")
GROUPING = re.compile(r"by \(([^)]*)\)")
HISTOGRAM_SUFFIX = re.compile(r"_(bucket|count|sum)$")
# which Prometheus adds, and those of a histogram
ADDED_LABELS = {"instance", "job", "le"}


def queries() -> list[str]:
    """Return every query of every panel, of all datasets."""
    found = []
    for path in sorted((ROOT / "deploy" / "grafana").glob("*.json")):
        for panel in json.loads(path.read_text("utf-8"))["panels"]:
            targets = [target["expr"] for target in panel["targets"]]
            assert targets, panel["title"]
            found += [query.replace("$dataset", ".*") for query in targets]
    return found


def address_of(workshop: Workshop, process: Process, event: str) -> str:
    def served() -> list[str]:
        log = workshop.log_of(process)
        return [line["url"] for line in log if line["event"] == event]

    wait_until(served)
    return urlsplit(served()[0]).netloc


def test_no_dashboard_is_stale():
    assert dashboards.stale_pages() == [], "write them with: make docs"


def test_the_dashboards_name_only_metrics_and_labels_that_exist():
    specs = {
        spec.name: spec for _, _, specs in generate.metric_groups() for spec in specs
    }
    # of the Prometheus client itself
    specs |= {spec.name: spec for spec in generate.http_metrics()}
    for query in queries():
        names = [HISTOGRAM_SUFFIX.sub("", name) for name in METRIC.findall(query)]
        known = {label for name in names for label in specs[name].labels}
        labels = {
            label.strip()
            for group in GROUPING.findall(query)
            for label in group.split(",")
        }
        assert labels <= known | ADDED_LABELS, query


@everywhere
def test_every_query_of_every_panel_runs(workshop: Workshop):
    server = workshop.start("serve", "--port", "0")
    api = address_of(workshop, server, "server_started")
    worker = workshop.worker("--metrics-port", "0")
    targets = {
        "penstock-api": api,
        "penstock-worker": address_of(workshop, worker, "metrics_served"),
    }
    with PrivatePrometheus(RULES, targets) as prometheus:

        def run(query: str) -> list[Any]:
            result: list[Any] = prometheus.query("query", query=query)["result"]
            return result

        # the counters of a dataset begin with its first page, and a rate needs two
        wait_until(lambda: len(run('up{job=~"penstock.*"} == 1')) == 2)
        workshop.penstock("plan", "poi")
        wait_until(workshop.is_finished)
        for _ in range(3):
            with urllib.request.urlopen(
                f"http://{api}/api/v1/datasets/poi"
            ) as response:
                response.read()
        wait_until(lambda: run("rate(penstock_pages_total[1m])"))
        wait_until(lambda: run("dataset:penstock_age:seconds"))
        wait_until(lambda: run("penstock_dataset_rows > 0"))

        exposed = set(prometheus.query("label/__name__/values"))
        answered = 0
        for query in queries():
            found = run(query)
            named = set(METRIC.findall(query))
            # what selects nothing cannot be empty where there is something
            if "{" not in query and named <= exposed:
                assert found, query
            answered += bool(found)
        assert answered > len(queries()) / 2
        groups = prometheus.query("rules")["groups"]

    for rule in (rule for group in groups for rule in group["rules"]):
        assert (rule["health"], rule.get("lastError")) == ("ok", None), rule["name"]
