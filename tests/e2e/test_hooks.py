"""Who is told of what: a real run, and a real receiver."""

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.scripted_server import (
    Misbehaviour,
    Reply,
    ScriptedServer,
    scripted_server,
)
from tests.support.stores import everywhere
from tests.support.workshop import Workshop, happens

pytestmark = everywhere

KEY = b"the-key-of-the-receiver-0123456789"
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"
ENVIRON = {"PAGER_SECRET": SECRET}


@pytest.fixture
def receiver() -> Iterator[ScriptedServer]:
    with scripted_server() as server:
        server.script(Reply(status=204))
        yield server


def hook(receiver: ScriptedServer, *facts: str) -> str:
    on = facts or ("import_done", "import_failed")
    return (
        f"\n[hooks.pager]\non = {json.dumps(on)}\n"
        f'url = "{receiver.url}/hook"\nsecret = "${{PAGER_SECRET}}"\n'
        "allow_private = true\n"
    )


def messages(receiver: ScriptedServer) -> list[dict[str, Any]]:
    for request in receiver.requests:
        sent = request.headers
        signed = f"{sent['webhook-id']}.{sent['webhook-timestamp']}.".encode()
        digest = hmac.new(KEY, signed + request.body, hashlib.sha256).digest()
        signature = f"v1,{base64.b64encode(digest).decode()}"
        assert hmac.compare_digest(sent["webhook-signature"], signature)
    return [json.loads(request.body) for request in receiver.requests]


def open_hooked(open_workshop, receiver: ScriptedServer, **options: Any) -> Workshop:
    workshop: Workshop = open_workshop(records=60, **options)
    workshop.more_secrets += [SECRET, KEY.decode()]
    workshop.environ |= ENVIRON
    workshop.declare(workshop.poi(), hook(receiver))
    return workshop


def test_a_run_delivers_the_message_of_its_import(open_workshop, receiver):
    workshop = open_hooked(open_workshop, receiver)

    ran = workshop.penstock("run", "poi", "--json")

    assert ran.code == 0, ran.err
    (message,) = messages(receiver)
    assert message["type"] == "import_done"
    assert message["data"]["import"] == ran.json["import_id"]
    assert message["data"]["counts"]["inserted"] == 60


def test_the_message_of_a_failed_import_has_no_credentials(open_workshop, receiver):
    workshop = open_hooked(open_workshop, receiver)
    # the path is repeated in the error of the shard, and its end in the import's note
    workshop.declare(workshop.poi(path="/no-such-page/"), hook(receiver), attempts=1)

    ran = workshop.penstock("run", "poi", "--json")

    assert ran.code == 1, ran.err
    (message,) = messages(receiver)
    assert message["type"] == "import_failed"
    assert message["data"]["status"] == "failed"
    assert not any(
        secret.encode() in request.body
        for secret in workshop.secrets
        for request in receiver.requests
    )


def test_what_a_run_could_not_deliver_is_delivered_by_a_worker(open_workshop, receiver):
    workshop = open_hooked(open_workshop, receiver)
    receiver.script(Reply(status=503), Reply(status=204))
    assert workshop.penstock("run", "poi").code == 0
    assert len(receiver.requests) == 1
    waiting = {"name": "pager", "waiting": 1, "given_up": 0}
    error = "127.0.0.1 returned 503"
    assert workshop.penstock("status", "--json").json["hooks"] == [
        {**waiting, "error": error}
    ]
    assert error in workshop.penstock("status").out

    workshop.worker()

    # five seconds after the first attempt, by the clock of the database
    assert happens(lambda: len(receiver.requests) == 2, within=60)
    first, second = messages(receiver)
    assert first == second


def test_a_refused_key_is_one_message_for_all_workers(open_workshop, receiver):
    workshop = open_hooked(open_workshop, receiver)
    workshop.declare(workshop.by_country(), hook(receiver, "budget_stopped"))
    wrong = "a-key-that-nobody-gave-out"
    workshop.more_secrets.append(wrong)

    ran = workshop.penstock("run", "poi", "--threads", "4", PRACTICE_KEY=wrong)

    assert ran.code == 1, ran.err
    (message,) = messages(receiver)
    assert message["type"] == "budget_stopped"
    assert message["data"]["budget"] == "practice"
    assert wrong.encode() not in receiver.requests[0].body


def test_a_shard_that_fails_has_a_message_of_its_own(open_workshop, receiver):
    workshop = open_hooked(open_workshop, receiver)
    workshop.declare(
        workshop.poi(path="/no-such-page/"),
        hook(receiver, "shard_dead", "import_failed"),
        attempts=1,
    )

    ran = workshop.penstock("run", "poi", "--json")

    assert ran.code == 1, ran.err
    shard, ended = messages(receiver)
    assert (shard["type"], ended["type"]) == ("shard_dead", "import_failed")
    assert shard["data"]["shard"] == "all"
    assert shard["data"]["import"] == ended["data"]["import"]


def test_what_a_killed_worker_was_delivering_is_delivered_by_another(
    open_workshop, receiver
):
    workshop = open_hooked(open_workshop, receiver)
    receiver.script(Reply(status=503), hold(receiver), Reply(status=204))
    assert workshop.penstock("run", "poi").code == 0
    expire(workshop)
    worker = workshop.worker()
    assert happens(lambda: len(receiver.requests) == 2, within=60)
    worker.kill()
    worker.wait()
    # a minute after the killed worker took it
    expire(workshop)

    workshop.worker()

    assert happens(lambda: len(receiver.requests) == 3, within=60)
    assert len({message["id"] for message in messages(receiver)}) == 1


def hold(receiver: ScriptedServer) -> Misbehaviour:
    """Receive a message, and never confirm it."""
    return lambda _: receiver.pause(60)


def expire(workshop: Workshop) -> None:
    """Let a message be due now."""
    workshop.tamper("update penstock_outbox set due_at = created_at")


ALERTS = """
import json, pathlib

def send(message):
    path = pathlib.Path(__file__).parent / "alerts.jsonl"
    with path.open("a") as file:
        file.write(json.dumps(message) + "\\n")
"""


def test_a_function_beside_the_settings_is_called(open_workshop):
    workshop: Workshop = open_workshop(records=20)
    hooks = '[hooks.chat]\non = "import_done"\ncall = "alerts:send"\n'
    workshop.declare(workshop.poi(), hooks)

    refused = workshop.penstock("check")
    (workshop.folder / "alerts.py").write_text(ALERTS)
    tried = workshop.penstock("check", "--test-hooks")
    ran = workshop.penstock("run", "poi", "--json")

    assert refused.code == 2
    assert "hooks.chat.call: module 'alerts' cannot be imported" in refused.err
    assert tried.code == 0, tried.err
    assert "ok   hooks.chat: has confirmed the test message msg_" in tried.out
    lines = (workshop.folder / "alerts.jsonl").read_text().splitlines()
    test, message = map(json.loads, lines)
    assert (test["type"], test["data"]) == ("test", {})
    assert message["type"] == "import_done"
    assert message["data"]["import"] == ran.json["import_id"]


def test_a_check_sends_no_message_without_its_flag(open_workshop, receiver):
    workshop = open_hooked(open_workshop, receiver)

    assert workshop.penstock("check", "--connect").code == 0
    assert receiver.requests == []
    receiver.script(Reply(status=401))
    tried = workshop.penstock("check", "--test-hooks", "--json")

    assert tried.code == 1
    assert tried.json["connections"] == [
        {"what": "hooks.pager", "ok": False, "detail": "127.0.0.1 returned 401"}
    ]
    assert [message["type"] for message in messages(receiver)] == ["test"]
