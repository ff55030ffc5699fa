"""Remove secrets from texts, in every encoding in which they may appear."""

import base64
import html
import json
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property

# shown for a secret without a name
MASK = "***"
# shorter values occur in ordinary words: redacting them would garble the text
MIN_SECRET_LENGTH = 4
# a provider may issue a token for each request; the oldest are forgotten
MAX_ISSUED_TOKENS = 64

# characters that no encoding escapes
UNESCAPED = re.compile(r"[A-Za-z0-9._~-]*")


class Redactor:
    """Replaces secrets by their names; threads may share it."""

    def __init__(self, secrets: Mapping[str, str], short: Collection[str] = ()) -> None:
        """Take the values with their names, and credentials that may be short."""
        self._secrets = [
            Secret(value, name)
            for value, name in secrets.items()
            if len(value) >= MIN_SECRET_LENGTH
        ]
        self._short = [
            Secret(value, MASK) for value in short if 0 < len(value) < MIN_SECRET_LENGTH
        ]
        self._issued = deque[Secret](maxlen=MAX_ISSUED_TOKENS)

    def add_issued(self, token: str) -> None:
        """Redact from now on a token that was received during the run."""
        if len(token) >= MIN_SECRET_LENGTH:
            self._issued.append(Secret(token, MASK))

    def __call__(self, text: str) -> str:
        return self._replace(text, self._secrets)

    def redact_traffic(self, text: str, limit: int | None = None) -> str:
        """Redact what is sent or received, or its start up to a limit.

        Short credentials are replaced here only: in a sentence of ours, a missing word
        would reveal them.
        """
        return self._replace(text, (*self._secrets, *self._short), limit)

    def _replace(
        self, text: str, secrets: Iterable["Secret"], limit: int | None = None
    ) -> str:
        """Leave no part of a secret that overlaps with another or with the limit."""
        spans = [
            (*found.span(), secret.name)
            for secret in (*secrets, *self._issued.copy())
            for found in secret.find(text)
        ]
        parts, end = list[str](), 0
        # of those that begin at the same character, the longest first
        for start, stop, name in sorted(spans, key=lambda span: (span[0], -span[1])):
            if limit is not None and start >= limit:
                break
            if start >= end:
                parts += (text[end:start], name)
            end = max(end, stop)
        return "".join((*parts, text[end:limit]))


class Secret:
    """A value in all its encodings; a short one only if it is a whole word."""

    def __init__(self, value: str, name: str) -> None:
        data = value.encode()
        encoded = (base64.b64encode(data), base64.urlsafe_b64encode(data))
        self.name = name
        self._forms = (value, *(form.decode().rstrip("=") for form in encoded))
        # to search for a text is much faster than to search for a pattern
        self._literals = {max(UNESCAPED.findall(form), key=len) for form in self._forms}

    def find(self, text: str) -> Iterator[re.Match[str]]:
        if any(literal in text for literal in self._literals):
            yield from self._pattern.finditer(text)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        value, *encoded = self._forms
        # If each backslash could be escaped or not, the time of a search would double
        # with each: all are, or none is.
        escaped = [escaped_pattern(value), escaped_pattern(value, backslash=r"\\")]
        forms = (*escaped, *(f"{escaped_pattern(form)}={{0,2}}" for form in encoded))
        pattern = "|".join(dict.fromkeys(forms))
        is_short = len(value) < MIN_SECRET_LENGTH
        return re.compile(rf"(?<!\w)(?:{pattern})(?!\w)" if is_short else pattern)


def escaped_pattern(text: str, *, backslash: str | None = None) -> str:
    """Match each character as it is or escaped, and a backslash as given or escaped."""
    return "".join(
        backslash if backslash and char == "\\" else character_pattern(char)
        for char in text
    )


def character_pattern(char: str) -> str:
    """Match a character as written in URLs, JSON, HTML and Python messages."""
    if UNESCAPED.fullmatch(char):
        return re.escape(char)
    utf16 = char.encode("utf-16-be").hex()
    escapes = {
        "".join(f"%{byte:02x}" for byte in char.encode()),
        "".join(f"\\u{utf16[at : at + 4]}" for at in range(0, len(utf16), 4)),
        f"\\{char}",
        json.dumps(char)[1:-1],
        ascii(char)[1:-1],
        html.escape(char),
        "+" if char == " " else char,
    } - {char}
    # hexadecimal digits may be in either case
    escaped = f"(?i:{'|'.join(map(re.escape, sorted(escapes)))})"
    return escaped if char == "\\" else f"(?:{escaped}|{re.escape(char)})"
