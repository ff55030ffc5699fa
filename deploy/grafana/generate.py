"""Write the dashboards for Grafana beside this file; `--check` only compares them."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# of 24 columns; three panels are in a row
WIDTH, HEIGHT = 8, 7
# of the processes that serve the API
SERVES = " and on (job, instance) penstock_http_feeds"
READS = 'route!~".*/(changes|events)"'


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A graph of some queries, or with `is_stat` their newest values."""

    title: str
    unit: str = "short"
    # query -> legend
    queries: dict[str, str]
    is_stat: bool = False


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    name: str
    title: str
    panels: Sequence[Panel]
    # whether its queries have a $dataset
    by_dataset: bool = False


def percentiles(
    metric: str,
    *,
    by: str = "",
    selector: str = "",
    where: str = "",
    legend: str = "",
) -> dict[str, str]:
    """Return the queries for the 50th, 95th and 99th percentile of a histogram."""
    group = f"le, {by}" if by else "le"
    rate = f"sum by ({group}) (rate({metric}_bucket{selector}[5m]){where})"
    return {
        f"histogram_quantile({quantile}, {rate})": f"{legend} {name}".strip()
        for quantile, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
    }


def newest(metric: str, by: str = "dataset") -> str:
    """Return a query for a gauge that all processes expose alike."""
    return f"max by ({by}) ({metric})"


def rate(metric: str, by: str = "", selector: str = "") -> str:
    group = f" by ({by})" if by else ""
    return f"sum{group} (rate({metric}{selector}[5m]))"


DATASET = '{dataset=~"$dataset"}'

OVERVIEW = Dashboard(
    name="overview",
    title="Penstock: overview",
    panels=[
        Panel(
            title="Firing alerts",
            is_stat=True,
            queries={
                'count(ALERTS{alertname=~"Penstock.*",alertstate="firing"}) '
                "or vector(0)": "alerts"
            },
        ),
        Panel(
            title="Running imports",
            is_stat=True,
            queries={
                f"sum({newest('penstock_running_imports')}) or vector(0)": "imports"
            },
        ),
        Panel(
            title="Workers",
            is_stat=True,
            queries={
                f"sum({newest('penstock_live_workers', 'region')})": "processes",
                f"sum({newest('penstock_live_worker_threads', 'region')})": "jobs",
            },
        ),
        Panel(
            title="Age of the datasets",
            unit="s",
            queries={
                f"time() - {newest('penstock_dataset_imported_timestamp_seconds')}": (
                    "{{dataset}}"
                )
            },
        ),
        Panel(
            title="Rows",
            queries={newest("penstock_dataset_rows"): "{{dataset}}"},
        ),
        Panel(
            title="Pages a second",
            queries={rate("penstock_pages_total", "dataset"): "{{dataset}}"},
        ),
        Panel(
            title="Failed jobs and bad rows",
            queries={
                newest("penstock_failed_jobs"): "{{dataset}} jobs",
                newest("penstock_dataset_bad_rows"): "{{dataset}} rows",
            },
        ),
        Panel(
            title="Imports that wait",
            queries={
                newest("penstock_waiting_imports", "dataset, reason"): (
                    "{{dataset}} {{reason}}"
                )
            },
        ),
        Panel(
            title="Requests to the API a second",
            unit="reqps",
            queries={rate("penstock_http_requests_total", "status"): "{{status}}"},
        ),
        Panel(
            title="Schedules",
            queries={
                newest("penstock_schedules", "dataset, status"): (
                    "{{dataset}} {{status}}"
                )
            },
        ),
        Panel(
            title="Delay of the schedules",
            unit="s",
            queries={newest("penstock_schedule_overdue_seconds"): "{{dataset}}"},
        ),
        Panel(
            title="Fires",
            queries={
                rate("penstock_schedule_fires_total", "dataset"): "{{dataset}} begun",
                rate("penstock_schedule_fires_skipped_total", "dataset, reason"): (
                    "{{dataset}} {{reason}}"
                ),
            },
        ),
    ],
)

