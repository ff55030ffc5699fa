"""What every store promises of the outbox."""

from datetime import timedelta

import pytest

from penstock.errors import LeaseLost
from penstock.ports import Stores
from penstock.ports.outbox import Message, MessageId, NewMessage, OutboxBacklog
from tests.support.builders import (
    A_MOMENT,
    HOUR,
    LEASE,
    MINUTE,
    claim,
    dataset,
    plan,
)
from tests.support.racing import in_threads

DATASET = dataset()
HOOK, WAKE_UP = "hook", "wake-up"
SENDERS = 4


def new(
    number: int = 1,
    *,
    kind: str = HOOK,
    destination: str = "shop",
    most: int | None = None,
) -> NewMessage:
    return NewMessage(
        kind=kind, destination=destination, payload={"number": number}, most=most
    )


def take(stores: Stores, kind: str = HOOK, *, most: int = 10) -> list[Message]:
    return [*stores.outbox.take(kind, most=most, lasting=MINUTE)]


def numbers(messages: list[Message]) -> list[int]:
    return [message.payload["number"] for message in messages]


class OutboxContract:
    """Subclasses bring `stores` and `pass_time`."""

    def test_an_added_message_is_due_at_once_for_those_of_its_kind(
        self, stores: Stores
    ):
        assert stores.outbox.add([new(1), new(2, kind=WAKE_UP), new(3)]) == 3

        (first, second) = take(stores)

        assert (first.kind, first.destination, first.attempts) == (HOOK, "shop", 1)
        assert numbers([first, second]) == [1, 3]
        assert numbers(take(stores, WAKE_UP)) == [2]

    def test_the_messages_of_one_destination_are_taken_alone(self, stores: Stores):
        stores.outbox.add([new(1), new(2, destination="chat"), new(3)])

        taken = stores.outbox.take(HOOK, most=9, lasting=MINUTE, destination="chat")

        assert numbers([*taken]) == [2]
        assert numbers(take(stores)) == [1, 3]

    def test_a_message_that_was_given_up_is_seen_until_it_is_forgotten(
        self, stores: Stores, pass_time
    ):
        stores.outbox.add([new(1), new(2, destination="chat"), new(3)])
        (first, *_) = take(stores, most=1)
        stores.outbox.give_up([first], error="the shop is closed")
        pass_time(HOUR)

        assert [
            (each.destination, each.waiting, each.given_up, each.error)
            for each in stores.outbox.destinations(HOOK)
        ] == [("chat", 1, 0, None), ("shop", 1, 1, "the shop is closed")]
        assert numbers(take(stores)) == [2, 3]

        stores.outbox.mark_sent(stores.outbox.unsettled(HOOK), confirm_within=None)
        assert stores.outbox.forget(sent=MINUTE, most=9) == 1
        assert stores.outbox.destinations(HOOK) == []

    def test_messages_that_nobody_takes_are_dropped_where_their_hook_is_unknown(
        self, stores: Stores, pass_time
    ):
        def drop(known: str) -> dict[str, int]:
            return {**stores.outbox.drop_overdue(HOOK, known=[known], overdue=HOUR)}

        stores.outbox.add([new(1), new(2), new(3, kind=WAKE_UP)])
        assert drop("chat") == {}

        pass_time(HOUR)
        # another process delivers it
        stores.outbox.postpone(take(stores, most=1), delay=MINUTE, error="away")
        pass_time(MINUTE)

        assert drop("shop") == {}
        assert drop("chat") == {"shop": 1}
        assert numbers(take(stores)) == [1]
        assert numbers(take(stores, WAKE_UP)) == [3]

    def test_a_message_that_is_being_sent_is_not_taken_again_before_its_time(
        self, stores: Stores, pass_time
    ):
        stores.outbox.add([new()])
        take(stores)
        pass_time(MINUTE - A_MOMENT)
        assert take(stores) == []

        pass_time(A_MOMENT)

        assert [message.attempts for message in take(stores)] == [2]

    def test_the_backlog_says_since_when_the_oldest_message_is_unsent(
        self, stores: Stores, pass_time
    ):
        assert stores.outbox.backlog(HOOK) == OutboxBacklog(messages=0, unsent_for=None)
        stores.outbox.add([new(1)])
        pass_time(MINUTE)
        stores.outbox.add([new(2), new(3, kind=WAKE_UP)])
        pass_time(MINUTE)

        found = stores.outbox.backlog(HOOK)
        assert found.messages == 2
        assert found.unsent_for is not None
        assert 2 * MINUTE <= found.unsent_for < 3 * MINUTE

        # the first was sent, and is not confirmed
        stores.outbox.mark_sent(take(stores, most=1), confirm_within=HOUR)
        found = stores.outbox.backlog(HOOK)
        assert found.messages == 2
        assert found.unsent_for is not None
        assert MINUTE <= found.unsent_for < 2 * MINUTE

        stores.outbox.mark_sent(take(stores), confirm_within=None)
        assert stores.outbox.backlog(HOOK) == OutboxBacklog(messages=1, unsent_for=None)

    def test_an_unreceived_message_waits_since_it_was_last_sent(
        self, stores: Stores, pass_time
    ):
        stores.outbox.add([new(1, destination="eu"), new(2), new(3)])
        received, waiting = take(stores, most=2)
        stores.outbox.mark_sent([received, waiting], confirm_within=MINUTE)
        pass_time(MINUTE)
        stores.outbox.mark_sent([waiting], confirm_within=HOUR)
        stores.outbox.postpone([waiting], delay=HOUR, error=None)
        stores.outbox.settle([received.id])
        pass_time(MINUTE)

        assert stores.outbox.unreceived(HOOK, "eu") == []
        # nobody has sent the third
        (sent_for,) = stores.outbox.unreceived(HOOK, "shop")
        assert MINUTE <= sent_for < 2 * MINUTE
        assert stores.outbox.unreceived(WAKE_UP, "shop") == []

    def test_a_sent_message_is_not_sent_again(self, stores: Stores, pass_time):
        stores.outbox.add([new()])

        stores.outbox.mark_sent(take(stores), confirm_within=None)

        pass_time(HOUR)
        assert take(stores) == []
        assert stores.outbox.unsettled(HOOK) == []

    def test_a_message_that_nobody_confirms_is_sent_again_ever_later(
        self, stores: Stores, pass_time
    ):
        stores.outbox.add([new()])
        for waits in (1, 2, 4, 8, 16, 32, 64, 64):
            stores.outbox.mark_sent(take(stores), confirm_within=MINUTE)
            pass_time(waits * MINUTE - A_MOMENT)
            assert take(stores) == []
            pass_time(A_MOMENT)

        assert len(take(stores)) == 1

    def test_a_message_is_settled_once(self, stores: Stores, pass_time):
        stores.outbox.add([new(1), new(2)])
        (first, second) = take(stores)
        stores.outbox.mark_sent([first, second], confirm_within=MINUTE)

        assert stores.outbox.settle([first.id]) == 1
        assert stores.outbox.settle([first.id]) == 0

        (unsettled,) = stores.outbox.unsettled(HOOK)
        assert (unsettled.id, unsettled.sends) == (second.id, 1)
        pass_time(MINUTE)
        assert numbers(take(stores)) == [2]

    def test_a_message_may_be_settled_before_it_is_marked_as_sent(
        self, stores: Stores, pass_time
    ):
        stores.outbox.add([new()])
        (message,) = take(stores)
        stores.outbox.settle([message.id])

        stores.outbox.mark_sent([message], confirm_within=MINUTE)

        pass_time(HOUR)
        assert take(stores) == []

    def test_a_message_that_could_not_be_sent_waits(self, stores: Stores, pass_time):
        stores.outbox.add([new(1), new(2)])
        (first, _) = take(stores)

        stores.outbox.postpone([first], delay=timedelta(seconds=5), error="refused")

        pass_time(timedelta(seconds=5))
        assert numbers(take(stores)) == [1]

    def test_no_more_messages_are_taken_than_requested(self, stores: Stores):
        stores.outbox.add([new(number) for number in range(5)])

        assert numbers(take(stores, most=3)) == [0, 1, 2]
        assert numbers(take(stores, most=3)) == [3, 4]

    def test_a_limit_counts_the_unsettled_messages_of_a_destination(
        self, stores: Stores
    ):
        stores.outbox.add([new(1), new(2), new(3, destination="till")])
        stores.outbox.mark_sent(take(stores, most=1), confirm_within=MINUTE)

        assert stores.outbox.add([new(4, most=3), new(5, most=3)]) == 1
        assert stores.outbox.add([new(6, kind=WAKE_UP, most=1)]) == 1

        unsettled = numbers([*stores.outbox.unsettled(HOOK)])
        assert unsettled == [1, 2, 3, 4]

    def test_messages_that_are_added_at_the_same_moment_keep_to_their_limit(
        self, stores: Stores
    ):
        add = [new(number, most=30) for number in range(30)]

        added = in_threads(*[lambda: stores.outbox.add(add)] * SENDERS)

        assert sum(added) == len(stores.outbox.unsettled(HOOK)) == 30

    def test_of_many_senders_one_gets_each_message(self, stores: Stores):
        stores.outbox.add([new(number) for number in range(20)])

        taken = in_threads(*[lambda: take(stores, most=5)] * SENDERS)

        found = [message for messages in taken for message in messages]
        assert sorted(numbers(found)) == [*range(20)]

    def test_messages_are_forgotten_some_time_after_they_were_sent(
        self, stores: Stores, pass_time
    ):
        stores.outbox.add([new(number) for number in range(4)])
        sent = take(stores, most=3)
        stores.outbox.mark_sent(sent, confirm_within=None)
        assert stores.outbox.forget(sent=HOUR, most=2) == 0
        pass_time(HOUR + A_MOMENT)

        assert stores.outbox.forget(sent=HOUR, most=2) == 2
        assert stores.outbox.forget(sent=HOUR, most=2) == 1

        assert numbers(take(stores)) == [3]

    def test_nothing_is_unsettled_that_was_never_added(self, stores: Stores):
        assert stores.outbox.settle([MessageId(404)]) == 0
        assert stores.outbox.unsettled(HOOK) == []

    def test_a_job_is_released_together_with_its_messages(self, stores: Stores):
        plan(stores, DATASET)

        stores.ledger.release(claim(stores, DATASET), messages=[new(7)])

        assert numbers(take(stores)) == [7]

    def test_who_has_lost_a_lease_adds_no_message(self, stores: Stores, pass_time):
        plan(stores, DATASET)
        lost = claim(stores, DATASET)
        pass_time(LEASE + A_MOMENT)
        claim(stores, DATASET)

        with pytest.raises(LeaseLost):
            stores.ledger.release(lost, messages=[new(7)])

        assert take(stores) == []
