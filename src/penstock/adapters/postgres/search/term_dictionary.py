"""The term dictionary: the words of a dataset's rows, for typos and suggestions.

The words are counted in one pass over all rows at first, and again whenever so much has
changed that this is less work. Otherwise the words of changed rows are added. Words of
deleted rows stay until the next pass: a search checks whether any row has a word.
"""

from dataclasses import dataclass
from enum import Enum, auto

from penstock.adapters.postgres.database import PostgresDatabase, PostgresTransaction
from penstock.adapters.postgres.identifiers import lock_number
from penstock.adapters.postgres.search.sql import fields_of, words_of
from penstock.adapters.postgres.table_sql import COLUMN_TYPES
from penstock.adapters.sqlstore.key_encoding import quote
from penstock.domain.dataset import Dataset
from penstock.domain.search.query import field_named

# pages of changes whose words are added in one transaction, and transactions in a call
PAGES_PER_UPDATE, MAX_UPDATES = 20, 5
# the cost of looking up a changed row, in rows of a sequential scan
LOOKUP_COST = 3
# below so many changes, words are never counted again
MIN_CHANGES_TO_COUNT = 10_000


class DueUpdate(Enum):
    NOTHING = auto()
    ADD = auto()
    COUNT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTerms:
    """How complete the term dictionary of a dataset is."""

    # the fields whose words it has
    fields: str | None
    # the last change that it includes, and the last before the words were counted
    known_seq: int | None
    counted_seq: int | None
    latest_seq: int
    rows: float
    # whether no import is running
    is_at_rest: bool

    def due(self, fields: str) -> DueUpdate:
        if self.known_seq is None or self.counted_seq is None or self.fields != fields:
            return DueUpdate.COUNT
        new = self.latest_seq - self.known_seq
        changed = self.latest_seq - self.counted_seq
        threshold = max(self.rows, MIN_CHANGES_TO_COUNT)
        if changed > threshold or LOOKUP_COST * new > threshold:
            return DueUpdate.COUNT if self.is_at_rest else DueUpdate.NOTHING
        return DueUpdate.ADD if new else DueUpdate.NOTHING


def update_terms(database: PostgresDatabase, dataset: Dataset) -> None:
    """Bring the dictionary closer to the latest rows; one process at a time does."""
    for _ in range(MAX_UPDATES):
        due = database.read(lambda transaction: due_for(transaction, dataset))
        if due is DueUpdate.NOTHING:
            return
        database.write(lambda transaction: update(transaction, dataset), slow=True)


def due_for(transaction: PostgresTransaction, dataset: Dataset) -> DueUpdate:
    row = transaction.one("vocabulary", dataset=dataset.name)
    if row is None:
        return DueUpdate.NOTHING
    return KnownTerms(**row).due(fields_of(dataset))


def update(transaction: PostgresTransaction, dataset: Dataset) -> None:
    number = lock_number(f"words:{dataset.name}")
    row = transaction.one("hold_vocabulary", number=number)
    if row is None or not row["is_locked"]:
        return
    # another process may have done it meanwhile
    match due_for(transaction, dataset):
        case DueUpdate.COUNT:
            count(transaction, dataset)
        case DueUpdate.ADD:
            add(transaction, dataset)
        case DueUpdate.NOTHING:
            pass


def count(transaction: PostgresTransaction, dataset: Dataset) -> None:
    """Count the words of all rows."""
    transaction.execute("begin_counting")
    # before the rows are read: what changes meanwhile is added later
    transaction.execute(
        "note_counting", dataset=dataset.name, fields=fields_of(dataset)
    )
    rows = (
        f"select {words_of(dataset)} from {quote(dataset.name)} "
        "where _deleted_at is null"
    )
    transaction.execute("count_words", dataset=dataset.name, rows=rows)


def add(transaction: PostgresTransaction, dataset: Dataset) -> None:
    """Add the words of some changed rows."""
    pages = transaction.all(
        "unknown_pages", dataset=dataset.name, pages=PAGES_PER_UPDATE
    )
    if pages:
        parameters = {"dataset": dataset.name, "until": pages[-1]["last_seq"]}
        transaction.connection.execute(insert_words(dataset).encode(), parameters)
        transaction.execute("note_words", **parameters)


def insert_words(dataset: Dataset) -> str:
    """Return the insert of the words of rows whose keys are in pages of changes."""
    same = " and ".join(
        f"{quote(name)} = (_change._key ->> {at})"
        f"::{COLUMN_TYPES[field_named(dataset, name).type]}"
        for at, name in enumerate(dataset.key)
    )
    # no field and no dataset begins with an underscore; in a select of its own, a field
    # may be called like a column of the pages
    return f"""
insert into penstock_word (dataset, word, rows)
select %(dataset)s, _word, count(*)
from penstock_change_page as _page
cross join lateral json_array_elements(_page.keys) with ordinality
    as _change (_key, _position)
cross join lateral (
    select {words_of(dataset)} from {quote(dataset.name)}
    where {same} and _deleted_at is null
) as _row (_words)
cross join lateral unnest(tsvector_to_array(_words)) as _word
where _page.dataset = %(dataset)s and _page.last_seq <= %(until)s
    and _page.last_seq > (
        select change_seq from penstock_vocabulary where dataset = %(dataset)s
    )
    and _position <= _page.created + _page.updated
    and _word ~ '[^0-9]' and penstock_tokens(_word) = _word
group by _word order by _word
on conflict (dataset, word) do update
set rows = penstock_word.rows + excluded.rows
where excluded.rows * 4 > penstock_word.rows"""
