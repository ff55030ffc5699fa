"""Remember tokens that were verified a moment ago, by their digests."""

from dataclasses import dataclass
from hashlib import sha256
from threading import Lock

from penstock.adapters.jwt.keys import Mark
from penstock.domain.access import LONGEST_TOKEN, Admitted

MOST_TOKENS = 4096
# in seconds: how long a token that the issuer takes back may still be believed
KEPT_AT_MOST = 60.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A verified token: by which key, and when by the monotonic clock."""

    admitted: Admitted
    mark: Mark
    at: float

    def is_fresh(self, *, now: float, wall: float) -> bool:
        return now - self.at < KEPT_AT_MOST and wall < self.admitted.until


class Memory:
    """A bounded number of tokens; the oldest makes room.

    It holds no token: whoever reads our memory finds digests.
    """

    def __init__(self, most: int = MOST_TOKENS) -> None:
        self._most = most
        self._seen: dict[bytes, Seen] = {}
        self._changing = Lock()

    def __len__(self) -> int:
        return len(self._seen)

    def find(self, token: str) -> Seen | None:
        # one look-up in a dict needs no lock
        return self._seen.get(digest(token)) if len(token) <= LONGEST_TOKEN else None

    def keep(self, token: str, seen: Seen) -> None:
        key = digest(token)
        with self._changing:
            # what is seen anew goes to the end of the row
            self._seen.pop(key, None)
            while len(self._seen) >= self._most:
                del self._seen[next(iter(self._seen))]
            self._seen[key] = seen


def digest(token: str) -> bytes:
    # what is no text at all must not stop us here
    return sha256(token.encode(errors="surrogatepass")).digest()
