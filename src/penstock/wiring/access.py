"""Who says whose a token is, and who signs one."""

from penstock.domain.access import SharedSecret
from penstock.errors import Misconfigured
from penstock.ports.access import Signer, Verifier
from penstock.settings import Settings


def verifier_of(settings: Settings) -> Verifier | None:
    """Return what says whose a token is; None where everybody here may ask."""
    if settings.auth is None:
        return None
    from penstock.adapters.jwt import verifier

    return verifier.verifier_of(settings.auth)


def signer_of(settings: Settings) -> Signer:
    """Return what signs tokens, if that is ours to do."""
    auth = settings.auth
    if auth is None:
        raise Misconfigured(
            f"{settings.path}: there is no [auth], so the API serves this machine "
            "only, and asks nobody for a token; to sign tokens, declare [auth] with "
            'issuer, audience and secret = "${PENSTOCK_JWT_SECRET}"'
        )
    if not isinstance(auth.keys, SharedSecret):
        raise Misconfigured(
            f"{settings.path}: auth.jwks: only the issuer can sign; ask "
            f"{auth.issuer!r} for a token with audience {auth.audience!r} and the "
            "scopes that you need (read, write, operate)"
        )
    from penstock.adapters.jwt.signer import JwtSigner

    return JwtSigner(auth, auth.keys)
