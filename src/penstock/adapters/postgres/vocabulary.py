"""Know the words that the rows of a dataset have, for typos and for suggestions.

They are counted in one pass over the rows at first, and whenever so much has changed
since that this is less work. Otherwise those of changed rows are added as they come.
Words of rows that are gone stay until the next pass: whoever uses a word looks whether
a row has it.
"""

from dataclasses import dataclass
from enum import Enum, auto

from penstock.adapters.postgres.database import Database, Transaction
from penstock.adapters.postgres.locks import lock_number
from penstock.adapters.postgres.searched import fields_of, words_of
from penstock.adapters.postgres.tables import COLUMN_TYPES
from penstock.adapters.sql.keys import quoted
from penstock.domain.dataset import Dataset
from penstock.domain.queries.query import field_named

# pages of changes whose words are added at once, and how often in a row
PAGES, TIMES = 20, 5
# looking up a changed row takes as long as reading some of them one after the other
DEARER = 3
FEW = 10_000


class Due(Enum):
    NOTHING = auto()
    ADD = auto()
    COUNT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """How far the words of a dataset are known."""

    # the fields whose words they are
    fields: str | None
    # the last change whose words are among them, and the last before they were counted
    known_seq: int | None
    counted_seq: int | None
    latest_seq: int
    rows: float
    # whether no import is at work
    is_at_rest: bool

    def due(self, fields: str) -> Due:
        if self.known_seq is None or self.counted_seq is None or self.fields != fields:
            return Due.COUNT
        new = self.latest_seq - self.known_seq
        changed = self.latest_seq - self.counted_seq
        if changed > max(self.rows, FEW) or DEARER * new > max(self.rows, FEW):
            return Due.COUNT if self.is_at_rest else Due.NOTHING
        return Due.ADD if new else Due.NOTHING


def learn(database: Database, dataset: Dataset) -> None:
    """Bring the vocabulary to the latest rows, or some way; one process at a time."""
    for _ in range(TIMES):
        if database.read(lambda look: due_for(look, dataset)) is Due.NOTHING:
            return
        database.write(lambda each: work(each, dataset), slow=True)


def due_for(look: Transaction, dataset: Dataset) -> Due:
    row = look.one("vocabulary", dataset=dataset.name)
    return Due.NOTHING if row is None else Known(**row).due(fields_of(dataset))


def work(transaction: Transaction, dataset: Dataset) -> None:
    number = lock_number(f"words:{dataset.name}")
    row = transaction.one("hold_vocabulary", number=number)
    if row is None or not row["is_ours"]:
        return
    # what is due may have been done meanwhile
    match due_for(transaction, dataset):
        case Due.COUNT:
            count(transaction, dataset)
        case Due.ADD:
            add(transaction, dataset)
        case Due.NOTHING:
            pass


def count(transaction: Transaction, dataset: Dataset) -> None:
    """Count the words of all rows."""
    transaction.execute("begin_counting")
    # asked for before the rows are read: what changes meanwhile is added later
    transaction.execute(
        "note_counting", dataset=dataset.name, fields=fields_of(dataset)
    )
    rows = (
        f"select {words_of(dataset)} from {quoted(dataset.name)} "
        "where _deleted_at is null"
    )
    transaction.execute("count_words", dataset=dataset.name, rows=rows)


def add(transaction: Transaction, dataset: Dataset) -> None:
    """Add the words of some changed rows."""
    pages = transaction.all("unknown_pages", dataset=dataset.name, pages=PAGES)
    if pages:
        told = {"dataset": dataset.name, "until": pages[-1]["last_seq"]}
        transaction.connection.execute(added(dataset).encode(), told)
        transaction.execute("note_words", **told)


def added(dataset: Dataset) -> str:
    """Compose how the words of rows are added whose keys stand in pages of changes."""
    same = " and ".join(
        f"{quoted(name)} = (_told._key ->> {at})"
        f"::{COLUMN_TYPES[field_named(dataset, name).type]}"
        for at, name in enumerate(dataset.key)
    )
    # whatever begins with an underscore is no field and no dataset of anybody's
    return f"""
insert into penstock_word (dataset, word, rows)
select %(dataset)s, _word, count(*)
from penstock_change_page as _page
cross join lateral json_array_elements(_page.keys) with ordinality
    as _told (_key, _place)
join {quoted(dataset.name)} on {same} and _deleted_at is null
cross join lateral unnest(tsvector_to_array({words_of(dataset)})) as _word
where _page.dataset = %(dataset)s and _page.last_seq <= %(until)s
    and _page.last_seq > (
        select change_seq from penstock_vocabulary where dataset = %(dataset)s
    )
    and _place <= _page.created + _page.updated
    and _word ~ '[^0-9]' and penstock_tokens(_word) = _word
group by _word order by _word
on conflict (dataset, word) do update
set rows = penstock_word.rows + excluded.rows
where excluded.rows * 4 > penstock_word.rows"""
