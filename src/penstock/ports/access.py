"""The tokens by which clients say who they are."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from penstock.domain.access import Principal, Scope


class Verifier(Protocol):
    """Says whose token it is; any number of threads may ask at once.

    No answer, and no error, repeats anything of a token.
    """

    @abstractmethod
    def known(self, token: str) -> Principal | None:
        """Return whose token it is if that was verified a moment ago, else None.

        Asks nobody and waits for nobody: an event loop may call it.
        """
        ...

    @abstractmethod
    def judge(self, token: str) -> Principal | None:
        """Return whose token it is by the keys at hand; None if some must be fetched.

        Raises as `verify` does, but computes only, and never waits for the issuer.
        """
        ...

    @abstractmethod
    def verify(self, token: str) -> Principal:
        """Return whose token it is; may wait some seconds for the issuer's keys.

        Raises `Unauthenticated` if the token is not to be believed, whatever the
        reason, and `KeysUnavailable` if there are no keys to judge it by, or not the
        one that it names while the issuer fails.
        """
        ...

    @abstractmethod
    def renew(self) -> None:
        """Fetch the issuer's keys if that is due; may wait, and never raises."""
        ...

    @abstractmethod
    def has_keys(self) -> bool:
        """Say whether any token can be verified; asks nobody."""
        ...

    @abstractmethod
    def trouble(self) -> str | None:
        """Say what is wrong with the keys, or None; asks nobody.

        Tokens may still be verified meanwhile, by keys that were fetched before.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A token that its bearer may use until then."""

    token: str = field(repr=False)
    expires_at: datetime


class Signer(Protocol):
    """Writes tokens that the verifier of the same settings believes."""

    @abstractmethod
    def sign(
        self, subject: str, scopes: Iterable[Scope], *, lifetime: timedelta
    ) -> Signed: ...
