"""The alert rules fire when they should, and end when their cause does."""

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from docs import generate

from tests.services.find import provide_promtool

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
GROUPS = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
ALERTS = [rule for group in GROUPS for rule in group["rules"] if "alert" in rule]
METRIC = re.compile(r"(?<![:\w])penstock_[a-z0-9_]+(?![:\w])")
HISTOGRAM_SUFFIX = re.compile(r"_(bucket|count|sum)$")


@dataclass(frozen=True, kw_only=True)
class Drill:
    """Minutes of virtual time: what is exposed, and when an alert fires."""

    alert: str
    # as promtool expands them: a value for each minute
    series: dict[str, str]
    silent_at: int
    fires_at: int
    ended_at: int
    severity: str = "warning"


def up_and_down(*, minutes: int, value: float = 1) -> str:
    """Return ten minutes of zero, some of a value, and again zero."""
    return f"0x9 {value}x{minutes - 1} 0x60"


WAITING = 'penstock_waiting_imports{{dataset="poi",reason="{}",instance="a"}}'
READS = 'penstock_http_request_seconds_{}{{route="/",method="GET"{}}}'
READ_COUNT, QUICK_READS = READS.format("count", ""), READS.format("bucket", ',le="1.0"')
SKIPPED = 'penstock_schedule_fires_skipped_total{{dataset="poi",reason="{}"}}'

