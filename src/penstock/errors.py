"""Every error, sorted by what the caller does next.

PenstockError
├── RetryLater            the same page may succeed later; costs an attempt
│   ├── SourceUnavailable     the provider did not answer with data
│   └── StoreRefused          the database will not store what it was given
│       └── RowsRefused           some of the rows, which are bad; the others are good
├── StoreUnavailable      a store did not answer: wait for it; costs no attempt
│   ├── StoreTooSlow          it was not given the time that the answer would take
│   └── KeysUnavailable       the issuer of tokens has not shown its keys
├── Throttled             the provider asks for a pause: close the budget, snooze
├── AccessStopped         the provider shut the door: stop the budget, snooze
├── Snooze                wait without blame; costs no attempt
│   ├── BudgetClosed          no token within the time we may wait
│   └── BudgetStopped         closed until an operator opens it
├── Interrupted           we were asked to stop: release the job
├── LeaseLost             another worker owns the job: stop, write nothing
├── Rejected              wrong, and will stay wrong: dead letter
│   ├── RequestRefused        the provider refuses this request
│   ├── AnswerTooLarge        the answer is larger than we accept
│   ├── PageRepeats           the provider sends the same page again
│   ├── FilterIgnored         most of a page lies outside its shard
│   ├── CannotSplit           cut off by the provider, and already smallest
│   ├── CursorUnreadable      written by another version
│   ├── UnpacksTooLarge       what was sent unpacks to more than we accept
│   └── TooManyBadRows        more bad rows than the dataset tolerates: fail the import
│       └── TooManyEmptyLines     next to nothing but empty lines
├── Unanswerable          a client has to ask otherwise; the API says how
│   ├── BadRequest            what was asked has flaws, each with its place
│   ├── NoSuchRecord          there is no such row, or it was deleted
│   ├── VersionChanged        somebody has changed the row since it was read
│   ├── PositionGone          the history of the dataset has no such change (any more)
│   ├── Conflict              it is in another state than the client thinks
│   │   └── StillAtWork           the same request is being worked on
│   ├── KeyReused             the key of a request was used for something else
│   ├── Unauthenticated       nobody knows who asks: no token, or one to be refused
│   ├── Forbidden             who asks is known, and may not do this
│   └── Overloaded            too much is asked at once: ask again in a moment
└── Misconfigured         an operator has to act; the message says what
    └── NotFound              a name or an id that does not exist

Messages are lower case and without a full stop; they name the place and the remedy.
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
    """The provider did not answer with data."""

    code = "source_unavailable"


class StoreRefused(RetryLater):
    """The database will not store what it was given."""

    code = "store_refused"


class Refused(NamedTuple):
    """Why the database cannot hold a row."""

    detail: str
    field: str | None = None
    # what the driver says, for operators only
    cause: str | None = None

    def __str__(self) -> str:
        return self.detail if self.cause is None else f"{self.detail}: {self.cause}"


class RowsRefused(StoreRefused):
    """The database cannot hold some of the rows; nothing was written."""

    code = "rows_refused"

    def __init__(self, message: str, refused: Mapping[bytes, Refused]) -> None:
        super().__init__(message)
        # by the digest of the record
        self.refused = refused


class StoreUnavailable(PenstockError):
    """A store did not answer; nobody is to blame for it."""

    code = "store_unavailable"


class StoreTooSlow(StoreUnavailable):
    """The store was not given the time that the answer would take."""

    code = "store_too_slow"


class KeysUnavailable(StoreUnavailable):
    """The issuer of tokens has not shown its keys, so none can be judged."""

    code = "keys_unavailable"

    def __init__(self, host: str, *, reason: str, retry_after: timedelta) -> None:
        super().__init__(f"the token cannot be verified: {host!r} {reason}")
        self.retry_after = retry_after


class Snooze(PenstockError):
    """Wait without blame: it costs no attempt."""

    code = "snooze"

    def __init__(self, message: str, *, wait: timedelta) -> None:
        super().__init__(message)
        self.wait = wait


class Throttled(PenstockError):
    """The provider asked for a pause; the budget is closed for everyone."""

    code = "throttled"

    def __init__(self, status: int, *, retry_after: timedelta | None) -> None:
        asked = (
            "without saying how long"
            if retry_after is None
            else f"for {retry_after.total_seconds():g} s"
        )
        super().__init__(f"the provider answered {status} and asks to wait {asked}")
        self.retry_after = retry_after


class AccessStopped(PenstockError):
    """The provider shut the door; the budget stays closed until an operator acts."""

    code = "stopped"

    def __init__(self, status: int, *, body: str) -> None:
        said = f": {body}" if body else ""
        super().__init__(f"the provider answered {status}{said}")
        self.status = status


class BudgetClosed(Snooze):
    """No token within the time we may wait."""

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
    """We were asked to stop."""

    code = "interrupted"


class LeaseLost(PenstockError):
    """Another worker owns the job, or nobody does any more."""

    code = "lease_lost"

    def __init__(self, job: int, *, fence: int) -> None:
        super().__init__(f"job {job} has moved past fence {fence}")


class Rejected(PenstockError):
    """The input is wrong and will stay wrong."""

    code = "rejected"


class RequestRefused(Rejected):
    """The provider refuses this request."""

    code = "request_refused"


class AnswerTooLarge(Rejected):
    """The answer is larger than we accept."""

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


class CannotSplit(Rejected):
    """The provider cuts the shard off, and it cannot be made smaller."""

    code = "cannot_split"


class CursorUnreadable(Rejected):
    """The resume point was written by another version."""

    code = "cursor_unreadable"


class UnpacksTooLarge(Rejected):
    """What was sent unpacks to more than we accept."""

    code = "unpacks_too_large"

    def __init__(self, file: str, *, most: int, limit: str) -> None:
        self.detail = f"unpacks to more than {most} bytes, which is more than {limit}"
        super().__init__(f"{file} {self.detail}")


class TooManyBadRows(Rejected):
    """More bad rows than the dataset tolerates."""

    code = "too_many_bad_rows"


class TooManyEmptyLines(TooManyBadRows):
    """More empty lines than rows, and than the dataset tolerates."""

    code = "too_many_empty_lines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """One thing that is wrong with what a client sent."""

    # `?sort` for a parameter, `/points` for a place in the body, `#If-Match` a header
    pointer: str
    code: str
    detail: str


class Unanswerable(PenstockError):
    """A client has to ask otherwise."""

    code = "unanswerable"


class BadRequest(Unanswerable):
    """What was asked has flaws, each with its place."""

    code = "bad_request"

    def __init__(self, *flaws: Flaw) -> None:
        told = (f"{flaw.pointer.lstrip('?#')} {flaw.detail}" for flaw in flaws)
        super().__init__("; ".join(told))
        self.flaws = flaws


class NoSuchRecord(Unanswerable):
    """There is no such row, or it was deleted."""

    code = "no_such_record"


class VersionChanged(Unanswerable):
    """Somebody has changed the row since it was read."""

    code = "version_changed"


class PositionGone(Unanswerable):
    """The history of a dataset has no such change, or not any more.

    The database was put back to an older state, the dataset was dropped, or the entry
    was removed from the feed.
    """

    code = "position_gone"

    def __init__(self, dataset: str, position: str) -> None:
        super().__init__(
            f"change {position} is not known in the history of {dataset!r}: "
            "the database was put back, the dataset was dropped, "
            "or the entry is older than the feed; read all records again with the "
            "X-Consistency-Token of this answer, then follow changes after its 'next'"
        )
        # from where to go on, once it is known
        self.next: str | None = None


class Conflict(Unanswerable):
    """It is in another state than the client thinks."""

    code = "conflict"


class StillAtWork(Conflict):
    """The same request is being worked on."""

    code = "still_at_work"

    def __init__(self, key: str) -> None:
        super().__init__(
            f"a request with the key {key!r} is being worked on; ask again"
        )


class KeyReused(Unanswerable):
    """The key of a request was used for something else."""

    code = "key_reused"

    def __init__(self, key: str) -> None:
        super().__init__(
            f"the key {key!r} was used for another request; take a new one"
        )


class Unauthenticated(Unanswerable):
    """Nobody knows who asks: there is no token, or it is not to be believed.

    The message says why, and never a word of the token.
    """

    code = "unauthenticated"


class Forbidden(Unanswerable):
    """Who asks is known, and may not do this."""

    code = "forbidden"

    def __init__(self, scope: str) -> None:
        super().__init__(
            f"the token lacks the scope {scope!r}; ask for one that has it"
        )
        self.scope = scope


class Overloaded(Unanswerable):
    """Too much is asked at once; the same may be answered in a moment."""

    code = "overloaded"

    def __init__(self, what: str) -> None:
        super().__init__(f"too many {what} at once; ask again in a moment")


class Misconfigured(PenstockError):
    """An operator has to act; each problem names its place and a remedy."""

    code = "misconfigured"

    def __init__(self, *problems: str, advice: Sequence[str] = ()) -> None:
        super().__init__("\n".join([*problems, *advice]))
        self.problems = problems


class NotFound(Misconfigured):
    """A name or an id that does not exist."""

    code = "not_found"

    def __init__(self, told: str, *, among: str | None = None) -> None:
        super().__init__(told if among is None else f"{told}; see: penstock {among}")
        self.told = told
        # the command, or the address, that lists those which do
        self.among = among
