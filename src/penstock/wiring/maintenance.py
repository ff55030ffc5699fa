"""The maintenance tasks that every process with a configuration has."""

import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

from penstock.domain.dataset import ArchivePolicy, Dataset
from penstock.flow.deliver_hooks import drop_undeclared
from penstock.flow.maintenance import (
    MaintenanceLoop,
    MaintenanceTask,
    OneOffTask,
    TaskKind,
    TaskRunner,
)
from penstock.ports.maintenance import TaskName
from penstock.settings.models.base import Engine
from penstock.wiring.hooks import describe_target
from penstock.wiring.process_identity import new_worker_id, process_space

if TYPE_CHECKING:
    from penstock.wiring.container import Container

# as fast as a job whose workers were killed is noticed
LEASE_INTERVAL = timedelta(seconds=2)
INDEX_INTERVAL = timedelta(seconds=5)
PLANNING_INTERVAL = timedelta(seconds=5)
# after an error the table stays slow for so long
INDEX_RETRY_INTERVAL = timedelta(minutes=1)
WAKE_UP_INTERVAL = timedelta(seconds=1)
# while the broker is unavailable
BROKER_RETRY_INTERVAL = timedelta(seconds=10)
CLEANUP_INTERVAL = timedelta(hours=1)
# expired requests that are removed at a time
MAX_EXPIRED = 1_000
# tasks that nobody has run for so long are removed from the list
TASK_RETENTION = timedelta(days=7)
# how long a message that was sent is stored
MESSAGE_RETENTION = timedelta(days=1)
# it may read all rows of a dataset
RETENTION_INTERVAL = timedelta(hours=6)
FOLD_INTERVAL = timedelta(minutes=1)
HOOK_INTERVAL = timedelta(seconds=2)


def build_maintenance(
    penstock: "Container", more: Sequence[MaintenanceTask] = ()
) -> MaintenanceLoop:
    """Build a loop with the tasks of every process, and `more` of this one."""
    one_off: Mapping[str, OneOffTask] = {}
    runner = TaskRunner(
        tasks={task.name: task for task in (*list_tasks(penstock), *more)},
        one_off=one_off,
        store=penstock.stores.maintenance,
        owner=new_worker_id(),
        emit=penstock.emit,
        redact=penstock.settings.redact,
    )
    return MaintenanceLoop(runner, flush=penstock.flush_samples)


def list_tasks(penstock: "Container") -> Iterator[MaintenanceTask]:
    """Yield the tasks; what a name contains, its task depends on.

    Only a process with the same declaration may end an import or build an index, so
    processes with another one have tasks of their own. Files belong to a host and a
    folder, and processes to a host and a namespace.
    """
    # a killed process is noticed by those that can see the processes of its host
    yield MaintenanceTask(
        name=TaskName(f"workers:{socket.gethostname()}:{process_space()}"),
        interval=LEASE_INTERVAL,
        run=penstock.sweep.expire_leases,
    )
    datasets = penstock.settings.datasets
    declarations = penstock.declarations(datasets)
    yield MaintenanceTask(
        name=TaskName(f"leases:{short_digest(declarations)}"),
        interval=LEASE_INTERVAL,
        run=penstock.sweep.finish_imports,
    )
    for name, dataset in datasets.items():
        yield MaintenanceTask(
            name=TaskName(f"indexes:{name}:{short_digest(declarations[name])}"),
            interval=INDEX_INTERVAL,
            retry_interval=INDEX_RETRY_INTERVAL,
            run=partial(maintain, penstock, dataset),
            kind=TaskKind.SLOW,
        )
        if dataset.archive is not None:
            yield archive_task(penstock, dataset, dataset.archive)
    folder = penstock.settings.spool.resolve()
    yield MaintenanceTask(
        name=TaskName(f"spool:{socket.gethostname()}:{folder}"),
        interval=CLEANUP_INTERVAL,
        run=penstock.clean_spool,
        kind=TaskKind.SLOW,
    )
    yield MaintenanceTask(
        name=TaskName("expired"),
        interval=CLEANUP_INTERVAL,
        run=partial(forget, penstock),
    )
    yield MaintenanceTask(
        name=TaskName("retention"),
        interval=RETENTION_INTERVAL,
        run=penstock.retention.run_shift,
        kind=TaskKind.SLOW,
    )
    yield MaintenanceTask(
        name=TaskName("rollups"), interval=FOLD_INTERVAL, run=penstock.fold_samples
    )
    yield from hook_tasks(penstock)
    if penstock.settings.engine is Engine.CELERY:
        from penstock.wiring.celery import build_send_wake_ups

        yield MaintenanceTask(
            name=TaskName(f"wake-ups:{short_digest(declarations)}"),
            interval=WAKE_UP_INTERVAL,
            retry_interval=BROKER_RETRY_INTERVAL,
            run=build_send_wake_ups(penstock),
        )


def hook_tasks(penstock: "Container") -> Iterator[MaintenanceTask]:
    """Yield a task for each hook, so that none waits for the messages of another."""
    hooks = penstock.settings.hooks
    for name, deliver in penstock.hook_deliveries.items():
        target = penstock.settings.redact(describe_target(hooks[name]))
        yield MaintenanceTask(
            name=TaskName(f"hooks:{name}:{short_digest(target)}"),
            interval=HOOK_INTERVAL,
            run=deliver,
            kind=TaskKind.REMOTE,
        )
    yield MaintenanceTask(
        name=TaskName(f"undeclared-hooks:{short_digest(sorted(hooks))}"),
        interval=CLEANUP_INTERVAL,
        run=partial(
            drop_undeclared, penstock.stores.outbox, hooks=hooks, emit=penstock.emit
        ),
    )


def planning_task(penstock: "Container", resume: Callable[[], None]) -> MaintenanceTask:
    """Build the task that looks for imports whose planner is gone.

    Files may be visible to one host alone, so each host looks by itself.
    """
    declarations = penstock.declarations(penstock.settings.datasets)
    return MaintenanceTask(
        name=TaskName(f"planning:{socket.gethostname()}:{short_digest(declarations)}"),
        interval=PLANNING_INTERVAL,
        run=resume,
    )


def archive_task(
    penstock: "Container", dataset: Dataset, policy: ArchivePolicy
) -> MaintenanceTask:
    """Build the task that archives rows; another policy is another task."""
    rules = repr((policy, dataset.missing.max_drop))
    return MaintenanceTask(
        name=TaskName(f"archive:{dataset.name}:{short_digest(rules)}"),
        interval=policy.every,
        run=partial(penstock.archive.run_shift, dataset),
        kind=TaskKind.SLOW,
    )


def maintain(penstock: "Container", dataset: Dataset) -> None:
    penstock.stores.schema.maintain(dataset)


def forget(penstock: "Container") -> None:
    """Remove what is too old: requests, unused tasks, sent messages."""
    penstock.stores.requests.forget(most=MAX_EXPIRED)
    penstock.stores.maintenance.forget(unused=TASK_RETENTION)
    penstock.stores.outbox.forget(sent=MESSAGE_RETENTION, most=MAX_EXPIRED)


def short_digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    return blake2b(text.encode(), digest_size=4).hexdigest()
