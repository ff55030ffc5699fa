"""The [hooks.*] tables: who is told of what."""

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field
from typing_extensions import override

from penstock.domain.hooks import Hook, HookFact, HookFunction, Webhook
from penstock.settings.models.base import TRANSFORM, Text, TomlModel, as_list
from penstock.settings.validation_errors import InvalidValue, KeyPath, Problem

# what Standard Webhooks requires of the bytes of a secret
MIN_SECRET_BYTES, MAX_SECRET_BYTES = 24, 64
PREFIX = "whsec_"
HOW_TO_MAKE_ONE = "make one: openssl rand -base64 32"


def as_hook_url(value: str) -> str:
    """Check a URL; no message may show it, for it may contain a secret."""
    invalid = "is not an address such as 'https://example.org/hook'"
    try:
        split = urlsplit(value)
        port_is_valid = split.port != 0
        value.encode("ascii")
    except ValueError:
        raise InvalidValue(invalid) from None
    if split.scheme not in {"http", "https"} or not split.hostname:
        raise InvalidValue(invalid)
    if not port_is_valid or not value.isprintable() or " " in value:
        raise InvalidValue(invalid)
    if "@" in split.netloc or split.fragment:
        raise InvalidValue("must hold neither a password nor a '#'")
    return value


def as_hook_secret(value: str) -> str:
    try:
        length = len(decode_secret(value))
    except binascii.Error:
        raise InvalidValue(f"is not base64; {HOW_TO_MAKE_ONE}") from None
    if not MIN_SECRET_BYTES <= length <= MAX_SECRET_BYTES:
        raise InvalidValue(
            f"must be base64 of {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes; "
            f"{HOW_TO_MAKE_ONE}"
        )
    return value


def decode_secret(value: str) -> bytes:
    encoded = value.removeprefix(PREFIX)
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError as error:
        # also for text that is not ASCII
        raise binascii.Error from error


AnyFact: TypeAlias = Annotated[HookFact, Field(strict=False)]


class HookTable(TomlModel):
    on: Annotated[list[AnyFact], BeforeValidator(as_list)]
    url: Annotated[Text, AfterValidator(as_hook_url)] | None = None
    secret: Annotated[Text, AfterValidator(as_hook_secret)] | None = None
    allow_private: bool = False
    call: Text | None = None

    @override
    def rules(self) -> Iterator[Problem]:
        if not self.on:
            yield ("on",), f"is empty; name some of {', '.join(HookFact)}"
        if self.url is None and self.call is None:
            yield (), "leads nowhere; add url, or call = 'module:function'"
        if self.url is not None and self.call is not None:
            yield ("call",), "and url exclude each other; declare two hooks"
        if self.call is not None:
            yield from self.call_rules()
        if self.url is not None:
            yield from self.url_rules(self.url)

    def url_rules(self, url: str) -> Iterator[Problem]:
        if self.secret is None:
            message = "is required by url, so that the receiver can verify messages"
            yield ("secret",), f"{message}; {HOW_TO_MAKE_ONE}"
        if url.startswith("http:") and not self.allow_private:
            message = "must begin with https://: others could read messages on their"
            yield ("url",), f"{message} way; for a private network: allow_private"

    def call_rules(self) -> Iterator[Problem]:
        if TRANSFORM.fullmatch(self.call or "") is None:
            yield ("call",), "must be 'module:function', such as 'alerts:send'"
        for name in ("secret", "allow_private"):
            if name in self.model_fields_set and self.url is None:
                yield (name,), "has no meaning with call; remove it"


def build_hook(name: str, table: HookTable) -> Hook:
    # the rules of the table guarantee one of both
    target = (
        HookFunction(path=table.call or "")
        if table.url is None
        else Webhook(
            url=table.url,
            secret=decode_secret(table.secret or ""),
            allow_private=table.allow_private,
        )
    )
    return Hook(name=name, on=frozenset(table.on), target=target)


def hook_secrets(hooks: object) -> Iterator[tuple[KeyPath, str]]:
    """Yield the secrets of the tables as written, whether they are valid or not."""
    if not isinstance(hooks, Mapping):
        return
    for name, table in hooks.items():
        secret = table.get("secret") if isinstance(table, Mapping) else None
        if isinstance(secret, str) and secret:
            yield ("hooks", name, "secret"), secret
