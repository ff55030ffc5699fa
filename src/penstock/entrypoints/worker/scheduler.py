"""The scheduler inside a process: begins imports when their time has come."""

from datetime import timedelta

from penstock.entrypoints.worker.planner import ImportPlanner
from penstock.flow.maintenance import MaintenanceTask
from penstock.ports.maintenance import TaskName
from penstock.wiring import Container

# after an error of the database; else a tick says when the next one is due
TICK_INTERVAL = timedelta(seconds=5)


def schedules_task(penstock: Container, planner: ImportPlanner) -> MaintenanceTask:
    """Declare the schedules; return the task that begins their imports."""
    tick = penstock.tick_schedules(planner, started_at=penstock.declare_schedules())
    return MaintenanceTask(name=TaskName("schedules"), interval=TICK_INTERVAL, run=tick)
