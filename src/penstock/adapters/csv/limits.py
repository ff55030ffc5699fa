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
    # a packed file that grows larger is refused
    unpacked: int = 64 * 1024**3


LIMITS = Limits()
