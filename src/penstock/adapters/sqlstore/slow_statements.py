"""Time statements, and report those that take long, by name and without values."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TypeAlias

from penstock.domain.events import StatementName

# seconds
SLOW = 1.0
# the first word after comments
VERB = re.compile(r"(?:\s|--[^\n]*\n|\()*([a-zA-Z]+)")
# characters in which that is found
MAX_COMMENT = 1000
# name of a statement, and how long it took
OnSlow: TypeAlias = Callable[[StatementName, timedelta], None]
# the same in seconds: called for every statement
Observe: TypeAlias = Callable[[StatementName, float], None]


def ignore_slow(statement: StatementName, took: timedelta) -> None:
    del statement, took


# those of the datasets of this process, which are composed once
COMPOSED: dict[str | bytes, StatementName] = {}


class StatementWatch:
    """Names statements, reports slow ones, and lets each be observed.

    Those of `.sql` files have their names there. What is composed for a dataset is
    `records:merge` and so on, and what is composed for a request `records:select`, by
    its first word. So there are never more names than statements in the code.
    """

    def __init__(
        self,
        statements: Mapping[str, str],
        on_slow: OnSlow,
        observe: Observe | None = None,
    ) -> None:
        self._on_slow = on_slow
        self._observe = observe
        self._names: dict[str | bytes, StatementName] = {}
        for name, text in statements.items():
            # the driver of PostgreSQL gets bytes
            for key in (text, text.encode()):
                self._names.setdefault(key, StatementName(name))

    def note(self, statement: str | bytes, seconds: float) -> None:
        """Hear that a statement has taken so long."""
        # nearly all end here, where no metrics are asked for
        if self._observe is None and seconds < SLOW:
            return
        name = (
            self._names.get(statement)
            or COMPOSED.get(statement)
            or name_by_verb(statement)
        )
        if self._observe is not None:
            self._observe(name, seconds)
        if seconds >= SLOW:
            self._on_slow(name, timedelta(seconds=seconds))


def name_composed(statement: str, name: str) -> None:
    """Name a statement that was composed for a dataset."""
    for key in (statement, statement.encode()):
        COMPOSED[key] = StatementName(f"records:{name.strip('_')}")


def name_combined(statement: bytes, names: Sequence[str]) -> None:
    """Name a statement that does what several named ones do."""
    COMPOSED[statement] = StatementName("+".join(names))


def name_by_verb(statement: str | bytes) -> StatementName:
    # a long one need not be decoded to its end
    head = statement[:MAX_COMMENT]
    text = head if isinstance(head, str) else head.decode(errors="replace")
    verb = VERB.match(text)
    return StatementName(f"records:{verb[1].lower() if verb else 'unknown'}")
