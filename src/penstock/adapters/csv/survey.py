"""Look at the files of a dataset before a row is read: are they there, do they fit."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from urllib.parse import urlsplit

from penstock.adapters.csv.columns import check_columns
from penstock.adapters.csv.cut import cut
from penstock.adapters.csv.head import Head, read_head
from penstock.adapters.csv.source import declared_of
from penstock.adapters.csv.spool import Spool
from penstock.domain.axes import FileAxis
from penstock.domain.dataset import Dataset
from penstock.domain.events import FileSurveyed
from penstock.domain.parts import Slice
from penstock.domain.source import CsvSource
from penstock.errors import Misconfigured, PenstockError
from penstock.ports import Emit


@dataclass(frozen=True, slots=True)
class FileSurvey:
    """Finds the files, holds their headers against the fields, and cuts them."""

    emit: Emit

    def __call__(self, dataset: Dataset) -> FileAxis:
        source = dataset.csv
        wanted = [".".join(path) for path in dataset.paths]
        heads = dict(look_at_all(dataset, source, wanted))
        slices = tuple(
            part
            for number, (file, head) in enumerate(heads.items())
            for part in self._cut(dataset, source, number, file, head)
        )
        if not slices:
            raise Misconfigured(
                f"datasets.{dataset.name}.source.files: {', '.join(heads)} "
                f"{'has' if len(heads) == 1 else 'have'} a header and no rows"
            )
        return FileAxis(slices=slices)

    def _cut(
        self, dataset: Dataset, source: CsvSource, number: int, file: str, head: Head
    ) -> list[Slice]:
        cuts = cut(Path(source.folder, file), head, size=source.shard)
        remarks = list(head.guesses)
        remarks += check_columns(
            head.names, [".".join(path) for path in dataset.paths]
        ).remarks
        if cuts.unclosed is not None:
            remarks.append(
                f"the quote opened in line {cuts.unclosed} is never closed, so the "
                "file is one shard"
            )
        content = cuts.content
        slices = [
            Slice(
                number=number,
                file=file,
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
                file=file,
                size=content.size,
                shards=len(slices),
                remarks=tuple(remarks),
            )
        )
        return slices


def look_at_all(
    dataset: Dataset, source: CsvSource, wanted: list[str]
) -> Iterator[tuple[str, Head]]:
    """Yield the files with their heads, or raise with all that is wrong with them."""
    found = find_names(source)
    files = [name for name in found if Path(source.folder, name).is_file()]
    files += fetch_files(dataset, source)
    refuse_odd_names(files)
    if not files:
        others = f"; {', '.join(found[:3])} is no regular file" if found else ""
        raise Misconfigured(
            f"datasets.{dataset.name}.source.files: no file matches "
            f"{' or '.join(source.files)} in {source.folder}{others}"
        )
    wrong: list[str] = []
    for file in files:
        try:
            head = read_head(Path(source.folder, file), declared_of(source))
        except PenstockError as error:
            wrong.append(f"{file}: {error}")
            continue
        wrong.extend(
            f"{file}: {told}" for told in check_columns(head.names, wanted).problems
        )
        yield file, head
    if wrong:
        raise Misconfigured(*wrong)


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


def fetch_files(dataset: Dataset, source: CsvSource) -> list[str]:
    """Fetch what is given by an address into the spool; return where it is."""
    spool = Spool(Path(source.spool).absolute(), source.max_bytes)
    # loaded where it is used: most files lie at hand
    from penstock.adapters.csv.download import Download

    download = Download(longest=source.download, may_be_private=source.private)
    return [
        str(spool.save(download(url), dataset=dataset.name, name=urlsplit(url).path))
        for url in filter(is_address, source.files)
    ]


def is_address(file: str) -> bool:
    return file.startswith(("http://", "https://"))
