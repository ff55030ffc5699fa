"""Idempotency keys of requests, in the database that holds their imports."""

from collections.abc import Callable, Iterable
from datetime import timedelta

from typing_extensions import override

from penstock.adapters.sqlstore.database import Database, SqlRow, Transaction
from penstock.adapters.sqlstore.imports import add_jobs, begin, start
from penstock.adapters.sqlstore.records import source_import
from penstock.adapters.sqlstore.row_mappers import RowMappers
from penstock.domain.dataset import Dataset
from penstock.domain.formats import MICROSECOND
from penstock.domain.jobs import ImportId
from penstock.errors import IdempotencyKeyReused, RequestInProgress
from penstock.ports.idempotency import (
    IdempotencyStore,
    IdempotentRequest,
    ImportSpec,
    RequestClaim,
    StartedImport,
)

RETENTION = timedelta(hours=24)
# how long a request may take before another may take it over; a large file has to be
# read once from beginning to end
REQUEST_TIMEOUT = timedelta(minutes=1)
FILE_REQUEST_TIMEOUT = timedelta(minutes=15)


class SqlIdempotencyStore(IdempotencyStore):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = RowMappers(database.instant)

    @override
    def claim(self, request: IdempotentRequest) -> RequestClaim | StartedImport:
        def work(transaction: Transaction) -> RequestClaim | StartedImport:
            claimed = transaction.one("add_request", **request_params(request))
            if claimed is None:
                locked = transaction.one("hold_request", **key_params(request))
                if locked is None or not locked["is_over"]:
                    return self._replay(transaction, request, locked)
                claimed = transaction.one(
                    "take_over_request", **request_params(request)
                )
            if claimed is None:
                raise RequestInProgress(request.key)
            return RequestClaim(request, claimed["fence"])

        return self._database.write(work)

    def _replay(
        self,
        transaction: Transaction,
        request: IdempotentRequest,
        locked: SqlRow | None,
    ) -> StartedImport:
        # without a row or an import, the request was just given up or is still running
        if locked is None:
            raise RequestInProgress(request.key)
        if bytes(locked["digest"]) != request.digest:
            raise IdempotencyKeyReused(request.key)
        if locked["import_id"] is None:
            raise RequestInProgress(request.key)
        stored = transaction.one("get_import", import_id=locked["import_id"])
        if stored is None:
            raise LookupError(f"import {locked['import_id']} of a request is gone")
        return StartedImport(
            import_=self._rows.read_import(stored), resumed=bool(locked["resumed"])
        )

    @override
    def begin(
        self, claim: RequestClaim, dataset: Dataset, spec: ImportSpec
    ) -> StartedImport:
        def work(transaction: Transaction) -> StartedImport:
            started, resumed = begin(
                self._database,
                transaction,
                dataset,
                spec.scope,
                declaration=spec.declaration,
                traceparent=spec.traceparent,
            )
            if resumed:
                spec.approve(started, shard_keys_reader(transaction, started.id))
            elif spec.shard_keys:
                add_jobs(transaction, started.id, spec.shard_keys)
                start(transaction, started.id)
            if spec.corrects is not None:
                transaction.execute(
                    "add_correction",
                    import_id=started.id,
                    corrects=source_import(transaction, spec.corrects),
                )
            completed = transaction.one(
                "answer_request",
                **key_params(claim.ask),
                claimed=claim.fence,
                import_id=started.id,
                resumed=resumed,
                remembered=RETENTION // MICROSECOND,
            )
            if completed is None:
                raise RequestInProgress(claim.ask.key)
            return StartedImport(import_=started, resumed=resumed)

        return self._database.write(work)

    @override
    def give_up(self, claim: RequestClaim) -> None:
        self._database.write(
            lambda transaction: transaction.execute(
                "give_up_request", **key_params(claim.ask), claimed=claim.fence
            )
        )

    @override
    def forget(self, *, most: int) -> int:
        return self._database.write(
            lambda transaction: transaction.execute("forget_requests", most=most)
        )


def key_params(request: IdempotentRequest) -> dict[str, object]:
    return {"scope": request.scope, "key": request.key}


def request_params(request: IdempotentRequest) -> dict[str, object]:
    timeout = REQUEST_TIMEOUT if request.file is None else FILE_REQUEST_TIMEOUT
    return {
        **key_params(request),
        "digest": request.digest,
        "file": request.file,
        "at_work": timeout // MICROSECOND,
    }


def shard_keys_reader(
    transaction: Transaction, import_id: ImportId
) -> Callable[[], Iterable[str]]:
    def shard_keys() -> Iterable[str]:
        found = transaction.all("planned_shards", import_id=import_id)
        return [row["shard_key"] for row in found]

    return shard_keys
