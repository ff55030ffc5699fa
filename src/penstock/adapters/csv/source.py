"""The rows of CSV files as pages: one chunk each; a cursor is where the next begins."""

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

from typing_extensions import override

from penstock.adapters.csv.byte_stream import translate_errors
from penstock.adapters.csv.chunk_reader import ChunkReader, RecordChunk
from penstock.adapters.csv.content_hash import digest_part
from penstock.adapters.csv.dialect import DeclaredDialect
from penstock.adapters.csv.header import FileHeader, read_header
from penstock.adapters.csv.limits import LIMITS, FileLimits
from penstock.adapters.csv.splitter import ByteRange
from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.mapping.columnar import ColumnarRows
from penstock.domain.mapping.converters import JsonText
from penstock.domain.pages import Page, Position, Proof, RawRow, Redirect, RowLocation
from penstock.domain.sharding.parts import Slice
from penstock.domain.sharding.shard import Shard
from penstock.domain.source import CsvSource, UnclosedQuote
from penstock.errors import CursorUnreadable, Misconfigured, Rejected, SourceUnavailable
from penstock.ports import KeepAlive, Source

# files that stay open between two chunks; more than there are worker threads
MAX_OPEN_FILES = 64
REMEDY = "let this import end, then run it again"

Cells: TypeAlias = Sequence[str | None]


class FileStamp(NamedTuple):
    """What changes when a file is written to or replaced."""

    size: int
    written: int
    inode: int


class CsvSourceReader(Source):
    """The chunks of a dataset's files; threads may share it."""

    def __init__(self, dataset: Dataset, *, limits: FileLimits = LIMITS) -> None:
        self._source = dataset.csv
        self._declared = declared_dialect(self._source)
        self._paths = tuple(".".join(path) for path in dataset.paths)
        # the positions of cells that are JSON documents
        self._documents = frozenset(
            dataset.path_index[column.path]
            for column in dataset.read_columns
            if column.type is FieldType.JSON
        )
        self._null = frozenset(self._source.null)
        self._limits = replace(limits, expansion=self._source.max_expansion)
        self._headers: dict[str, FileHeader] = {}
        # by slice: the stamp of its file when its digest was last checked
        self._checked_stamps: dict[str, FileStamp] = {}
        self._open_cursors: dict[tuple[str, int], ChunkCursor] = {}
        self._lock = threading.Lock()

    @override
    def get_ready(
        self, shard: Shard, position: Position | None, still_here: KeepAlive
    ) -> None:
        """Open the file at the position, up to which a gzip file is decompressed."""
        part = shard.slice
        with retryable_read_errors():
            _, cursor = self._open_cursor(part, position)
            cursor.begin(still_here)
        start, _ = parse_position(part, position)
        self._store_cursor(part, start, cursor)

    @override
    def fetch(
        self,
        shard: Shard,
        position: Position | None,
        *,
        since: datetime | None,
        moved: Redirect | None = None,
    ) -> Page:
        part = shard.slice
        with retryable_read_errors():
            head, cursor = self._open_cursor(part, position)
            chunk = cursor.take()
            # what was written during the read must not be stored either
            self._check_unchanged(part, self._path(part))
        if chunk is None:
            return Page(rows=(), proof=Proof.END_OF_RANGE)
        self._refuse_unclosed_quote(part, chunk)
        rank = part.rank(chunk.start)
        rows = self._rows(chunk, head)
        flawed = self._bad_rows(chunk)
        if cursor.is_over:
            self._checked_stamps.pop(part.text, None)
            proof = Proof.END_OF_RANGE
            return Page(
                rows=rows,
                bad_rows=flawed,
                dropped=chunk.skipped,
                rank=rank,
                proof=proof,
            )
        self._store_cursor(part, chunk.next_start, cursor)
        return Page(
            rows=rows,
            bad_rows=flawed,
            dropped=chunk.skipped,
            rank=rank,
            next={
                "at": chunk.next_start,
                "line": chunk.next_line,
                # the progress in a compressed file
                **({"packed": cursor.passed} if head.is_compressed else {}),
            },
            rises=True,
        )

    @override
    def preview(self, shard: Shard, *, since: datetime | None) -> str:
        part = shard.slice
        end = "its end" if part.end is None else f"byte {part.end}"
        return f"{part.file} from byte {part.start}, line {part.line}, to {end}"

    @override
    def read(self, raw: bytes) -> RawRow:
        try:
            values = json.loads(raw)
        except ValueError:
            values = None
        # the raw bytes of a bad row may be any JSON
        if not isinstance(values, dict) or not all(
            isinstance(value, str) for value in values.values()
        ):
            return RawRow((), raw, 0, "the row does not fit the columns of its file")
        columns = self._columns([[values.get(name)] for name in self._paths])
        return RawRow(tuple([value for (value,) in columns]), raw, 0)

    def _check_unchanged(self, part: Slice, path: Path) -> None:
        """Raise `Rejected` if a slice has changed since it was planned.

        The digest is compared at the first read, and again whenever the stamp of the
        file has changed.
        """
        with translate_errors(path):
            stamp = stamp_of(path)
        if stamp.size != part.size:
            raise Rejected(
                f"{part.file} has {stamp.size} bytes now, and had {part.size} when it "
                f"was planned; {REMEDY}"
            )
        checked = self._checked_stamps.get(part.text)
        if stamp == checked:
            return
        is_same = checked is None
        if part.digest:
            found = digest_part(path, part.start, part.end, size=part.size)
            is_same = found == part.digest
        if not is_same:
            raise Rejected(f"{part.file} has changed since it was planned; {REMEDY}")
        self._checked_stamps[part.text] = stamp

    def _refuse_unclosed_quote(self, part: Slice, chunk: RecordChunk) -> None:
        """Raise `Rejected` if an open quote swallows rows."""
        if self._source.unclosed_quote is UnclosedQuote.ROW:
            return
        for bad in chunk.bad:
            if bad.open_quote is not None:
                raise Rejected(
                    f"{part.file}: {bad.open_quote}, so the rows after it cannot be "
                    "separated; those before it are stored; close the quote, or "
                    'declare source.unclosed_quote = "row"'
                )

    def _head(self, part: Slice, path: Path) -> FileHeader:
        key = f"{part.fingerprint}/{part.file}"
        head = self._headers.get(key)
        if head is None:
            head = read_header(path, self._declared, limits=self._limits)
            self._headers[key] = head
        return head

    def _path(self, part: Slice) -> Path:
        return Path(self._source.folder, part.file)

    def _open_cursor(
        self, part: Slice, position: Position | None
    ) -> tuple[FileHeader, "ChunkCursor"]:
        """Return the cursor that ended at the position, or open the file there."""
        start, line = parse_position(part, position)
        path = self._path(part)
        self._check_unchanged(part, path)
        head = self._head(part, path)
        with self._lock:
            cursor = self._open_cursors.pop((part.text, start), None)
        if cursor is not None:
            return head, cursor
        chunks = ChunkReader(
            path,
            head.dialect,
            ByteRange(start=start, end=part.end, line=line),
            shape=head.shape,
            limits=self._limits,
        )
        return head, ChunkCursor(chunks)

    def _store_cursor(self, part: Slice, start: int, cursor: "ChunkCursor") -> None:
        with self._lock:
            self._open_cursors[part.text, start] = cursor
            while len(self._open_cursors) > MAX_OPEN_FILES:
                del self._open_cursors[next(iter(self._open_cursors))]

    def _rows(self, chunk: RecordChunk, head: FileHeader) -> Sequence[RawRow]:
        if not chunk.rows:
            return ()
        columns = [*zip(*chunk.rows, strict=False)]
        cells_by_path = [columns[head.names.index(name)] for name in self._paths]

        # computed at most once
        row_positions = cache(chunk.positions)

        def details(positions: Sequence[int]) -> list[tuple[bytes, RowLocation | None]]:
            found = row_positions()
            return [
                (
                    to_json_object(head.names, chunk.rows[at]),
                    RowLocation(line=found[at].line, offset=found[at].offset),
                )
                for at in positions
            ]

        return ColumnarRows(self._columns(cells_by_path), details)

    def _columns(self, cells_by_path: Iterable[Cells]) -> list[Cells]:
        """Mark the cells at each declared path that are null or JSON."""
        return [
            to_documents(self._replace_null(column))
            if position in self._documents
            else self._replace_null(column)
            for position, column in enumerate(cells_by_path)
        ]

    def _replace_null(self, column: Cells) -> Cells:
        if self._null.isdisjoint(column):
            return column
        return [None if value in self._null else value for value in column]

    def _bad_rows(self, chunk: RecordChunk) -> Sequence[RawRow]:
        return [
            RawRow(
                (),
                bad.position.raw,
                len(chunk.rows) + at,
                bad.detail,
                RowLocation(line=bad.position.line, offset=bad.position.offset),
                bad.flaw,
            )
            for at, bad in enumerate(chunk.bad)
        ]


