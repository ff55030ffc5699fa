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
from penstock.domain.job import ImportId, ImportStatus, JobId
from penstock.entrypoints.cli.progress import PageRetries
from penstock.entrypoints.cli.run import rest_until_end, tell_lost
from tests.unit.test_crews import Hand

IMPORT = ImportId(1)
# longer than any machine takes to hear of an end
LONG = 60.0


@dataclass
class Ledger:
    """A bell, and an import that has ended after so many looks at it."""

    rings: int = 0
    ends_after: int = 0
    looks: list[int] = field(default_factory=list)

    def peek(self, import_id: ImportId) -> SimpleNamespace:
        self.looks.append(import_id)
        has_ended = len(self.looks) > self.ends_after
        if not has_ended:
            self.rings += 1
        status = ImportStatus.DONE if has_ended else ImportStatus.RUNNING
        return SimpleNamespace(status=status)

    @property
    def penstock(self) -> Any:
        return SimpleNamespace(stores=SimpleNamespace(bell=self, imports=self))


def seconds_of(ledger: Ledger, *, rings: int, halt: threading.Event | None = None):
    began = time.monotonic()
    rest_until_end(
        ledger.penstock, IMPORT, LONG, halt or threading.Event(), rings=rings
    )
    return time.monotonic() - began


def test_what_rang_before_the_rest_is_heard():
    ledger = Ledger(rings=8)

    assert seconds_of(ledger, rings=7) < LONG / 2
    assert ledger.looks == [IMPORT]


def test_what_rings_during_a_look_is_heard_after_it():
    ledger = Ledger(rings=8, ends_after=2)

    assert seconds_of(ledger, rings=7) < LONG / 2
    assert len(ledger.looks) == 3


def test_a_rest_ends_when_told_to_stop():
    halt = threading.Event()
    halt.set()
    ledger = Ledger()

    assert seconds_of(ledger, rings=0, halt=halt) < LONG / 2
    assert ledger.looks == []


def test_without_a_ring_nothing_is_looked_at():
    ledger = Ledger(rings=3)

    rest_until_end(ledger.penstock, IMPORT, 0.2, threading.Event(), rings=3)

    assert ledger.looks == []


def test_processes_that_did_not_last_are_told_of(capsys):
    tell_lost(Hand(told="too many clients"), stopped=None)

    assert "too many clients" in capsys.readouterr().err


def test_of_processes_that_lasted_nothing_is_told(capsys):
    tell_lost(Hand(), stopped=None)

    assert capsys.readouterr().err == ""


def test_what_stopped_a_run_is_told_once(capsys):
    tell_lost(Hand(told="too many clients"), stopped="too many clients")

    assert capsys.readouterr().err == ""


def postponed(code: str, *, snoozes: int = 1) -> JobPostponed:
    return JobPostponed(
        job=JobId(7),
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
        "to statement timeout; trying again (attempt {})"
    )
    assert [*retries.take()] == [sentence.format(2), sentence.format(3)]
    assert [*retries.take()] == []


def test_a_job_that_waits_for_its_provider_is_no_matter_of_the_store():
    retries = PageRetries()

    retries.listen(postponed("source_unavailable"))

    assert [*retries.take()] == []
