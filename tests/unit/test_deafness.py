"""A worker of Celery is deaf if messages wait that it should have received."""

from datetime import timedelta

import pytest

from penstock.domain.deafness import QueueState, is_deaf

MINUTE = timedelta(minutes=1)
RESEND_AFTER = MINUTE


def deaf(receptive_for, *queues):
    return is_deaf(receptive_for, queues, resend_after=RESEND_AFTER)


def queue(*unreceived, waiting=0):
    return QueueState(
        unreceived=[minutes * MINUTE for minutes in unreceived], waiting=waiting
    )


def test_a_worker_is_deaf_if_a_message_that_was_sent_since_is_unreceived():
    assert deaf(5 * MINUTE, queue(3))
    assert deaf(3 * MINUTE, queue(3))
    assert deaf(5 * MINUTE, queue(), queue(4, 1))


def test_an_idle_worker_without_messages_is_healthy():
    assert not deaf(999 * MINUTE, queue())
    assert not deaf(999 * MINUTE)


@pytest.mark.parametrize("age", [0, 1, 2.9])
def test_a_message_that_was_sent_or_sent_again_lately_may_be_on_its_way(age):
    assert not deaf(999 * MINUTE, queue(age, waiting=1))


def test_a_worker_is_healthy_while_it_has_no_connection_or_no_idle_slot():
    assert not deaf(None, queue(999, waiting=1))


def test_a_worker_has_time_after_its_last_delivery_or_its_connection():
    assert not deaf(2.9 * MINUTE, queue(999, waiting=1))


def test_a_message_that_was_sent_before_may_have_been_lost_by_the_broker():
    assert not deaf(4 * MINUTE, queue(5))


def test_a_worker_is_deaf_if_the_broker_still_has_what_was_sent_before():
    assert deaf(4 * MINUTE, queue(5, waiting=1))
    assert not deaf(4 * MINUTE, queue(5), queue(1, waiting=1))
