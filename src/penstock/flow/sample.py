"""Ask for one page of a dataset, as an import would, to see whether it is right."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from penstock.domain.axes import Axis, Bounds, FileAxis
from penstock.domain.budget import Budget, closure
from penstock.domain.dataset import Dataset
from penstock.domain.mapping import Mapper
from penstock.domain.page import Moved, Record, Rejection, Row, Unread
from penstock.domain.shard import predicate, split
from penstock.domain.source import CsvSource
from penstock.errors import AccessStopped, Misconfigured, Throttled
from penstock.flow.plan import Plan
from penstock.ports import Host, Source, Stores


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    rows: int
    valid: int
    # what is wrong with the first row that is not valid
    complaint: str | None = None
    # fields that no row has a value for: perhaps their paths are misspelt
    empty: tuple[str, ...] = ()
    # rows that the check of their shard would refuse, and why the last
    outside: int = 0
    # how many keys the valid rows have: fewer than rows, if some share one
    keys: int = 0
    outside_reason: str | None = None
    moved_to: str | None = None


class Sample:
    def __init__(
        self,
        *,
        stores: Stores,
        plan: Plan,
        first: Callable[[Dataset], FileAxis],
        host: Host,
    ) -> None:
        self._stores = stores
        self._plan = plan
        self._first = first
        self._host = host

    def __call__(
        self, dataset: Dataset, source: Source, budget: Budget, *, longest: timedelta
    ) -> Sampled:
        """Send the first request of the first shard, under the budget, and map it."""
        bounds = Bounds(until=self._stores.jobs.now())
        shard = next(split(self._axes(dataset), bounds), None)
        if shard is None:
            raise Misconfigured(f"dataset {dataset.name!r} has no shard")
        source.get_ready(shard, None, lambda: None)
        if dataset.source.is_budgeted:
            grant = self._stores.budgets.take(budget, longest=longest)
            self._host.halt.wait(grant.wait.total_seconds())
        try:
            answer = source.fetch(shard, None, since=None)
            page = answer.read() if isinstance(answer, Unread) else answer
        except Throttled as error:
            wait = closure(error.retry_after)
            self._stores.budgets.close(budget.name, wait=wait, reason=str(error))
            raise
        except AccessStopped as error:
            self._stores.budgets.stop(budget.name, reason=str(error))
            raise
        if isinstance(page, Moved):
            return Sampled(rows=0, valid=0, moved_to=page.url)
        mapper = Mapper(dataset)
        outcomes = [mapper(row) for row in page.rows]
        # any time is late enough for a delta; one that cannot be read is not
        judge = predicate(dataset, shard, datetime.min.replace(tzinfo=UTC))
        readable = [row.values for row in page.rows if row.unreadable is None]
        reasons = [reason for reason in map(judge, readable) if reason is not None]
        bad = [each for each in outcomes if isinstance(each, Rejection)]
        complaint = f"{bad[0].field or 'row'}: {bad[0].detail}" if bad else None
        return Sampled(
            rows=len(outcomes),
            valid=len(outcomes) - len(bad),
            complaint=complaint,
            empty=tuple(empty_fields(dataset, page.rows)),
            keys=len({each.key for each in outcomes if isinstance(each, Record)}),
            outside=len(reasons),
            outside_reason=reasons[-1] if reasons else None,
        )

    def _axes(self, dataset: Dataset) -> tuple[Axis, ...]:
        if isinstance(dataset.source, CsvSource):
            # a look at its beginning is enough, however large it is
            return (self._first(dataset),)
        return self._plan.axes(dataset)


def empty_fields(dataset: Dataset, rows: Iterable[Row]) -> Iterator[str]:
    """Name the fields that no row has a value for, each with where it is looked for."""
    values = [row.values for row in rows if row.unreadable is None]
    for field in dataset.columns if values else ():
        place = dataset.place[field.path]
        if all(each[place] is None for each in values):
            yield f"{field.name} ({'.'.join(field.path)})"
