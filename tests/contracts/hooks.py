"""What every store promises of the messages that hooks are sent."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TypeAlias

import pytest

from penstock.domain.formats import format_instant
from penstock.domain.hooks import HookFact, Subscribers
from penstock.domain.jobs import (
    MAX_RESCUES,
    ImportId,
    ImportStatus,
    JobError,
    JobStatus,
)
from penstock.domain.scheduling.fires import SkipReason
from penstock.errors import LeaseLost
from penstock.ports import Stores
from penstock.ports.hooks import HOOK
from penstock.ports.outbox import Message
from tests.contracts.schedules import advanced, declared, skipped
from tests.support.builders import (
    BEN,
    HOUR,
    LEASE,
    SECOND,
    claim,
    claim_any,
    dataset,
    last,
    plan,
    record,
)
from tests.support.racing import in_threads

POI = dataset()
PAGER, CHAT = "pager", "chat"
SUBSCRIBERS: Subscribers = {
    HookFact.IMPORT_FAILED: [CHAT, PAGER],
    HookFact.IMPORT_DONE: [CHAT],
    HookFact.SHARD_DEAD: [PAGER],
    HookFact.SCHEDULE_MISSED: [PAGER],
    HookFact.BUDGET_STOPPED: [PAGER],
}

WORKERS = 4

PassTime: TypeAlias = Callable[[timedelta], None]
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
    """Subclasses bring `pass_time`, `open_stores` and `stores`, with subscribers."""

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

    def test_a_job_that_fails_is_written_with_its_shard_and_error(self, stores: Stores):
        import_id = plan(stores, POI, "a", "b")
        lease = claim(stores, POI)

        stores.ledger.fail(lease, JobError(code="rejected", message="no such page"))

        (message,) = messages(stores)
        assert (message.destination, message.payload["type"]) == (PAGER, "shard_dead")
        assert message.payload["data"] == {
            "import": import_id,
            "dataset": "poi",
            "job": lease.job,
            "shard": lease.shard_key,
            "code": "rejected",
            "message": "no such page",
        }

    def test_a_job_does_not_fail_without_its_message(
        self, stores: Stores, open_stores: Open
    ):
        begin_import(stores)
        lease = claim(stores, POI)
        with (
            open_stores(BrokenSubscribers(SUBSCRIBERS)) as broken,
            pytest.raises(OSError, match="no message can be written"),
        ):
            broken.ledger.fail(lease, JobError(code="rejected", message="no"))

        assert stores.jobs.get(lease.job).status is JobStatus.LEASED
        assert messages(stores) == []

    def test_a_lease_that_was_lost_fails_nothing_and_writes_nothing(
        self, stores: Stores, pass_time: PassTime
    ):
        begin_import(stores)
        lease = claim(stores, POI)
        pass_time(LEASE + SECOND)
        claim(stores, POI, BEN)

        with pytest.raises(LeaseLost):
            stores.ledger.fail(lease, JobError(code="rejected", message="no"))

        assert messages(stores) == []

    @pytest.mark.parametrize("finder", ["sweep", "claim"])
    def test_a_job_that_kills_its_workers_is_written_once(
        self, stores: Stores, pass_time: PassTime, finder: str
    ):
        plan(stores, POI, "a")
        lease = claim(stores, POI)
        pass_time(LEASE + SECOND)
        for _ in range(MAX_RESCUES - 1):
            claim(stores, POI)
            pass_time(LEASE + SECOND)

        for _ in range(2):
            if finder == "sweep":
                stores.jobs.sweep()
            else:
                assert claim_any(stores, {POI.name: "d1"}) is None

        (message,) = messages(stores)
        data = message.payload["data"]
        assert message.payload["type"] == "shard_dead"
        assert (data["job"], data["shard"], data["code"]) == (
            lease.job,
            "a",
            "lease_lost",
        )
        (error, *_) = reversed(stores.jobs.get(lease.job).errors)
        assert data["message"] == error.message

    def test_missed_fires_are_written_with_their_number_and_others_are_not(
        self, stores: Stores
    ):
        stores.schema.ensure_table(POI)
        stores.schedules.declare([declared()], at=stores.jobs.now())
        hourly = stores.schedules.get("poi")
        first = hourly.next_run_at
        assert first is not None
        missed = skipped(first, 3, SkipReason.NO_SCHEDULER)
        paused = skipped(first + 3 * HOUR, 2)
        change = advanced(hourly, skipped=(missed, paused))

        assert stores.fires.record(hourly, change)
        # another process has decided the same
        assert not stores.fires.record(hourly, change)

        (message,) = messages(stores)
        assert message.payload["type"] == "schedule_missed"
        assert message.payload["data"] == {
            "schedule": "poi",
            "dataset": "poi",
            "reason": "no_scheduler",
            "first": format_instant(first),
            "last": format_instant(first + 2 * HOUR),
            "count": 3,
        }

    def test_a_budget_that_is_stopped_is_written_once_for_each_closure(
        self, stores: Stores
    ):
        in_threads(
            *[
                lambda: stores.budgets.stop("practice", reason="the key is refused")
                for _ in range(WORKERS)
            ]
        )
        assert facts(stores) == [(PAGER, "budget_stopped")]
        stores.budgets.open("practice")
        stores.budgets.stop("practice", reason="the key is refused again")

        assert [each.payload["data"] for each in messages(stores)] == [
            {"budget": "practice", "reason": "the key is refused"},
            {"budget": "practice", "reason": "the key is refused again"},
        ]
