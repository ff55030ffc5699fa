"""Every error, sorted by what the caller does next.

PenstockError
├── RetryLater            the same page may succeed later; costs an attempt
│   ├── SourceUnavailable     the provider did not respond with data
│   └── StoreRefused          the database does not accept the data
│       └── RowsRefused           some rows are invalid for it; the others are valid
├── StoreUnavailable      a store is unavailable: wait for it; costs no attempt
│   ├── StoreTimeout          the query would take longer than allowed
│   └── JwksUnavailable       the keys of the token issuer cannot be fetched
├── TransportUnavailable  messages cannot be sent: they wait in the outbox
├── Throttled             the provider requests a pause: close the budget, snooze
├── AccessRefused         the provider refuses access: stop the budget, snooze
├── Snooze                wait; costs no attempt
│   ├── BudgetClosed          no token within the allowed wait
│   └── BudgetStopped         closed until an operator opens it
├── Interrupted           the process is stopping: release the job
├── LeaseLost             another worker owns the job: stop, write nothing
├── Rejected              wrong, and will stay wrong: dead letter
│   ├── RequestRefused        the provider refuses this request
│   ├── ResponseTooLarge      the response is larger than allowed
│   ├── PageRepeats           the provider sends the same page again
│   ├── FilterIgnored         most of a page lies outside its shard
│   ├── FiltersIgnored        shards have the same records: fail the import
│   ├── CannotSplit           truncated by the provider, and already smallest
│   ├── CursorUnreadable      written by another version
│   ├── ExpandsTooLarge       the file decompresses to more than allowed
│   └── TooManyBadRows        more bad rows than the dataset tolerates: fail the import
│       └── TooManyEmptyLines     almost only empty lines
├── ClientError           a client has to change its request; the API says how
│   ├── BadRequest            the request has errors, each with its location
│   ├── NoSuchRecord          there is no such row, or it was deleted
│   ├── VersionChanged        the row was changed since the client read it
│   ├── PositionGone          the history of the dataset has no such change (any more)
│   ├── DatasetGone           the dataset was dropped
│   ├── Conflict              the current state does not allow the request
│   │   └── RequestInProgress     the same request is being processed
│   ├── IdempotencyKeyReused  the key was used for another request
│   ├── Unauthenticated       no token, or one that is not valid
│   ├── Forbidden             the token does not allow this request
│   └── Overloaded            too many requests at once: retry in a moment
└── Misconfigured         an operator has to act; the message says what
    ├── StoreReadOnly         the database may only be read here
    └── NotFound              a name or an id that does not exist

Messages are lower case and without a full stop; they name the location and the remedy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, NamedTuple


class PenstockError(Exception):
    """Anything Penstock raises on purpose; `code` is stable and machine-readable."""

    code: ClassVar[str] = "error"


class RetryLater(PenstockError):
    """The same page may succeed later."""

    code = "retry"

    def __init__(self, message: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class SourceUnavailable(RetryLater):
    """The provider did not respond with data."""

    code = "source_unavailable"


class StoreRefused(RetryLater):
    """The database does not accept the data."""

    code = "store_refused"


class Refused(NamedTuple):
    """Why the database cannot store a row."""

    detail: str
    field: str | None = None
    # the message of the driver, for operators only
    cause: str | None = None

    def __str__(self) -> str:
        return self.detail if self.cause is None else f"{self.detail}: {self.cause}"


class RowsRefused(StoreRefused):
    """The database cannot store some of the rows; nothing was written."""

    code = "rows_refused"

    def __init__(self, message: str, refused: Mapping[bytes, Refused]) -> None:
        super().__init__(message)
        # by the digest of the record
        self.refused = refused


class StoreUnavailable(PenstockError):
    """A store is unavailable; this costs no attempt."""

    code = "store_unavailable"


class StoreTimeout(StoreUnavailable):
    """The query would take longer than allowed."""

    code = "store_too_slow"


class JwksUnavailable(StoreUnavailable):
    """The keys of the token issuer cannot be fetched, so no token can be verified."""

    code = "keys_unavailable"

    def __init__(self, host: str, *, reason: str, retry_after: timedelta) -> None:
        super().__init__(f"the token cannot be verified: {host!r} {reason}")
        self.retry_after = retry_after


class Snooze(PenstockError):
    """Wait; this costs no attempt."""

    code = "snooze"

    def __init__(self, message: str, *, wait: timedelta) -> None:
        super().__init__(message)
        self.wait = wait


class TransportUnavailable(PenstockError):
    """Messages cannot be sent; they wait in the outbox."""

    code = "transport_unavailable"


class Throttled(PenstockError):
    """The provider requested a pause; the budget is closed for all workers."""

    code = "throttled"

    def __init__(self, message: str, *, retry_after: timedelta | None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class AccessRefused(PenstockError):
    """The provider refuses access; the budget stays closed until an operator acts."""

    code = "stopped"

    def __init__(self, status: int, *, body: str) -> None:
        detail = f": {body}" if body else ""
        super().__init__(f"the provider answered {status}{detail}")
        self.status = status


class BudgetClosed(Snooze):
    """No token within the allowed wait."""

    code = "budget_closed"

    def __init__(self, budget: str, *, wait: timedelta) -> None:
        super().__init__(
            f"budget {budget!r} has no token for {wait.total_seconds():.1f} s",
            wait=wait,
        )
        self.budget = budget


class BudgetStopped(Snooze):
    """Closed until an operator opens it."""

    code = "budget_stopped"

    def __init__(self, budget: str, *, reason: str, wait: timedelta) -> None:
        super().__init__(
            f"budget {budget!r} is stopped ({reason}); "
            f"open it with: penstock budgets open {budget}",
            wait=wait,
        )
        self.budget = budget
        self.reason = reason


class Interrupted(PenstockError):
    """The process is stopping."""

    code = "interrupted"


class LeaseLost(PenstockError):
    """The lease has ended: another worker owns the job, or it has ended."""

    code = "lease_lost"

    def __init__(self, job: int, *, fence: int) -> None:
        super().__init__(f"job {job} has moved past fence {fence}")


class Rejected(PenstockError):
    """The input is wrong and will stay wrong."""

    code = "rejected"


class RequestRefused(Rejected):
    """The provider refuses this request."""

    code = "request_refused"


class ResponseTooLarge(Rejected):
    """The response is larger than allowed."""

    code = "answer_too_large"


class PageRepeats(Rejected):
    """The provider sends the same page again."""

    code = "page_repeats"


class FilterIgnored(Rejected):
    """Most of a page lies outside its shard: the provider ignores the filter."""

    code = "filter_ignored"

    def __init__(self, shard: str, *, outside: int, rows: int, reason: str) -> None:
        super().__init__(
            f"{outside} of {rows} records lie outside shard {shard!r} ({reason}); "
            "the provider seems to ignore the filter, or its check is declared wrong"
        )


class FiltersIgnored(Rejected):
    """Two shards begin with the same records: the provider ignores their filters."""

    code = "filters_ignored"

    def __init__(self, filters: str, *, shard: str, other: str) -> None:
        super().__init__(
            f"the provider seems to ignore {filters}: shards {other!r} and {shard!r} "
            "begin with the same records; fix the send of the axis, or give it a check "
            "if records may belong to both"
        )


class CannotSplit(Rejected):
    """The provider truncates the shard, and it cannot be made smaller."""

    code = "cannot_split"


class CursorUnreadable(Rejected):
    """The resume point was written by another version."""

    code = "cursor_unreadable"


class ExpandsTooLarge(Rejected):
    """The file decompresses to more than allowed."""

    code = "unpacks_too_large"

    def __init__(self, file: str, *, most: int, limit: str) -> None:
        self.detail = (
            f"decompresses to more than {most} bytes, which is more than {limit}"
        )
        super().__init__(f"{file} {self.detail}")


class TooManyBadRows(Rejected):
    """More bad rows than the dataset tolerates."""

    code = "too_many_bad_rows"


class TooManyEmptyLines(TooManyBadRows):
    """More empty lines than rows, and than the dataset tolerates."""

    code = "too_many_empty_lines"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One error in a client's request."""

    # `?sort` for a parameter, `/points` for a path in the body, `#If-Match` a header
    pointer: str
    code: str
    detail: str


