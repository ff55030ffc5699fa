"""How the rows of one imported file are written, so that others can be added."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Protocol

from penstock.domain.dataset import Dataset
from penstock.domain.sharding.parts import Slice


class FileFormat(Protocol):
    """The header, delimiter, quote and encoding of one file."""

    @property
    @abstractmethod
    def head(self) -> bytes:
        """The bytes of the file before its first row."""
        ...

    @abstractmethod
    def write_row(self, values: Mapping[str, str]) -> bytes:
        """Return a row with these values by column name; raises `KeyError`."""
        ...

    @abstractmethod
    def end_row(self, raw: bytes) -> bytes:
        """Return the bytes of a row of the file, with an end of line."""
        ...


class FileFormats(Protocol):
    """Reads how imported files are written."""

    @abstractmethod
    def read(self, dataset: Dataset, part: Slice) -> FileFormat:
        """Read the start of the file that a slice is a part of.

        Raises `Misconfigured`, `SourceUnavailable` or `Rejected` if it no longer exists
        or is another file now.
        """
        ...
