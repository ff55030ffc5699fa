"""Look at the files of a dataset before a row is read: are they there, do they fit."""

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from glob import escape, glob, has_magic
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from penstock.adapters.csv.columns import ColumnCheck, check_columns
from penstock.adapters.csv.cut import Range, cut
from penstock.adapters.csv.head import Head, read_head
from penstock.adapters.csv.source import declared_of
from penstock.adapters.csv.spool import spool_of
from penstock.adapters.csv.stream import translated
from penstock.domain.axes import FileAxis
from penstock.domain.dataset import Dataset
from penstock.domain.events import FileSurveyed
from penstock.domain.parts import Slice
from penstock.domain.source import CsvSource, Unsized, is_address, refuse_odd_name
from penstock.errors import Misconfigured, PenstockError
from penstock.ports import Emit, StillHere

# so many of the files that are missing are named
MAX_NAMED = 10


class Seen(NamedTuple):
    """A file that was looked at."""

    name: str
    head: Head
    columns: ColumnCheck
    # by which it was found as well
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileSurvey:
    """Finds the files, holds their headers against the fields, and cuts them."""

    emit: Emit

    def __call__(
        self, dataset: Dataset, still_here: StillHere = lambda: None
    ) -> FileAxis:
        source = dataset.csv
        files = {
            **find_files(dataset),
            **dict.fromkeys(fetch_files(dataset, source, still_here), ()),
        }
        seen = look_at_all(dataset, source, files, still_here)
        slices = tuple(
            part
            for number, file in enumerate(seen)
            for part in self._cut(dataset, source, number, file, still_here)
        )
        if all(part.start == part.end for part in slices):
            names = ", ".join(file.name for file in seen)
            raise Misconfigured(
                f"datasets.{dataset.name}.source.files: {names} "
                f"{'has' if len(seen) == 1 else 'have'} a header and no rows"
            )
        return FileAxis(slices=slices)

    def first(self, dataset: Dataset) -> FileAxis:
        """Return the beginning of the first file, without reading all there is.

        Only if no file lies at hand is one fetched.
        """
        source, never = dataset.csv, lambda: None
        files = find_files(dataset)
        if not files:
            some = replace(source, files=tuple(addresses_in(source)[:1]))
            files = dict.fromkeys(fetch_files(dataset, some, never), ())
        first = look_at_all(dataset, source, files, never)[0]
        path = Path(source.folder, first.name)
        with translated(path):
            size = path.stat().st_size
        part = Slice(
            number=0,
            file=first.name,
            size=size,
            fingerprint="",
            start=first.head.start,
            end=None,
            line=first.head.line,
        )
        return FileAxis(slices=(part,))

    def _cut(
        self,
        dataset: Dataset,
        source: CsvSource,
        number: int,
        file: Seen,
        still_here: StillHere,
    ) -> list[Slice]:
        cuts = cut(
            Path(source.folder, file.name),
            file.head,
            size=source.shard,
            still_here=still_here,
        )
        remarks = [*file.head.remarks, *file.columns.remarks]
        if file.aliases:
            others = ", ".join(file.aliases)
            remarks.append(f"is named by {others} as well, and is read once")
        if cuts.unclosed is not None:
            remarks.append(
                f"the quote opened in line {cuts.unclosed} is never closed, so the "
                "file is one shard"
            )
        content = cuts.content
        nothing = Range(start=content.size, end=content.size, line=file.head.line)
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
            # one without rows has a shard, too, so that the ledger knows all files
            for part in cuts.ranges or [nothing]
        ]
        self.emit(
            FileSurveyed(
                dataset=dataset.name,
                file=file.name,
                size=content.size,
                shards=len(slices),
                remarks=tuple(remarks),
            )
        )
        return slices


