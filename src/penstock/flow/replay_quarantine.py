"""Try quarantined rows again, after the declaration or the data was fixed."""

from collections import Counter
from dataclasses import replace
from hashlib import blake2b
from typing import TypeAlias

from penstock.domain.dataset import Dataset, Reference
from penstock.domain.mapping.mapper import Mapper
from penstock.domain.mapping.page_mapper import describe_unknown_reference
from penstock.domain.pages import UNREADABLE_REASONS, Reason, Record, Rejection
from penstock.errors import Refused, RowsRefused
from penstock.ports import QuarantinedRow, ReasonCount, Records, Replay, Source

# rows per transaction, which blocks writers of the same keys
BATCH_SIZE = 200

Outcome: TypeAlias = tuple[QuarantinedRow, Record | Rejection]


class ReplayQuarantine:
    def __init__(self, *, records: Records) -> None:
        self._records = records

    def __call__(
        self, dataset: Dataset, source: Source, *, dry_run: bool = False
    ) -> Replay:
        """Map each open row again; store those that are valid now.

        A dry run stores nothing, and returns what a replay would do now.
        """
        mapper = Mapper(dataset)
        accepted = superseded = still_bad = 0
        reasons: Counter[tuple[Reason, str | None]] = Counter()
        # a dry run does not store the rows that supersede those of later batches
        seen: set[bytes] = set()
        # the latest first: it supersedes the earlier rows of its key
        for rows in self._records.latest_quarantine(dataset, at_once=BATCH_SIZE):
            outcomes = [(row, self._map_again(row, mapper, source)) for row in rows]
            for name, reference in mapper.references:
                outcomes = self._check_reference(
                    outcomes, mapper.column(name), name, reference
                )
            if dry_run:
                repeated = [item for item in outcomes if key_digest(item[1]) in seen]
                superseded += len(repeated)
                outcomes = [
                    item for item in outcomes if key_digest(item[1]) not in seen
                ]
            result, stored = self._store(dataset, outcomes, dry_run=dry_run)
            if dry_run:
                seen.update(filter(None, (key_digest(each) for _, each in stored)))
            accepted += result.accepted
            superseded += result.superseded
            still_bad += result.still_bad
            reasons.update(
                (outcome.reason, outcome.field)
                for _, outcome in stored
                if isinstance(outcome, Rejection)
            )
        return Replay(
            accepted=accepted,
            superseded=superseded,
            still_bad=still_bad,
            reasons=tuple(
                ReasonCount(reason=reason, field=field, rows=rows)
                for (reason, field), rows in reasons.most_common()
            ),
        )

    def _store(
        self, dataset: Dataset, outcomes: list[Outcome], *, dry_run: bool
    ) -> tuple[Replay, list[Outcome]]:
        """Store the valid rows; those that the database refuses stay rejected."""
        while True:
            try:
                result = self._records.replay(dataset, outcomes, dry_run=dry_run)
            except RowsRefused as error:
                outcomes = [
                    (row, reject_unstorable(row, error.refused[outcome.digest]))
                    if isinstance(outcome, Record) and outcome.digest in error.refused
                    else (row, outcome)
                    for row, outcome in outcomes
                ]
            else:
                return result, outcomes

    def _map_again(
        self, row: QuarantinedRow, mapper: Mapper, source: Source
    ) -> Record | Rejection:
        bad = row.rejection
        # a record of another shard is imported by its own shard
        if bad.reason is Reason.OUTSIDE:
            return bad
        # a malformed row cannot be parsed better without its file, and the stored
        # reason is more precise
        if bad.reason in UNREADABLE_REASONS and bad.place is not None:
            return bad
        return mapper(source.read(bad.raw))

    def _check_reference(
        self, outcomes: list[Outcome], column: int, name: str, reference: Reference
    ) -> list[Outcome]:
        """Reject rows whose referenced row still does not exist."""
        values = {
            outcome.values[column]
            for _, outcome in outcomes
            if isinstance(outcome, Record)
        }
        unknown = set(self._records.unknown(reference, values - {None}))
        return [
            (row, reject_reference(row, outcome.values[column], name, reference))
            if isinstance(outcome, Record) and outcome.values[column] in unknown
            else (row, outcome)
            for row, outcome in outcomes
        ]


def key_digest(outcome: Record | Rejection) -> bytes | None:
    """Return a short form of the key of a valid row."""
    if isinstance(outcome, Rejection):
        return None
    return blake2b(repr(outcome.key).encode(), digest_size=16).digest()


def reject_unstorable(row: QuarantinedRow, reason: Refused) -> Rejection:
    return replace(
        row.rejection, reason=Reason.UNSTORABLE, field=reason.field, detail=str(reason)
    )


def reject_reference(
    row: QuarantinedRow, value: object, name: str, reference: Reference
) -> Rejection:
    return replace(
        row.rejection,
        reason=Reason.REFERENCE,
        field=name,
        detail=describe_unknown_reference(value, reference),
    )
