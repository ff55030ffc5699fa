"""Messages for invalid settings: key path, problem, and the closest valid word."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, time
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, TypeAlias

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

KeyPath: TypeAlias = tuple[str | int, ...]
Problem: TypeAlias = tuple[KeyPath, str]

# the models that were tried, by the identity of the table they were tried on
TriedModels: TypeAlias = dict[int, type[BaseModel]]

MAX_MESSAGE_LENGTH = 400
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")

EXPECTED_TYPES = {
    "string_type": "text in quotes",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}
SPREADSHEETS = frozenset({"excel", "xlsx", "xls", "ods", "spreadsheet"})
# tables that people write as a single value
EXAMPLES = {
    "datasets.*.missing": 'missing = { do = "mark" }',
    "datasets.*.archive": 'archive = { after = "365d" }',
    "datasets.*.bad": "bad = { max = 1000 }",
    "datasets.*.delta": 'delta = { send = "since", field = "updated_at" }',
    "datasets.*.source": 'source = { type = "csv", files = "*.csv" }',
    "datasets.*.source.pages": 'pages = { by = "page", send = "page" }',
    "datasets.*.source.pages.size": 'size = { send = "limit", value = 500 }',
    "datasets.*.source.auth": 'auth = { type = "bearer", token = "${TOKEN}" }',
    "datasets.*.source.headers": 'headers = { X-API-Key = "${API_KEY}" }',
    "datasets.*.source.query": 'query = { output = "json" }',
}
COMPARISONS = {
    "greater_than": ("gt", "must be greater than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}


class InvalidValue(ValueError):
    """A value that its key does not allow; the message says what is allowed."""


class RuleViolations(ValueError):
    """Violated rules of one table; paths are relative to it."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(sentence for _, sentence in problems))
        self.problems = problems


def spell(at: KeyPath) -> str:
    """Format a key path as in TOML: `datasets.poi.source.rate[1]`."""
    text = ""
    for step in at:
        if isinstance(step, int):
            text += f"[{step}]"
            continue
        key = step if BARE_KEY.fullmatch(step) else json.dumps(step)
        text += f".{key}" if text else key
    return text


def closest_match(word: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed word that was probably meant."""
    by_casefold = {candidate.casefold(): candidate for candidate in allowed}
    found = get_close_matches(word.casefold(), by_casefold, n=1)
    return by_casefold[found[0]] if found else None


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """Suggest the closest word, else list all of them."""
    allowed = sorted(allowed)
    guess = closest_match(word, allowed)
    if guess is not None:
        return f"did you mean {guess!r}?"
    return f"known are {', '.join(allowed)}" if allowed else "none is declared"


def unknown_key(at: KeyPath, allowed: Iterable[str]) -> str:
    """Return the message for an unknown key."""
    guess = closest_match(str(at[-1]), allowed)
    if guess is not None:
        return f"unknown key; did you mean {guess!r}?"
    return f"unknown key; known here are {', '.join(sorted(allowed))}"


def key_pattern(at: KeyPath) -> str:
    """Format a key path with `*` for the names that users choose."""
    steps = [str(step) for step in at]
    if steps[0] == "datasets":
        steps[1:2] = "*"
        if steps[2:3] == ["fields"]:
            steps[3:4] = "*"
    return ".".join(steps)


def to_problems(
    error: ValidationError, given: object, *, at: KeyPath, tried: TriedModels
) -> Iterator[Problem]:
    """Convert each error of a model to a message with its key path."""
    for details in error.errors(include_url=False):
        relative, parent = locate(details, given)
        cause = details.get("ctx", {}).get("error")
        if isinstance(cause, RuleViolations):
            for deeper, sentence in cause.problems:
                yield (*at, *relative, *deeper), sentence
        elif details["type"] == "extra_forbidden":
            model = tried.get(id(parent))
            allowed = () if model is None else keys_of(model)
            yield (*at, *relative), unknown_key((*at, *relative), allowed)
        elif details["type"].startswith("union_tag"):
            yield (*at, *relative, tag_name(details)), describe_error(details)
        else:
            path = (*at, *relative)
            example = (
                EXAMPLES.get(key_pattern(path)) if expects_table(details) else None
            )
            remedy = "" if example is None else f"; write it as {example}"
            yield path, describe_error(details) + remedy


def expects_table(error: ErrorDetails) -> bool:
    return EXPECTED_TYPES.get(error["type"]) == "a table"


def locate(error: ErrorDetails, given: object) -> tuple[KeyPath, object]:
    """Return the key path without additions of pydantic, and its innermost table."""
    path: list[str | int] = []
    node, parent = given, given
    steps = [step for step in error["loc"] if step != "[key]"]
    is_missing = error["type"] == "missing"
    for number, step in enumerate(steps):
        if holds(node, step):
            parent, node = node, node[step]  # type: ignore[index]
        elif is_missing and number == len(steps) - 1:
            parent = node
        else:
            # the name of a variant of a union
            continue
        path.append(step)
    return tuple(path), parent


def holds(node: object, step: str | int) -> bool:
    if isinstance(node, list):
        return isinstance(step, int) and step < len(node)
    return isinstance(node, dict) and step in node


def keys_of(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def tag_name(error: ErrorDetails) -> str:
    return str(error.get("ctx", {}).get("discriminator", "")).strip("'")


def describe_error(error: ErrorDetails) -> str:  # noqa: PLR0911 (one line a kind)
    """Describe an error without values that may be secret."""
    kind, given = error["type"], error["input"]
    context: Mapping[str, Any] = error.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind in EXPECTED_TYPES:
        return f"must be {EXPECTED_TYPES[kind]}, not {describe_type(given)}"
    if kind in COMPARISONS:
        name, comparison = COMPARISONS[kind]
        return f"{comparison} {context[name]}"
    if kind in {"enum", "literal_error"}:
        return describe_choices(given, quoted(context["expected"]))
    if kind == "union_tag_invalid":
        return describe_choices(context["tag"], quoted(context["expected_tags"]))
    if kind in {"missing", "union_tag_not_found"}:
        return "is required"
    if kind == "string_too_short":
        return "must not be empty"
    if kind == "too_short":
        return f"must have at least {context['min_length']}"
    if kind == "too_long":
        return f"must have at most {context['max_length']}"
    message = error["msg"]
    return message[:1].lower() + message[1:]


def describe_choices(given: object, allowed: list[str]) -> str:
    if not isinstance(given, str):
        return f"must be one of {', '.join(allowed)}, not {describe_type(given)}"
    guess = closest_match(given, allowed)
    message = f"{given!r} is not one of {', '.join(allowed)}"
    if given.casefold() in SPREADSHEETS:
        return f'{message}; save the sheet as CSV, and declare type = "csv"'
    return message if guess is None else f"{message}; did you mean {guess!r}?"


def quoted(expected: object) -> list[str]:
    return re.findall(r"'([^']*)'", str(expected))


def describe_type(value: object) -> str:
    """Return the name of a TOML type; the value itself may be secret."""
    if isinstance(value, bool):
        return str(value).lower()
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (str, "text"),
        (int, "a whole number"),
        ((Decimal, float), "a number with a fraction"),
        (list, "a list"),
        (dict, "a table"),
        ((date, time), "a date or time"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), "this")
