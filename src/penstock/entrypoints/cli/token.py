"""Sign a token for a client of the API: `token`."""

from datetime import timedelta
from typing import Annotated

import typer

from penstock.domain.auth_claims import (
    MAX_SUBJECT_LENGTH,
    AccessScope,
    is_valid_subject,
)
from penstock.entrypoints.cli.common import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    print_json,
    read_settings,
)
from penstock.errors import Misconfigured
from penstock.settings.units import parse_positive_duration
from penstock.settings.validation_errors import InvalidValue
from penstock.wiring.auth import signer_of

# a token can be revoked only by changing the secret
MAX_LIFETIME = timedelta(days=366)


def token(
    scope: Annotated[
        list[AccessScope],
        typer.Option(
            "--scope",
            help="What the bearer may do; may be repeated. "
            "write and operate include read.",
        ),
    ],
    subject: Annotated[
        str,
        typer.Option("--subject", help="The client; rate limits apply per subject."),
    ] = "penstock",
    lifetime: Annotated[
        str, typer.Option("--for", help="How long it is valid, such as 15m or 30d.")
    ] = "1h",
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Sign a token with the secret of [auth], and print it."""
    duration = read_lifetime(lifetime)
    if not is_valid_subject(subject):
        raise Misconfigured(
            f"--subject: is empty, longer than {MAX_SUBJECT_LENGTH} or not printable"
        )
    scopes = [option for option in AccessScope if option in scope]
    signed = signer_of(read_settings(config)).sign(subject, scopes, lifetime=duration)
    if as_json:
        print_json(
            {
                "token": signed.token,
                "expires_at": signed.expires_at,
                "subject": subject,
                "scopes": scopes,
            }
        )
    else:
        typer.echo(signed.token)


def read_lifetime(text: str) -> timedelta:
    try:
        lifetime = parse_positive_duration(text)
    except InvalidValue as error:
        raise Misconfigured(f"--for: {error}") from None
    if lifetime > MAX_LIFETIME:
        raise Misconfigured(f"--for: {text!r} is longer than {MAX_LIFETIME.days}d")
    return lifetime
