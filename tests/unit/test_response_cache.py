"""Answers are worked out once, kept no longer than was said, and never mixed."""

import asyncio
import gc
import threading
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.datastructures import Headers

from penstock.domain.history import HistoryPosition
from penstock.domain.search.filter_params import read_query
from penstock.entrypoints.api.cache.response_cache import (
    ENTRY_OVERHEAD,
    MAX_LOCAL_TTL,
    MAX_NOT_FOUND_TTL,
    PAUSE_FACTOR,
    CacheableRead,
    ReadResult,
    ResponseCache,
    etag_matches,
    etag_of,
    is_due_early,
    lifetime,
)
from penstock.entrypoints.api.concurrency.lanes import Lanes
from penstock.entrypoints.api.params.request_head import RequestHead
from penstock.errors import NoSuchRecord, StoreUnavailable
from penstock.ports.cancellation import CURRENT_TOKEN
from penstock.ports.record_access import DatasetVersion, note_observed
from penstock.ports.response_cache import SharedCache
from tests.support.builders import dataset, int_field, text_field

POI = dataset(
    fields=(int_field("id", required=True), text_field("title"), int_field("points")),
    filter=("title", "points"),
)

NOW = DatasetVersion(generation=1, change_seq=5)
# as a page of a running import leaves it
CHANGED = DatasetVersion(generation=1, change_seq=6)
NEXT = DatasetVersion(generation=2, change_seq=9)
# the same numbers, after the database was put back
OTHER = DatasetVersion(generation=1, change_seq=5, generation_tag=7, change_tag=7)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Memory(SharedCache):
    """A shared store in this process."""

    def __init__(self, *, left: float = 60.0) -> None:
        self.entries: dict[str, bytes] = {}
        self.seconds: list[float] = []
        self._left = left

    def find(self, name: str) -> tuple[bytes, float] | None:
        return (self.entries[name], self._left) if name in self.entries else None

    def store(self, name: str, value: bytes, *, seconds: float) -> None:
        self.entries[name] = value
        self.seconds.append(seconds)

    def failure(self) -> str | None:
        return None


class Reader:
    """Counts how often it is asked."""

    def __init__(self, body: bytes = b"[]") -> None:
        self.requests = 0
        self.body = body

    def __call__(self) -> ReadResult:
        self.requests += 1
        return ReadResult(body=self.body, headers=[(b"link", b"<x>")])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lanes():
    lanes = Lanes(4)
    yield lanes
    lanes.close()


@pytest.fixture
def answers(lanes, clock) -> ResponseCache:
    # nobody is lucky: no spread, nothing early
    return ResponseCache(lanes=lanes, clock=clock, roll=lambda: 0.999999)


def question(
    read: Callable[[], ReadResult],
    *,
    key: bytes = b"/a",
    max_age: float = 60.0,
    follows_changes: bool = False,
) -> CacheableRead:
    return CacheableRead(
        key=key,
        dataset="poi",
        edition="e1",
        read=read,
        max_age=max_age,
        follows_changes=follows_changes,
    )


def ask(
    answers: ResponseCache,
    request: CacheableRead,
    state: DatasetVersion = NOW,
    *,
    at_least: int = -1,
) -> Any:
    """Ask as a request does: first what is kept."""

    async def go() -> Any:
        stored = answers.find(request.key, state, at_least=at_least)
        return stored or await answers.load(request, state, at_least=at_least)

    return asyncio.run(go())


def test_an_answer_is_read_once_and_retained(answers):
    read = Reader()

    first, again = ask(answers, question(read)), ask(answers, question(read))

    assert read.requests == 1
    assert first.result == again.result
    assert answers.stats.hits == answers.stats.misses == 1


@pytest.mark.parametrize(("max_age", "stored"), [(60.0, MAX_LOCAL_TTL), (2.0, 2.0)])
def test_it_is_retained_no_longer_than_was_said(answers, clock, max_age, stored):
    read = Reader()
    ask(answers, question(read, max_age=max_age))

    clock.now += stored * 0.84
    ask(answers, question(read, max_age=max_age))
    assert read.requests == 1

    clock.now += stored * 0.16
    ask(answers, question(read, max_age=max_age))
    assert read.requests == 2


