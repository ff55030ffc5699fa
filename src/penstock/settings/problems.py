"""Say what is wrong with a declaration: where, what, and the nearest valid word."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, time
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, TypeAlias

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from penstock.settings.later import LATER

KeyPath: TypeAlias = tuple[str | int, ...]
Problem: TypeAlias = tuple[KeyPath, str]

# the models that were tried, by the identity of the table they were tried on
Tried: TypeAlias = dict[int, type[BaseModel]]

LONGEST_SENTENCE = 400
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")

WANTED = {
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
    "datasets.*.bad": "bad = { max = 1000 }",
    "datasets.*.delta": 'delta = { send = "since", field = "updated_at" }',
    "datasets.*.source": 'source = { type = "csv", files = "*.csv" }',
    "datasets.*.source.pages": 'pages = { by = "page", send = "page" }',
    "datasets.*.source.pages.size": 'size = { send = "limit", value = 500 }',
    "datasets.*.source.auth": 'auth = { type = "bearer", token = "${TOKEN}" }',
    "datasets.*.source.headers": 'headers = { X-API-Key = "${API_KEY}" }',
    "datasets.*.source.query": 'query = { output = "json" }',
}
COMPARED = {
    "greater_than": ("gt", "must be greater than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}


class Unfit(ValueError):
    """A value that its key does not allow; the text says what it does."""


class Refused(ValueError):
    """Rules that do not hold inside one table; paths are relative to it."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(sentence for _, sentence in problems))
        self.problems = problems


def spell(at: KeyPath) -> str:
    """Write a key path as TOML would: `datasets.poi.source.rate[1]`."""
    text = ""
    for step in at:
        if isinstance(step, int):
            text += f"[{step}]"
            continue
        key = step if BARE_KEY.fullmatch(step) else json.dumps(step)
        text += f".{key}" if text else key
    return text


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was probably meant."""
    folded = {each.casefold(): each for each in known}
    found = get_close_matches(word.casefold(), folded, n=1)
    return folded[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Suggest the nearest word, else all of them."""
    known = sorted(known)
    guess = nearest(word, known)
    if guess is not None:
        return f"did you mean {guess!r}?"
    return f"known are {', '.join(known)}" if known else "none is declared"


def unknown_key(at: KeyPath, known: Iterable[str]) -> str:
    """Refuse a key that the place does not have, or not yet."""
    key = str(at[-1])
    later = LATER.get(pattern_of(at))
    if later is not None:
        return f"not supported in this version; {later}"
    guess = nearest(key, known)
    if guess is not None:
        return f"unknown key; did you mean {guess!r}?"
    return f"unknown key; known here are {', '.join(sorted(known))}"


def pattern_of(at: KeyPath) -> str:
    """Write a key path with the names that users choose left open."""
    steps = [str(step) for step in at]
    if steps[0] == "datasets":
        steps[1:2] = "*"
        if steps[2:3] == ["fields"]:
            steps[3:4] = "*"
    return ".".join(steps)


def problems_of(
    error: ValidationError, given: object, *, at: KeyPath, tried: Tried
) -> Iterator[Problem]:
    """Turn each error of a model into a sentence with its key path."""
    for each in error.errors(include_url=False):
        inside, parent = locate(each, given)
        cause = each.get("ctx", {}).get("error")
        if isinstance(cause, Refused):
            for deeper, sentence in cause.problems:
                yield (*at, *inside, *deeper), sentence
        elif each["type"] == "extra_forbidden":
            model = tried.get(id(parent))
            known = () if model is None else keys_of(model)
            yield (*at, *inside), unknown_key((*at, *inside), known)
        elif each["type"].startswith("union_tag"):
            yield (*at, *inside, tag_name(each)), sentence_of(each)
        else:
            place = (*at, *inside)
            example = EXAMPLES.get(pattern_of(place)) if is_no_table(each) else None
            remedy = "" if example is None else f"; write it as {example}"
            yield place, sentence_of(each) + remedy


def is_no_table(error: ErrorDetails) -> bool:
    return WANTED.get(error["type"]) == "a table"


def locate(error: ErrorDetails, given: object) -> tuple[KeyPath, object]:
    """Leave out what pydantic adds to a path; return the table of the last key too."""
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


def sentence_of(error: ErrorDetails) -> str:  # noqa: PLR0911 (one line a kind)
    """Say what is wrong with one value, without showing values that may be secret."""
    kind, given = error["type"], error["input"]
    context: Mapping[str, Any] = error.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind in WANTED:
        return f"must be {WANTED[kind]}, not {kind_of(given)}"
    if kind in COMPARED:
        name, told = COMPARED[kind]
        return f"{told} {context[name]}"
    if kind in {"enum", "literal_error"}:
        return choice_sentence(given, quoted(context["expected"]))
    if kind == "union_tag_invalid":
        return choice_sentence(context["tag"], quoted(context["expected_tags"]))
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


def choice_sentence(given: object, known: list[str]) -> str:
    if not isinstance(given, str):
        return f"must be one of {', '.join(known)}, not {kind_of(given)}"
    guess = nearest(given, known)
    told = f"{given!r} is not one of {', '.join(known)}"
    if given.casefold() in SPREADSHEETS:
        return f'{told}; save the sheet as CSV, and declare type = "csv"'
    return told if guess is None else f"{told}; did you mean {guess!r}?"


def quoted(expected: object) -> list[str]:
    return re.findall(r"'([^']*)'", str(expected))


def kind_of(value: object) -> str:
    """Name the kind of a TOML value; the value itself may be secret."""
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
    return next((told for kind, told in kinds if isinstance(value, kind)), "this")
