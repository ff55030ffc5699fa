"""The position of a client in the change history of a dataset.

After a database was restored to an older state, change numbers are used again. So each
transaction stores a random tag with its number, and a position names both.
"""

import re
from dataclasses import dataclass

MAX_CHANGE_SEQ = 2**63 - 1
# tags have 48 bits: enough that no number gets the same tag twice
POSITION_PATTERN = "[0-9]{1,19}(-[0-9a-f]{1,12})?"

is_position = re.compile(POSITION_PATTERN, re.ASCII).fullmatch


@dataclass(frozen=True, slots=True)
class HistoryPosition:
    """A change: its number, and the tag of the transaction that made it."""

    seq: int
    # None where only the number is known, and at the start
    tag: int | None = None

    def __str__(self) -> str:
        if self.tag is None or self.seq <= 0:
            return f"{max(self.seq, 0):d}"
        return f"{self.seq:d}-{self.tag:x}"


HISTORY_START = HistoryPosition(0)


def parse_position(text: str) -> HistoryPosition | None:
    """Parse `NUMBER` or `NUMBER-TAG`; returns None for anything else."""
    if is_position(text) is None:
        return None
    number, _, tag = text.partition("-")
    # no store has higher numbers
    seq = min(int(number), MAX_CHANGE_SEQ)
    return HistoryPosition(seq, int(tag, 16) if tag and seq else None)
