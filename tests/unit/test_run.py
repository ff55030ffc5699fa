"""How a run learns that its import has ended."""

import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.adapters.telemetry.log import log_events
from penstock.domain.events import JobPostponed
from penstock.domain.jobs import ImportId, ImportStatus, JobId, WorkerId
from penstock.entrypoints.cli.output.progress_display import PageRetries
from penstock.entrypoints.cli.run import wait_for_end, warn_about_failed_workers
from tests.unit.test_worker_pool import Hand

IMPORT = ImportId(1)
# longer than any machine takes to hear of an end
LONG = 60.0


@dataclass
class Ledger:
    """A notifier, and an import that has ended after so many polls at it."""

    notification_count: int = 0
    ends_after: int = 0
    polls: list[int] = field(default_factory=list)

    def peek(self, import_id: ImportId) -> SimpleNamespace:
        self.polls.append(import_id)
        has_ended = len(self.polls) > self.ends_after
        if not has_ended:
            self.notification_count += 1
        status = ImportStatus.DONE if has_ended else ImportStatus.RUNNING
        return SimpleNamespace(status=status)

    @property
    def penstock(self) -> Any:
        return SimpleNamespace(stores=SimpleNamespace(notifier=self, imports=self))


def seconds_of(
    ledger: Ledger, *, notification_count: int, halt: threading.Event | None = None
):
    began = time.monotonic()
    wait_for_end(
        ledger.penstock,
        IMPORT,
        LONG,
        halt or threading.Event(),
        seen_count=notification_count,
    )
    return time.monotonic() - began


def test_a_notification_before_the_wait_is_noticed():
    ledger = Ledger(notification_count=8)

    assert seconds_of(ledger, notification_count=7) < LONG / 2
    assert ledger.polls == [IMPORT]


def test_what_happens_during_a_check_is_heard_after_it():
    ledger = Ledger(notification_count=8, ends_after=2)

    assert seconds_of(ledger, notification_count=7) < LONG / 2
    assert len(ledger.polls) == 3


def test_a_wait_ends_when_it_is_stopped():
    halt = threading.Event()
    halt.set()
    ledger = Ledger()

    assert seconds_of(ledger, notification_count=0, halt=halt) < LONG / 2
    assert ledger.polls == []


def test_without_a_notification_nothing_is_read():
    ledger = Ledger(notification_count=3)

    wait_for_end(ledger.penstock, IMPORT, 0.2, threading.Event(), seen_count=3)

    assert ledger.polls == []


def test_processes_that_did_not_last_are_reported(capsys):
    warn_about_failed_workers(Hand(failure="too many clients"), stopped=None)

    assert "too many clients" in capsys.readouterr().err


def test_of_processes_that_lasted_nothing_is_reported(capsys):
    warn_about_failed_workers(Hand(), stopped=None)

    assert capsys.readouterr().err == ""


def test_what_stopped_a_run_is_reported_once(capsys):
    warn_about_failed_workers(
        Hand(failure="too many clients"), stopped="too many clients"
    )

    assert capsys.readouterr().err == ""


def postponed(code: str, *, snoozes: int = 1) -> JobPostponed:
    return JobPostponed(
        job=JobId(7),
        import_id=ImportId(1),
        worker=WorkerId("w"),
        dataset="poi",
        shard="country:DE",
        code=code,
        message="canceling statement due to statement timeout",
        delay=timedelta(),
        attempts=0,
        snoozes=snoozes,
    )


@pytest.mark.parametrize("code", ["store_too_slow", "store_unavailable"])
def test_a_page_that_a_store_was_too_slow_for_is_said_to_be_tried_again(code):
    log = StringIO()
    write = log_events(redact=str, as_json=True, stream=log)
    retries = PageRetries()

    retries.listen(postponed(code))
    write(postponed(code, snoozes=2))
    retries.read_log(["no event", *log.getvalue().splitlines()])

    sentence = (
        "a page of job 7, shard country:DE, was not stored: canceling statement due "
        "to statement timeout; retrying (attempt {})"
    )
    assert [*retries.take()] == [sentence.format(2), sentence.format(3)]
    assert [*retries.take()] == []


def test_a_job_that_waits_for_its_provider_is_no_matter_of_the_store():
    retries = PageRetries()

    retries.listen(postponed("source_unavailable"))

    assert [*retries.take()] == []
