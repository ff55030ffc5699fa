"""The bytes of a file, unpacked where it is packed, from one place to another."""

import gzip
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.adapters.csv.limits import LIMITS, Limits
from penstock.domain.file_formats import LONGEST_MAGIC, describe_format
from penstock.errors import Misconfigured, Rejected, SourceUnavailable, UnpacksTooLarge
from penstock.ports import StillHere

GZIP = b"\x1f\x8b\x08"
SKIPPED = 1024 * 1024


class Stream:
    """An open file; of a packed one, places are those in what it unpacks to."""

    def __init__(
        self,
        path: Path,
        *,
        start: int = 0,
        end: int | None = None,
        limits: Limits = LIMITS,
        still_here: StillHere = lambda: None,
    ) -> None:
        self._path = path
        self._start = start
        self._end = end
        self._limits = limits
        self._cap = limits.unpacked
        # called for every block: to pass by all that was read before may take an hour
        self._still_here = still_here
        self._closing = ExitStack()
        self._at = 0
        self.is_packed = False

    def __enter__(self) -> Self:
        check_regular(self._path)
        with translated(self._path), ExitStack() as opening:
            self._file = file = opening.enter_context(self._path.open("rb"))
            beginning = file.peek(LONGEST_MAGIC)
            other = describe_format(beginning, self._path.name)
            if other is not None:
                raise Rejected(other)
            self.is_packed = beginning.startswith(GZIP)
            self._take: Callable[[int], bytes] = file.read
            if self.is_packed:
                self._cap = self._limits.cap(self._path.stat().st_size)
                self._take = opening.enter_context(gzip.open(file)).read
                self._skip(self._start)
            else:
                self._at = file.seek(self._start)
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
        """How much of the file itself is read, packed as it is."""
        return self._file.tell()

    def read(self, size: int) -> bytes:
        """Return so many bytes; fewer only at the end."""
        if self._end is not None:
            size = min(size, self._end - self._at)
        with translated(self._path):
            return self._read(size)

    def _read(self, size: int) -> bytes:
        parts = []
        while size > 0:
            self._still_here()
            part = self._take(size)
            if not part:
                break
            parts.append(part)
            size -= len(part)
            self._at += len(part)
            if self.is_packed and self._at > self._cap:
                raise UnpacksTooLarge(
                    self._path.name, most=self._cap, limit=self._limits.name(self._cap)
                )
        if size > 0 and self._end is not None:
            raise Rejected(
                f"{self._path.name} has only {self._at} bytes left of {self._end}: "
                "it was changed after it was cut"
            )
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _skip(self, size: int) -> None:
        while size > 0:
            passed = len(self._read(min(size, SKIPPED)))
            if not passed:
                raise Rejected(
                    f"{self._path.name} unpacks to less than {self._start} bytes: "
                    "it was changed after it was begun"
                )
            size -= passed


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise what an operator can act on, where a file cannot be read."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Rejected(f"{path.name} is not whole gzip: {error}") from error
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror}") from error
    except OSError as error:
        raise SourceUnavailable(f"{path} cannot be read: {error.strerror}") from error


def check_regular(path: Path) -> None:
    """Refuse what could block a reader for ever, or never ends."""
    with translated(path):
        mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise Misconfigured(f"{path} is not a regular file")
