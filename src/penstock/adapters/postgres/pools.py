"""Compose the candidates of a search: enough to rank, and never more work than that.

A GIN index reads the whole list of a word before it gives the first row. So words are
first looked for in the index of a sample. Only if that has too few rows, the word is
rare enough to read its whole list.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.adapters.postgres.searched import (
    in_sample,
    is_begun,
    query_of,
    words_of,
)
from penstock.adapters.postgres.tables import Table
from penstock.adapters.sql.keys import quoted
from penstock.adapters.sql.selects import Where
from penstock.domain.queries.words import Term


@dataclass
class Pool:
    """The tables of a statement that ends in one called `pool`."""

    of: Table
    # what every candidate must fit, and the values of all parameters
    where: Where
    # how many are enough
    most: int
    # by name, in the order of their definition
    tables: dict[str, str] = field(default_factory=dict)
    # whether there may be more rows than those in the pool
    capped: str = "false"

    def __str__(self) -> str:
        every = {**self.tables, "pool": self._gathered()}
        told = (f"{name} as materialized ({text})" for name, text in every.items())
        return f"with {', '.join(told)}"

    def take(self, *conditions: str) -> None:
        """Take rows that fit, and these conditions."""
        self.tables["every"] = self._rows(*conditions, limit=self.most + 1)
        self.capped = f"({counted('every')} > {self.most})"

    def search(self, terms: Sequence[Term], *, partitions: Sequence[str] = ()) -> None:
        """Take rows that fit and have all words."""
        begun = self.has(terms)
        self.tables["sampled"] = self._sample(begun, partitions)
        enough = f"{counted('sampled')} >= {self._enough(partitions)}"
        self.take(begun, f"not ({enough})")
        self.capped = f"({enough} or {self.capped})"
        if is_begun(terms):
            # too many have a word that begins so: those that have it whole come first
            whole = self.has(terms, begun=False)
            self.tables["sampled_whole"] = self._rows(
                whole, self.capped, in_sample(self.of.dataset), limit=self.most
            )
            gate = f"{counted('sampled_whole')} < {self.most}"
            self.tables["every_whole"] = self._rows(
                whole, self.capped, gate, limit=self.most
            )

    def has(self, terms: Sequence[Term], *, begun: bool = True) -> str:
        query = self.where.mark(query_of(terms, begun=begun))
        return f"{words_of(self.of.dataset)} @@ {query}::tsquery"

    def add(
        self, name: str, *conditions: str, limit: int, source: str | None = None
    ) -> None:
        """Take rows for another reason, too."""
        self.tables[name] = self._rows(*conditions, limit=limit, source=source)

    def _sample(self, has_words: str, partitions: Sequence[str]) -> str:
        sample = in_sample(self.of.dataset)
        if not partitions:
            return self._rows(has_words, sample, limit=self.most)
        # an append would give those of the first partitions only
        share = max(2 * self.most // len(partitions), 20)
        parts = [
            self._rows(has_words, sample, limit=share, source=quoted(name))
            for name in partitions
        ]
        return " union all ".join(f"({part})" for part in parts)

    def _enough(self, partitions: Sequence[str]) -> int:
        return self.most // 2 if partitions else self.most

    def _rows(self, *conditions: str, limit: int, source: str | None = None) -> str:
        columns = ", ".join(quoted(each.name) for each in self.of.dataset.fields)
        wanted = " and ".join([str(self.where), *conditions])
        return (
            f"select {columns} from {source or self.of.name} "
            f"where {wanted} limit {limit:d}"
        )

    def _gathered(self) -> str:
        """Compose the rows of all tables, each once."""
        rows = " union all ".join(f"select * from {name}" for name in self.tables)
        if len(self.tables) == 1:
            return rows
        key = ", ".join(map(quoted, self.of.dataset.key))
        return f"select distinct on ({key}) * from ({rows}) as found"


def counted(table: str) -> str:
    return f"(select count(*) from {table})"
