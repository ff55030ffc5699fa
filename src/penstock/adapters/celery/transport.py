"""Send messages of the outbox to Celery's broker."""

from collections.abc import Sequence

from celery import Celery
from kombu.exceptions import OperationalError
from typing_extensions import override

from penstock.adapters.celery.app import TASK
from penstock.errors import TransportUnavailable
from penstock.ports import Transport
from penstock.ports.outbox import Message

# a connection that was idle for long may be gone: it is opened once more
RETRY_POLICY = {"max_retries": 1, "interval_start": 0, "interval_step": 0}


class CeleryTransport(Transport):
    def __init__(self, app: Celery) -> None:
        self._app = app

    @override
    def send(self, messages: Sequence[Message]) -> None:
        with self._app.producer_or_acquire() as producer:
            connection = producer.connection
            away = (
                OSError,
                OperationalError,
                *connection.connection_errors,
                *connection.channel_errors,
            )
            try:
                for message in messages:
                    self._app.send_task(
                        TASK,
                        args=(message.payload["region"], message.payload["job"]),
                        kwargs={"message": message.id},
                        queue=message.destination,
                        producer=producer,
                        retry=True,
                        retry_policy=RETRY_POLICY,
                        ignore_result=True,
                    )
            except away as error:
                raise TransportUnavailable(
                    f"the broker is unavailable: {error}"
                ) from error
