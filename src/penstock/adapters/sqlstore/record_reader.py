"""Reads of the API: pages, single records, counts and changes."""

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from typing_extensions import override

from penstock.adapters.sqlstore.database import Database, Outcome, Transaction
from penstock.adapters.sqlstore.dataset_versions import (
    has_change,
    observe,
    read_dataset_version,
)
from penstock.adapters.sqlstore.key_encoding import decode_key
from penstock.adapters.sqlstore.row_mappers import RowMappers
from penstock.adapters.sqlstore.schema import refusing_stale
from penstock.adapters.sqlstore.table_protocols import (
    ByteAllowance,
    StatementTimeout,
    VisibleRow,
)
from penstock.domain.dataset import Dataset, Field
from penstock.domain.history import HistoryPosition
from penstock.domain.pages import Key
from penstock.domain.search.query import Query
from penstock.errors import StoreTimeout
from penstock.ports.record_access import (
    Change,
    Count,
    CountKind,
    DatasetVersion,
    RecordPage,
    RecordReader,
    StoredRecord,
)

SECRET_BYTES = 32


class SqlRecordReader(RecordReader):
    """Reads from one database, or from its replicas.

    The versions of datasets come from `primary`. Before a new version is returned,
    `on_news` makes sure that no replica serves an older state; if a change is unknown,
    `on_lost` makes sure that none serves another history.
    """

    def __init__(
        self,
        database: Database,
        *,
        primary: Database | None = None,
        on_news: Callable[[], None] | None = None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database
        self._primary = primary or database
        self._on_news = on_news
        self._on_lost = on_lost
        self._last_states: Mapping[str, DatasetVersion] = {}
        self._rows = RowMappers(database.instant)

    @override
    def dataset_versions(self) -> Mapping[str, DatasetVersion]:
        found = self._primary.read(
            lambda transaction: transaction.all("dataset_states")
        )
        states = {
            row["name"]: replace(
                read_dataset_version(row, self._rows.instant_or_none),
                is_dropped=bool(row["is_dropped"]),
            )
            for row in found
        }
        if self._on_news is not None and states != self._last_states:
            self._on_news()
        self._last_states = states
        return states

    @override
    def knows(self, dataset: str, positions: Collection[HistoryPosition]) -> bool:
        def work(transaction: Transaction) -> bool:
            return all(
                has_change(transaction, dataset, position) for position in positions
            )

        is_known = self._primary.read(work)
        if not is_known:
            self._on_lost()
        return is_known

    @override
    def page(self, query: Query) -> RecordPage:
        return self._read(
            query.dataset, lambda transaction: read_page(transaction, query)
        )

    @override
    def one(
        self, dataset: Dataset, key: Key, fields: Sequence[Field]
    ) -> StoredRecord | None:
        return self._read(
            dataset,
            lambda transaction: transaction.record_table(dataset).one(key, fields),
        )

    @override
    def count(self, query: Query, kind: CountKind) -> Count:
        def work(transaction: Transaction) -> Count:
            table = transaction.record_table(query.dataset)
            if kind is CountKind.EXACT:
                try:
                    return Count(table.count(query), CountKind.EXACT)
                except StatementTimeout:
                    pass
            try:
                return table.estimate(query)
            except StatementTimeout as error:
                raise StoreTimeout("the rows cannot be counted now") from error

        return self._read(query.dataset, work)

    def _read(
        self, dataset: Dataset, work: Callable[[Transaction], Outcome]
    ) -> Outcome:
        def observed(transaction: Transaction) -> Outcome:
            outcome = work(transaction)
            observe(transaction, dataset)
            return outcome

        with refusing_stale(self._primary, dataset):
            return self._database.read(observed)

    @override
    def changes(self, dataset: Dataset, *, after: int, limit: int) -> Sequence[Change]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "find_changes", dataset=dataset.name, after=after, limit=limit
            )
        )
        return [
            Change(
                seq=row["seq"],
                tag=row["tag"],
                kind=row["kind"],
                key=decode_key(dataset, row["key"]),
                import_id=row["import_id"],
                at=self._database.instant(row["at"]),
            )
            for row in found
        ]

    @override
    def secret(self, name: str) -> bytes:
        def work(transaction: Transaction) -> bytes:
            secret = secrets.token_bytes(SECRET_BYTES)
            transaction.execute("add_secret", name=name, value=secret)
            row = transaction.one("get_secret", name=name)
            return secret if row is None else bytes(row["value"])

        stored = self._primary.read(
            lambda transaction: transaction.one("get_secret", name=name)
        )
        return self._primary.write(work) if stored is None else bytes(stored["value"])


def read_page(transaction: Transaction, query: Query) -> RecordPage:
    """Read one row more than the limit, to know whether there are more."""
    found: list[VisibleRow] = []
    table, room = transaction.record_table(query.dataset), ByteAllowance()
    for part in query.parts():
        limit = query.limit + 1 - len(found)
        found += table.rows(query, part, limit=limit, room=room)
        if len(found) > query.limit or room.is_full:
            break
    has_more = len(found) > query.limit or room.is_full
    rows = found[: query.limit]
    if query.backward:
        rows.reverse()
    return RecordPage(
        rows=[row.body for row in rows],
        first=tuple(rows[0].place) if rows else None,
        last=tuple(rows[-1].place) if rows else None,
        has_more=has_more,
    )
