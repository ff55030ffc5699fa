"""Look at the files of a dataset before a row is read: are they there, do they fit."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from penstock.adapters.csv.columns import ColumnCheck, check_columns
from penstock.adapters.csv.cut import cut
from penstock.adapters.csv.head import Head, read_head
from penstock.adapters.csv.source import declared_of
from penstock.adapters.csv.spool import Spool
from penstock.adapters.csv.stream import translated
from penstock.domain.axes import FileAxis
from penstock.domain.dataset import Dataset
from penstock.domain.events import FileSurveyed
from penstock.domain.parts import Slice
from penstock.domain.source import CsvSource, Unsized, is_address
from penstock.errors import Misconfigured, PenstockError
from penstock.ports import Emit, StillHere


class Seen(NamedTuple):
    """A file that was looked at."""

    name: str
    head: Head
    columns: ColumnCheck


@dataclass(frozen=True, slots=True)
class FileSurvey:
    """Finds the files, holds their headers against the fields, and cuts them."""

    emit: Emit

    def __call__(
        self, dataset: Dataset, still_here: StillHere = lambda: None
    ) -> FileAxis:
        source = dataset.csv
        files = find_names(source) + fetch_files(dataset, source, still_here)
        seen = look_at_all(dataset, source, files, still_here)
        slices = tuple(
            part
            for number, file in enumerate(seen)
            for part in self._cut(dataset, source, number, file, still_here)
        )
        if not slices:
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
        files = find_names(source)
        if not files:
            some = replace(source, files=tuple(addresses_in(source)[:1]))
            files = fetch_files(dataset, some, never)
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
        if cuts.unclosed is not None:
            remarks.append(
                f"the quote opened in line {cuts.unclosed} is never closed, so the "
                "file is one shard"
            )
        content = cuts.content
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
            for part in cuts.ranges
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
    dataset: Dataset, source: CsvSource, found: list[str], still_here: StillHere
) -> list[Seen]:
    """Return the files with their heads, or raise with all that is wrong with them."""
    files = [name for name in found if Path(source.folder, name).is_file()]
    refuse_odd_names(files)
    if not files:
        others = f"; {', '.join(found[:3])} is no regular file" if found else ""
        raise Misconfigured(
            f"datasets.{dataset.name}.source.files: no file matches "
            f"{' or '.join(source.files)} in {Path(source.folder).absolute()}{others}"
        )
    wanted = [".".join(path) for path in dataset.paths]
    seen: list[Seen] = []
    wrong: list[str] = []
    for file in files:
        still_here()
        try:
            head = read_head(Path(source.folder, file), declared_of(source))
        except PenstockError as error:
            wrong.append(f"{file}: {error}")
            continue
        columns = check_columns(head.names, wanted, delimiter=head.dialect.delimiter)
        problems = [*columns.problems, *filter(None, [head.problem])]
        wrong.extend(f"{file}: {told}" for told in problems)
        seen.append(Seen(file, head, columns))
    if wrong:
        raise Misconfigured(*wrong)
    return seen


def find_names(source: CsvSource) -> list[str]:
    """Return all names that a pattern matches, each once, in order."""
    found = {
        name
        for pattern in source.files
        if not is_address(pattern)
        for name in glob(pattern, root_dir=source.folder, recursive=True)  # noqa: PTH207 (patterns may be absolute)
    }
    return sorted(found)


def refuse_odd_names(files: Iterable[str]) -> None:
    """Refuse names that no ledger could hold."""
    for file in files:
        try:
            file.encode()
        except UnicodeEncodeError:
            shown = file.encode(errors="backslashreplace").decode()
            raise Misconfigured(
                f"the name {shown} is not UTF-8; rename the file"
            ) from None


def fetch_files(
    dataset: Dataset, source: CsvSource, still_here: StillHere
) -> list[str]:
    """Fetch what is given by an address into the spool; return where it is."""
    addresses = addresses_in(source)
    if not addresses:
        return []
    # loaded where it is used: most files lie at hand
    from penstock.adapters.csv.download import Download

    spool = Spool(Path(source.spool).absolute(), source.max_bytes)
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
