"""Read the ledger's rows as the domain's values."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.adapters.sql.database import Row, instant
from penstock.domain.dataset import DatasetName
from penstock.domain.job import (
    FaultEntry,
    Fence,
    Import,
    ImportId,
    ImportStatus,
    Job,
    JobId,
    JobStatus,
    Lease,
    Mode,
    PageEntry,
    Shards,
    WorkerId,
)
from penstock.domain.page import Counts, Place, Proof, Reason, Rejection
from penstock.ports import Quarantined


@dataclass(frozen=True, slots=True)
class Rows:
    """Reads rows whose times stand in one database's own form."""

    instant: Callable[[Any], datetime]

    def instant_or_none(self, stored: object) -> datetime | None:
        return None if stored is None else self.instant(stored)

    def read_import(self, row: Row) -> Import:
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
        )

    def read_lease(self, row: Row, of: Row, *, owner: WorkerId) -> Lease:
        """Read a claimed job and the import it belongs to."""
        return Lease(
            job=JobId(row["id"]),
            fence=Fence(row["fence"]),
            owner=owner,
            import_id=ImportId(row["import_id"]),
            dataset=DatasetName(row["dataset"]),
            mode=Mode(of["mode"]),
            tracked=bool(of["tracked"]),
            shard_key=row["shard_key"],
            since=self.instant_or_none(of["since"]),
            cursor=row["cursor"],
            page_seq=row["page_seq"],
            attempts=row["attempts"],
            rescues=row["rescues"],
            snoozes=row["snoozes"],
        )

    def read_job(self, row: Row) -> Job:
        return Job(
            id=JobId(row["id"]),
            import_id=ImportId(row["import_id"]),
            dataset=DatasetName(row["dataset"]),
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
            errors=tuple(map(read_fault, decoded(row["errors"]))),
            created_at=self.instant(row["created_at"]),
            finished_at=self.instant_or_none(row["finished_at"]),
        )

    def read_quarantined(self, row: Row) -> Quarantined:
        return Quarantined(
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
                else Place(row["line"], row["byte_offset"]),
            ),
            at=self.instant(row["at"]),
        )


def decoded(told: Any) -> Any:
    """Read JSON, where the driver has not done so already."""
    return json.loads(told) if isinstance(told, str) else told


def read_fault(told: dict[str, Any]) -> FaultEntry:
    return FaultEntry(
        at=instant(int(told["at"])),
        owner=told["owner"],
        fence=int(told["fence"]),
        code=told["code"],
        message=told["message"],
        cursor=told["cursor"],
    )


def read_page(row: Row) -> PageEntry:
    return PageEntry(
        page_seq=row["page_seq"],
        fence=Fence(row["fence"]),
        seen=row["seen"],
        cursor_before=row["cursor_before"],
        cursor_after=row["cursor_after"],
    )


def read_shards(rows: Iterable[Row]) -> Mapping[ImportId, Shards]:
    """Read how many jobs each import has in each state; one without any is left out."""
    found: dict[ImportId, dict[str, int]] = {}
    for row in rows:
        jobs = found.setdefault(ImportId(row["import_id"]), {})
        jobs[row["status"]] = row["jobs"]
    return {
        import_id: Shards(total=sum(jobs.values()), **jobs)
        for import_id, jobs in found.items()
    }
