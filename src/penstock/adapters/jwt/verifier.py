"""Verify tokens: the key first, then the signature, then the claims.

Recently verified tokens are cached by their digests.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock
from time import monotonic, time

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwa import EdDSAAlgorithm, JWSAlgModel
from joserfc.jws import JWSRegistry
from typing_extensions import override

from penstock.adapters.jwt.jwk import Mark, VerifyingKey, shared_key
from penstock.adapters.jwt.jwks_cache import Keyring, PublishedKeyring, SecretKeyring
from penstock.adapters.jwt.jwks_fetch import Fetch
from penstock.adapters.jwt.token_parser import parse_claims, parse_header
from penstock.domain.auth_claims import (
    MAX_TOKEN_LENGTH,
    Algorithm,
    AuthConfig,
    Principal,
    PublishedKeys,
    SharedSecret,
    VerifiedToken,
    parse_token_header,
    verify_claims,
)
from penstock.errors import Unauthenticated
from penstock.ports.auth import Verifier

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


class JwtVerifier(Verifier):
    """Accepts tokens signed by the keys of one issuer."""

    def __init__(
        self,
        trust: AuthConfig,
        keyring: Keyring,
        *,
        memory: TokenCache | None = None,
        clock: Callable[[], float] = monotonic,
        wall: Callable[[], float] = time,
    ) -> None:
        self._trust = trust
        self._keyring = keyring
        self._cache = TokenCache() if memory is None else memory
        self._clock = clock
        self._wall = wall
        self._registry = Registry(
            algorithms=[*trust.algorithms], strict_check_header=False
        )

    @override
    def cached(self, token: str) -> Principal | None:
        cached = self._cache.find(token)
        if (
            cached is None
            or not cached.is_fresh(now=self._clock(), wall=self._wall())
            or not self._keyring.is_good(cached.mark)
        ):
            return None
        return cached.admitted.principal

    @override
    def verify_locally(self, token: str) -> Principal | None:
        principal = self.cached(token)
        if principal is not None:
            return principal
        keys = self._keyring.find_cached(
            parse_token_header(parse_header(token), self._trust)
        )
        return None if keys is None else self._verify_with(token, keys)

    @override
    def verify(self, token: str) -> Principal:
        principal = self.cached(token)
        if principal is not None:
            return principal
        keys = self._keyring.fitting(
            parse_token_header(parse_header(token), self._trust)
        )
        return self._verify_with(token, keys)

    @override
    def renew(self) -> None:
        self._keyring.renew()

    @override
    def has_keys(self) -> bool:
        return self._keyring.has_keys()

    def _verify_with(self, token: str, keys: Sequence[VerifyingKey]) -> Principal:
        if not keys:
            raise Unauthenticated("the token is signed by a key that is not known")
        key, payload = self._find_signing_key(token, keys)
        verified = verify_claims(parse_claims(payload), self._trust, now=self._wall())
        self._cache.store(token, CachedToken(verified, key.mark, self._clock()))
        return verified.principal

    @override
    def failure(self) -> str | None:
        return self._keyring.failure()

    def _find_signing_key(
        self, token: str, keys: Sequence[VerifyingKey]
    ) -> tuple[VerifyingKey, bytes]:
        """Return the key that signed a token, and the payload."""
        for key in keys:
            try:
                signature = jws.deserialize_compact(
                    token, key.key, registry=self._registry
                )
            except (JoseError, ValueError):
                # the library also refuses invalid headers here
                continue
            return key, signature.payload
        raise Unauthenticated("the signature of the token is invalid")


class LegacyEdDsa(EdDSAAlgorithm):
    """The older name of Ed25519; the library would warn at every token."""

    security_warning = ""


class Registry(JWSRegistry):
    """The library's algorithms, for tokens up to our maximum length."""

    algorithms: dict[str, JWSAlgModel] = {  # noqa: RUF012 (as in the library)
        **JWSRegistry.algorithms,
        Algorithm.EDDSA: LegacyEdDsa(),
    }
    max_header_length = max_payload_length = max_signature_length = MAX_TOKEN_LENGTH


def build_verifier(trust: AuthConfig) -> JwtVerifier:
    """Build the verifier of the settings."""
    return JwtVerifier(trust, build_keyring(trust.keys))


def build_keyring(keys: PublishedKeys | SharedSecret) -> Keyring:
    match keys:
        case PublishedKeys(url=url):
            fetch = Fetch(url)
            return PublishedKeyring(fetch, host=fetch.host)
        case SharedSecret(secret=secret):
            return SecretKeyring(shared_key(secret))
