"""Without a collector, tracing costs nothing: no object, no import."""

import subprocess
import sys
import tracemalloc

from penstock.ports import tracing
from penstock.ports.tracing import NO_TRACER, SpanKind

IMPORTS = """
import os, sys
from penstock.ports.tracing import NO_TRACER
from penstock.wiring.traces import build_tracer
import penstock.entrypoints.cli.serve, penstock.entrypoints.worker.loop
import penstock.adapters.http.client, penstock.flow.import_shard
assert build_tracer(None, None, {"OTEL_SDK_DISABLED": "true",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}) is NO_TRACER
assert build_tracer(None, None, {}) is NO_TRACER
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""


def trace_a_thousand_pages() -> None:
    for _ in range(1000):
        with NO_TRACER.span("import page", parent=None) as page:
            if page.is_recording:
                page.set("penstock.page", 1)
            with NO_TRACER.child("GET", SpanKind.CLIENT):
                NO_TRACER.traceparent()
        NO_TRACER.record("claim job", seconds=0.0)


def test_no_span_is_allocated():
    trace_a_thousand_pages()
    tracemalloc.start()
    try:
        before = tracemalloc.take_snapshot()
        trace_a_thousand_pages()
        after = tracemalloc.take_snapshot()
        allocated = [
            each
            for each in after.compare_to(before, "filename")
            if each.traceback[0].filename == tracing.__file__
        ]
    finally:
        tracemalloc.stop()

    assert not allocated
    assert NO_TRACER.span("a") is NO_TRACER.child("b") is tracing.NO_SPAN


def test_nothing_of_opentelemetry_is_imported():
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
