"""Digests of a whole file and of any part of it.

A file is hashed in grains at fixed offsets, so one pass is enough to know the digest of
every part that it is split into, wherever the split points turn out to be.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from penstock.adapters.csv.byte_stream import translate_errors

GRAIN = 1024 * 1024
# of a longer part, this many evenly spread grains are hashed: that takes a second at
# most
MAX_GRAINS_READ = 256
GRAIN_DIGEST_BYTES = FILE_DIGEST_BYTES = 16
PART_DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True)
class ContentHash:
    """The digests of the grains of a file."""

    size: int
    grains: tuple[bytes, ...]

    @property
    def fingerprint(self) -> str:
        return combine_digests(self.grains, FILE_DIGEST_BYTES)

    def digest(self, start: int, end: int | None) -> str:
        """Return the digest of a part; without an end, of the whole file."""
        selected = select_grains(start, end, size=self.size)
        return combine_digests((self.grains[at] for at in selected), PART_DIGEST_BYTES)


class HashingStream:
    """Hashes a file as it is read from its beginning to its end."""

    def __init__(self) -> None:
        self.size = 0
        self._grains: list[bytes] = []
        self._hasher = blake3()

    def add(self, block: bytes) -> None:
        rest = memoryview(block)
        while rest:
            part = rest[: GRAIN - self.size % GRAIN]
            self._hasher.update(part)
            self.size += len(part)
            rest = rest[len(part) :]
            if self.size % GRAIN == 0:
                self._finish_grain()

    def content(self) -> ContentHash:
        """Return the digests, once the whole file is read."""
        if self.size % GRAIN:
            self._finish_grain()
        return ContentHash(self.size, tuple(self._grains))

    def _finish_grain(self) -> None:
        self._grains.append(self._hasher.digest(length=GRAIN_DIGEST_BYTES))
        self._hasher = blake3()


def digest_part(path: Path, start: int, end: int | None, *, size: int) -> str:
    """Hash a part of a file of that size as it is now."""
    grains = []
    with translate_errors(path), path.open("rb") as file:
        for at in select_grains(start, end, size=size):
            file.seek(at * GRAIN)
            grain = file.read(GRAIN)
            grains.append(blake3(grain).digest(length=GRAIN_DIGEST_BYTES))
    return combine_digests(grains, PART_DIGEST_BYTES)


def select_grains(start: int, end: int | None, *, size: int) -> range:
    """Return the numbers of the grains that identify a part."""
    first, last = (0, size) if end is None else (start, end)
    grains = range(first // GRAIN, -(-last // GRAIN))
    return grains[:: -(-len(grains) // MAX_GRAINS_READ) or 1]


def combine_digests(grains: Iterable[bytes], size: int) -> str:
    return blake3(b"".join(grains)).hexdigest(length=size)
