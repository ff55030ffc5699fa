"""How long an answer is kept, and when to work it out anew before it ends."""

import math

# answers that were kept together must not end together
SPREAD = 0.15
# of rarely asked answers none is renewed early, of often asked ones nearly all
EAGERNESS = 1.0


def lifetime(longest: float, roll: float) -> float:
    """Return how long an answer is kept, in seconds: never longer than was said."""
    return longest * (1 - SPREAD * roll)


def is_due_early(*, left: float, cost: float, roll: float) -> bool:
    """Say whether an answer is worked out anew although it is still good.

    The longer it took and the sooner it ends, the likelier; so of many who ask, one
    goes ahead before all of them would have to wait (Vattani et al., VLDB 2015).
    """
    return -cost * EAGERNESS * math.log(max(roll, 1e-12)) >= left
