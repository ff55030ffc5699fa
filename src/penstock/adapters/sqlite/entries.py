"""Keep the index of words of a dataset, by following the changes of its rows.

Imports write nothing here: whoever searches, or tends the tables, first takes in what
has changed, a piece at a time. So the index may be behind; rows that it gives are
looked at as they are now.
"""

import json
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from penstock.adapters.sql.keys import key_text, plain_value, quoted
from penstock.adapters.sql.served import key_of
from penstock.adapters.sqlite.tables import Table
from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.queries.query import field_named
from penstock.domain.queries.words import (
    fold,
    is_known,
    is_shaped,
    near_shapes,
    shapes,
    text_tokens,
)
from penstock.errors import Misconfigured

# rows that are taken in at once, while other writers wait
PIECE = 5_000

# of a very long text only the beginning is searched in
LONGEST_TEXT = 10_000

NO_MODULE = (
    "this Python's SQLite was built without FTS5, by which words are searched; "
    "use another Python, or PostgreSQL"
)

# a key as it is stored
Plain: TypeAlias = tuple[Any, ...]


class State(NamedTuple):
    """How far the index has come, and how far the rows."""

    fields: str | None
    known_seq: int | None
    # the key up to which the first pass has come; nothing where it is done
    scanned: str | None
    latest_seq: int
    is_at_rest: bool

    def is_begun(self, dataset: Dataset) -> bool:
        return self.fields == fields_of(dataset)

    def is_complete(self, dataset: Dataset) -> bool:
        """Say whether all rows have been seen once."""
        return self.is_begun(dataset) and self.scanned is None

    def is_behind(self, dataset: Dataset) -> bool:
        return not self.is_complete(dataset) or self.known_seq != self.latest_seq


@dataclass(frozen=True, slots=True)
class Entries:
    of: Table
    connection: sqlite3.Connection
    statements: Mapping[str, str]

    def state(self) -> State | None:
        row = self._run("vocabulary").fetchone()
        return None if row is None else State(*row)

    def catch_up(self) -> bool:
        """Take in a piece of what has changed; say whether there is more."""
        state = self.state()
        if state is None:
            return False
        if not state.is_begun(self.of.dataset):
            self._begin()
            return self._scan("")
        if state.scanned is not None:
            return self._scan(state.scanned)
        return self._follow(state.known_seq or 0)

    def _begin(self) -> None:
        for name in (words_name(self.of.dataset), entries_name(self.of.dataset)):
            self.connection.execute(f"drop table if exists {name}")
        self._run("forget_shapes")
        self._run("forget_words")
        for statement in creation(self.of.dataset):
            try:
                self.connection.execute(statement)
            except sqlite3.OperationalError as error:
                if "no such module" not in str(error):
                    raise
                raise Misconfigured(NO_MODULE) from error
        self._run("begin_vocabulary", fields=fields_of(self.of.dataset))

    def _scan(self, scanned: str) -> bool:
        """Take in the rows behind a key."""
        dataset = self.of.dataset
        key = ", ".join(map(quoted, dataset.key))
        behind, given = "", []
        if scanned:
            given = json.loads(scanned)
            behind = f"and ({key}) > ({', '.join('?' * len(given))})"
        texts = ", ".join(map(quoted, dataset.search))
        found = self.connection.execute(
            f"select {key}, {texts} from {quoted(dataset.name)} "
            f"where _deleted_at is null {behind} order by {key} limit {PIECE:d}",
            given,
        ).fetchall()
        width = len(dataset.key)
        self._enter({tuple(row[:width]): text_of(row[width:]) for row in found})
        is_done = len(found) < PIECE
        last = None if is_done else key_text(tuple(found[-1][:width]))
        self._run("note_scanned", scanned=last)
        return True

    def _follow(self, after: int) -> bool:
        """Take in the rows of changes behind one."""
        found = self._run("changed_keys", after=after, limit=PIECE).fetchall()
        if not found:
            return False
        rows: dict[Plain, str | None] = {
            tuple(json.loads(text)): None for text in {row["key"] for row in found}
        }
        dataset = self.of.dataset
        places = [
            [each.name for each in dataset.fields].index(n) for n in dataset.search
        ]
        for _, _, is_deleted, values in self.of.whole(self.connection, [*rows]):
            if not is_deleted:
                key = tuple(map(plain_value, key_of(dataset, values)))
                rows[key] = text_of(values[place] for place in places)
        self._enter(rows)
        self._run("note_words", until=found[-1]["seq"])
        return len(found) == PIECE

    def _enter(self, rows: Mapping[Plain, str | None]) -> None:
        """Bring the entries of rows to these texts; a row without one is gone."""
        known = self._known([*rows])
        gone: list[tuple[int, str]] = []
        come: list[tuple[Plain, str]] = []
        counts: Counter[str] = Counter()
        for key, text in rows.items():
            number, old = known.get(key, (None, None))
            new = None if text is None else tokens_of(text)
            if old == new:
                continue
            if number is not None and old is not None:
                gone.append((number, old))
                counts.subtract(filter(is_known, old.split()))
            if new is not None:
                come.append((key, new))
                counts.update(filter(is_known, new.split()))
        self._remove(gone)
        self._add(come)
        self._count({word: rows for word, rows in counts.items() if rows})

    def _known(self, keys: Sequence[Plain]) -> dict[Plain, tuple[int, str]]:
        columns = key_columns(self.of.dataset)
        asked = (
            f"{columns[0]} in (select value from json_each(?))"
            if len(columns) == 1
            else f"({', '.join(columns)}) in (select {{}} from json_each(?))".format(
                ", ".join(
                    f"json_extract(value, '$[{at}]')" for at in range(len(columns))
                )
            )
        )
        plain = [key[0] if len(columns) == 1 else key for key in keys]
        found = self.connection.execute(
            f"select id, tokens, {', '.join(columns)} "
            f"from {entries_name(self.of.dataset)} where {asked}",
            (json.dumps(plain, ensure_ascii=False),),
        )
        return {tuple(key): (number, tokens) for number, tokens, *key in found}

    def _remove(self, gone: Sequence[tuple[int, str]]) -> None:
        words = words_name(self.of.dataset)
        self.connection.executemany(
            f"insert into {words} ({words}, rowid, tokens) values ('delete', ?, ?)",
            gone,
        )
        self.connection.executemany(
            f"delete from {entries_name(self.of.dataset)} where id = ?",
            [(number,) for number, _ in gone],
        )

    def _add(self, come: Sequence[tuple[Plain, str]]) -> None:
        dataset = self.of.dataset
        columns = key_columns(dataset)
        entries, words = entries_name(dataset), words_name(dataset)
        marks = ", ".join("?" * (len(columns) + 1))
        self.connection.executemany(
            f"insert into {entries} ({', '.join(columns)}, tokens) values ({marks})",
            [(*key, tokens) for key, tokens in come],
        )
        numbers = self._known([key for key, _ in come])
        self.connection.executemany(
            f"insert into {words} (rowid, tokens) values (?, ?)", [*numbers.values()]
        )

    def _count(self, counts: Mapping[str, int]) -> None:
        """Note how many rows more, or fewer, have words."""
        name = self.of.dataset.name
        known = self._numbers(counts)
        self.connection.executemany(
            "update penstock_word set rows = rows + ? where id = ?",
            [(counts[word], number) for word, number in known.items()],
        )
        new = [word for word in counts if word not in known]
        self.connection.executemany(
            "insert into penstock_word (dataset, word, rows) values (?, ?, ?)",
            [(name, word, counts[word]) for word in new],
        )
        numbers = self._numbers(filter(is_shaped, new))
        self.connection.executemany(
            "insert or ignore into penstock_shape (shape, word_id) values (?, ?)",
            [
                (hashed(name, shape), number)
                for word, number in numbers.items()
                for shape in shapes(word, len(word))
            ],
        )

    def _numbers(self, words: Iterable[str]) -> dict[str, int]:
        found = self.connection.execute(
            "select word, id from penstock_word "
            "where dataset = ? and word in (select value from json_each(?))",
            (self.of.dataset.name, json.dumps([*words], ensure_ascii=False)),
        )
        return dict(found.fetchall())

    def _run(self, name: str, **given: Any) -> sqlite3.Cursor:
        return self.connection.execute(
            self.statements[name], {"dataset": self.of.dataset.name, **given}
        )