def look_at_all(
    dataset: Dataset,
    source: CsvSource,
    files: Mapping[str, tuple[str, ...]],
    still_here: StillHere,
) -> list[Seen]:
    """Return the files with their heads, or raise with all that is wrong with them."""
    wanted = [".".join(path) for path in dataset.paths]
    seen: list[Seen] = []
    wrong: list[str] = []
    for file, aliases in files.items():
        still_here()
        try:
            head = read_head(Path(source.folder, file), declared_of(source))
        except PenstockError as error:
            wrong.append(f"{file}: {error}")
            continue
        columns = check_columns(head.names, wanted, delimiter=head.dialect.delimiter)
        problems = [*columns.problems, *filter(None, [head.problem])]
        wrong.extend(f"{file}: {told}" for told in problems)
        seen.append(Seen(file, head, columns, aliases))
    if wrong:
        raise Misconfigured(*wrong)
    return seen


def find_files(dataset: Dataset) -> dict[str, tuple[str, ...]]:
    """Return the files at hand, in order, each with the other names it was found by.

    A file that is named must be there, and a pattern must match one: the rows of one
    that is not would look as if they were gone.
    """
    source = dataset.csv
    named: set[str] = set()
    wrong: list[str] = []
    for pattern in source.files:
        if is_address(pattern):
            continue
        if not has_magic(pattern):
            named.add(pattern)
            continue
        found = glob(pattern, root_dir=source.folder, recursive=True)  # noqa: PTH207 (patterns may be absolute)
        matched = [name for name in found if is_meant(Path(source.folder, name))]
        named.update(matched)
        if not matched:
            place = Path(source.folder).absolute()
            hint = f"; {', '.join(found[:3])} is no regular file" if found else ""
            if Path(place, pattern).is_file():
                hint = f"; write {escape(pattern)} for the file of that very name"
            wrong.append(f"no file matches {pattern} in {place}{hint}")
    for name in named:
        refuse_odd_name(name)
    by_place: dict[str, list[str]] = {}
    for name in sorted(named, key=lambda name: (len(name), name)):
        path = Path(source.folder, name)
        problem = why_missing(path)
        if problem is not None:
            wrong.append(f"{name} {problem}")
        by_place.setdefault(os.path.realpath(path), []).append(name)
    if wrong:
        more = len(wrong) - MAX_NAMED
        raise Misconfigured(
            *(
                f"datasets.{dataset.name}.source.files: {each}"
                for each in wrong[:MAX_NAMED]
            ),
            *([f"and {more} more are missing"] if more > 0 else []),
        )
    files = {name: tuple(aliases) for name, *aliases in by_place.values()}
    return {name: files[name] for name in sorted(files)}


def is_meant(path: Path) -> bool:
    """Say whether what a pattern matches is a file, or should be one."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        # a link to nothing, or what nobody may look at
        return True


def why_missing(path: Path) -> str | None:
    """Say why a file that was named cannot be read, as far as its name tells."""
    try:
        if path.is_file():
            return None
        if path.is_dir():
            return f"is a folder; name the files in it, such as {path.name}/*.csv"
        if path.exists():
            return "is no regular file"
        if path.is_symlink():
            return f"is a link to {path.readlink()}, which does not exist"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return f"does not exist in {path.parent.absolute()}"


def fetch_files(
    dataset: Dataset, source: CsvSource, still_here: StillHere
) -> list[str]:
    """Fetch what is given by an address into the spool; return where it is."""
    addresses = addresses_in(source)
    if not addresses:
        return []
    # loaded where it is used: most files lie at hand
    from penstock.adapters.csv.download import Download

    spool = spool_of(source)
    download = Download(
        longest=source.download,
        may_be_private=source.private,
        may_be_unsized=source.unsized is Unsized.ACCEPT,
        still_here=still_here,
    )

    def attended(url: str) -> Iterator[bytes]:
        for piece in download(url):
            still_here()
            yield piece

    return [
        str(spool.save(attended(url), dataset=dataset.name, name=urlsplit(url).path))
        for url in addresses
    ]


def addresses_in(source: CsvSource) -> list[str]:
    return [*filter(is_address, source.files)]
