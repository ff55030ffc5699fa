"""Read the query parameters and the path ids of a request."""

from enum import StrEnum
from typing import TypeVar

from penstock.domain.search.value_syntax import parse_int
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.entrypoints.api.problems import Problem
from penstock.errors import BadRequest, FieldError

Choice = TypeVar("Choice", bound=StrEnum)

# the largest id that a database can store
MAX_ID = 2**63 - 1


class QueryParams:
    """The query parameters of a request.

    Each must be allowed, given once and well-formed; `finish` raises all errors.
    """

    def __init__(self, head: RequestHead, *allowed: str) -> None:
        self._values: dict[str, str] = {}
        self._errors: list[FieldError] = []
        for name, value in head.query:
            if name not in allowed:
                hint = f"use {', '.join(allowed)}" if allowed else "there are none"
                self.add_error(
                    name, "unknown-parameter", f"is not a parameter here; {hint}"
                )
            elif name in self._values:
                self.add_error(name, "repeated", "is given twice; give it once")
            self._values[name] = value

    def add_error(self, name: str, code: str, detail: str) -> None:
        self._errors.append(FieldError(pointer=f"?{name}", code=code, detail=detail))

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def choice(self, name: str, choices: type[Choice]) -> Choice | None:
        text = self._values.get(name)
        if text is None:
            return None
        try:
            return choices(text)
        except ValueError:
            self.add_error(name, "choice", f"must be one of {', '.join(choices)}")
            return None

    def integer(self, name: str, *, minimum: int, maximum: int) -> int | None:
        text = self._values.get(name)
        if text is None:
            return None
        number = parse_int(text)
        if number is None or not minimum <= number <= maximum:
            self.add_error(
                name, "range", f"must be a whole number, {minimum} to {maximum}"
            )
            return None
        return number

    def id(self, name: str) -> int | None:
        return self.integer(name, minimum=1, maximum=MAX_ID)

    def flag(self, name: str) -> bool:
        text = self._values.get(name, "false")
        if text not in {"true", "false"}:
            self.add_error(name, "type", "must be true or false")
        return text == "true"

    def finish(self) -> None:
        if self._errors:
            raise BadRequest(*self._errors)


def id_in_path(head: RequestHead, name: str) -> int:
    """Read an id from the path; raises a `not-found` problem if it cannot be one."""
    text = head.parts[name]
    number = parse_int(text)
    if number is None or not 1 <= number <= MAX_ID:
        raise Problem("not-found", f"there is no {name} {text[:40]!r}")
    return number
