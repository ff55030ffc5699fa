"""The request rate of one client: a smooth rate, and a burst after a pause.

The generic cell rate algorithm: the state of a client is one number, the time at which
its allowance will be full again. Times are seconds of one clock.
"""

import math
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRate:
    """A number of requests in a period, of which `burst` may come at once."""

    requests: int
    period: timedelta
    burst: int
    # seconds until one more request is allowed
    interval: float = field(init=False)
    # seconds until the whole burst is allowed again
    window: float = field(init=False)

    def __post_init__(self) -> None:
        interval = self.period.total_seconds() / self.requests
        object.__setattr__(self, "interval", interval)
        object.__setattr__(self, "window", interval * self.burst)


class RateDecision(NamedTuple):
    """The outcome of one request against a client's rate."""

    is_allowed: bool
    # when the allowance is full again: the new state of the client
    full_at: float
    # requests that it may send at once
    left: int
    # seconds until all are allowed again; of a rejected request, until one is
    wait: float


def charge_request(rate: ClientRate, full_at: float, now: float) -> RateDecision:
    """Take a request off a client's allowance, or return how long to wait."""
    interval = rate.interval
    start = max(now, full_at)
    room = rate.window - (start - now)
    # tolerates rounding errors
    if room < interval * 0.999_999:
        return RateDecision(False, full_at, 0, interval - room)  # noqa: FBT003 (its names are above)
    left = int((room - interval) / interval + 1e-6)
    return RateDecision(True, start + interval, left, start + interval - now)  # noqa: FBT003


def ceil_seconds(wait: float) -> int:
    """Round a wait up to whole seconds for a header, at least one."""
    return max(1, math.ceil(wait))