def test_a_new_generation_leaves_it_behind(answers):
    read = Reader()
    ask(answers, question(read))

    ask(answers, question(read), NEXT)

    assert read.requests == 2


@pytest.mark.parametrize("memory", [None, Memory()], ids=["alone", "shared"])
@pytest.mark.parametrize(("follows", "read"), [(True, 2), (False, 1)])
def test_a_change_leaves_behind_only_what_follows_changes(
    lanes, clock, memory, follows, read
):
    answers = ResponseCache(
        lanes=lanes, clock=clock, roll=lambda: 0.999999, shared=memory
    )
    reader, key = Reader(), b"%d" % follows
    request = question(reader, key=key, follows_changes=follows)
    ask(answers, request)

    ask(answers, request, CHANGED)
    ask(answers, request, CHANGED)

    assert reader.requests == read


def test_who_knows_of_a_change_gets_no_older_answer_from_anywhere(lanes, clock):
    memory, read = Memory(), Reader()
    one, other = (
        ResponseCache(lanes=lanes, clock=clock, roll=lambda: 0.999999, shared=memory)
        for _ in range(2)
    )
    ask(one, question(read))

    ask(one, question(read), CHANGED, at_least=6)
    assert read.requests == 2
    # it is what all have now
    ask(other, question(read), CHANGED, at_least=6)
    ask(one, question(read), CHANGED)
    assert read.requests == 2


def test_who_knows_of_a_change_does_not_wait_for_what_began_before(answers):
    read, new = Slow(), Reader(b"new")

    async def go() -> Any:
        first = asyncio.ensure_future(answers.load(question(read), NOW))
        await asyncio.to_thread(read.begun.acquire)
        found = await answers.load(question(new), CHANGED, at_least=6)
        read.go.set()
        return found, await first

    found, first = asyncio.run(go())

    assert (found.result.body, first.result.body) == (b"new", b"slow")
    # what ends later but began before does not take its place
    assert answers.find(b"/a", CHANGED, at_least=6) is found


def test_what_is_shared_but_not_ours_is_passed_over(lanes, clock):
    memory, read = Memory(), Reader()
    answers = ResponseCache(lanes=lanes, clock=clock, shared=memory)
    ask(answers, question(read))
    [name] = memory.entries
    memory.entries[name] = b"nonsense"

    ask(ResponseCache(lanes=lanes, clock=clock, shared=memory), question(read))

    assert read.requests == 2


def test_many_who_ask_at_once_wait_for_one(answers):
    gate = threading.Event()
    requests = []

    def read() -> ReadResult:
        requests.append(1)
        assert gate.wait(10)
        return ReadResult(body=b"x")

    async def go() -> list[Any]:
        waiting = [
            asyncio.ensure_future(answers.load(question(read), NOW)) for _ in range(20)
        ]
        await asyncio.sleep(0.05)
        # one of them leaves, and takes nothing away
        waiting[0].cancel()
        gate.set()
        return await asyncio.gather(*waiting, return_exceptions=True)

    found = asyncio.run(go())

    assert len(requests) == 1
    assert [each.result.body for each in found[1:]] == [b"x"] * 19
    assert answers.stats.joined == 19


def test_a_failure_reaches_all_and_is_not_retained(answers):
    def read() -> ReadResult:
        raise StoreUnavailable("away")

    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            ask(answers, question(read))

    assert answers.stats.misses == 2


def test_what_is_not_there_is_known_for_a_moment(answers, clock):
    requests = []

    def read() -> ReadResult:
        requests.append(1)
        raise NoSuchRecord("none")

    assert ask(answers, question(read)).not_found is not None
    assert ask(answers, question(read)).not_found is not None
    assert len(requests) == 1
    clock.now += MAX_NOT_FOUND_TTL
    ask(answers, question(read))
    assert len(requests) == 2


