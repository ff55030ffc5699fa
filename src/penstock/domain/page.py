"""What is fetched and kept: rows, pages, records, rejections and the resume point."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from penstock.errors import CursorUnreadable, PageRepeats

# where a source goes on: its own words, kept by us unread
Position: TypeAlias = Mapping[str, object]
Key: TypeAlias = tuple[object, ...]


class Proof(StrEnum):
    """What showed that a shard has no more records."""

    EMPTY_PAGE = "empty_page"
    SHORT_PAGE = "short_page"
    NO_NEXT = "no_next"
    END_OF_RANGE = "end_of_range"
    WHOLE = "whole"
    # an earlier import has shown it, and neither the files nor the rows have changed
    UNCHANGED = "unchanged"


class Reason(StrEnum):
    """Why a row is in quarantine."""

    # of a file, it is no row at all
    TOO_FEW_VALUES = "too_few_values"
    TOO_MANY_VALUES = "too_many_values"
    TEXT_AFTER_QUOTE = "text_after_quote"
    UNCLOSED_QUOTE = "unclosed_quote"
    UNDECODABLE = "undecodable"
    NUL = "nul"
    TOO_LONG = "too_long"
    # of a provider, it is no record at all
    UNREADABLE = "unreadable"
    # one of its values is not what a field allows
    MISSING = "missing"
    TYPE = "type"
    RANGE = "range"
    LENGTH = "length"
    PATTERN = "pattern"
    CHOICE = "choice"
    REFERENCE = "reference"
    # the database cannot hold it
    UNSTORABLE = "unstorable"
    # it is good, but not of its shard
    OUTSIDE = "outside"


# what tells that nothing of a row could be read
FLAWS = frozenset(
    {
        Reason.TOO_FEW_VALUES,
        Reason.TOO_MANY_VALUES,
        Reason.TEXT_AFTER_QUOTE,
        Reason.UNCLOSED_QUOTE,
        Reason.UNDECODABLE,
        Reason.NUL,
        Reason.TOO_LONG,
        Reason.UNREADABLE,
    }
)


class Row(NamedTuple):
    """One raw record: the values at the declared paths, and its own bytes."""

    values: tuple[object, ...]
    raw: bytes
    position: int
    # why it could not be read at all
    unreadable: str | None = None
    # where it stands in its file
    place: "Place | None" = None
    # which of the flaws that is
    flaw: Reason = Reason.UNREADABLE


class Place(NamedTuple):
    """Where a row begins in a file."""

    line: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Memo:
    """What a page brought, so that it need not be read again to know.

    If the rows from its first to its last key are stored just as it brought them, then
    committing it once more would change nothing.
    """

    seen: int
    dropped: int
    # encoded; None with a proof
    cursor: str | None
    proof: Proof | None
    records: int
    first: Key
    last: Key
    # of all records, in the order of their keys
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What one request yields: either a next position or a proof of the end."""

    rows: Sequence[Row]
    # rows that are known to be bad, beside the others
    flawed: Sequence[Row] = ()
    next: Position | None = None
    proof: Proof | None = None
    # the provider's own clock when it answered
    provider_time: datetime | None = None
    # rows that the transform dropped on purpose, or that are empty
    dropped: int = 0
    # which of two pages of one import wins where both have a row of the same key: the
    # higher, and the later where they are equal
    rank: int = 0
    # the source has seen the position rise, so its pages cannot go round in a circle
    rises: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """An answer that may have come before; whoever does not know it reads it."""

    # of the answer, and of how its source reads it
    digest: Callable[[], bytes]
    # the provider's own clock when it answered
    provider_time: datetime | None
    read: Callable[[], Page]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The provider answered with another address on the same host."""

    url: str


class Record(NamedTuple):
    """One mapped row: values in column order, its key and its content hash."""

    key: Key
    values: tuple[object, ...]
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """One bad row with its place, its reason and its raw form."""

    position: int
    reason: Reason
    detail: str
    raw: bytes
    field: str | None = None
    # known where the key itself could be read
    key: Key | None = None
    # where it stands in its file
    place: Place | None = None
    # a good row of its key stands after it on the page
    is_outdone: bool = False


# six bytes a key: whole pages are compared, so a chance match of one key is harmless
FINGERPRINT = 6


def fingerprint(value: object) -> str:
    return blake2b(repr(value).encode(), digest_size=FINGERPRINT).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """Enough of a shard's past to notice that its pages go round in a circle.

    The previous page catches a provider that repeats its last page. The anchor, moved
    to every page whose number is a power of two, catches a circle of any length
    (Brent's algorithm), so memory stays that of two pages.
    """

    previous: frozenset[str] = frozenset()
    anchor: frozenset[str] = frozenset()

    def after(self, keys: Iterable[object], *, page: int) -> "Trail":
        """Go on by one page; raise `PageRepeats` if it brings no unseen key."""
        now = frozenset(map(fingerprint, keys))
        if now and (now <= self.previous or now <= self.anchor):
            raise PageRepeats(
                f"page {page} brings no record that its shard has not had before: "
                "the provider repeats itself; check source.pages"
            )
        is_power_of_two = page & (page - 1) == 0
        return Trail(previous=now, anchor=now if is_power_of_two else self.anchor)


CURSOR_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The opaque, versioned point after a committed page."""

    position: Position
    # rows this shard has yielded so far; compared with source.cap
    rows: int = 0
    trail: Trail = field(default_factory=Trail)

    def encode(self) -> str:
        return json.dumps(
            {
                "v": CURSOR_VERSION,
                "at": self.position,
                "rows": self.rows,
                "previous": "".join(sorted(self.trail.previous)),
                "anchor": "".join(sorted(self.trail.anchor)),
            },
            separators=(",", ":"),
        )

    @classmethod
    def decode(cls, text: str) -> "Cursor":
        try:
            told = json.loads(text)
            version = told["v"]
            if version != CURSOR_VERSION:
                raise CursorUnreadable(
                    f"the cursor has version {version}, this worker reads version "
                    f"{CURSOR_VERSION}; use the one that began the import"
                )
            trail = Trail(previous=cut(told["previous"]), anchor=cut(told["anchor"]))
            return cls(position=told["at"], rows=told["rows"], trail=trail)
        except (ValueError, KeyError, TypeError) as error:
            raise CursorUnreadable(
                f"the cursor cannot be read: {text[:80]!r}"
            ) from error


def cut(text: str) -> frozenset[str]:
    width = 2 * FINGERPRINT
    return frozenset(text[at : at + width] for at in range(0, len(text), width))


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Everything one page changes, committed in one transaction."""

    records: Sequence[Record]
    rejections: Sequence[Rejection] = ()
    seen: int
    dropped: int = 0
    # encoded; None with a proof
    cursor: str | None = None
    proof: Proof | None = None
    provider_time: datetime | None = None
    rank: int = 0
    # by which the page is recognised when it comes again, and what is known of it then
    imprint: bytes | None = None
    memo: Memo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What became of the rows; seen is the sum of the others without deleted."""

    pages: int = 0
    requests: int = 0
    seen: int = 0
    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    quarantined: int = 0
    dropped: int = 0
    # rows of files whose key had come before
    duplicates: int = 0


def count_page(
    batch: Batch, *, inserted: int, updated: int, again: int, requests: int
) -> Counts:
    """Count what became of the rows of one page.

    `again` are the rows whose key another page of the import had already brought: each
    is a duplicate, whether it gave way or took the other's place.
    """
    good = batch.seen - batch.dropped - len(batch.rejections)
    # within a page, too, the last one counts
    duplicates = again + good - len(batch.records) if batch.rank else 0
    written = inserted + updated
    return Counts(
        pages=1,
        requests=requests,
        seen=batch.seen,
        inserted=inserted,
        updated=updated,
        # elsewhere a duplicate inside the page is a row that changed nothing
        unchanged=good - written - duplicates,
        quarantined=len(batch.rejections),
        dropped=batch.dropped,
        duplicates=duplicates,
    )
