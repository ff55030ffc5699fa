"""Fetch one page of a dataset, as an import would, to check its declaration.

Where shards differ in filters that no check covers, the first page of a second shard
shows whether the provider applies them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from penstock.domain.budget import Budget, closure_duration
from penstock.domain.dataset import Dataset
from penstock.domain.mapping.mapper import Mapper
from penstock.domain.pages import LazyPage, Page, RawRow, Record, Redirect, Rejection
from penstock.domain.sharding.axes import Axis, Bounds, FileAxis
from penstock.domain.sharding.ignored_filters import digest_keys, name_ignored_filters
from penstock.domain.sharding.shard import Shard, build_outside_check, plan_shards
from penstock.domain.source import CsvSource
from penstock.errors import AccessRefused, FiltersIgnored, Misconfigured, Throttled
from penstock.flow.plan import Plan
from penstock.ports import Runtime, Source, Stores

# shards among which one that differs in a filter is looked for
MAX_COMPARED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleResult:
    rows: int
    valid: int
    # why the first invalid row is invalid
    failure_reason: str | None = None
    # fields without a value in any row: perhaps their paths are misspelt
    empty: tuple[str, ...] = ()
    # rows outside of their shard
    outside: int = 0
    # distinct keys of the valid rows
    keys: int = 0
    outside_reason: str | None = None
    moved_to: str | None = None
    # why the provider seems to ignore the filters of shards
    ignored: str | None = None


class SamplePage:
    def __init__(
        self,
        *,
        stores: Stores,
        plan: Plan,
        first: Callable[[Dataset], FileAxis],
        host: Runtime,
    ) -> None:
        self._stores = stores
        self._plan = plan
        self._first = first
        self._host = host

    def __call__(
        self, dataset: Dataset, source: Source, budget: Budget, *, longest: timedelta
    ) -> SampleResult:
        """Send the first request of the first shard, under the budget, and map it."""
        bounds = Bounds(until=self._stores.jobs.now())
        shards = plan_shards(self._axes(dataset), bounds)
        shard = next(shards, None)
        if shard is None:
            raise Misconfigured(f"dataset {dataset.name!r} has no shard")

        def fetch(shard: Shard) -> Page | Redirect:
            self._take(dataset, budget, longest)
            return self._fetch(source, shard, budget)

        source.get_ready(shard, None, lambda: None)
        page = fetch(shard)
        if isinstance(page, Redirect):
            return SampleResult(rows=0, valid=0, moved_to=page.url)
        mapper = Mapper(dataset)
        ignored = find_ignored_filters(mapper, shard, page, shards, fetch)
        return read_sample(dataset, shard, page, mapper, ignored=ignored)

    def _take(self, dataset: Dataset, budget: Budget, longest: timedelta) -> None:
        if dataset.source.is_budgeted:
            grant = self._stores.budgets.take(budget, longest=longest)
            self._host.halt.wait(grant.wait.total_seconds())

    def _fetch(self, source: Source, shard: Shard, budget: Budget) -> Page | Redirect:
        try:
            response = source.fetch(shard, None, since=None)
            return response.read() if isinstance(response, LazyPage) else response
        except Throttled as error:
            wait = closure_duration(error.retry_after)
            self._stores.budgets.close(budget.name, wait=wait, reason=str(error))
            raise
        except AccessRefused as error:
            self._stores.budgets.stop(budget.name, reason=str(error))
            raise

    def _axes(self, dataset: Dataset) -> tuple[Axis, ...]:
        if isinstance(dataset.source, CsvSource):
            # the beginning of the file is enough
            return (self._first(dataset),)
        return self._plan.axes(dataset)


def find_ignored_filters(
    mapper: Mapper,
    shard: Shard,
    page: Page,
    others: Iterable[Shard],
    fetch: Callable[[Shard], Page | Redirect],
) -> str | None:
    """Compare the first pages of two shards that differ in a filter without a check."""
    digest = digest_keys(map(mapper.key_of, page.rows))
    if digest is None:
        return None
    for other in islice(others, MAX_COMPARED):
        if filters := name_ignored_filters(shard, other):
            second = fetch(other)
            if isinstance(second, Redirect):
                return None
            if digest_keys(map(mapper.key_of, second.rows)) != digest:
                return None
            return str(FiltersIgnored(filters, shard=other.key, other=shard.key))
    return None


def read_sample(
    dataset: Dataset, shard: Shard, page: Page, mapper: Mapper, *, ignored: str | None
) -> SampleResult:
    outcomes = [mapper(row) for row in page.rows]
    # any readable time is late enough for a delta
    outside = build_outside_check(dataset, shard, datetime.min.replace(tzinfo=UTC))
    readable = [row.values for row in page.rows if row.unreadable is None]
    reasons = [reason for reason in map(outside, readable) if reason is not None]
    bad = [outcome for outcome in outcomes if isinstance(outcome, Rejection)]
    reason = f"{bad[0].field or 'row'}: {bad[0].detail}" if bad else None
    return SampleResult(
        rows=len(outcomes),
        valid=len(outcomes) - len(bad),
        failure_reason=reason,
        empty=tuple(empty_fields(dataset, page.rows)),
        keys=len({outcome.key for outcome in outcomes if isinstance(outcome, Record)}),
        outside=len(reasons),
        outside_reason=reasons[-1] if reasons else None,
        ignored=ignored,
    )


def empty_fields(dataset: Dataset, rows: Iterable[RawRow]) -> Iterator[str]:
    """Yield the name and path of each field without a value in any row."""
    values = [row.values for row in rows if row.unreadable is None]
    for field in dataset.read_columns if values else ():
        index = dataset.path_index[field.path]
        if all(row_values[index] is None for row_values in values):
            yield f"{field.name} ({'.'.join(field.path)})"