DRILLS = [
    Drill(
        alert="PenstockNoWorker",
        # a process that is scraped as well does not double it
        series={
            WAITING.format("no_worker"): "_x9 1x19 stale",
            WAITING.replace('"a"', '"b"').format("no_worker"): "_x9 1x19 stale",
        },
        silent_at=12,
        fires_at=16,
        ended_at=31,
        severity="critical",
    ),
    Drill(
        alert="PenstockNoWorker",
        series={WAITING.format("other_declaration"): "_x9 1x19 stale"},
        silent_at=12,
        fires_at=16,
        ended_at=31,
        severity="critical",
    ),
    Drill(
        alert="PenstockImportStalled",
        series={
            'penstock_running_imports{dataset="poi"}': "1x200",
            'penstock_pages_total{dataset="poi"}': "0+5x30 150x60 150+5x100",
        },
        silent_at=40,
        fires_at=65,
        ended_at=94,
    ),
    Drill(
        alert="PenstockImportStalled",
        series={WAITING.format("retrying"): "_x9 1x29 stale"},
        silent_at=20,
        fires_at=26,
        ended_at=41,
    ),
    Drill(
        alert="PenstockImportFailed",
        series={
            'penstock_dataset_import_failed{dataset="poi"}': up_and_down(minutes=20)
        },
        silent_at=5,
        fires_at=12,
        ended_at=31,
        severity="critical",
    ),
    Drill(
        alert="PenstockDeadLetters",
        series={
            'penstock_failed_jobs{dataset="poi"}': up_and_down(minutes=20, value=3)
        },
        silent_at=12,
        fires_at=16,
        ended_at=31,
    ),
    Drill(
        alert="PenstockDatasetStale",
        # imported at 0, and again after 180 minutes; once an hour is wanted
        series={
            'penstock_dataset_imported_timestamp_seconds{dataset="poi"}': (
                "0x179 10800x100"
            ),
            'penstock_dataset_interval_seconds{dataset="poi"}': "3600x300",
        },
        silent_at=119,
        fires_at=132,
        ended_at=181,
    ),
    Drill(
        alert="PenstockBudgetStopped",
        series={'penstock_budget_stopped{budget="maps"}': up_and_down(minutes=20)},
        silent_at=5,
        fires_at=12,
        ended_at=31,
        severity="critical",
    ),
    Drill(
        alert="PenstockBudgetClosed",
        series={
            'penstock_budget_closed_seconds{budget="maps"}': up_and_down(
                minutes=90, value=600
            )
        },
        silent_at=60,
        fires_at=72,
        ended_at=101,
    ),
    Drill(
        alert="PenstockProviderFails",
        series={
            'penstock_upstream_requests_total{dataset="poi",status="2xx"}': "0+60x300",
            'penstock_upstream_requests_total{dataset="poi",status="none"}': (
                "0x30 0+90x30 2700x100"
            ),
        },
        silent_at=40,
        fires_at=55,
        ended_at=70,
    ),
    Drill(
        alert="PenstockScheduleMissed",
        series={
            'penstock_schedule_overdue_seconds{dataset="poi"}': "0x9 60+60x19 0x60"
        },
        silent_at=14,
        fires_at=18,
        ended_at=31,
        severity="critical",
    ),
    Drill(
        alert="PenstockScheduleMissed",
        # the series begins with the first miss, so it never increases
        series={SKIPPED.format("too_old"): "_x9 1x120"},
        silent_at=5,
        fires_at=12,
        ended_at=75,
        severity="critical",
    ),
    Drill(
        alert="PenstockScheduleMissed",
        series={SKIPPED.format("no_scheduler"): "4x89 5x120"},
        silent_at=85,
        fires_at=92,
        ended_at=155,
        severity="critical",
    ),
    Drill(
        alert="PenstockScheduleStopped",
        series={
            'penstock_schedules{dataset="poi",status="broken"}': up_and_down(minutes=20)
        },
        silent_at=15,
        fires_at=21,
        ended_at=31,
    ),
    Drill(
        alert="PenstockApiErrors",
        # one in twenty fails for half an hour
        series={
            'penstock_http_requests_total{status="2xx"}': "0+1000x300",
            'penstock_http_requests_total{status="5xx"}': "0x60 0+50x30 1500x210",
        },
        silent_at=61,
        fires_at=85,
        ended_at=100,
        severity="critical",
    ),
    Drill(
        alert="PenstockApiErrors",
        # one in a hundred fails: too few for the fast alert
        series={
            'penstock_http_requests_total{status="2xx"}': "0+1000x900",
            'penstock_http_requests_total{status="5xx"}': "0x60 0+10x400 4000x440",
        },
        silent_at=100,
        fires_at=400,
        ended_at=500,
    ),
    Drill(
        alert="PenstockApiSlow",
        series={
            READ_COUNT: "0+1000x300",
            QUICK_READS: "0+1000x60 60000+500x30 75000+1000x210",
        },
        silent_at=61,
        fires_at=85,
        ended_at=100,
        severity="critical",
    ),
    Drill(
        alert="PenstockApiSlow",
        series={
            READ_COUNT: "0+1000x900",
            QUICK_READS: "0+1000x60 60000+900x400 420000+1000x440",
        },
        silent_at=100,
        fires_at=400,
        ended_at=500,
    ),
    Drill(
        alert="PenstockReplicaBehind",
        series={
            'penstock_replica_in_rotation{replica="penstock.replicas[0]"}': (
                "1x9 0x19 1x60"
            )
        },
        silent_at=15,
        fires_at=21,
        ended_at=31,
    ),
    Drill(
        alert="PenstockReplicaBehind",
        series={
            'penstock_replica_lag_bytes{replica="penstock.replicas[0]"}': up_and_down(
                minutes=20, value=1e8
            )
        },
        silent_at=15,
        fires_at=21,
        ended_at=31,
    ),
    Drill(
        alert="PenstockTargetDown",
        series={'up{job="penstock-worker",instance="a"}': "1x9 0x19 1x60"},
        silent_at=12,
        fires_at=16,
        ended_at=31,
    ),
    Drill(
        alert="PenstockTargetDown",
        series={'up{job="penstock-worker",instance="a"}': "1x9 stale _x19 1x60"},
        silent_at=12,
        fires_at=16,
        ended_at=31,
    ),
    Drill(
        alert="PenstockStoreAway",
        series={
            'penstock_store_reads_failed{job="penstock-api"}': up_and_down(minutes=20)
        },
        silent_at=12,
        fires_at=16,
        ended_at=31,
        severity="critical",
    ),
    Drill(
        alert="PenstockWorkerErrors",
        series={'penstock_worker_failures_total{job="penstock-worker"}': "0x9 1x100"},
        silent_at=5,
        fires_at=12,
        ended_at=30,
    ),
    Drill(
        alert="PenstockOutboxDelayed",
        series={'penstock_outbox_unsent_seconds{kind="wake-up"}': "0x9 60+60x29 0x60"},
        silent_at=14,
        fires_at=21,
        ended_at=41,
    ),
    Drill(
        alert="PenstockDiskFull",
        series={
            'penstock_disk_size_bytes{place="spool",instance="a"}': "100x200",
            'penstock_disk_free_bytes{place="spool",instance="a"}': "50x9 8x19 50x60",
        },
        silent_at=15,
        fires_at=21,
        ended_at=31,
    ),
    Drill(
        alert="PenstockDiskFull",
        series={
            'penstock_disk_size_bytes{place="spool",instance="a"}': "100x200",
            'penstock_disk_free_bytes{place="spool",instance="a"}': "50x9 2x19 50x60",
        },
        silent_at=5,
        fires_at=12,
        ended_at=31,
        severity="critical",
    ),
    Drill(
        alert="PenstockMaintenanceStuck",
        series={
            'penstock_maintenance_overdue_seconds{task="leases"}': "0x9 60+60x59 0x60"
        },
        silent_at=35,
        fires_at=42,
        ended_at=71,
    ),
    Drill(
        alert="PenstockMaintenanceStuck",
        # it is zero while a run is tried again
        series={
            'penstock_maintenance_failing_tasks{task="indexes"}': (
                "0x9 1x9 0x1 1x9 0x1 1x9 0x60"
            )
        },
        silent_at=20,
        fires_at=27,
        ended_at=60,
    ),
]


