"""Files that came from elsewhere, kept until their import is over."""

import os
import re
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from tempfile import NamedTemporaryFile

from penstock.adapters.csv.limits import LIMITS, Limits
from penstock.adapters.csv.packed import GzipReader
from penstock.domain.source import CsvSource
from penstock.errors import (
    Misconfigured,
    Rejected,
    SourceUnavailable,
    UnpacksTooLarge,
)

# what of a foreign name may stand in ours
HARMLESS = re.compile(r"[^A-Za-z0-9._-]+")
LONGEST_NAME = 80
ALLOWED = "source.max_bytes allows"
DIGEST_BYTES = 8
# the names that we give; whatever else lies there is none of our business
OURS = re.compile(r"[0-9a-f]{16}-.+|penstock-\w+\.part")


@dataclass(frozen=True, slots=True)
class Spool:
    """A folder of received files; each is named by what is in it."""

    folder: Path
    # the most bytes of one file, also if it is packed and unpacks to more
    most: int
    # how much a packed one may grow
    limits: Limits = LIMITS

    def save(self, pieces: Iterable[bytes], *, dataset: str, name: str) -> Path:
        """Store what comes piece by piece, whole or not at all.

        The same content under the same name is the same file, however often it comes.
        """
        place = self.folder / dataset
        try:
            place.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(
                dir=place, prefix="penstock-", suffix=".part", delete=False
            ) as file:
                part = Path(file.name)
                try:
                    digest = self._write(pieces, file.fileno(), name)
                    target = place / f"{digest}-{harmless(name)}"
                    part.replace(target)
                except BaseException:
                    with suppress(OSError):
                        part.unlink()
                    raise
        except PermissionError as error:
            raise Misconfigured(f"{place} cannot be written to") from error
        except OSError as error:
            raise SourceUnavailable(
                f"{name} could not be stored in {place}: {error.strerror}"
            ) from error
        return target

    def idle(self, dataset: str, *, age: timedelta) -> list[Path]:
        """Return the files of a dataset that nobody has written to for so long."""
        try:
            found = [*(self.folder / dataset).iterdir()]
        except OSError:
            # it is not there, or not ours
            return []
        return [
            path for path in found if OURS.fullmatch(path.name) and is_old(path, age)
        ]

    def remove_idle(self, path: Path, *, age: timedelta) -> None:
        """Remove one of them, unless the same content has come again meanwhile."""
        if is_old(path, age):
            with suppress(OSError):
                path.unlink()

    def _write(self, pieces: Iterable[bytes], file: int, name: str) -> str:
        digest, size, packed = blake2b(digest_size=DIGEST_BYTES), 0, GzipReader()
        for piece in pieces:
            size += len(piece)
            if size > self.most:
                raise Rejected(f"{name} has more than {self.most:,} bytes")
            most = min(self.most, self.limits.cap(size))
            packed.add(piece, most=most)
            if packed.size > most:
                limit = self.limits.name(most) if most < self.most else ALLOWED
                raise UnpacksTooLarge(name, most=most, limit=limit)
            digest.update(piece)
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(file, rest) :]
        # a name that is there must stand for content that is there
        os.fsync(file)
        return digest.hexdigest()


def spool_of(source: CsvSource) -> Spool:
    return Spool(
        Path(source.spool).absolute(),
        source.max_bytes,
        replace(LIMITS, expansion=source.max_expansion),
    )


def is_old(path: Path, age: timedelta) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    is_file = stat.S_ISREG(found.st_mode)
    return is_file and time.time() - found.st_mtime > age.total_seconds()


def harmless(name: str) -> str:
    """Return a name that stays in its folder, whatever was given."""
    bare = HARMLESS.sub("_", Path(name.replace("\\", "/")).name).lstrip(".")
    return bare[-LONGEST_NAME:] or "file"
