"""Events as metrics."""

import dataclasses
import re
import types
import typing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from docs import generate
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from penstock.adapters.telemetry.metrics import EventMetrics
from penstock.domain.events import (
    Event,
    FiresSkipped,
    JobFields,
    PageCommitted,
    TokenTaken,
    UpstreamResponded,
)
from penstock.domain.jobs import ImportId, JobId, WorkerId
from penstock.domain.pages import Counts

SECRET = "practice-key-7f3a91c2"
HOWTO = Path(__file__).parents[2] / "docs" / "howto"
# which are declared or listed in the code, and so can be labels
NAMES = {
    "dataset": "poi",
    "budget": "practice",
    "code": "rejected",
    "task": "leases:x",
    "statement": "records:select",
    "hook": "pager",
}
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
JOB = JobFields(
    job=JobId(7), import_id=ImportId(3), dataset="poi", worker=WorkerId("host:1")
)


def event_with_secrets(kind: type[Event]) -> Event:
    """Fill every field with a text in it by a secret."""
    hints = typing.get_type_hints(kind)
    values = {
        field.name: sample(field.name, hints[field.name])
        for field in dataclasses.fields(kind)
    }
    if kind is FiresSkipped:
        values["reason"] = "paused"
    if "status" in values and isinstance(values["status"], str):
        values["status"] = "failed"
    return kind(**values)


def sample(name: str, hint: Any) -> Any:
    if name in NAMES:
        return NAMES[name]
    if typing.get_origin(hint) in {types.UnionType, typing.Union}:
        hint = typing.get_args(hint)[0]
    if typing.get_origin(hint) is tuple:
        return (SECRET,)
    hint = getattr(hint, "__supertype__", hint)
    values: dict[Any, object] = {
        str: SECRET,
        int: 1,
        bool: True,
        timedelta: timedelta(seconds=1),
        datetime: NOON,
        Counts: Counts(pages=1, seen=1, inserted=1),
    }
    # else an enumeration
    return values[hint] if hint in values else next(iter(hint))


def exposition(*events: Event) -> str:
    metrics = EventMetrics()
    for event in events:
        metrics(event)
    return generate_latest(metrics.registry).decode()


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_no_text_of_an_event_becomes_a_label():
    events = [event_with_secrets(kind) for kind in generate.event_classes()]

    text = exposition(*events)

    assert len(events) > 30
    assert SECRET not in text


def test_every_metric_of_the_reference_is_exposed_and_no_other():
    text = exposition(*map(event_with_secrets, generate.event_classes()))

    counted = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in text_string_to_metric_families(text)
        if family.samples
    }
    assert counted == {spec.name for spec in EventMetrics().specs}


def test_the_guides_name_only_metrics_that_exist():
    known = {
        spec.name for _, _, specs in generate.metric_groups() for spec in specs
    } | {"penstock_http_request_seconds_bucket"}
    known |= {f"{name}_bucket" for name in known}
    for page in HOWTO.glob("*.md"):
        named = re.findall(r"\bpenstock_[a-z_]*[a-z]\b", page.read_text("utf-8"))
        metrics = {
            name
            for name in named
            if name.endswith(("_total", "_seconds", "_bucket", "_jobs", "_threads"))
        }
        assert metrics <= known, page.name


def test_rows_and_requests_are_counted_by_outcome():
    page = PageCommitted(
        **JOB, page=1, counts=Counts(pages=1, requests=1, seen=5, inserted=3, updated=2)
    )
    tick = timedelta(seconds=2)
    found = samples(
        exposition(
            page,
            page,
            UpstreamResponded(dataset="poi", status=200, took=tick),
            UpstreamResponded(dataset="poi", status=503, took=tick),
            UpstreamResponded(dataset="poi", status=None, took=tick),
            TokenTaken(**JOB, budget="practice", waited=tick),
        )
    )

    assert found["penstock_pages_total", "poi"] == 2
    assert found["penstock_records_total", "poi", "inserted"] == 6
    assert found["penstock_records_total", "poi", "updated"] == 4
    assert ("penstock_records_total", "poi", "seen") not in found
    for status in ("2xx", "5xx", "none"):
        assert found["penstock_upstream_requests_total", "poi", status] == 1
    assert found["penstock_upstream_request_seconds_sum", "poi"] == 6
    assert found["penstock_token_wait_seconds_sum", "practice"] == 2
