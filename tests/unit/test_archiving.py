"""Which rows are archived."""

from datetime import timedelta

from penstock.domain.archiving import ArchiveCut, Sighting, find_cut
from penstock.domain.jobs import ImportId
from tests.support.builders import HOUR, NOON

DAY = timedelta(days=1)
YEAR = 365 * DAY


def sighting(number: int, *, ago: timedelta) -> Sighting:
    return Sighting(
        import_id=ImportId(number), started_at=NOON - ago - HOUR, seen_at=NOON - ago
    )


def cut(*sightings: Sighting) -> ArchiveCut | None:
    return find_cut(sightings, after=YEAR, now=NOON)


def test_without_imports_nothing_is_archived():
    assert cut() is None


def test_one_import_has_missed_nothing():
    assert cut(sighting(1, ago=2 * YEAR)) is None


def test_the_last_import_of_long_ago_is_the_cut():
    found = cut(
        sighting(7, ago=DAY),
        sighting(3, ago=YEAR + DAY),
        sighting(4, ago=YEAR),
        sighting(5, ago=YEAR - DAY),
    )
    assert found == ArchiveCut(
        last_seen_by=ImportId(4),
        seen_at=NOON - YEAR,
        missed_by=ImportId(7),
        written_before=NOON - DAY - HOUR,
    )


def test_a_later_import_may_be_of_long_ago_too():
    found = cut(sighting(1, ago=3 * YEAR), sighting(2, ago=2 * YEAR))
    assert found is not None
    assert (found.last_seen_by, found.missed_by) == (1, 2)


def test_a_later_import_of_yesterday_does_not_make_time_pass_faster():
    assert cut(sighting(1, ago=YEAR - HOUR), sighting(2, ago=DAY)) is None
