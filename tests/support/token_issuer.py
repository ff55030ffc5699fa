"""An issuer of tokens: a real server on loopback that counts who asks for keys."""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from penstock.adapters.jwt.jwk import shared_key
from penstock.adapters.jwt.jwks_cache import PublishedKeyring, SecretKeyring
from penstock.adapters.jwt.jwks_fetch import Fetch
from penstock.adapters.jwt.verifier import JwtVerifier, TokenCache
from penstock.domain.auth_claims import (
    AccessScope,
    Algorithm,
    AuthConfig,
    Principal,
    PublishedKeys,
    SharedSecret,
)
from penstock.errors import JwksUnavailable, Unauthenticated
from tests.support.scripted_server import (
    ReceivedRequest,
    Reply,
    ScriptedServer,
    json_reply,
)

ISSUER, AUDIENCE = "https://id.example.org/", "penstock"
SECRET = "canary-7c1f-a-secret-that-nobody-may-ever-see"
ANN = Principal("ann", frozenset({AccessScope.READ, AccessScope.WRITE}))
ASYMMETRIC = frozenset({*Algorithm}) - {Algorithm.HS256}


@cache
def rsa_key(name: str, size: int = 2048) -> RSAKey:
    raw = rsa.generate_private_key(public_exponent=65_537, key_size=size)
    return RSAKey(raw, raw, {"kid": name})


@cache
def ec_key(name: str, curve: str = "P-256") -> ECKey:
    return ECKey.generate_key(curve, {"kid": name})


@cache
def edwards_key(name: str, curve: Any = "Ed25519") -> OKPKey:
    return OKPKey.generate_key(curve, {"kid": name})


def public(key: Key, **changes: Any) -> dict[str, Any]:
    result = {**key.as_dict(private=False), **changes}
    return {name: value for name, value in result.items() if value is not None}


def claims(**changes: object) -> dict[str, object]:
    now = time.time()
    result = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ann",
        "iat": now,
        "exp": now + 300,
        "scope": "write",
        **changes,
    }
    return {name: value for name, value in result.items() if value is not None}


def signed(
    key: Key, algorithm: str = "RS256", *, header: dict[str, Any] | None = None, **said
) -> str:
    """Sign claims; a header that is given replaces the name of the key."""
    named = {"kid": key.kid} if header is None else header
    return written({"alg": algorithm, **named}, claims(**said), key, algorithm)


def written(
    header: dict[str, Any] | str, result: dict[str, Any] | str, key: Key, algorithm: str
) -> str:
    """Write a token by hand, so that nothing refuses what a forger would write."""
    signing = f"{encoded(header)}.{encoded(result)}"
    made = JWSRegistry.algorithms[algorithm].sign(signing.encode(), key)
    return f"{signing}.{b64(made)}"


def encoded(part: dict[str, Any] | str) -> str:
    text = part if isinstance(part, str) else json.dumps(part)
    return b64(text.encode())


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


class Clock:
    """Time as a test lets it pass, for both clocks."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.turned_back = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.passed

    def wall(self) -> float:
        return time.time() + self.passed - self.turned_back


class Issuer:
    """Publishes keys on a real server."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.listed: list[Any] = [public(rsa_key("one"))]
        server.answers = self.answer

    def answer(self, request: ReceivedRequest) -> Reply:
        if request.path != "/jwks":
            # whoever asks elsewhere has followed a forger
            return json_reply({"keys": [public(rsa_key("evil"))]})
        return json_reply({"keys": self.listed})

    @property
    def url(self) -> str:
        return f"{self.server.url}/jwks"

    @property
    def fetches(self) -> int:
        return len([each for each in self.server.requests if each.path == "/jwks"])

    def lists(self, *keys: Key) -> None:
        self.listed = [public(each) for each in keys]

    def trust(self) -> AuthConfig:
        return AuthConfig(
            issuer=ISSUER,
            audience=AUDIENCE,
            keys=PublishedKeys(self.url),
            algorithms=ASYMMETRIC,
        )


@dataclass
class AuthSetup:
    """A verifier with all that a test may turn."""

    verifier: JwtVerifier
    clock: Clock
    memory: TokenCache

    def refusal(self, token: str) -> str:
        with pytest.raises(Unauthenticated) as caught:
            self.verifier.verify(token)
        text = str(caught.value)
        # a message never repeats anything of the token
        for part in token.split("."):
            assert len(part) < 8 or part not in text
        return text


def auth_setup(issuer: Issuer, trust: AuthConfig | None = None) -> AuthSetup:
    clock, memory = Clock(), TokenCache()
    fetch = Fetch(issuer.url)
    verifier = JwtVerifier(
        trust or issuer.trust(),
        PublishedKeyring(fetch, host=fetch.host, clock=clock.monotonic),
        memory=memory,
        clock=clock.monotonic,
        wall=clock.wall,
    )
    return AuthSetup(verifier, clock, memory)


def secret_auth_setup(trust: AuthConfig | None = None) -> AuthSetup:
    clock, memory = Clock(), TokenCache()
    verifier = JwtVerifier(
        trust or secret_trust(),
        SecretKeyring(shared_key(SECRET)),
        memory=memory,
        clock=clock.monotonic,
        wall=clock.wall,
    )
    return AuthSetup(verifier, clock, memory)


def secret_trust() -> AuthConfig:
    return AuthConfig(
        issuer=ISSUER,
        audience=AUDIENCE,
        keys=SharedSecret(SECRET),
        algorithms=frozenset({Algorithm.HS256}),
    )


def eventually(is_so: Callable[[], bool], seconds: float = 10) -> None:
    ends = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < ends, "it did not become so in time"
        time.sleep(0.005)


def mac(header: dict[str, Any], result: dict[str, Any], secret: bytes) -> str:
    signing = f"{encoded(header)}.{encoded(result)}"
    return f"{signing}.{b64(hmac.digest(secret, signing.encode(), hashlib.sha256))}"


def together(number: int, act: Callable[[int], object]) -> list[object]:
    """Let threads act at the same moment; return what each got, or its error."""
    barrier = threading.Barrier(number)

    def one(index: int) -> object:
        barrier.wait()
        try:
            return act(index)
        except (JwksUnavailable, Unauthenticated) as error:
            return type(error)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(one, range(number)))
