"""Whether this process traces what it does, by the variables of OpenTelemetry.

Nothing of OpenTelemetry is imported unless they say so.
"""

from collections.abc import Mapping

from penstock.domain.events import TraceExportFailed
from penstock.ports import Emit
from penstock.ports.tracing import NO_TRACER, Tracer
from penstock.settings import Settings

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"


def build_tracer(settings: Settings, emit: Emit, environ: Mapping[str, str]) -> Tracer:
    """Return what creates spans; an import never fails because it cannot be traced."""
    if not is_enabled(environ):
        return NO_TRACER
    refusal = refused_protocol(environ)
    if refusal is not None:
        emit(TraceExportFailed(error=refusal))
        return NO_TRACER
    try:
        from penstock.adapters.telemetry import traces
    except ImportError as error:
        text = f"traces need penstock[otlp], which is not installed ({error.name})"
        emit(TraceExportFailed(error=text))
        return NO_TRACER
    return traces.build_tracer(
        environ, redact=settings.redact.redact_traffic, emit=emit
    )


def is_enabled(environ: Mapping[str, str]) -> bool:
    """Return whether spans are exported: there is a collector, and no switch is off."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporters:
        return "otlp" in [name.strip() for name in exporters.split(",")]
    return any(environ.get(name) for name in ENDPOINTS)


def refused_protocol(environ: Mapping[str, str]) -> str | None:
    """Return why nothing could be sent: gRPC has another port and another library."""
    protocol = next(filter(None, map(environ.get, PROTOCOLS)), PROTOCOL)
    if protocol.strip().lower() == PROTOCOL:
        return None
    return f"traces are sent by {PROTOCOL}, not by {protocol}; set {PROTOCOLS[1]}"
