"""Settings in, adapters and use cases out: the only place that names an adapter.

Adapters are loaded where they are used: most of a short command would be loading, and
most laptops need no server.
"""

from penstock.wiring.host import host_of, logging_emit, new_worker_id
from penstock.wiring.penstock import Penstock
from penstock.wiring.stores import facts, opened
from penstock.wiring.transforms import load_transform

__all__ = [
    "Penstock",
    "facts",
    "host_of",
    "load_transform",
    "logging_emit",
    "new_worker_id",
    "opened",
]
