"""Everything the inside needs from the outside.

What only an API needs, `serving` and `access`, is loaded by those who have one.
"""

from penstock.ports.budgets import Budgets, LastingBudgets, Remembered
from penstock.ports.host import Emit, Halt, Host, Redact, StillHere
from penstock.ports.idempotency import Requests
from penstock.ports.ledger import (
    Bell,
    Declarations,
    Imports,
    JobFilter,
    Jobs,
    Ledger,
    Repeated,
)
from penstock.ports.records import Quarantined, ReasonCount, Records, Replay
from penstock.ports.schema import Fact, Facts, Schema
from penstock.ports.sources import Source, Survey
from penstock.ports.stores import Stores
from penstock.ports.uploads import Uploads
from penstock.ports.workers import Workers

__all__ = [
    "Bell",
    "Budgets",
    "Declarations",
    "Emit",
    "Fact",
    "Facts",
    "Halt",
    "Host",
    "Imports",
    "JobFilter",
    "Jobs",
    "LastingBudgets",
    "Ledger",
    "Quarantined",
    "ReasonCount",
    "Records",
    "Redact",
    "Remembered",
    "Repeated",
    "Replay",
    "Requests",
    "Schema",
    "Source",
    "StillHere",
    "Stores",
    "Survey",
    "Uploads",
    "Workers",
]
