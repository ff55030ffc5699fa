#!/usr/bin/env python3
"""Generate dirty retailer lists of any size, with the expected result of an import.

The same arguments give the same bytes. Beside the files it writes `truth.json`, the
number of rows of each kind; and with `--stored` the good rows as they should be
stored, in order, with their position: of rows with the same uid the last counts.
"""

import argparse
import gzip
import json
import os
import random
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias, cast

REGIONS = {
    "BE": "Berlin",
    "BY": "Bayern",
    "HH": "Hamburg",
    "NW": "Nordrhein-Westfalen",
    "SN": "Sachsen",
    "TH": "Thüringen",
}
# two kinds of files: with a byte order mark and CRLF, or without either
MARKS = (b"\xef\xbb\xbf", b"")
ENDS = ("\r\n", "\n")
OWNERS = ("Müller", "Schmidt", "O'Neill", "Åkesson", "Yalçin", "Nowak", "Đorđević")
TRADES = ("Bäckerei", "Drogerie", "Kiosk", "Café", "Weinhandel", "Buchladen")
# how many rows in a thousand repeat a recent key, or one of the first keys
REPEATS = {"near": 10, "far": 10}
# one of the first so many keys is repeated much later
EARLY = 500
NEARBY = 20

Stored: TypeAlias = dict[str, str | int | None]


class Line(NamedTuple):
    """One record of a file: its kind, its bytes, and the row to be stored."""

    # "good", "empty", or the reason for which it goes to quarantine
    kind: str
    raw: bytes
    stored: Stored | None = None


class Retailer(NamedTuple):
    """The values of a good row."""

    uid: str
    name: str
    phone: str
    region: str
    points: str

    def raw(self, end: str, *, more: str = "") -> bytes:
        return f"{','.join(map(quoted, self))}{more}{end}".encode()

    def stored(self) -> Stored:
        empty = {"", "NULL", "\\N"}
        return {
            "uid": self.uid,
            "name": self.name.strip(),
            "phone": None if self.phone in empty else self.phone,
            "region": self.region,
            "points": 0 if self.points in empty else int(self.points),
        }


Make: TypeAlias = Callable[[Retailer, str], Line]


def quoted(value: str) -> str:
    if any(sign in value for sign in ',"\r\n'):
        return '"' + value.replace('"', '""') + '"'
    return value


def good(**values: str) -> Make:
    """Make a good row that is easily misread."""

    def make(retailer: Retailer, end: str) -> Line:
        odd = retailer._replace(**values)
        return Line("good", odd.raw(end), odd.stored())

    return make


def bad(kind: str, **values: str) -> Make:
    """Make a row that goes to quarantine because of one value."""

    def make(retailer: Retailer, end: str) -> Line:
        return Line(kind, retailer._replace(**values).raw(end))

    return make


def trailing_delimiter(retailer: Retailer, end: str) -> Line:
    return Line("too_many_values", retailer.raw(end, more=","))


def text_after_quote(retailer: Retailer, end: str) -> Line:
    return Line("text_after_quote", f'{retailer.uid},"24" bike",,BE,1{end}'.encode())


def too_many_values(retailer: Retailer, end: str) -> Line:
    return Line("too_many_values", retailer.raw(end, more=",one,more"))


def too_few_values(retailer: Retailer, end: str) -> Line:
    return Line("too_few_values", f"{retailer.uid},cut off{end}".encode())


def wrong_encoding(retailer: Retailer, end: str) -> Line:
    raw = f"{retailer.uid},Gem\xfcse,,BE,1{end}".encode("latin-1")
    return Line("undecodable", raw)


def nul_character(retailer: Retailer, end: str) -> Line:
    return Line("nul", f"{retailer.uid},\0,,BE,1{end}".encode())


def empty_line(_: Retailer, end: str) -> Line:
    return Line("empty", end.encode())


# the number of rows of each kind in a thousand; all others are plain
ODD: tuple[tuple[int, Make], ...] = (
    (8, good(name='The "Corner" Shop, Est. 1920')),
    (8, good(name="Two lines\nof a name")),
    (4, good(name='"\r\n"')),
    (4, good(name="  wide of the margin  ")),
    (4, good(name="=HYPERLINK(A1)")),
    (6, good(name="東京 🍣 Zoë")),
    (10, good(phone="")),
    (5, good(phone="\\N")),
    (10, good(points="NULL")),
    (5, good(points=" 7 ")),
    (2, trailing_delimiter),
    (2, text_after_quote),
    (4, bad("type", points="many")),
    (3, bad("type", points="12.5")),
    (3, bad("range", points="-1")),
    (6, bad("pattern", phone="ask for Jo")),
    (3, bad("pattern", phone="12345")),
    (6, bad("reference", region="ZZ")),
    (3, bad("missing", uid="")),
    (3, bad("missing", name="NULL")),
    (3, bad("missing", region="   ")),
    (2, bad("length", name="x" * 201)),
    (3, too_many_values),
    (3, too_few_values),
    (2, wrong_encoding),
    (2, nul_character),
    (4, empty_line),
)


