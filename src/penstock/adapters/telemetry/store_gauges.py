"""The gauges of the stores: their names, meanings and labels."""

from prometheus_client.core import GaugeMetricFamily

from penstock.adapters.telemetry.specs import MetricSpec

# due jobs of an import are counted up to this
MAX_COUNTED_JOBS = 10_000


def spec(name: str, text: str, *labels: str) -> MetricSpec:
    return MetricSpec(f"penstock_{name}", "gauge", text, labels)


GAUGES = {
    spec.name: spec
    for spec in (
        spec("store_reads_failed", "Groups of gauges that could not be read"),
        spec("budget_rate", "Sustained requests per second", "budget"),
        spec("budget_allowed_requests", "Requests of a limit", "budget", "window"),
        spec(
            "budget_used_requests", "Requests that a quota counts", "budget", "window"
        ),
        spec(
            "budget_remaining_requests",
            "Requests that a limit allows at once",
            "budget",
            "window",
        ),
        spec("budget_taken_requests", "Requests ever allowed", "budget"),
        spec("budget_closed_seconds", "Until a closed budget opens", "budget"),
        spec("budget_stopped", "1 if an operator has to open the budget", "budget"),
        spec(
            "due_jobs",
            f"Jobs that could be claimed, up to {MAX_COUNTED_JOBS:,} of an import",
            "dataset",
            "region",
        ),
        spec(
            "oldest_due_seconds",
            "Since when the oldest of them is due",
            "dataset",
            "region",
        ),
        spec("leased_jobs", "Jobs in work", "dataset", "region"),
        spec(
            "failed_jobs", "Jobs of the newest import that failed for good", "dataset"
        ),
        spec("running_imports", "Imports with open jobs", "dataset"),
        spec(
            "waiting_imports",
            "Running imports without progress, by what they wait for",
            *("dataset", "reason"),
        ),
        spec(
            "useful_jobs", "Jobs that can run before workers wait for budgets", "region"
        ),
        spec(
            "dataset_imported_timestamp_seconds",
            "When the last successful import ended",
            "dataset",
        ),
        spec("dataset_import_failed", "1 if the newest import failed", "dataset"),
        spec(
            "dataset_interval_seconds",
            "How often the active schedules import it, at their longest pause",
            "dataset",
        ),
        spec("dataset_rows", "Live rows; only of serve", "dataset"),
        spec("dataset_bad_rows", "Open rows in quarantine", "dataset"),
        spec(
            "schedules",
            "Schedules by status, without those that are declared as paused",
            *("dataset", "status"),
        ),
        spec(
            "schedule_overdue_seconds",
            "How long a fire has been due that no scheduler has decided",
            "dataset",
        ),
        spec("live_workers", "Worker processes", "region"),
        spec("live_worker_threads", "Jobs that they can run", "region"),
        spec("outbox_messages", "Messages not sent or not confirmed", "kind"),
        spec(
            "outbox_unsent_seconds",
            "Since when the oldest message waits that was never sent",
            "kind",
        ),
        spec(
            "maintenance_overdue_seconds",
            "How long a task of this kind has been due, and none was run",
            "task",
        ),
        spec("maintenance_failing_tasks", "Tasks whose last run failed", "task"),
        spec(
            "maintenance_last_run_timestamp_seconds",
            "When a task of this kind ran last",
            "task",
        ),
        spec(
            "maintenance_last_failure_timestamp_seconds",
            "When a task of this kind failed last",
            "task",
        ),
        spec("replica_in_rotation", "1 if the API reads from it", "replica"),
        spec(
            "replica_lag_bytes",
            "Log of the primary that a replica has not replayed",
            "replica",
        ),
        spec("disk_free_bytes", "Free space of the disk that has it", "place"),
        spec("disk_size_bytes", "Size of the disk that has it", "place"),
    )
}


def gauge(name: str) -> GaugeMetricFamily:
    found = GAUGES[f"penstock_{name}"]
    return GaugeMetricFamily(found.name, found.text, labels=found.labels)