def test_the_oldest_are_let_go_where_room_ends(lanes, clock):
    most = 3 * (ENTRY_OVERHEAD + 700)
    answers = ResponseCache(
        lanes=lanes, clock=clock, roll=lambda: 0.999999, max_bytes=most
    )
    for number in range(10):
        ask(answers, question(Reader(b"x" * 500), key=b"%d" % number))

    assert answers.cached_bytes <= most
    assert answers.stats.dropped == 7
    assert answers.find(b"9", NOW) is not None
    assert answers.find(b"0", NOW) is None


@pytest.mark.parametrize(
    "query",
    [
        [("title", "in." + ",".join(["x" * 590] * 6))] * 2,
        [("title", "eq." + "\N{ELECTRIC PLUG}" * 500)] * 3,
        [("points", "in." + ",".join(map(str, range(1_000, 1_200))))] * 3,
        [],
    ],
    ids=["long", "wide", "many", "none"],
)
def test_what_is_retained_takes_no_more_bytes_than_are_counted(lanes, clock, query):
    most = 2_000_000
    answers = ResponseCache(lanes=lanes, clock=clock, roll=lambda: 0.5, max_bytes=most)

    def fresh(number: int) -> CacheableRead:
        """Make a question as a request does, which shares nothing with another."""
        request = RequestHead(
            path=f"/api/v1/datasets/poi/records{number}",
            parts={"dataset": "poi"},
            raw_path=b"/api/v1/datasets/poi/records%d" % number,
            query=[(name, f"{value}{number}") for name, value in query],
            headers=Headers(raw=[(b"prefer", b"")]),
        )

        def read(query: object) -> ReadResult:
            del query
            link = urlencode(request.query).encode()
            return ReadResult(body=request.raw_path, headers=[(b"link", link)])

        return CacheableRead(
            key=request.raw_path + b"\n" + urlencode(request.query).encode(),
            dataset="poi",
            edition="e1",
            read=partial(read, read_query(POI, request.query)),
            max_age=60.0,
            size=request.size,
        )

    async def fill() -> None:
        number = 0
        while not answers.stats.dropped:
            number += 1
            await answers.load(fresh(number), NOW)

    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        asyncio.run(fill())
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    # others in this process hold something, too
    assert most / 4 < held < 1.3 * most


def test_what_is_not_there_holds_on_to_nothing_that_led_to_it(answers):
    def read() -> ReadResult:
        raise NoSuchRecord("none")

    assert ask(answers, question(read)).not_found == "none"


def test_processes_share_what_one_has_worked_out(lanes, clock):
    memory, read = Memory(), Reader(b"[1]")
    one, other = (
        ResponseCache(lanes=lanes, clock=clock, roll=lambda: 0.999999, shared=memory)
        for _ in range(2)
    )

    first = ask(one, question(read))
    found = ask(other, question(read))

    assert read.requests == 1
    assert found.result.body == b"[1]"
    assert [*found.result.headers] == [(b"link", b"<x>")]
    assert found.etag == first.etag
    assert memory.seconds == [pytest.approx(60 * 0.85, abs=0.01)]


def test_what_is_shared_is_not_retained_beyond_its_end(lanes, clock):
    memory, read = Memory(left=1.5), Reader()
    one, other = (
        ResponseCache(lanes=lanes, clock=clock, roll=lambda: 0.999999, shared=memory)
        for _ in range(2)
    )
    ask(one, question(read))
    ask(other, question(read))
    memory.entries.clear()

    clock.now += 1.5
    ask(other, question(read))

    assert read.requests == 2


def test_nothing_is_shared_across_generations_or_editions(lanes, clock):
    memory, read = Memory(), Reader()
    answers = ResponseCache(lanes=lanes, clock=clock, shared=memory)
    ask(answers, question(read), NOW)
    ask(answers, question(read), NEXT)
    other = CacheableRead(
        key=b"/a", dataset="poi", edition="e2", read=read, max_age=60.0
    )
    asyncio.run(answers.load(other, NEXT))

    assert read.requests == 3
    assert len(memory.entries) == 3


def test_new_data_warms_what_was_requested(answers):
    popular, rare = Reader(), Reader()
    ask(answers, question(popular, key=b"popular"))
    ask(answers, question(popular, key=b"popular"))
    ask(answers, question(rare, key=b"rare"))

    asyncio.run(answers.warm("poi", NEXT))

    assert (popular.requests, rare.requests) == (2, 1)
    assert answers.find(b"popular", NEXT) is not None
    assert answers.stats.warmed == 1


