"""The ledger as planners and finishers see it."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from hashlib import blake2b

from typing_extensions import override

from penstock import __version__
from penstock.adapters.sql.complaints import settle_outdone
from penstock.adapters.sql.database import Database, Row, Transaction, counted
from penstock.adapters.sql.rows import Rows, read_shards
from penstock.adapters.sql.schema import refuse_stale
from penstock.domain.dataset import Dataset, LostFiles
from penstock.domain.finish import Ending, Facts, Missed, is_tracked, settle
from penstock.domain.job import Import, ImportId, ImportStatus, Mode, Shards
from penstock.domain.lost_files import Lost, find_lost, name_file
from penstock.domain.page import Proof
from penstock.domain.parts import Slice
from penstock.domain.scope import Scope
from penstock.errors import NotFound, StoreUnavailable
from penstock.ports import Imports

# jobs stored in one transaction: bounded memory, and others get a turn
PLANNED_AT_ONCE = 5_000


class SqlImports(Imports):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = Rows(database.instant)

    @override
    def begin(
        self,
        dataset: Dataset,
        mode: Mode,
        *,
        declaration: str,
        since: datetime | None,
        until: datetime | None,
        accept_lost_files: bool = False,
    ) -> tuple[Import, bool]:
        scope = Scope(
            mode=mode, since=since, until=until, accept_lost_files=accept_lost_files
        )
        return self._database.write(
            lambda transaction: begin(
                self._database, transaction, dataset, scope, declaration=declaration
            )
        )

    @override
    def add_jobs(self, import_id: ImportId, shard_keys: Iterable[str]) -> int:
        added = 0
        keys = iter(shard_keys)
        while some := list(itertools.islice(keys, PLANNED_AT_ONCE)):
            added += self._add_jobs(import_id, some)
        return added

    def _add_jobs(self, import_id: ImportId, shard_keys: Sequence[str]) -> int:
        return self._database.write(
            lambda transaction: add_jobs(transaction, import_id, shard_keys)
        )

    @override
    def start(self, import_id: ImportId) -> None:
        self._database.write(lambda transaction: start(transaction, import_id))

    @override
    def still_true(self, dataset: Dataset, mode: Mode) -> Import | None:
        same = {"dataset": dataset.name, "mode": mode}

        def work(look: Transaction) -> Import | None:
            row = look.one("last_done_import", **same)
            if row is None or not (row["proven"] and row["is_latest"]):
                return None
            if row["terms"] != terms_of(dataset):
                return None
            # rows that somebody has taken away by hand leave no other trace
            if row["live"] != look.table(dataset).count():
                return None
            return self._rows.read_import(row)

        return self._database.read(work)

    @override
    def shard_keys(self, import_id: ImportId) -> Iterator[str]:
        found = self._database.read(
            lambda look: look.all("planned_shards", import_id=import_id)
        )
        for row in found:
            yield row["shard_key"]

    @override
    def repeat(self, dataset: Dataset, import_id: ImportId, *, of: ImportId) -> bool:
        def work(transaction: Transaction) -> bool:
            transaction.one("hold_import", import_id=import_id)
            known, shards = self._get_all(transaction, import_id)
            if known.status is not ImportStatus.PLANNING or shards.total:
                return False
            transaction.execute(
                "repeat_jobs", import_id=import_id, of=of, proof=Proof.UNCHANGED
            )
            transaction.execute("repeat_counts", import_id=import_id)
            note = f"neither the files nor the rows have changed since import {of}"
            ending = Ending(status=ImportStatus.DONE, proven=True, note=note)
            end(transaction, import_id, ending, 0, known_by=dataset)
            return True

        return self._database.write(work)

    @override
    def close(
        self, dataset: Dataset, import_id: ImportId, *, failed: str | None
    ) -> Import | None:
        def work(transaction: Transaction) -> Import | None:
            transaction.one("hold_import", import_id=import_id)
            known, shards = self._get_all(transaction, import_id)
            if known.status is not ImportStatus.RUNNING:
                return None
            if failed is None and shards.open:
                return None
            if failed is not None:
                transaction.execute("cancel_jobs", import_id=import_id)
            self._settle(transaction, dataset, known, shards, failed)
            return self._get(transaction, import_id)

        if failed is None and not self._is_settled(import_id):
            return None
        # what is missing from a large dataset takes a while to find and mark
        return self._database.write(work, slow=True)

    def _settle(
        self,
        transaction: Transaction,
        dataset: Dataset,
        known: Import,
        shards: Shards,
        failed: str | None,
    ) -> None:
        facts = Counted(self._database, transaction, dataset, known)
        ending = settle(known, shards, dataset, facts, failed=failed)
        deleted = 0
        if ending.watermark is not None:
            transaction.execute(
                "set_watermark",
                dataset=dataset.name,
                watermark=self._database.moment(ending.watermark),
            )
        if ending.marks_missing:
            deleted = facts.mark_missing(ending.lost)
        settle_outdone(transaction, dataset, known.id)
        if ending.settles_quarantine:
            transaction.execute(
                "supersede_rejections", dataset=dataset.name, import_id=known.id
            )
        # one that kept something back may do better next time
        is_whole = ending.proven and ending.note is None
        known_by = dataset if dataset.is_ranked and is_whole else None
        transaction.execute("publish_dataset", dataset=dataset.name)
        end(transaction, known.id, ending, deleted, known_by=known_by)

    def _is_settled(self, import_id: ImportId) -> bool:
        # asked after every job, so it must not count them all
        row = self._database.read(
            lambda look: look.one("has_open_jobs", import_id=import_id)
        )
        return row is not None and not row["is_open"]

    @override
    def cancel(
        self, import_id: ImportId, *, reason: str, only: ImportStatus | None = None
    ) -> Import:
        def work(transaction: Transaction) -> Import:
            transaction.one("hold_import", import_id=import_id)
            known = self._get(transaction, import_id)
            if only is not None and known.status is not only:
                return known
            ending = Ending(status=ImportStatus.CANCELLED, proven=False, note=reason)
            end(transaction, import_id, ending, 0)
            transaction.execute("cancel_jobs", import_id=import_id)
            # what it had stored until now is served
            transaction.execute("publish_dataset", dataset=known.dataset)
            return self._get(transaction, import_id)

        return self._database.write(work, slow=True)

    @override
    def get(self, import_id: ImportId) -> tuple[Import, Shards]:
        return self._database.read(lambda look: self._get_all(look, import_id))

    @override
    def peek(self, import_id: ImportId) -> Import:
        return self._database.read(lambda look: self._get(look, import_id))

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
            found = transaction.all(
                "recent_imports",
                dataset=dataset,
                status=status,
                before=before,
                limit=limit,
            )
            imports = [self._rows.read_import(row) for row in found]
            shards = shards_of(transaction, [each.id for each in imports])
            return [(each, shards.get(each.id, Shards())) for each in imports]

        return self._database.read(work)

    @override
    def newest(self, dataset: str) -> Import | None:
        row = self._database.read(
            lambda look: look.one("newest_import", dataset=dataset)
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
        known = self._get(transaction, import_id)
        return known, shards_of(transaction, [known.id]).get(known.id, Shards())


def begin(
    database: Database,
    transaction: Transaction,
    dataset: Dataset,
    scope: Scope,
    *,
    declaration: str,
) -> tuple[Import, bool]:
    """Store a new import, or find the unfinished one of the same kind."""
    refuse_stale(transaction.one("share_dataset", dataset=dataset.name), dataset)
    rows = Rows(database.instant)
    same = {"dataset": dataset.name, "mode": scope.mode}
    known = transaction.one("find_unfinished_import", **same)
    if known is not None:
        return resume(transaction, rows.read_import(known), scope), True
    in_settings = dataset.missing.lost_files is LostFiles.ACCEPT
    added = transaction.one(
        "add_import",
        **same,
        declaration=declaration,
        tracked=is_tracked(dataset, scope.mode),
        accepts_lost_files=scope.accept_lost_files or in_settings,
        since=database.moment(scope.since),
        until=database.moment(scope.until),
        priority=dataset.priority,
        region=dataset.region,
    )
    if added is not None:
        stored = transaction.one("get_import", import_id=added["id"])
        if stored is None:
            raise LookupError("an import is gone that was stored a moment ago")
        return rows.read_import(stored), False
    # another planner was faster
    known = transaction.one("find_unfinished_import", **same)
    if known is None:
        raise StoreUnavailable("an import of this kind has just ended")
    return resume(transaction, rows.read_import(known), scope), True


def resume(transaction: Transaction, existing: Import, scope: Scope) -> Import:
    """Go on with an import, under what whoever goes on with it has accepted."""
    if not scope.accept_lost_files or existing.accepts_lost_files:
        return existing
    transaction.execute("accept_lost_files", import_id=existing.id)
    return replace(existing, accepts_lost_files=True)


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
    transaction.execute("ring")


def shards_of(
    transaction: Transaction, imports: Sequence[ImportId]
) -> Mapping[ImportId, Shards]:
    return read_shards(transaction.all("count_jobs", imports=json.dumps(imports)))


def end(
    transaction: Transaction,
    import_id: ImportId,
    ending: Ending,
    deleted: int,
    *,
    known_by: Dataset | None = None,
) -> None:
    """End an import, and note what one of the same files has to find again."""
    live = None if known_by is None else transaction.table(known_by).count()
    transaction.execute(
        "end_import",
        import_id=import_id,
        status=ending.status,
        proven=ending.proven,
        note=ending.note,
        deleted=deleted,
        terms=None if known_by is None else terms_of(known_by),
        live=live,
    )
    # whoever waits for its end
    transaction.execute("ring")


def terms_of(dataset: Dataset) -> str:
    """Digest what decides about the end of an import, beside its declaration."""
    told = repr((__version__, dataset.missing, dataset.bad, dataset.version))
    return blake2b(told.encode(), digest_size=8).hexdigest()


class Counted(Facts):
    """The facts of one import, counted inside the transaction that ends it."""

    def __init__(
        self,
        database: Database,
        transaction: Transaction,
        dataset: Dataset,
        known: Import,
    ) -> None:
        self._rows = Rows(database.instant)
        self._transaction = transaction
        self._dataset = dataset
        self._table = transaction.table(dataset)
        self._known = known

    @override
    def unproven(self) -> int:
        return counted(self._count("count_unproven_jobs"))

    @override
    def watermark(self) -> datetime | None:
        row = self._transaction.one("get_dataset", dataset=self._dataset.name)
        return None if row is None else self._rows.instant_or_none(row["watermark"])

    @override
    def missed(self) -> Missed:
        return Missed(
            live=self._table.count(),
            missing=self._table.count_missing(
                import_id=self._known.id, started=self._known.created_at
            ),
            keyless=counted(self._count("count_keyless_rejections")),
        )

    @override
    def lost(self) -> Lost:
        found = self._table.missing_by_file(
            import_id=self._known.id, started=self._known.created_at
        )
        seen_by = {each.import_id for each in found} if found else ()
        files = {import_id: self._files(import_id) for import_id in seen_by}
        return find_lost(found, files, read=self._files(self._known.id) or {})

    def mark_missing(self, lost: Lost) -> int:
        """Mark what is missing as deleted, but for what is lost; count the rows."""
        return self._table.mark_missing(
            import_id=self._known.id,
            started=self._known.created_at,
            kept=lost.origins,
        )

    def _files(self, import_id: int) -> Mapping[int, str] | None:
        """Return by its number each file that a full import has read.

        None where the ledger has forgotten the import.
        """
        of = self._transaction.one("get_import", import_id=import_id)
        if of is None:
            return None
        if of["mode"] != Mode.FULL:
            return {}
        jobs = self._transaction.all("planned_shards", import_id=import_id)
        try:
            parts = {Slice.of_key(job["shard_key"]) for job in jobs}
        except ValueError:
            # the dataset came from a provider then
            return {}
        return {part.number: name_file(part.file, self._dataset) for part in parts}

    def _count(self, name: str) -> Row | None:
        return self._transaction.one(name, import_id=self._known.id)
