"""Answers that are given more than once: kept for a moment, worked out once at a time.

An answer is kept under how far its dataset was known to be *before* it was read, so
what is read meanwhile can only be newer than it says. A new generation leaves all older
answers behind, and a change those of single records; nothing has to be deleted. Each
process keeps its own for some seconds, and all of them share a store, if there is one,
for as long as the dataset allows.

How far the dataset was *after* the read is kept as well: if the database is put back to
an older state, an answer that may hold what was lost counts for nothing.
"""

import asyncio
import random
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import TypeAlias

import msgspec

from penstock.domain.freshness import is_due_early, lifetime
from penstock.domain.history import Position
from penstock.domain.lanes import Lane
from penstock.entrypoints.api.heads import Head
from penstock.entrypoints.api.lanes import Lanes
from penstock.errors import NoSuchRecord, PenstockError
from penstock.ports.answers import SharedAnswers
from penstock.ports.serving import State, observing

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
# of an answer that is being worked out: the question, and the state it is kept under
Name: TypeAlias = tuple[bytes, int, tuple[int, int]]

# seconds for which a process keeps an answer; the dataset may say less
LONGEST_HERE = 10.0
# what is not there may come at any moment
LONGEST_NOTHING = 5.0
MOST_BYTES = 64 * 1024 * 1024
# beyond this, one answer would push out too many others
LARGEST = 4 * 1024 * 1024
# what an entry costs beside its bytes, and each pair of a query or of headers
OVERHEAD, PAIR = 1_500, 150
# so many of the answers that were asked for most are worked out when data is new
WARMED, WARMED_AT_ONCE = 20, 2
# how many times as long as that took until it is done again, and never more seconds
REST_SHARE, LONGEST_REST = 9, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question that can be answered from what is stored, by whoever is asked."""

    path: str
    # the variable parts of the path, and the path as it was sent
    parts: Mapping[str, str]
    raw_path: bytes
    query: Sequence[tuple[str, str]]
    prefer: str = ""

    @property
    def size(self) -> int:
        """Return about how many bytes it takes to remember the question."""
        texts = chain((self.path, self.prefer), self.parts.values(), *self.query)
        held = sum(map(sys.getsizeof, texts))
        return held + len(self.raw_path) + PAIR * len(self.query)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a question is answered with."""

    body: bytes
    headers: Headers = ()
    # the version of what was asked for; None is that of the whole dataset
    etag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Something that is answered alike whoever asks, and how to work it out."""

    key: bytes
    dataset: str
    # tells apart what other declarations of the dataset would answer
    edition: str
    read: Callable[[], Answer]
    # seconds for which the dataset allows an answer to be kept
    longest: float
    lane: Lane = Lane.READS
    # whether any change of the dataset may be one of the answer: what is kept is then
    # good only until the next one, and not until data is published
    follows_changes: bool = False
    # bytes that it takes to remember the question
    size: int = 0

    def least(self, state: State, at_least: int) -> int:
        """Return the change of which an answer has to know."""
        return state.change_seq if self.follows_changes else at_least


@dataclass(slots=True, kw_only=True)
class Kept:
    """An answer, and how long it is good."""

    question: Question
    # how far the dataset was known to be before it was read
    state: State
    # the last change that it knows of at least
    change_seq: int
    etag: bytes
    answer: Answer | None
    # why there is none
    refusal: str | None = None
    expires: float
    # seconds that it took
    cost: float
    size: int
    hits: int = 0
    # of what is sent, once it is written
    head: Head | None = None


class Shared(msgspec.Struct, array_like=True):
    """An answer as processes give it to each other."""

    # the change that was known before it was read, and those that it may hold
    change: tuple[int, int]
    observed: list[tuple[int, int]]
    etag: bytes
    body: bytes
    headers: list[tuple[bytes, bytes]]

    @property
    def positions(self) -> set[Position]:
        """All changes without which the database has another history."""
        return {Position(*each) for each in (self.change, *self.observed)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was found where answers are shared, or in the database."""

    # seconds for which it is good
    seconds: float
    entry: Shared | None = None
    # why there is none
    refusal: str | None = None
    positions: Collection[Position] = ()


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Shared).decode


@dataclass(slots=True)
class Tally:
    """How often an answer was at hand."""

    hits: int = 0
    shared_hits: int = 0
    misses: int = 0
    # came while another was working on the same
    joined: int = 0
    early: int = 0
    warmed: int = 0
    dropped: int = 0


@dataclass(slots=True)
class UnderWay:
    """An answer that is being worked out, and how many would miss it."""

    task: asyncio.Task[Kept]
    change_seq: int
    waiting: int = 0


