"""Rows, pages, records, rejections, and the cursor from which an import resumes."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from penstock.domain.exact_decimals import write_briefly
from penstock.errors import CursorUnreadable, PageRepeats

# where a source continues; written and read by the source only
Position: TypeAlias = Mapping[str, object]
Key: TypeAlias = tuple[object, ...]


class Proof(StrEnum):
    """What proved that a shard has no more records."""

    EMPTY_PAGE = "empty_page"
    SHORT_PAGE = "short_page"
    NO_NEXT = "no_next"
    END_OF_RANGE = "end_of_range"
    WHOLE = "whole"
    # an earlier import proved it, and neither the files nor the rows have changed
    UNCHANGED = "unchanged"


class Reason(StrEnum):
    """Why a row is in quarantine."""

    # files: it cannot be parsed as a row
    TOO_FEW_VALUES = "too_few_values"
    TOO_MANY_VALUES = "too_many_values"
    TEXT_AFTER_QUOTE = "text_after_quote"
    UNCLOSED_QUOTE = "unclosed_quote"
    UNDECODABLE = "undecodable"
    NUL = "nul"
    TOO_LONG = "too_long"
    # providers: it cannot be parsed as a record
    UNREADABLE = "unreadable"
    # one of its values is not allowed by its field
    MISSING = "missing"
    TYPE = "type"
    RANGE = "range"
    LENGTH = "length"
    PATTERN = "pattern"
    CHOICE = "choice"
    REFERENCE = "reference"
    # the database cannot hold it
    UNSTORABLE = "unstorable"
    # it is valid, but does not belong to its shard
    OUTSIDE = "outside"


# reasons for which no value of a row could be read
UNREADABLE_REASONS = frozenset(
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


class RawRow(NamedTuple):
    """One raw record: the values at the declared paths, and its own bytes."""

    values: tuple[object, ...]
    raw: bytes
    position: int
    # why it could not be parsed
    unreadable: str | None = None
    # its location in its file
    place: "RowLocation | None" = None
    # the reason code of `unreadable`
    flaw: Reason = Reason.UNREADABLE


class RowLocation(NamedTuple):
    """Where a row begins in a file."""

    line: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSummary:
    """The outcome of a committed page, by which it need not be parsed again.

    If the rows from its first to its last key are still stored as it wrote them, then
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
    # over all records, in key order
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedTotal:
    """How many records a shard has, as its first or last page says."""

    rows: int
    # what to raise if the pages end before
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What one request returns: either a next position or a proof of the end."""

    rows: Sequence[RawRow]
    # rows that the source could not parse, in addition to `rows`
    bad_rows: Sequence[RawRow] = ()
    next: Position | None = None
    proof: Proof | None = None
    # the provider's clock at its response
    provider_time: datetime | None = None
    # rows that the transform dropped, or that are empty
    dropped: int = 0
    # of two pages of one import with a row of the same key, the higher rank wins, and
    # the later page where ranks are equal
    rank: int = 0
    # the source has checked that the position increases, so its pages cannot loop
    rises: bool = False
    # it may share records with the next page, so only a repeated position shows a loop
    overlaps: bool = False
    announced: AnnouncedTotal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyPage:
    """A response that is parsed only if it is not recognised by its digest."""

    # over the response, and over how its source parses it
    digest: Callable[[], bytes]
    # the provider's clock at its response
    provider_time: datetime | None
    read: Callable[[], Page]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirect:
    """The provider redirected to another URL on the same host."""

    url: str


class Record(NamedTuple):
    """One mapped row: values in column order, its key and its content hash."""

    key: Key
    values: tuple[object, ...]
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """One bad row with its position, its reason and its raw bytes."""

    position: int
    reason: Reason
    detail: str
    raw: bytes
    field: str | None = None
    # None if the key itself could not be read
    key: Key | None = None
    # its location in its file
    place: RowLocation | None = None
    # a good row of the same key follows it on the page
    is_superseded: bool = False


# six bytes a key: whole pages are compared, so a collision of one key is harmless
FINGERPRINT_BYTES = 6


def fingerprint(value: object) -> str:
    return blake2b(repr(value).encode(), digest_size=FINGERPRINT_BYTES).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDetector:
    """Enough of a shard's past to detect that its pages repeat in a loop.

    The previous page catches a provider that repeats its last page. The anchor, moved
    to every page whose number is a power of two, catches a loop of any length (Brent's
    algorithm), in the memory of two pages.
    """

    previous: frozenset[str] = frozenset()
    anchor: frozenset[str] = frozenset()

    def after(self, keys: Iterable[object], *, page: int) -> "LoopDetector":
        """Return the state after one more page.

        Raises `PageRepeats` if all its keys are those of the previous page or anchor.
        """
        current = frozenset(map(fingerprint, keys))
        if current and (current <= self.previous or current <= self.anchor):
            raise PageRepeats(
                f"page {page} brings no record that its shard has not had before: "
                "the provider repeats itself; check source.pages"
            )
        is_power_of_two = page & (page - 1) == 0
        return LoopDetector(
            previous=current, anchor=current if is_power_of_two else self.anchor
        )


CURSOR_VERSION = 1


def write_members(members: Mapping[str, object]) -> str:
    """Write JSON whose decimals are numbers with all of their digits."""
    written = (f"{json.dumps(name)}:{write_member(it)}" for name, it in members.items())
    return f"{{{','.join(written)}}}"


def write_member(value: object) -> str:
    if isinstance(value, Decimal):
        return write_briefly(value)
    if isinstance(value, Mapping):
        return write_members(value)
    return json.dumps(value, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The opaque, versioned position after a committed page."""

    position: Position
    # rows this shard has yielded so far; compared with source.cap
    rows: int = 0
    loop_detector: LoopDetector = field(default_factory=LoopDetector)
    # how many rows the first page announced
    total: int | None = None

    def encode(self) -> str:
        members = {
            "v": CURSOR_VERSION,
            "at": self.position,
            "rows": self.rows,
            "previous": "".join(sorted(self.loop_detector.previous)),
            "anchor": "".join(sorted(self.loop_detector.anchor)),
            **({} if self.total is None else {"total": self.total}),
        }
        return write_members(members)

    @classmethod
    def decode(cls, text: str) -> "Cursor":
        try:
            document = json.loads(text, parse_float=Decimal)
            version = document["v"]
            if version != CURSOR_VERSION:
                raise CursorUnreadable(
                    f"the cursor has version {version}, this worker reads version "
                    f"{CURSOR_VERSION}; use the one that began the import"
                )
            trail = LoopDetector(
                previous=split_fingerprints(document["previous"]),
                anchor=split_fingerprints(document["anchor"]),
            )
            return cls(
                position=document["at"],
                rows=document["rows"],
                loop_detector=trail,
                total=document.get("total"),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CursorUnreadable(
                f"the cursor cannot be read: {text[:80]!r}"
            ) from error


def split_fingerprints(text: str) -> frozenset[str]:
    width = 2 * FINGERPRINT_BYTES
    return frozenset(text[at : at + width] for at in range(0, len(text), width))


# how many keys are shown that several rows have
MAX_KEY_EXAMPLES = 3


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
    # some of the keys that several of its good rows had
    repeated_keys: Sequence[Key] = ()
    # by which the page is recognised when it comes again, and its outcome
    imprint: bytes | None = None
    memo: PageSummary | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Rows by outcome; `seen` is the sum of the others without `deleted`."""

    pages: int = 0
    requests: int = 0
    seen: int = 0
    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    quarantined: int = 0
    dropped: int = 0
    # rows that lost to another row of their key
    duplicates: int = 0


def count_page(
    batch: Batch, *, inserted: int, updated: int, again: int, requests: int
) -> Counts:
    """Count the rows of one page by outcome.

    `again` are the rows whose key another page of the import already contained: each is
    a duplicate, whether it was ignored or replaced the other. Without ranks, these are
    only rows with other values: pages and shards may overlap.
    """
    good = batch.seen - batch.dropped - len(batch.rejections)
    # one row of each key; those of a page that was recognised are only in its summary
    stored = len(batch.records) if batch.memo is None else batch.memo.records
    duplicates = again + good - stored
    written = inserted + updated
    return Counts(
        pages=1,
        requests=requests,
        seen=batch.seen,
        inserted=inserted,
        updated=updated,
        unchanged=good - written - duplicates,
        quarantined=len(batch.rejections),
        dropped=batch.dropped,
        duplicates=duplicates,
    )
