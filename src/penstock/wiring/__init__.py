"""Settings in, adapters and use cases out: the only place that names an adapter.

Adapters are loaded where they are used: most of a short command would be loading, and
most laptops need no server.
"""

from penstock.wiring.access import signer_of, verifier_of
from penstock.wiring.host import host_of, logging_emit, new_worker_id
from penstock.wiring.penstock import Penstock
from penstock.wiring.serving import served, shared_answers, shared_rates
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
    "served",
    "shared_answers",
    "shared_rates",
    "signer_of",
    "verifier_of",
]
