"""A process knows of what others write within a second, and says when it cannot."""

import asyncio
import itertools
import threading
from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import Any

import pytest

from penstock.domain.history import HistoryPosition
from penstock.entrypoints.api.cache import dataset_versions as module
from penstock.entrypoints.api.cache.dataset_versions import (
    UNKNOWN,
    DatasetVersionPoller,
)
from penstock.errors import PositionGone, StoreUnavailable
from penstock.ports.record_access import DatasetVersion, RecordReader


class Database(RecordReader):
    """Says how far a dataset has come, when it is let."""

    def __init__(self) -> None:
        self.generation = 1
        self.change_seq = 7
        # of each change
        self.tags = {7: 100}
        self._fresh = itertools.count(101)
        self.requests = 0
        self.is_open = threading.Event()
        self.is_open.set()
        self.is_queried = threading.Event()
        self.error: Exception | None = None
        self.is_dropped = False

    def dataset_versions(self) -> Mapping[str, DatasetVersion]:
        self.requests += 1
        # as a transaction sees it: what comes later is not in it
        seen = DatasetVersion(
            generation=self.generation,
            change_seq=self.change_seq,
            change_tag=self.tags[self.change_seq],
        )
        self.is_queried.set()
        assert self.is_open.wait(10)
        if self.error is not None:
            raise self.error
        return {} if self.is_dropped else {"poi": seen}

    def change(self) -> None:
        """Change as a page of a running import does."""
        self.change_seq += 1
        self.tags[self.change_seq] = next(self._fresh)

    def go_back(self, seq: int) -> None:
        """Be put back to a state that was before."""
        self.change_seq = seq
        self.tags = {each: tag for each, tag in self.tags.items() if each <= seq}

    def knows(self, dataset: str, positions: Collection[HistoryPosition]) -> bool:
        return all(self.tags.get(each.seq) == each.tag for each in positions)

    @property
    def position(self) -> HistoryPosition:
        return HistoryPosition(self.change_seq, self.tags[self.change_seq])

    def page(self, query: Any) -> Any: ...
    def one(self, dataset: Any, key: Any, fields: Any) -> Any: ...
    def count(self, query: Any, kind: Any) -> Any: ...
    def secret(self, name: str) -> bytes: ...  # type: ignore[empty-body]
    def changes(self, dataset: Any, *, after: int, limit: int) -> Sequence[Any]: ...  # type: ignore[empty-body]


class RecordedEvents:
    def __init__(self) -> None:
        self.news: list[tuple[str, int]] = []

    async def __call__(self, dataset: str, state: DatasetVersion) -> None:
        self.news.append((dataset, state.generation))


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def events() -> RecordedEvents:
    return RecordedEvents()


class CountingWatch(DatasetVersionPoller):
    """Counts how often somebody asks how far a dataset has come."""

    requested = 0

    async def state(self, dataset: str, *, at_least: int = -1) -> DatasetVersion:
        self.requested += 1
        return await super().state(dataset, at_least=at_least)


@pytest.fixture
def watch(database, events):
    watch = CountingWatch(database, on_new=events)
    yield watch
    watch._threads.shutdown()


