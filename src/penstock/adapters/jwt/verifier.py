"""Verify tokens: the key first, then the signature, then the claims."""

from collections.abc import Callable, Sequence
from time import monotonic, time

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwa import EdDSAAlgorithm, JWSAlgModel
from joserfc.jws import JWSRegistry
from typing_extensions import override

from penstock.adapters.jwt.fetch import Fetch
from penstock.adapters.jwt.keyring import Keyring, PublishedKeyring, SecretKeyring
from penstock.adapters.jwt.keys import VerifyingKey, shared_key
from penstock.adapters.jwt.memory import Memory, Seen
from penstock.adapters.jwt.reading import claims_of, header_of
from penstock.domain.access import (
    LONGEST_TOKEN,
    Algorithm,
    Principal,
    PublishedKeys,
    SharedSecret,
    Trust,
    admitted,
    heading_of,
)
from penstock.errors import Unauthenticated
from penstock.ports.access import Verifier


class JwtVerifier(Verifier):
    """Believes what the keys of one issuer have signed."""

    def __init__(
        self,
        trust: Trust,
        keyring: Keyring,
        *,
        memory: Memory | None = None,
        clock: Callable[[], float] = monotonic,
        wall: Callable[[], float] = time,
    ) -> None:
        self._trust = trust
        self._keyring = keyring
        self._memory = Memory() if memory is None else memory
        self._clock = clock
        self._wall = wall
        self._registry = Registry(
            algorithms=[*trust.algorithms], strict_check_header=False
        )

    @override
    def known(self, token: str) -> Principal | None:
        seen = self._memory.find(token)
        if (
            seen is None
            or not seen.is_fresh(now=self._clock(), wall=self._wall())
            or not self._keyring.is_good(seen.mark)
        ):
            return None
        return seen.admitted.principal

    @override
    def judge(self, token: str) -> Principal | None:
        principal = self.known(token)
        if principal is not None:
            return principal
        keys = self._keyring.find_cached(heading_of(header_of(token), self._trust))
        return None if keys is None else self._judged(token, keys)

    @override
    def verify(self, token: str) -> Principal:
        principal = self.known(token)
        if principal is not None:
            return principal
        keys = self._keyring.fitting(heading_of(header_of(token), self._trust))
        return self._judged(token, keys)

    @override
    def renew(self) -> None:
        self._keyring.renew()

    @override
    def has_keys(self) -> bool:
        return self._keyring.has_keys()

    def _judged(self, token: str, keys: Sequence[VerifyingKey]) -> Principal:
        if not keys:
            raise Unauthenticated("the token is signed by a key that is not known here")
        key, payload = self._opened(token, keys)
        believed = admitted(claims_of(payload), self._trust, now=self._wall())
        self._memory.keep(token, Seen(believed, key.mark, self._clock()))
        return believed.principal

    @override
    def trouble(self) -> str | None:
        return self._keyring.trouble()

    def _opened(
        self, token: str, keys: Sequence[VerifyingKey]
    ) -> tuple[VerifyingKey, bytes]:
        """Return the key that has signed a token, and what it has signed."""
        for each in keys:
            try:
                opened = jws.deserialize_compact(
                    token, each.key, registry=self._registry
                )
            except (JoseError, ValueError):
                # the library also refuses here what it does not like in a header
                continue
            return each, opened.payload
        raise Unauthenticated("the signature of the token is not that of its key")


class OlderEdwards(EdDSAAlgorithm):
    """The older name of Ed25519, of which the library would warn at every token."""

    security_warning = ""


class Registry(JWSRegistry):
    """The library's algorithms, for tokens as long as we accept them."""

    algorithms: dict[str, JWSAlgModel] = {  # noqa: RUF012 (the library's own form)
        **JWSRegistry.algorithms,
        Algorithm.EDDSA: OlderEdwards(),
    }
    max_header_length = max_payload_length = max_signature_length = LONGEST_TOKEN


def verifier_of(trust: Trust) -> JwtVerifier:
    """Return what believes tokens as the settings say."""
    return JwtVerifier(trust, keyring_of(trust.keys))


def keyring_of(keys: PublishedKeys | SharedSecret) -> Keyring:
    match keys:
        case PublishedKeys(url=url):
            fetch = Fetch(url)
            return PublishedKeyring(fetch, host=fetch.host)
        case SharedSecret(secret=secret):
            return SecretKeyring(shared_key(secret))