IMPORT = Dashboard(
    name="import",
    title="Penstock: imports",
    by_dataset=True,
    panels=[
        Panel(
            title="Rows a second by outcome",
            queries={
                rate("penstock_records_total", "outcome", DATASET): "{{outcome}}",
            },
        ),
        Panel(
            title="Pages a second",
            queries={rate("penstock_pages_total", "dataset", DATASET): "{{dataset}}"},
        ),
        Panel(
            title="Jobs",
            queries={
                newest(f"penstock_due_jobs{DATASET}", "dataset, region"): (
                    "{{dataset}} {{region}} due"
                ),
                newest(f"penstock_leased_jobs{DATASET}", "dataset, region"): (
                    "{{dataset}} {{region}} in work"
                ),
            },
        ),
        Panel(
            title="Requests to the provider a second",
            unit="reqps",
            queries={
                rate("penstock_upstream_requests_total", "status", DATASET): (
                    "{{status}}"
                )
            },
        ),
        Panel(
            title="Duration of requests to the provider",
            unit="s",
            queries=percentiles("penstock_upstream_request_seconds", selector=DATASET),
        ),
        Panel(
            title="Since when the oldest due job waits",
            unit="s",
            queries={
                newest(f"penstock_oldest_due_seconds{DATASET}", "dataset, region"): (
                    "{{dataset}} {{region}}"
                )
            },
        ),
        Panel(
            title="How leases ended, a second",
            queries={
                rate("penstock_job_ends_total", "outcome", DATASET): "{{outcome}}",
                rate("penstock_job_rescues_total", "", DATASET): "rescued",
            },
        ),
        Panel(
            title="Jobs put back a second",
            queries={
                rate("penstock_job_postponements_total", "reason", DATASET): (
                    "{{reason}}"
                )
            },
        ),
        Panel(
            title="Workers that are useful and that there are",
            queries={
                newest("penstock_useful_jobs", "region"): "{{region}} useful",
                newest("penstock_live_worker_threads", "region"): "{{region}} running",
            },
        ),
    ],
)

BUDGET = Dashboard(
    name="budget",
    title="Penstock: budgets",
    panels=[
        Panel(
            title="Requests a second",
            unit="reqps",
            queries={
                newest("rate(penstock_budget_taken_requests[5m])", "budget"): (
                    "{{budget}} taken"
                ),
                newest("penstock_budget_rate", "budget"): "{{budget}} allowed",
            },
        ),
        Panel(
            title="Remaining requests",
            queries={
                newest("penstock_budget_remaining_requests", "budget, window"): (
                    "{{budget}} {{window}}"
                )
            },
        ),
        Panel(
            title="Used share of quotas",
            unit="percentunit",
            queries={
                newest("penstock_budget_used_requests", "budget, window")
                + " / "
                + newest("penstock_budget_allowed_requests", "budget, window"): (
                    "{{budget}} {{window}}"
                )
            },
        ),
        Panel(
            title="Time until closed budgets open",
            unit="s",
            queries={newest("penstock_budget_closed_seconds", "budget"): "{{budget}}"},
        ),
        Panel(
            title="Stopped budgets",
            queries={newest("penstock_budget_stopped", "budget"): "{{budget}}"},
        ),
        Panel(
            title="Closures an hour",
            queries={
                "sum by (budget) (increase(penstock_budget_closures_total[1h]))": (
                    "{{budget}}"
                ),
                "sum by (budget) (increase(penstock_budget_stops_total[1h]))": (
                    "{{budget}} stopped"
                ),
            },
        ),
        Panel(
            title="Wait for a token",
            unit="s",
            queries=percentiles(
                "penstock_token_wait_seconds", by="budget", legend="{{budget}}"
            ),
        ),
    ],
)

