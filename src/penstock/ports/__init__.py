"""Everything the inside needs from the outside."""

from penstock.ports.access import Signed, Signer, Verifier
from penstock.ports.budgets import Budgets, LastingBudgets, Remembered
from penstock.ports.host import Emit, Halt, Host, Redact, StillHere
from penstock.ports.idempotency import Requests
from penstock.ports.ledger import Bell, Declarations, Imports, JobFilter, Jobs, Ledger
from penstock.ports.records import Quarantined, ReasonCount, Records, Replay
from penstock.ports.schema import Fact, Facts, Schema
from penstock.ports.serving import Edits, Reads, Served
from penstock.ports.sources import Source, Survey
from penstock.ports.stores import Stores
from penstock.ports.uploads import Uploads

__all__ = [
    "Bell",
    "Budgets",
    "Declarations",
    "Edits",
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
    "Reads",
    "ReasonCount",
    "Records",
    "Redact",
    "Remembered",
    "Replay",
    "Requests",
    "Schema",
    "Served",
    "Signed",
    "Signer",
    "Source",
    "StillHere",
    "Stores",
    "Survey",
    "Uploads",
    "Verifier",
]
