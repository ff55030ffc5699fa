"""Answers that are given more than once: kept for a moment, worked out once at a time.

An answer is kept under the generation of its dataset that was known *before* it was
read, so what is read meanwhile can only be newer than it says. A new generation leaves
all older answers behind; nothing has to be deleted.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

from penstock.errors import NoSuchRecord
from penstock.ports.serving import State

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

# seconds; the dataset may say less
LONGEST = 10.0
# what is not there may come at any moment
LONGEST_NOTHING = 5.0
MOST_BYTES = 64 * 1024 * 1024
# beyond this, one answer would push out too many others
LARGEST = 4 * 1024 * 1024
# what an entry costs beside its bytes
OVERHEAD = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question that can be answered from what is stored, by whoever is asked."""

    path: str
    # the variable parts of the path, and its last part as it was sent
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
class Kept:
    """An answer, and how long it is good."""

    generation: int
    expires: float
    etag: bytes
    answer: Answer | None
    # why there is none
    refusal: NoSuchRecord | None = None

    @property
    def size(self) -> int:
        return OVERHEAD + (0 if self.answer is None else len(self.answer.body))


class Answers:
    """The answers of one process, bounded by their bytes, the oldest let go first."""

    def __init__(
        self,
        executor: Executor,
        *,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._executor = executor
        self._most = most_bytes
        self._clock = clock
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()
        self._bytes = 0
        self._under_way: dict[tuple[bytes, int], asyncio.Future[Kept]] = {}
        self.hits = self.misses = self.joined = 0

    def find(self, key: bytes, state: State) -> Kept | None:
        """Return an answer that is still good."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept.generation != state.generation or self._clock() >= kept.expires:
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        self.hits += 1
        return kept

    async def work_out(
        self,
        key: bytes,
        state: State,
        read: Callable[[], Answer],
        *,
        longest: float = LONGEST,
    ) -> Kept:
        """Read an answer once, however many ask for it at the same time.

        Whoever leaves does not take it away from the others.
        """
        name = (key, state.generation)
        under_way = self._under_way.get(name)
        if under_way is not None:
            self.joined += 1
            return await asyncio.shield(under_way)
        self.misses += 1
        task = asyncio.ensure_future(self._read(key, state, read, longest))
        self._under_way[name] = task
        task.add_done_callback(lambda _: self._under_way.pop(name, None))
        return await asyncio.shield(task)

    async def _read(
        self, key: bytes, state: State, read: Callable[[], Answer], longest: float
    ) -> Kept:
        begun = self._clock()
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(self._executor, read)
        except NoSuchRecord as refusal:
            kept = Kept(
                generation=state.generation,
                expires=begun + min(longest, LONGEST_NOTHING),
                etag=b"",
                answer=None,
                refusal=refusal,
            )
        else:
            kept = Kept(
                generation=state.generation,
                expires=begun + longest,
                etag=etag_of(key, state) if answer.etag is None else strong(answer),
                answer=answer,
            )
        self._keep(key, kept)
        return kept

    def _keep(self, key: bytes, kept: Kept) -> None:
        if kept.size > LARGEST:
            return
        self._drop(key)
        self._kept[key] = kept
        self._bytes += kept.size
        while self._bytes > self._most:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: bytes) -> None:
        gone = self._kept.pop(key, None)
        if gone is not None:
            self._bytes -= gone.size


def etag_of(key: bytes, state: State) -> bytes:
    """Name what a question is answered with as long as the dataset does not change."""
    asked = blake2b(key, digest_size=8).hexdigest()
    return f'W/"{state.change_seq:x}.{state.generation:x}.{asked}"'.encode()


def strong(answer: Answer) -> bytes:
    return f'"{answer.etag}"'.encode()


def is_known(etag: bytes, if_none_match: bytes | None) -> bool:
    """Say whether a client has this version already."""
    if if_none_match is None:
        return False
    known = {each.strip() for each in if_none_match.split(b",")}
    # to read, a weak name is as good as a strong one
    bare = etag.removeprefix(b"W/")
    return b"*" in known or etag in known or bare in known or b"W/" + bare in known
