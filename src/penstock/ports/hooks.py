"""What hooks are sent: the messages of facts, and who delivers them."""

import uuid
from abc import abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from penstock.domain.formats import format_instant
from penstock.domain.hooks import HookFact
from penstock.ports.outbox import NewMessage

# the kind of these messages in the outbox; the destination is the name of the hook
HOOK = "hook"


class DeliveryFailed(Exception):
    """The other side has not confirmed a message; the text contains no URL."""


class HookTarget(Protocol):
    """Where a hook leads."""

    @abstractmethod
    def deliver(self, document: Mapping[str, Any]) -> None:
        """Deliver a message and return when it is confirmed.

        Raises `DeliveryFailed` otherwise; the other side may have received it.
        """
        ...


def new_hook_message(
    hook: str, fact: HookFact, data: Mapping[str, Any], *, at: datetime
) -> NewMessage:
    """Return a message with an id that all deliveries of it share.

    It is unique for receivers that listen to several databases, too.
    """
    document = new_document(fact.value, data, at=at)
    return NewMessage(kind=HOOK, destination=hook, payload=document)


def new_test_message(*, at: datetime) -> dict[str, Any]:
    """Return a message about nothing, which an operator sends to try a hook."""
    return new_document("test", {}, at=at)


def new_document(kind: str, data: Mapping[str, Any], *, at: datetime) -> dict[str, Any]:
    return {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": kind,
        "timestamp": format_instant(at),
        "data": dict(data),
    }
