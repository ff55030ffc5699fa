"""The response cache: time to live, early refresh, single flight and warming."""

import asyncio
import math
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import TypeAlias

import msgspec

from penstock.domain.history import HistoryPosition
from penstock.entrypoints.api.concurrency.lanes import Lanes
from penstock.entrypoints.api.concurrency.single_flight import Flight, SingleFlight
from penstock.entrypoints.api.concurrency.thread_shares import Lane
from penstock.entrypoints.api.server.prebuilt_head import ResponseHead
from penstock.errors import NoSuchRecord, PenstockError
from penstock.ports.record_access import DatasetVersion, observing
from penstock.ports.response_cache import SharedCache

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

# entries that were cached together must not expire together
TTL_JITTER = 0.15
# rarely requested entries are never refreshed early, popular ones nearly always
EARLY_REFRESH_FACTOR = 1.0
# seconds for which a process caches a response; the dataset may allow less
MAX_LOCAL_TTL = 10.0
# a missing record may be created at any moment
MAX_NOT_FOUND_TTL = 5.0
MAX_BYTES = 64 * 1024 * 1024
# a larger entry would evict too many others
MAX_ENTRY_SIZE = 4 * 1024 * 1024
# bytes of memory per entry beside its content, and per header
ENTRY_OVERHEAD, PAIR_OVERHEAD = 1_500, 150
# the most requested entries that are reloaded when data is published
MAX_WARMED, WARM_CONCURRENCY = 20, 2
# pause between two warm-ups: a multiple of what the last one took, in seconds at most
PAUSE_FACTOR, MAX_PAUSE = 9, 60.0


def lifetime(max_age: float, roll: float) -> float:
    """Return the seconds to cache a response: `max_age` at most, with jitter."""
    return max_age * (1 - TTL_JITTER * roll)


def is_due_early(*, left: float, cost: float, roll: float) -> bool:
    """Return whether an entry is refreshed although it has not expired.

    More likely the longer it took to load and the sooner it expires, so that one of
    many clients refreshes it before all would wait (Vattani et al., VLDB 2015).
    """
    return -cost * EARLY_REFRESH_FACTOR * math.log(max(roll, 1e-12)) >= left


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    body: bytes
    headers: Headers = ()
    # the version of the record that was read; None for that of the whole dataset
    etag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheableRead:
    """A request whose response is the same for every client, and how to load it."""

    key: bytes
    dataset: str
    # differs between declarations of the dataset that would give other responses
    edition: str
    read: Callable[[], ReadResult]
    # seconds for which the dataset allows a response to be cached
    max_age: float
    lane: Lane = Lane.READS
    # whether any change of the dataset may affect the response: an entry is then valid
    # until the next change only, and not until data is published
    follows_changes: bool = False
    # bytes of memory that the request takes
    size: int = 0

    def min_change_seq(self, state: DatasetVersion, at_least: int) -> int:
        """Return the change that a response has to include."""
        return state.change_seq if self.follows_changes else at_least


@dataclass(slots=True, kw_only=True)
class CacheEntry:
    request: CacheableRead
    # the version of the dataset that was known before the read
    state: DatasetVersion
    # the entry includes this change and all before it
    change_seq: int
    etag: bytes
    result: ReadResult | None
    # why there is no result
    not_found: str | None = None
    expires: float
    # seconds that the load took
    cost: float
    size: int
    hits: int = 0
    # built when the entry is first sent
    head: ResponseHead | None = None


