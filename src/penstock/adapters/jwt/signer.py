"""Sign tokens with a shared secret."""

import math
import secrets
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from time import time

from joserfc import jwt
from typing_extensions import override

from penstock.adapters.jwt.jwk import shared_key
from penstock.domain.auth_claims import (
    SCOPE_CLAIMS,
    AccessScope,
    Algorithm,
    AuthConfig,
    SharedSecret,
)
from penstock.ports.auth import Signed, Signer


class JwtSigner(Signer):
    """Signs tokens that the verifier with the same settings accepts."""

    def __init__(
        self, trust: AuthConfig, keys: SharedSecret, *, wall: Callable[[], float] = time
    ) -> None:
        self._trust = trust
        self._key = shared_key(keys.secret).key
        self._wall = wall

    @override
    def sign(
        self, subject: str, scopes: Iterable[AccessScope], *, lifetime: timedelta
    ) -> Signed:
        # whole seconds, as most readers expect them
        now = int(self._wall())
        expires_at = now + math.ceil(lifetime.total_seconds())
        claims = {
            "iss": self._trust.issuer,
            "aud": self._trust.audience,
            "sub": subject,
            "iat": now,
            "exp": expires_at,
            "jti": secrets.token_hex(8),
            self._trust.scope_claim or SCOPE_CLAIMS[0]: " ".join(scopes),
        }
        algorithm = Algorithm.HS256.value
        token = jwt.encode({"alg": algorithm}, claims, self._key, [algorithm])
        return Signed(token=token, expires_at=datetime.fromtimestamp(expires_at, UTC))