class Rounds:
    """Answers that were asked for, and how often each state is worked out for them."""

    def __init__(self, answers: ResponseCache, *, many: int) -> None:
        self.read = Slow()
        self.read.go.set()
        for number in range(many):
            request = question(self.read, key=b"%d" % number)
            for _ in range(5):
                ask(answers, request)
        self.read.requests = 0


def test_data_that_is_new_again_and_again_is_warmed_one_round_at_a_time(answers):
    rounds = Rounds(answers, many=10)
    states = [DatasetVersion(generation=2 + at, change_seq=9) for at in range(50)]

    async def go() -> None:
        rounds.read.go.clear()
        rounds.read.begun = threading.Semaphore(0)
        first = asyncio.ensure_future(answers.warm("poi", states[0]))
        for _ in range(2):
            await asyncio.to_thread(rounds.read.begun.acquire)
        for each in states[1:]:
            # nobody waits for these: the round that is under way goes on with the last
            await asyncio.wait_for(answers.warm("poi", each), 1)
        assert rounds.read.requests == 2
        rounds.read.go.set()
        await first

    asyncio.run(go())

    assert rounds.read.requests == 2 + 10
    assert answers.find(b"0", states[-1]) is not None


def test_after_a_round_there_is_rest(lanes):
    answers = ResponseCache(lanes=lanes, roll=lambda: 0.999999)
    rounds = Rounds(answers, many=1)
    begun = []

    async def go() -> None:
        def slow() -> ReadResult:
            begun.append(time.monotonic())
            time.sleep(0.05)
            return ReadResult(body=b"x")

        [stored] = answers._entries.values()
        stored.request = question(slow, key=b"0")
        stored.hits = 100
        first = asyncio.ensure_future(answers.warm("poi", NEXT))
        await asyncio.sleep(0.06)
        answers.find(b"0", NEXT)
        await answers.warm("poi", DatasetVersion(generation=3, change_seq=9))
        await first

    asyncio.run(go())

    assert len(begun) == 2
    assert begun[1] - begun[0] > 0.05 * (1 + PAUSE_FACTOR) * 0.9
    assert rounds.read.requests == 0


def test_one_goes_ahead_before_an_answer_ends(lanes, clock):
    answers = ResponseCache(lanes=lanes, clock=clock, roll=lambda: 1e-12)
    read = Reader()

    async def go() -> None:
        stored = await answers.load(question(read), NOW)
        stored.cost = 0.5
        clock.now = stored.expires - 1.0
        assert answers.find(b"/a", NOW) is stored
        await asyncio.sleep(0.05)
        assert answers.find(b"/a", NOW) is not stored

    asyncio.run(go())
    assert read.requests == 2


# a database that goes back


def holding(*states: DatasetVersion) -> Callable[[], ReadResult]:
    """Read something after which the database is so far."""

    def read() -> ReadResult:
        for each in states:
            note_observed(each)
        return ReadResult(body=b"[]")

    return read


def test_the_same_numbers_of_another_history_are_another_state(answers):
    read = Reader()
    ask(answers, question(read))
    assert ask(answers, question(read), OTHER).state is OTHER
    ask(answers, question(read), replace(OTHER, history=1))

    assert read.requests == 3


def test_what_was_read_before_the_history_was_another_is_not_found_after(answers):
    read = Reader()
    ask(answers, question(read, follows_changes=True))
    ask(answers, question(read, follows_changes=True), replace(NOW, history=1))

    assert read.requests == 2


def test_a_shared_answer_counts_only_while_the_database_knows_its_changes(lanes, clock):
    shared, known = Memory(), {HistoryPosition(5, 0), HistoryPosition(6, 8)}
    read = Reader()
    later = DatasetVersion(generation=1, change_seq=9, change_tag=9)

    def process() -> ResponseCache:
        return ResponseCache(
            lanes=lanes,
            shared=shared,
            clock=clock,
            roll=lambda: 0.999999,
            knows=lambda _, positions: known.issuperset(positions),
        )

    def read_late() -> ReadResult:
        note_observed(DatasetVersion(generation=1, change_seq=6, change_tag=8))
        return read()

    ask(process(), question(read_late))
    ask(process(), question(read_late), later)
    assert read.requests == 1
    # the change is lost that came while it was read
    known.remove(HistoryPosition(6, 8))
    ask(process(), question(read_late), later)
    assert read.requests == 2


