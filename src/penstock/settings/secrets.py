"""Fill `${NAME}` from the environment, and find the secrets of a tree."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.domain.formats import is_unicode
from penstock.domain.source import basic_token
from penstock.settings.validation_errors import KeyPath, Problem

MAX_DEPTH = 60

PLACEHOLDER = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
# shell syntax; lower-case names are often meant literally
BARE_VARIABLE = re.compile(r"(?<![$\w])\$([A-Z_][A-Z0-9_]{2,})\b")
# tables and keys that may contain secrets
CREDENTIALS = frozenset(
    {
        "headers",
        "auth",
        "query",
        "body",
        "url",
        "database",
        "redis",
        "replicas",
        "broker",
    }
)
# headers and parameters that certainly contain a secret
CERTAIN_NAME = re.compile(
    r"(proxy-)?authorization|cookie|(x-)?api-key|api_?key|key|(access_)?token",
    re.IGNORECASE,
)
# tables of a source whose texts are sent
REQUEST_TABLES = ("headers", "query", "body")
LIKELY_NAME = re.compile(
    r"auth(?!ors?$)|cookie|token|secret|passw|signature"
    r"|(^|[-_])key(?!words?$)|apikey$",
    re.IGNORECASE,
)
# shorter values of such names are often ordinary words, as in sort_key = "title"
MIN_LIKELY_LENGTH = 6
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(slots=True)
class EnvInterpolator:
    """Fills the variables of the tree; collects secrets and problems."""

    environ: Mapping[str, str]
    # secret value -> "${NAME}"
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    problems: list[Problem] = field(default_factory=list)

    def fill(self, value: object, at: KeyPath = ()) -> object:
        """Return the tree with the variables of every text filled."""
        if len(at) > MAX_DEPTH:
            self.problems.append((at[:3], "is nested too deeply"))
            return None
        if isinstance(value, dict):
            return {key: self.fill(item, (*at, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item, (*at, index)) for index, item in enumerate(value)]
        if isinstance(value, str):
            self.check_bare_variables(value, at)
            return PLACEHOLDER.sub(lambda found: self.value_of(found, at), value)
        return value

    def check_bare_variables(self, text: str, at: KeyPath) -> None:
        """Refuse a variable without braces where credentials are declared."""
        names = [found[1] for found in BARE_VARIABLE.finditer(text)]
        if not names or not CREDENTIALS & {str(step) for step in at}:
            return
        name = next(
            (candidate for candidate in names if candidate in self.environ), None
        )
        message = (
            # the text may be the secret itself, so it is not shown
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
            message = (
                f"{found[0]!r} names no variable; write ${{NAME}}, or $${{ for ${{"
            )
            self.problems.append((at, message))
            return found[0]
        value = self.environ.get(name)
        if value is None:
            message = f"environment variable {name!r} is not set"
            self.problems.append((at, message))
            return found[0]
        # Python decodes bytes that are not UTF-8 as lone surrogates
        if not is_unicode(value):
            message = f"environment variable {name!r} does not hold UTF-8 text"
            self.problems.append((at, message))
            return found[0]
        self.secrets.setdefault(value, found[0])
        return value


def credentials(source: Mapping[str, object]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the credentials of a source as written, whether it is valid or not."""
    texts = dict(find_texts(source))
    for path, value in texts.items():
        match path:
            case ("auth", "token" | "password" | "client_secret"):
                yield path, value
            case ("headers" | "query", str(name)) if CERTAIN_NAME.fullmatch(name):
                yield path, value
    username, password = (texts.get(("auth", key)) for key in ("username", "password"))
    if username is not None and password is not None:
        yield ("auth", "password"), basic_token(username, password)


def likely_credentials(source: Mapping[str, object]) -> Iterator[tuple[KeyPath, str]]:
    """Yield literals of a request that are probably secret, to judge by their names."""
    for path, value in find_texts(source):
        # an element of a list has the name of the list
        name = next((step for step in reversed(path) if isinstance(step, str)), "")
        is_long = len(value) >= MIN_LIKELY_LENGTH
        if path[0] in REQUEST_TABLES and is_long and LIKELY_NAME.search(name):
            yield path, value


def find_texts(value: object, at: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Yield the texts of a source, and the numbers that it sends as texts."""
    if isinstance(value, str) or (type(value) is int and at[0] != "body"):
        yield at, str(value)
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from find_texts(child, (*at, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from find_texts(child, (*at, index))
