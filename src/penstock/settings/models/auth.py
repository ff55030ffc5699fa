"""The [auth] table: which tokens the API accepts."""

from collections.abc import Iterator
from datetime import timedelta
from ipaddress import ip_address
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

from penstock.domain.auth_claims import (
    DEFAULT_ALGORITHMS,
    Algorithm,
    AuthConfig,
    PublishedKeys,
    SharedSecret,
)
from penstock.settings.models.base import DurationOrNone, Text, TomlModel, as_list
from penstock.settings.validation_errors import (
    InvalidValue,
    KeyPath,
    Problem,
    describe_choices,
)

# the output size of HS256: a shorter secret would be the weakest part
MIN_SECRET_BYTES = 32
MAX_LEEWAY = timedelta(minutes=5)
HOW_TO_MAKE_ONE = "make one: openssl rand -base64 48"
JWKS = "https://id.example.org/jwks.json"
# the beginnings of public and private keys, which are no shared secrets
KEY_PREFIXES = ("-----BEGIN ", "---- BEGIN ", "ssh-", "ecdsa-sha2-")


def as_jwks(value: str) -> str:
    """Check the URL of the keys; no message may show it."""
    invalid = f"is not an address such as '{JWKS}'"
    try:
        split = urlsplit(value)
        port_is_valid = split.port != 0
    except ValueError:
        raise InvalidValue(invalid) from None
    host = split.hostname
    if not host or not port_is_valid or not value.isprintable() or " " in value:
        raise InvalidValue(invalid)
    if "@" in split.netloc or split.fragment:
        raise InvalidValue("must hold neither a password nor a '#'")
    if split.scheme == "http" and not is_loopback(host):
        raise InvalidValue(
            "must begin with https://: whoever can change the keys on their way can "
            "sign; http:// is for this machine only, as http://127.0.0.1:8080/"
        )
    if split.scheme not in {"http", "https"}:
        raise InvalidValue("must begin with https://")
    return value


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def as_secret(value: str) -> str:
    # a secret that was read from a file often ends in a newline
    if not value.isprintable():
        raise InvalidValue("holds a line break or another control character")
    if any(form in value for form in KEY_PREFIXES):
        raise InvalidValue(
            f"is a key of a pair, not a secret to be shared; {HOW_TO_MAKE_ONE}"
        )
    if len(value.encode()) < MIN_SECRET_BYTES:
        raise InvalidValue(
            f"is shorter than {MIN_SECRET_BYTES} bytes: HS256 is no stronger than its "
            f"secret; {HOW_TO_MAKE_ONE}"
        )
    return value


def as_algorithm(value: object) -> Algorithm:
    allowed = [
        algorithm.value for algorithm in Algorithm if algorithm is not Algorithm.HS256
    ]
    if value == Algorithm.HS256:
        raise InvalidValue(
            "HS256 needs no naming: it goes with secret, and never with jwks"
        )
    if value not in allowed:
        raise InvalidValue(describe_choices(value, allowed))
    return Algorithm(str(value))


def as_label(value: str) -> str:
    if not value.isprintable():
        raise InvalidValue("holds a line break or another control character")
    return value


Label: TypeAlias = Annotated[Text, AfterValidator(as_label)]
AnyAlgorithm: TypeAlias = Annotated[Algorithm, PlainValidator(as_algorithm)]


class AccessTable(TomlModel):
    issuer: Label
    audience: Label
    jwks: Annotated[Text, AfterValidator(as_jwks)] | None = None
    secret: Annotated[Text, AfterValidator(as_secret)] | None = None
    algorithms: Annotated[
        list[AnyAlgorithm], BeforeValidator(as_list), Field(min_length=1)
    ] = Field(default_factory=lambda: [*DEFAULT_ALGORITHMS])
    leeway: DurationOrNone = timedelta(seconds=30)
    scope_claim: Label | None = None

    def rules(self) -> Iterator[Problem]:
        if self.jwks is not None and self.secret is not None:
            message = (
                "and jwks exclude each other; keep jwks if the issuer publishes keys"
            )
            yield ("secret",), message
        if self.jwks is None and self.secret is None:
            message = (
                "needs jwks, the address of the issuer's keys, or secret, for HS256"
            )
            yield (), message
        if self.jwks is None and "algorithms" in self.model_fields_set:
            yield ("algorithms",), "are for jwks; a secret goes with HS256 only"
        if self.leeway > MAX_LEEWAY:
            message = "is longer than 5m, and expired tokens would be accepted so long"
            yield ("leeway",), message


def build_auth(table: AccessTable) -> AuthConfig:
    # the rules of the table guarantee one of both
    keys: PublishedKeys | SharedSecret
    if table.jwks is not None:
        keys, algorithms = PublishedKeys(table.jwks), table.algorithms
    else:
        keys, algorithms = SharedSecret(table.secret or ""), [Algorithm.HS256]
    return AuthConfig(
        issuer=table.issuer,
        audience=table.audience,
        keys=keys,
        algorithms=frozenset(algorithms),
        leeway=table.leeway,
        scope_claim=table.scope_claim,
    )


def auth_secrets(auth: object) -> Iterator[tuple[KeyPath, str]]:
    """Yield the secret of a table as written, whether it is valid or not."""
    secret = auth.get("secret") if isinstance(auth, dict) else None
    if isinstance(secret, str) and secret:
        yield ("auth", "secret"), secret
