"""Import rate-limited APIs completely, once, with many workers, and prove it."""

__version__ = "0.1.0"
