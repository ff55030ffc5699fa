"""Snapshots of imports, shared by all clients that follow one."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, TypeAlias

import msgspec

from penstock.domain.jobs import ImportId, ImportStatus
from penstock.entrypoints.api.concurrency.single_flight import SingleFlight

# reads an import as a response document
ReadImport: TypeAlias = Callable[[ImportId], Awaitable[Mapping[str, Any]]]

encode = msgspec.json.Encoder().encode

# seconds between two reads of an import, however many clients follow it
READ_INTERVAL = 1.0
# the interval is at least so many times what the last read took
READ_COST_FACTOR = 20
MAX_SNAPSHOTS = 500
OPEN = frozenset({ImportStatus.PLANNING.value, ImportStatus.RUNNING.value})


@dataclass(frozen=True, slots=True)
class ImportSnapshot:
    """An import at one moment; `mark` changes with everything clients should see."""

    document: Mapping[str, Any]
    mark: str

    @property
    def is_open(self) -> bool:
        return self.document["status"] in OPEN

    def event(self) -> bytes:
        """Format the snapshot as a server-sent event."""
        kind = "progress" if self.is_open else "end"
        data = encode(self.document).decode()
        return f"id: {self.mark}\nevent: {kind}\ndata: {data}\n\n".encode()


@dataclass(slots=True)
class ImportSnapshots:
    interval: float = READ_INTERVAL
    # the last snapshots, and when each import may be read again
    _cached: dict[ImportId, tuple[ImportSnapshot, float]] = field(default_factory=dict)
    _reads: SingleFlight[ImportSnapshot] = field(default_factory=SingleFlight)

    async def get(self, import_id: ImportId, read: ReadImport) -> ImportSnapshot:
        """Return the cached snapshot, or read a new one once it is due."""
        cached = self._cached.get(import_id)
        if cached is not None and time.monotonic() < cached[1]:
            return cached[0]
        return await self._reads.run(
            partial(self._read, import_id, read), key=import_id
        )

    async def _read(self, import_id: ImportId, read: ReadImport) -> ImportSnapshot:
        started = time.monotonic()
        document = await read(import_id)
        # counting many jobs is expensive for the database
        took = time.monotonic() - started
        due = started + max(self.interval, READ_COST_FACTOR * took)
        snapshot = ImportSnapshot(document, mark_of(document))
        # the least recently read first
        self._cached.pop(import_id, None)
        self._cached[import_id] = snapshot, due
        if len(self._cached) > MAX_SNAPSHOTS:
            del self._cached[next(iter(self._cached))]
        return snapshot


def mark_of(document: Mapping[str, Any]) -> str:
    """Return a digest of what clients should see: rates and times left are no part."""
    progress, waiting = document["progress"], document["waiting"]
    significant = {
        **document,
        "progress": [progress["done"], progress["total"]],
        # without the time of resumption, which differs a little in every read
        "waiting": waiting and [waiting["reason"], waiting["detail"]],
    }
    return blake2b(encode(significant), digest_size=8).hexdigest()
