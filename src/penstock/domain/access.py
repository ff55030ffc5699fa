"""Who may do what: how a token is read, and what is refused of it.

Signatures are checked elsewhere. Here stands what a header must say before a key is
looked for, and what the claims mean once a key has shown that the issuer wrote them.
No sentence repeats a word of the token: whoever reads it may not be its owner.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias, TypeGuard

from penstock.errors import Forbidden, Unauthenticated

# longer than any issuer writes one, and than most servers accept a header
LONGEST_TOKEN = 8 * 1024
# what OpenID Connect allows
LONGEST_SUBJECT = 255
# without a claim of the operator's choice, the first of these that a token has
SCOPE_CLAIMS = ("scope", "scp", "scopes")
TYPES = frozenset({"jwt", "at+jwt"})

Claims: TypeAlias = Mapping[str, object]


class Scope(StrEnum):
    """What a client may do; a route demands one of them."""

    READ = "read"
    WRITE = "write"
    OPERATE = "operate"


# whoever may change rows, or run imports, may see what came of it
INCLUDED = {Scope.WRITE: Scope.READ, Scope.OPERATE: Scope.READ}


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks, and what it may do, with all that its scopes include."""

    subject: str
    scopes: frozenset[Scope]

    def demand(self, scope: Scope) -> None:
        """Let those pass that have a scope; raises `Forbidden` for all others."""
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
    # the older name of the same, which most issuers still write
    EDDSA = "EdDSA"
    # the only one whose key is a secret that both sides know
    HS256 = "HS256"


# what issuers sign with unless somebody tells them otherwise
USUAL_ALGORITHMS = (
    Algorithm.RS256,
    Algorithm.PS256,
    Algorithm.ES256,
    Algorithm.ED25519,
    Algorithm.EDDSA,
)


@dataclass(frozen=True, slots=True)
class PublishedKeys:
    """The issuer signs with keys that nobody else has, and publishes their halves."""

    url: str


@dataclass(frozen=True, slots=True)
class SharedSecret:
    """Whoever knows the secret can sign."""

    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Whose tokens are believed, and what must stand in them."""

    issuer: str
    audience: str
    keys: PublishedKeys | SharedSecret
    algorithms: frozenset[Algorithm]
    # how far the clocks of the issuer and of this machine may differ
    leeway: timedelta = timedelta(seconds=30)
    # where the scopes stand; None: in one of `SCOPE_CLAIMS`
    scope_claim: str | None = None


@dataclass(frozen=True, slots=True)
class Heading:
    """What a token says of its signature; the keys decide whether it is so."""

    algorithm: Algorithm
    kid: str | None


def heading_of(header: Mapping[str, object], trust: Trust) -> Heading:
    """Read a header; raises `Unauthenticated` if no key need be looked for.

    Keys, or addresses of keys, that stand in the header itself (`jwk`, `jku`, `x5u`,
    `x5c`) are not looked at: some issuers write them, and so would a forger.
    """
    # we know no extension, so none that must be understood is
    if "crit" in header:
        raise Unauthenticated(
            "the token demands an extension (crit), and none is known"
        )
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or short_type(kind) not in TYPES:
        raise Unauthenticated("the token is of another type (typ) than JWT or at+jwt")
    name = header.get("alg")
    # a list, not a set: what stands in a header may have no hash
    if name not in [*trust.algorithms]:
        raise Unauthenticated(
            "the token is signed by an algorithm (alg) that is not allowed here"
        )
    kid = header.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise Unauthenticated("the token names its key (kid) by what is not text")
    return Heading(Algorithm(str(name)), kid)


def short_type(kind: str) -> str:
    return kind.lower().removeprefix("application/")


@dataclass(frozen=True, slots=True)
class Admitted:
    """A token that is believed, and until when by the clock on the wall."""

    principal: Principal
    until: float


def admitted(claims: Claims, trust: Trust, *, now: float) -> Admitted:
    """Read the claims of a token whose signature is good; `now` is in seconds.

    Raises `Unauthenticated` with the first thing that is not as it must be.
    """
    if claims.get("iss") != trust.issuer:
        raise Unauthenticated("the token is from another issuer (iss)")
    if trust.audience not in audiences(claims):
        raise Unauthenticated("the token is meant for another audience (aud)")
    ends = check_times(claims, now=now, leeway=trust.leeway.total_seconds())
    principal = Principal(subject_of(claims), scopes_of(claims, trust.scope_claim))
    return Admitted(principal, until=ends)


def audiences(claims: Claims) -> list[str]:
    return texts_of(claims.get("aud"), "aud", split=False)


def check_times(claims: Claims, *, now: float, leeway: float) -> float:
    """Refuse a token before and after its time; return when it ends."""
    ends = time_of(claims, "exp")
    if ends is None:
        raise Unauthenticated("the token does not say when it ends (exp)")
    # the sums are made on our side: a claim may be too large for them
    if ends <= now - leeway:
        raise Unauthenticated("the token has expired (exp)")
    begins = time_of(claims, "nbf")
    if begins is not None and begins > now + leeway:
        raise Unauthenticated("the token is not valid yet (nbf)")
    issued = time_of(claims, "iat")
    if issued is not None and issued > now + leeway:
        raise Unauthenticated("the token was issued in the future (iat)")
    return ends


def time_of(claims: Claims, name: str) -> float | None:
    value = claims.get(name)
    if value is None or is_time(value):
        return value
    raise Unauthenticated(f"the token has a time ({name}) that is no number")


def is_time(value: object) -> TypeGuard[float]:
    # true is a number to Python, and a token that ends at NaN would never end
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def subject_of(claims: Claims) -> str:
    subject = claims.get("sub")
    if not isinstance(subject, str) or not is_subject(subject):
        raise Unauthenticated("the token does not say whose it is (sub)")
    return subject


def is_subject(text: str) -> bool:
    """Say whether a name can stand in a log line and a key."""
    return 0 < len(text) <= LONGEST_SUBJECT and text.isprintable()


def scopes_of(claims: Claims, claim: str | None) -> frozenset[Scope]:
    """Return the scopes that we know, with all that they include."""
    names = SCOPE_CLAIMS if claim is None else (claim,)
    name = next((each for each in names if claims.get(each) is not None), None)
    if name is None:
        return frozenset()
    return whole(
        Scope(each) for each in texts_of(claims[name], name) if each in {*Scope}
    )


def whole(scopes: Iterable[Scope]) -> frozenset[Scope]:
    named = frozenset(scopes)
    return named | {INCLUDED[each] for each in named if each in INCLUDED}


def texts_of(value: object, name: str, *, split: bool = True) -> list[str]:
    """Read one text, or a list of them; issuers write either."""
    if isinstance(value, str):
        return value.split() if split else [value]
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    raise Unauthenticated(
        f"the token has a claim ({name}) that is neither text nor list"
    )
