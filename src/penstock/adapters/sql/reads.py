"""What clients may read."""

import json
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence

from typing_extensions import override

from penstock.adapters.sql.database import Database, Outcome, Transaction
from penstock.adapters.sql.rows import Rows
from penstock.adapters.sql.served import Room, ShownRow, TookTooLong
from penstock.adapters.sql.states import has_change, observe, to_state
from penstock.domain.dataset import Dataset, Field
from penstock.domain.history import Position
from penstock.domain.page import Key
from penstock.domain.queries.query import Query
from penstock.errors import StoreTooSlow
from penstock.ports.serving import (
    Change,
    Count,
    CountKind,
    Found,
    Listing,
    Reads,
    State,
)

SECRET_BYTES = 32


class SqlReads(Reads):
    """Reads of one database, or of replicas of it that `states` keeps up to date.

    `primary` knows how far the datasets have come. Before anybody hears of something
    new, `on_news` sees to it that no read is answered from an older state; and where a
    change is not known, `on_lost`, that none is answered from another history.
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
        self._known: Mapping[str, State] = {}
        self._rows = Rows(database.instant)

    @override
    def states(self) -> Mapping[str, State]:
        found = self._primary.read(lambda look: look.all("dataset_states"))
        states = {
            row["name"]: to_state(row, self._rows.instant_or_none) for row in found
        }
        if self._on_news is not None and states != self._known:
            self._on_news()
        self._known = states
        return states

    @override
    def knows(self, dataset: str, positions: Collection[Position]) -> bool:
        def work(look: Transaction) -> bool:
            return all(has_change(look, dataset, each) for each in positions)

        is_known = self._primary.read(work)
        if not is_known:
            self._on_lost()
        return is_known

    @override
    def page(self, query: Query) -> Listing:
        return self._read(query.dataset, lambda look: read_page(look, query))

    @override
    def one(self, dataset: Dataset, key: Key, fields: Sequence[Field]) -> Found | None:
        return self._read(dataset, lambda look: look.served(dataset).one(key, fields))

    @override
    def count(self, query: Query, kind: CountKind) -> Count:
        def work(look: Transaction) -> Count:
            table = look.served(query.dataset)
            if kind is CountKind.EXACT:
                try:
                    return Count(table.count(query), CountKind.EXACT)
                except TookTooLong:
                    pass
            try:
                return table.estimate(query)
            except TookTooLong as error:
                raise StoreTooSlow("the rows cannot be counted now") from error

        return self._read(query.dataset, work)

    def _read(
        self, dataset: Dataset, work: Callable[[Transaction], Outcome]
    ) -> Outcome:
        def observed(look: Transaction) -> Outcome:
            outcome = work(look)
            observe(look, dataset)
            return outcome

        return self._database.read(observed)

    @override
    def changes(self, dataset: Dataset, *, after: int, limit: int) -> Sequence[Change]:
        found = self._database.read(
            lambda look: look.all(
                "find_changes", dataset=dataset.name, after=after, limit=limit
            )
        )
        return [
            Change(
                seq=row["seq"],
                tag=row["tag"],
                kind=row["kind"],
                key=json.loads(row["key"]),
                import_id=row["import_id"],
                at=self._database.instant(row["at"]),
            )
            for row in found
        ]

    @override
    def secret(self, name: str) -> bytes:
        def work(transaction: Transaction) -> bytes:
            fresh = secrets.token_bytes(SECRET_BYTES)
            transaction.execute("add_secret", name=name, value=fresh)
            row = transaction.one("get_secret", name=name)
            return fresh if row is None else bytes(row["value"])

        known = self._primary.read(lambda look: look.one("get_secret", name=name))
        return self._primary.write(work) if known is None else bytes(known["value"])


def read_page(look: Transaction, query: Query) -> Listing:
    """Read one row more than is wanted: it tells whether there are more."""
    found: list[ShownRow] = []
    table, room = look.served(query.dataset), Room()
    for part in query.parts():
        wanted = query.limit + 1 - len(found)
        found += table.rows(query, part, limit=wanted, room=room)
        if len(found) > query.limit or room.is_full:
            break
    has_more = len(found) > query.limit or room.is_full
    rows = found[: query.limit]
    if query.backward:
        rows.reverse()
    return Listing(
        rows=[row.body for row in rows],
        first=tuple(rows[0].place) if rows else None,
        last=tuple(rows[-1].place) if rows else None,
        has_more=has_more,
    )
