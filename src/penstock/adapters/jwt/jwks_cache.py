"""Cache the keys of an issuer, and renew them when it changes them.

The first thread that needs keys fetches them for all. A token whose key is cached waits
for no fetch. Valid keys are never dropped because a fetch failed, only because a newer
response does not list them, or they are a day old.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from threading import Lock, Thread
from time import monotonic
from typing import Protocol

from typing_extensions import override

from penstock.adapters.jwt.jwk import Mark, VerifyingKey, public_keys
from penstock.adapters.jwt.jwks_fetch import FETCH_TIMEOUT, NotFetched
from penstock.adapters.jwt.token_parser import parse_object
from penstock.domain.auth_claims import TokenHeader
from penstock.errors import JwksUnavailable

# all in seconds of the monotonic clock
RENEWAL_INTERVAL = 600.0
RETRY_INTERVAL = 30.0
MAX_KEY_AGE = 86_400.0
# without any keys no request is served: retry soon, but not for every token
RETRY_INTERVAL_WITHOUT_KEYS = 5.0
# how long threads wait for the one that fetches; a name may be slow to resolve
MAX_FETCH_WAIT = FETCH_TIMEOUT.total_seconds() + 1.0


class Keyring(Protocol):
    """The keys that are currently valid."""

    @abstractmethod
    def find_cached(self, header: TokenHeader) -> Sequence[VerifyingKey] | None:
        """Return fitting keys without waiting, or None if a fetch might find others.

        Raises `JwksUnavailable` if none has that id, and the last fetch failed.
        """
        ...

    @abstractmethod
    def fitting(self, header: TokenHeader) -> Sequence[VerifyingKey]:
        """Return the keys that may have signed a token; raises `JwksUnavailable`."""
        ...

    @abstractmethod
    def renew(self) -> None:
        """Fetch the keys if due; waits only for the first keys, and never raises."""
        ...

    @abstractmethod
    def has_keys(self) -> bool: ...

    @abstractmethod
    def is_good(self, mark: Mark) -> bool:
        """Return whether a key is still valid, without a fetch."""
        ...

    @abstractmethod
    def failure(self) -> str | None: ...


class SecretKeyring(Keyring):
    """One key that never changes."""

    def __init__(self, key: VerifyingKey) -> None:
        self._key = key

    @override
    def find_cached(self, header: TokenHeader) -> Sequence[VerifyingKey]:
        # the key id of such a token means nothing: there is one key
        return [self._key] if header.algorithm in self._key.algorithms else []

    @override
    def fitting(self, header: TokenHeader) -> Sequence[VerifyingKey]:
        return self.find_cached(header)

    @override
    def renew(self) -> None:
        pass

    @override
    def has_keys(self) -> bool:
        return True

    @override
    def is_good(self, mark: Mark) -> bool:
        return mark == self._key.mark

    @override
    def failure(self) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class KeySnapshot:
    """The keys that the issuer listed at one time."""

    keys: tuple[VerifyingKey, ...]
    marks: frozenset[Mark]
    fetched_at: float

    def with_kid(self, kid: str | None) -> list[VerifyingKey]:
        return [key for key in self.keys if kid is None or key.kid == kid]

    def fitting(self, header: TokenHeader) -> list[VerifyingKey]:
        keys = self.with_kid(header.kid)
        return [key for key in keys if header.algorithm in key.algorithms]


class PublishedKeyring(Keyring):
    """The keys that an issuer publishes, fetched by `renew` or for the first token."""

    def __init__(
        self,
        fetch: Callable[[], bytes],
        *,
        host: str,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._fetch = fetch
        self._host = host
        self._clock = clock
        # replaced as a whole, so that it can be read without a lock
        self._snapshot: KeySnapshot | None = None
        # held by the thread that fetches
        self._fetch_lock = Lock()
        # the times of the last fetch, and of the last fetch for an unknown key id
        self._tried_at = self._searched_at = -MAX_KEY_AGE
        self._failure: str | None = None

    @override
    def find_cached(self, header: TokenHeader) -> Sequence[VerifyingKey] | None:
        snapshot = self._valid_snapshot()
        if snapshot is None:
            return None
        self._renew_in_background()
        if not snapshot.with_kid(header.kid) and self._may_find_key():
            return None
        return self._select(snapshot, header)

    @override
    def fitting(self, header: TokenHeader) -> Sequence[VerifyingKey]:
        called_at = self._clock()
        cached = self.find_cached(header)
        if cached is not None:
            return cached
        snapshot = self._valid_snapshot() or self._fetch_first()
        if not snapshot.with_kid(header.kid) and snapshot.fetched_at < called_at:
            snapshot = self._search_new_keys(snapshot)
        return self._select(snapshot, header)

    @override
    def renew(self) -> None:
        if self.has_keys():
            self._renew_in_background()
            return
        with suppress(JwksUnavailable):
            self._fetch_first()

    @override
    def has_keys(self) -> bool:
        return self._valid_snapshot() is not None

    @override
    def is_good(self, mark: Mark) -> bool:
        snapshot = self._valid_snapshot()
        return snapshot is not None and mark in snapshot.marks

    @override
    def failure(self) -> str | None:
        if self._failure is None:
            return None
        snapshot = self._valid_snapshot()
        failure = f"{self._host!r} {self._failure}"
        if snapshot is None:
            return f"{failure}; no token can be verified"
        age = timedelta(seconds=int(self._clock() - snapshot.fetched_at))
        return f"{failure}; its keys are {age} old, and are valid for a day"

    def _may_find_key(self) -> bool:
        """Return whether waiting for a fetch may find more keys."""
        if self._fetch_lock.locked():
            # an issuer that failed before is not expected to respond soon
            return self._failure is None
        return self._has_passed(self._searched_at, RETRY_INTERVAL)

    def _select(
        self, snapshot: KeySnapshot, header: TokenHeader
    ) -> Sequence[VerifyingKey]:
        """Return the keys that fit; an unknown id may be that of a newer key."""
        failure = self._failure
        if failure is not None and not snapshot.with_kid(header.kid):
            since_search = self._clock() - self._searched_at
            seconds = max(1.0, RETRY_INTERVAL - since_search)
            raise self._unavailable(failure, seconds)
        return snapshot.fitting(header)

    def _unavailable(self, reason: str, seconds: float) -> JwksUnavailable:
        retry_after = timedelta(seconds=seconds)
        return JwksUnavailable(self._host, reason=reason, retry_after=retry_after)

    def _valid_snapshot(self) -> KeySnapshot | None:
        snapshot = self._snapshot
        if snapshot is None or self._clock() - snapshot.fetched_at > MAX_KEY_AGE:
            return None
        return snapshot

    def _fetch_first(self) -> KeySnapshot:
        """Fetch the first keys: all threads wait for the one that fetches."""
        with self._fetch_turn() as is_locked:
            is_due = self._failure is None or self._has_passed(
                self._tried_at, RETRY_INTERVAL_WITHOUT_KEYS
            )
            if is_locked and is_due and self._valid_snapshot() is None:
                self._renew()
        snapshot = self._valid_snapshot()
        if snapshot is None:
            raise self._unavailable(
                self._failure or "has not responded yet", RETRY_INTERVAL_WITHOUT_KEYS
            )
        return snapshot

    def _search_new_keys(self, current: KeySnapshot) -> KeySnapshot:
        """Fetch for an unknown key id, at most once per interval.

        Anybody can send a token with such an id.
        """
        with self._fetch_turn() as is_locked:
            is_due = self._has_passed(self._searched_at, RETRY_INTERVAL)
            if is_locked and is_due and self._snapshot is current:
                self._searched_at = self._clock()
                self._renew()
        return self._valid_snapshot() or current

    def _is_renewal_due(self) -> bool:
        snapshot = self._snapshot
        is_old = snapshot is None or self._has_passed(
            snapshot.fetched_at, RENEWAL_INTERVAL
        )
        return is_old and self._has_passed(self._tried_at, RETRY_INTERVAL)

    def _renew_in_background(self) -> None:
        """Fetch in a thread, while callers use the old keys."""
        if not self._is_renewal_due() or not self._fetch_lock.acquire(blocking=False):
            return
        try:
            Thread(target=self._renew_and_release, name="jwks", daemon=True).start()
        except RuntimeError:
            # no thread can be started now; a later call tries again
            self._fetch_lock.release()

    @contextmanager
    def _fetch_turn(self) -> Iterator[bool]:
        """Wait until no other thread fetches; False if that takes too long."""
        is_locked = self._fetch_lock.acquire(timeout=MAX_FETCH_WAIT)
        try:
            yield is_locked
        finally:
            if is_locked:
                self._fetch_lock.release()

    def _renew_and_release(self) -> None:
        try:
            self._renew()
        finally:
            self._fetch_lock.release()

    def _renew(self) -> None:
        """Replace the keys by those published now, or store why that failed."""
        fetched_at = self._clock()
        try:
            keys = public_keys(parse_object(self._fetch()))
        except NotFetched as error:
            self._failure = str(error)
        except ValueError:
            self._failure = "sent something other than a key set"
        else:
            if not keys:
                # no issuer revokes all keys at once: this is a fault
                self._failure = "lists no usable key"
                return
            marks = frozenset(key.mark for key in keys)
            self._snapshot, self._failure = KeySnapshot(keys, marks, fetched_at), None
        finally:
            # the pause begins when a fetch has ended, however long it took
            self._tried_at = self._clock()

    def _has_passed(self, since: float, seconds: float) -> bool:
        return self._clock() - since >= seconds
