"""Builds adapters and use cases from settings; no other package names an adapter.

Adapters are imported where they are used: short commands would mostly import, and
SQLite needs no drivers of servers.
"""

from penstock.wiring.celery import (
    broker_checks,
    build_read_queues,
    build_slice_worker,
    celery_app,
    check_broker,
    check_celery,
    consumed_queues,
    longest_slice,
    refused_pool,
    worker_consumer,
)
from penstock.wiring.container import Container
from penstock.wiring.databases import (
    list_statements,
    open_container,
    server_diagnostics,
)
from penstock.wiring.hooks import check_hook_functions, try_hooks
from penstock.wiring.maintenance import build_maintenance, planning_task
from penstock.wiring.process_identity import new_worker_id
from penstock.wiring.runtime import build_runtime
from penstock.wiring.telemetry import (
    build_emit,
    build_event_metrics,
    build_store_metrics,
    fan_out,
    serve_metrics,
)
from penstock.wiring.user_functions import load_transform

__all__ = [
    "Container",
    "broker_checks",
    "build_emit",
    "build_event_metrics",
    "build_maintenance",
    "build_read_queues",
    "build_runtime",
    "build_slice_worker",
    "build_store_metrics",
    "celery_app",
    "check_broker",
    "check_celery",
    "check_hook_functions",
    "consumed_queues",
    "fan_out",
    "list_statements",
    "load_transform",
    "longest_slice",
    "new_worker_id",
    "open_container",
    "planning_task",
    "refused_pool",
    "serve_metrics",
    "server_diagnostics",
    "try_hooks",
    "worker_consumer",
]
