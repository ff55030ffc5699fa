"""What is in a file, told by digests: of all of it, and of any part.

A file is hashed in grains that begin at fixed places, so one pass over it is enough to
know the digest of every part that it is cut into, wherever the cuts turn out to be.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from penstock.adapters.csv.stream import translated

GRAIN = 1024 * 1024
# of a longer part so many are looked at, evenly spread: a look takes a second at most
MOST_GRAINS = 256
GRAIN_DIGEST = FILE_DIGEST = 16
PART_DIGEST = 8


@dataclass(frozen=True, slots=True)
class Content:
    """The digests of the grains of a file."""

    size: int
    grains: tuple[bytes, ...]

    @property
    def fingerprint(self) -> str:
        return digest_of_all(self.grains, FILE_DIGEST)

    def digest(self, start: int, end: int | None) -> str:
        """Return the digest of a part; without an end, of the whole file."""
        chosen = grains_of(start, end, size=self.size)
        return digest_of_all((self.grains[at] for at in chosen), PART_DIGEST)


class Hashing:
    """Hashes a file as it is read from its beginning to its end."""

    def __init__(self) -> None:
        self.size = 0
        self._grains: list[bytes] = []
        self._open = blake3()

    def add(self, block: bytes) -> None:
        rest = memoryview(block)
        while rest:
            part = rest[: GRAIN - self.size % GRAIN]
            self._open.update(part)
            self.size += len(part)
            rest = rest[len(part) :]
            if self.size % GRAIN == 0:
                self._close()

    def content(self) -> Content:
        """Return the digests of what was read, which was all."""
        if self.size % GRAIN:
            self._close()
        return Content(self.size, tuple(self._grains))

    def _close(self) -> None:
        self._grains.append(self._open.digest(length=GRAIN_DIGEST))
        self._open = blake3()


def digest_again(path: Path, start: int, end: int | None, *, size: int) -> str:
    """Return the digest of a part as it is now; of a file of that size."""
    grains = []
    with translated(path), path.open("rb") as file:
        for at in grains_of(start, end, size=size):
            file.seek(at * GRAIN)
            grain = file.read(GRAIN)
            grains.append(blake3(grain).digest(length=GRAIN_DIGEST))
    return digest_of_all(grains, PART_DIGEST)


def grains_of(start: int, end: int | None, *, size: int) -> range:
    """Return the numbers of the grains by which a part is known."""
    first, last = (0, size) if end is None else (start, end)
    grains = range(first // GRAIN, -(-last // GRAIN))
    return grains[:: -(-len(grains) // MOST_GRAINS) or 1]


def digest_of_all(grains: Iterable[bytes], size: int) -> str:
    return blake3(b"".join(grains)).hexdigest(length=size)
