"""The Celery application, and the settings that Penstock needs of it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from celery import Celery
from kombu import Exchange, Queue

TASK = "penstock.work"
BEAT_SCHEDULER = "penstock.tasks:BeatScheduler"
AMQP_SCHEMES = ("amqp", "amqps")
# seconds until a server that does not respond counts as unavailable
SOCKET_TIMEOUT = 5
# pools whose switches of threads the drivers of our databases do not know
REFUSED_POOLS = ("eventlet", "gevent")


@dataclass(frozen=True, slots=True, kw_only=True)
class CeleryOptions:
    """What the settings of Penstock say about Celery."""

    broker: str
    # the first one is that of jobs without a region
    queues: Sequence[str]
    # of RabbitMQ; other brokers have none
    queue_type: str
    # after which the process of a task that hangs is killed
    time_limit: timedelta


def build_app(read_options: Callable[[], CeleryOptions]) -> Celery:
    """Build an application that reads its options on first use, not when imported."""
    app = Celery("penstock", set_as_current=False)
    app.add_defaults(lambda: worker_settings(read_options()))
    return app


def worker_settings(options: CeleryOptions) -> Mapping[str, Any]:
    """Return Celery's settings."""
    return {
        "broker_url": options.broker,
        **broker_settings(options.broker),
        "broker_connection_retry_on_startup": True,
        # for ever; Celery's own default gives up after some minutes
        "broker_connection_max_retries": None,
        # declared with all that they are, by workers and senders alike
        "task_queues": declare_queues(options),
        "task_default_queue": options.queues[0],
        "task_create_missing_queues": False,
        # A message that is delivered again costs an empty claim; one that is reserved
        # for a busy process waits for it while others are idle.
        "task_acks_late": True,
        "worker_prefetch_multiplier": 1,
        "task_reject_on_worker_lost": False,
        "task_retry_on_worker_lost": False,
        "task_time_limit": options.time_limit.total_seconds(),
        # the ledger has the results
        "result_backend": "disabled://",
        "task_ignore_result": True,
        "task_track_started": False,
        "task_send_sent_event": False,
        "worker_send_task_events": False,
        "task_serializer": "json",
        "accept_content": ["json"],
        "beat_scheduler": BEAT_SCHEDULER,
        # the log is ours
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "timezone": "UTC",
        "enable_utc": True,
    }


def broker_settings(broker: str) -> Mapping[str, Any]:
    address = urlsplit(broker)
    if address.scheme not in AMQP_SCHEMES:
        timeouts = ("socket_timeout", "socket_connect_timeout")
        return {"broker_transport_options": dict.fromkeys(timeouts, SOCKET_TIMEOUT)}
    return {
        # else a message that the broker did not store looks as if it were sent
        "broker_transport_options": {"confirm_publish": True},
        # else the certificate of any host would do
        "broker_use_ssl": (
            {"server_hostname": address.hostname}
            if address.scheme == "amqps"
            else False
        ),
    }


def declare_queues(options: CeleryOptions) -> Sequence[Queue]:
    """Declare queues with their type: that of a virtual host is not seen by Celery."""
    is_amqp = urlsplit(options.broker).scheme in AMQP_SCHEMES
    arguments = {"x-queue-type": options.queue_type} if is_amqp else None
    return [
        Queue(
            name,
            Exchange(name, type="direct", durable=True),
            routing_key=name,
            durable=True,
            queue_arguments=arguments,
        )
        for name in options.queues
    ]


def refused_pool(pool: str) -> str | None:
    """Return a kind of pool that Penstock does not work with, if it is one.

    Either the worker was started with it, or somebody has patched the sockets.
    """
    for name in REFUSED_POOLS:
        if name in pool or is_patched(name):
            return name
    return None


def is_patched(name: str) -> bool:
    """Return whether a library has replaced the sockets of this process."""
    # not imported here: it has to be there before, or has patched nothing
    if name == "gevent":
        monkey = sys.modules.get("gevent.monkey")
        return monkey is not None and bool(monkey.is_module_patched("socket"))
    patcher = sys.modules.get("eventlet.patcher")
    return patcher is not None and bool(patcher.is_monkey_patched("socket"))
