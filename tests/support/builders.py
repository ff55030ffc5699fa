"""Small values that many tests need, with only what matters spelled out."""

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from penstock.adapters.sqlite.database import SqliteDatabase
from penstock.adapters.sqlite.ledger import NoNotifier, SqliteLedger
from penstock.adapters.sqlite.schema import SqliteSchema
from penstock.adapters.sqlstore.stores import build_stores
from penstock.domain.budget import Budget, Limit
from penstock.domain.dataset import Dataset, DatasetName, Field, FieldType
from penstock.domain.hooks import Subscribers
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import (
    Import,
    ImportId,
    Job,
    JobError,
    JobId,
    Lease,
    Mode,
    WorkerId,
)
from penstock.domain.mapping.mapper import content_digest
from penstock.domain.page_reuse import summarize_page
from penstock.domain.pages import Batch, Page, Proof, Reason, Record, Rejection
from penstock.domain.sharding.axes import FileAxis
from penstock.domain.source import HttpSource
from penstock.flow.plan import Plan
from penstock.flow.plan_lease import ClaimPlan
from penstock.ports import Declarations, JobFilter, Stores

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
# how long the leases of the stores under test last
LEASE = timedelta(seconds=60)
A_MOMENT = timedelta(milliseconds=1)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)

ANN, BEN = WorkerId("ann"), WorkerId("ben")
TIMEOUT = JobError(code="source_unavailable", message="timed out")
IMPRINT = b"imprint of a page"


@dataclass
class Clock:
    """A clock that stands still until it is told to go on."""

    now: datetime = field(default=NOON)

    def __call__(self) -> datetime:
        return self.now

    def pass_time(self, span: timedelta) -> None:
        self.now += span


def sqlite_stores(
    database: SqliteDatabase,
    *,
    lease: timedelta = LEASE,
    subscribers: Subscribers | None = None,
) -> Stores:
    return build_stores(
        database,
        schema=SqliteSchema(database),
        ledger=SqliteLedger(database, lease=lease, subscribers=subscribers),
        lease=lease,
        notifier=NoNotifier(),
        subscribers=subscribers,
    )


def open_sqlite(
    path: Path, *, lease: timedelta = LEASE, busy: timedelta = 10 * SECOND
) -> Stores:
    """Open a file by SQLite's own clock, as another process would."""
    return sqlite_stores(SqliteDatabase(path, busy=busy), lease=lease)


def int_field(name: str, **declared: Any) -> Field:
    return Field(name=name, path=(name,), type=FieldType.INT, **declared)


def text_field(name: str, **declared: Any) -> Field:
    return Field(name=name, path=(name,), **declared)


def typed_field(name: str, kind: FieldType, **declared: Any) -> Field:
    return Field(name=name, path=(name,), type=kind, **declared)


def dataset(name: str = "poi", **declared: Any) -> Dataset:
    """Return a dataset of an id and a title, unless told otherwise."""
    fields = (int_field("id", required=True), text_field("title"))
    plain = Dataset(
        name=DatasetName(name),
        fields=fields,
        key=("id",),
        source=HttpSource(url="https://example.org/poi"),
    )
    return replace(plain, **declared)


def record(*values: Any, of: Dataset | None = None) -> Record:
    """Return a record of these values; the title of the plain dataset may be left out.

    Local fields are none of its business.
    """
    if of is None:
        of = dataset()
        values = values if len(values) > 1 else (values[0], f"title {values[0]}")
    key = tuple(values[of.column(name)] for name in of.key)
    return Record(key, values, content_digest(values))


def rejection(
    position: int = 0, *, key: Sequence[object] | None = None, raw: bytes = b"{}"
) -> Rejection:
    return Rejection(
        position=position,
        reason=Reason.MISSING,
        detail="is required, and missing or empty",
        raw=raw,
        field="title",
        key=None if key is None else tuple(key),
    )


def batch(
    *records: Record,
    cursor: str | None = "next",
    proof: Proof | None = None,
    rejections: Sequence[Rejection] = (),
    seen: int | None = None,
    dropped: int = 0,
    provider_time: datetime | None = None,
) -> Batch:
    """Return a page of these records; with a proof it is the last."""
    return Batch(
        records=records,
        rejections=rejections,
        seen=len(records) + len(rejections) + dropped if seen is None else seen,
        dropped=dropped,
        cursor=None if proof else cursor,
        proof=proof,
        provider_time=provider_time,
    )


def last(*records: Record, **result: Any) -> Batch:
    """Return the page that proves the end of its shard."""
    return batch(*records, proof=Proof.EMPTY_PAGE, **result)


def budget(*limits: Limit, name: str = "ocm", burst: int = 1) -> Budget:
    return Budget(name=name, limits=limits, burst=burst)