class ClientError(PenstockError):
    """A client has to change its request."""

    code = "unanswerable"


class BadRequest(ClientError):
    """The request has errors, each with its location."""

    code = "bad_request"

    def __init__(self, *flaws: FieldError) -> None:
        messages = (f"{flaw.pointer.lstrip('?#')} {flaw.detail}" for flaw in flaws)
        super().__init__("; ".join(messages))
        self.flaws = flaws


class NoSuchRecord(ClientError):
    """There is no such row, or it was deleted."""

    code = "no_such_record"


class VersionChanged(ClientError):
    """The row was changed since the client read it."""

    code = "version_changed"


class PositionGone(ClientError):
    """The history of a dataset has no such change, or not any more.

    The database was restored to an older state, the dataset was dropped, or the entry
    was removed from the feed.
    """

    code = "position_gone"

    def __init__(self, dataset: str, position: str) -> None:
        super().__init__(
            f"change {position} is not in the history of {dataset!r}: "
            "the database was restored, the dataset was dropped, "
            "or the entry is older than the feed; read all records again with the "
            "X-Consistency-Token of this response, then follow changes after its 'next'"
        )
        # the position to continue from, once it is known
        self.next: str | None = None


class DatasetGone(ClientError):
    """The dataset was dropped while this process serves it."""

    code = "dataset_gone"

    def __init__(self, dataset: str) -> None:
        super().__init__(
            f"dataset {dataset} was dropped since this process has read its "
            "declaration; to import it again, start the process again"
        )


