"""The query for the candidates of a search: enough rows to rank, at a limited cost.

A GIN index reads the whole posting list of a word before it returns the first row. So
words are first looked up in the index of a sample. Only if that has too few rows, the
word is rare enough to read its whole list.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock.adapters.postgres.search.planner import AccessPath, SearchPlan
from penstock.adapters.postgres.search.prefilter import prefilters
from penstock.adapters.postgres.search.sql import (
    has_prefix,
    in_sample,
    query_of,
    words_of,
)
from penstock.adapters.postgres.table_sql import PostgresTableSql
from penstock.adapters.sqlstore.key_encoding import quote
from penstock.adapters.sqlstore.where_builder import Where
from penstock.domain.dataset import Field
from penstock.domain.search.tokenizer import Term

# rows of a sample that are checked against the conditions
MAX_SAMPLE_ROWS = 8_000
# below so many rows, a cheap part of the sample is followed by the whole sample
MIN_SAMPLE_MATCHES = 50


@dataclass
class CandidateQuery:
    """The CTEs of a statement; the last one is called `_candidates`."""

    of: PostgresTableSql
    # the conditions for every candidate, and the values of all parameters
    where: Where
    # the maximum of rows
    most: int
    columns: Sequence[Field]
    # how many rows of a sample are enough, so that the rest is not read
    enough: int | None = None
    # how many rows of it are read
    of_sample: int | None = None
    # those that are queried one by one for a sample
    partitions: Sequence[str] = ()
    # the CTEs by name, in the order of their definition
    tables: dict[str, str] = field(default_factory=dict)
    # an expression: whether there may be more rows than the candidates
    capped: str = "false"

    def __str__(self) -> str:
        tables = {**self.tables, "_candidates": self._union()}
        ctes = (f"{name} as materialized ({text})" for name, text in tables.items())
        return f"with {', '.join(ctes)}"

    def take(self) -> None:
        """Add rows that match the conditions."""
        self.tables["_every"] = self._rows(limit=self.most + 1)
        self.capped = f"({count_of('_every')} > {self.most})"

    def search(self, terms: Sequence[Term], plan: SearchPlan) -> None:
        """Add rows that match the conditions and have all words."""
        self._search(terms, plan, plan.prefix if has_prefix(terms) else plan.whole)

    def search_whole_first(self, terms: Sequence[Term], plan: SearchPlan) -> None:
        """Add rows with the words as typed, before those where the last is a prefix."""
        if not has_prefix(terms):
            self.search(terms, plan)
            return
        finished = [term.whole for term in terms]
        if plan.whole is plan.prefix is AccessPath.CONDITIONS:
            self._check(terms, order=f"{self.has(finished)} desc")
            return
        self._search(finished, plan, plan.whole, suffix="_whole")
        is_capped = self.capped
        self._search(terms, plan, plan.prefix, gate=f"not {is_capped}")
        self.capped = f"({is_capped} or {self.capped})"

    def _search(
        self,
        terms: Sequence[Term],
        plan: SearchPlan,
        path: AccessPath,
        *,
        suffix: str = "",
        gate: str = "true",
    ) -> None:
        sampled, every = f"_sampled{suffix}", f"_every{suffix}"
        if path is AccessPath.CONDITIONS:
            self._check(terms, gate, suffix=suffix)
            return
        sample = [self.has(terms), in_sample(self.of.dataset)]
        enough, limit = self.enough or self.most, self.of_sample or self.most
        # the estimate for the prefix says nothing about the finished word
        percent = plan.percent_with(limit) if len(terms) == 1 and not suffix else None
        if path is AccessPath.NONE and percent is not None:
            # even the posting list of the sample would be long
            source = table_sample(self.of.name, percent=percent)
            matches = f"({self.matches(terms)}) is true"
            self.tables[sampled] = self._rows(gate, matches, limit=limit, source=source)
            self._add_sample(sample, sampled, gate, limit=limit)
        elif plan.is_filtered_late:
            # a bitmap of a condition would be long as well
            filters = " and ".join(["_deleted_at is null", *sample])
            rows = f"select * from {self.of.name} where {filters}"
            source = f"({rows} limit {MAX_SAMPLE_ROWS:d}) as _read"
            self.tables[sampled] = self._rows(gate, limit=limit, source=source)
            self._add_sample(sample, sampled, gate, limit=limit)
        else:
            self.tables[sampled] = self._rows(gate, *sample, limit=limit)
        if self.partitions:
            # else all rows of the first partition come before any of the second
            share = max(2 * self.most // len(self.partitions), 20)
            self.tables[sampled] = " union all ".join(
                f"({self._rows(gate, *sample, limit=share, source=quote(name))})"
                for name in self.partitions
            )
            enough = min(enough, self.most // 2)
        if path is AccessPath.NONE:
            self.capped = "true"
            return
        is_enough = f"{count_of(sampled)} >= {enough}"
        self.tables[every] = self._rows(
            gate,
            f"not ({is_enough})",
            *self._conditions(path, terms),
            limit=self.most + 1,
        )
        self.capped = f"({is_enough} or {count_of(every)} > {self.most})"

    def _add_sample(
        self, sample: Sequence[str], found: str, gate: str, *, limit: int
    ) -> None:
        """Add the whole sample where a part of it had almost no rows."""
        almost_none = f"{count_of(found)} < {min(MIN_SAMPLE_MATCHES, limit):d}"
        self.tables[f"{found}_more"] = self._rows(
            gate, almost_none, *sample, limit=limit
        )

    def _check(
        self, terms: Sequence[Term], *gates: str, suffix: str = "", order: str = ""
    ) -> None:
        """Add the few rows that match the conditions, checking each for the words."""
        every = f"_every{suffix}"
        conditions = [*gates, *self._conditions(AccessPath.CONDITIONS, terms)]
        self.tables[every] = self._rows(*conditions, limit=self.most + 1, order=order)
        self.capped = f"({count_of(every)} > {self.most})"

    def _conditions(self, path: AccessPath, terms: Sequence[Term]) -> Iterator[str]:
        """Yield conditions for rows with all words that lead to this access path."""
        if path is AccessPath.LISTS:
            yield self.has(terms)
            return
        if path is AccessPath.FINISHED:
            yield self.has(terms[:-1])
        # with `is true`, no index is used
        yield f"({self.matches(terms)}) is true"

    def matches(self, terms: Sequence[Term]) -> str:
        """Return a condition that is cheap for rows without the words."""
        conditions = prefilters(self.of.dataset, terms, self.where)
        return " and ".join([*conditions, self.has(terms)])

    def has(self, terms: Sequence[Term]) -> str:
        query = self.where.param(query_of(terms))
        return f"{words_of(self.of.dataset)} @@ {query}::tsquery"

    def add(
        self, name: str, *conditions: str, limit: int, source: str | None = None
    ) -> None:
        """Add rows that match other conditions."""
        self.tables[name] = self._rows(*conditions, limit=limit, source=source)

    def _rows(
        self,
        *conditions: str,
        limit: int,
        source: str | None = None,
        order: str = "",
    ) -> str:
        names = [*self.of.dataset.key, *(field.name for field in self.columns)]
        columns = ", ".join(map(quote, dict.fromkeys(names)))
        filters = " and ".join([str(self.where), *conditions])
        return (
            f"select {columns} from {source or self.of.name} where {filters} "
            f"{f'order by {order} ' if order else ''}limit {limit:d}"
        )

    def _union(self) -> str:
        """Return the rows of all CTEs without duplicates."""
        rows = " union all ".join(f"select * from {name}" for name in self.tables)
        if len(self.tables) == 1:
            return rows
        key = ", ".join(map(quote, self.of.dataset.key))
        return f"select distinct on ({key}) * from ({rows}) as _found"


def table_sample(table: str, *, percent: float) -> str:
    """Return a sample of the pages of a table, always the same."""
    return f"{table} tablesample system ({min(percent, 100.0)!r}) repeatable (0)"


def count_of(table: str) -> str:
    return f"(select count(*) from {table})"
