"""A process of a Celery worker goes on while its database is unavailable."""

import threading
from contextlib import AbstractContextManager

from penstock.entrypoints.worker import background
from penstock.entrypoints.worker.celery_process import CeleryProcess
from penstock.errors import PenstockError, StoreUnavailable
from penstock.flow.wake_ups import WakeUp
from penstock.wiring import Container


def unavailable() -> AbstractContextManager[Container]:
    raise StoreUnavailable("the database is starting up")


def test_a_process_tries_again_until_its_database_is_there(monkeypatch):
    monkeypatch.setattr(background, "OPEN_INTERVAL", 0.01)
    errors, has_tried_again = list[PenstockError](), threading.Event()

    def report(error: PenstockError) -> None:
        errors.append(error)
        if len(errors) > 1:
            has_tried_again.set()

    process = CeleryProcess(unavailable, report=report, consumed_queues=list)
    process.start()

    assert has_tried_again.wait(30)
    process.close()
    assert str(errors[0]) == "the database is starting up"


def test_a_task_ends_while_the_database_is_unavailable():
    errors = list[PenstockError]()
    process = CeleryProcess(unavailable, report=errors.append, consumed_queues=list)

    process.work(WakeUp(region=None, job=None, message=None))

    assert len(errors) == 1
