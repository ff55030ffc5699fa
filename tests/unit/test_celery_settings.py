"""Celery gets the settings that make its messages mere wake-ups."""

import sys
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.adapters.celery.app import (
    CeleryOptions,
    build_app,
    refused_pool,
    worker_settings,
)

OPTIONS = CeleryOptions(
    broker="redis://h/1",
    queues=["penstock", "penstock.eu"],
    queue_type="quorum",
    time_limit=timedelta(seconds=90),
)
EXPECTED: dict[str, Any] = {
    "broker_url": "redis://h/1",
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "task_default_queue": "penstock",
    "task_create_missing_queues": False,
    "task_acks_late": True,
    "worker_prefetch_multiplier": 1,
    "task_reject_on_worker_lost": False,
    "task_retry_on_worker_lost": False,
    "task_time_limit": 90.0,
    "result_backend": "disabled://",
    "task_ignore_result": True,
    "task_track_started": False,
    "task_send_sent_event": False,
    "worker_send_task_events": False,
    "task_serializer": "json",
    "accept_content": ["json"],
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    "timezone": "UTC",
    "beat_scheduler": "penstock.tasks:BeatScheduler",
}


@pytest.mark.parametrize(("name", "value"), EXPECTED.items(), ids=EXPECTED)
def test_celery_has_the_setting(name: str, value: Any):
    assert build_app(lambda: OPTIONS).conf[name] == value


def test_the_queues_are_declared_and_durable():
    queues = build_app(lambda: OPTIONS).amqp.queues

    assert sorted(queues) == ["penstock", "penstock.eu"]
    assert all(queue.durable and not queue.exclusive for queue in queues.values())
    assert all(queue.exchange.durable for queue in queues.values())


def test_publishing_is_confirmed_where_the_broker_can():
    settings = worker_settings(replace(OPTIONS, broker="amqp://h//"))

    assert settings["broker_transport_options"] == {"confirm_publish": True}


def test_the_certificate_must_be_that_of_the_broker():
    settings = worker_settings(replace(OPTIONS, broker="amqps://u:p@h:5671/v"))

    assert settings["broker_use_ssl"] == {"server_hostname": "h"}


@pytest.mark.parametrize(
    ("broker", "arguments"),
    [("amqp://h/v", {"x-queue-type": "quorum"}), ("redis://h/1", None)],
)
def test_queues_are_declared_with_their_type(broker: str, arguments: Any):
    queues = build_app(lambda: replace(OPTIONS, broker=broker)).amqp.queues

    assert [each.queue_arguments for each in queues.values()] == [arguments] * 2


def test_no_settings_are_read_before_they_are_used():
    from penstock import tasks

    assert not tasks.app.configured


@pytest.mark.parametrize(
    ("pool", "refused"),
    [
        ("prefork", None),
        ("threads", None),
        ("solo", None),
        ("gevent", "gevent"),
        ("celery.concurrency.eventlet:TaskPool", "eventlet"),
    ],
)
def test_pools_that_switch_in_drivers_are_refused(pool: str, refused: str | None):
    assert refused_pool(pool) == refused


def test_sockets_that_somebody_has_patched_are_refused(monkeypatch):
    monkey = SimpleNamespace(is_module_patched=lambda name: name == "socket")
    monkeypatch.setitem(sys.modules, "gevent.monkey", monkey)

    assert refused_pool("prefork") == "gevent"
