"""Compose the candidates of a search: enough to rank, and never more work than that.

A GIN index reads the whole list of a word before it gives the first row. So words are
first looked for in the index of a sample. Only if that has too few rows, the word is
rare enough to read its whole list.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock.adapters.postgres.hints import hints
from penstock.adapters.postgres.searched import (
    in_sample,
    is_begun,
    query_of,
    words_of,
)
from penstock.adapters.postgres.tables import Table
from penstock.adapters.postgres.ways import Way, Ways
from penstock.adapters.sql.keys import quoted
from penstock.adapters.sql.selects import Where
from penstock.domain.dataset import Field
from penstock.domain.queries.words import Term

# rows of a sample of which those are taken that fit
READ_OF_SAMPLE = 8_000
# below so many, what was quickly found is not all that is looked for
FEW = 50


@dataclass
class Pool:
    """The tables of a statement that ends in one called `_pool`."""

    of: Table
    # what every candidate must fit, and the values of all parameters
    where: Where
    # how many rows it takes at most
    most: int
    columns: Sequence[Field]
    # how many of a sample are enough, so that the rest is not looked at
    enough: int | None = None
    # how many of it are read
    of_sample: int | None = None
    # those of a table that are asked one by one for a sample
    partitions: Sequence[str] = ()
    # by name, in the order of their definition
    tables: dict[str, str] = field(default_factory=dict)
    # whether there may be more rows than those in the pool
    capped: str = "false"

    def __str__(self) -> str:
        every = {**self.tables, "_pool": self._gathered()}
        told = (f"{name} as materialized ({text})" for name, text in every.items())
        return f"with {', '.join(told)}"

    def take(self) -> None:
        """Take rows that fit."""
        self.tables["_every"] = self._rows(limit=self.most + 1)
        self.capped = f"({counted('_every')} > {self.most})"

    def search(self, terms: Sequence[Term], ways: Ways) -> None:
        """Take rows that fit and have all words."""
        self._search(terms, ways, ways.begun if is_begun(terms) else ways.whole)

    def search_whole_first(self, terms: Sequence[Term], ways: Ways) -> None:
        """Take rows that have words as they were typed, before those of longer ones."""
        if not is_begun(terms):
            self.search(terms, ways)
            return
        finished = [each.whole for each in terms]
        if ways.whole is ways.begun is Way.CONDITIONS:
            self._judge(terms, order=f"{self.has(finished)} desc")
            return
        self._search(finished, ways, ways.whole, suffix="_whole")
        whole = self.capped
        self._search(terms, ways, ways.begun, gate=f"not {whole}")
        self.capped = f"({whole} or {self.capped})"

    def _search(
        self,
        terms: Sequence[Term],
        ways: Ways,
        way: Way,
        *,
        suffix: str = "",
        gate: str = "true",
    ) -> None:
        sampled, every = f"_sampled{suffix}", f"_every{suffix}"
        if way is Way.CONDITIONS:
            self._judge(terms, gate, suffix=suffix)
            return
        sample = [self.has(terms), in_sample(self.of.dataset)]
        enough, limit = self.enough or self.most, self.of_sample or self.most
        # what is known of beginnings says nothing of finished words
        percent = ways.percent_with(limit) if len(terms) == 1 and not suffix else None
        if way is Way.NONE and percent is not None:
            # also the list of a sample would be long
            source = drawn(self.of.name, percent=percent)
            judged = f"({self.judged(terms)}) is true"
            self.tables[sampled] = self._rows(gate, judged, limit=limit, source=source)
            self._add_sample(sample, sampled, gate, limit=limit)
        elif ways.is_filtered_late:
            # it would read the whole list of a condition as well
            there = " and ".join(["_deleted_at is null", *sample])
            read = f"select * from {self.of.name} where {there}"
            source = f"({read} limit {READ_OF_SAMPLE:d}) as _read"
            self.tables[sampled] = self._rows(gate, limit=limit, source=source)
            self._add_sample(sample, sampled, gate, limit=limit)
        else:
            self.tables[sampled] = self._rows(gate, *sample, limit=limit)
        if self.partitions:
            # all rows of the first would come before any of the second
            share = max(2 * self.most // len(self.partitions), 20)
            self.tables[sampled] = " union all ".join(
                f"({self._rows(gate, *sample, limit=share, source=quoted(name))})"
                for name in self.partitions
            )
            enough = min(enough, self.most // 2)
        if way is Way.NONE:
            self.capped = "true"
            return
        is_enough = f"{counted(sampled)} >= {enough}"
        self.tables[every] = self._rows(
            gate, f"not ({is_enough})", *self._by(way, terms), limit=self.most + 1
        )
        self.capped = f"({is_enough} or {counted(every)} > {self.most})"

    def _add_sample(
        self, sample: Sequence[str], found: str, gate: str, *, limit: int
    ) -> None:
        """Take the whole sample where a part of it, or some pages, had almost none."""
        almost_none = f"{counted(found)} < {min(FEW, limit):d}"
        self.tables[f"{found}_more"] = self._rows(
            gate, almost_none, *sample, limit=limit
        )

    def _judge(
        self, terms: Sequence[Term], *gates: str, suffix: str = "", order: str = ""
    ) -> None:
        """Take rows that fit, so few that all are judged and no sample is needed."""
        every = f"_every{suffix}"
        wanted = [*gates, *self._by(Way.CONDITIONS, terms)]
        self.tables[every] = self._rows(*wanted, limit=self.most + 1, order=order)
        self.capped = f"({counted(every)} > {self.most})"

    def _by(self, way: Way, terms: Sequence[Term]) -> Iterator[str]:
        """Compose that rows have all words, so that the index is used in a way."""
        if way is Way.LISTS:
            yield self.has(terms)
            return
        if way is Way.FINISHED:
            yield self.has(terms[:-1])
        # no index is used for what is written like this
        yield f"({self.judged(terms)}) is true"

    def judged(self, terms: Sequence[Term]) -> str:
        """Compose that a row has words, for rows of which many will not."""
        hinted = hints(self.of.dataset, terms, self.where)
        return " and ".join([*hinted, self.has(terms)])

    def has(self, terms: Sequence[Term]) -> str:
        query = self.where.mark(query_of(terms))
        return f"{words_of(self.of.dataset)} @@ {query}::tsquery"

    def add(
        self, name: str, *conditions: str, limit: int, source: str | None = None
    ) -> None:
        """Take rows for another reason, too."""
        self.tables[name] = self._rows(*conditions, limit=limit, source=source)

    def _rows(
        self,
        *conditions: str,
        limit: int,
        source: str | None = None,
        order: str = "",
    ) -> str:
        names = [*self.of.dataset.key, *(field.name for field in self.columns)]
        columns = ", ".join(map(quoted, dict.fromkeys(names)))
        wanted = " and ".join([str(self.where), *conditions])
        return (
            f"select {columns} from {source or self.of.name} where {wanted} "
            f"{f'order by {order} ' if order else ''}limit {limit:d}"
        )

    def _gathered(self) -> str:
        """Compose the rows of all tables, each once."""
        rows = " union all ".join(f"select * from {name}" for name in self.tables)
        if len(self.tables) == 1:
            return rows
        key = ", ".join(map(quoted, self.of.dataset.key))
        return f"select distinct on ({key}) * from ({rows}) as _found"


def drawn(table: str, *, percent: float) -> str:
    """Compose some pages of a table, always the same."""
    return f"{table} tablesample system ({min(percent, 100.0)!r}) repeatable (0)"


def counted(table: str) -> str:
    return f"(select count(*) from {table})"
