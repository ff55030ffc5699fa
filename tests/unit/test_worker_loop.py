"""A signal is turned into the wish to stop, whenever it comes."""

import os
import signal
import threading
import time

from penstock.entrypoints.worker.loop import stop_on_signals


def test_signals_that_come_at_once_do_not_wait_for_each_other():
    halt = threading.Event()
    with stop_on_signals(halt):
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)

        assert halt.wait(5)


def test_a_signal_is_heeded_while_the_event_is_locked():
    halt = threading.Event()
    with stop_on_signals(halt):
        with halt._cond:  # type: ignore[attr-defined]
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)

        assert halt.wait(5)


def test_the_handlers_before_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals(threading.Event()):
        assert signal.getsignal(signal.SIGTERM) is not before

    assert signal.getsignal(signal.SIGTERM) is before
