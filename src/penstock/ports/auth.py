"""Access tokens: verification and signing."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from penstock.domain.auth_claims import AccessScope, Principal


class Verifier(Protocol):
    """Verifies access tokens; thread-safe.

    No result and no error contains any part of a token.
    """

    @abstractmethod
    def cached(self, token: str) -> Principal | None:
        """Return the cached principal of a recently verified token, else None.

        Never blocks: may be called in an event loop.
        """
        ...

    @abstractmethod
    def verify_locally(self, token: str) -> Principal | None:
        """Verify with the cached keys only; None if keys must be fetched first.

        Raises as `verify` does, but never waits for the issuer.
        """
        ...

    @abstractmethod
    def verify(self, token: str) -> Principal:
        """Return the principal of a token; may wait seconds for the issuer's keys.

        Raises `Unauthenticated` if the token is not valid, for any reason, and
        `JwksUnavailable` if there are no keys, or not the one that the token names
        while the issuer fails.
        """
        ...

    @abstractmethod
    def renew(self) -> None:
        """Fetch the issuer's keys if that is due; may block, never raises."""
        ...

    @abstractmethod
    def has_keys(self) -> bool:
        """Return whether there are keys to verify tokens with; never blocks."""
        ...

    @abstractmethod
    def failure(self) -> str | None:
        """Return what is wrong with fetching keys, or None; never blocks.

        Tokens may still be verified with keys that were fetched before.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A signed token and its expiry."""

    token: str = field(repr=False)
    expires_at: datetime


class Signer(Protocol):
    """Signs tokens that the verifier of the same settings accepts."""

    @abstractmethod
    def sign(
        self, subject: str, scopes: Iterable[AccessScope], *, lifetime: timedelta
    ) -> Signed: ...
