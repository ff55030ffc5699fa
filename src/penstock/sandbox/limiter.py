"""The provider's own rate limit: a token bucket on the monotonic clock."""

from threading import Lock


class Limiter:
    def __init__(self, rate: float | None, burst: int) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled_at: float | None = None
        self._lock = Lock()

    def take(self, at: float) -> float:
        """Take a token; return 0, or the seconds until there is one."""
        if self._rate is None:
            return 0.0
        with self._lock:
            # Threads may call slightly out of order: the time must not decrease.
            elapsed = (
                max(0.0, at - self._filled_at) if self._filled_at is not None else 0.0
            )
            self._filled_at = max(at, self._filled_at or at)
            self._tokens = min(self._burst, self._tokens + elapsed * self._rate)
            if self._tokens < 1:
                return (1 - self._tokens) / self._rate
            self._tokens -= 1
            return 0.0
