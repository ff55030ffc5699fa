"""Scan the files of a dataset before an import: find, check and split them."""

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from glob import escape, glob, has_magic
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from penstock.adapters.csv.byte_stream import translate_errors
from penstock.adapters.csv.header import FileHeader, read_header
from penstock.adapters.csv.header_check import ColumnCheck, check_columns
from penstock.adapters.csv.source import declared_dialect
from penstock.adapters.csv.splitter import ByteRange, split_file
from penstock.adapters.csv.spool import spool_of
from penstock.domain.dataset import Dataset
from penstock.domain.events import FileSurveyed
from penstock.domain.sharding.axes import FileAxis
from penstock.domain.sharding.parts import Slice
from penstock.domain.source import CsvSource, Unsized, is_url, refuse_undecodable_name
from penstock.errors import FilesMissing, Misconfigured, PenstockError
from penstock.ports import Emit, KeepAlive, NoScannedSlices, ScannedSlices

# the most missing files that are named
MAX_NAMED_FILES = 10


class ScannedFile(NamedTuple):
    """A file whose header was read."""

    name: str
    head: FileHeader
    columns: ColumnCheck
    # other names of the same file
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileScanner:
    """Finds the files, checks their headers against the fields, and splits them."""

    emit: Emit

    def __call__(
        self,
        dataset: Dataset,
        still_here: KeepAlive = lambda: None,
        scanned_slices: ScannedSlices | None = None,
    ) -> FileAxis:
        source = dataset.csv
        files = {
            **find_files(dataset),
            **dict.fromkeys(fetch_files(dataset, source, still_here), ()),
        }
        scanned = scan_files(dataset, source, files, still_here)
        before = scanned_slices or NoScannedSlices()
        stored = before.stored(
            {file.name: size_of(Path(source.folder, file.name)) for file in scanned}
        )
        slices: list[Slice] = []
        for number, file in enumerate(scanned):
            if number not in stored:
                found = self._split(dataset, source, number, file, still_here)
                before.add(found)
                slices += found
            else:
                slices += stored[number]
        if all(part.start == part.end for part in slices):
            names = ", ".join(file.name for file in scanned)
            raise Misconfigured(
                f"datasets.{dataset.name}.source.files: {names} "
                f"{'has' if len(scanned) == 1 else 'have'} a header and no rows"
            )
        return FileAxis(slices=tuple(slices))

    def first(self, dataset: Dataset) -> FileAxis:
        """Return the start of the first file, without scanning all files.

        A file is downloaded only if there is no local one.
        """
        source, never = dataset.csv, lambda: None
        files = find_files(dataset)
        if not files:
            first_address = replace(source, files=tuple(urls_in(source)[:1]))
            files = dict.fromkeys(fetch_files(dataset, first_address, never), ())
        first = scan_files(dataset, source, files, never)[0]
        part = Slice(
            number=0,
            file=first.name,
            size=size_of(Path(source.folder, first.name)),
            fingerprint="",
            start=first.head.start,
            end=None,
            line=first.head.line,
        )
        return FileAxis(slices=(part,))

    def _split(
        self,
        dataset: Dataset,
        source: CsvSource,
        number: int,
        file: ScannedFile,
        still_here: KeepAlive,
    ) -> list[Slice]:
        split = split_file(
            Path(source.folder, file.name),
            file.head,
            size=source.shard,
            still_here=still_here,
        )
        warnings = [*file.head.warnings, *file.columns.warnings]
        if file.aliases:
            others = ", ".join(file.aliases)
            warnings.append(f"is also named by {others}, and is read once")
        if split.unclosed is not None:
            warnings.append(
                f"the quote opened in line {split.unclosed} is never closed, so the "
                "file is one shard"
            )
        content = split.content
        empty = ByteRange(start=content.size, end=content.size, line=file.head.line)
        slices = [
            Slice(
                number=number,
                file=file.name,
                size=content.size,
                fingerprint=content.fingerprint,
                start=part.start,
                end=part.end,
                line=part.line,
                digest=content.digest(part.start, part.end),
            )
            # a file without rows has a shard, too, so that the ledger knows all files
            for part in split.ranges or [empty]
        ]
        self.emit(
            FileSurveyed(
                dataset=dataset.name,
                file=file.name,
                size=content.size,
                shards=len(slices),
                warnings=tuple(warnings),
            )
        )
        return slices


