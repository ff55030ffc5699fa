"""Files that somebody made to be read wrongly: any number of them, each from a seed."""

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.support.strict_csv import Format

NAMES = ("id", "name", "note")
ENCODINGS = {
    "utf-8": (b"", b"\xef\xbb\xbf"),
    "utf-16-le": (b"\xff\xfe",),
    "utf-16-be": (b"\xfe\xff",),
    "cp1252": (b"",),
    "cp1251": (b"",),
}
LINE_ENDS = ("\n", "\r\n", "\r")
# longer than any record may be, in bytes
MAX_RECORD = 2000
WORDS = ("", "a", "NULL", " x ", "Smith", "5' pipe", "\ufeffb", "\x85\u2028", "é", "Ж")


@dataclass(frozen=True, kw_only=True)
class HostileFile:
    """A file, and what is declared of it."""

    raw: bytes
    # without packing
    plain: bytes
    declared: Format
    # of the byte order mark
    mark: int
    shard: int
    # what the header has
    names: tuple[str, ...]

    @property
    def is_packed(self) -> bool:
        return self.raw != self.plain


class Maker:
    """Writes the parts of one file."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.encoding = chance.choice([*ENCODINGS])
        self.declared = Format(
            delimiter=chance.choice(",;\t|"),
            quote=chance.choice(['"', '"', '"', "'", None]),
            escape=None,
            encoding=self.encoding,
        )
        if self.declared.quote is not None and chance.random() < 0.3:
            self.declared = Format(
                delimiter=self.declared.delimiter,
                quote=self.declared.quote,
                escape="\\",
                encoding=self.encoding,
            )
        self.ends = chance.choice([*([end] for end in LINE_ENDS), list(LINE_ENDS)])
        # what stands at the end of each row
        self.tail = chance.choice(["", "", "", self.declared.delimiter])
        self.flaws = chance.sample(FLAWS, chance.randrange(len(FLAWS)))
        self.share = chance.choice([0.0, 0.01, 0.2, 0.6])

    @property
    def quote(self) -> str:
        return self.declared.quote or '"'

    def row(self) -> bytes:
        if self.flaws and self.chance.random() < self.share:
            return self.chance.choice(self.flaws)(self)
        return self.line([self.value() for _ in NAMES])

    def line(self, values: list[str], *, end: str | None = None) -> bytes:
        text = self.declared.delimiter.join(values) + self.tail
        return self.encode(
            text + (self.chance.choice(self.ends) if end is None else end)
        )

    def value(self) -> str:
        """Write a value that is sound, quoted or not."""
        text = "".join(self.chance.choices(WORDS, k=self.chance.randrange(3)))
        if self.declared.quote is None or self.chance.random() < 0.5:
            return text.replace(self.quote, "")
        text += self.chance.choice(["", self.quote, "\n", self.declared.delimiter])
        escape = self.declared.escape
        if escape is not None and self.chance.random() < 0.5:
            text = text.replace(escape, escape * 2)
            return self.quoted(text.replace(self.quote, escape + self.quote))
        return self.quoted(text.replace(self.quote, self.quote * 2))

    def quoted(self, text: str) -> str:
        return f"{self.quote}{text}{self.quote}"

    def encode(self, text: str) -> bytes:
        return text.encode(self.encoding, "ignore")


Flaw = Callable[[Maker], bytes]


def stray_quote(maker: Maker) -> bytes:
    inside = f"24{maker.quote} bike{maker.declared.delimiter} red"
    return maker.line(["1", maker.chance.choice([maker.quoted(inside), inside]), "b"])


def text_behind_quote(maker: Maker) -> bytes:
    behind = maker.chance.choice([" ", "x", '"x"', "\0"])
    return maker.line(["1", maker.quoted("a") + behind, "b"])


def escaped_quote(maker: Maker) -> bytes:
    inside = maker.chance.choice(["\\", "\\\\", "\\\\\\", "\\a"]) + maker.quote
    return maker.line(["1", maker.quoted(f"say {inside}hi{inside}"), "\\N"])


def unclosed_quote(maker: Maker) -> bytes:
    return maker.line(["1", f"{maker.quote}open", "b"])


def extra_delimiter(maker: Maker) -> bytes:
    return maker.line(["2", "Smith", " John", maker.chance.choice(["", "Hamburg"])])


def too_few_values(maker: Maker) -> bytes:
    return maker.line(["2"] * maker.chance.randrange(len(NAMES)))


def wide_row(maker: Maker) -> bytes:
    return maker.line(["w"] * maker.chance.choice([10, 500]))


def huge_value(maker: Maker) -> bytes:
    text = maker.chance.choice(["x", maker.quote * 2, "\\\\", "\n"]) * MAX_RECORD
    return maker.line(["3", maker.quoted(text), "b"])


def nul(maker: Maker) -> bytes:
    return maker.line(["4", maker.chance.choice(["\0", maker.quoted("\0")]), "b"])


def bad_bytes(maker: Maker) -> bytes:
    bad = maker.chance.choice([b"\xff", b"\xc3", b"\xed\xa0\x80", b"\x98", b"\x81\x0d"])
    return maker.encode("5") + bad * 2 + maker.line(["", "a", "b"])


def byte_order_mark(maker: Maker) -> bytes:
    return maker.line(["\ufeff6", "\ufeff" + maker.quoted("a"), "b"])


def empty_lines(maker: Maker) -> bytes:
    return maker.encode("".join(maker.chance.choices(LINE_ENDS, k=4)))


def odd_line_ends(maker: Maker) -> bytes:
    return maker.line(["7", maker.quoted("\r"), "\r\r\n\n\r"])


def noise(maker: Maker) -> bytes:
    signs = [maker.declared.delimiter, maker.quote, "\\", *LINE_ENDS, "a"]
    return maker.encode("".join(maker.chance.choices(signs, k=20)))


FLAWS: list[Flaw] = [
    stray_quote,
    text_behind_quote,
    escaped_quote,
    unclosed_quote,
    extra_delimiter,
    too_few_values,
    wide_row,
    huge_value,
    nul,
    bad_bytes,
    byte_order_mark,
    empty_lines,
    odd_line_ends,
    noise,
]


def make_hostile_file(seed: int) -> HostileFile:
    """Make a file; the same seed makes the same one."""
    chance = Random(seed)
    maker = Maker(chance)
    tail, maker.tail = maker.tail, ""
    # now and then a name is missing
    names = NAMES[chance.random() < 0.05 :]
    mark = chance.choice(ENCODINGS[maker.encoding])
    header = maker.line([*names], end=chance.choice(maker.ends))
    maker.tail = tail
    rows = [maker.row() for _ in range(chance.choice([1, 3, 40, 300]))]
    raw = plain = mark + header + b"".join(rows)
    if chance.random() < 0.2:
        # the end of the file is anywhere
        raw = plain = plain[: chance.randrange(len(mark + header) + 1, len(plain) + 1)]
    if chance.random() < 0.2:
        raw = gzip.compress(plain, compresslevel=1, mtime=0)
    return HostileFile(
        raw=raw,
        plain=plain,
        declared=maker.declared,
        mark=len(mark),
        shard=chance.choice([16, 100, 1000, 1 << 20]),
        names=names,
    )
