"""Messages of hooks as a receiver sees them, and what a bad receiver costs."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.adapters.http.webhook import WebhookTarget
from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.domain.events import (
    Event,
    HookDelivered,
    HookDeliveryFailed,
    HookMessageGivenUp,
    HookMessagesDropped,
)
from penstock.domain.hooks import MAX_DELIVERIES, RETRY_DELAYS, HookFact, Webhook
from penstock.flow.deliver_hooks import (
    OVERDUE,
    SEND_TIME,
    DeliverHook,
    drop_undeclared,
)
from penstock.ports import Stores
from penstock.ports.hooks import HOOK, DeliveryFailed, new_hook_message
from tests.support.builders import HOUR, NOON, SECOND, Clock, sqlite_stores
from tests.support.scripted_server import (
    ReceivedRequest,
    Reply,
    ScriptedServer,
    scripted_server,
)

SECRET = b"the-key-of-the-receiver-0123456789"
CANARY = "canary-5e3f-secret"
MAX_AGE = 300
TIMEOUT = timedelta(seconds=5)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as server:
        server.script(Reply())
        yield server


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stores(tmp_path: Path, clock: Clock) -> Iterator[Stores]:
    database = SqliteDatabase(tmp_path / "penstock.db", clock=clock)
    stores = sqlite_stores(database)
    stores.schema.migrate()
    yield stores
    database.close()


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def deliver(stores: Stores, server: ScriptedServer, events: list[Event]) -> DeliverHook:
    return delivery("pager", server.url, stores, events)


def delivery(hook: str, url: str, stores: Stores, events: list[Event]) -> DeliverHook:
    webhook = Webhook(url=url, secret=SECRET, allow_private=True)
    return DeliverHook(
        hook,
        WebhookTarget(hook, webhook, timeout=TIMEOUT),
        outbox=stores.outbox,
        redact=lambda text: text.replace(CANARY, "${TOKEN}"),
        emit=events.append,
    )


def add(stores: Stores, note: str = "no access", *, hook: str = "pager") -> None:
    data = {"import": 7, "note": note, "errors": [{"message": note}]}
    stores.outbox.add([new_hook_message(hook, HookFact.IMPORT_FAILED, data, at=NOON)])


def document(request: ReceivedRequest) -> dict[str, object]:
    """Verify a message as its receiver would, and read it."""
    message_id, sent_at = (
        request.headers["webhook-id"],
        request.headers["webhook-timestamp"],
    )
    signed = f"{message_id}.{sent_at}.".encode() + request.body
    signature = base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest())
    assert request.headers["webhook-signature"] == f"v1,{signature.decode()}"
    assert abs(time.time() - int(sent_at)) < MAX_AGE
    read: dict[str, object] = json.loads(request.body)
    assert read["id"] == message_id
    return read


def test_a_message_arrives_signed_with_its_fact(
    stores: Stores, server: ScriptedServer, deliver: DeliverHook, events: list[Event]
):
    add(stores)

    deliver()
    deliver()

    (request,) = server.requests
    message = document(request)
    assert request.method == "POST"
    assert request.headers["Content-Type"] == "application/json"
    assert message["type"] == "import_failed"
    assert message["timestamp"] == "2026-03-01T12:00:00Z"
    assert message["data"] == {
        "import": 7,
        "note": "no access",
        "errors": [{"message": "no access"}],
    }
    assert [type(each) for each in events] == [HookDelivered]
    assert stores.outbox.unsettled(HOOK) == []


def test_an_error_of_the_receiver_is_followed_by_another_delivery_with_the_same_id(
    stores: Stores,
    server: ScriptedServer,
    deliver: DeliverHook,
    clock: Clock,
    events: list[Event],
):
    server.script(Reply(status=500), Reply(status=204))
    add(stores)
    deliver()
    deliver()
    assert len(server.requests) == 1

    clock.pass_time(RETRY_DELAYS[0])
    deliver()

    first, second = map(document, server.requests)
    assert first == second
    failed, delivered = events
    assert isinstance(failed, HookDeliveryFailed)
    assert (failed.error, failed.delay) == ("127.0.0.1 returned 500", RETRY_DELAYS[0])
    assert isinstance(delivered, HookDelivered)
    assert delivered.attempts == 2


def test_what_a_killed_process_was_delivering_is_delivered_again_with_the_same_id(
    stores: Stores, server: ScriptedServer, deliver: DeliverHook, clock: Clock
):
    add(stores)
    (message,) = stores.outbox.take(HOOK, most=1, lasting=SEND_TIME)
    webhook = Webhook(url=server.url, secret=SECRET, allow_private=True)
    WebhookTarget("pager", webhook).deliver(message.payload)
    deliver()
    assert len(server.requests) == 1

    clock.pass_time(SEND_TIME)
    deliver()

    first, second = map(document, server.requests)
    assert first["id"] == second["id"]


def test_a_message_is_given_up_after_its_last_attempt(
    stores: Stores,
    server: ScriptedServer,
    deliver: DeliverHook,
    clock: Clock,
    events: list[Event],
):
    server.script(Reply(status=503))
    add(stores)
    for delay in (*RETRY_DELAYS, HOUR):
        deliver()
        clock.pass_time(delay)
    deliver()

    assert len(server.requests) == MAX_DELIVERIES
    *failures, last = events
    assert len(failures) == len(RETRY_DELAYS)
    assert isinstance(last, HookMessageGivenUp)
    assert last.attempts == MAX_DELIVERIES
    (state,) = stores.outbox.destinations(HOOK)
    assert (state.waiting, state.given_up) == (0, 1)


def test_a_hook_that_fails_does_not_delay_another(
    stores: Stores, server: ScriptedServer, deliver: DeliverHook, events: list[Event]
):
    for _ in range(3):
        add(stores, hook="broken")
    add(stores)
    with scripted_server() as broken:
        delivery("broken", broken.url, stores, events)()
        deliver()

        # the first failure ends the run
        assert len(broken.requests) == 1
    assert len(server.requests) == 1


def test_a_redirect_is_not_followed(
    stores: Stores, server: ScriptedServer, deliver: DeliverHook, events: list[Event]
):
    server.script(Reply(status=302, headers={"Location": f"{server.url}/other"}))
    add(stores)

    deliver()

    assert len(server.requests) == 1
    (failed,) = events
    assert isinstance(failed, HookDeliveryFailed)
    assert failed.error == "127.0.0.1 returned 302, and redirects are not followed"


def test_a_private_address_is_refused_before_anything_is_sent(server: ScriptedServer):
    local = server.url.replace("127.0.0.1", "localhost")
    target = WebhookTarget("pager", Webhook(url=local, secret=SECRET))

    with pytest.raises(DeliveryFailed, match=r"set hooks\.pager\.allow_private = true"):
        target.deliver({"id": "msg_1"})

    assert server.requests == []


def test_a_receiver_that_is_silent_fails_the_delivery_in_time(server: ScriptedServer):
    def silent(_: object) -> None:
        server.stopping.wait(TIMEOUT.total_seconds())

    server.script(silent)
    webhook = Webhook(url=server.url, secret=SECRET, allow_private=True)
    target = WebhookTarget("pager", webhook, timeout=SECOND / 10)

    with pytest.raises(DeliveryFailed, match=r"127\.0\.0\.1 did not respond"):
        target.deliver({"id": "msg_1"})


def test_no_secret_is_in_a_message_an_event_or_a_repr(
    stores: Stores, server: ScriptedServer, clock: Clock, events: list[Event]
):
    url = f"{server.url}/{CANARY}?token={CANARY}"
    deliver = delivery("pager", url, stores, events)
    server.script(Reply(status=500), Reply(status=302), Reply())
    add(stores, note=f"refused: {CANARY}")
    for delay in RETRY_DELAYS[:3]:
        deliver()
        clock.pass_time(delay)
    server.http.server_close()
    add(stores, note=CANARY)
    deliver()

    assert [CANARY in request.target for request in server.requests] == [True] * 3
    assert not any(CANARY.encode() in request.body for request in server.requests)
    assert b"${TOKEN}" in server.requests[0].body
    shown = f"{events} {Webhook(url=url, secret=SECRET)}"
    assert CANARY not in shown
    assert SECRET.decode() not in shown
    errors = [state.error or "" for state in stores.outbox.destinations(HOOK)]
    assert errors
    assert not any(CANARY in error for error in errors)


def test_the_messages_of_a_removed_hook_are_dropped_with_an_event(
    stores: Stores, clock: Clock, events: list[Event]
):
    add(stores)
    add(stores, hook="removed")
    add(stores, hook="removed")
    drop_undeclared(stores.outbox, hooks=["pager"], emit=events.append)
    assert events == []

    clock.pass_time(OVERDUE + SECOND)
    drop_undeclared(stores.outbox, hooks=["pager"], emit=events.append)

    assert events == [HookMessagesDropped(hook="removed", count=2)]
    assert [each.destination for each in stores.outbox.unsettled(HOOK)] == ["pager"]
