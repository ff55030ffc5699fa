"""The outbox, in the database of what its messages are about."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta

from typing_extensions import override

from penstock.adapters.sqlstore.database import Database, SqlRow, Transaction
from penstock.adapters.sqlstore.row_mappers import decode_json
from penstock.domain.formats import MICROSECOND
from penstock.ports.outbox import (
    DestinationState,
    Message,
    MessageId,
    NewMessage,
    Outbox,
    OutboxBacklog,
)


class SqlOutbox(Outbox):
    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    def add(self, messages: Sequence[NewMessage]) -> int:
        return self._database.write(
            lambda transaction: add_messages(transaction, messages)
        )

    @override
    def take(
        self,
        kind: str,
        *,
        most: int,
        lasting: timedelta,
        destination: str | None = None,
    ) -> Sequence[Message]:
        found = self._database.write(
            lambda transaction: transaction.all(
                "take_messages",
                kind=kind,
                destination=destination,
                most=most,
                lasting=lasting // MICROSECOND,
            )
        )
        return sorted(map(read_message, found), key=lambda message: message.id)

    @override
    def mark_sent(
        self, messages: Sequence[Message], *, confirm_within: timedelta | None
    ) -> None:
        self._database.write(
            lambda transaction: transaction.execute(
                "mark_messages_sent",
                ids=encode_ids(message.id for message in messages),
                confirm_within=None
                if confirm_within is None
                else confirm_within // MICROSECOND,
            )
        )

    @override
    def postpone(
        self, messages: Sequence[Message], *, delay: timedelta, error: str | None
    ) -> None:
        self._database.write(
            lambda transaction: transaction.execute(
                "postpone_messages",
                ids=encode_ids(message.id for message in messages),
                delay=delay // MICROSECOND,
                error=error,
            )
        )

    @override
    def give_up(self, messages: Sequence[Message], *, error: str) -> None:
        self._database.write(
            lambda transaction: transaction.execute(
                "give_up_messages",
                ids=encode_ids(message.id for message in messages),
                error=error,
            )
        )

    @override
    def drop_overdue(
        self, kind: str, *, known: Collection[str], overdue: timedelta
    ) -> Mapping[str, int]:
        found = self._database.write(
            lambda transaction: transaction.all(
                "drop_overdue_messages",
                kind=kind,
                known=json.dumps(sorted(known)),
                overdue=overdue // MICROSECOND,
            )
        )
        return Counter(row["destination"] for row in found)

    @override
    def destinations(self, kind: str) -> Sequence[DestinationState]:
        found = self._database.read(
            lambda transaction: transaction.all("outbox_destinations", kind=kind)
        )
        return [
            DestinationState(
                destination=row["destination"],
                waiting=row["waiting"],
                given_up=row["given_up"],
                error=row["error"],
            )
            for row in found
        ]

    @override
    def settle(self, ids: Sequence[MessageId]) -> int:
        return self._database.write(
            lambda transaction: transaction.execute(
                "settle_messages", ids=encode_ids(ids)
            )
        )

    @override
    def unsettled(self, kind: str) -> Sequence[Message]:
        found = self._database.read(
            lambda transaction: transaction.all("unsettled_messages", kind=kind)
        )
        return [read_message(row) for row in found]

    @override
    def unreceived(self, kind: str, destination: str) -> Sequence[timedelta]:
        found = self._database.read(
            lambda transaction: transaction.all(
                "unreceived_messages", kind=kind, destination=destination
            )
        )
        return [row["sent_for"] * MICROSECOND for row in found]

    @override
    def backlog(self, kind: str) -> OutboxBacklog:
        (row,) = self._database.read(
            lambda transaction: transaction.all("outbox_backlog", kind=kind)
        )
        unsent = row["unsent_for"]
        return OutboxBacklog(
            messages=row["messages"],
            unsent_for=None if unsent is None else unsent * MICROSECOND,
        )

    @override
    def forget(self, *, sent: timedelta, most: int) -> int:
        return self._database.write(
            lambda transaction: transaction.execute(
                "forget_messages", sent=sent // MICROSECOND, most=most
            )
        )


def add_messages(transaction: Transaction, messages: Sequence[NewMessage]) -> int:
    """Add messages in a transaction of any store; return how many."""
    limited = {
        (message.kind, message.destination)
        for message in messages
        if message.most is not None
    }
    # in one order, so that no two processes wait for each other
    for kind, destination in sorted(limited):
        transaction.execute("hold_destination", kind=kind, destination=destination)
    return sum(
        transaction.execute(
            "add_message",
            kind=message.kind,
            destination=message.destination,
            payload=json.dumps(dict(message.payload)),
            most=message.most,
        )
        for message in messages
    )


def encode_ids(ids: Iterable[MessageId]) -> str:
    return json.dumps([*ids])


def read_message(row: SqlRow) -> Message:
    return Message(
        id=MessageId(row["id"]),
        kind=row["kind"],
        destination=row["destination"],
        payload=decode_json(row["payload"]),
        attempts=row["attempts"],
        sends=row["sends"],
    )
