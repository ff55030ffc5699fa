"""Build the verifier and the signer of tokens."""

from penstock.domain.auth_claims import SharedSecret
from penstock.errors import Misconfigured
from penstock.ports.auth import Signer, Verifier
from penstock.settings import Settings


def verifier_of(settings: Settings) -> Verifier | None:
    """Return the verifier of tokens; None if the API needs no token."""
    if settings.auth is None:
        return None
    from penstock.adapters.jwt import verifier

    return verifier.build_verifier(settings.auth)


def signer_of(settings: Settings) -> Signer:
    """Return the signer of tokens; raises `Misconfigured` without a shared secret."""
    auth = settings.auth
    if auth is None:
        raise Misconfigured(
            f"{settings.path}: there is no [auth], so the API serves only this machine "
            "and needs no token; to sign tokens, declare [auth] with "
            'issuer, audience and secret = "${PENSTOCK_JWT_SECRET}"'
        )
    if not isinstance(auth.keys, SharedSecret):
        raise Misconfigured(
            f"{settings.path}: auth.jwks: only the issuer can sign; get "
            f"a token from {auth.issuer!r} with audience {auth.audience!r} and the "
            "scopes that you need (read, write, operate)"
        )
    from penstock.adapters.jwt.signer import JwtSigner

    return JwtSigner(auth, auth.keys)
