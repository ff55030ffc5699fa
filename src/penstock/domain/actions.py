"""What people do with imports, jobs, budgets and schedules."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NewType

ActionId = NewType("ActionId", int)


class ActionVia(StrEnum):
    API = "api"
    COMMAND = "command"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    # the subject of a token, an address, or user@host of a command
    actor: str
    # the name of an operation of the API, such as cancelImport
    name: str
    # what it was done to, such as imports/7
    subject: str
    via: ActionVia


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAction:
    id: ActionId
    at: datetime
    action: Action
