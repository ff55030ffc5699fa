"""Map a page: good rows become records, bad ones rejections."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from penstock.domain.dataset import Reference
from penstock.domain.formats import shorten
from penstock.domain.mapping.columnar import ColumnarRecords, ColumnarRows
from penstock.domain.mapping.mapper import Mapper
from penstock.domain.pages import (
    MAX_KEY_EXAMPLES,
    Key,
    Page,
    RawRow,
    Reason,
    Record,
    Rejection,
)
from penstock.domain.sharding.shard import OutsideCheck, never_outside
from penstock.errors import FilterIgnored, Refused

# returns those of the values that the referenced dataset does not have
FindUnknown: TypeAlias = Callable[[Reference, Collection[Any]], Collection[Any]]


class Mapped(NamedTuple):
    """The rows of a page: one record of each key, and the bad ones."""

    records: Sequence[Record]
    rejections: Sequence[Rejection]
    # some of the keys that several good rows had
    repeated_keys: Sequence[Key] = ()


NONE_REFUSED: Mapping[bytes, Refused] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class MappedRows:
    """Records, and the raw rows from which they were mapped."""

    records: ColumnarRecords
    rows: Callable[[Sequence[int]], Sequence[RawRow]]

    def without(self, positions: Collection[int]) -> "MappedRows":
        retained = [at for at in range(len(self.records)) if at not in positions]
        rows = self.rows
        return MappedRows(
            self.records.at(retained),
            lambda requested: rows([retained[at] for at in requested]),
        )


def map_page(
    mapper: Mapper,
    page: Page,
    outside: OutsideCheck,
    unknown: FindUnknown,
    *,
    shard: str,
    refused: Mapping[bytes, Refused] = NONE_REFUSED,
) -> Mapped:
    """Map the rows of a page; raise `FilterIgnored` if most are outside of its shard.

    `refused` are the digests of records that the database has refused: they are bad.
    """
    good, rejections = separate_rows(mapper, page, outside, unknown, shard=shard)
    if refused:
        good, bad = reject_refused(mapper, good, refused)
        rejections.extend(bad)
    if page.rank and not mapper.has_version:
        rejections = mark_superseded(good, rejections)
    records = mapper.resolve(good.records)
    has_repeats = len(records) < len(good.records)
    repeated = find_repeated(good.records.keys) if has_repeats else ()
    return Mapped(records, rejections, repeated)


def find_repeated(keys: Sequence[Key]) -> Sequence[Key]:
    """Return some of the keys that occur more than once."""
    repeated = (key for key, count in Counter(keys).items() if count > 1)
    return [*islice(repeated, MAX_KEY_EXAMPLES)]


def separate_rows(
    mapper: Mapper,
    page: Page,
    outside: OutsideCheck,
    unknown: FindUnknown,
    *,
    shard: str,
) -> tuple[MappedRows, list[Rejection]]:
    """Separate good rows from bad ones; rows of the same key are not resolved yet."""
    rejections = [
        outcome
        for row in page.bad_rows
        if isinstance(outcome := mapper(row), Rejection)
    ]
    good, bad = map_columns(mapper, page, outside) or map_rows(
        mapper, page, outside, shard=shard
    )
    rejections.extend(bad)
    for name, reference in mapper.references:
        good, bad = reject_unknown_references(mapper, good, name, reference, unknown)
        rejections.extend(bad)
    return good, rejections


def map_columns(
    mapper: Mapper, page: Page, outside: OutsideCheck
) -> tuple[MappedRows, Iterable[Rejection]] | None:
    """Map all rows by column; None if they must be mapped one by one."""
    rows = page.rows
    if not isinstance(rows, ColumnarRows):
        return None
    is_checked = outside is not never_outside
    if is_checked and any(map(outside, zip(*rows.columns, strict=True))):
        return None
    records, bad = mapper.map_all(rows.columns)
    if not bad:
        return MappedRows(records, rows.at), ()
    outcomes = map(mapper, rows.at(bad))
    dropped = set(bad)
    retained = [at for at in range(len(rows)) if at not in dropped]
    good = MappedRows(
        records, lambda requested: rows.at([retained[at] for at in requested])
    )
    return good, [outcome for outcome in outcomes if isinstance(outcome, Rejection)]


def map_rows(
    mapper: Mapper, page: Page, outside: OutsideCheck, *, shard: str
) -> tuple[MappedRows, Iterable[Rejection]]:
    records: list[Record] = []
    rows: list[RawRow] = []
    rejections: list[Rejection] = []
    outside_rows, why = 0, ""
    for row in page.rows:
        reason = None if row.unreadable is not None else outside(row.values)
        if reason is not None:
            outside_rows, why = outside_rows + 1, reason
            rejections.append(mapper.reject(row, Reason.OUTSIDE, reason))
            continue
        outcome = mapper(row)
        if isinstance(outcome, Record):
            records.append(outcome)
            rows.append(row)
        else:
            rejections.append(outcome)
    if outside_rows * 2 > len(page.rows):
        raise FilterIgnored(
            shard, outside=outside_rows, rows=len(page.rows), reason=why
        )
    good = MappedRows(
        ColumnarRecords.of(records), lambda requested: [rows[at] for at in requested]
    )
    return good, rejections


def reject_unknown_references(
    mapper: Mapper,
    good: MappedRows,
    name: str,
    reference: Reference,
    find_unknown: FindUnknown,
) -> tuple[MappedRows, Sequence[Rejection]]:
    """Reject the rows whose value the referenced dataset does not have."""
    if not good.records:
        return good, ()
    column = good.records.columns[mapper.column(name)]
    unknown = set(find_unknown(reference, set(column) - {None}))
    if not unknown:
        return good, ()
    positions = [position for position, value in enumerate(column) if value in unknown]
    rejections = [
        mapper.reject(
            row,
            Reason.REFERENCE,
            describe_unknown_reference(column[position], reference),
            field=name,
        )
        for position, row in zip(positions, good.rows(positions), strict=True)
    ]
    return good.without(set(positions)), rejections


def reject_refused(
    mapper: Mapper, good: MappedRows, refused: Mapping[bytes, Refused]
) -> tuple[MappedRows, Sequence[Rejection]]:
    """Reject the rows that the database has refused."""
    digests = good.records.digests
    positions = [at for at, digest in enumerate(digests) if digest in refused]
    reasons = [refused[digests[position]] for position in positions]
    rejections = [
        mapper.reject(row, Reason.UNSTORABLE, str(why), field=why.field)
        for row, why in zip(good.rows(positions), reasons, strict=True)
    ]
    return good.without(set(positions)), rejections


def mark_superseded(good: MappedRows, rejections: list[Rejection]) -> list[Rejection]:
    """Mark the bad rows that a good row of the same key follows on the page.

    It is decided here, because stored rows have the rank of their page only.
    """
    bad = {rejection.key for rejection in rejections} - {None}
    keys = good.records.keys
    positions = [at for at, key in enumerate(keys) if key in bad] if bad else []
    if not positions:
        # finding the raw rows is slow
        return rejections
    last = {
        keys[position]: row.position
        for position, row in zip(positions, good.rows(positions), strict=True)
    }
    return [
        replace(rejection, is_superseded=True)
        if rejection.key is not None
        and last.get(rejection.key, -1) > rejection.position
        else rejection
        for rejection in rejections
    ]


def describe_unknown_reference(value: object, reference: Reference) -> str:
    return f"{shorten(value)} is not in {reference}"
