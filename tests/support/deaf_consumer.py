"""Makes a worker of Celery deaf after some deliveries: `celery worker -I` loads it."""

import itertools
import os
import time
from typing import Any

from celery import signals

DELIVERIES = 3
FOREVER = 3600
deliveries = itertools.count(1)


def stop_receiving(sender: Any, **_: Any) -> None:
    if next(deliveries) != DELIVERIES:
        return
    if os.environ["DEAFNESS"] == "hangs":
        time.sleep(FOREVER)
    # the worker still believes that it consumes its queue
    sender.hub.call_soon(sender.task_consumer.cancel)


signals.task_received.connect(stop_receiving)