API = Dashboard(
    name="api",
    title="Penstock: API",
    panels=[
        Panel(
            title="Requests a second",
            unit="reqps",
            queries={
                rate("penstock_http_requests_total", "route"): "{{route}}",
            },
        ),
        Panel(
            title="Duration of requests",
            unit="s",
            queries=percentiles(
                "penstock_http_request_seconds", selector=f"{{{READS}}}"
            ),
        ),
        Panel(
            title="95th percentile by route",
            unit="s",
            queries={
                query: "{{route}}"
                for query, legend in percentiles(
                    "penstock_http_request_seconds",
                    by="route",
                    selector=f"{{{READS}}}",
                ).items()
                if legend == "p95"
            },
        ),
        Panel(
            title="Share of errors",
            unit="percentunit",
            queries={
                rate("penstock_http_requests_total", selector='{status="5xx"}')
                + " / "
                + rate("penstock_http_requests_total"): "5xx",
                rate("penstock_http_requests_total", selector='{status="4xx"}')
                + " / "
                + rate("penstock_http_requests_total"): "4xx",
            },
        ),
        Panel(
            title="Hit ratio of the cache",
            unit="percentunit",
            queries={
                rate(
                    "penstock_http_cache_answers_total",
                    selector='{found=~"hit|shared_hit"}',
                )
                + " / "
                + rate("penstock_http_cache_answers_total"): "hits",
            },
        ),
        Panel(
            title="Cached responses",
            unit="bytes",
            queries={
                "sum by (instance) (penstock_http_cache_bytes)": "{{instance}}",
            },
        ),
        Panel(
            title="Requests in progress",
            queries={
                "sum by (lane) (penstock_http_in_flight)": "{{lane}}",
                "sum(penstock_http_feeds)": "wait for changes",
            },
        ),
        Panel(
            title="Rejected requests a second",
            unit="reqps",
            queries={
                rate("penstock_http_refused_total", "lane"): "{{lane}} overload",
                rate("penstock_http_rate_limited_total"): "rate limit",
            },
        ),
        Panel(
            title="Used share of the connections for reads",
            unit="percentunit",
            queries={
                'penstock_pool_in_use{pool!="ledger"} / '
                'penstock_pool_size{pool!="ledger"}': "{{instance}} {{pool}}",
            },
        ),
        Panel(
            title="Duration of statements of reads",
            unit="s",
            queries=percentiles("penstock_statement_seconds", where=SERVES),
        ),
        Panel(
            title="CPU and memory by process",
            queries={
                rate("process_cpu_seconds_total", "job, instance"): (
                    "{{job}} {{instance}} cores"
                ),
                "sum by (job, instance) (process_resident_memory_bytes) / 2^30": (
                    "{{job}} {{instance}} GiB"
                ),
            },
        ),
    ],
)

