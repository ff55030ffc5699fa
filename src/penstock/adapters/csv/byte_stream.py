"""Read a range of bytes of a file, decompressed if it is gzip."""

import gzip
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.adapters.csv.limits import LIMITS, FileLimits
from penstock.domain.formats import MAX_MAGIC_BYTES, describe_format
from penstock.errors import ExpandsTooLarge, Misconfigured, Rejected, SourceUnavailable
from penstock.ports import KeepAlive

GZIP_MAGIC = b"\x1f\x8b\x08"
SKIP_BLOCK_SIZE = 1024 * 1024


class ByteStream:
    """An open file; offsets in a compressed file are offsets after decompression."""

    def __init__(
        self,
        path: Path,
        *,
        start: int = 0,
        end: int | None = None,
        limits: FileLimits = LIMITS,
        still_here: KeepAlive = lambda: None,
    ) -> None:
        self._path = path
        self._start = start
        self._end = end
        self._limits = limits
        self._cap = limits.unpacked
        # called for every block: skipping what was read before may take an hour
        self._still_here = still_here
        self._closing = ExitStack()
        self._position = 0
        self.is_compressed = False

    def __enter__(self) -> Self:
        check_regular_file(self._path)
        with translate_errors(self._path), ExitStack() as opening:
            self._file = file = opening.enter_context(self._path.open("rb"))
            magic = file.peek(MAX_MAGIC_BYTES)
            other_format = describe_format(magic, self._path.name)
            if other_format is not None:
                raise Rejected(other_format)
            self.is_compressed = magic.startswith(GZIP_MAGIC)
            self._read_raw: Callable[[int], bytes] = file.read
            if self.is_compressed:
                self._cap = self._limits.cap(self._path.stat().st_size)
                self._read_raw = opening.enter_context(gzip.open(file)).read
                self._skip(self._start)
            else:
                self._position = file.seek(self._start)
            self._closing = opening.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing.close()

    @property
    def passed(self) -> int:
        """The number of bytes read from the file on disk, before decompression."""
        return self._file.tell()

    def read(self, size: int) -> bytes:
        """Return `size` bytes; fewer only at the end."""
        if self._end is not None:
            size = min(size, self._end - self._position)
        with translate_errors(self._path):
            return self._read(size)

    def _read(self, size: int) -> bytes:
        parts = []
        while size > 0:
            self._still_here()
            part = self._read_raw(size)
            if not part:
                break
            parts.append(part)
            size -= len(part)
            self._position += len(part)
            if self.is_compressed and self._position > self._cap:
                raise ExpandsTooLarge(
                    self._path.name, most=self._cap, limit=self._limits.name(self._cap)
                )
        if size > 0 and self._end is not None:
            raise Rejected(
                f"{self._path.name} has only {self._position} of {self._end} bytes: "
                "it was changed after it was split"
            )
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _skip(self, size: int) -> None:
        while size > 0:
            skipped = len(self._read(min(size, SKIP_BLOCK_SIZE)))
            if not skipped:
                raise Rejected(
                    f"{self._path.name} decompresses to less than {self._start} bytes: "
                    "it was changed after it was first read"
                )
            size -= skipped


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Translate errors of reading a file into errors that an operator can act on."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Rejected(f"{path.name} is not complete gzip: {error}") from error
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror}") from error
    except OSError as error:
        raise SourceUnavailable(f"{path} cannot be read: {error.strerror}") from error


def check_regular_file(path: Path) -> None:
    """Refuse devices and pipes, which could block a reader or never end."""
    with translate_errors(path):
        mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise Misconfigured(f"{path} is not a regular file")
