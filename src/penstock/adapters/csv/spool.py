"""Downloaded and uploaded files, stored until their import is over."""

import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from tempfile import NamedTemporaryFile

from typing_extensions import override

from penstock.adapters.csv.gzip_reader import GzipReader
from penstock.adapters.csv.limits import LIMITS, FileLimits
from penstock.domain.dataset import Dataset
from penstock.domain.source import CsvSource
from penstock.errors import ExpandsTooLarge, Misconfigured, Rejected, SourceUnavailable
from penstock.ports.uploads import Uploads

# replaced in the name of a file that came from elsewhere
UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9._-]+")
MAX_NAME_LENGTH = 80
SIZE_LIMIT = "source.max_bytes allows"
DIGEST_BYTES = 8
# the names of spooled files; any other file in the folder is left alone
SPOOLED_NAME = re.compile(r"[0-9a-f]{16}-.+|penstock-\w+\.part")


@dataclass(frozen=True, slots=True)
class Spool:
    """A folder of received files, each named by the digest of its content."""

    folder: Path
    # the most bytes of one file, compressed and decompressed
    most: int
    # how much a compressed file may expand
    limits: FileLimits = LIMITS

    def save(self, chunks: Iterable[bytes], *, dataset: str, name: str) -> Path:
        """Store a file from its chunks, completely or not at all.

        The same content under the same name is the same file, however often it is sent.
        """
        folder = self.folder / dataset
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(
                dir=folder, prefix="penstock-", suffix=".part", delete=False
            ) as file:
                part = Path(file.name)
                try:
                    digest = self._write(chunks, file.fileno(), name)
                    target = folder / f"{digest}-{safe_file_name(name)}"
                    part.replace(target)
                except BaseException:
                    with suppress(OSError):
                        part.unlink()
                    raise
        except PermissionError as error:
            raise Misconfigured(f"{folder} cannot be written to") from error
        except OSError as error:
            raise SourceUnavailable(
                f"{name} could not be stored in {folder}: {error.strerror}"
            ) from error
        return target

    def idle(self, dataset: str, *, age: timedelta) -> list[Path]:
        """Return the files of a dataset that were not written to for that long."""
        try:
            found = [*(self.folder / dataset).iterdir()]
        except OSError:
            # it does not exist, or is not accessible
            return []
        return [
            path
            for path in found
            if SPOOLED_NAME.fullmatch(path.name) and is_older_than(path, age)
        ]

    def remove_idle(self, path: Path, *, age: timedelta) -> None:
        """Remove an idle file, unless the same content was received again meanwhile."""
        if is_older_than(path, age):
            with suppress(OSError):
                path.unlink()

    def _write(self, chunks: Iterable[bytes], file: int, name: str) -> str:
        digest, size, decompressed = blake2b(digest_size=DIGEST_BYTES), 0, GzipReader()
        for chunk in chunks:
            size += len(chunk)
            if size > self.most:
                raise Rejected(f"{name} has more than {self.most:,} bytes")
            cap = min(self.most, self.limits.cap(size))
            decompressed.add(chunk, most=cap)
            if decompressed.size > cap:
                limit = self.limits.name(cap) if cap < self.most else SIZE_LIMIT
                raise ExpandsTooLarge(name, most=cap, limit=limit)
            digest.update(chunk)
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(file, rest) :]
        # a file that has its final name must be complete on disk
        os.fsync(file)
        return digest.hexdigest()


def spool_of(source: CsvSource) -> Spool:
    return Spool(
        Path(source.spool).absolute(),
        source.max_bytes,
        replace(LIMITS, expansion=source.max_expansion),
    )


def is_older_than(path: Path, age: timedelta) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    is_file = stat.S_ISREG(status.st_mode)
    return is_file and time.time() - status.st_mtime > age.total_seconds()


def safe_file_name(name: str) -> str:
    """Return a name without path separators and special characters."""
    safe = UNSAFE_CHARACTERS.sub("_", Path(name.replace("\\", "/")).name).lstrip(".")
    return safe[-MAX_NAME_LENGTH:] or "file"


# files that clients upload are in this folder of the spool
UPLOADS_FOLDER = "uploads"
# the part of the client's file name that is kept
MAX_LABEL_LENGTH = 60


class SpooledUploads(Uploads):
    @override
    def save(self, dataset: Dataset, chunks: Iterable[bytes], *, label: str) -> str:
        source = dataset.csv
        spool = spool_of(source)
        # random, so that no two imports share a file that one of them may remove
        name = f"{secrets.token_hex(8)}-{safe_file_name(label)[-MAX_LABEL_LENGTH:]}"
        saved = spool.save(
            chunks, dataset=f"{dataset.name}/{UPLOADS_FOLDER}", name=name
        )
        folder = Path(source.folder).absolute()
        # the folder may have another path on other machines
        is_below = saved.is_relative_to(folder)
        return str(saved.relative_to(folder) if is_below else saved)

    @override
    def remove(self, dataset: Dataset, file: str) -> None:
        source = dataset.csv
        path = Path(source.folder, file).absolute()
        if path.parent == Path(source.spool, dataset.name, UPLOADS_FOLDER).absolute():
            path.unlink(missing_ok=True)

    @override
    def remove_all(self, dataset: str, *, spool: str) -> int:
        files = Spool(Path(spool).absolute(), 0)
        removed = 0
        for folder in (f"{dataset}/{UPLOADS_FOLDER}", dataset):
            for path in files.idle(folder, age=timedelta()):
                files.remove_idle(path, age=timedelta())
                removed += 1
            with suppress(OSError):
                # it stays if it contains other files
                (files.folder / folder).rmdir()
        return removed

    @override
    def remove_idle(
        self,
        dataset: Dataset,
        *,
        age: timedelta,
        needed: Callable[[], Iterable[str]],
    ) -> None:
        source = dataset.csv
        spool = spool_of(source)
        needed_names: set[str] | None = None
        for folder in (dataset.name, f"{dataset.name}/{UPLOADS_FOLDER}"):
            for path in spool.idle(folder, age=age):
                # by file name: the spool may have another path on other machines
                if needed_names is None:
                    needed_names = {Path(name).name for name in needed()}
                if path.name not in needed_names:
                    spool.remove_idle(path, age=age)
