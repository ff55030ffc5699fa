"""What every store promises of the messages that hooks are sent."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

import pytest

from penstock.domain.hooks import HookFact, Subscribers
from penstock.domain.jobs import ImportId, ImportStatus
from penstock.ports import Stores
from penstock.ports.hooks import HOOK
from penstock.ports.outbox import Message
from tests.support.builders import claim, dataset, last, plan, record

POI = dataset()
PAGER, CHAT = "pager", "chat"
SUBSCRIBERS: Subscribers = {
    HookFact.IMPORT_FAILED: [CHAT, PAGER],
    HookFact.IMPORT_DONE: [CHAT],
}

# opens the same database with other subscribers
Open: TypeAlias = Callable[[Subscribers], AbstractContextManager[Stores]]


class BrokenSubscribers(dict[HookFact, Sequence[str]]):
    """Fails where a message is written."""

    def get(self, *_: object) -> list[str]:
        raise OSError("no message can be written")


def messages(stores: Stores) -> list[Message]:
    return [*stores.outbox.unsettled(HOOK)]


def facts(stores: Stores) -> list[tuple[str, str]]:
    return [(each.destination, each.payload["type"]) for each in messages(stores)]


def begin_import(stores: Stores) -> ImportId:
    return plan(stores, POI)


class HooksContract:
    """Subclasses bring `stores` with the subscribers above, and `open_stores`."""

    def test_the_end_of_an_import_is_written_for_each_hook_of_it(self, stores: Stores):
        import_id = begin_import(stores)
        stores.ledger.commit_page(POI, claim(stores, POI), last(record(1), record(2)))
        stores.imports.close(POI, import_id, failed=None)

        (message,) = messages(stores)

        assert message.destination == CHAT
        data = message.payload["data"]
        assert message.payload["type"] == "import_done"
        assert (data["import"], data["dataset"]) == (import_id, "poi")
        assert (data["status"], data["proven"], data["mode"]) == ("done", True, "full")
        assert data["counts"]["inserted"] == 2

    def test_a_failed_import_is_written_with_its_reason(self, stores: Stores):
        import_id = begin_import(stores)
        stores.imports.close(POI, import_id, failed="too many bad rows")

        assert facts(stores) == [(CHAT, "import_failed"), (PAGER, "import_failed")]
        (data, _) = [each.payload["data"] for each in messages(stores)]
        assert "too many bad rows" in data["note"]

    def test_an_import_that_ends_once_is_written_once(self, stores: Stores):
        import_id = begin_import(stores)
        for _ in range(3):
            stores.imports.close(POI, import_id, failed="no access")

        assert len(messages(stores)) == 2

    def test_each_message_has_an_id_of_its_own(self, stores: Stores):
        stores.imports.close(POI, begin_import(stores), failed="no access")

        ids = {each.payload["id"] for each in messages(stores)}

        assert len(ids) == 2
        assert all(each.startswith("msg_") for each in ids)

    def test_a_cancelled_import_is_nothing_that_hooks_hear_of(self, stores: Stores):
        stores.imports.cancel(begin_import(stores), reason="by hand")

        assert messages(stores) == []

    def test_an_import_does_not_end_without_its_message(
        self, stores: Stores, open_stores: Open
    ):
        import_id = begin_import(stores)
        with (
            open_stores(BrokenSubscribers(SUBSCRIBERS)) as broken,
            pytest.raises(OSError, match="no message can be written"),
        ):
            broken.imports.close(POI, import_id, failed="no access")

        assert stores.imports.peek(import_id).status is ImportStatus.RUNNING
        assert messages(stores) == []
