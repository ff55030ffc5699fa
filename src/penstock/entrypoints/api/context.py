"""The application context: everything that an endpoint can use, one per process."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.domain.dataset import Dataset
from penstock.domain.search.list_cursor import CursorSigner
from penstock.entrypoints.api.cache.change_feed import ChangeFeedReader
from penstock.entrypoints.api.cache.dataset_versions import DatasetVersionPoller
from penstock.entrypoints.api.cache.import_snapshots import ImportSnapshots
from penstock.entrypoints.api.cache.response_cache import ResponseCache, record_tag
from penstock.entrypoints.api.cache.row_counts import RowCounts
from penstock.entrypoints.api.concurrency.background import BackgroundExecutor
from penstock.entrypoints.api.concurrency.lanes import Lanes
from penstock.entrypoints.api.concurrency.single_flight import SingleFlight
from penstock.entrypoints.api.concurrency.thread_shares import Lane
from penstock.entrypoints.api.dataset_description import edition_of
from penstock.entrypoints.api.dependency_health import DependencyHealth
from penstock.entrypoints.api.import_progress import ProgressTracker
from penstock.entrypoints.api.metrics.http_metrics import Metrics
from penstock.entrypoints.api.metrics.multiprocess import SingleProcessMetrics
from penstock.entrypoints.api.middleware.rate_limit import RateLimiter
from penstock.entrypoints.dashboard.page_cache import PageCache
from penstock.flow.edit_records import EditRecords
from penstock.flow.list_records import ListRecords
from penstock.flow.search_records import SearchRecords
from penstock.ports.auth import Verifier
from penstock.ports.record_access import ApiStores
from penstock.wiring import Container

Outcome = TypeVar("Outcome")

# the lane of the current request
LANE: ContextVar[Lane] = ContextVar("lane", default=Lane.READS)
# the dataset that the current request reads or changes
DATASET: ContextVar[str | None] = ContextVar("dataset", default=None)


@dataclass(kw_only=True)
class AppContext:
    penstock: Container
    served: ApiStores
    records: ListRecords
    search: SearchRecords
    edits: EditRecords
    response_cache: ResponseCache
    dataset_versions: DatasetVersionPoller
    feeds: ChangeFeedReader
    row_counts: RowCounts
    dependency_health: DependencyHealth
    lanes: Lanes
    rate_limiter: RateLimiter
    # None if requests need no token
    verifier: Verifier | None
    metrics: Metrics
    process_metrics: SingleProcessMetrics
    background: BackgroundExecutor
    progress_tracker: ProgressTracker
    import_snapshots: ImportSnapshots = field(default_factory=ImportSnapshots)
    # of the dashboard
    pages: PageCache = field(default_factory=PageCache)
    # not ready any more: a load balancer should use other processes
    is_stopping: bool = False
    # long polls and streams end
    is_closing: bool = False
    _editions: dict[str, str] = field(default_factory=dict)
    _has_signer: bool = False
    _signer_loads: SingleFlight[CursorSigner] = field(default_factory=SingleFlight)

    def dataset(self, name: str) -> Dataset:
        return self.records.dataset(name)

    def edition(self, dataset: Dataset) -> str:
        """Return a digest of the declaration, on which responses depend."""
        edition = self._editions.get(dataset.name)
        if edition is None:
            edition = self._editions[dataset.name] = edition_of(dataset)
        return edition

    def tag(self, dataset: Dataset, version: str) -> str:
        """Return the ETag of a record with all its fields."""
        return record_tag(version, self.edition(dataset))

    def stop(self) -> None:
        self.is_stopping = True

    def close(self) -> None:
        """End all long polls and streams."""
        self.is_closing = True
        self.dataset_versions.close()

    async def load_signer(self) -> None:
        """Load the cursor signer in a thread: the first access reads the database."""
        if not self._has_signer:
            await self._signer_loads.run(
                lambda: self.in_thread(lambda: self.records.cursor_signer)
            )
            self._has_signer = True

    async def in_thread(self, work: Callable[[], Outcome]) -> Outcome:
        """Run a query in a thread of the request's lane; raises as `Lanes.run` does."""
        return await self.lanes.run(LANE.get(), work, dataset=DATASET.get())
