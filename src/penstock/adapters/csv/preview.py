"""Read the beginning of a file as an import would, and store nothing."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from typing_extensions import override

from penstock.adapters.csv.byte_stream import GZIP_MAGIC
from penstock.adapters.csv.header import FileHeader, read_header, read_rows
from penstock.adapters.csv.header_check import check_columns
from penstock.adapters.csv.record_scanner import RecordScanner
from penstock.adapters.csv.source import CsvSourceReader, declared_dialect
from penstock.adapters.csv.splitter import next_end, next_split_point
from penstock.adapters.csv.spool import safe_file_name
from penstock.domain.dataset import Dataset
from penstock.domain.pages import Page
from penstock.domain.sharding.axes import FileAxis
from penstock.domain.sharding.parts import Slice
from penstock.domain.sharding.shard import Shard
from penstock.errors import Rejected
from penstock.ports.file_preview import PREVIEW_BYTES, FilePreviews, FileStart

SHOWN_ROWS = 20
# rows to map: a bad one costs as much as fifty good ones
MAX_ROWS = 20_000
GZIP_BITS = 31
# where the last complete record is looked for, in sixteenths of the sample
CUTS = (15, 8, 1)


class CsvPreviews(FilePreviews):
    @override
    def read(self, dataset: Dataset, start: bytes, *, name: str) -> FileStart:
        text, is_whole = decompress_start(start)
        # the readers of an import read files; this one is gone with the response
        with TemporaryDirectory(prefix="penstock-preview-") as folder:
            path = Path(folder, safe_file_name(name))
            path.write_bytes(text)
            head = read_header(path, declared_dialect(dataset.csv))
            expected = [".".join(each) for each in dataset.paths]
            delimiter = head.dialect.delimiter
            columns = check_columns(head.names, expected, delimiter=delimiter)
            problems = [*columns.problems, *filter(None, [head.problem])]
            pages: list[Page] = []
            if not problems:
                end = len(text) if is_whole else last_record_end(text, head)
                path.write_bytes(text[:end])
                try:
                    pages = [*read_pages(dataset, path, head)]
                except Rejected as error:
                    problems.append(str(error))
        if not problems and not any(page.rows or page.bad_rows for page in pages):
            problems.append("it has a header and no rows")
        return FileStart(
            encoding=head.dialect.encoding,
            delimiter=delimiter,
            is_compressed=text is not start,
            is_whole=is_whole,
            names=head.names,
            rows=first_rows(text[:PREVIEW_BYTES], head, is_whole=is_whole),
            problems=tuple(problems),
            warnings=(*head.warnings, *columns.warnings),
            pages=() if problems else pages,
            has_all_rows=is_whole and bool(pages) and pages[-1].next is None,
        )


def decompress_start(start: bytes) -> tuple[bytes, bool]:
    """Return the beginning of a file, decompressed, and whether that is all of it."""
    is_whole = len(start) <= PREVIEW_BYTES
    if not start.startswith(GZIP_MAGIC):
        return start, is_whole
    stream = zlib.decompressobj(wbits=GZIP_BITS)
    try:
        text = stream.decompress(start, PREVIEW_BYTES + 1)
    except zlib.error as error:
        raise Rejected(f"it is not complete gzip: {error}") from error
    is_whole = is_whole and stream.eof and not stream.unused_data
    if stream.eof or len(text) > PREVIEW_BYTES:
        return text, is_whole and len(text) <= PREVIEW_BYTES
    if is_whole or len(start) <= PREVIEW_BYTES:
        raise Rejected("it is not complete gzip: it ends early")
    # what is missing of the last line was not sent
    return text[: text.rfind(b"\n") + 1], False


def last_record_end(text: bytes, head: FileHeader) -> int:
    """Return where a complete record ends, as near to the end of the text as known."""
    codec = head.dialect.codec
    units = codec.code_units(text[head.start : PREVIEW_BYTES])
    for part in CUTS:
        scanner = RecordScanner(head.dialect, line=head.line)
        target = len(units) * part // 16
        if target:
            target = next_split_point(units, target, head.dialect)
            end = next_end(scanner, units, 0, target)
            if end is not None:
                return head.start + codec.size_of_units(units[:end])
    raise Rejected(
        f"no row ends within its first {PREVIEW_BYTES:,} bytes; a quote may be open"
    )


def read_pages(dataset: Dataset, path: Path, head: FileHeader) -> Iterator[Page]:
    """Read the first pages of a file with the reader of an import."""
    source = replace(dataset.csv, folder=str(path.parent), files=(path.name,))
    size = path.stat().st_size
    part = Slice(
        number=0,
        file=path.name,
        size=size,
        fingerprint="",
        start=min(head.start, size),
        end=None,
        line=head.line,
    )
    reader = CsvSourceReader(replace(dataset, source=source))
    shard = Shard((FileAxis(slices=(part,)),), (part,))
    page = reader.fetch(shard, None, since=None)
    rows = len(page.rows) + len(page.bad_rows)
    yield page
    while page.next is not None and rows < MAX_ROWS:
        page = reader.fetch(shard, page.next, since=None)
        rows += len(page.rows) + len(page.bad_rows)
        yield page


def first_rows(
    text: bytes, head: FileHeader, *, is_whole: bool
) -> Sequence[Sequence[str]]:
    return read_rows(text[head.start :], head.dialect, is_whole=is_whole)[:SHOWN_ROWS]
