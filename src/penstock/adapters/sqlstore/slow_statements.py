"""Report statements that take long, by name and never with their values."""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TypeAlias

from penstock.domain.events import StatementName

# seconds
SLOW = 1.0
VERB = re.compile(r"\w+")
# name of a statement, and how long it took
OnSlow: TypeAlias = Callable[[StatementName, timedelta], None]


def ignore_slow(statement: StatementName, took: timedelta) -> None:
    del statement, took


class StatementWatch:
    """Names a slow statement, and reports it.

    Statements of datasets have no name of their own; they are `records:select` and so
    on, by their first word.
    """

    def __init__(self, statements: Mapping[str, str], on_slow: OnSlow) -> None:
        self._statements = statements
        self._on_slow = on_slow

    def report(self, text: str | bytes, seconds: float) -> None:
        statement = text if isinstance(text, str) else text.decode(errors="replace")
        self._on_slow(self._name(statement), timedelta(seconds=seconds))

    def _name(self, statement: str) -> StatementName:
        # only the few slow ones are looked up
        for name, text in self._statements.items():
            if text == statement:
                return StatementName(name)
        verb = VERB.search(statement)
        return StatementName(f"records:{verb[0].lower() if verb else 'unknown'}")