def go(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_a_check_is_good_for_a_while(watch, database):
    async def ask() -> Any:
        return [await watch.state("poi") for _ in range(5)]

    found = go(ask())

    assert {each.generation for each in found} == {1}
    assert database.requests == 1


def test_who_knows_of_more_makes_it_look(watch, database):
    async def ask() -> Any:
        await watch.state("poi")
        database.change()
        assert (await watch.state("poi")).change_seq == 7
        return await watch.state("poi", at_least=8)

    assert go(ask()).change_seq == 8


@pytest.mark.parametrize(
    "ask_for",
    [lambda watch: watch.state("poi", at_least=8), lambda watch: watch.latest("poi")],
    ids=["by its number", "by its time"],
)
def test_a_check_that_began_before_a_write_is_not_enough_for_who_knows_of_it(
    watch, database, ask_for
):
    async def ask() -> Any:
        await watch.state("poi")
        database.is_open.clear()
        database.is_queried.clear()
        under_way = asyncio.ensure_future(watch.poll())
        await asyncio.to_thread(database.is_queried.wait, 10)
        database.change()
        asking = asyncio.ensure_future(ask_for(watch))
        await asyncio.sleep(0.05)
        database.is_open.set()
        await under_way
        return await asking

    assert go(ask()).change_seq == 8


def test_a_number_that_never_was_is_not_waited_for(watch, database):
    """The database may have been put back to an older state."""

    async def ask() -> Any:
        return await watch.state("poi", at_least=99)

    assert go(ask()).generation == 1
    assert database.requests <= 2


def test_all_who_want_to_know_wait_for_one_look(watch, database):
    database.is_open.clear()

    async def ask() -> Any:
        waiting = [asyncio.ensure_future(watch.state("poi")) for _ in range(20)]
        await asyncio.sleep(0.05)
        database.is_open.set()
        return await asyncio.gather(*waiting)

    assert {each.generation for each in go(ask())} == {1}
    assert database.requests == 1


def test_a_write_of_our_own_is_known_at_once_and_not_forgotten(watch, database):
    async def ask() -> Any:
        await watch.state("poi")
        database.is_open.clear()
        database.is_queried.clear()
        under_way = asyncio.ensure_future(watch.poll())
        await asyncio.to_thread(database.is_queried.wait, 10)
        watch.note("poi", DatasetVersion(generation=5, change_seq=9))
        # a look that began before the write must not take it back
        database.is_open.set()
        await under_way
        return await watch.state("poi")

    assert go(ask()).generation == 5


def test_news_are_reported_once_and_not_at_the_start(watch, database, events):
    async def ask() -> None:
        await watch.poll()
        database.generation = 2
        await watch.poll()
        await watch.poll()
        await asyncio.sleep(0)

    go(ask())

    assert events.news == [("poi", 2)]


def test_a_database_that_is_silent_is_reported_soon(watch, database, monkeypatch):
    monkeypatch.setattr(module, "POLL_TIMEOUT", 0.05)
    database.is_open.clear()

    with pytest.raises(StoreUnavailable, match="does not answer"):
        go(watch.state("poi"))
    database.is_open.set()


def test_a_database_that_is_back_is_requested_again(watch, database):
    async def ask() -> Any:
        database.error = StoreUnavailable("away")
        with pytest.raises(StoreUnavailable):
            await watch.state("poi")
        database.error = None
        return await watch.state("poi")

    assert go(ask()).generation == 1


def test_a_dataset_without_tables_is_unknown(watch):
    assert go(watch.state("other")) == UNKNOWN


def test_waiting_for_a_change_ends_with_it_or_with_the_time(watch, database):
    async def ask() -> None:
        await asyncio.wait_for(watch.wait_for_change("poi", 6, seconds=30), 5)
        await asyncio.wait_for(watch.wait_for_change("poi", 7, seconds=0.1), 5)

    go(ask())


def test_a_change_goes_on_with_the_same_history(watch, database):
    async def ask() -> Any:
        before = await watch.state("poi")
        database.change()
        await watch.poll()
        return before, await watch.state("poi")

    before, after = go(ask())

    assert (before.change_seq, after.change_seq) == (7, 8)
    assert before.history == after.history


@pytest.mark.parametrize(
    "later", [0, 1, 2, 3], ids=lambda each: f"{each} changes later"
)
def test_a_database_that_went_back_has_another_history(watch, database, later):
    async def ask() -> Any:
        database.change()
        database.change()
        before = await watch.state("poi")
        database.go_back(7)
        for _ in range(later):
            database.change()
        await watch.poll()
        return before, await watch.state("poi")

    before, after = go(ask())

    assert after.position == database.position
    assert after.history != before.history


def test_a_generation_that_was_taken_back_is_not_the_same_again(watch, database):
    async def ask() -> Any:
        database.generation = 2
        before = await watch.state("poi")
        database.generation = 1
        await watch.poll()
        return before, await watch.state("poi")

    before, after = go(ask())

    assert after.generation == 1
    assert after.history != before.history


def test_a_dropped_dataset_is_dropped_once(watch, database):
    async def ask() -> Any:
        before = await watch.state("poi")
        database.is_dropped = True
        await watch.poll()
        dropped = watch.cached("poi")
        waiting = asyncio.create_task(watch.wait_for_change("poi", -1, seconds=60))
        await asyncio.sleep(0)
        requested = watch.requested
        for _ in range(3):
            await watch.poll()
            await asyncio.sleep(0)
        # nobody who waits for its changes was woken
        assert (watch.requested, waiting.done()) == (requested, False)
        after = watch.cached("poi")
        database.is_dropped = False
        await watch.poll()
        await waiting
        return before, dropped, after, watch.cached("poi")

    before, dropped, after, created = go(ask())

    assert before.history != dropped.history
    assert dropped == after
    assert created.history != after.history
    assert created.position == database.position


def test_what_an_answer_holds_beyond_the_known_state_is_requested(watch, database):
    async def ask() -> Any:
        before = await watch.state("poi")
        database.change()
        # an answer was read that holds this change, which no look has met
        watch.track_positions("poi", [database.position])
        database.go_back(7)
        await watch.poll()
        return before, await watch.state("poi")

    before, after = go(ask())

    assert before.position == after.position
    assert before.history != after.history


def test_a_change_of_a_lost_history_is_reported_as_gone(watch, database):
    async def ask() -> None:
        database.change()
        lost = database.position
        assert (await watch.state_after("poi", lost)).position == lost
        database.go_back(7)
        database.change()
        await watch.poll()
        with pytest.raises(PositionGone, match="8-65"):
            await watch.state_after("poi", lost)

    go(ask())


def test_a_change_that_is_new_here_is_looked_for_before_it_is_gone(watch, database):
    async def ask() -> Any:
        await watch.state("poi")
        database.change()
        database.change()
        earlier = HistoryPosition(8, database.tags[8])
        return await watch.state_after("poi", earlier)

    assert go(ask()).change_seq == 9


def test_a_change_that_is_known_is_not_requested_twice(watch, database):
    async def ask() -> None:
        database.change()
        earlier = database.position
        database.change()
        await watch.state_after("poi", earlier)
        request = database.requests
        for _ in range(5):
            await watch.state_after("poi", earlier)
        assert database.requests == request

    go(ask())


def test_a_write_of_ours_after_the_database_went_back_is_looked_at(watch, database):
    async def ask() -> Any:
        database.generation, database.change_seq = 2, 8
        database.tags[8] = 1
        await watch.state("poi")
        database.tags[8] = 2
        watch.note(
            "poi",
            DatasetVersion(generation=2, generation_tag=9, change_seq=8, change_tag=2),
        )
        return await watch.state("poi")

    assert go(ask()).change_tag == 2


def test_who_waits_hears_that_the_history_is_another(watch, database):
    async def ask() -> None:
        database.change()
        await watch.poll()
        waiting = follow(watch, 8)
        await asyncio.sleep(0.05)
        database.go_back(7)
        await watch.poll()
        await asyncio.wait_for(waiting, 1)

    go(ask())


def follow(
    watch: DatasetVersionPoller, seq: int, *, seconds: float = 30
) -> asyncio.Future[None]:
    return asyncio.ensure_future(watch.wait_for_change("poi", seq, seconds=seconds))


def test_a_check_wakes_those_who_wait_and_nothing_else_does(watch, database):
    async def ask() -> None:
        await watch.poll()
        waiting = [follow(watch, 7) for _ in range(100)]
        await asyncio.sleep(0.6)
        # each asked when it came, and has slept since
        assert watch.requested == 100
        database.change()
        await watch.poll()
        await asyncio.wait_for(asyncio.gather(*waiting), 1)
        assert watch.requested == 200

    go(ask())


def test_a_write_of_our_own_wakes_those_who_wait(watch):
    async def ask() -> None:
        await watch.poll()
        waiting = follow(watch, 7)
        await asyncio.sleep(0)
        watch.note("poi", DatasetVersion(generation=2, change_seq=8))
        await asyncio.wait_for(waiting, 1)

    go(ask())


def test_who_waits_is_sent_away_when_the_process_stops(watch):
    async def ask() -> None:
        await watch.start()
        await watch.poll()
        waiting = follow(watch, 7)
        await asyncio.sleep(0.05)
        await asyncio.to_thread(watch.close)
        await asyncio.wait_for(waiting, 1)
        # and nobody begins to wait
        await asyncio.wait_for(follow(watch, 7), 1)
        await watch.stop()

    go(ask())


def test_who_waits_hears_soon_that_the_database_is_away(watch, database, monkeypatch):
    monkeypatch.setattr(module, "POLL_INTERVAL", 0.05)

    async def ask() -> None:
        await watch.start()
        await watch.poll()
        waiting = follow(watch, 7)
        database.error = StoreUnavailable("away")
        with pytest.raises(StoreUnavailable, match="away"):
            await asyncio.wait_for(waiting, 5)
        await watch.stop()

    go(ask())


def test_it_goes_on_looking_until_it_is_stopped(watch, database, monkeypatch):
    monkeypatch.setattr(module, "POLL_INTERVAL", 0.01)

    async def ask() -> Any:
        await watch.start()
        for wanted, error in (
            (2, None),
            (4, StoreUnavailable("away")),
            (6, OSError("odd")),
            (8, None),
        ):
            database.error = error
            for _ in range(1000):
                if database.requests >= wanted:
                    break
                await asyncio.sleep(0.01)
            assert database.requests >= wanted
        await watch.stop()
        seen = database.requests
        await asyncio.sleep(0.1)
        return database.requests - seen

    assert go(ask()) == 0


def test_its_threads_end_with_it(watch):
    others = set(threading.enumerate())

    async def poll_and_stop() -> set[threading.Thread]:
        await watch.start()
        await watch.state("poi")
        started = set(threading.enumerate()) - others
        await watch.stop()
        return started

    started = go(poll_and_stop())

    assert started
    for thread in started:
        thread.join(10)
    assert not any(thread.is_alive() for thread in started)
