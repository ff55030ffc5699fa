"""Answers that are given more than once: kept for a moment, worked out once at a time.

An answer is kept under the generation of its dataset that was known *before* it was
read, so what is read meanwhile can only be newer than it says. A new generation leaves
all older answers behind; nothing has to be deleted. Each process keeps its own for some
seconds, and all of them share a store, if there is one, for as long as the dataset
allows.
"""

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import TypeAlias

import msgspec

from penstock.domain.freshness import is_due_early, lifetime
from penstock.domain.lanes import Lane
from penstock.entrypoints.api.lanes import Lanes
from penstock.errors import NoSuchRecord, PenstockError
from penstock.ports.answers import SharedAnswers
from penstock.ports.serving import State

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

# seconds for which a process keeps an answer; the dataset may say less
LONGEST_HERE = 10.0
# what is not there may come at any moment
LONGEST_NOTHING = 5.0
MOST_BYTES = 64 * 1024 * 1024
# beyond this, one answer would push out too many others
LARGEST = 4 * 1024 * 1024
# what an entry costs beside its bytes
OVERHEAD = 1_000
# so many of the answers that were asked for most are worked out when data is new
WARMED, WARMED_AT_ONCE = 20, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question that can be answered from what is stored, by whoever is asked."""

    path: str
    # the variable parts of the path, and the path as it was sent
    parts: Mapping[str, str]
    raw_path: bytes
    query: Sequence[tuple[str, str]]
    prefer: str = ""


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


@dataclass(slots=True, kw_only=True)
class Kept:
    """An answer, and how long it is good."""

    question: Question
    generation: int
    etag: bytes
    answer: Answer | None
    # why there is none
    refusal: NoSuchRecord | None = None
    expires: float
    # seconds that it took
    cost: float
    hits: int = 0

    @property
    def size(self) -> int:
        return OVERHEAD + (0 if self.answer is None else len(self.answer.body))


class Shared(msgspec.Struct, array_like=True):
    """An answer as processes give it to each other."""

    etag: bytes
    body: bytes
    headers: list[tuple[bytes, bytes]]


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
    waiting: int = 0


@dataclass(slots=True, kw_only=True)
class Answers:
    """The answers of one process, bounded by their bytes, the oldest let go first."""

    lanes: Lanes
    shared: SharedAnswers | None = None
    most_bytes: int = MOST_BYTES
    clock: Callable[[], float] = time.monotonic
    roll: Callable[[], float] = random.random
    tally: Tally = field(default_factory=Tally)
    bytes_kept: int = 0
    _kept: OrderedDict[bytes, Kept] = field(default_factory=OrderedDict)
    _under_way: dict[tuple[bytes, int], UnderWay] = field(default_factory=dict)

    def find(self, key: bytes, state: State) -> Kept | None:
        """Return an answer that is still good."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        left = kept.expires - self.clock()
        if kept.generation != state.generation or left <= 0:
            return None
        self._kept.move_to_end(key)
        kept.hits += 1
        self.tally.hits += 1
        if is_due_early(left=left, cost=kept.cost, roll=self.roll()):
            self.tally.early += 1
            # for those who will ask, none of whom waits yet
            self._begin(kept.question, state).waiting += 1
        return kept

    async def work_out(self, question: Question, state: State) -> Kept:
        """Read an answer once, however many ask for it at the same time.

        Whoever leaves does not take it away from the others; the last one calls it off.
        """
        under_way = self._under_way.get((question.key, state.generation))
        if under_way is None:
            under_way = self._begin(question, state)
        else:
            self.tally.joined += 1
        under_way.waiting += 1
        try:
            return await asyncio.shield(under_way.task)
        finally:
            under_way.waiting -= 1
            if not under_way.waiting and not under_way.task.done():
                # whoever comes now begins anew
                self._forget((question.key, state.generation), under_way)
                under_way.task.cancel()

    async def warm(self, dataset: str, state: State) -> None:
        """Work out anew what was asked for most, before it is asked for again."""
        asked = [
            kept
            for kept in self._kept.values()
            if kept.question.dataset == dataset
            and kept.hits
            and kept.generation != state.generation
        ]
        asked.sort(key=lambda kept: kept.hits, reverse=True)
        places = asyncio.Semaphore(WARMED_AT_ONCE)

        async def one(kept: Kept) -> None:
            async with places:
                try:
                    await self.work_out(kept.question, state)
                except PenstockError:
                    # whoever asks for it hears why
                    return
            self.tally.warmed += 1

        await asyncio.gather(*(one(kept) for kept in asked[:WARMED]))

    def _begin(self, question: Question, state: State) -> UnderWay:
        name = (question.key, state.generation)
        known = self._under_way.get(name)
        if known is not None:
            return known
        under_way = UnderWay(asyncio.ensure_future(self._read(question, state)))
        self._under_way[name] = under_way
        under_way.task.add_done_callback(lambda done: self._end(name, under_way, done))
        return under_way

    def _end(
        self, name: tuple[bytes, int], ended: UnderWay, done: asyncio.Task[Kept]
    ) -> None:
        self._forget(name, ended)
        if not done.cancelled():
            # those who wait have it too; of an early one nobody asks
            done.exception()

    def _forget(self, name: tuple[bytes, int], ended: UnderWay) -> None:
        if self._under_way.get(name) is ended:
            del self._under_way[name]

    async def _read(self, question: Question, state: State) -> Kept:
        begun = self.clock()
        answer, refusal, etag, longest = None, None, b"", question.longest
        try:
            answer, etag, longest = await self.lanes.run(
                question.lane, partial(self._look_up, question, state)
            )
        except NoSuchRecord as nothing:
            refusal, longest = nothing, min(longest, LONGEST_NOTHING)
        kept = Kept(
            question=question,
            generation=state.generation,
            etag=etag,
            answer=answer,
            refusal=refusal,
            expires=begun + lifetime(min(longest, LONGEST_HERE), self.roll()),
            cost=self.clock() - begun,
        )
        self._keep(kept)
        return kept

    def _look_up(self, question: Question, state: State) -> tuple[Answer, bytes, float]:
        """Look where all processes keep answers, then in the database."""
        name = shared_name(question, state)
        found = None if self.shared is None else self.shared.find(name)
        if found is not None:
            value, left = found
            known = decode(value)
            self.tally.shared_hits += 1
            return Answer(body=known.body, headers=known.headers), known.etag, left
        self.tally.misses += 1
        answer = question.read()
        etag = (
            etag_of(question.key, state)
            if answer.etag is None
            else f'"{answer.etag}"'.encode()
        )
        is_shared = question.longest > 0 and len(answer.body) <= LARGEST
        if self.shared is not None and is_shared:
            told = Shared(etag, answer.body, list(answer.headers))
            seconds = lifetime(question.longest, self.roll())
            self.shared.keep(name, encode(told), seconds=seconds)
        return answer, etag, question.longest

    def _keep(self, kept: Kept) -> None:
        if kept.size > LARGEST:
            return
        before = self._kept.pop(kept.question.key, None)
        if before is not None:
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
    return f"{question.dataset}:{question.edition}:{state.generation:x}:{asked}"


def etag_of(key: bytes, state: State) -> bytes:
    """Name what a question is answered with as long as the dataset does not change."""
    asked = blake2b(key, digest_size=8).hexdigest()
    return f'W/"{state.change_seq:x}.{state.generation:x}.{asked}"'.encode()


def is_known(etag: bytes, if_none_match: bytes | None) -> bool:
    """Say whether a client has this version already."""
    if if_none_match is None:
        return False
    known = {each.strip() for each in if_none_match.split(b",")}
    # to read, a weak name is as good as a strong one
    bare = etag.removeprefix(b"W/")
    return b"*" in known or etag in known or bare in known or b"W/" + bare in known