@dataclass(slots=True, kw_only=True)
class Answers:
    """The answers of one process, bounded by their bytes, the oldest let go first."""

    lanes: Lanes
    shared: SharedAnswers | None = None
    # says whether the history of a dataset has all of these changes; asks the database
    knows: Callable[[str, Collection[Position]], bool] = lambda *_: True
    # takes the changes that an answer may hold which is cached here
    track_positions: Callable[[str, Collection[Position]], None] = lambda *_: None
    most_bytes: int = MOST_BYTES
    clock: Callable[[], float] = time.monotonic
    roll: Callable[[], float] = random.random
    tally: Tally = field(default_factory=Tally)
    bytes_kept: int = 0
    _kept: OrderedDict[bytes, Kept] = field(default_factory=OrderedDict)
    _under_way: dict[Name, UnderWay] = field(default_factory=dict)
    # the newest state of each dataset whose answers are being warmed
    _warming: dict[str, State] = field(default_factory=dict)

    def find(self, key: bytes, state: State, *, at_least: int = -1) -> Kept | None:
        """Return an answer that is still good, and knows of a change at least."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        left = kept.expires - self.clock()
        if left <= 0 or not is_of_same(kept.state, state):
            return None
        if kept.change_seq < kept.question.least(state, at_least):
            return None
        self._kept.move_to_end(key)
        kept.hits += 1
        self.tally.hits += 1
        if is_due_early(left=left, cost=kept.cost, roll=self.roll()):
            self.tally.early += 1
            # for those who will ask, none of whom waits yet
            self._begin(kept.question, state, at_least).waiting += 1
        return kept

    async def work_out(
        self, question: Question, state: State, *, at_least: int = -1
    ) -> Kept:
        """Read an answer once, however many ask for it at the same time.

        Whoever leaves does not take it away from the others; the last one calls it off.
        """
        under_way = self._begin(question, state, at_least)
        if under_way.waiting:
            self.tally.joined += 1
        under_way.waiting += 1
        try:
            return await asyncio.shield(under_way.task)
        finally:
            under_way.waiting -= 1
            if not under_way.waiting and not under_way.task.done():
                # whoever comes now begins anew
                self._forget(name_of(question, state), under_way)
                under_way.task.cancel()

    async def warm(self, dataset: str, state: State) -> None:
        """Work out anew what was asked for most, before it is asked for again.

        One round of a dataset at a time, always for its newest state, and with a rest
        after each: where data is new all the time, nothing stays warm for long.
        """
        is_at_work = dataset in self._warming
        self._warming[dataset] = state
        if is_at_work:
            return
        try:
            warmed = None
            while (newest := self._warming[dataset]) is not warmed:
                warmed, begun = newest, self.clock()
                await self._warm(dataset, newest)
                took = self.clock() - begun
                await asyncio.sleep(min(REST_SHARE * took, LONGEST_REST))
        finally:
            del self._warming[dataset]

    async def _warm(self, dataset: str, state: State) -> None:
        asked = [
            kept
            for kept in self._kept.values()
            if kept.question.dataset == dataset
            and kept.hits
            and not is_of_same(kept.state, state)
        ]
        asked.sort(key=lambda kept: kept.hits, reverse=True)
        places = asyncio.Semaphore(WARMED_AT_ONCE)

        async def one(kept: Kept) -> None:
            async with places:
                if self._warming[dataset] is not state:
                    # what it would bring is left behind already
                    return
                try:
                    await self.work_out(kept.question, state)
                except PenstockError:
                    # whoever asks for it hears why
                    return
            self.tally.warmed += 1

        await asyncio.gather(*(one(kept) for kept in asked[:WARMED]))

    def _begin(self, question: Question, state: State, at_least: int) -> UnderWay:
        """Read an answer, unless one that is good enough is being read already."""
        name = name_of(question, state)
        least = question.least(state, at_least)
        known = self._under_way.get(name)
        if known is not None and known.change_seq >= least:
            return known
        reading = asyncio.ensure_future(self._read(question, state, least))
        under_way = UnderWay(reading, state.change_seq)
        self._under_way[name] = under_way
        under_way.task.add_done_callback(lambda done: self._end(name, under_way, done))
        return under_way

    def _end(self, name: Name, ended: UnderWay, done: asyncio.Task[Kept]) -> None:
        self._forget(name, ended)
        if not done.cancelled():
            # those who wait have it too; of an early one nobody asks
            done.exception()

    def _forget(self, name: Name, ended: UnderWay) -> None:
        if self._under_way.get(name) is ended:
            del self._under_way[name]

    async def _read(self, question: Question, state: State, least: int) -> Kept:
        begun = self.clock()
        result = await self.lanes.run(
            question.lane,
            partial(self._look_up, question, state, least),
            dataset=question.dataset,
        )
        entry = result.entry
        answer = (
            None if entry is None else Answer(body=entry.body, headers=entry.headers)
        )
        kept = Kept(
            question=question,
            state=state,
            change_seq=state.change_seq if entry is None else entry.change[0],
            etag=b"" if entry is None else entry.etag,
            answer=answer,
            refusal=result.refusal,
            expires=begun + lifetime(min(result.seconds, LONGEST_HERE), self.roll()),
            cost=self.clock() - begun,
            size=size_of(question, answer),
        )
        if result.positions:
            self.track_positions(question.dataset, result.positions)
        self._keep(kept)
        return kept

    def _look_up(self, question: Question, state: State, least: int) -> Result:
        """Look where all processes keep answers, then in the database."""
        name = shared_name(question, state)
        found = self._find_shared(name, question.dataset, state)
        if found is not None and found[0].change[0] >= least:
            self.tally.shared_hits += 1
            entry, seconds = found
            return Result(entry=entry, seconds=seconds, positions=entry.positions)
        self.tally.misses += 1
        refusal, answer = None, None
        with observing() as observed:
            try:
                answer = question.read()
            except NoSuchRecord as nothing:
                # not the error itself, which holds on to all that led to it
                refusal = str(nothing)
        # what the dataset had become while it was read
        positions = {each.position for each in observed} - {state.position}
        if answer is None:
            seconds = min(question.longest, LONGEST_NOTHING)
            return Result(refusal=refusal, seconds=seconds, positions=positions)
        etag = (
            etag_of(question.key, question.edition, state, positions)
            if answer.etag is None
            else record_tag(answer.etag, question.edition).encode()
        )
        entry = Shared(
            (state.change_seq, state.change_tag),
            [(each.seq, each.tag or 0) for each in positions],
            etag,
            answer.body,
            list(answer.headers),
        )
        is_shared = question.longest > 0 and len(answer.body) <= LARGEST
        if self.shared is not None and is_shared:
            seconds = lifetime(question.longest, self.roll())
            self.shared.keep(name, encode(entry), seconds=seconds)
        return Result(entry=entry, seconds=question.longest, positions=positions)

    def _find_shared(
        self, name: str, dataset: str, state: State
    ) -> tuple[Shared, float] | None:
        found = None if self.shared is None else self.shared.find(name)
        if found is None:
            return None
        try:
            entry = decode(found[0])
        except msgspec.DecodeError:
            # what cannot be read was not written by us
            return None
        doubtful = entry.positions - {state.position}
        return (
            None
            if doubtful and not self.knows(dataset, doubtful)
            else (entry, found[1])
        )

    def _keep(self, kept: Kept) -> None:
        before = self._kept.get(kept.question.key)
        if kept.size > LARGEST:
            return
        if before is not None:
            if is_newer(before, kept) and before.expires > self.clock():
                # it took so long that others were faster
                return
            del self._kept[kept.question.key]
            self.bytes_kept -= before.size
            # what was asked for often will be again, but not for ever
            kept.hits = before.hits // 2
        self._kept[kept.question.key] = kept
        self.bytes_kept += kept.size
        while self.bytes_kept > self.most_bytes:
            _, oldest = self._kept.popitem(last=False)
            self.bytes_kept -= oldest.size
            self.tally.dropped += 1


def shared_name(question: Question, state: State) -> str:
    asked = blake2b(question.key, digest_size=16).hexdigest()
    number, tag = state.published
    return f"{question.dataset}:{question.edition}:{number:x}-{tag:x}:{asked}"


def size_of(question: Question, answer: Answer | None) -> int:
    """Return about how many bytes are held as long as an answer is kept."""
    held = OVERHEAD + len(question.key) + question.size
    if answer is None:
        return held
    # each as it was given, and as it is sent
    headers = sum(2 * (len(name) + len(value)) + PAIR for name, value in answer.headers)
    return held + len(answer.body) + headers


def is_of_same(one: State, other: State) -> bool:
    """Say whether two states are of one generation in one history."""
    return (one.history, one.published) == (other.history, other.published)


def name_of(question: Question, state: State) -> Name:
    return question.key, state.history, state.published


def is_newer(one: Kept, other: Kept) -> bool:
    return age_of(one) > age_of(other)


def age_of(kept: Kept) -> tuple[int, int, int]:
    return kept.state.history, kept.state.generation, kept.change_seq


def etag_of(
    key: bytes, edition: str, state: State, observed: Collection[Position] = ()
) -> bytes:
    """Name what a question is answered with as long as the dataset does not change.

    Neither its rows nor its declaration, which decides how they are told. Where it has
    changed while it was read, no state has that name: if the database is put back, the
    answer may hold what was lost.
    """
    asked = blake2b(key, digest_size=8, key=edition.encode()).hexdigest()
    parts = [f"{state.change_seq:x}-{state.change_tag:x}"]
    parts += sorted(f"{each.seq:x}-{each.tag or 0:x}" for each in observed)
    number, tag = state.published
    return f'W/"{"..".join(parts)}.{number:x}-{tag:x}.{asked}"'.encode()


def record_tag(version: str, edition: str) -> str:
    """Name a version of a record as clients hear of it.

    What stands behind the first dot says how it is told, not which version it is.
    """
    return f'"{version}.{edition}"'


def is_known(etag: bytes, if_none_match: bytes | None) -> bool:
    """Say whether a client has this version already."""
    if if_none_match is None:
        return False
    known = {each.strip() for each in if_none_match.split(b",")}
    # to read, a weak name is as good as a strong one
    bare = etag.removeprefix(b"W/")
    return b"*" in known or etag in known or bare in known or b"W/" + bare in known
