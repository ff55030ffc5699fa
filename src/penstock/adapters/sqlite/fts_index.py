"""The full-text index of a dataset, updated from the changes of its rows.

Imports do not write to it: searches and table maintenance first index what has changed,
in batches. So the index may be behind, and the rows it returns are checked again.
"""

import json
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from penstock.adapters.sqlite.table_sql import SqliteTableSql, in_json_list
from penstock.adapters.sqlstore.key_encoding import encode_key_text, plain_value, quote
from penstock.adapters.sqlstore.table_protocols import key_fields
from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.search.query import field_named
from penstock.domain.search.tokenizer import (
    deletion_keys,
    fold,
    has_deletion_keys,
    is_suggestible,
    near_deletion_keys,
    text_tokens,
)
from penstock.errors import Misconfigured

# rows indexed in one transaction, while other writers wait
INDEX_BATCH = 5_000

# only the beginning of a very long text is indexed
MAX_TEXT_LENGTH = 10_000

FTS5_MISSING = (
    "this Python's SQLite was built without FTS5, which full-text search needs; "
    "use another Python, or PostgreSQL"
)

# a key as it is stored
StoredKey: TypeAlias = tuple[Any, ...]


class FtsState(NamedTuple):
    """The last change that is indexed, and the last change of the rows."""

    fields: str | None
    known_seq: int | None
    # the last key of the first pass; None when it is done
    scanned: str | None
    latest_seq: int
    is_at_rest: bool

    def is_begun(self, dataset: Dataset) -> bool:
        return self.fields == searched_fields(dataset)

    def is_complete(self, dataset: Dataset) -> bool:
        """Return whether the first pass over all rows is done."""
        return self.is_begun(dataset) and self.scanned is None

    def is_behind(self, dataset: Dataset) -> bool:
        return not self.is_complete(dataset) or self.known_seq != self.latest_seq


@dataclass(frozen=True, slots=True)
class FtsIndex:
    of: SqliteTableSql
    connection: sqlite3.Connection
    statements: Mapping[str, str]

    def state(self) -> FtsState | None:
        row = self._run("vocabulary").fetchone()
        return None if row is None else FtsState(*row)

    def catch_up(self) -> bool:
        """Index a batch of changed rows; return whether there may be more."""
        state = self.state()
        if state is None:
            return False
        if not state.is_begun(self.of.dataset):
            self._create()
            return self._scan("")
        if state.scanned is not None:
            return self._scan(state.scanned)
        return self._follow(state.known_seq or 0)

    def _create(self) -> None:
        for name in (words_name(self.of.dataset), entries_name(self.of.dataset)):
            self.connection.execute(f"drop table if exists {name}")
        self._run("forget_shapes")
        self._run("forget_words")
        for statement in create_statements(self.of.dataset):
            try:
                self.connection.execute(statement)
            except sqlite3.OperationalError as error:
                if "no such module" not in str(error):
                    raise
                raise Misconfigured(FTS5_MISSING) from error
        self._run("begin_vocabulary", fields=searched_fields(self.of.dataset))

    def _scan(self, scanned: str) -> bool:
        """Index the rows after a key."""
        dataset = self.of.dataset
        key = ", ".join(map(quote, dataset.key))
        condition, parameters = "", []
        if scanned:
            parameters = json.loads(scanned)
            condition = f"and ({key}) > ({', '.join('?' * len(parameters))})"
        texts = ", ".join(map(quote, dataset.search))
        found = self.connection.execute(
            f"select {key}, {texts} from {quote(dataset.name)} "
            f"where _deleted_at is null {condition} "
            f"order by {key} limit {INDEX_BATCH:d}",
            parameters,
        ).fetchall()
        width = len(dataset.key)
        self._update_entries(
            {tuple(row[:width]): join_texts(row[width:]) for row in found}
        )
        is_done = len(found) < INDEX_BATCH
        last = None if is_done else encode_key_text(tuple(found[-1][:width]))
        self._run("note_scanned", scanned=last)
        return True

    def _follow(self, after: int) -> bool:
        """Index the rows of the changes after a sequence number."""
        found = self._run("changed_keys", after=after, limit=INDEX_BATCH).fetchall()
        if not found:
            return False
        rows: dict[StoredKey, str | None] = {
            tuple(json.loads(text)): None for text in {row["key"] for row in found}
        }
        dataset = self.of.dataset
        searched = [field_named(dataset, name) for name in dataset.search]
        fields, width = [*key_fields(dataset), *searched], len(dataset.key)
        stored = self.of.stored_rows(self.connection, [*rows], fields)
        for _, _, is_deleted, values in stored:
            if not is_deleted:
                key = tuple(map(plain_value, values[:width]))
                rows[key] = join_texts(values[width:])
        self._update_entries(rows)
        self._run("note_words", until=found[-1]["seq"])
        return len(found) == INDEX_BATCH

    def _update_entries(self, rows: Mapping[StoredKey, str | None]) -> None:
        """Update the entries of rows to these texts; a row without text is removed."""
        existing = self._find_entries([*rows])
        removed: list[tuple[int, str]] = []
        added: list[tuple[StoredKey, str]] = []
        counts: Counter[str] = Counter()
        for key, text in rows.items():
            entry_id, old = existing.get(key, (None, None))
            new = None if text is None else tokenize(text)
            if old == new:
                continue
            if entry_id is not None and old is not None:
                removed.append((entry_id, old))
                counts.subtract(filter(is_suggestible, old.split()))
            if new is not None:
                added.append((key, new))
                counts.update(filter(is_suggestible, new.split()))
        self._remove(removed)
        self._add(added)
        self._update_word_counts({word: rows for word, rows in counts.items() if rows})

    def _find_entries(
        self, keys: Sequence[StoredKey]
    ) -> dict[StoredKey, tuple[int, str]]:
        columns = key_columns(self.of.dataset)
        values = [key[0] if len(columns) == 1 else key for key in keys]
        found = self.connection.execute(
            f"select id, tokens, {', '.join(columns)} "
            f"from {entries_name(self.of.dataset)} where {in_json_list(columns)}",
            (json.dumps(values, ensure_ascii=False),),
        )
        return {tuple(key): (entry_id, tokens) for entry_id, tokens, *key in found}

    def _remove(self, removed: Sequence[tuple[int, str]]) -> None:
        words = words_name(self.of.dataset)
        self.connection.executemany(
            f"insert into {words} ({words}, rowid, tokens) values ('delete', ?, ?)",
            removed,
        )
        self.connection.executemany(
            f"delete from {entries_name(self.of.dataset)} where id = ?",
            [(entry_id,) for entry_id, _ in removed],
        )

    def _add(self, added: Sequence[tuple[StoredKey, str]]) -> None:
        dataset = self.of.dataset
        columns = key_columns(dataset)
        entries, words = entries_name(dataset), words_name(dataset)
        placeholders = ", ".join("?" * (len(columns) + 1))
        self.connection.executemany(
            f"insert into {entries} ({', '.join(columns)}, tokens) "
            f"values ({placeholders})",
            [(*key, tokens) for key, tokens in added],
        )
        stored = self._find_entries([key for key, _ in added])
        self.connection.executemany(
            f"insert into {words} (rowid, tokens) values (?, ?)", [*stored.values()]
        )

    def _update_word_counts(self, counts: Mapping[str, int]) -> None:
        """Add to the number of rows of each word; counts may be negative."""
        name = self.of.dataset.name
        existing = self._word_ids(counts)
        self.connection.executemany(
            "update penstock_word set rows = rows + ? where id = ?",
            [(counts[word], word_id) for word, word_id in existing.items()],
        )
        new = [word for word in counts if word not in existing]
        self.connection.executemany(
            "insert into penstock_word (dataset, word, rows) values (?, ?, ?)",
            [(name, word, counts[word]) for word in new],
        )
        new_ids = self._word_ids(filter(has_deletion_keys, new))
        self.connection.executemany(
            "insert or ignore into penstock_shape (shape, word_id) values (?, ?)",
            [
                (hash_shape(name, shape), word_id)
                for word, word_id in new_ids.items()
                for shape in deletion_keys(word, len(word))
            ],
        )

    def _word_ids(self, words: Iterable[str]) -> dict[str, int]:
        found = self.connection.execute(
            "select word, id from penstock_word "
            "where dataset = ? and word in (select value from json_each(?))",
            (self.of.dataset.name, json.dumps([*words], ensure_ascii=False)),
        )
        return dict(found.fetchall())

    def _run(self, name: str, **parameters: Any) -> sqlite3.Cursor:
        return self.connection.execute(
            self.statements[name], {"dataset": self.of.dataset.name, **parameters}
        )


