"""The rows of files as pages: a chunk each, and the cursor is where the next begins."""

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

from penstock.adapters.csv.content import digest_again
from penstock.adapters.csv.cut import Range
from penstock.adapters.csv.dialect import Declared
from penstock.adapters.csv.head import Head, read_head
from penstock.adapters.csv.limits import LIMITS, Limits
from penstock.adapters.csv.read import Chunk, Chunks
from penstock.adapters.csv.stream import translated
from penstock.domain.casts import JsonText
from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.page import Moved, Page, Place, Position, Proof, Row
from penstock.domain.parts import Slice
from penstock.domain.shard import Shard
from penstock.domain.sheet import RawSheet
from penstock.domain.source import CsvSource, UnclosedQuote
from penstock.errors import (
    CursorUnreadable,
    Misconfigured,
    Rejected,
    SourceUnavailable,
)
from penstock.ports import Source, StillHere

# files that are held open between two chunks; more than threads work at once
MOST_OPEN = 64
REMEDY = "let this import end, then run it again"

Cells: TypeAlias = Sequence[str | None]


class Stamp(NamedTuple):
    """What changes when a file is written to, or another one takes its place."""

    size: int
    written: int
    inode: int


class CsvPages(Source):
    """The chunks of a dataset's files; threads may share it."""

    def __init__(self, dataset: Dataset, *, limits: Limits = LIMITS) -> None:
        self._source = dataset.csv
        self._declared = declared_of(self._source)
        self._wanted = tuple(".".join(path) for path in dataset.paths)
        # the places of cells that are JSON documents
        self._documents = frozenset(
            dataset.place[each.path]
            for each in dataset.columns
            if each.type is FieldType.JSON
        )
        self._null = frozenset(self._source.null)
        self._limits = replace(limits, expansion=self._source.max_expansion)
        self._heads: dict[str, Head] = {}
        # the stamps of files whose slices were found to be what was planned
        self._known: dict[str, Stamp] = {}
        self._open: dict[tuple[str, int], Reading] = {}
        self._lock = threading.Lock()

    @override
    def get_ready(
        self, shard: Shard, position: Position | None, still_here: StillHere
    ) -> None:
        """Open the file where it goes on; a packed one is unpacked up to there."""
        part = shard.slice
        with there_before():
            _, reading = self._opened(part, position)
            reading.begin(still_here)
        start, _ = place_of(part, position)
        self._keep(part, start, reading)

    @override
    def fetch(
        self,
        shard: Shard,
        position: Position | None,
        *,
        since: datetime | None,
        moved: Moved | None = None,
    ) -> Page:
        part = shard.slice
        with there_before():
            head, reading = self._opened(part, position)
            chunk = reading.take()
            # what was written while we read must not be stored either
            self._check(part, self._path(part))
        if chunk is None:
            return Page(rows=(), proof=Proof.END_OF_RANGE)
        self._refuse_unclosed(part, chunk)
        rank = part.rank(chunk.start)
        rows = self._rows(chunk, head)
        flawed = self._flawed(chunk)
        if reading.is_over:
            self._known.pop(part.text, None)
            proof = Proof.END_OF_RANGE
            return Page(
                rows=rows, flawed=flawed, dropped=chunk.skipped, rank=rank, proof=proof
            )
        self._keep(part, chunk.next_start, reading)
        return Page(
            rows=rows,
            flawed=flawed,
            dropped=chunk.skipped,
            rank=rank,
            next={
                "at": chunk.next_start,
                "line": chunk.next_line,
                # only this tells how far a packed file is read
                **({"packed": reading.passed} if head.is_packed else {}),
            },
            rises=True,
        )

    @override
    def preview(self, shard: Shard, *, since: datetime | None) -> str:
        part = shard.slice
        end = "its end" if part.end is None else f"byte {part.end}"
        return f"{part.file} from byte {part.start}, line {part.line}, to {end}"

    @override
    def read(self, raw: bytes) -> Row:
        try:
            values = json.loads(raw)
        except ValueError:
            values = None
        # a line that is no row may be any JSON by itself
        if not isinstance(values, dict) or not all(
            isinstance(value, str) for value in values.values()
        ):
            return Row((), raw, 0, "the row does not fit the columns of its file")
        columns = self._columns([[values.get(name)] for name in self._wanted])
        return Row(tuple([value for (value,) in columns]), raw, 0)

    def _check(self, part: Slice, path: Path) -> None:
        """Refuse a slice that is not what was planned any more.

        The bytes are compared at the first look, and again whenever the file seems to
        have been written to; between, its stamp tells that they are the same.
        """
        with translated(path):
            stamp = stamp_of(path)
        if stamp.size != part.size:
            told = f"has {stamp.size} bytes now, and had {part.size} when it was"
            raise Rejected(f"{part.file} {told} planned; {REMEDY}")
        known = self._known.get(part.text)
        if stamp == known:
            return
        is_same = known is None
        if part.digest:
            found = digest_again(path, part.start, part.end, size=part.size)
            is_same = found == part.digest
        if not is_same:
            raise Rejected(f"{part.file} has changed since it was planned; {REMEDY}")
        self._known[part.text] = stamp

    def _refuse_unclosed(self, part: Slice, chunk: Chunk) -> None:
        """Fail where an open quote takes in rows; those before it are stored."""
        if self._source.unclosed_quote is UnclosedQuote.ROW:
            return
        for bad in chunk.bad:
            if bad.open_quote is not None:
                raise Rejected(
                    f"{part.file}: {bad.open_quote}, so the rows behind it cannot be "
                    "told apart; those before it are stored; close the quote, or "
                    'declare source.unclosed_quote = "row"'
                )

    def _head(self, part: Slice, path: Path) -> Head:
        key = f"{part.fingerprint}/{part.file}"
        head = self._heads.get(key)
        if head is None:
            head = read_head(path, self._declared, limits=self._limits)
            self._heads[key] = head
        return head

    def _path(self, part: Slice) -> Path:
        return Path(self._source.folder, part.file)

    def _opened(self, part: Slice, position: Position | None) -> tuple[Head, "Reading"]:
        """Go on where the last chunk ended, or open the file there."""
        start, line = place_of(part, position)
        path = self._path(part)
        self._check(part, path)
        head = self._head(part, path)
        with self._lock:
            known = self._open.pop((part.text, start), None)
        if known is not None:
            return head, known
        chunks = Chunks(
            path,
            head.dialect,
            Range(start=start, end=part.end, line=line),
            shape=head.shape,
            limits=self._limits,
        )
        return head, Reading(chunks)

    def _keep(self, part: Slice, start: int, reading: "Reading") -> None:
        with self._lock:
            self._open[part.text, start] = reading
            while len(self._open) > MOST_OPEN:
                del self._open[next(iter(self._open))]

    def _rows(self, chunk: Chunk, head: Head) -> Sequence[Row]:
        if not chunk.rows:
            return ()
        columns = [*zip(*chunk.rows, strict=False)]
        picked = [columns[head.names.index(name)] for name in self._wanted]

        # found once, however often somebody asks
        places = cache(chunk.places)

        def details(positions: Sequence[int]) -> list[tuple[bytes, Place | None]]:
            known = places()
            return [
                (
                    as_object(head.names, chunk.rows[at]),
                    Place(line=known[at].line, offset=known[at].offset),
                )
                for at in positions
            ]

        return RawSheet(self._columns(picked), details)

    def _columns(self, picked: Iterable[Cells]) -> list[Cells]:
        """Say of the cells at each declared path which are nothing, and which JSON."""
        return [
            as_documents(self._without_null(column))
            if place in self._documents
            else self._without_null(column)
            for place, column in enumerate(picked)
        ]

    def _without_null(self, column: Cells) -> Cells:
        if self._null.isdisjoint(column):
            return column
        return [None if value in self._null else value for value in column]

    def _flawed(self, chunk: Chunk) -> Sequence[Row]:
        return [
            Row(
                (),
                bad.place.raw,
                len(chunk.rows) + at,
                bad.detail,
                Place(line=bad.place.line, offset=bad.place.offset),
                bad.flaw,
            )
            for at, bad in enumerate(chunk.bad)
        ]