class Conflict(ClientError):
    """The current state does not allow the request."""

    code = "conflict"


class RequestInProgress(Conflict):
    """The same request is being processed."""

    code = "still_at_work"

    def __init__(self, key: str) -> None:
        super().__init__(
            f"a request with the key {key!r} is being processed; retry later"
        )


class IdempotencyKeyReused(ClientError):
    """The key was used for another request."""

    code = "key_reused"

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {key!r} was used for another request; use a new one")


class Unauthenticated(ClientError):
    """There is no token, or it is not valid.

    The message says why, and contains no part of the token.
    """

    code = "unauthenticated"


class Forbidden(ClientError):
    """The token does not allow this request."""

    code = "forbidden"

    def __init__(self, scope: str) -> None:
        super().__init__(
            f"the token lacks the scope {scope!r}; request one that has it"
        )
        self.scope = scope


class Overloaded(ClientError):
    """Too many requests at once; the same request may succeed in a moment."""

    code = "overloaded"

    def __init__(self, what: str) -> None:
        super().__init__(f"too many {what} at once; retry in a moment")


class Misconfigured(PenstockError):
    """An operator has to act; each problem names its location and a remedy."""

    code = "misconfigured"

    def __init__(self, *problems: str, advice: Sequence[str] = ()) -> None:
        super().__init__("\n".join([*problems, *advice]))
        self.problems = problems


class StoreReadOnly(Misconfigured):
    """The database may only be read by this process."""

    code = "read_only"


class FilesMissing(Misconfigured):
    """Files of a dataset are not visible to this process."""

    code = "files_missing"


class NotFound(Misconfigured):
    """A name or an id that does not exist."""

    code = "not_found"

    def __init__(self, message: str, *, among: str | None = None) -> None:
        super().__init__(
            message if among is None else f"{message}; see: penstock {among}"
        )
        self.message = message
        # the command, or the path of the API, that lists existing ones
        self.among = among
