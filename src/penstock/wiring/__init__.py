"""Builds adapters and use cases from settings; no other package names an adapter.

Adapters are imported where they are used: short commands would mostly import, and
SQLite needs no drivers of servers.
"""

from penstock.wiring.celery import (
    broker_checks,
    build_slice_worker,
    celery_app,
    check_broker,
    check_celery,
    refused_pool,
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
    "build_runtime",
    "build_slice_worker",
    "build_store_metrics",
    "celery_app",
    "check_broker",
    "check_celery",
    "check_hook_functions",
    "fan_out",
    "list_statements",
    "load_transform",
    "new_worker_id",
    "open_container",
    "planning_task",
    "refused_pool",
    "serve_metrics",
    "server_diagnostics",
    "try_hooks",
]