@pytest.mark.parametrize("is_there", [True, False], ids=["found", "not there"])
def test_changes_that_an_answer_may_hold_are_tracked(lanes, clock, is_there):
    tracked: list[tuple[str, set[HistoryPosition]]] = []
    answers = ResponseCache(
        lanes=lanes,
        clock=clock,
        roll=lambda: 0.999999,
        track_positions=lambda name, positions: tracked.append((name, set(positions))),
    )

    def read() -> ReadResult:
        note_observed(NOW)
        note_observed(CHANGED)
        if not is_there:
            raise NoSuchRecord("there is none")
        return ReadResult(body=b"[]")

    ask(answers, question(read))

    assert tracked == [("poi", {CHANGED.position})]


def test_what_changed_while_it_was_read_has_the_name_of_no_state(answers):
    exact = ask(answers, question(holding(NOW)))
    mixed = ask(answers, question(holding(CHANGED), key=b"/b"))

    assert exact.etag == etag_of(b"/a", "e1", NOW)
    assert mixed.etag not in {
        etag_of(b"/b", "e1", state) for state in (NOW, CHANGED, OTHER)
    }


def test_the_spread_only_shortens():
    assert lifetime(10, 0) == 10
    assert lifetime(10, 1) == pytest.approx(8.5)


def test_an_early_refresh_is_the_likelier_the_nearer_the_end():
    assert not is_due_early(left=9, cost=0.01, roll=0.5)
    assert is_due_early(left=0.001, cost=0.01, roll=0.5)


def test_another_edition_is_another_version():
    tags = {
        etag_of(key, edition, state)
        for key in (b"/a", b"/b")
        for edition in ("e1", "e2")
        for state in (NOW, CHANGED, NEXT, OTHER)
    }

    assert len(tags) == 16


@pytest.mark.parametrize(
    ("etag", "header", "known"),
    [
        (b'W/"a"', b'W/"a"', True),
        (b'W/"a"', b'"a"', True),
        (b'"a"', b'W/"a", "b"', True),
        (b'"a"', b'"b"', False),
        (b'"a"', b"*", True),
        (b'"a"', None, False),
    ],
)
def test_a_client_is_reported_only_what_it_has_not(etag, header, known):
    assert etag_matches(etag, header) is known


class Slow:
    """A reader that waits until it is let go, or called off."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Semaphore(0), threading.Event()
        self.requests = self.called_off = 0

    def __call__(self) -> ReadResult:
        ticket = CURRENT_TOKEN.get()
        assert ticket is not None
        with ticket.on_cancel(self._call_off):
            self.requests += 1
            self.begun.release()
            assert self.go.wait(20)
        return ReadResult(body=b"slow")

    def _call_off(self) -> None:
        self.called_off += 1
        self.go.set()


def test_who_leaves_takes_the_answer_from_nobody(answers):
    read = Slow()

    async def go() -> Any:
        first = asyncio.ensure_future(answers.load(question(read), NOW))
        await asyncio.to_thread(read.begun.acquire)
        second = asyncio.ensure_future(answers.load(question(read), NOW))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        read.go.set()
        return await second

    assert asyncio.run(go()).result.body == b"slow"
    assert read.requests == 1
    assert read.called_off == 0


def test_the_last_who_leaves_calls_it_off_and_the_next_begins_anew(answers):
    read = Slow()

    async def go() -> Any:
        both = [
            asyncio.ensure_future(answers.load(question(read), NOW)) for _ in range(2)
        ]
        await asyncio.to_thread(read.begun.acquire)
        for each in both:
            each.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        return await answers.load(question(Reader(b"new")), NOW)

    assert asyncio.run(go()).result.body == b"new"
    assert read.requests == read.called_off == 1
