"""Read a range in windows of whole records, whatever it holds, in bounded memory."""

from dataclasses import dataclass

from penstock.adapters.csv.dialect import Dialect
from penstock.adapters.csv.limits import Limits
from penstock.adapters.csv.stream import Stream
from penstock.adapters.csv.walk import Walk, whole_signs
from penstock.domain.page import Reason

# enough of a bad record to find it again
KEPT = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Some records in a row; the last may be parted by a newline within quotes."""

    raw: bytes
    start: int
    # a single record that is known to be whole
    is_whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Flawed:
    """A single record that is not worth its memory; some of its bytes are kept."""

    raw: bytes
    start: int
    size: int
    lines: int
    flaw: Reason
    detail: str
    # what says that it may hold the rows behind it, if something does
    open_quote: str | None = None


class Windows:
    """The windows of a stream, in order, from a place where a record begins."""

    def __init__(
        self, stream: Stream, dialect: Dialect, limits: Limits, *, start: int
    ) -> None:
        self._stream = stream
        self._dialect = dialect
        self._coding = dialect.coding
        self._limit = limits.record
        # records that are not too long must fit, wherever a window happens to end
        self._size = max(1, min(limits.bytes, limits.record))
        self._start = start
        self._raw = b""
        # nothing is left behind the bytes at hand
        self._is_last = False
        # the last window held no whole record
        self._is_stuck = False

    def take(self, *, line: int) -> Window | Flawed | None:
        """Return the next window, which begins on that line; None at the end."""
        if not self._fill(self._size):
            return None
        if self._is_stuck:
            return self._take_record(line)
        return self._take_lines() or self._take_record(line)

    def put_back(self, window: Window, start: int) -> None:
        """Give the last window once more from there on: it parts a record."""
        self._raw = window.raw[start - window.start :] + self._raw
        self._start = start
        self._is_stuck = start == window.start

    def _fill(self, size: int) -> bool:
        """Have so many bytes at hand, if there are; tell if there are any."""
        wanted = size - len(self._raw)
        if wanted > 0 and not self._is_last:
            read = self._stream.read(wanted)
            self._is_last = len(read) < wanted
            self._raw += read
        return bool(self._raw)

    def _take_lines(self) -> Window | None:
        """Take all whole lines that fit, if there are any."""
        raw = self._raw[: self._size]
        if not self._is_last or len(raw) < len(self._raw):
            signs, _ = whole_signs(raw, self._dialect)
            stop = max(signs.rfind("\n"), signs.rfind("\r")) + 1
            raw = raw[: self._coding.size_of_signs(signs[:stop])]
        window = Window(raw=raw, start=self._start)
        self._drop(len(raw))
        return window if raw else None

    def _take_record(self, line: int) -> Window | Flawed:
        """Take a single record; of one that is too long, keep the beginning only."""
        self._is_stuck = False
        self._fill(self._limit)
        kept, start = self._raw[: self._limit], self._start
        walk = Walk(self._dialect, line=line)
        end, is_within = None, True
        while is_within:
            signs, size = self._signs()
            end = walk.find_end(signs, 0)
            is_within = end is None and not self._is_last
            if end is not None:
                size = self._coding.size_of_signs(signs[:end])
            self._drop(size)
            if is_within:
                self._fill(len(self._raw) + self._size)
        total, lines = self._start - start, walk.line - line
        open_quote = None
        if walk.is_quoted:
            flaw = Reason.UNCLOSED_QUOTE
            told = open_quote = f"the quote on line {walk.opened_on} is never closed"
        elif total > self._limit:
            flaw = Reason.TOO_LONG
            told = f"the record has {total} bytes, of {self._limit} that are allowed"
            opened_on = self._open_at_end(kept, line)
            if opened_on is not None:
                told += f"; is a quote on line {opened_on} not closed?"
            # a record of a single line has no row within it
            if opened_on is not None and lines > (end is not None):
                open_quote = (
                    f"the quote on line {opened_on} is not closed within "
                    f"{self._limit} bytes"
                )
        else:
            return Window(raw=kept[:total], start=start, is_whole=True)
        return Flawed(
            raw=kept[:KEPT],
            start=start,
            size=total,
            lines=lines,
            flaw=flaw,
            detail=told,
            open_quote=open_quote,
        )

    def _open_at_end(self, raw: bytes, line: int) -> int | None:
        """Return the line of the quote that is open behind a part of a record."""
        walk = Walk(self._dialect, line=line)
        walk.find_end(whole_signs(raw, self._dialect)[0], 0)
        return walk.opened_on if walk.is_quoted else None

    def _signs(self) -> tuple[str, int]:
        """Return the signs at hand that can be judged, and how many bytes they are."""
        if self._is_last:
            return self._coding.signs(self._raw), len(self._raw)
        return whole_signs(self._raw, self._dialect)

    def _drop(self, size: int) -> None:
        self._raw = self._raw[size:]
        self._start += size
