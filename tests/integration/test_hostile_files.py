"""Whatever a file holds: every row is stored as it stands, or is bad."""

import json
import os
import sys
from pathlib import Path
from random import Random, SystemRandom

import pytest

from penstock.adapters.csv.file_scanner import FileScanner
from penstock.adapters.csv.limits import FileLimits
from penstock.adapters.csv.source import CsvSourceReader
from penstock.domain.dataset import Dataset
from penstock.domain.mapping.mapper import Mapper
from penstock.domain.pages import Record, Rejection, RowLocation
from penstock.domain.sharding.axes import FileAxis
from penstock.domain.sharding.shard import Shard
from penstock.domain.source import CsvSource, UnclosedQuote
from penstock.errors import Misconfigured, Rejected
from tests.support.builders import dataset, text_field
from tests.support.hostile_files import (
    MAX_RECORD,
    NAMES,
    HostileFile,
    make_hostile_file,
)
from tests.support.strict_csv import (
    StrictRecord,
    find_flaw,
    find_open_quote,
    has_trailing_delimiters,
    is_one_name_short,
    read_strictly,
)

NULL = ("", "NULL")
# a row and where it stands: its values, or why it is bad
Outcome = tuple[RowLocation | None, tuple[object, ...] | str]
SOAK_FILES = int(os.environ.get("PENSTOCK_SOAK_FILES", "5000"))


@pytest.mark.parametrize("batch", range(4))
def test_a_hostile_file_is_stored_as_it_stands_or_is_bad(tmp_path, batch):
    read = sum(holds(tmp_path, seed) for seed in range(batch, 120, 4))

    # most files can be read, so most of the time something is judged
    assert read > 15


@pytest.mark.slow
def test_thousands_of_hostile_files_are_stored_as_they_stand_or_are_bad(
    tmp_path, capsys
):
    first = int(os.environ.get("PENSTOCK_SEED", SystemRandom().randrange(2**32)))
    with capsys.disabled():
        sys.stdout.write(f"\nhostile files: PENSTOCK_SEED={first}\n")

    read = sum(holds(tmp_path, first + each) for each in range(SOAK_FILES))

    assert read > SOAK_FILES / 2


def holds(folder: Path, seed: int) -> bool:
    """Judge one file; say whether it was read at all."""
    file = make_hostile_file(seed)
    chance = Random(seed)
    policy = chance.choice([*UnclosedQuote])
    declared = declare(folder, file, policy)
    records = read_strictly(file.plain, file.declared, start=file.mark)
    header, rows = split_header(records)
    is_sound = header is not None and read_header(header, file) == NAMES
    is_short = is_one_name_short(rows, len(NAMES))
    axis = survey(declared)
    has_rows = header is not None and header is not records[-1]
    is_taken = is_sound and has_rows and not is_short
    assert isinstance(axis, FileAxis) == is_taken, (seed, axis)
    if not isinstance(axis, FileAxis):
        return False
    outcomes, failure = read_all(declared, axis, chance)
    expected, open_line = judge(file, rows, policy)
    assert outcomes == expected, seed
    assert (failure is None) == (open_line is None), (seed, failure)
    if failure is not None:
        assert f"the quote on line {open_line} is n" in failure, seed
    return True


def survey(declared: Dataset) -> FileAxis | str:
    """Return the shards of a file, or why it is refused."""
    try:
        return FileScanner(lambda _: None)(declared)
    except Misconfigured as error:
        return str(error)


def declare(folder: Path, file: HostileFile, policy: UnclosedQuote) -> Dataset:
    (folder / "hostile.csv").write_bytes(file.raw)
    source = CsvSource(
        files=("hostile.csv",),
        folder=str(folder),
        shard=file.shard,
        null=NULL,
        delimiter=file.declared.delimiter,
        quote=file.declared.quote,
        escape=file.declared.escape,
        encoding=file.declared.encoding,
        unclosed_quote=policy,
    )
    fields = (
        text_field("id", trim=False, required=True),
        text_field("name", trim=False),
        text_field("note"),
    )
    return dataset("hostile", fields=fields, source=source)


def read_all(
    declared: Dataset, axis: FileAxis, chance: Random
) -> tuple[list[Outcome], str | None]:
    """Read the shards in order, now and then by a new process; the error, if any."""
    limits = FileLimits(
        rows=chance.choice([1, 7, 5000]),
        bytes=chance.choice([50, 700, 1 << 20]),
        record=MAX_RECORD,
    )
    mapper = Mapper(declared)
    outcomes: list[Outcome] = []
    source = CsvSourceReader(declared, limits=limits)
    for part in axis.slices:
        shard, position = Shard((axis,), (part,)), None
        while True:
            if chance.random() < 0.2:
                source = CsvSourceReader(declared, limits=limits)
            try:
                page = source.fetch(shard, position, since=None)
            except Rejected as error:
                return outcomes, str(error)
            rows = sorted([*page.rows, *page.bad_rows], key=lambda row: row.place or ())
            outcomes += [(row.place, outcome_of(mapper(row))) for row in rows]
            if page.next is None:
                break
            position = json.loads(json.dumps(page.next))
    return outcomes, None


def outcome_of(mapped: Record | Rejection) -> tuple[object, ...] | str:
    return mapped.values if isinstance(mapped, Record) else mapped.reason.value


def split_header(
    records: list[StrictRecord],
) -> tuple[StrictRecord | None, list[StrictRecord]]:
    """Return the first record that is not empty, and those behind it."""
    for at, record in enumerate(records):
        if record.values:
            return record, [each for each in records[at + 1 :] if each.values]
    return None, []


def read_header(header: StrictRecord, file: HostileFile) -> tuple[str, ...] | None:
    """Return the names, if all of them can be read."""
    width = len(header.values)
    flaw = find_flaw(
        header, file.declared, width=width, is_trailing=False, most=1 << 20
    )
    return None if flaw else tuple(value.strip() for value in header.values)


def judge(
    file: HostileFile, rows: list[StrictRecord], policy: UnclosedQuote
) -> tuple[list[Outcome], int | None]:
    """Say what has to become of each row, and where reading has to fail, if it has."""
    is_trailing = has_trailing_delimiters(rows, len(NAMES))
    outcomes: list[Outcome] = []
    for record in rows:
        flaw = find_flaw(
            record,
            file.declared,
            width=len(NAMES),
            is_trailing=is_trailing,
            most=MAX_RECORD,
        )
        open_line = find_open_quote(record, file.declared, most=MAX_RECORD)
        if open_line is not None and policy is UnclosedQuote.FAIL:
            return outcomes, open_line
        place = RowLocation(line=record.line, offset=record.offset)
        outcomes.append((place, flaw or as_declared(record.values[: len(NAMES)])))
    return outcomes, None


def as_declared(values: list[str]) -> tuple[object, ...] | str:
    """Return the values as they are declared to be stored."""
    key, name, note = (None if value in NULL else value for value in values)
    if key is None:
        return "missing"
    return key, name, None if note is None else note.strip() or None
