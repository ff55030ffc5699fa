"""How much of a file is held at once, and what is too much."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds in rows and bytes."""

    # of a chunk
    rows: int = 5_000
    bytes: int = 1024 * 1024
    # a record that is longer is a bad row
    record: int = 1024 * 1024
    # of the beginning of a file, which tells how it is written; the header is in it
    sample: int = 1024 * 1024
    # a packed file that grows larger is refused, and so is one that grows by more than
    # this factor, beyond a size that does no harm
    unpacked: int = 64 * 1024**3
    expansion: int = 200
    harmless: int = 64 * 1024**2

    def cap(self, packed: int) -> int:
        """Return the most bytes that a packed file of some size may hold."""
        return min(self.unpacked, max(self.harmless, self.expansion * packed))

    def name(self, cap: int) -> str:
        """Name what set such a cap."""
        if cap == self.unpacked:
            return "what a packed file may hold"
        return f"source.max_expansion = {self.expansion} allows"


LIMITS = Limits()
