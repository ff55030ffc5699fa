"""Workers and the demand for them as JSON, the same in the CLI and the API."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.domain.scaling import Demand
from penstock.domain.waiting import LiveWorker

# jobs that a worker works at a time, unless the caller says otherwise
DEFAULT_THREADS = 4


def worker_document(worker: LiveWorker) -> Mapping[str, object]:
    return {
        "id": worker.id,
        "region": worker.region,
        "host": worker.host,
        "pid": worker.pid,
        "version": worker.version,
        "threads": worker.threads,
        "jobs": worker.jobs,
        "started_at": worker.started_at,
        "last_seen_at": worker.seen_at,
        "last_claim_at": worker.last_claim_at,
        "datasets": sorted(worker.declarations),
    }


def scaling_document(
    demands: Sequence[Demand], *, threads: int = DEFAULT_THREADS
) -> dict[str, Any]:
    """Describe the demand of all regions together, and of each."""
    regions = [demand_document(each, threads) for each in demands]
    oldest = [each.oldest_due for each in demands if each.oldest_due is not None]
    return {
        "due_jobs": sum(each.due_jobs for each in demands),
        "oldest_due_seconds": max(oldest).total_seconds() if oldest else 0,
        "leased_jobs": sum(each.leased_jobs for each in demands),
        "useful_jobs": sum(each.useful_jobs for each in demands),
        "useful_workers": sum(workers_for(each, threads) for each in demands),
        "regions": regions,
    }


def demand_document(demand: Demand, threads: int) -> Mapping[str, object]:
    oldest = demand.oldest_due
    return {
        "region": demand.region,
        "due_jobs": demand.due_jobs,
        "oldest_due_seconds": 0 if oldest is None else oldest.total_seconds(),
        "leased_jobs": demand.leased_jobs,
        "useful_jobs": demand.useful_jobs,
        "useful_workers": workers_for(demand, threads),
        "limited_by": list(demand.limited_by),
        "closed": list(demand.closed),
    }


def workers_for(demand: Demand, threads: int) -> int:
    return math.ceil(demand.useful_jobs / threads)