def promtool(*arguments: str | Path) -> str:
    done = subprocess.run(
        [provide_promtool(), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def firing(drill: Drill) -> str:
    names = f'alertname="{drill.alert}",severity="{drill.severity}"'
    return f'count(ALERTS{{{names},alertstate="firing"}}) or vector(0)'


def to_test(drill: Drill) -> dict[str, Any]:
    """Write it as promtool reads it."""
    expected = ((drill.silent_at, 0), (drill.fires_at, 1), (drill.ended_at, 0))
    return {
        "interval": "1m",
        "input_series": [
            {"series": series, "values": values}
            for series, values in drill.series.items()
        ],
        "promql_expr_test": [
            {
                "expr": firing(drill),
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": "{}", "value": count}],
            }
            for minute, count in expected
        ],
    }


def test_alerts_fire_and_end(tmp_path: Path):
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [to_test(drill) for drill in DRILLS],
    }
    path = tmp_path / "drills.yml"
    # which is YAML, too
    path.write_text(json.dumps(document), "utf-8")

    promtool("test", "rules", path)


def test_every_alert_has_a_drill():
    drilled = {(drill.alert, drill.severity) for drill in DRILLS}

    assert drilled == {(rule["alert"], rule["labels"]["severity"]) for rule in ALERTS}


def test_prometheus_accepts_the_rules_and_the_example():
    promtool("check", "rules", RULES)
    promtool("check", "config", RULES.with_name("prometheus.yml"))


def test_every_alert_has_a_summary_a_description_and_a_runbook():
    for rule in ALERTS:
        notes = rule["annotations"]
        assert set(notes) == {"summary", "description", "runbook"}, rule["alert"]
        page, _, heading = notes["runbook"].partition("#")
        text = (ROOT / page).read_text("utf-8")
        titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert heading in {title.lower().replace(" ", "-") for title in titles}


def test_every_section_of_the_runbooks_belongs_to_an_alert():
    linked = {rule["annotations"]["runbook"].partition("#")[2] for rule in ALERTS}
    text = (ROOT / "docs" / "howto" / "runbooks.md").read_text("utf-8")
    titles = re.findall(r"^## (.+)$", text, re.MULTILINE)

    assert {title.lower().replace(" ", "-") for title in titles} == linked


def test_every_metric_of_a_rule_is_exposed_by_the_code():
    exposed = {spec.name for _, _, specs in generate.metric_groups() for spec in specs}

    named = set()
    for group in GROUPS:
        for rule in group["rules"]:
            named |= set(METRIC.findall(rule["expr"]))

    assert {name for name in named if stem(name) not in exposed} == set()
    assert len(named) > 20


def stem(name: str) -> str:
    return HISTOGRAM_SUFFIX.sub("", name)
