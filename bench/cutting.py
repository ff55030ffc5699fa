"""How near cutting a huge file comes to reading it from the disk, past all caches."""

import mmap
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.stage import verdict
from penstock.adapters.csv.dialect import DeclaredDialect
from penstock.adapters.csv.header import read_header
from penstock.adapters.csv.splitter import split_file

BLOCK = 1024**2
LEAST_OF_DISK = 0.6
HEADER = "uid,name,street,town,country,lat,lon,since"
LINES = {
    "no quotes, \\n": "R00012345,Shop of the river,Main street 5,Berlin,DE,"
    "52.5200,13.4050,2024-01-05\n",
    "some quotes, \\r\\n": 'R00012345,"Shop ""of"" the river","Main street, 5",Berlin,'
    "DE,52.5200,13.4050,2024-01-05\r\n",
    "all quoted, \\n": '"R00012345","Shop ""of"" the river","Main street, 5","Berlin",'
    '"DE","52.5200","13.4050","2024-01-05"\n',
    "quotes in text, \\n": 'R00012345,Shop for 5" pipes,"Main street, 5",Berlin,DE,'
    "52.5200,13.4050,2024-01-05\n",
}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large the file and its shards are, and how often it is cut."""

    file: int
    shard: int
    turns: int


FULL = Sizes(file=512 * 1024**2, shard=64 * 1024**2, turns=7)
SMALL = Sizes(file=2 * 1024**2, shard=1024**2, turns=1)


def write(path: Path, line: str, size: int) -> None:
    many = (line * (BLOCK // len(line))).encode()
    with path.open("wb") as file:
        file.write(f"{HEADER}\n".encode())
        while file.tell() < size:
            file.write(many)
        file.flush()
        os.fsync(file.fileno())


def read_disk(path: Path) -> None:
    """Read a file past the caches of this machine."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        # memory that is aligned as the disk wants it
        with mmap.mmap(-1, BLOCK) as block:
            while os.readv(handle, [block]):
                pass
    finally:
        os.close(handle)


def forget(path: Path) -> None:
    """Have the next reader read from the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def time_disk(path: Path) -> float:
    began = time.perf_counter()
    read_disk(path)
    return time.perf_counter() - began


def time_cut(path: Path, shard: int) -> float:
    head = read_header(path, DeclaredDialect(delimiter=",", encoding="utf-8"))
    forget(path)
    began = time.perf_counter()
    cuts = split_file(path, head, size=shard)
    spent = time.perf_counter() - began
    assert cuts.unclosed is None
    assert len(cuts.ranges) >= path.stat().st_size // shard, cuts.ranges
    return spent


def measure_kind(path: Path, kind: str, sizes: Sizes) -> bool:
    """Cut and read by turns: the disk of a shared machine is never the same twice."""
    write(path, LINES[kind], sizes.file)
    size = path.stat().st_size / 1e6
    turns = [(time_disk(path), time_cut(path, sizes.shard)) for _ in range(sizes.turns)]
    disk, cutting = (median(times) for times in zip(*turns, strict=True))
    return verdict(
        f"cutting a file with {kind}",
        holds=disk / cutting >= LEAST_OF_DISK,
        message=f"{size / cutting:,.0f} MB/s, {disk / cutting:.2f} of the disk's "
        f"{size / disk:,.0f} MB/s (medians of {sizes.turns})",
    )


def measure(*, small: bool = False) -> bool:
    sizes = SMALL if small else FULL
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        path = Path(name, "retailers.csv")
        held = [measure_kind(path, kind, sizes) for kind in LINES]
    return all(held)