class ChunkCursor:
    """The chunks of one slice, read one ahead to know which is the last."""

    def __init__(self, chunks: ChunkReader) -> None:
        self._chunks = chunks
        self._chunk_iterator = iter(chunks)
        self._next_chunk: RecordChunk | None = None
        self._has_begun = False

    @property
    def is_over(self) -> bool:
        return self._next_chunk is None

    @property
    def passed(self) -> int:
        """The number of bytes read from the file on disk, before decompression."""
        return self._chunks.passed

    def begin(self, still_here: KeepAlive | None = None) -> None:
        """Read the first chunk; `still_here` is called during this and later reads."""
        if still_here is not None:
            self._chunks.still_here = still_here
        if not self._has_begun:
            self._has_begun = True
            self._next_chunk = next(self._chunk_iterator, None)

    def take(self) -> RecordChunk | None:
        self.begin()
        chunk = self._next_chunk
        self._next_chunk = None if chunk is None else next(self._chunk_iterator, None)
        return chunk


def stamp_of(path: Path) -> FileStamp:
    status = path.stat()
    return FileStamp(status.st_size, status.st_mtime_ns, status.st_ino)


@contextmanager
def retryable_read_errors() -> Iterator[None]:
    """Raise a retryable error if a file that was planned cannot be read any more.

    Perhaps only this machine does not see it.
    """
    try:
        yield
    except Misconfigured as error:
        raise SourceUnavailable(str(error)) from error


def declared_dialect(source: CsvSource) -> DeclaredDialect:
    return DeclaredDialect(
        delimiter=source.delimiter,
        quote=source.quote,
        escape=source.escape,
        encoding=source.encoding,
        header=source.header,
        columns=source.columns,
        skip=source.skip,
    )


def parse_position(part: Slice, position: Position | None) -> tuple[int, int]:
    """Return the offset and the line of a position."""
    if position is None:
        return part.start, part.line
    at, line = position.get("at"), position.get("line")
    if not isinstance(at, int) or not isinstance(line, int):
        raise CursorUnreadable("the cursor is not one of a file; plan a new import")
    return at, line


def to_documents(column: Cells) -> Cells:
    return [None if value is None else JsonText(value) for value in column]


def to_json_object(names: Sequence[str], row: Sequence[str]) -> bytes:
    """Encode a row by its column names, so that it can be read without its file."""
    pairs = dict(zip(names, row, strict=False))
    return json.dumps(pairs, ensure_ascii=False).encode(errors="replace")
