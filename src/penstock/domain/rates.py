"""How often one client may ask: smoothly, and some at once after a pause.

The generic cell rate algorithm: of a client one number is remembered, the time at which
its allowance will be full again. Times are seconds of one clock.
"""

import math
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many requests in a period, of which `burst` may come at once."""

    requests: int
    period: timedelta
    burst: int
    # seconds after which one request more is allowed
    interval: float = field(init=False)
    # seconds after which all of the burst is allowed again
    window: float = field(init=False)

    def __post_init__(self) -> None:
        interval = self.period.total_seconds() / self.requests
        object.__setattr__(self, "interval", interval)
        object.__setattr__(self, "window", interval * self.burst)


class Standing(NamedTuple):
    """Where a client stands once it has asked."""

    is_allowed: bool
    # when its allowance is full again; remember it
    full_at: float
    # requests that it may send at once
    left: int
    # seconds until all are allowed again, or until one is where it was refused
    wait: float


def charged(rate: Rate, full_at: float, now: float) -> Standing:
    """Take a request off a client's allowance, or tell it how long to wait."""
    interval = rate.interval
    start = max(now, full_at)
    room = rate.window - (start - now)
    # as much as a rounding may cost
    if room < interval * 0.999_999:
        return Standing(False, full_at, 0, interval - room)  # noqa: FBT003 (its names are above)
    left = int((room - interval) / interval + 1e-6)
    return Standing(True, start + interval, left, start + interval - now)  # noqa: FBT003


def whole_seconds(wait: float) -> int:
    """Round a wait up, as headers have it; never to nothing."""
    return max(1, math.ceil(wait))