DATABASE = Dashboard(
    name="database",
    title="Penstock: database and upkeep",
    panels=[
        Panel(
            title="Threads that query a store",
            queries={
                "sum by (lane) (penstock_http_threads_busy)": "{{lane}}",
                "sum(penstock_http_threads)": "there are",
            },
        ),
        Panel(
            title="Requests that wait for a thread",
            queries={"sum by (lane) (penstock_http_waiting)": "{{lane}}"},
        ),
        Panel(
            title="Connections by pool",
            queries={
                f"sum by (job, pool) (penstock_pool_{name})": (
                    f"{{{{job}}}} {{{{pool}}}} {legend}"
                )
                for name, legend in (
                    ("size", "limit"),
                    ("in_use", "in use"),
                    ("idle", "idle"),
                )
            },
        ),
        Panel(
            title="Waits for a connection",
            queries={
                "sum by (job, pool) (penstock_pool_waiting)": (
                    "{{job}} {{pool}} waiting"
                ),
                rate("penstock_pool_waits_total", "job, pool"): (
                    "{{job}} {{pool}} waits a second"
                ),
                rate("penstock_pool_wait_seconds_total", "job, pool"): (
                    "{{job}} {{pool}} waited, a second"
                ),
            },
        ),
        Panel(
            title="Duration of statements",
            unit="s",
            queries=percentiles("penstock_statement_seconds"),
        ),
        Panel(
            title="Time in statements, a second: the most",
            unit="s",
            queries={
                f"topk(10, {rate('penstock_statement_seconds_sum', 'statement')})": (
                    "{{statement}}"
                )
            },
        ),
        Panel(
            title="95th percentile by statement: the slowest",
            unit="s",
            queries={
                f"topk(10, {query})": "{{statement}}"
                for query, legend in percentiles(
                    "penstock_statement_seconds", by="statement"
                ).items()
                if legend == "p95"
            },
        ),
        Panel(
            title="Slow queries: a second or longer, and cancelled ones",
            queries={
                rate("penstock_slow_statements_total", "statement"): "{{statement}}",
                rate("penstock_http_called_off_total", "lane"): "{{lane}} cancelled",
            },
        ),
        Panel(
            title="Groups of gauges that could not be read",
            queries={"max by (job) (penstock_store_reads_failed)": "{{job}}"},
        ),
        Panel(
            title="Results that waited for a store, a second",
            queries={rate("penstock_stores_away_total", "dataset"): "{{dataset}}"},
        ),
        Panel(
            title="Log that replicas have not replayed",
            unit="bytes",
            queries={
                newest("penstock_replica_lag_bytes", "replica"): "{{replica}}",
            },
        ),
        Panel(
            title="Replicas in rotation",
            queries={
                "min by (replica) (penstock_replica_in_rotation)": "{{replica}}",
            },
        ),
        Panel(
            title="Free share of the disks",
            unit="percentunit",
            queries={
                "penstock_disk_free_bytes / penstock_disk_size_bytes": (
                    "{{instance}} {{place}}"
                )
            },
        ),
        Panel(
            title="Messages not sent or confirmed",
            queries={
                newest("penstock_outbox_messages", "kind"): "{{kind}}",
                newest("penstock_outbox_unsent_seconds", "kind"): "{{kind}} seconds",
            },
        ),
        Panel(
            title="Delay of maintenance",
            unit="s",
            queries={
                newest("penstock_maintenance_overdue_seconds", "task"): "{{task}}"
            },
        ),
        Panel(
            title="Failing maintenance tasks",
            queries={newest("penstock_maintenance_failing_tasks", "task"): "{{task}}"},
        ),
        Panel(
            title="Time in maintenance, a second",
            unit="s",
            queries={rate("penstock_maintenance_seconds_total", "task"): "{{task}}"},
        ),
    ],
)

DASHBOARDS = (OVERVIEW, IMPORT, BUDGET, API, DATABASE)


def to_document(dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard in the format that Grafana imports."""
    variables: list[dict[str, Any]] = [
        {"name": "datasource", "type": "datasource", "query": "prometheus"}
    ]
    if dashboard.by_dataset:
        variables.append(
            {
                "name": "dataset",
                "type": "query",
                "datasource": DATASOURCE,
                "query": "label_values(penstock_dataset_bad_rows, dataset)",
                "refresh": 2,
                "includeAll": True,
                "allValue": ".*",
                "multi": True,
            }
        )
    return {
        "uid": f"penstock-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["penstock"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": variables},
        "panels": [
            to_panel(number, panel) for number, panel in enumerate(dashboard.panels)
        ],
    }


def to_panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, 24 // WIDTH)
    return {
        "id": number + 1,
        "title": panel.title,
        "type": "stat" if panel.is_stat else "timeseries",
        "datasource": DATASOURCE,
        "gridPos": {
            "x": column * WIDTH,
            "y": row * HEIGHT,
            "w": WIDTH,
            "h": HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(panel.queries.items())
        ],
    }


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each file and what it should contain."""
    for dashboard in DASHBOARDS:
        text = json.dumps(to_document(dashboard), indent=1, ensure_ascii=False)
        yield FOLDER / f"{dashboard.name}.json", f"{text}\n"


def stale_pages() -> list[str]:
    return [
        path.name
        for path, text in pages()
        if not path.exists() or path.read_text("utf-8") != text
    ]


def main() -> None:
    if "--check" in sys.argv:
        sys.exit(1 if stale_pages() else 0)
    for path, text in pages():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