def fields_of(dataset: Dataset) -> str:
    return ",".join(dataset.search)


def text_of(values: Iterable[object]) -> str:
    """Put the texts of a row together, as all that is searched in."""
    return " ".join(str(value) for value in values if value is not None)


def tokens_of(text: str) -> str:
    return " ".join(dict.fromkeys(text_tokens(fold(text[:LONGEST_TEXT]))))


def entries_name(dataset: Dataset) -> str:
    return quoted(f"penstock:{dataset.name}:entries")


def words_name(dataset: Dataset) -> str:
    return quoted(f"penstock:{dataset.name}:words")


def key_columns(dataset: Dataset) -> list[str]:
    """Return where an entry has the key of its row; one number is its own id."""
    if len(dataset.key) == 1:
        of = field_named(dataset, dataset.key[0])
        if of.type is FieldType.INT:
            return ["id"]
    return [f"key_{at}" for at in range(len(dataset.key))]


def creation(dataset: Dataset) -> Iterator[str]:
    columns = key_columns(dataset)
    entries = entries_name(dataset)
    keys = "" if columns == ["id"] else f"{', '.join(columns)}, "
    unique = "" if not keys else f", unique ({', '.join(columns)})"
    yield (
        f"create table {entries} "
        f"(id integer primary key, {keys}tokens text not null{unique})"
    )
    # tokens are folded, and have nothing but spaces between them
    content = f"penstock:{dataset.name}:entries"
    yield (
        f"create virtual table {words_name(dataset)} using fts5(tokens, "
        f"content='{content}', content_rowid='id', tokenize='ascii', detail='none', "
        "columnsize=0)"
    )


def hashed(dataset: str, shape: str) -> int:
    return zlib.crc32(f"{dataset}:{shape}".encode())


def near_hashes(dataset: str, word: str) -> list[int]:
    return [hashed(dataset, shape) for shape in near_shapes(word)]
