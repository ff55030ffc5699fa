"""Read the ledger's rows as the domain's values."""

import json
import sqlite3

from penstock.adapters.sqlite.database import instant, instant_or_none
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
    Mode,
    PageEntry,
    Shards,
)
from penstock.domain.page import Counts, Proof


def read_import(row: sqlite3.Row) -> Import:
    return Import(
        id=ImportId(row["id"]),
        dataset=DatasetName(row["dataset"]),
        mode=Mode(row["mode"]),
        status=ImportStatus(row["status"]),
        declaration=row["declaration"],
        tracked=bool(row["tracked"]),
        since=instant_or_none(row["since"]),
        until=instant(row["until"]),
        scan_started_at=instant_or_none(row["scan_started_at"]),
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
        ),
        rescues=row["rescues"],
        proven=bool(row["proven"]),
        note=row["note"],
        created_at=instant(row["created_at"]),
        finished_at=instant_or_none(row["finished_at"]),
    )


def read_job(row: sqlite3.Row) -> Job:
    return Job(
        id=JobId(row["id"]),
        import_id=ImportId(row["import_id"]),
        dataset=DatasetName(row["dataset"]),
        shard_key=row["shard_key"],
        parent=None if row["parent"] is None else JobId(row["parent"]),
        status=JobStatus(row["status"]),
        run_at=instant(row["run_at"]),
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
        ),
        region=row["region"],
        lease_owner=row["lease_owner"],
        lease_until=instant_or_none(row["lease_until"]),
        cursor=row["cursor"],
        proof=None if row["proof"] is None else Proof(row["proof"]),
        errors=tuple(map(read_fault, json.loads(row["errors"]))),
        created_at=instant(row["created_at"]),
        finished_at=instant_or_none(row["finished_at"]),
    )


def read_fault(told: dict[str, object]) -> FaultEntry:
    return FaultEntry(
        at=instant(int(str(told["at"]))),
        owner=None if told["owner"] is None else str(told["owner"]),
        fence=int(str(told["fence"])),
        code=str(told["code"]),
        message=str(told["message"]),
        cursor=None if told["cursor"] is None else str(told["cursor"]),
    )


def read_page(row: sqlite3.Row) -> PageEntry:
    return PageEntry(
        page_seq=row["page_seq"],
        fence=Fence(row["fence"]),
        seen=row["seen"],
        cursor_before=row["cursor_before"],
        cursor_after=row["cursor_after"],
    )


def read_shards(rows: list[sqlite3.Row]) -> Shards:
    jobs = {row["status"]: row["jobs"] for row in rows}
    return Shards(total=sum(jobs.values()), **jobs)
