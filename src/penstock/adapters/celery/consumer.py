"""The consumer of a worker, in its main process."""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from billiard.process import active_children
from celery import Celery
from celery.bootsteps import RUN
from celery.worker import state


def consumed_queues(app: Celery) -> Sequence[str]:
    """Return the names of the queues that the worker of this process consumes."""
    return sorted(app.amqp.queues.consume_from)


class WorkerConsumer:
    def __init__(self, app: Celery, consumer: Any) -> None:
        self._app = app
        self._consumer = consumer
        self.name = str(consumer.hostname)
        self.queues = consumed_queues(app)

    def can_receive(self) -> bool:
        """Return whether a message that waits in the broker should arrive soon."""
        connection = self._consumer.connection
        return (
            self._is_running()
            and connection is not None
            and connection.connected
            # an operator may have told it to consume others, or none
            and consumed_queues(self._app) == self.queues
            and len(state.reserved_requests) < self._consumer.pool.num_processes
        )

    def stop(self, exit_code: int) -> None:
        """Let the main loop stop the worker, when it comes to that."""
        state.should_stop = exit_code

    def kill_pool(self) -> None:
        """Kill the processes of the pool, which would outlive this one."""
        for process in active_children():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)

    def is_stopping(self) -> bool:
        return not self._is_running()

    def _is_running(self) -> bool:
        return bool(self._consumer.controller.blueprint.state == RUN)
