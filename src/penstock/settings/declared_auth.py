"""Whose tokens the API believes, as it is written."""

from collections.abc import Iterator
from datetime import timedelta
from ipaddress import ip_address
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

from penstock.domain.access import (
    USUAL_ALGORITHMS,
    Algorithm,
    PublishedKeys,
    SharedSecret,
    Trust,
)
from penstock.settings.declared import Declared, DurationOrNone, Text, as_list
from penstock.settings.problems import (
    KeyPath,
    Problem,
    Unfit,
    choice_sentence,
)

# as long as what HS256 makes of it: a shorter one is guessed sooner than the rest
SHORTEST_SECRET = 32
LONGEST_LEEWAY = timedelta(minutes=5)
MADE_SO = "make one: openssl rand -base64 48"
JWKS = "https://id.example.org/jwks.json"
# how keys begin that are no secret, or not meant to be shared
KEY_FORMS = ("-----BEGIN ", "---- BEGIN ", "ssh-", "ecdsa-sha2-")


def as_jwks(value: str) -> str:
    """Accept where keys may be fetched; the message must not show it."""
    wrong = f"is not an address such as '{JWKS}'"
    try:
        split = urlsplit(value)
        port_is_valid = split.port != 0
    except ValueError:
        raise Unfit(wrong) from None
    host = split.hostname
    if not host or not port_is_valid or not value.isprintable() or " " in value:
        raise Unfit(wrong)
    if "@" in split.netloc or split.fragment:
        raise Unfit("must hold neither a password nor a '#'")
    if split.scheme == "http" and not is_loopback(host):
        raise Unfit(
            "must begin with https://: whoever can change the keys on their way can "
            "sign; http:// is for this machine only, as http://127.0.0.1:8080/"
        )
    if split.scheme not in {"http", "https"}:
        raise Unfit("must begin with https://")
    return value


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def as_secret(value: str) -> str:
    # the variable of a secret that was read from a file often ends in a newline
    if not value.isprintable():
        raise Unfit("holds a line break or another control character")
    if any(form in value for form in KEY_FORMS):
        raise Unfit(f"is a key of a pair, not a secret to be shared; {MADE_SO}")
    if len(value.encode()) < SHORTEST_SECRET:
        raise Unfit(
            f"is shorter than {SHORTEST_SECRET} bytes: HS256 is no stronger than its "
            f"secret; {MADE_SO}"
        )
    return value


def as_algorithm(value: object) -> Algorithm:
    known = [each.value for each in Algorithm if each is not Algorithm.HS256]
    if value == Algorithm.HS256:
        raise Unfit("HS256 needs no naming: it goes with secret, and never with jwks")
    if value not in known:
        raise Unfit(choice_sentence(value, known))
    return Algorithm(str(value))


def as_label(value: str) -> str:
    if not value.isprintable():
        raise Unfit("holds a line break or another control character")
    return value


Label: TypeAlias = Annotated[Text, AfterValidator(as_label)]
AnyAlgorithm: TypeAlias = Annotated[Algorithm, PlainValidator(as_algorithm)]


class AccessTable(Declared):
    issuer: Label
    audience: Label
    jwks: Annotated[Text, AfterValidator(as_jwks)] | None = None
    secret: Annotated[Text, AfterValidator(as_secret)] | None = None
    algorithms: Annotated[
        list[AnyAlgorithm], BeforeValidator(as_list), Field(min_length=1)
    ] = Field(default_factory=lambda: [*USUAL_ALGORITHMS])
    leeway: DurationOrNone = timedelta(seconds=30)
    scope_claim: Label | None = None

    def rules(self) -> Iterator[Problem]:
        if self.jwks is not None and self.secret is not None:
            told = "and jwks exclude each other; keep jwks if the issuer publishes keys"
            yield ("secret",), told
        if self.jwks is None and self.secret is None:
            told = "needs jwks, the address of the issuer's keys, or secret, for HS256"
            yield (), told
        if self.jwks is None and "algorithms" in self.model_fields_set:
            yield ("algorithms",), "are for jwks; a secret goes with HS256 only"
        if self.leeway > LONGEST_LEEWAY:
            told = "is longer than 5m, and a token that has expired would go on so long"
            yield ("leeway",), told


def built_trust(table: AccessTable) -> Trust:
    # one of both is there, or the table would have been refused
    keys: PublishedKeys | SharedSecret
    if table.jwks is not None:
        keys, algorithms = PublishedKeys(table.jwks), table.algorithms
    else:
        keys, algorithms = SharedSecret(table.secret or ""), [Algorithm.HS256]
    return Trust(
        issuer=table.issuer,
        audience=table.audience,
        keys=keys,
        algorithms=frozenset(algorithms),
        leeway=table.leeway,
        scope_claim=table.scope_claim,
    )


def auth_secrets(auth: object) -> Iterator[tuple[KeyPath, str]]:
    """Yield the secret of a table as written, whether it could be read or not."""
    secret = auth.get("secret") if isinstance(auth, dict) else None
    if isinstance(secret, str) and secret:
        yield ("auth", "secret"), secret