def lines(rows: int, *, seed: int, files: int) -> Iterator[tuple[int, Line]]:
    """Yield the number of a file and a record; memory does not grow with the rows."""
    chance = random.Random(seed)  # noqa: S311 (not for secrets)
    makes = [make for _, make in ODD] + [good()]
    weights = [weight for weight, _ in ODD]
    weights.append(1000 - sum(weights))
    early: list[str] = []
    nearby: deque[str] = deque(maxlen=NEARBY)
    for number in range(rows):
        file = number * files // rows
        uid = repeated(chance, early, nearby) or f"R{number:09}"
        (make,) = chance.choices(makes, weights)
        line = make(retailer(uid, chance), ENDS[file % 2])
        if line.stored is not None:
            if len(early) < EARLY:
                early.append(uid)
            nearby.append(uid)
        yield file, line


def retailer(uid: str, chance: random.Random) -> Retailer:
    shop = f"{chance.choice(TRADES)} {chance.choice(OWNERS)}"
    return Retailer(
        uid=uid,
        name=f"{shop} {chance.randrange(1000)}",
        phone=f"+49 {chance.randrange(100, 999)} {chance.randrange(10**6):06}",
        region=chance.choice(list(REGIONS)),
        points=str(chance.randrange(500)),
    )


def repeated(chance: random.Random, early: list[str], nearby: deque[str]) -> str | None:
    """Return an earlier key, with the probability of `REPEATS`."""
    drawn = chance.randrange(1000)
    if not nearby or drawn >= sum(REPEATS.values()):
        return None
    return chance.choice(nearby if drawn < REPEATS["near"] else early)


class Truth:
    """The expected result of an import of these files into an empty table."""

    def __init__(self) -> None:
        self._kinds: Counter[str] = Counter()
        self._inserted = 0
        self._highest = ""

    def note(self, line: Line) -> None:
        self._kinds[line.kind] += 1
        # new keys rise, and a repeated one is never higher
        if line.stored is not None and (uid := str(line.stored["uid"])) > self._highest:
            self._highest = uid
            self._inserted += 1

    def report(self) -> dict[str, object]:
        bad = dict(sorted(self._kinds.items()))
        well, empty = bad.pop("good", 0), bad.pop("empty", 0)
        return {
            "seen": self._kinds.total(),
            "inserted": self._inserted,
            "duplicates": well - self._inserted,
            "dropped": empty,
            "quarantined": sum(bad.values()),
            "bad": bad,
        }


def write(
    folder: Path, made: Iterator[tuple[int, Line]], *, compressed: bool, beside: Path
) -> Truth:
    """Write the files, and the good rows beside them; return the expected result."""
    folder.mkdir(parents=True, exist_ok=True)
    named = [f"{key},{name}\n" for key, name in REGIONS.items()]
    (folder / "regions.csv").write_text("".join(["id,name\n", *named]), "utf-8")
    truth = Truth()
    with beside.open("w", encoding="utf-8") as stored:
        for number, some in groupby(made, key=itemgetter(0)):
            path = folder / f"retailers-{number + 1}.csv{'.gz' if compressed else ''}"
            with open_out(path, compressed=compressed) as file:
                offset = file.write(heading(number))
                at = 2
                for _, line in some:
                    truth.note(line)
                    if line.stored is not None:
                        place = {"file": path.name, "line": at, "offset": offset}
                        stored.write(f"{json.dumps({**place, 'row': line.stored})}\n")
                    offset += file.write(line.raw)
                    at += len(line.raw.splitlines())
    return truth


def heading(number: int) -> bytes:
    mark, end = MARKS[number % 2], ENDS[number % 2]
    return mark + f"{','.join(Retailer._fields)}{end}".encode()


@contextmanager
def open_out(path: Path, *, compressed: bool) -> Iterator[BinaryIO]:
    with path.open("wb") as file:
        if not compressed:
            yield file
            return
        # without name and time, so that the same rows give the same bytes
        with gzip.GzipFile("", "wb", 6, file, mtime=0) as output:
            yield cast("BinaryIO", output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000, help="total number")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", type=int, default=2, help="number of files")
    parser.add_argument("--gzip", action="store_true", help="compress the files")
    parser.add_argument("--out", type=Path, required=True, help="the folder")
    parser.add_argument("--stored", action="store_true", help="also write stored.jsonl")
    options = parser.parse_args()
    made = lines(options.rows, seed=options.seed, files=options.files)
    beside = options.out / "stored.jsonl" if options.stored else Path(os.devnull)
    truth = write(options.out, made, compressed=options.gzip, beside=beside)
    report = json.dumps(truth.report(), indent=2) + "\n"
    (options.out / "truth.json").write_text(report, "utf-8")
    sys.stdout.write(report)


if __name__ == "__main__":
    main()
