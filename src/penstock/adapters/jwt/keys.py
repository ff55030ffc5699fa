"""The keys by which tokens are verified; their kind says what they can verify."""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, OctKey, OKPKey, RSAKey

from penstock.domain.access import Algorithm

# a set has a few; each that fits a token without a name for its key is tried
MOST_KEYS = 100
SMALLEST_RSA, LARGEST_RSA = 2048, 8192

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

# what makes a key more than the public half of a pair
PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})

# which key it is: its name and its numbers
Mark: TypeAlias = tuple[str | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyingKey:
    """A key with the algorithms that it is made for."""

    kid: str | None
    algorithms: frozenset[Algorithm]
    mark: Mark
    key: Key = field(repr=False)


def shared_key(secret: str) -> VerifyingKey:
    key = OctKey.import_key(secret.encode())
    mark = (None, key.thumbprint())
    return VerifyingKey(kid=None, algorithms=SHARED, mark=mark, key=key)


def public_keys(document: Mapping[str, object]) -> tuple[VerifyingKey, ...]:
    """Return the usable keys of a set; all others are left out without a word.

    Raises `ValueError` if it is no set of keys. Issuers list keys for encryption, and
    of kinds to come, beside those that sign.
    """
    listed = document.get("keys")
    if not isinstance(listed, list):
        raise ValueError("is no set of keys")  # noqa: TRY004 (one kind for all callers)
    return tuple(usable(listed[:MOST_KEYS]))


def usable(listed: list[object]) -> Iterator[VerifyingKey]:
    for each in listed:
        try:
            if isinstance(each, dict) and may_verify(each):
                yield public_key(each)
        except (JoseError, ValueError, TypeError, KeyError):
            # one key that cannot be read is no reason to have none
            continue


def may_verify(jwk: Mapping[str, object]) -> bool:
    """Say whether a key is public, and meant for signatures."""
    operations = jwk.get("key_ops", ["verify"])
    return (
        PRIVATE.isdisjoint(jwk)
        and jwk.get("use", "sig") == "sig"
        and isinstance(operations, list)
        and "verify" in operations
    )


def public_key(jwk: Mapping[str, object]) -> VerifyingKey:
    """Read one key; raises an error of Python or of the library if it is unfit."""
    kid = jwk.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise ValueError("has a name that is not text")
    key, fitting = imported(jwk)
    algorithms = narrowed(fitting, jwk.get("alg"))
    if not algorithms:
        raise ValueError("is for an algorithm that it does not fit")
    mark = (kid, key.thumbprint())
    return VerifyingKey(kid=kid, algorithms=algorithms, mark=mark, key=key)


def imported(jwk: Mapping[str, object]) -> tuple[Key, frozenset[Algorithm]]:
    """Return a key of a kind that we know, and all that its kind can verify."""
    kind, curve = jwk.get("kty"), str(jwk.get("crv"))
    # only the numbers: the library need not judge, or keep, anything else
    if kind == "RSA":
        numbers = texts(jwk, "n", "e")
        # the library would only warn of a weak one
        if not SMALLEST_RSA <= bits(numbers["n"]) <= LARGEST_RSA:
            raise ValueError("is too small or too large")
        return RSAKey.import_key({"kty": "RSA", **numbers}), RSA
    if kind == "EC" and curve in EC:
        numbers = texts(jwk, "crv", "x", "y")
        return ECKey.import_key({"kty": "EC", **numbers}), EC[curve]
    if kind == "OKP" and curve == "Ed25519":
        numbers = texts(jwk, "crv", "x")
        return OKPKey.import_key({"kty": "OKP", **numbers}), EDWARDS
    raise ValueError("is of a kind that is not known")


def narrowed(fitting: frozenset[Algorithm], named: object) -> frozenset[Algorithm]:
    """Leave what the issuer says a key is for; that of Edwards keys has two names."""
    if named is None or (fitting is EDWARDS and named in EDWARDS):
        return fitting
    return frozenset(each for each in fitting if each == named)


def texts(jwk: Mapping[str, object], *names: str) -> dict[str, str | list[str]]:
    return {name: text for name in names if isinstance(text := jwk[name], str)}


def bits(number: str | list[str]) -> int:
    raw = base64.urlsafe_b64decode(f"{number}===")
    return int.from_bytes(raw, "big").bit_length()
