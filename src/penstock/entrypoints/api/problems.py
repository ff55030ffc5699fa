"""Problem details (RFC 9457): a type, a sentence, and a pointer to each error."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from penstock.errors import (
    BadRequest,
    Conflict,
    DatasetGone,
    FieldError,
    Forbidden,
    IdempotencyKeyReused,
    JwksUnavailable,
    NoSuchRecord,
    NotFound,
    Overloaded,
    PenstockError,
    PositionGone,
    RequestInProgress,
    StoreReadOnly,
    StoreRefused,
    StoreTimeout,
    StoreUnavailable,
    Unauthenticated,
    VersionChanged,
)

MEDIA_TYPE = "application/problem+json"
# prefix of problem types; each is a URL that explains it
TYPES = "/api/problems/"
CHALLENGE = 'Bearer realm="penstock"'

encode = msgspec.json.Encoder().encode


class Problem(Exception):
    """An error response."""

    def __init__(
        self,
        code: str,
        detail: str = "",
        *,
        flaws: Sequence[FieldError] = (),
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
        # additional members of the document
        self.members = members or {}
        # for the log only
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
                    "pointer": flaw.pointer,
                    "code": str(flaw.code),
                    "detail": flaw.detail,
                }
                for flaw in self.flaws
            ]
        return Response(
            encode(document),
            status_code=self.status,
            media_type=MEDIA_TYPE,
            headers={"cache-control": "no-store", **self.headers},
        )


# code -> status, title: all problems, as /api/problems returns them
TITLES: Mapping[str, tuple[int, str]] = {
    "bad-request": (400, "The request is invalid"),
    "unauthenticated": (401, "A valid token is required"),
    "forbidden": (403, "The token does not allow this"),
    "not-found": (404, "Not found"),
    "method-not-allowed": (405, "Method not allowed"),
    "request-timeout": (408, "The request was not complete in time"),
    "conflict": (409, "Conflict with the current state"),
    "dataset-gone": (410, "The dataset was dropped"),
    "position-gone": (410, "That position of the change feed is not available"),
    "version-changed": (412, "The record has changed since it was read"),
    "too-large": (413, "The body is too large"),
    "uri-too-long": (414, "The URL is too long"),
    "unsupported-media-type": (415, "The media type of the body is not supported"),
    "key-reused": (422, "The idempotency key was used for another request"),
    "misdirected": (421, "This host name is not served"),
    "unprocessable": (422, "The body is invalid"),
    "headers-too-large": (431, "The headers are too large"),
    "rate-limited": (429, "Too many requests"),
    "internal": (500, "Internal error"),
    "stopping": (503, "The process is shutting down"),
    "overloaded": (503, "Too many requests at once"),
    "unavailable": (503, "A store is unavailable"),
    "read-only": (503, "The database may only be read"),
    "took-too-long": (504, "The response took too long"),
}


def problem_of(error: PenstockError) -> Problem:  # noqa: C901, PLR0911, PLR0912 (a case a kind)
    """Return the problem of an error; never with a driver's text."""
    match error:
        case BadRequest():
            in_body = all(flaw.pointer.startswith("/") for flaw in error.flaws)
            code = "unprocessable" if in_body else "bad-request"
            return Problem(code, str(error), flaws=error.flaws)
        case NotFound(among=str() as among):
            # the error's own remedy is a command, which HTTP clients cannot run
            return Problem("not-found", f"{error.message}; see /api/v1/{among}")
        case NoSuchRecord() | NotFound():
            return Problem("not-found", str(error))
        case RequestInProgress():
            return Problem("conflict", str(error), headers={"retry-after": "1"})
        case DatasetGone():
            return Problem("dataset-gone", str(error))
        case Conflict():
            return Problem("conflict", str(error))
        case IdempotencyKeyReused():
            return Problem("key-reused", str(error))
        case VersionChanged():
            return Problem("version-changed", str(error))
        case PositionGone():
            members = {} if error.next is None else {"next": error.next}
            return Problem("position-gone", str(error), members=members)
        case StoreRefused():
            return Problem("unprocessable", "the database rejects a value")
        case Unauthenticated() | Forbidden():
            return access_problem(error)
        case Overloaded():
            return Problem("overloaded", str(error), headers={"retry-after": "1"})
        case StoreReadOnly():
            return Problem("read-only", "this server only reads its database")
        case StoreUnavailable():
            return store_problem(error)
        case _:
            return Problem("internal", "see the log by the trace id")


def access_problem(error: Unauthenticated | Forbidden) -> Problem:
    """Return the problem of a token, with the challenge of RFC 6750."""
    if isinstance(error, Forbidden):
        challenge = f'{CHALLENGE}, error="insufficient_scope", scope="{error.scope}"'
        code = "forbidden"
    else:
        challenge = f'{CHALLENGE}, error="invalid_token"'
        code = "unauthenticated"
    return Problem(code, str(error), headers={"www-authenticate": challenge})


def store_problem(error: StoreUnavailable) -> Problem:
    """Distinguish a query that takes too long from a store that does not respond."""
    if isinstance(error, StoreTimeout):
        return Problem("took-too-long", "the query was cancelled at its time limit")
    text, seconds = "a store does not respond; try again", 1
    if isinstance(error, JwksUnavailable):
        text = "the token cannot be verified now; try again"
        seconds = max(1, math.ceil(error.retry_after.total_seconds()))
    return Problem("unavailable", text, headers={"retry-after": str(seconds)})
