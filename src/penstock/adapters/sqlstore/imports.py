"""Imports: planning, completion and queries."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import blake2b

from typing_extensions import override

from penstock.adapters.sqlstore.database import (
    Database,
    SqlRow,
    Transaction,
    read_count,
)
from penstock.adapters.sqlstore.file_rejections import supersede_file_rejections
from penstock.adapters.sqlstore.hook_messages import HookMessages
from penstock.adapters.sqlstore.row_mappers import RowMappers, read_shards
from penstock.adapters.sqlstore.schema import refuse_stale
from penstock.domain.completion import (
    CompletionFacts,
    CompletionVerdict,
    MissingRows,
    decide_completion,
    is_tracked,
)
from penstock.domain.dataset import Dataset, LostFiles
from penstock.domain.formats import MICROSECOND, format_key
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import Import, ImportId, ImportStatus, Mode, Shards
from penstock.domain.lost_files import FilesNotRead, find_lost_rows, stable_file_name
from penstock.domain.page_reuse import reader_edition
from penstock.domain.pages import MAX_KEY_EXAMPLES, Proof
from penstock.domain.plan_cursor import PlanCursor
from penstock.domain.sharding.parts import Slice
from penstock.errors import NotFound, StoreUnavailable
from penstock.ports import Imports

# how long the process that begins an import has to claim its plan before others do
PLAN_HEAD_START = timedelta(seconds=10)


class SqlImports(Imports):
    def __init__(self, database: Database, hooks: HookMessages | None = None) -> None:
        self._database = database
        self._hooks = hooks or HookMessages()
        self._rows = RowMappers(database.instant)

    @override
    def begin(
        self,
        dataset: Dataset,
        scope: ImportScope,
        *,
        declaration: str,
        traceparent: str | None = None,
    ) -> tuple[Import, bool]:
        return self._database.write(
            lambda transaction: begin(
                self._database,
                transaction,
                dataset,
                scope,
                declaration=declaration,
                traceparent=traceparent,
            )
        )

    @override
    def last_reusable(self, dataset: Dataset, mode: Mode) -> Import | None:
        same = {"dataset": dataset.name, "mode": mode}

        def work(transaction: Transaction) -> Import | None:
            row = transaction.one("last_done_import", **same)
            if row is None or not (row["proven"] and row["is_latest"]):
                return None
            if row["terms"] != completion_digest(dataset):
                return None
            # rows that were deleted by hand leave no other trace
            if row["live"] != transaction.table(dataset).count():
                return None
            return self._rows.read_import(row)

        return self._database.read(work)

    @override
    def shard_keys(self, import_id: ImportId) -> Iterator[str]:
        found = self._database.read(
            lambda transaction: transaction.all("planned_shards", import_id=import_id)
        )
        for row in found:
            yield row["shard_key"]

    @override
    def close(
        self, dataset: Dataset, import_id: ImportId, *, failed: str | None
    ) -> Import | None:
        def work(transaction: Transaction) -> Import | None:
            transaction.one("hold_import", import_id=import_id)
            current, shards = self._get_all(transaction, import_id)
            if current.status is not ImportStatus.RUNNING:
                return None
            if failed is None and shards.open:
                return None
            if failed is not None:
                transaction.execute("cancel_jobs", import_id=import_id)
            self._settle(transaction, dataset, current, shards, failed)
            ended = self._get(transaction, import_id)
            self._hooks.add_import(transaction, ended)
            return ended

        if failed is None and not self._is_settled(import_id):
            return None
        # finding and marking the missing rows of a large dataset takes a while
        return self._database.write(work, slow=True)

    def _settle(
        self,
        transaction: Transaction,
        dataset: Dataset,
        current: Import,
        shards: Shards,
        failed: str | None,
    ) -> None:
        facts = SqlCompletionFacts(self._database, transaction, dataset, current)
        verdict = decide_completion(current, shards, dataset, facts, failed=failed)
        deleted = 0
        if verdict.watermark is not None:
            transaction.execute(
                "set_watermark",
                dataset=dataset.name,
                watermark=self._database.to_stored_time(verdict.watermark),
            )
        if verdict.marks_missing:
            deleted = facts.mark_missing(verdict.lost)
        supersede_file_rejections(transaction, dataset, current.id)
        if verdict.proven and not current.counts.quarantined:
            transaction.execute(
                "supersede_corrected",
                import_id=current.id,
                rows=current.counts.seen - current.counts.dropped,
            )
        if verdict.settles_quarantine:
            transaction.execute(
                "supersede_rejections", dataset=dataset.name, import_id=current.id
            )
        # an import with a note has left something out, which the next one may read
        is_whole = verdict.proven and verdict.note is None
        repeatable = dataset if dataset.is_ranked and is_whole else None
        is_sighting = verdict.proven and current.mode is Mode.FULL and current.tracked
        if is_sighting and dataset.archive is not None:
            transaction.execute(
                "add_sighting", dataset=dataset.name, import_id=current.id
            )
        transaction.execute("publish_dataset", dataset=dataset.name)
        end(transaction, current.id, verdict, deleted, repeatable=repeatable)

    def _is_settled(self, import_id: ImportId) -> bool:
        # called after every job, so it must not count them all
        row = self._database.read(
            lambda transaction: transaction.one("has_open_jobs", import_id=import_id)
        )
        return row is not None and not row["is_open"]

    @override
    def cancel(
        self, import_id: ImportId, *, reason: str, only: ImportStatus | None = None
    ) -> Import:
        def work(transaction: Transaction) -> Import:
            transaction.one("hold_import", import_id=import_id)
            current = self._get(transaction, import_id)
            if only is not None and current.status is not only:
                return current
            verdict = CompletionVerdict(
                status=ImportStatus.CANCELLED, proven=False, note=reason
            )
            end(transaction, import_id, verdict, 0)
            transaction.execute("give_up_import", import_id=import_id, reason=reason)
            transaction.execute("cancel_jobs", import_id=import_id)
            # the rows stored so far are served
            transaction.execute("publish_dataset", dataset=current.dataset)
            return self._get(transaction, import_id)

        return self._database.write(work, slow=True)

    @override
    def get(self, import_id: ImportId) -> tuple[Import, Shards]:
        return self._database.read(
            lambda transaction: self._get_all(transaction, import_id)
        )

    @override
    def peek(self, import_id: ImportId) -> Import:
        return self._database.read(
            lambda transaction: self._get(transaction, import_id)
        )

    @override
    def recent(
        self,
        *,
        dataset: str | None = None,
        status: ImportStatus | None = None,
        before: ImportId | None = None,
        limit: int,
    ) -> Sequence[tuple[Import, Shards]]:
        def work(transaction: Transaction) -> Sequence[tuple[Import, Shards]]:
            rows = transaction.all(
                "recent_imports",
                dataset=dataset,
                status=status,
                before=before,
                limit=limit,
            )
            imports = [self._rows.read_import(row) for row in rows]
            shards = count_shards(transaction, [found.id for found in imports])
            return [(found, shards.get(found.id, Shards())) for found in imports]

        return self._database.read(work)

    @override
    def newest(self, dataset: str, *, planned: bool = False) -> Import | None:
        row = self._database.read(
            lambda transaction: transaction.one(
                "newest_import", dataset=dataset, planned=planned
            )
        )
        return None if row is None else self._rows.read_import(row)

    def _get(self, transaction: Transaction, import_id: int) -> Import:
        row = transaction.one("get_import", import_id=import_id)
        if row is None:
            raise NotFound(f"there is no import {import_id}", among="imports")
        return self._rows.read_import(row)

    def _get_all(
        self, transaction: Transaction, import_id: ImportId
    ) -> tuple[Import, Shards]:
        current = self._get(transaction, import_id)
        shards = count_shards(transaction, [current.id])
        return current, shards.get(current.id, Shards())


def begin(
    database: Database,
    transaction: Transaction,
    dataset: Dataset,
    scope: ImportScope,
    *,
    declaration: str,
    traceparent: str | None,
) -> tuple[Import, bool]:
    """Store a new import, or find the unfinished one of the same kind."""
    refuse_stale(transaction.one("share_dataset", dataset=dataset.name), dataset)
    rows = RowMappers(database.instant)
    same = {"dataset": dataset.name, "mode": scope.mode}
    unfinished = transaction.one("find_unfinished_import", **same)
    if unfinished is not None:
        return resume(transaction, rows.read_import(unfinished), scope), True
    in_settings = dataset.missing.lost_files is LostFiles.ACCEPT
    cursor = PlanCursor(files=scope.files, traceparent=traceparent)
    added = transaction.one(
        "add_import",
        **same,
        declaration=declaration,
        tracked=is_tracked(dataset, scope.mode),
        accepts_lost_files=scope.accept_lost_files or in_settings,
        accepts_duplicates=scope.accept_duplicates,
        since=database.to_stored_time(scope.since),
        until=database.to_stored_time(scope.until),
        priority=dataset.priority,
        region=dataset.region,
    )
    if added is not None:
        transaction.execute(
            "add_plan_job",
            import_id=added["id"],
            cursor=None if cursor == PlanCursor() else cursor.encode(),
            head_start=PLAN_HEAD_START // MICROSECOND,
        )
        stored = transaction.one("get_import", import_id=added["id"])
        if stored is None:
            raise LookupError("an import was not stored")
        return rows.read_import(stored), False
    # another planner has added one meanwhile
    unfinished = transaction.one("find_unfinished_import", **same)
    if unfinished is None:
        raise StoreUnavailable("an import of this kind has just ended")
    return resume(transaction, rows.read_import(unfinished), scope), True


def resume(transaction: Transaction, existing: Import, scope: ImportScope) -> Import:
    """Resume an import; what either request accepts stays accepted."""
    resumed = existing
    if scope.accept_lost_files and not existing.accepts_lost_files:
        transaction.execute("accept_lost_files", import_id=existing.id)
        resumed = replace(resumed, accepts_lost_files=True)
    if scope.accept_duplicates and not existing.accepts_duplicates:
        transaction.execute("accept_duplicates", import_id=existing.id)
        resumed = replace(resumed, accepts_duplicates=True)
    return resumed


def add_jobs(
    transaction: Transaction, import_id: ImportId, shard_keys: Sequence[str]
) -> int:
    return transaction.execute(
        "add_jobs",
        import_id=import_id,
        parent=None,
        shard_keys=json.dumps(shard_keys),
    )


def start(transaction: Transaction, import_id: ImportId) -> None:
    transaction.execute("start_import", import_id=import_id)
    transaction.execute("finish_plan", import_id=import_id)
    transaction.execute("ring")


def repeat(
    transaction: Transaction, dataset: Dataset, import_id: ImportId, *, of: ImportId
) -> None:
    """End an import with the result of another one, all rows unchanged."""
    transaction.execute(
        "repeat_jobs", import_id=import_id, of=of, proof=Proof.UNCHANGED
    )
    transaction.execute("repeat_counts", import_id=import_id)
    transaction.execute("finish_plan", import_id=import_id)
    if dataset.archive is not None:
        # all rows of the last import were seen again
        transaction.execute("extend_sighting", dataset=dataset.name)
    note = f"neither the files nor the rows have changed since import {of}"
    verdict = CompletionVerdict(status=ImportStatus.DONE, proven=True, note=note)
    end(transaction, import_id, verdict, 0, repeatable=dataset)


def count_shards(
    transaction: Transaction, imports: Sequence[ImportId]
) -> Mapping[ImportId, Shards]:
    return read_shards(transaction.all("count_jobs", imports=json.dumps(imports)))


def end(
    transaction: Transaction,
    import_id: ImportId,
    verdict: CompletionVerdict,
    deleted: int,
    *,
    repeatable: Dataset | None = None,
) -> None:
    """End an import, and store what a repeat of the same files has to match."""
    live = None if repeatable is None else transaction.table(repeatable).count()
    transaction.execute(
        "end_import",
        import_id=import_id,
        status=verdict.status,
        proven=verdict.proven,
        note=verdict.note,
        deleted=deleted,
        terms=None if repeatable is None else completion_digest(repeatable),
        live=live,
    )
    # wake those who wait for its end
    transaction.execute("ring")


def completion_digest(dataset: Dataset) -> str:
    """Hash what, beside the declaration and the files, decides how an import ends."""
    rules = repr((reader_edition(), dataset.missing, dataset.bad, dataset.version))
    return blake2b(rules.encode(), digest_size=8).hexdigest()


class SqlCompletionFacts(CompletionFacts):
    """The facts of one import, counted inside the transaction that ends it."""

    def __init__(
        self,
        database: Database,
        transaction: Transaction,
        dataset: Dataset,
        current: Import,
    ) -> None:
        self._rows = RowMappers(database.instant)
        self._transaction = transaction
        self._dataset = dataset
        self._table = transaction.table(dataset)
        self._import = current

    @override
    def unproven(self) -> int:
        return read_count(self._count("count_unproven_jobs"))

    @override
    def watermark(self) -> datetime | None:
        row = self._transaction.one("get_dataset", dataset=self._dataset.name)
        return None if row is None else self._rows.instant_or_none(row["watermark"])

    @override
    def repeated_keys(self) -> Sequence[str]:
        found = self._transaction.all("repeated_keys", import_id=self._import.id)
        keys = [key for row in found for key in json.loads(row["repeated_keys"])]
        # a key of several jobs is one example
        return [*dict.fromkeys(map(format_key, keys))][:MAX_KEY_EXAMPLES]

    @override
    def missed(self) -> MissingRows:
        return MissingRows(
            live=self._table.count(),
            missing=self._table.count_missing(
                import_id=self._import.id, started=self._import.created_at
            ),
            keyless=read_count(self._count("count_keyless_rejections")),
        )

    @override
    def lost(self) -> FilesNotRead:
        missing = self._table.missing_by_file(
            import_id=self._import.id, started=self._import.created_at
        )
        last_seen_by = {origin.import_id for origin in missing}
        files = {import_id: self._files(import_id) for import_id in last_seen_by}
        return find_lost_rows(missing, files, read=self._files(self._import.id) or {})

    def mark_missing(self, lost: FilesNotRead) -> int:
        """Mark missing rows as deleted, except those of lost files; return how many."""
        return self._table.mark_missing(
            import_id=self._import.id,
            started=self._import.created_at,
            retained=lost.origins,
        )

    def _files(self, import_id: int) -> Mapping[int, str] | None:
        """Return the files that a full import has read, by number.

        None if the import is no longer in the ledger.
        """
        row = self._transaction.one("get_import", import_id=import_id)
        if row is None:
            return None
        if row["mode"] != Mode.FULL:
            return {}
        jobs = self._transaction.all("planned_shards", import_id=import_id)
        try:
            parts = {Slice.of_key(job["shard_key"]) for job in jobs}
        except ValueError:
            # the dataset was imported from an API then
            return {}
        return {
            part.number: stable_file_name(part.file, self._dataset) for part in parts
        }

    def _count(self, name: str) -> SqlRow | None:
        return self._transaction.one(name, import_id=self._import.id)
