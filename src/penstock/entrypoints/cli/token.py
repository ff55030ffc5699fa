"""Sign a token for a client of the API: `token`."""

from datetime import timedelta
from typing import Annotated

import typer

from penstock.domain.access import LONGEST_SUBJECT, Scope, is_subject
from penstock.entrypoints.cli.shared import (
    DEFAULT_CONFIG,
    AsJson,
    Config,
    print_json,
    read_settings,
)
from penstock.errors import Misconfigured
from penstock.settings.problems import Unfit
from penstock.settings.units import parse_positive_duration
from penstock.wiring.access import signer_of

# a token cannot be taken back, but by another secret
LONGEST = timedelta(days=366)


def token(
    scope: Annotated[
        list[Scope],
        typer.Option(
            "--scope",
            help="What its bearer may do; give it again for more. "
            "write and operate include read.",
        ),
    ],
    subject: Annotated[
        str, typer.Option("--subject", help="Whose token it is; limits count by it.")
    ] = "penstock",
    lifetime: Annotated[
        str, typer.Option("--for", help="How long it is valid, such as 15m or 30d.")
    ] = "1h",
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Sign a token with the secret of [auth], and print it."""
    lasts = read_lifetime(lifetime)
    if not is_subject(subject):
        told = f"is empty, longer than {LONGEST_SUBJECT} or not printable"
        raise Misconfigured(f"--subject: {told}")
    scopes = [each for each in Scope if each in scope]
    signed = signer_of(read_settings(config)).sign(subject, scopes, lifetime=lasts)
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
    except Unfit as unfit:
        raise Misconfigured(f"--for: {unfit}") from None
    if lifetime > LONGEST:
        raise Misconfigured(f"--for: {text!r} is longer than {LONGEST.days}d")
    return lifetime
