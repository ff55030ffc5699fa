"""Rules for the header and the claims of a token, and the scopes that it grants.

Signatures are verified elsewhere: the header is checked before a key is looked up, the
claims once the signature is verified. No message repeats a value of the token: its
reader may not be the token's owner.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias, TypeGuard

from penstock.errors import Forbidden, Unauthenticated

# more than any issuer writes, and than most servers accept in a header
MAX_TOKEN_LENGTH = 8 * 1024
# the limit of OpenID Connect
MAX_SUBJECT_LENGTH = 255
# the first of these that a token has, unless the operator configures a claim
SCOPE_CLAIMS = ("scope", "scp", "scopes")
TYPES = frozenset({"jwt", "at+jwt"})

Claims: TypeAlias = Mapping[str, object]


class AccessScope(StrEnum):
    """What a client may do; each route requires one scope."""

    READ = "read"
    WRITE = "write"
    OPERATE = "operate"


# a client that may change rows or run imports may also read
INCLUDED_SCOPES = {
    AccessScope.WRITE: AccessScope.READ,
    AccessScope.OPERATE: AccessScope.READ,
}


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated client, and its scopes including the implied ones."""

    subject: str
    scopes: frozenset[AccessScope]

    def require(self, scope: AccessScope) -> None:
        """Raise `Forbidden` unless the client has a scope."""
        if scope not in self.scopes:
            raise Forbidden(scope.value)


class Algorithm(StrEnum):
    """How a token may be signed."""

    RS256 = "RS256"
    RS384 = "RS384"
    RS512 = "RS512"
    PS256 = "PS256"
    PS384 = "PS384"
    PS512 = "PS512"
    ES256 = "ES256"
    ES384 = "ES384"
    ES512 = "ES512"
    ED25519 = "Ed25519"
    # the older name of the same algorithm, which most issuers still write
    EDDSA = "EdDSA"
    # the only one with a shared secret
    HS256 = "HS256"


# what issuers usually sign with
DEFAULT_ALGORITHMS = (
    Algorithm.RS256,
    Algorithm.PS256,
    Algorithm.ES256,
    Algorithm.ED25519,
    Algorithm.EDDSA,
)


@dataclass(frozen=True, slots=True)
class PublishedKeys:
    """The issuer signs with private keys, and publishes the public ones at a URL."""

    url: str


@dataclass(frozen=True, slots=True)
class SharedSecret:
    """Issuer and API share a secret: every holder can sign."""

    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthConfig:
    """The tokens that are accepted: issuer, keys and required claims."""

    issuer: str
    audience: str
    keys: PublishedKeys | SharedSecret
    algorithms: frozenset[Algorithm]
    # how much the clocks of the issuer and of this machine may differ
    leeway: timedelta = timedelta(seconds=30)
    # the claim with the scopes; None: one of `SCOPE_CLAIMS`
    scope_claim: str | None = None


@dataclass(frozen=True, slots=True)
class TokenHeader:
    """The claimed algorithm and key of a token, not yet verified."""

    algorithm: Algorithm
    kid: str | None


def parse_token_header(header: Mapping[str, object], trust: AuthConfig) -> TokenHeader:
    """Parse a header; raises `Unauthenticated` if it cannot be accepted.

    Keys, or URLs of keys, in the header itself (`jwk`, `jku`, `x5u`, `x5c`) are
    ignored: some issuers write them, and so would a forger.
    """
    # no extension is supported
    if "crit" in header:
        raise Unauthenticated(
            "the token requires an extension (crit), and none is supported"
        )
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or short_type(kind) not in TYPES:
        raise Unauthenticated("the token is of another type (typ) than JWT or at+jwt")
    name = header.get("alg")
    # a list, not a set: the value in a header may not be hashable
    if name not in [*trust.algorithms]:
        raise Unauthenticated(
            "the token is signed by an algorithm (alg) that is not allowed here"
        )
    kid = header.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise Unauthenticated("the token has a key name (kid) that is not text")
    return TokenHeader(Algorithm(str(name)), kid)


def short_type(kind: str) -> str:
    return kind.lower().removeprefix("application/")


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """The client of a verified token, and the Unix time at which the token expires."""

    principal: Principal
    until: float


def verify_claims(claims: Claims, trust: AuthConfig, *, now: float) -> VerifiedToken:
    """Check the claims of a token whose signature is valid; `now` is in seconds.

    Raises `Unauthenticated` with the first violation.
    """
    if claims.get("iss") != trust.issuer:
        raise Unauthenticated("the token is from another issuer (iss)")
    if trust.audience not in audiences(claims):
        raise Unauthenticated("the token is meant for another audience (aud)")
    expires = check_times(claims, now=now, leeway=trust.leeway.total_seconds())
    principal = Principal(subject_of(claims), scopes_of(claims, trust.scope_claim))
    return VerifiedToken(principal, until=expires)


def audiences(claims: Claims) -> list[str]:
    return parse_texts(claims.get("aud"), "aud", split=False)


def check_times(claims: Claims, *, now: float, leeway: float) -> float:
    """Reject a token outside of its validity period; return when it expires."""
    expires = time_of(claims, "exp")
    if expires is None:
        raise Unauthenticated("the token does not say when it expires (exp)")
    # the leeway is added to `now`: a claim may be too large for arithmetic
    if expires <= now - leeway:
        raise Unauthenticated("the token has expired (exp)")
    not_before = time_of(claims, "nbf")
    if not_before is not None and not_before > now + leeway:
        raise Unauthenticated("the token is not valid yet (nbf)")
    issued = time_of(claims, "iat")
    if issued is not None and issued > now + leeway:
        raise Unauthenticated("the token was issued in the future (iat)")
    return expires


def time_of(claims: Claims, name: str) -> float | None:
    value = claims.get(name)
    if value is None or is_time(value):
        return value
    raise Unauthenticated(f"the token has a time ({name}) that is no number")


def is_time(value: object) -> TypeGuard[float]:
    # bool is an int in Python, and a token that expires at NaN would never expire
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def subject_of(claims: Claims) -> str:
    subject = claims.get("sub")
    if not isinstance(subject, str) or not is_valid_subject(subject):
        raise Unauthenticated("the token does not say whose it is (sub)")
    return subject


def is_valid_subject(text: str) -> bool:
    """Return whether a name can be used in a log line and in a key."""
    return 0 < len(text) <= MAX_SUBJECT_LENGTH and text.isprintable()


def scopes_of(claims: Claims, claim: str | None) -> frozenset[AccessScope]:
    """Return the scopes that the API knows, including the implied ones."""
    names = SCOPE_CLAIMS if claim is None else (claim,)
    name = next((name for name in names if claims.get(name) is not None), None)
    if name is None:
        return frozenset()
    return with_included_scopes(
        AccessScope(text)
        for text in parse_texts(claims[name], name)
        if text in {*AccessScope}
    )


def with_included_scopes(scopes: Iterable[AccessScope]) -> frozenset[AccessScope]:
    named = frozenset(scopes)
    return named | {
        INCLUDED_SCOPES[scope] for scope in named if scope in INCLUDED_SCOPES
    }


def parse_texts(value: object, name: str, *, split: bool = True) -> list[str]:
    """Parse one text, or a list of them; issuers write either."""
    if isinstance(value, str):
        return value.split() if split else [value]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise Unauthenticated(
        f"the token has a claim ({name}) that is neither text nor list"
    )
