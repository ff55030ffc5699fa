"""Fill `${NAME}` from the environment, and keep what was filled out of sight."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import quote, quote_plus

from penstock.ports import Redact
from penstock.settings.problems import KeyPath, Problem

# shorter values stand in every other word: hiding them would hide the text
SHORTEST_SECRET = 4
DEEPEST_TABLE = 60

PLACEHOLDER = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
# as a shell would take it; names in other letters are often meant as they stand
BARE_VARIABLE = re.compile(r"(?<![$\w])\$([A-Z_][A-Z0-9_]{2,})\b")
# tables and keys that hold what is secret
CREDENTIALS = frozenset(
    {"headers", "auth", "query", "body", "url", "database", "redis", "replicas"}
)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(slots=True)
class Filler:
    """One pass over the tree; it remembers each secret and each gap."""

    environ: Mapping[str, str]
    # secret value -> "${NAME}"
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    problems: list[Problem] = field(default_factory=list)

    def fill(self, value: object, at: KeyPath = ()) -> object:
        """Return the same tree with every text filled."""
        if len(at) > DEEPEST_TABLE:
            self.problems.append((at[:3], "is nested too deeply"))
            return None
        if isinstance(value, dict):
            return {key: self.fill(each, (*at, key)) for key, each in value.items()}
        if isinstance(value, list):
            return [self.fill(each, (*at, n)) for n, each in enumerate(value)]
        if isinstance(value, str):
            self.refuse_bare(value, at)
            return PLACEHOLDER.sub(lambda found: self.value_of(found, at), value)
        return value

    def refuse_bare(self, text: str, at: KeyPath) -> None:
        """Refuse a variable without braces where credentials are declared."""
        names = [found[1] for found in BARE_VARIABLE.finditer(text)]
        if not names or not CREDENTIALS & {str(step) for step in at}:
            return
        name = next((each for each in names if each in self.environ), None)
        message = (
            # it may be the secret itself, which is not shown
            "holds $ and capitals where a credential stands; put the value into an "
            "environment variable and write ${NAME}"
            if name is None
            else f"names {name} without braces, so it is not filled; write ${{{name}}}"
        )
        self.problems.append((at, message))

    def value_of(self, found: re.Match[str], at: KeyPath) -> str:
        if found[0] == "$${":
            return "${"
        name = found[1]
        if name is None or VARIABLE.fullmatch(name) is None:
            told = f"{found[0]!r} names no variable; write ${{NAME}}, or $${{ for ${{"
            self.problems.append((at, told))
            return found[0]
        value = self.environ.get(name)
        if value is None:
            told = f"environment variable {name!r} is not set"
            self.problems.append((at, told))
            return found[0]
        if not is_text(value):
            told = f"environment variable {name!r} does not hold UTF-8 text"
            self.problems.append((at, told))
            return found[0]
        self.secrets.setdefault(value, found[0])
        return value


def is_text(value: str) -> bool:
    # bytes that are not UTF-8 come from the environment as lone surrogates
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def redact(text: str, secrets: Mapping[str, str]) -> str:
    """Replace every form of every secret by its name."""
    return redactor(tuple(secrets.items()))(text)


@lru_cache(maxsize=8)
def redactor(secrets: tuple[tuple[str, str], ...]) -> Redact:
    names: dict[str, str] = {}
    for value, name in secrets:
        if len(value) >= SHORTEST_SECRET:
            for form in forms(value):
                names.setdefault(form, name)
    if not names:
        return str
    # the longest first: one secret may be the beginning of another
    ordered = sorted(names, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, ordered)))

    def replace_secrets(text: str) -> str:
        return pattern.sub(lambda found: names[found[0]], text)

    return replace_secrets


def forms(value: str) -> tuple[str, ...]:
    """Return a secret as it stands in URLs, JSON documents and Python messages."""
    return (
        value,
        quote(value),
        quote(value, safe=""),
        quote_plus(value),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
    )
