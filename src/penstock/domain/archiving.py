"""Which rows were not seen in the source for so long that they are archived."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.domain.completion import MissingRows, doubt_missing
from penstock.domain.dataset import Dataset
from penstock.domain.jobs import ImportId


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A proven full import that stored of each row whether it has seen it."""

    import_id: ImportId
    started_at: datetime
    # its end, or that of the last import that found the same files unchanged
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveCut:
    """Rows last seen by this import or an earlier one are archived."""

    last_seen_by: ImportId
    seen_at: datetime
    # the newest proven full import: it has not seen them
    missed_by: ImportId
    # rows that were written since its start stay
    written_before: datetime


def find_cut(
    sightings: Sequence[Sighting], *, after: timedelta, now: datetime
) -> ArchiveCut | None:
    """Decide which rows are archived; None: no row was missing for so long.

    A row was last seen by the import that it names. If that was no proven full one,
    the next of these did not see the row, so its end is the latest possible time.
    """
    in_order = sorted(sightings, key=lambda sighting: sighting.import_id)
    # not the newest: only a later import can have missed the rows of another
    old = [each for each in in_order[:-1] if each.seen_at <= now - after]
    if not old:
        return None
    last, newest = old[-1], in_order[-1]
    return ArchiveCut(
        last_seen_by=last.import_id,
        seen_at=last.seen_at,
        missed_by=newest.import_id,
        written_before=newest.started_at,
    )


def judge_archive(missed: MissingRows, dataset: Dataset) -> str | None:
    """Return why these rows must not be archived, or None."""
    doubt = doubt_missing(missed, dataset, aim="to have rows archived")
    if doubt is None:
        return None
    return f"{missed.missing} rows were not archived: {doubt}"
