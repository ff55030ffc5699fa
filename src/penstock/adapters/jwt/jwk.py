"""The keys that verify tokens; the type of a key decides its algorithms."""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, OctKey, OKPKey, RSAKey

from penstock.domain.auth_claims import Algorithm

# a set has a few; for a token without a key id, each that fits is tried
MAX_KEYS = 100
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 8192

RSA = frozenset(
    {
        Algorithm.RS256,
        Algorithm.RS384,
        Algorithm.RS512,
        Algorithm.PS256,
        Algorithm.PS384,
        Algorithm.PS512,
    }
)
EC = {
    "P-256": frozenset({Algorithm.ES256}),
    "P-384": frozenset({Algorithm.ES384}),
    "P-521": frozenset({Algorithm.ES512}),
}
EDWARDS = frozenset({Algorithm.ED25519, Algorithm.EDDSA})
SHARED = frozenset({Algorithm.HS256})

# the members that a public key does not have
PRIVATE_MEMBERS = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})

# the identity of a key: its id and its thumbprint
Mark: TypeAlias = tuple[str | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyingKey:
    """A key with the algorithms that it may verify."""

    kid: str | None
    algorithms: frozenset[Algorithm]
    mark: Mark
    key: Key = field(repr=False)


def shared_key(secret: str) -> VerifyingKey:
    key = OctKey.import_key(secret.encode())
    mark = (None, key.thumbprint())
    return VerifyingKey(kid=None, algorithms=SHARED, mark=mark, key=key)


def public_keys(document: Mapping[str, object]) -> tuple[VerifyingKey, ...]:
    """Return the usable keys of a set; all others are skipped silently.

    Raises `ValueError` if it is not a key set. Issuers list keys for encryption and of
    future types beside those that sign.
    """
    listed = document.get("keys")
    if not isinstance(listed, list):
        raise ValueError("is not a key set")  # noqa: TRY004 (one type for all callers)
    return tuple(usable_keys(listed[:MAX_KEYS]))


def usable_keys(listed: list[object]) -> Iterator[VerifyingKey]:
    for jwk in listed:
        try:
            if isinstance(jwk, dict) and may_verify(jwk):
                yield public_key(jwk)
        except (JoseError, ValueError, TypeError, KeyError):
            # one unreadable key must not disable the others
            continue


def may_verify(jwk: Mapping[str, object]) -> bool:
    """Return whether a key is public, and meant for signatures."""
    operations = jwk.get("key_ops", ["verify"])
    return (
        PRIVATE_MEMBERS.isdisjoint(jwk)
        and jwk.get("use", "sig") == "sig"
        and isinstance(operations, list)
        and "verify" in operations
    )


def public_key(jwk: Mapping[str, object]) -> VerifyingKey:
    """Parse one key; raises an error of Python or of the library if it is unusable."""
    kid = jwk.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise ValueError("has an id that is not a string")
    key, possible = import_key(jwk)
    algorithms = restrict_algorithms(possible, jwk.get("alg"))
    if not algorithms:
        raise ValueError("is for an algorithm that it does not fit")
    mark = (kid, key.thumbprint())
    return VerifyingKey(kid=kid, algorithms=algorithms, mark=mark, key=key)


def import_key(jwk: Mapping[str, object]) -> tuple[Key, frozenset[Algorithm]]:
    """Return a key of a known type, and all algorithms of that type."""
    kind, curve = jwk.get("kty"), str(jwk.get("crv"))
    # only the numbers: the library need not check or store anything else
    if kind == "RSA":
        numbers = string_members(jwk, "n", "e")
        # the library would only warn of a weak one
        if not MIN_RSA_BITS <= bit_length(numbers["n"]) <= MAX_RSA_BITS:
            raise ValueError("is too small or too large")
        return RSAKey.import_key({"kty": "RSA", **numbers}), RSA
    if kind == "EC" and curve in EC:
        numbers = string_members(jwk, "crv", "x", "y")
        return ECKey.import_key({"kty": "EC", **numbers}), EC[curve]
    if kind == "OKP" and curve == "Ed25519":
        numbers = string_members(jwk, "crv", "x")
        return OKPKey.import_key({"kty": "OKP", **numbers}), EDWARDS
    raise ValueError("is of an unknown type")


def restrict_algorithms(
    possible: frozenset[Algorithm], algorithm: object
) -> frozenset[Algorithm]:
    """Restrict a key to its declared algorithm; Ed25519 has two names."""
    if algorithm is None or (possible is EDWARDS and algorithm in EDWARDS):
        return possible
    return frozenset(name for name in possible if name == algorithm)


def string_members(
    jwk: Mapping[str, object], *names: str
) -> dict[str, str | list[str]]:
    return {name: text for name in names if isinstance(text := jwk[name], str)}


def bit_length(number: str | list[str]) -> int:
    raw = base64.urlsafe_b64decode(f"{number}===")
    return int.from_bytes(raw, "big").bit_length()
