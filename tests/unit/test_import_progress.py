"""How far an import is, as a user is told it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from penstock.domain.dataset import Dataset
from penstock.domain.jobs import ImportId, JobError, Lease
from penstock.domain.pages import Cursor, Proof
from penstock.domain.sharding.axes import FileAxis
from penstock.domain.sharding.parts import Slice
from penstock.domain.sharding.shard import Shard
from penstock.domain.source import CsvSource
from penstock.entrypoints.cli.output.import_progress import (
    ByteProgress,
    ProgressFigures,
    RequestProgress,
)
from penstock.entrypoints.file_progress import FileProgress
from penstock.flow.explain_waiting import ExplainWaiting
from penstock.ports import Stores
from tests.contracts.workers import announce
from tests.support.builders import (
    batch,
    budget,
    claim,
    dataset,
    last,
    open_sqlite,
    per_second,
    plan,
    record,
    rejection,
)

SHOPS = dataset("shops", source=CsvSource(files=("*.csv",)), axes=(FileAxis(),))
POI = dataset()
MEGA = 1_000_000
AWAY = JobError(code="source_unavailable", message="no connection to '127.0.0.1:8855'")


class Seconds:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def stores(tmp_path) -> Stores:
    opened = open_sqlite(tmp_path / "penstock.db")
    opened.schema.migrate()
    return opened


def keys(*spans: tuple[int, int | None], size: int = 10 * MEGA) -> list[str]:
    """Name the slices of one file."""
    axis = FileAxis()
    slices = [
        Slice(
            number=0,
            file="a|b:c.csv",
            size=size,
            fingerprint="f00",
            start=start,
            end=end,
            line=2,
        )
        for start, end in spans
    ]
    return [Shard((axis,), (each,)).key for each in slices]


def planned(stores: Stores, *shard_keys: str, of: Dataset = SHOPS) -> ImportId:
    return plan(stores, of, *shard_keys)


def read_upto(stores: Stores, lease: Lease, at: int, **more: int) -> Lease:
    cursor = Cursor(position={"at": at, "line": 9, **more}).encode()
    page = batch(record(at), rejections=[rejection()], cursor=cursor)
    return stores.ledger.commit_page(SHOPS, lease, page)[0]


def read_all(stores: Stores, lease: Lease) -> None:
    page = batch(record(int(lease.job)), proof=Proof.END_OF_RANGE)
    stores.ledger.commit_page(SHOPS, lease, page)


def test_bytes_are_read_up_to_the_cursors_of_the_jobs(stores):
    import_id = planned(stores, *keys((10, 500), (500, 900), (900, 1000)))
    extent = FileProgress(stores.jobs, import_id)
    before = extent.read()
    first, second = claim(stores, SHOPS), claim(stores, SHOPS)

    read_upto(stores, second, 700)
    during = extent.read()
    read_all(stores, first)
    after = extent.read()

    assert before == (0, 990)
    assert during == (200, 990)
    assert after == (690, 990)


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_all_is_read_in_the_end_however_many_jobs_are_requested(stores, at_once):
    spans = [(at, at + 10) for at in range(0, 60, 10)]
    import_id = planned(stores, *keys(*spans))
    extent = FileProgress(stores.jobs, import_id, at_once=at_once)
    slow, *others = [claim(stores, SHOPS) for _ in spans]

    seen = []
    for lease in (*others, slow):
        read_all(stores, lease)
        seen.append(extent.read().done)

    assert seen == sorted(seen)
    assert seen[-1] == 60


def test_a_failed_job_has_read_what_it_has_read(stores):
    import_id = planned(stores, *keys((0, 500), (500, 900)))
    extent = FileProgress(stores.jobs, import_id)
    lease = read_upto(stores, claim(stores, SHOPS), 200)

    stores.ledger.fail(lease, JobError(code="rejected", message="broken"))

    assert extent.read() == (200, 900)


def test_a_packed_file_is_read_as_far_as_its_own_bytes_are(stores):
    import_id = planned(stores, *keys((10, None), size=300))
    extent = FileProgress(stores.jobs, import_id)
    lease = read_upto(stores, claim(stores, SHOPS), 2000, packed=120)
    during = extent.read()

    read_all(stores, lease)

    assert during == (120, 300)
    assert extent.read() == (300, 300)


def test_a_packed_file_of_an_older_version_is_read_when_it_is_done(stores):
    import_id = planned(stores, *keys((10, None), size=300))
    extent = FileProgress(stores.jobs, import_id)

    read_upto(stores, claim(stores, SHOPS), 2000)

    assert extent.read() == (0, 300)


def test_the_time_left_follows_from_the_bytes(stores):
    import_id = planned(stores, *keys((0, 10 * MEGA)))
    clock = Seconds()
    gauge = ByteProgress(FileProgress(stores.jobs, import_id), lambda _: None, clock)
    first = gauge(*stores.imports.get(import_id))
    lease = claim(stores, SHOPS)
    clock.now += 2

    read_upto(stores, lease, 4 * MEGA)
    figures = gauge(*stores.imports.get(import_id))

    assert first.left is None
    assert first.text == "0 rows"
    assert figures.left == timedelta(seconds=3)
    assert (figures.done, figures.total) == (4 * MEGA, 10 * MEGA)
    assert figures.extent == "4.0 MB of 10.0 MB"
    assert figures.text == "2 rows  2.0 MB/s 1 rows/s  1 bad"


class Watched:
    """An import from a provider, and the clock of whoever looks at it."""

    def __init__(self, stores: Stores, *shards: str) -> None:
        self.stores = stores
        self.import_id = planned(stores, *shards, of=POI)
        self.clock = Seconds()
        announce(stores, poi="d1")
        allowed = budget(per_second(20), burst=10)
        explain = ExplainWaiting(
            stores=stores, datasets={"poi": POI}, budget=lambda _: allowed, attempts=8
        )
        self.gauge = RequestProgress(allowed, explain, self.clock)

    def look(self, *, after: float = 0) -> ProgressFigures:
        self.clock.now += after
        return self.gauge(*self.stores.imports.get(self.import_id))

    def claim(self, *, sent: int = 1) -> Lease:
        return replace(claim(self.stores, POI), sent=sent)

    def finish(self, lease: Lease) -> None:
        self.stores.ledger.commit_page(POI, lease, last(record(int(lease.job))))


def test_shards_that_failed_are_reported_as_such_and_promise_no_end(stores):
    import_ = Watched(stores, "a", "b", "c")
    import_.look()

    stores.ledger.fail(import_.claim(), AWAY)
    figures = import_.look(after=10)

    assert (figures.done, figures.total) == (0, 3)
    assert figures.extent == "0/3 shards, 1 failed"
    assert figures.left is None


def test_the_time_left_follows_from_the_shards_that_are_done(stores):
    import_ = Watched(stores, "a", "b", "c")
    import_.look()

    import_.finish(import_.claim(sent=10))
    figures = import_.look(after=10)

    assert figures.extent == "1/3 shards"
    assert figures.left == timedelta(seconds=20)


def test_an_import_that_stands_still_says_why(stores):
    import_ = Watched(stores, "a", "b")
    before = import_.look()

    other, lease = import_.claim(), import_.claim()
    stores.ledger.postpone(lease, AWAY, delay=timedelta(minutes=1), blame=True)
    beside = import_.look(after=1)
    import_.finish(other)
    after = import_.look(after=1)
    still = import_.look(after=20)

    assert not any("waiting" in each.text for each in (before, beside, after))
    assert "  waiting: no connection to '127.0.0.1:8855' (attempt 1 of 8)" in still.text


def test_a_burst_is_not_reported_as_a_rate(stores):
    import_ = Watched(stores, "a", "b")
    import_.look()

    import_.finish(import_.claim(sent=10))
    at_once = import_.look(after=0.25)
    later = import_.look(after=9.75)

    assert at_once.text == "1 pages 1 records (limit 20/s, burst 10)"
    assert later.text == "1 pages 1 records 1.0/s (limit 20/s, burst 10)"