class Reading:
    """Chunks of one slice, one of them read ahead to know which is the last."""

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self._following = iter(chunks)
        self._ahead: Chunk | None = None
        self._is_begun = False

    @property
    def is_over(self) -> bool:
        return self._ahead is None

    @property
    def passed(self) -> int:
        """How much of the file itself is read, packed as it is."""
        return self._chunks.passed

    def begin(self, still_here: StillHere | None = None) -> None:
        """Have the first chunk at hand, for whoever waits for it from now on."""
        if still_here is not None:
            self._chunks.still_here = still_here
        if not self._is_begun:
            self._is_begun = True
            self._ahead = next(self._following, None)

    def take(self) -> Chunk | None:
        self.begin()
        chunk = self._ahead
        self._ahead = None if chunk is None else next(self._following, None)
        return chunk


def stamp_of(path: Path) -> Stamp:
    found = path.stat()
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ino)


@contextmanager
def there_before() -> Iterator[None]:
    """Try again where a file cannot be read any more: it could when it was planned.

    Perhaps it is only this machine that does not see it.
    """
    try:
        yield
    except Misconfigured as error:
        raise SourceUnavailable(str(error)) from error


def declared_of(source: CsvSource) -> Declared:
    return Declared(
        delimiter=source.delimiter,
        quote=source.quote,
        escape=source.escape,
        encoding=source.encoding,
        header=source.header,
        columns=source.columns,
        skip=source.skip,
    )


def place_of(part: Slice, position: Position | None) -> tuple[int, int]:
    """Return the byte and the line at which a position goes on."""
    if position is None:
        return part.start, part.line
    at, line = position.get("at"), position.get("line")
    if not isinstance(at, int) or not isinstance(line, int):
        raise CursorUnreadable("the cursor is none of a file; plan a new import")
    return at, line


def as_documents(column: Cells) -> Cells:
    return [None if value is None else JsonText(value) for value in column]


def as_object(names: Sequence[str], row: Sequence[str]) -> bytes:
    """Write a row by the names of its columns: it is read again without its file."""
    pairs = dict(zip(names, row, strict=False))
    return json.dumps(pairs, ensure_ascii=False).encode(errors="replace")
