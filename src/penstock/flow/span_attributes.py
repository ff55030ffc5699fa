"""The attributes that spans of several use cases have."""

from penstock.domain.jobs import Import, Lease
from penstock.ports.tracing import TraceSpan


def describe_lease(span: TraceSpan, lease: Lease) -> None:
    """Name the dataset, the import, the job and its shard."""
    span.set("penstock.dataset", lease.dataset)
    span.set("penstock.import_id", lease.import_id)
    span.set("penstock.job_id", lease.job)
    span.set("penstock.shard", lease.shard_key)


def describe_plan(span: TraceSpan, planned: Import, shards: int) -> None:
    """Name the dataset and the import, and how many shards it has."""
    span.set("penstock.dataset", planned.dataset)
    span.set("penstock.import_id", planned.id)
    span.set("penstock.shards", shards)
