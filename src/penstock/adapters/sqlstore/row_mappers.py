"""Map rows of the ledger to values of the domain."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.adapters.sqlstore.database import SqlRow, instant
from penstock.domain.dataset import DatasetName
from penstock.domain.jobs import (
    Fence,
    Import,
    ImportId,
    ImportStatus,
    Job,
    JobErrorEntry,
    JobId,
    JobKind,
    JobStatus,
    Lease,
    Mode,
    PageEntry,
    Shards,
    WorkerId,
)
from penstock.domain.pages import Counts, Proof, Reason, Rejection, RowLocation
from penstock.domain.plan_cursor import traceparent_of
from penstock.ports import QuarantinedRow


@dataclass(frozen=True, slots=True)
class RowMappers:
    """Maps rows whose times have the form of one database."""

    instant: Callable[[Any], datetime]

    def instant_or_none(self, stored: object) -> datetime | None:
        return None if stored is None else self.instant(stored)

    def read_import(self, row: SqlRow) -> Import:
        return Import(
            id=ImportId(row["id"]),
            dataset=DatasetName(row["dataset"]),
            mode=Mode(row["mode"]),
            status=ImportStatus(row["status"]),
            declaration=row["declaration"],
            tracked=bool(row["tracked"]),
            since=self.instant_or_none(row["since"]),
            until=self.instant(row["until"]),
            scan_started_at=self.instant_or_none(row["scan_started_at"]),
            counts=Counts(
                pages=row["pages"],
                requests=row["requests"],
                seen=row["seen"],
                inserted=row["inserted"],
                updated=row["updated"],
                unchanged=row["unchanged"],
                deleted=row["deleted"],
                quarantined=row["quarantined"],
                dropped=row["dropped"],
                duplicates=row["duplicates"],
            ),
            rescues=row["rescues"],
            proven=bool(row["proven"]),
            note=row["note"],
            created_at=self.instant(row["created_at"]),
            finished_at=self.instant_or_none(row["finished_at"]),
            accepts_lost_files=bool(row["accepts_lost_files"]),
            accepts_duplicates=bool(row["accepts_duplicates"]),
            pages_removed=row["pages_removed"] > 0,
        )

    def read_lease(
        self,
        row: SqlRow,
        import_row: SqlRow,
        *,
        owner: WorkerId,
        plan_cursor: str | None,
    ) -> Lease:
        """Map a claimed job and the import it belongs to."""
        return Lease(
            job=JobId(row["id"]),
            fence=Fence(row["fence"]),
            owner=owner,
            import_id=ImportId(row["import_id"]),
            dataset=DatasetName(row["dataset"]),
            mode=Mode(import_row["mode"]),
            tracked=bool(import_row["tracked"]),
            shard_key=row["shard_key"],
            since=self.instant_or_none(import_row["since"]),
            cursor=row["cursor"],
            page_seq=row["page_seq"],
            attempts=row["attempts"],
            rescues=row["rescues"],
            snoozes=row["snoozes"],
            traceparent=traceparent_of(plan_cursor),
        )

    def read_job(self, row: SqlRow) -> Job:
        return Job(
            id=JobId(row["id"]),
            import_id=ImportId(row["import_id"]),
            dataset=DatasetName(row["dataset"]),
            kind=JobKind(row["kind"]),
            shard_key=row["shard_key"],
            parent=None if row["parent"] is None else JobId(row["parent"]),
            status=JobStatus(row["status"]),
            run_at=self.instant(row["run_at"]),
            fence=Fence(row["fence"]),
            attempts=row["attempts"],
            rescues=row["rescues"],
            snoozes=row["snoozes"],
            page_seq=row["page_seq"],
            counts=Counts(
                pages=row["page_seq"],
                requests=row["requests"],
                seen=row["seen"],
                inserted=row["inserted"],
                updated=row["updated"],
                unchanged=row["unchanged"],
                quarantined=row["quarantined"],
                dropped=row["dropped"],
                duplicates=row["duplicates"],
            ),
            region=row["region"],
            lease_owner=row["lease_owner"],
            lease_until=self.instant_or_none(row["lease_until"]),
            cursor=row["cursor"],
            proof=None if row["proof"] is None else Proof(row["proof"]),
            errors=tuple(map(read_error, decode_json(row["errors"]))),
            created_at=self.instant(row["created_at"]),
            finished_at=self.instant_or_none(row["finished_at"]),
        )

    def read_quarantined(self, row: SqlRow) -> QuarantinedRow:
        return QuarantinedRow(
            id=row["id"],
            import_id=ImportId(row["import_id"]),
            job=JobId(row["job_id"]),
            shard_key=row["shard_key"],
            page_seq=row["page_seq"],
            rejection=Rejection(
                position=row["position"],
                reason=Reason(row["reason"]),
                detail=row["detail"],
                raw=row["raw"],
                field=row["field"],
                key=None if row["key"] is None else tuple(json.loads(row["key"])),
                place=None
                if row["line"] is None
                else RowLocation(row["line"], row["byte_offset"]),
            ),
            at=self.instant(row["at"]),
            resolved=row["resolved"],
        )


def decode_json(value: Any) -> Any:
    """Decode JSON, unless the driver has done so already."""
    return json.loads(value) if isinstance(value, str) else value


def read_error(document: dict[str, Any]) -> JobErrorEntry:
    return JobErrorEntry(
        at=instant(int(document["at"])),
        owner=document["owner"],
        fence=int(document["fence"]),
        code=document["code"],
        message=document["message"],
        cursor=document["cursor"],
    )


def read_page(row: SqlRow) -> PageEntry:
    return PageEntry(
        page_seq=row["page_seq"],
        fence=Fence(row["fence"]),
        seen=row["seen"],
        cursor_before=row["cursor_before"],
        cursor_after=row["cursor_after"],
    )


def read_shards(rows: Iterable[SqlRow]) -> Mapping[ImportId, Shards]:
    """Map the number of jobs by import and status; imports without jobs are absent."""
    by_import: dict[ImportId, dict[str, int]] = {}
    for row in rows:
        jobs = by_import.setdefault(ImportId(row["import_id"]), {})
        jobs[row["status"]] = row["jobs"]
    return {
        import_id: Shards(total=sum(jobs.values()), **jobs)
        for import_id, jobs in by_import.items()
    }
