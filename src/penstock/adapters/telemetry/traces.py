"""Spans of OpenTelemetry, exported by OTLP as the OTEL_* variables say."""

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from types import TracebackType

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    INVALID_SPAN_CONTEXT,
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    format_span_id,
    format_trace_id,
)
from typing_extensions import override

from penstock import __version__
from penstock.domain.events import TraceExportFailed
from penstock.errors import Interrupted, PenstockError
from penstock.ports import Emit, Redact
from penstock.ports.tracing import (
    NO_SPAN,
    Attribute,
    Outcome,
    SpanKind,
    Tracer,
    TraceSpan,
)

# seconds that the end of a command waits for the collector
FLUSH_TIMEOUT = 5.0
# seconds between two events about spans that could not be sent
REPORT_INTERVAL = 60.0
# the libraries log under this name
LIBRARY = "opentelemetry"
# later versions may have more fields
TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}"
    r"-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})"
)
VERSION_00_LENGTH = 55
KINDS = {
    SpanKind.INTERNAL: trace.SpanKind.INTERNAL,
    SpanKind.SERVER: trace.SpanKind.SERVER,
    SpanKind.CLIENT: trace.SpanKind.CLIENT,
    SpanKind.PRODUCER: trace.SpanKind.PRODUCER,
}
NANOSECONDS = 1e9


class OtelTracer(Tracer):
    """The tracer of a process; threads share it."""

    is_enabled = True

    def __init__(self, provider: TracerProvider, *, redact: Redact) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("penstock", __version__)
        self._redact = redact

    @override
    def span(
        self,
        name: str,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: str | None = None,
    ) -> TraceSpan:
        context = None if parent is None else remote_context(parent)
        return self._new(name, kind, context)

    @override
    def child(self, name: str, kind: SpanKind = SpanKind.INTERNAL) -> TraceSpan:
        # nothing is created within a span that is not sampled
        if not trace.get_current_span().is_recording():
            return NO_SPAN
        return self._new(name, kind, None)

    @override
    def record(
        self, name: str, *, seconds: float, parent: str | None = None
    ) -> TraceSpan:
        context = None if parent is None else remote_context(parent)
        start = time.time_ns() - int(seconds * NANOSECONDS)
        return self._new(name, SpanKind.INTERNAL, context, start)

    @override
    def traceparent(self) -> str | None:
        context = trace.get_current_span().get_span_context()
        return format_context(context) if context.is_valid else None

    @override
    def carry(self, work: Callable[[], Outcome]) -> Callable[[], Outcome]:
        current = contexts.get_current()

        def work_within() -> Outcome:
            outer = contexts.attach(current)
            try:
                return work()
            finally:
                contexts.detach(outer)

        return work_within

    @override
    def flush(self) -> None:
        flush = threading.Thread(target=self._provider.force_flush, daemon=True)
        flush.start()
        flush.join(FLUSH_TIMEOUT)

    def _new(
        self,
        name: str,
        kind: SpanKind,
        context: Context | None,
        start: int | None = None,
    ) -> TraceSpan:
        span = self._tracer.start_span(
            name, context, kind=KINDS[kind], start_time=start
        )
        return OtelSpan(span, self._redact)


class OtelSpan(TraceSpan):
    def __init__(self, span: trace.Span, redact: Redact) -> None:
        self._span = span
        self._redact = redact
        self._outer: object = None
        self.is_recording = span.is_recording()

    @property
    @override
    def trace_id(self) -> str | None:
        return format_trace_id(self._span.get_span_context().trace_id)

    @override
    def set(self, name: str, value: Attribute) -> None:
        # also what is not expected to contain a secret
        shown = self._redact(value) if isinstance(value, str) else value
        self._span.set_attribute(name, shown)

    @override
    def fail(self, error_type: str) -> None:
        self._span.set_attribute("error.type", error_type)
        self._span.set_status(Status(StatusCode.ERROR))

    @override
    def __enter__(self) -> TraceSpan:
        self._outer = contexts.attach(trace.set_span_in_context(self._span))
        return self

    @override
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # the message of an exception may contain a secret that nobody knows
        if isinstance(error, Exception) and not isinstance(error, Interrupted):
            name = type(error).__qualname__
            self.fail(error.code if isinstance(error, PenstockError) else name)
        contexts.detach(self._outer)  # type: ignore[arg-type]
        self._span.end()


def remote_context(traceparent: str) -> Context:
    """Return the context of another process; an empty one if it is malformed."""
    match = TRACEPARENT.match(traceparent)
    if traceparent.startswith("00") and len(traceparent) != VERSION_00_LENGTH:
        match = None
    parent = INVALID_SPAN_CONTEXT
    if match is not None:
        parent = SpanContext(
            trace_id=int(match[1], 16),
            span_id=int(match[2], 16),
            is_remote=True,
            trace_flags=TraceFlags(int(match[3], 16) & TraceFlags.SAMPLED),
        )
    return trace.set_span_in_context(NonRecordingSpan(parent), Context())


def format_context(context: SpanContext) -> str:
    trace_id, span_id = context.trace_id, context.span_id
    flags = context.trace_flags & TraceFlags.SAMPLED
    return f"00-{format_trace_id(trace_id)}-{format_span_id(span_id)}-{flags:02x}"


@cache
def provider_of(service: str | None) -> TracerProvider:
    """Return the provider of this process; it reads the OTEL_* variables."""
    attributes = {} if service is None else {"service.name": service}
    provider = TracerProvider(
        resource=Resource.create({"service.version": __version__, **attributes}),
        # a collector that is away must not hold up the exit: see `flush`
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def build_tracer(
    environ: Mapping[str, str], *, redact: Redact, emit: Emit
) -> OtelTracer:
    is_named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    logger = logging.getLogger(LIBRARY)
    logger.handlers = [ExportReports(emit)]
    logger.propagate = False
    return OtelTracer(provider_of(None if is_named else "penstock"), redact=redact)


class ExportReports(logging.Handler):
    """Turns what the libraries log into events: lines would break a log of JSON."""

    def __init__(self, emit: Emit) -> None:
        super().__init__(logging.WARNING)
        self._emit = emit
        self._reported_at = -REPORT_INTERVAL

    @override
    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if now - self._reported_at >= REPORT_INTERVAL:
            self._reported_at = now
            message = " ".join(record.getMessage().split())
            self._emit(TraceExportFailed(error=message[:500]))
