"""How a page is written: the one place that decides it, and what the choice needs."""

from dataclasses import dataclass, field
from enum import Enum

from penstock.domain.dataset import Dataset

# pages that are not written by a single statement after one was refused
FALLBACK_PAGES = 50


@dataclass(slots=True)
class TableState:
    """What a process has observed of a dataset's table; no statement depends on it.

    Threads share it without a lock: what is out of date costs time, never rows.
    """

    # all rows of the last page that was compared were new
    expects_new_rows: bool = True
    # pages to write otherwise before a single statement is tried again
    fallback_pages: int = 0
    # the indexes that a search has found to exist
    valid_indexes: set[str] = field(default_factory=set)

    def may_use_single_statement(self) -> bool:
        """Return whether to try one; where not, count down to the next attempt."""
        if self.fallback_pages > 0:
            self.fallback_pages -= 1
            return False
        return True


class PageWrite(Enum):
    """The ways to write the rows of a page, the fastest first."""

    # rows, job, counts and changes in one statement, which is its own transaction
    SINGLE_STATEMENT = "store_page"
    # in the transaction of the page, without comparing: two thirds of the time
    INSERT = "insert"
    # each row is compared with the stored one
    COMPARE = "merge"
    # the same, after the stored rows are locked
    LOCK_AND_COMPARE = "lock_rows, merge"


def choose_page_write(
    dataset: Dataset,
    state: TableState,
    *,
    rows: int,
    is_retry: bool = False,
    is_insert_only: bool = False,
) -> PageWrite:
    """Choose how to write the rows of a page.

    - Lock and compare, if the transaction was tried before: others change these rows.
    - Compare, if rows may exist: the page before had some. Also a single row, which
      says too little about the next page, and a partitioned table, whose key is unique
      within a partition only.
    - Insert, if the page does more than insert rows (not `is_insert_only`): it has bad
      rows, or its import tracks which rows it has seen. Also for a while after a single
      statement was refused.
    - A single statement otherwise.

    An insert or a single statement that meets an existing row writes nothing, and the
    page is compared instead.
    """
    if is_retry:
        return PageWrite.LOCK_AND_COMPARE
    if not state.expects_new_rows or rows <= 1 or dataset.partition is not None:
        return PageWrite.COMPARE
    if is_insert_only and state.may_use_single_statement():
        return PageWrite.SINGLE_STATEMENT
    return PageWrite.INSERT
