"""Errors as RFC 9457 has them: a stable type, a sentence, and every flaw's place."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from penstock.errors import (
    BadRequest,
    Conflict,
    Flaw,
    Forbidden,
    KeyReused,
    KeysUnavailable,
    NoSuchRecord,
    NotFound,
    Overloaded,
    PenstockError,
    PositionGone,
    StillAtWork,
    StoreRefused,
    StoreTooSlow,
    StoreUnavailable,
    Unauthenticated,
    VersionChanged,
)

MEDIA_TYPE = "application/problem+json"
# where a client finds out what a type means
TYPES = "/api/problems/"
CHALLENGE = 'Bearer realm="penstock"'

encode = msgspec.json.Encoder().encode


class Problem(Exception):
    """An answer that is not what was asked for."""

    def __init__(
        self,
        code: str,
        detail: str = "",
        *,
        flaws: Sequence[Flaw] = (),
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, Any] | None = None,
        cause: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.status, self.title = TITLES[code]
        self.detail = detail or self.title
        self.flaws = flaws
        self.headers = headers or {}
        # beside those that all have
        self.members = members or {}
        # for operators only
        self.cause = cause

    def response(self, *, trace_id: str, instance: str) -> Response:
        document: dict[str, Any] = {
            "type": f"{TYPES}{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            "code": self.code,
            "trace_id": trace_id,
            **self.members,
        }
        if self.flaws:
            document["errors"] = [
                {
                    "pointer": each.pointer,
                    "code": str(each.code),
                    "detail": each.detail,
                }
                for each in self.flaws
            ]
        return Response(
            encode(document),
            status_code=self.status,
            media_type=MEDIA_TYPE,
            headers={"cache-control": "no-store", **self.headers},
        )


# code -> status, title: every problem there is, as /api/problems tells them
TITLES: Mapping[str, tuple[int, str]] = {
    "bad-request": (400, "The request has flaws"),
    "unauthenticated": (401, "A valid token is needed"),
    "forbidden": (403, "The token does not allow this"),
    "not-found": (404, "There is nothing here"),
    "method-not-allowed": (405, "This cannot be done here"),
    "request-timeout": (408, "The request did not come to its end in time"),
    "conflict": (409, "It is in another state than was thought"),
    "position-gone": (410, "That change is not known here, or not any more"),
    "version-changed": (412, "It has changed since it was read"),
    "too-large": (413, "The body is too large"),
    "uri-too-long": (414, "The address is too long"),
    "unsupported-media-type": (415, "The body is in a form that is not read here"),
    "key-reused": (422, "The key of this request was used for another"),
    "misdirected": (421, "This name is not served here"),
    "unprocessable": (422, "The body has flaws"),
    "headers-too-large": (431, "The headers are too large"),
    "rate-limited": (429, "This client has asked too often"),
    "internal": (500, "Something went wrong here"),
    "stopping": (503, "This process ends"),
    "overloaded": (503, "Too much is asked at once"),
    "unavailable": (503, "A store does not answer"),
    "took-too-long": (504, "The answer took too long"),
}


def problem_of(error: PenstockError) -> Problem:  # noqa: C901, PLR0911, PLR0912 (a line a kind)
    """Say what an error means to a client; never with a driver's text."""
    match error:
        case BadRequest():
            in_body = all(each.pointer.startswith("/") for each in error.flaws)
            code = "unprocessable" if in_body else "bad-request"
            return Problem(code, str(error), flaws=error.flaws)
        case NotFound(among=str() as among):
            # a client has addresses, not commands
            return Problem("not-found", f"{error.told}; see /api/v1/{among}")
        case NoSuchRecord() | NotFound():
            return Problem("not-found", str(error))
        case StillAtWork():
            return Problem("conflict", str(error), headers={"retry-after": "1"})
        case Conflict():
            return Problem("conflict", str(error))
        case KeyReused():
            return Problem("key-reused", str(error))
        case VersionChanged():
            return Problem("version-changed", str(error))
        case PositionGone():
            members = {} if error.next is None else {"next": error.next}
            return Problem("position-gone", str(error), members=members)
        case StoreRefused():
            told = "the database refuses what it was given"
            return Problem("unprocessable", told)
        case Unauthenticated() | Forbidden():
            return access_problem(error)
        case Overloaded():
            return Problem("overloaded", str(error), headers={"retry-after": "1"})
        case StoreUnavailable():
            return store_problem(error)
        case _:
            return Problem("internal", "see the log by the trace id")


def access_problem(error: Unauthenticated | Forbidden) -> Problem:
    """Say what is wrong with a token, to people and as RFC 6750 has it."""
    if isinstance(error, Forbidden):
        told = f'{CHALLENGE}, error="insufficient_scope", scope="{error.scope}"'
        return Problem("forbidden", str(error), headers={"www-authenticate": told})
    told = f'{CHALLENGE}, error="invalid_token"'
    return Problem("unauthenticated", str(error), headers={"www-authenticate": told})


def store_problem(error: StoreUnavailable) -> Problem:
    """Tell what takes too long from what is not there."""
    if isinstance(error, StoreTooSlow):
        told = "the database was not given the time that this answer takes"
        return Problem("took-too-long", told)
    told, seconds = "a store does not answer; ask again", 1
    if isinstance(error, KeysUnavailable):
        told = "the token cannot be verified now; ask again"
        seconds = max(1, math.ceil(error.retry_after.total_seconds()))
    return Problem("unavailable", told, headers={"retry-after": str(seconds)})
