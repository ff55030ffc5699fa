"""Requests that are known again, in the database that holds what they began."""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from typing_extensions import override

from penstock.adapters.sql.database import Database, Row, Transaction
from penstock.adapters.sql.imports import add_jobs, begin, start
from penstock.adapters.sql.rows import Rows
from penstock.domain.dataset import Dataset
from penstock.domain.job import ImportId
from penstock.domain.times import MICROSECOND
from penstock.errors import KeyReused, StillAtWork
from penstock.ports.idempotency import Ask, Begun, Claim, Requests, Wanted

REMEMBERED = timedelta(hours=24)
# how long a request may take before somebody else may take it over; a large file has
# to be read once from its beginning to its end
AT_WORK = timedelta(minutes=1)
AT_WORK_WITH_FILE = timedelta(minutes=15)


class SqlRequests(Requests):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = Rows(database.instant)

    @override
    def claim(self, ask: Ask) -> Claim | Begun:
        def work(transaction: Transaction) -> Claim | Begun:
            mine = transaction.one("add_request", **told(ask))
            if mine is None:
                held = transaction.one("hold_request", **named(ask))
                if held is None or not held["is_over"]:
                    return self._known(transaction, ask, held)
                mine = transaction.one("take_over_request", **told(ask))
            if mine is None:
                raise StillAtWork(ask.key)
            return Claim(ask, mine["fence"])

        return self._database.write(work)

    def _known(self, transaction: Transaction, ask: Ask, held: Row | None) -> Begun:
        if held is None:
            # it was given up this very moment
            raise StillAtWork(ask.key)
        if bytes(held["digest"]) != ask.digest:
            raise KeyReused(ask.key)
        if held["import_id"] is None:
            raise StillAtWork(ask.key)
        stored = transaction.one("get_import", import_id=held["import_id"])
        if stored is None:
            raise LookupError(f"import {held['import_id']} of a request is gone")
        begun = self._rows.read_import(stored)
        return Begun(begun=begun, resumed=bool(held["resumed"]))

    @override
    def begin(self, claim: Claim, dataset: Dataset, wanted: Wanted) -> Begun:
        def work(transaction: Transaction) -> Begun:
            known, resumed = begin(
                self._database,
                transaction,
                dataset,
                wanted.scope,
                declaration=wanted.declaration,
            )
            if resumed:
                wanted.approve(known, planned(transaction, known.id))
            elif wanted.shard_keys:
                add_jobs(transaction, known.id, wanted.shard_keys)
                start(transaction, known.id)
            answered = transaction.one(
                "answer_request",
                **named(claim.ask),
                claimed=claim.fence,
                import_id=known.id,
                resumed=resumed,
                remembered=REMEMBERED // MICROSECOND,
            )
            if answered is None:
                raise StillAtWork(claim.ask.key)
            return Begun(begun=known, resumed=resumed)

        return self._database.write(work)

    @override
    def give_up(self, claim: Claim) -> None:
        self._database.write(
            lambda transaction: transaction.execute(
                "give_up_request", **named(claim.ask), claimed=claim.fence
            )
        )

    @override
    def unplanned(self) -> Sequence[ImportId]:
        found = self._database.read(lambda look: look.all("unplanned_imports"))
        return [ImportId(row["id"]) for row in found]

    @override
    def hold_planning(
        self, import_id: ImportId, planner: str, *, longest: timedelta
    ) -> bool:
        held = self._database.write(
            lambda transaction: transaction.one(
                "hold_planning",
                import_id=import_id,
                planner=planner,
                longest=longest // MICROSECOND,
            )
        )
        return held is not None

    @override
    def forget(self, *, most: int) -> int:
        return self._database.write(
            lambda transaction: transaction.execute("forget_requests", most=most)
        )


def named(ask: Ask) -> dict[str, object]:
    return {"scope": ask.scope, "key": ask.key}


def told(ask: Ask) -> dict[str, object]:
    at_work = AT_WORK if ask.file is None else AT_WORK_WITH_FILE
    return {
        **named(ask),
        "digest": ask.digest,
        "file": ask.file,
        "at_work": at_work // MICROSECOND,
    }


def planned(
    transaction: Transaction, import_id: ImportId
) -> Callable[[], Iterable[str]]:
    def shard_keys() -> Iterable[str]:
        found = transaction.all("planned_shards", import_id=import_id)
        return [row["shard_key"] for row in found]

    return shard_keys
