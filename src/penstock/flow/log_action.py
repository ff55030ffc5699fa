"""Note what a person has done, in the log and in the database."""

from contextlib import suppress
from dataclasses import dataclass

from penstock.domain.actions import Action
from penstock.domain.events import ActionTaken
from penstock.errors import StoreUnavailable
from penstock.ports import ActionLog, Emit


@dataclass(frozen=True, slots=True)
class LogAction:
    actions: ActionLog
    emit: Emit

    def __call__(self, action: Action) -> None:
        """Without a database it is in the log alone: it has been done already."""
        self.emit(
            ActionTaken(
                actor=action.actor,
                action=action.name,
                subject=action.subject,
                via=action.via,
            )
        )
        with suppress(StoreUnavailable):
            self.actions.add(action)
