"""Try quarantined rows again, after the declaration or the rows were mended."""

from dataclasses import replace
from typing import TypeAlias

from penstock.domain.dataset import Dataset, Reference
from penstock.domain.map_page import not_in
from penstock.domain.mapping import Mapper
from penstock.domain.page import FLAWS, Reason, Record, Rejection
from penstock.errors import Refused, RowsRefused
from penstock.ports import Quarantined, Records, Replay, Source

# tried in one transaction, which others wait for that have rows of the same keys
ROWS_AT_ONCE = 200

Tried: TypeAlias = tuple[Quarantined, Record | Rejection]


class ReplayQuarantine:
    def __init__(self, *, records: Records) -> None:
        self._records = records

    def __call__(self, dataset: Dataset, source: Source) -> Replay:
        """Map each open row anew; store those that are good now."""
        mapper = Mapper(dataset)
        accepted = superseded = still_bad = 0
        # the latest first: it supersedes the earlier rows of its key
        for rows in self._records.latest_quarantine(dataset, at_once=ROWS_AT_ONCE):
            tried = [(row, self._retry(row, mapper, source)) for row in rows]
            for name, reference in mapper.references:
                tried = self._refer(tried, mapper.column(name), name, reference)
            told = self._store(dataset, tried)
            accepted += told.accepted
            superseded += told.superseded
            still_bad += told.still_bad
        return Replay(accepted=accepted, superseded=superseded, still_bad=still_bad)

    def _store(self, dataset: Dataset, tried: list[Tried]) -> Replay:
        """Store what is good now; what the database refuses is still bad."""
        while True:
            try:
                return self._records.replay(dataset, tried)
            except RowsRefused as error:
                tried = [
                    (row, unstorable(row, error.refused[outcome.digest]))
                    if isinstance(outcome, Record) and outcome.digest in error.refused
                    else (row, outcome)
                    for row, outcome in tried
                ]

    def _retry(
        self, row: Quarantined, mapper: Mapper, source: Source
    ) -> Record | Rejection:
        bad = row.rejection
        # a record of another shard is not bad in itself: its own shard brings it
        if bad.reason is Reason.OUTSIDE:
            return bad
        # what could not be read of a file is read no better without the file, which
        # alone tells as precisely what is wrong
        if bad.reason in FLAWS and bad.place is not None:
            return bad
        return mapper(source.read(bad.raw))

    def _refer(
        self, tried: list[Tried], column: int, name: str, reference: Reference
    ) -> list[Tried]:
        """Keep back what refers to rows that are still not there."""
        values = {
            outcome.values[column]
            for _, outcome in tried
            if isinstance(outcome, Record)
        }
        strangers = set(self._records.unknown(reference, values - {None}))
        return [
            (row, still_unknown(row, outcome.values[column], name, reference))
            if isinstance(outcome, Record) and outcome.values[column] in strangers
            else (row, outcome)
            for row, outcome in tried
        ]


def unstorable(row: Quarantined, why: Refused) -> Rejection:
    return replace(
        row.rejection, reason=Reason.UNSTORABLE, field=why.field, detail=str(why)
    )


def still_unknown(
    row: Quarantined, value: object, name: str, reference: Reference
) -> Rejection:
    return replace(
        row.rejection,
        reason=Reason.REFERENCE,
        field=name,
        detail=not_in(value, reference),
    )
