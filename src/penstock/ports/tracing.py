"""Spans: what took how long, for whoever collects traces.

Without a tracer nothing is created: `NO_TRACER` returns the same span each time. So
attributes are only built where a span `is_recording`.
"""

from abc import abstractmethod
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Protocol, TypeAlias, TypeVar

from typing_extensions import override

Outcome = TypeVar("Outcome")
Attribute: TypeAlias = str | int | float | bool


class SpanKind(Enum):
    INTERNAL = "internal"
    # a request that was received, and one that was sent
    SERVER = "server"
    CLIENT = "client"
    # a message that was sent
    PRODUCER = "producer"


class TraceSpan(Protocol):
    """Starts and ends as a context manager; what is started within is its child."""

    # whether it will be exported: else its attributes need not be built
    is_recording: bool

    @property
    @abstractmethod
    def trace_id(self) -> str | None:
        """32 hexadecimal digits, once it has started."""
        ...

    @abstractmethod
    def set(self, name: str, value: Attribute) -> None:
        """Set an attribute; secrets are redacted."""
        ...

    @abstractmethod
    def fail(self, error_type: str) -> None:
        """Mark as failed; an exception that leaves the span does so, too."""
        ...

    @abstractmethod
    def __enter__(self) -> "TraceSpan": ...

    @abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class Tracer(Protocol):
    # False if no span is ever created
    is_enabled: bool

    @abstractmethod
    def span(
        self,
        name: str,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: str | None = None,
    ) -> TraceSpan:
        """Return a span, a child of the current one unless a parent is given.

        The parent is a `traceparent` of W3C; one that is malformed is ignored. Without
        a parent it begins a trace.
        """
        ...

    @abstractmethod
    def child(self, name: str, kind: SpanKind = SpanKind.INTERNAL) -> TraceSpan:
        """Return a span within the current one; outside of one, nothing is created."""
        ...

    @abstractmethod
    def record(
        self, name: str, *, seconds: float, parent: str | None = None
    ) -> TraceSpan:
        """Return a span that began so long ago.

        For what is only worth a span once its outcome is known, such as a poll.
        """
        ...

    @abstractmethod
    def traceparent(self) -> str | None:
        """Return the current context for another process; None without a span."""
        ...

    @abstractmethod
    def carry(self, work: Callable[[], Outcome]) -> Callable[[], Outcome]:
        """Return work for another thread that is a part of the current span."""
        ...

    @abstractmethod
    def flush(self) -> None:
        """Send what was not sent yet; waits a few seconds at most."""
        ...


class NoSpan(TraceSpan):
    is_recording = False

    @property
    @override
    def trace_id(self) -> str | None:
        return None

    @override
    def set(self, name: str, value: Attribute) -> None:
        pass

    @override
    def fail(self, error_type: str) -> None:
        pass

    @override
    def __enter__(self) -> TraceSpan:
        return self

    @override
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass


NO_SPAN = NoSpan()


class NoTracer(Tracer):
    is_enabled = False

    @override
    def span(
        self,
        name: str,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: str | None = None,
    ) -> TraceSpan:
        return NO_SPAN

    @override
    def child(self, name: str, kind: SpanKind = SpanKind.INTERNAL) -> TraceSpan:
        return NO_SPAN

    @override
    def record(
        self, name: str, *, seconds: float, parent: str | None = None
    ) -> TraceSpan:
        return NO_SPAN

    @override
    def traceparent(self) -> str | None:
        return None

    @override
    def carry(self, work: Callable[[], Outcome]) -> Callable[[], Outcome]:
        return work

    @override
    def flush(self) -> None:
        pass


NO_TRACER = NoTracer()