def size_of(path: Path) -> int:
    with translate_errors(path):
        return path.stat().st_size


def scan_files(
    dataset: Dataset,
    source: CsvSource,
    files: Mapping[str, tuple[str, ...]],
    still_here: KeepAlive,
) -> list[ScannedFile]:
    """Return the files with their headers, or raise with all of their problems."""
    expected = [".".join(path) for path in dataset.paths]
    scanned: list[ScannedFile] = []
    problems: list[str] = []
    for file, aliases in files.items():
        still_here()
        try:
            head = read_header(Path(source.folder, file), declared_dialect(source))
        except PenstockError as error:
            problems.append(f"{file}: {error}")
            continue
        columns = check_columns(head.names, expected, delimiter=head.dialect.delimiter)
        found = [*columns.problems, *filter(None, [head.problem])]
        problems.extend(f"{file}: {problem}" for problem in found)
        scanned.append(ScannedFile(file, head, columns, aliases))
    if problems:
        raise Misconfigured(*problems)
    return scanned


def find_files(dataset: Dataset) -> dict[str, tuple[str, ...]]:
    """Return the local files in order, each with the other names it was found by.

    A named file must exist, and a pattern must match one: the rows of a missing file
    would look as if they were deleted.
    """
    source = dataset.csv
    named: set[str] = set()
    problems: list[str] = []
    for pattern in source.files:
        if is_url(pattern):
            continue
        if not has_magic(pattern):
            named.add(pattern)
            continue
        found = glob(pattern, root_dir=source.folder, recursive=True)  # noqa: PTH207 (patterns may be absolute)
        matched = [
            name
            for name in found
            if is_regular_or_unreadable(Path(source.folder, name))
        ]
        named.update(matched)
        if not matched:
            folder = Path(source.folder).absolute()
            hint = f"; {', '.join(found[:3])} is not a regular file" if found else ""
            if Path(folder, pattern).is_file():
                hint = f"; write {escape(pattern)} for the file of exactly that name"
            problems.append(f"no file matches {pattern} in {folder}{hint}")
    for name in named:
        refuse_undecodable_name(name)
    by_real_path: dict[str, list[str]] = {}
    for name in sorted(named, key=lambda name: (len(name), name)):
        path = Path(source.folder, name)
        problem = explain_missing(path)
        if problem is not None:
            problems.append(f"{name} {problem}")
        by_real_path.setdefault(os.path.realpath(path), []).append(name)
    if problems:
        more = len(problems) - MAX_NAMED_FILES
        raise FilesMissing(
            *(
                f"datasets.{dataset.name}.source.files: {problem}"
                for problem in problems[:MAX_NAMED_FILES]
            ),
            *([f"and {more} more are missing"] if more > 0 else []),
        )
    files = {name: tuple(aliases) for name, *aliases in by_real_path.values()}
    return {name: files[name] for name in sorted(files)}


def is_regular_or_unreadable(path: Path) -> bool:
    """Return whether a match of a pattern is a regular file, or cannot be read."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        # a dangling link, or no permission: reported as a problem later
        return True


def explain_missing(path: Path) -> str | None:
    """Return why a named file cannot be read; None if it is a regular file."""
    try:
        if path.is_file():
            return None
        if path.is_dir():
            return f"is a folder; name the files in it, such as {path.name}/*.csv"
        if path.exists():
            return "is not a regular file"
        if path.is_symlink():
            return f"is a link to {path.readlink()}, which does not exist"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return f"does not exist in {path.parent.absolute()}"


def fetch_files(
    dataset: Dataset, source: CsvSource, still_here: KeepAlive
) -> list[str]:
    """Download the files given by URL into the spool; return their paths."""
    urls = urls_in(source)
    if not urls:
        return []
    # imported where it is used: most files are local
    from penstock.adapters.csv.download import Download

    spool = spool_of(source)
    download = Download(
        longest=source.download,
        may_be_private=source.private,
        may_be_unsized=source.unsized is Unsized.ACCEPT,
        still_here=still_here,
    )

    def chunks(url: str) -> Iterator[bytes]:
        for chunk in download(url):
            still_here()
            yield chunk

    return [
        str(spool.save(chunks(url), dataset=dataset.name, name=urlsplit(url).path))
        for url in urls
    ]


def urls_in(source: CsvSource) -> list[str]:
    return [*filter(is_url, source.files)]
