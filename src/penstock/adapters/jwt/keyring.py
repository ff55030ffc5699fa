"""Hold the keys of an issuer, and follow it when it changes them.

Whoever comes first fetches for all. A token whose key is known waits for no fetch.
Good keys are never given up because a fetch failed, only because a newer answer does
not list them, or they are a day old.
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

from penstock.adapters.jwt.fetch import LONGEST, NotFetched
from penstock.adapters.jwt.keys import Mark, VerifyingKey, public_keys
from penstock.adapters.jwt.reading import read_object
from penstock.domain.access import Heading
from penstock.errors import KeysUnavailable

# all in seconds of the monotonic clock
RENEWED_EVERY = 600.0
TRIED_AGAIN_AFTER = 30.0
KEPT_AT_MOST = 86_400.0
# without any keys nobody is served: ask again soon, but not for every token
WITHOUT_KEYS = 5.0
# how long others wait for the one who fetches; a name may be slow to resolve
LONGEST_WAIT = LONGEST.total_seconds() + 1.0


class Keyring(Protocol):
    """The keys that are good now."""

    @abstractmethod
    def find_cached(self, heading: Heading) -> Sequence[VerifyingKey] | None:
        """Return them without waiting, or None if a fetch might bring others.

        Raises `KeysUnavailable` if none has that name, and the last fetch failed.
        """
        ...

    @abstractmethod
    def fitting(self, heading: Heading) -> Sequence[VerifyingKey]:
        """Return the keys that may have signed a token; raises `KeysUnavailable`."""
        ...

    @abstractmethod
    def renew(self) -> None:
        """Fetch the keys if that is due; may wait for the first, and never raises."""
        ...

    @abstractmethod
    def has_keys(self) -> bool: ...

    @abstractmethod
    def is_good(self, mark: Mark) -> bool:
        """Say whether a key is still good; asks nobody."""
        ...

    @abstractmethod
    def trouble(self) -> str | None: ...


class SecretKeyring(Keyring):
    """One key that never changes."""

    def __init__(self, key: VerifyingKey) -> None:
        self._key = key

    @override
    def find_cached(self, heading: Heading) -> Sequence[VerifyingKey]:
        # what such a token calls its key means nothing: there is one
        return [self._key] if heading.algorithm in self._key.algorithms else []

    @override
    def fitting(self, heading: Heading) -> Sequence[VerifyingKey]:
        return self.find_cached(heading)

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
    def trouble(self) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class Ring:
    """What the issuer listed when it was asked."""

    keys: tuple[VerifyingKey, ...]
    marks: frozenset[Mark]
    asked_at: float

    def named(self, kid: str | None) -> list[VerifyingKey]:
        return [each for each in self.keys if kid is None or each.kid == kid]

    def fitting(self, heading: Heading) -> list[VerifyingKey]:
        known = self.named(heading.kid)
        return [each for each in known if heading.algorithm in each.algorithms]


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
        # replaced as a whole, so that it is read without a lock
        self._ring: Ring | None = None
        # held by the one who fetches
        self._fetching = Lock()
        # when it was last asked: at all, and for the sake of a name it did not know
        self._tried_at = self._searched_at = -KEPT_AT_MOST
        self._failure: str | None = None

    @override
    def find_cached(self, heading: Heading) -> Sequence[VerifyingKey] | None:
        ring = self._good_ring()
        if ring is None:
            return None
        self._renew_at_leisure()
        if not ring.named(heading.kid) and self._may_find_others():
            return None
        return self._select(ring, heading)

    @override
    def fitting(self, heading: Heading) -> Sequence[VerifyingKey]:
        came_at = self._clock()
        cached = self.find_cached(heading)
        if cached is not None:
            return cached
        ring = self._good_ring() or self._first_ring()
        if not ring.named(heading.kid) and ring.asked_at < came_at:
            ring = self._ring_with_news(ring)
        return self._select(ring, heading)

    @override
    def renew(self) -> None:
        if self.has_keys():
            self._renew_at_leisure()
            return
        with suppress(KeysUnavailable):
            self._first_ring()

    @override
    def has_keys(self) -> bool:
        return self._good_ring() is not None

    @override
    def is_good(self, mark: Mark) -> bool:
        ring = self._good_ring()
        return ring is not None and mark in ring.marks

    @override
    def trouble(self) -> str | None:
        if self._failure is None:
            return None
        ring = self._good_ring()
        told = f"{self._host!r} {self._failure}"
        if ring is None:
            return f"{told}; no token can be verified"
        age = timedelta(seconds=int(self._clock() - ring.asked_at))
        return f"{told}; its keys are {age} old, and are good for a day"

    def _may_find_others(self) -> bool:
        """Say whether it is worth waiting for a fetch, another's or one of its own."""
        if self._fetching.locked():
            # of an issuer that has failed nobody expects that it answers soon
            return self._failure is None
        return self._is_over(self._searched_at, TRIED_AGAIN_AFTER)

    def _select(self, ring: Ring, heading: Heading) -> Sequence[VerifyingKey]:
        """Return the keys that fit; an unknown name may be that of a newer key."""
        failure = self._failure
        if failure is not None and not ring.named(heading.kid):
            since_search = self._clock() - self._searched_at
            seconds = max(1.0, TRIED_AGAIN_AFTER - since_search)
            raise self._unavailable(failure, seconds)
        return ring.fitting(heading)

    def _unavailable(self, reason: str, seconds: float) -> KeysUnavailable:
        retry_after = timedelta(seconds=seconds)
        return KeysUnavailable(self._host, reason=reason, retry_after=retry_after)

    def _good_ring(self) -> Ring | None:
        ring = self._ring
        if ring is None or self._clock() - ring.asked_at > KEPT_AT_MOST:
            return None
        return ring

    def _first_ring(self) -> Ring:
        """Return keys where there are none: all wait for the one who fetches."""
        with self._turn() as is_mine:
            is_due = self._failure is None or self._is_over(
                self._tried_at, WITHOUT_KEYS
            )
            if is_mine and is_due and self._good_ring() is None:
                self._renew()
        ring = self._good_ring()
        if ring is None:
            raise self._unavailable(
                self._failure or "has not answered yet", WITHOUT_KEYS
            )
        return ring

    def _ring_with_news(self, known: Ring) -> Ring:
        """Look for a name that the known keys do not have, now and then.

        Anybody can write such a name: only one fetch in a while is made for it.
        """
        with self._turn() as is_mine:
            is_due = self._is_over(self._searched_at, TRIED_AGAIN_AFTER)
            if is_mine and is_due and self._ring is known:
                self._searched_at = self._clock()
                self._renew()
        return self._good_ring() or known

    def _is_renewal_due(self) -> bool:
        ring = self._ring
        is_old = ring is None or self._is_over(ring.asked_at, RENEWED_EVERY)
        return is_old and self._is_over(self._tried_at, TRIED_AGAIN_AFTER)

    def _renew_at_leisure(self) -> None:
        """Fetch behind the back of whoever asks, who goes on with the old keys."""
        if not self._is_renewal_due() or not self._fetching.acquire(blocking=False):
            return
        try:
            Thread(target=self._renew_and_release, name="jwks", daemon=True).start()
        except RuntimeError:
            # no thread to be had now; somebody tries again later
            self._fetching.release()

    @contextmanager
    def _turn(self) -> Iterator[bool]:
        """Wait until nobody else fetches; False if that takes too long."""
        is_mine = self._fetching.acquire(timeout=LONGEST_WAIT)
        try:
            yield is_mine
        finally:
            if is_mine:
                self._fetching.release()

    def _renew_and_release(self) -> None:
        try:
            self._renew()
        finally:
            self._fetching.release()

    def _renew(self) -> None:
        """Replace the keys by what is published now, or note why they stay."""
        asked_at = self._clock()
        try:
            keys = public_keys(read_object(self._fetch()))
        except NotFetched as failed:
            self._failure = str(failed)
        except ValueError:
            self._failure = "sent what is no set of keys"
        else:
            if not keys:
                # nobody revokes all keys at once: something is broken there
                self._failure = "lists no key that can be used"
                return
            marks = frozenset(each.mark for each in keys)
            self._ring, self._failure = Ring(keys, marks, asked_at), None
        finally:
            # a pause begins when a try has ended, however long it took
            self._tried_at = self._clock()

    def _is_over(self, since: float, seconds: float) -> bool:
        return self._clock() - since >= seconds
