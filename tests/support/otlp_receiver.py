"""A collector of traces: it receives what is exported by OTLP over HTTP."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)

from tests.support.scripted_server import Reply, ScriptedServer, scripted_server


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedSpan:
    name: str
    kind: int
    trace_id: str
    span_id: str
    # "" for the first of a trace
    parent_id: str
    attributes: Mapping[str, Any]
    failed: bool
    # nanoseconds
    start: int
    end: int
    service: str


class Collector:
    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.environ: dict[str, Any] = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": server.url,
            # in milliseconds: a test need not wait for seconds
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }

    @property
    def received(self) -> bytes:
        return b"".join(request.body for request in [*self.server.requests])

    @property
    def spans(self) -> list[ReceivedSpan]:
        return [
            span
            for request in [*self.server.requests]
            for span in decode_spans(request.body)
        ]

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def parent_of(self, span: ReceivedSpan) -> ReceivedSpan | None:
        found = [each for each in self.spans if each.span_id == span.parent_id]
        return found[0] if found else None


@contextmanager
def collecting() -> Iterator[Collector]:
    with scripted_server() as server:
        server.script(Reply())
        yield Collector(server)


def decode_spans(body: bytes) -> Iterator[ReceivedSpan]:
    for group in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = values_of(group.resource.attributes)
        for scope in group.scope_spans:
            for span in scope.spans:
                yield ReceivedSpan(
                    name=span.name,
                    kind=span.kind,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    attributes=values_of(span.attributes),
                    failed=span.status.code == span.status.STATUS_CODE_ERROR,
                    start=span.start_time_unix_nano,
                    end=span.end_time_unix_nano,
                    service=resource["service.name"],
                )


def values_of(attributes: Any) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value"))
        for each in attributes
    }
