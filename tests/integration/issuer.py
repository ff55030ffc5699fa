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

from penstock.adapters.jwt.fetch import Fetch
from penstock.adapters.jwt.keyring import PublishedKeyring, SecretKeyring
from penstock.adapters.jwt.keys import shared_key
from penstock.adapters.jwt.memory import Memory
from penstock.adapters.jwt.verifier import JwtVerifier
from penstock.domain.access import (
    Algorithm,
    Principal,
    PublishedKeys,
    Scope,
    SharedSecret,
    Trust,
)
from penstock.errors import KeysUnavailable, Unauthenticated
from tests.integration.scripted_server import Asked, Reply, ScriptedServer, json_reply

ISSUER, AUDIENCE = "https://id.example.org/", "penstock"
SECRET = "canary-7c1f-a-secret-that-nobody-may-ever-see"
ANN = Principal("ann", frozenset({Scope.READ, Scope.WRITE}))
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
    told = {**key.as_dict(private=False), **changes}
    return {name: value for name, value in told.items() if value is not None}


def claims(**changes: object) -> dict[str, object]:
    now = time.time()
    told = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ann",
        "iat": now,
        "exp": now + 300,
        "scope": "write",
        **changes,
    }
    return {name: value for name, value in told.items() if value is not None}


def signed(
    key: Key, algorithm: str = "RS256", *, header: dict[str, Any] | None = None, **said
) -> str:
    """Sign claims; a header that is given replaces the name of the key."""
    named = {"kid": key.kid} if header is None else header
    return written({"alg": algorithm, **named}, claims(**said), key, algorithm)


def written(
    header: dict[str, Any] | str, told: dict[str, Any] | str, key: Key, algorithm: str
) -> str:
    """Write a token by hand, so that nothing refuses what a forger would write."""
    signing = f"{encoded(header)}.{encoded(told)}"
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

    def answer(self, asked: Asked) -> Reply:
        if asked.path != "/jwks":
            # whoever asks elsewhere has followed a forger
            return json_reply({"keys": [public(rsa_key("evil"))]})
        return json_reply({"keys": self.listed})

    @property
    def url(self) -> str:
        return f"{self.server.url}/jwks"

    @property
    def fetches(self) -> int:
        return len([each for each in self.server.asked if each.path == "/jwks"])

    def lists(self, *keys: Key) -> None:
        self.listed = [public(each) for each in keys]

    def trust(self) -> Trust:
        return Trust(
            issuer=ISSUER,
            audience=AUDIENCE,
            keys=PublishedKeys(self.url),
            algorithms=ASYMMETRIC,
        )


@dataclass
class Desk:
    """A verifier with all that a test may turn."""

    verifier: JwtVerifier
    clock: Clock
    memory: Memory

    def refusal(self, token: str) -> str:
        with pytest.raises(Unauthenticated) as caught:
            self.verifier.verify(token)
        told = str(caught.value)
        # a message never repeats anything of the token
        for part in token.split("."):
            assert len(part) < 8 or part not in told
        return told


def desk_of(issuer: Issuer, trust: Trust | None = None) -> Desk:
    clock, memory = Clock(), Memory()
    fetch = Fetch(issuer.url)
    verifier = JwtVerifier(
        trust or issuer.trust(),
        PublishedKeyring(fetch, host=fetch.host, clock=clock.monotonic),
        memory=memory,
        clock=clock.monotonic,
        wall=clock.wall,
    )
    return Desk(verifier, clock, memory)


def secret_desk(trust: Trust | None = None) -> Desk:
    clock, memory = Clock(), Memory()
    verifier = JwtVerifier(
        trust or secret_trust(),
        SecretKeyring(shared_key(SECRET)),
        memory=memory,
        clock=clock.monotonic,
        wall=clock.wall,
    )
    return Desk(verifier, clock, memory)


def secret_trust() -> Trust:
    return Trust(
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


def mac(header: dict[str, Any], told: dict[str, Any], secret: bytes) -> str:
    signing = f"{encoded(header)}.{encoded(told)}"
    return f"{signing}.{b64(hmac.digest(secret, signing.encode(), hashlib.sha256))}"


def together(number: int, act: Callable[[int], object]) -> list[object]:
    """Let threads act at the same moment; return what each got, or its error."""
    barrier = threading.Barrier(number)

    def one(index: int) -> object:
        barrier.wait()
        try:
            return act(index)
        except (KeysUnavailable, Unauthenticated) as error:
            return type(error)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(one, range(number)))
