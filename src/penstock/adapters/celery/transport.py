"""Send messages of the outbox to Celery's broker."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError
from typing_extensions import override

from penstock.adapters.celery.app import TASK
from penstock.errors import TransportUnavailable
from penstock.ports import Transport
from penstock.ports.outbox import Message
from penstock.ports.tracing import NO_SPAN, NO_TRACER, SpanKind, Tracer, TraceSpan

# seconds that a broker may take to store a message; one that is out of memory or disk
# confirms nothing
CONFIRM_TIMEOUT = 10
# a connection that was idle for long may be gone: it is opened once more
RETRY_POLICY = {"max_retries": 1, "interval_start": 0, "interval_step": 0}

# what brokers call it, and what to do
REMEDIES: Mapping[tuple[str, ...], str] = {
    (
        "ACCESS_REFUSED",
        "Authentication",
        "WRONGPASS",
        "invalid username-password",
    ): "put the right user and password into penstock.broker",
    (
        "NOT_ALLOWED",
    ): "create its virtual host, or correct the one that penstock.broker names",
    (
        "PRECONDITION_FAILED",
    ): "delete the queue, which loses nothing, or set celery.queue_type to its type",
}


class CeleryTransport(Transport):
    def __init__(self, app: Celery, tracer: Tracer = NO_TRACER) -> None:
        self._app = app
        self._tracer = tracer

    @override
    def send(self, messages: Sequence[Message]) -> None:
        if not messages:
            return
        with self._producer() as producer:
            for message in messages:
                with self._span(message) as span:
                    if span.is_recording:
                        describe_message(span, message)
                    self._publish(message, producer)

    def _span(self, message: Message) -> TraceSpan:
        """Return a span within the trace of the import; none without one."""
        parent = message.payload.get("traceparent")
        if parent is None:
            return NO_SPAN
        name = f"send {message.destination}"
        return self._tracer.span(name, SpanKind.PRODUCER, parent)

    def _publish(self, message: Message, producer: Any) -> None:
        traceparent = self._tracer.traceparent()
        self._app.send_task(
            TASK,
            args=(message.payload["region"], message.payload["job"]),
            kwargs={"message": message.id},
            queue=message.destination,
            producer=producer,
            retry=True,
            retry_policy=RETRY_POLICY,
            ignore_result=True,
            confirm_timeout=CONFIRM_TIMEOUT,
            headers=None if traceparent is None else {"traceparent": traceparent},
        )

    def count_waiting(self, queue: str) -> int:
        """Return how many messages of a queue no worker has received.

        Raises `TransportUnavailable`.
        """
        declared = self._app.amqp.queues[queue]
        with self._producer() as producer:

            def declare() -> int:
                declaration = producer.channel.queue_declare(
                    queue=declared.name,
                    durable=declared.durable,
                    exclusive=declared.exclusive,
                    auto_delete=declared.auto_delete,
                    arguments=declared.queue_arguments,
                )
                return int(declaration.message_count)

            counted = producer.connection.ensure(producer, declare, **RETRY_POLICY)
            return int(counted())

    @contextmanager
    def _producer(self) -> Iterator[Any]:
        with self._app.producer_or_acquire() as producer:
            connection = producer.connection
            away = (
                OSError,
                OperationalError,
                *connection.connection_errors,
                *connection.recoverable_connection_errors,
                *connection.channel_errors,
            )
            try:
                yield producer
            except away as error:
                raise TransportUnavailable(
                    f"the broker {connection.as_uri()} is unavailable: {error}; "
                    f"{find_remedy(str(error))}"
                ) from error


def describe_message(span: TraceSpan, message: Message) -> None:
    span.set("messaging.system", "celery")
    span.set("messaging.operation.name", "send")
    span.set("messaging.operation.type", "send")
    span.set("messaging.destination.name", message.destination)
    span.set("messaging.message.id", str(message.id))


def find_remedy(error: str) -> str:
    """Return what to do about an error of a broker."""
    for words, remedy in REMEDIES.items():
        if any(word in error for word in words):
            return remedy
    return "check that it runs and that penstock.broker is its address"
