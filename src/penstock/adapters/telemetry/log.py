"""Turn events into structured log lines on standard error."""

import dataclasses
import sys
from datetime import timedelta
from typing import TextIO

import structlog

from penstock.domain.events import Event, Level, level_of
from penstock.domain.pages import Counts
from penstock.ports import Emit, Redact


def log_events(
    *,
    redact: Redact,
    as_json: bool,
    verbose: bool = False,
    stream: TextIO | None = None,
) -> Emit:
    """Return a listener that writes one line for each event, without secrets.

    Events of the level `debug` are the most frequent ones, and only logged if verbose.
    """
    out = sys.stderr if stream is None else stream
    logger = structlog.wrap_logger(
        structlog.PrintLogger(out),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer()
            if as_json
            else structlog.dev.ConsoleRenderer(colors=out.isatty(), pad_event_to=16),
        ],
    )

    def emit(event: Event) -> None:
        level = level_of(event)
        if level is Level.DEBUG and not verbose:
            return
        fields = {
            field.name: to_field(getattr(event, field.name), redact)
            for field in dataclasses.fields(event)
        }
        getattr(logger, level)(event_name(event), **fields)

    return emit


def to_field(value: object, redact: Redact) -> object:
    if isinstance(value, timedelta):
        return round(value.total_seconds(), 3)
    if isinstance(value, Counts):
        return {
            name: count for name, count in dataclasses.asdict(value).items() if count
        }
    if isinstance(value, tuple):
        return [to_field(item, redact) for item in value]
    if isinstance(value, bool | int | None):
        return value
    return redact(str(value))


def event_name(event: Event) -> str:
    """Write `PageCommitted` as `page_committed`."""
    name = type(event).__name__
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
