"""Keep secrets out of every text that leaves the source."""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote, quote_plus

from penstock.domain.source import Auth, HttpSource
from penstock.ports import Redact

HIDDEN = "***"
# signs that are legal in a query and read better as they are
READABLE = ",:()"
SNIPPET = 120
# what is looked at before a snippet is cut, so that no secret is cut in half
LOOKED_AT = 4096
# shorter values would hide ordinary words
SHORTEST = 6

SECRET_NAME = re.compile(
    r"auth|cookie|token|secret|passw|signature|(^|[-_])key|apikey$", re.IGNORECASE
)
UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa1-\uffff]+|[\ud800-\udfff\ufffd]+|\s+")


class Hiding:
    """Removes the secrets of one source, in each form in which they could come back."""

    def __init__(self, source: HttpSource, redact: Redact) -> None:
        self._redact = redact
        self.parameters = {
            name: value
            for name, value in source.query.items()
            if self._is_secret(name, value)
        }
        secrets = [*self.parameters.values(), *self._others(source)]
        shown = {form for value in secrets if value for form in forms(value)}
        # the longest first, or the rest of a longer one would stay
        self._forms = sorted(shown, key=len, reverse=True)

    def learn(self, secret: str) -> None:
        """Hide from now on what was only learnt on the way, such as an access token."""
        if len(secret) >= SHORTEST:
            known = {*self._forms, *forms(secret)}
            self._forms = sorted(known, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        text = self._redact(text)
        for form in self._forms:
            text = text.replace(form, HIDDEN)
        return text

    def snippet(self, body: bytes, *, limit: int = SNIPPET) -> str:
        """Return the beginning of a body on one line, without secrets."""
        text = self(body[:LOOKED_AT].decode(errors="replace"))
        text = UNPRINTABLE.sub(" ", text).strip()
        return text if len(text) <= limit else f"{text[: limit - 1]}…"

    def _is_secret(self, name: str, value: str) -> bool:
        named = SECRET_NAME.search(name) is not None and len(value) >= SHORTEST
        return named or self._redact(value) != value

    def _others(self, source: HttpSource) -> Iterator[str]:
        for name, value in source.headers.items():
            if self._is_secret(name, value):
                yield value
        for name, value in leaves(source.body or {}):
            if self._is_secret(name, value):
                yield value
        if source.auth is not None:
            yield from auth_secrets(source.auth)


def forms(value: str) -> Iterator[str]:
    """Yield a secret as it stands in a header, a query, a form and a JSON text."""
    yield value
    yield quote(value, safe="")
    yield quote(value, safe=READABLE)
    yield quote_plus(value)
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]


def leaves(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts of a body with their names."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield from leaves(below, str(key))
    elif isinstance(value, list | tuple):
        for below in value:
            yield from leaves(below, name)


def auth_secrets(auth: Auth) -> Iterator[str]:
    yield auth.token
    yield auth.password
    yield auth.client_secret
    if auth.password:
        yield basic_token(auth)


def basic_token(auth: Auth) -> str:
    pair = f"{auth.username}:{auth.password}"
    return base64.b64encode(pair.encode()).decode()
