"""Which old entries of the ledger may be removed, and which always stay."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from penstock.domain.jobs import ImportId


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """How long entries of the ledger are stored at least."""

    # imports that ended, with their jobs; and fires of schedules
    imports: timedelta = timedelta(days=90)
    # what other clients than feeders can read of the change feed
    changes: timedelta = timedelta(days=30)
    # the log of pages, of which jobs have the totals; and of claims
    pages: timedelta = timedelta(days=30)
    # bad rows that are resolved
    quarantine: timedelta = timedelta(days=365)
    # what happened per minute: requests, records, tokens
    rollups: timedelta = timedelta(days=30)


class KeepReason(StrEnum):
    """Why an old import stays."""

    NEWEST = "newest"
    REPEATED = "repeated"
    ROWS = "rows"
    BAD_ROWS = "bad_rows"
    FIRE = "fire"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedImport:
    """What decides about an import that was done or cancelled.

    Failed imports can be retried, and unfinished ones are in use: neither is removed.
    """

    id: ImportId
    dataset: str
    finished_at: datetime
    is_done: bool
    # its files were unchanged: its pages and bad rows are those of an earlier import
    is_unchanged: bool
    # the next import of its dataset and mode that was done
    next_done: ImportId | None
    next_is_unchanged: bool
    # rows store in which file of which import they were seen last
    has_files: bool
    has_bad_rows: bool

    @property
    def is_newest(self) -> bool:
        """No later import of its kind was done: the next one builds on it."""
        return self.is_done and self.next_done is None

    @property
    def is_repeated(self) -> bool:
        """Later imports refer to its pages and bad rows."""
        return self.is_done and self.next_is_unchanged and not self.is_unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """Decides which old imports may be removed."""

    # the imports of the fires that stay
    last_fires: Collection[ImportId]
    # returns the imports that brought the live rows of a dataset: without the list of
    # its files, rows of a missing file cannot be told from rows that were removed
    named_by_rows: Callable[[str], Collection[ImportId]]
    # those that may be removed
    expired: dict[ImportId, EndedImport] = field(default_factory=dict)

    def judge(self, ended: EndedImport) -> KeepReason | None:
        """Return why an import stays, or None; the newest must be judged first."""
        current = self.without_expired(ended)
        reason = self._why_it_stays(current)
        if reason is None:
            self.expired[current.id] = current
        return reason

    def without_expired(self, ended: EndedImport) -> EndedImport:
        """Return an import as it is once those that may be removed are gone."""
        if ended.next_done is None or ended.next_done not in self.expired:
            return ended
        later = self.expired[ended.next_done]
        return replace(
            ended,
            next_done=later.next_done,
            next_is_unchanged=later.next_is_unchanged,
        )

    def _why_it_stays(self, ended: EndedImport) -> KeepReason | None:
        if ended.is_newest:
            return KeepReason.NEWEST
        if ended.is_repeated:
            return KeepReason.REPEATED
        if ended.has_bad_rows:
            return KeepReason.BAD_ROWS
        if ended.id in self.last_fires:
            return KeepReason.FIRE
        if ended.has_files and ended.id in self.named_by_rows(ended.dataset):
            return KeepReason.ROWS
        return None


def can_remove_pages(ended: EndedImport) -> bool:
    """Return whether the log of its pages is needed no more.

    The audit reads that of the newest import, and later imports recognise its pages.
    """
    return not (ended.is_newest or ended.is_repeated)
