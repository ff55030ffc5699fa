"""Where a client stands in the history of a dataset: a change, and which one of it.

Numbers alone are used again after a database was put back to an older state. So each
transaction that raises one stores a random tag with it, and a position names both.
"""

import re
from dataclasses import dataclass

LARGEST_NUMBER = 2**63 - 1
# tags have 48 bits: enough that no number ever gets the same one twice
PATTERN = "[0-9]{1,19}(-[0-9a-f]{1,12})?"

is_position = re.compile(PATTERN, re.ASCII).fullmatch


@dataclass(frozen=True, slots=True)
class Position:
    """A change by its number, and by the tag of the transaction that made it."""

    seq: int
    # None where only the number is known, as at the beginning, which all have
    tag: int | None = None

    def __str__(self) -> str:
        if self.tag is None or self.seq <= 0:
            return f"{max(self.seq, 0):d}"
        return f"{self.seq:d}-{self.tag:x}"


START = Position(0)


def parse_position(text: str) -> Position | None:
    """Read `NUMBER` or `NUMBER-TAG`; None for anything else."""
    if is_position(text) is None:
        return None
    number, _, tag = text.partition("-")
    # no store counts further, and nothing changes that often
    seq = min(int(number), LARGEST_NUMBER)
    return Position(seq, int(tag, 16) if tag and seq else None)
