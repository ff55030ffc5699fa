"""Cache recently verified tokens by their digests."""

from dataclasses import dataclass
from hashlib import sha256
from threading import Lock

from penstock.adapters.jwt.jwk import Mark
from penstock.domain.auth_claims import MAX_TOKEN_LENGTH, VerifiedToken

MAX_TOKENS = 4096
# in seconds: how long a revoked token may still be accepted
MAX_AGE = 60.0


@dataclass(frozen=True, slots=True)
class CachedToken:
    """A verified token, its key, and the monotonic time of its verification."""

    admitted: VerifiedToken
    mark: Mark
    cached_at: float

    def is_fresh(self, *, now: float, wall: float) -> bool:
        return now - self.cached_at < MAX_AGE and wall < self.admitted.until


class TokenCache:
    """A bounded number of tokens; the oldest is evicted.

    It contains digests instead of tokens, so that a memory dump has no tokens.
    """

    def __init__(self, most: int = MAX_TOKENS) -> None:
        self._most = most
        self._entries: dict[bytes, CachedToken] = {}
        self._write_lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, token: str) -> CachedToken | None:
        # a single lookup in a dict needs no lock
        return (
            self._entries.get(digest(token)) if len(token) <= MAX_TOKEN_LENGTH else None
        )

    def store(self, token: str, entry: CachedToken) -> None:
        key = digest(token)
        with self._write_lock:
            # an entry that is stored again becomes the newest
            self._entries.pop(key, None)
            while len(self._entries) >= self._most:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = entry


def digest(token: str) -> bytes:
    # lone surrogates must not raise here
    return sha256(token.encode(errors="surrogatepass")).digest()
