"""The parameters of a request: each known, given once, and well-formed."""

from enum import StrEnum
from typing import TypeVar

from starlette.requests import Request

from penstock.domain.queries.forms import whole
from penstock.entrypoints.api.problems import Problem
from penstock.errors import BadRequest, Flaw

Choice = TypeVar("Choice", bound=StrEnum)

# the largest id that a database can hold
LARGEST_ID = 2**63 - 1


class Parameters:
    """What was understood of them, and what was not."""

    def __init__(self, request: Request, *known: str) -> None:
        self._given: dict[str, str] = {}
        self._flaws: list[Flaw] = []
        for name, value in request.query_params.multi_items():
            if name not in known:
                others = f"use {', '.join(known)}" if known else "there are none"
                self.flaw(name, "unknown-parameter", f"is no parameter here; {others}")
            elif name in self._given:
                self.flaw(name, "repeated", "is given twice; give it once")
            self._given[name] = value

    def flaw(self, name: str, code: str, detail: str) -> None:
        self._flaws.append(Flaw(pointer=f"?{name}", code=code, detail=detail))

    def text(self, name: str) -> str | None:
        return self._given.get(name)

    def choice(self, name: str, of: type[Choice]) -> Choice | None:
        text = self._given.get(name)
        if text is None:
            return None
        try:
            return of(text)
        except ValueError:
            self.flaw(name, "choice", f"must be one of {', '.join(of)}")
            return None

    def number(self, name: str, *, least: int, most: int) -> int | None:
        text = self._given.get(name)
        if text is None:
            return None
        found = whole(text)
        if found is None or not least <= found <= most:
            self.flaw(name, "range", f"must be a whole number, {least} to {most}")
            return None
        return found

    def id(self, name: str) -> int | None:
        return self.number(name, least=1, most=LARGEST_ID)

    def truth(self, name: str) -> bool:
        text = self._given.get(name, "false")
        if text not in {"true", "false"}:
            self.flaw(name, "type", "must be true or false")
        return text == "true"

    def finish(self) -> None:
        if self._flaws:
            raise BadRequest(*self._flaws)


def id_in_path(request: Request, name: str) -> int:
    """Read an id from an address; there is nothing where none can be."""
    text = request.path_params[name]
    found = whole(text)
    if found is None or not 1 <= found <= LARGEST_ID:
        raise Problem("not-found", f"there is no {name} {text[:40]!r}")
    return found