class SharedEntry(msgspec.Struct, array_like=True):
    """An entry as processes share it."""

    # the change that was known before the read, and those that it may include
    change: tuple[int, int]
    observed: list[tuple[int, int]]
    etag: bytes
    body: bytes
    headers: list[tuple[bytes, bytes]]

    @property
    def positions(self) -> set[HistoryPosition]:
        """All changes that the history must have for the entry to be valid."""
        return {HistoryPosition(*change) for change in (self.change, *self.observed)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What was found in the shared cache or in the database."""

    # seconds for which it may be cached
    seconds: float
    entry: SharedEntry | None = None
    # why there is no entry
    not_found: str | None = None
    positions: Collection[HistoryPosition] = ()


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(SharedEntry).decode


@dataclass(slots=True)
class CacheStats:
    hits: int = 0
    shared_hits: int = 0
    misses: int = 0
    # requests that joined a load in flight
    joined: int = 0
    early: int = 0
    warmed: int = 0
    dropped: int = 0


@dataclass(slots=True, kw_only=True)
class ResponseCache:
    """The entries of one process, limited by bytes, least recently used evicted."""

    lanes: Lanes
    shared: SharedCache | None = None
    # returns whether the history of a dataset has all these changes; a database query
    knows: Callable[[str, Collection[HistoryPosition]], bool] = lambda *_: True
    # called with the changes that a cached response may include
    track_positions: Callable[[str, Collection[HistoryPosition]], None] = lambda *_: (
        None
    )
    max_bytes: int = MAX_BYTES
    clock: Callable[[], float] = time.monotonic
    roll: Callable[[], float] = random.random
    stats: CacheStats = field(default_factory=CacheStats)
    cached_bytes: int = 0
    _entries: OrderedDict[bytes, CacheEntry] = field(default_factory=OrderedDict)
    _loads: SingleFlight[CacheEntry] = field(
        default_factory=partial(SingleFlight, cancels_abandoned=True)
    )
    # the newest version of each dataset that is being warmed
    _warming: dict[str, DatasetVersion] = field(default_factory=dict)

    def cached_read(self, key: bytes) -> CacheableRead | None:
        """Return the request of an entry, valid or not; it was well-formed."""
        entry = self._entries.get(key)
        return None if entry is None else entry.request

    def find(
        self, key: bytes, state: DatasetVersion, *, at_least: int = -1
    ) -> CacheEntry | None:
        """Return a valid entry that includes the change `at_least`."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        left = entry.expires - self.clock()
        if left <= 0 or not same_generation(entry.state, state):
            return None
        if entry.change_seq < entry.request.min_change_seq(state, at_least):
            return None
        self._entries.move_to_end(key)
        entry.hits += 1
        self.stats.hits += 1
        if is_due_early(left=left, cost=entry.cost, roll=self.roll()):
            self.stats.early += 1
            # on behalf of later requests, so that leaving clients do not cancel it
            self._start_load(entry.request, state, at_least).waiting += 1
        return entry

    async def load(
        self, request: CacheableRead, state: DatasetVersion, *, at_least: int = -1
    ) -> CacheEntry:
        """Load a response once, however many clients request it at the same time.

        A client that disconnects does not cancel it for the others; the last one does.
        """
        flight = self._start_load(request, state, at_least)
        if flight.waiting:
            self.stats.joined += 1
        return await flight.wait()

    async def warm(self, dataset: str, state: DatasetVersion) -> None:
        """Reload the most requested responses before they are requested again.

        One round of a dataset at a time, always for its newest version, with a pause
        after each: where data is published all the time, nothing stays warm for long.
        """
        is_running = dataset in self._warming
        self._warming[dataset] = state
        if is_running:
            return
        try:
            warmed = None
            while (newest := self._warming[dataset]) is not warmed:
                warmed, started = newest, self.clock()
                await self._warm(dataset, newest)
                took = self.clock() - started
                await asyncio.sleep(min(PAUSE_FACTOR * took, MAX_PAUSE))
        finally:
            del self._warming[dataset]

    async def _warm(self, dataset: str, state: DatasetVersion) -> None:
        outdated = [
            entry
            for entry in self._entries.values()
            if entry.request.dataset == dataset
            and entry.hits
            and not same_generation(entry.state, state)
        ]
        outdated.sort(key=lambda entry: entry.hits, reverse=True)
        limit = asyncio.Semaphore(WARM_CONCURRENCY)

        async def reload(entry: CacheEntry) -> None:
            async with limit:
                if self._warming[dataset] is not state:
                    # a newer version has been published meanwhile
                    return
                try:
                    await self.load(entry.request, state)
                except PenstockError:
                    # the next client that requests it gets the error
                    return
            self.stats.warmed += 1

        await asyncio.gather(*(reload(entry) for entry in outdated[:MAX_WARMED]))

    def _start_load(
        self, request: CacheableRead, state: DatasetVersion, at_least: int
    ) -> Flight[CacheEntry]:
        """Start to load a response, or return a load in flight that is new enough."""
        min_seq = request.min_change_seq(state, at_least)
        return self._loads.start(
            partial(self._load, request, state, min_seq),
            key=(request.key, state.history, state.published),
            version=state.change_seq,
            min_version=min_seq,
        )

    async def _load(
        self, request: CacheableRead, state: DatasetVersion, min_seq: int
    ) -> CacheEntry:
        started = self.clock()
        loaded = await self.lanes.run(
            request.lane,
            partial(self._fetch, request, state, min_seq),
            dataset=request.dataset,
        )
        shared = loaded.entry
        result = (
            None
            if shared is None
            else ReadResult(body=shared.body, headers=shared.headers)
        )
        entry = CacheEntry(
            request=request,
            state=state,
            change_seq=state.change_seq if shared is None else shared.change[0],
            etag=b"" if shared is None else shared.etag,
            result=result,
            not_found=loaded.not_found,
            expires=started + lifetime(min(loaded.seconds, MAX_LOCAL_TTL), self.roll()),
            cost=self.clock() - started,
            size=entry_size(request, result),
        )
        if loaded.positions:
            self.track_positions(request.dataset, loaded.positions)
        self._store(entry)
        return entry

    def _fetch(
        self, request: CacheableRead, state: DatasetVersion, min_seq: int
    ) -> LoadResult:
        """Read from the shared cache, then from the database; runs in a thread."""
        key = shared_key(request, state)
        found = self._find_shared(key, request.dataset, state)
        if found is not None and found[0].change[0] >= min_seq:
            self.stats.shared_hits += 1
            entry, seconds = found
            return LoadResult(entry=entry, seconds=seconds, positions=entry.positions)
        self.stats.misses += 1
        not_found, result = None, None
        with observing() as observed:
            try:
                result = request.read()
            except NoSuchRecord as error:
                # not the error itself, which references its whole traceback
                not_found = str(error)
        # versions that were committed during the read
        positions = {version.position for version in observed} - {state.position}
        if result is None:
            seconds = min(request.max_age, MAX_NOT_FOUND_TTL)
            return LoadResult(not_found=not_found, seconds=seconds, positions=positions)
        etag = (
            etag_of(request.key, request.edition, state, positions)
            if result.etag is None
            else record_tag(result.etag, request.edition).encode()
        )
        entry = SharedEntry(
            (state.change_seq, state.change_tag),
            [(position.seq, position.tag or 0) for position in positions],
            etag,
            result.body,
            list(result.headers),
        )
        is_shared = request.max_age > 0 and len(result.body) <= MAX_ENTRY_SIZE
        if self.shared is not None and is_shared:
            seconds = lifetime(request.max_age, self.roll())
            self.shared.store(key, encode(entry), seconds=seconds)
        return LoadResult(entry=entry, seconds=request.max_age, positions=positions)

    def _find_shared(
        self, key: str, dataset: str, state: DatasetVersion
    ) -> tuple[SharedEntry, float] | None:
        found = None if self.shared is None else self.shared.find(key)
        if found is None:
            return None
        try:
            entry = decode(found[0])
        except msgspec.DecodeError:
            # not written by this version
            return None
        unverified = entry.positions - {state.position}
        return (
            None
            if unverified and not self.knows(dataset, unverified)
            else (entry, found[1])
        )

    def _store(self, entry: CacheEntry) -> None:
        existing = self._entries.get(entry.request.key)
        if entry.size > MAX_ENTRY_SIZE:
            return
        if existing is not None:
            if is_newer(existing, entry) and existing.expires > self.clock():
                # a later load was faster
                return
            del self._entries[entry.request.key]
            self.cached_bytes -= existing.size
            # popularity is inherited, but decays
            entry.hits = existing.hits // 2
        self._entries[entry.request.key] = entry
        self.cached_bytes += entry.size
        while self.cached_bytes > self.max_bytes:
            _, oldest = self._entries.popitem(last=False)
            self.cached_bytes -= oldest.size
            self.stats.dropped += 1


def shared_key(request: CacheableRead, state: DatasetVersion) -> str:
    digest = blake2b(request.key, digest_size=16).hexdigest()
    number, tag = state.published
    return f"{request.dataset}:{request.edition}:{number:x}-{tag:x}:{digest}"


def entry_size(request: CacheableRead, result: ReadResult | None) -> int:
    """Return about how many bytes of memory an entry takes."""
    size = ENTRY_OVERHEAD + len(request.key) + request.size
    if result is None:
        return size
    # twice: as pairs, and in the prebuilt head
    headers = sum(
        2 * (len(name) + len(value)) + PAIR_OVERHEAD for name, value in result.headers
    )
    return size + len(result.body) + headers


def same_generation(one: DatasetVersion, other: DatasetVersion) -> bool:
    """Return whether two versions have the same generation in the same history."""
    return (one.history, one.published) == (other.history, other.published)


def is_newer(one: CacheEntry, other: CacheEntry) -> bool:
    return recency(one) > recency(other)


def recency(entry: CacheEntry) -> tuple[int, int, int]:
    return entry.state.history, entry.state.generation, entry.change_seq


def etag_of(
    key: bytes,
    edition: str,
    state: DatasetVersion,
    observed: Collection[HistoryPosition] = (),
) -> bytes:
    """Return the ETag of a response for one version of a dataset and its declaration.

    If the dataset changed during the read, the ETag is that of no version: should the
    database be restored from a backup, the response may contain what was lost.
    """
    digest = blake2b(key, digest_size=8, key=edition.encode()).hexdigest()
    parts = [f"{state.change_seq:x}-{state.change_tag:x}"]
    parts += sorted(f"{position.seq:x}-{position.tag or 0:x}" for position in observed)
    number, tag = state.published
    return f'W/"{"..".join(parts)}.{number:x}-{tag:x}.{digest}"'.encode()


def record_tag(version: str, edition: str) -> str:
    """Return the ETag of a version of a record.

    What follows the first dot is the representation, and no part of the version.
    """
    return f'"{version}.{edition}"'


def etag_matches(etag: bytes, if_none_match: bytes | None) -> bool:
    """Return whether `If-None-Match` names this ETag."""
    if if_none_match is None:
        return False
    tags = {tag.strip() for tag in if_none_match.split(b",")}
    # for reads, weak comparison is enough (RFC 9110)
    bare = etag.removeprefix(b"W/")
    return b"*" in tags or etag in tags or bare in tags or b"W/" + bare in tags
