"""A look at the beginning of a file, before it is imported."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.domain.dataset import Dataset
from penstock.domain.pages import Page

# bytes that are read of a file; whoever has one byte more knows that there are more
PREVIEW_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStart:
    """The beginning of a file, as an import reads it."""

    encoding: str
    delimiter: str
    is_compressed: bool
    # whether there is nothing after the bytes that were read
    is_whole: bool
    # the header, or the declared names of a file without one
    names: tuple[str, ...]
    # the cells of its first rows, whether they fit the header or not
    rows: Sequence[Sequence[str]]
    # why an import would refuse the file
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    # the rows to map; none if there are problems
    pages: Sequence[Page] = ()
    # whether the pages have all rows of the file
    has_all_rows: bool = False


class FilePreviews(Protocol):
    """Reads the beginning of a file that is not stored anywhere."""

    @abstractmethod
    def read(self, dataset: Dataset, start: bytes, *, name: str) -> FileStart:
        """Read the first `PREVIEW_BYTES` of a file, and one more if there are more.

        Nothing is stored. Raises `Rejected` or `Misconfigured` if no row of the file
        can be read.
        """
        ...
