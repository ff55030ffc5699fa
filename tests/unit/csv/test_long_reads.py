"""Whoever reads for a long time says so all the while, and stops when told."""

import gzip
from pathlib import Path

import pytest

from penstock.adapters.csv.file_scanner import FileScanner
from penstock.adapters.csv.limits import FileLimits
from penstock.adapters.csv.source import CsvSourceReader
from penstock.domain.dataset import Dataset
from penstock.domain.pages import Position
from penstock.domain.sharding.shard import Shard
from penstock.domain.source import CsvSource
from penstock.errors import Interrupted
from tests.support.builders import dataset, int_field, text_field

MIB = 1024 * 1024
LIMITS = FileLimits(rows=1_000, bytes=64 * 1024)


def shops(folder: Path) -> Dataset:
    fields = (int_field("id"), text_field("name"))
    source = CsvSource(files=("*",), folder=str(folder))
    return dataset("shops", fields=fields, source=source)


def only_shard(of: Dataset) -> Shard:
    axis = FileScanner(print)(of)
    (part,) = axis.slices
    return Shard((axis,), (part,))


def lines(size: int) -> bytes:
    """Return rows of about so many bytes."""
    row = b"1,%s\n" % (b"x" * 97)
    return b"id,name\n" + row * (size // len(row))


def position_after(of: Dataset, shard: Shard, size: int) -> Position:
    """Read a file up to about so many bytes, by somebody who is then gone."""
    source, position = CsvSourceReader(of, limits=LIMITS), None
    while True:
        position = source.fetch(shard, position, since=None).next
        assert position is not None
        if int(str(position["at"])) > size:
            return position


def test_passing_by_what_was_read_before_is_reported_all_the_while(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(lines(12 * MIB), 1))
    of = shops(tmp_path)
    shard = only_shard(of)
    position = position_after(of, shard, 10 * MIB)
    source, result = CsvSourceReader(of, limits=LIMITS), []

    source.get_ready(shard, position, lambda: result.append(1))
    ready = len(result)
    page = source.fetch(shard, position, since=None)

    assert ready >= 10
    # what was made ready is not done again
    assert len(result) - ready <= 2
    assert page.rows
    assert int(str(page.next and page.next["at"])) > 10 * MIB


def test_a_record_that_never_ends_is_reported_all_the_while(tmp_path):
    content = b'id,name\n1,a\n2,"' + b"x\n" * (4 * MIB)
    (tmp_path / "a.csv").write_bytes(content)
    of = shops(tmp_path)
    shard = only_shard(of)
    source, result = CsvSourceReader(of, limits=LIMITS), []

    source.get_ready(shard, None, lambda: result.append(1))
    source.fetch(shard, None, since=None)

    assert len(result) >= 100


def test_whoever_is_reported_to_stop_does_not_read_on(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(lines(12 * MIB), 1))
    of = shops(tmp_path)
    shard = only_shard(of)
    position = position_after(of, shard, 10 * MIB)
    source, result = CsvSourceReader(of, limits=LIMITS), []

    def stop_at_the_third() -> None:
        result.append(1)
        if len(result) == 3:
            raise Interrupted("asked to stop")

    with pytest.raises(Interrupted):
        source.get_ready(shard, position, stop_at_the_third)

    assert len(result) == 3
    # and another one begins anew
    source.get_ready(shard, position, lambda: result.append(1))
    assert len(result) > 10


def test_how_far_a_packed_file_is_read_is_reported_in_its_own_bytes(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(lines(4 * MIB), 0))
    of = shops(tmp_path)

    half = position_after(of, only_shard(of), 2 * MIB)

    assert half["packed"] == pytest.approx(path.stat().st_size / 2, rel=0.1)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_check_at_a_file_ends_when_it_is_to_stop(tmp_path, name):
    content = lines(8 * MIB)
    (tmp_path / name).write_bytes(
        gzip.compress(content, 0) if name.endswith("gz") else content
    )
    results = []

    def stop_at_the_third() -> None:
        results.append(1)
        if len(results) == 3:
            raise Interrupted("asked to stop")

    with pytest.raises(Interrupted):
        FileScanner(print)(shops(tmp_path), stop_at_the_third)

    assert len(results) == 3
