"""Map a page: its good rows become records, its bad ones rejections."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from penstock.domain.dataset import Reference
from penstock.domain.mapping import Mapper
from penstock.domain.page import Page, Reason, Record, Rejection, Row
from penstock.domain.shard import Outside, never_outside
from penstock.domain.sheet import RawSheet, Sheet
from penstock.domain.text import shorten
from penstock.errors import FilterIgnored, Refused

Mapped: TypeAlias = tuple[Sequence[Record], Sequence[Rejection]]
# says which of these values no row has that a field refers to
Unknown: TypeAlias = Callable[[Reference, Collection[Any]], Collection[Any]]

NO_ROWS: Mapping[bytes, Refused] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Good:
    """Records, and the raw rows they were made of."""

    records: Sheet
    rows: Callable[[Sequence[int]], Sequence[Row]]

    def without(self, places: Collection[int]) -> "Good":
        kept = [place for place in range(len(self.records)) if place not in places]
        rows = self.rows
        return Good(
            self.records.at(kept), lambda wanted: rows([kept[at] for at in wanted])
        )


def map_page(
    mapper: Mapper,
    page: Page,
    outside: Outside,
    unknown: Unknown,
    *,
    shard: str,
    refused: Mapping[bytes, Refused] = NO_ROWS,
) -> Mapped:
    """Map the rows of a page; raise `FilterIgnored` if most are not of its shard.

    Records with these digests are bad: the database has refused them.
    """
    good, rejections = sort_page(mapper, page, outside, unknown, shard=shard)
    if refused:
        good, bad = leave_out(mapper, good, refused)
        rejections.extend(bad)
    if page.rank and not mapper.has_version:
        rejections = note_outdone(good, rejections)
    return mapper.resolve(good.records), rejections


def sort_page(
    mapper: Mapper, page: Page, outside: Outside, unknown: Unknown, *, shard: str
) -> tuple[Good, list[Rejection]]:
    """Tell good rows from bad ones; those of the same key are all there still."""
    rejections = [
        each for row in page.flawed if isinstance(each := mapper(row), Rejection)
    ]
    good, bad = map_sheet(mapper, page, outside) or map_rows(
        mapper, page, outside, shard=shard
    )
    rejections.extend(bad)
    for name, reference in mapper.references:
        good, bad = refer(mapper, good, name, reference, unknown)
        rejections.extend(bad)
    return good, rejections


def map_sheet(
    mapper: Mapper, page: Page, outside: Outside
) -> tuple[Good, Iterable[Rejection]] | None:
    """Map all rows by column; None if they have to be looked at one by one."""
    rows = page.rows
    if not isinstance(rows, RawSheet):
        return None
    is_checked = outside is not never_outside
    if is_checked and any(map(outside, zip(*rows.columns, strict=True))):
        return None
    sheet, bad = mapper.map_all(rows.columns)
    if not bad:
        return Good(sheet, rows.at), ()
    again = map(mapper, rows.at(bad))
    dropped = set(bad)
    kept = [place for place in range(len(rows)) if place not in dropped]
    good = Good(sheet, lambda places: rows.at([kept[place] for place in places]))
    return good, [each for each in again if isinstance(each, Rejection)]


def map_rows(
    mapper: Mapper, page: Page, outside: Outside, *, shard: str
) -> tuple[Good, Iterable[Rejection]]:
    records: list[Record] = []
    rows: list[Row] = []
    rejections: list[Rejection] = []
    strangers, why = 0, ""
    for row in page.rows:
        reason = None if row.unreadable is not None else outside(row.values)
        if reason is not None:
            strangers, why = strangers + 1, reason
            rejections.append(mapper.reject(row, Reason.OUTSIDE, reason))
            continue
        outcome = mapper(row)
        if isinstance(outcome, Record):
            records.append(outcome)
            rows.append(row)
        else:
            rejections.append(outcome)
    if strangers * 2 > len(page.rows):
        raise FilterIgnored(shard, outside=strangers, rows=len(page.rows), reason=why)
    good = Good(Sheet.of(records), lambda places: [rows[place] for place in places])
    return good, rejections


def refer(
    mapper: Mapper, good: Good, name: str, reference: Reference, unknown: Unknown
) -> tuple[Good, Sequence[Rejection]]:
    """Reject the rows whose value is none of those that a field refers to."""
    if not good.records:
        return good, ()
    column = good.records.columns[mapper.column(name)]
    strangers = set(unknown(reference, set(column) - {None}))
    if not strangers:
        return good, ()
    places = [place for place, value in enumerate(column) if value in strangers]
    rejections = [
        mapper.reject(
            row, Reason.REFERENCE, not_in(column[place], reference), field=name
        )
        for place, row in zip(places, good.rows(places), strict=True)
    ]
    return good.without(set(places)), rejections


def leave_out(
    mapper: Mapper, good: Good, refused: Mapping[bytes, Refused]
) -> tuple[Good, Sequence[Rejection]]:
    """Reject the rows that the database cannot hold."""
    digests = good.records.digests
    places = [place for place, digest in enumerate(digests) if digest in refused]
    reasons = [refused[digests[place]] for place in places]
    rejections = [
        mapper.reject(row, Reason.UNSTORABLE, str(why), field=why.field)
        for row, why in zip(good.rows(places), reasons, strict=True)
    ]
    return good.without(set(places)), rejections


def note_outdone(good: Good, rejections: list[Rejection]) -> list[Rejection]:
    """Note of bad rows that a good one of their key stands after them.

    Only the page can tell it: of what is stored, only the place of its page is known.
    """
    bad = {each.key for each in rejections} - {None}
    keys = good.records.keys
    places = [place for place, key in enumerate(keys) if key in bad] if bad else []
    if not places:
        # finding where rows stand takes its time
        return rejections
    last = {
        keys[place]: row.position
        for place, row in zip(places, good.rows(places), strict=True)
    }
    return [
        replace(each, is_outdone=True)
        if each.key is not None and last.get(each.key, -1) > each.position
        else each
        for each in rejections
    ]


def not_in(value: object, reference: Reference) -> str:
    return f"{shorten(value)} is not in {reference}"