def searched_fields(dataset: Dataset) -> str:
    return ",".join(dataset.search)


def join_texts(values: Iterable[object]) -> str:
    """Join the texts of a row to one searched text."""
    return " ".join(str(value) for value in values if value is not None)


def tokenize(text: str) -> str:
    return " ".join(dict.fromkeys(text_tokens(fold(text[:MAX_TEXT_LENGTH]))))


def entries_name(dataset: Dataset) -> str:
    return quote(f"penstock:{dataset.name}:entries")


def words_name(dataset: Dataset) -> str:
    return quote(f"penstock:{dataset.name}:words")


def key_columns(dataset: Dataset) -> list[str]:
    """Return the columns with the key of an entry's row; an integer key is the id."""
    is_integer = field_named(dataset, dataset.key[0]).type is FieldType.INT
    if is_integer and len(dataset.key) == 1:
        return ["id"]
    return [f"key_{at}" for at in range(len(dataset.key))]


def create_statements(dataset: Dataset) -> Iterator[str]:
    columns = key_columns(dataset)
    entries = entries_name(dataset)
    keys = "" if columns == ["id"] else f"{', '.join(columns)}, "
    unique = "" if not keys else f", unique ({', '.join(columns)})"
    yield (
        f"create table {entries} "
        f"(id integer primary key, {keys}tokens text not null{unique})"
    )
    # tokens are already folded, and separated by single spaces
    content = f"penstock:{dataset.name}:entries"
    yield (
        f"create virtual table {words_name(dataset)} using fts5(tokens, "
        f"content='{content}', content_rowid='id', tokenize='ascii', detail='none', "
        "columnsize=0)"
    )


def hash_shape(dataset: str, shape: str) -> int:
    return zlib.crc32(f"{dataset}:{shape}".encode())


def near_hashes(dataset: str, word: str) -> list[int]:
    return [hash_shape(dataset, shape) for shape in near_deletion_keys(word)]