def per_second(requests: int) -> Limit:
    return Limit(requests=requests, period=SECOND)


def per_minute(requests: int) -> Limit:
    return Limit(requests=requests, period=MINUTE)


def per_hour(requests: int) -> Limit:
    return Limit(requests=requests, period=HOUR)


def claim_plan(
    stores: Stores,
    *,
    length: timedelta = LEASE,
    monotonic: Callable[[], float] = time.monotonic,
) -> ClaimPlan:
    numbers = itertools.count(1)
    return ClaimPlan(
        plans=stores.plans,
        ledger=stores.ledger,
        length=length,
        new_owner=lambda: WorkerId(f"planner {next(numbers)}"),
        monotonic=monotonic,
    )


def planner(stores: Stores, of: Dataset) -> Plan:
    """Return what plans imports of a dataset without files."""
    return Plan(
        datasets={of.name: of},
        stores=stores,
        survey=lambda *_: FileAxis(),
        claim=claim_plan(stores),
        emit=lambda _: None,
    )


def repeat(stores: Stores, of: Dataset, import_id: ImportId, earlier: ImportId) -> None:
    """End an import in planning as a repeat of an earlier one."""
    lease = stores.plans.claim(import_id, ANN)
    assert lease is not None
    stores.plans.repeat(of, lease, of=earlier)


def add_shards(stores: Stores, import_id: ImportId, keys: Iterable[str]) -> Lease:
    """Claim the plan of an import, and store shards of it."""
    lease = stores.plans.claim(import_id, ANN)
    assert lease is not None
    return stores.plans.add_shards(lease, [*keys], cursor="1")


def open_import(stores: Stores, import_id: ImportId, keys: Iterable[str]) -> None:
    """Plan an import, and open it to workers."""
    stores.plans.finish(add_shards(stores, import_id, keys))


def begin(
    stores: Stores, of: Dataset, mode: Mode = Mode.FULL, *, files: tuple[str, ...] = ()
) -> Import:
    """Begin an import that is still being planned."""
    scope = ImportScope(mode=mode, files=files)
    begun, _ = stores.imports.begin(of, scope, declaration="d1")
    return begun


def plan(
    stores: Stores, of: Dataset, *shard_keys: str, mode: Mode = Mode.FULL
) -> ImportId:
    """Prepare a dataset, and open an import of these shards to workers."""
    stores.schema.ensure_table(of)
    begun = begin(stores, of, mode)
    open_import(stores, begun.id, shard_keys or ("all",))
    return begun.id


def claim(stores: Stores, of: Dataset, owner: WorkerId = ANN) -> Lease:
    """Take the next job, which must be there."""
    lease = claim_any(stores, {of.name: "d1"}, owner=owner)
    assert lease is not None
    return lease


def claim_any(
    stores: Stores,
    declarations: Declarations,
    *,
    owner: WorkerId = ANN,
    region: str | None = None,
) -> Lease | None:
    """Take the next job of these datasets, if there is one."""
    found = stores.ledger.claim(owner, declarations=declarations, region=region)
    return found[0] if found else None


def idle(stores: Stores, of: Dataset) -> bool:
    """Say whether a worker finds nothing to do."""
    return claim_any(stores, {of.name: "d1"}, owner=BEN) is None


def known_page(*records: Record, **result: Any) -> Batch:
    """Return a page that is recognised when it comes again."""
    page = batch(*records, **result)
    memo = summarize_page(Page(rows=(), rises=True), page)
    return replace(page, imprint=IMPRINT, memo=memo)


def repeated(
    stores: Stores, lease: Lease, *, of: Dataset | None = None, imprint=IMPRINT
):
    """Commit a page that comes again, if it is known."""
    return stores.ledger.repeat_page(
        of or dataset(), lease, imprint, provider_time=None
    )


def run(stores: Stores, of: Dataset, *pages: Batch, mode: Mode = Mode.FULL) -> Import:
    """Import a dataset in one shard of these pages; the last must hold the proof."""
    import_id = plan(stores, of, mode=mode)
    lease = claim(stores, of)
    for page in pages:
        lease, _ = stores.ledger.commit_page(of, lease, page)
    ended = stores.imports.close(of, import_id, failed=None)
    assert ended is not None
    return ended


def jobs_of(stores: Stores, import_id: ImportId) -> Sequence[Job]:
    return stores.jobs.find(JobFilter(import_id=import_id), after=None, limit=1000)


def job_of(stores: Stores, lease: Lease) -> Job:
    return stores.jobs.get(JobId(lease.job))


def rows(stores: Stores, of: Dataset) -> list[tuple[object, ...]]:
    return list(stores.records.rows(of))


def ids(stores: Stores, of: Dataset) -> list[object]:
    return [row[0] for row in stores.records.rows(of)]
