"""Limits of reading a file."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """Bounds in rows and bytes."""

    # of a chunk
    rows: int = 5_000
    bytes: int = 1024 * 1024
    # a longer record is a bad row
    record: int = 1024 * 1024
    # of the start of a file, from which dialect and header are read
    sample: int = 1024 * 1024
    # a compressed file that decompresses to more is refused, and so is one that expands
    # by more than this factor, beyond a harmless size
    unpacked: int = 64 * 1024**3
    expansion: int = 200
    harmless: int = 64 * 1024**2

    def cap(self, compressed_size: int) -> int:
        """Return how many bytes a compressed file of that size may decompress to."""
        return min(self.unpacked, max(self.harmless, self.expansion * compressed_size))

    def name(self, cap: int) -> str:
        """Describe the limit that set a cap."""
        if cap == self.unpacked:
            return "what a compressed file may hold"
        return f"source.max_expansion = {self.expansion} allows"


LIMITS = FileLimits()
