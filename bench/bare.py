"""The script that Penstock is held against: fetch a page, COPY it, the next.

`python -m bench.bare URL DATABASE RECORDS PROCESSES THREADS [INDEX…]`: one transaction
a page into a table with the same columns and key, the indexes at the end. No ledger, no
fence, no budget, no mapping, no comparison: it cannot be run twice, nor go on after a
crash.
"""

import multiprocessing
import sys
import threading
from datetime import datetime

import msgspec
import psycopg
import urllib3

from bench.pages import PAGE

COLUMNS = {
    "id": "bigint primary key",
    "name": 'text collate "C"',
    "town": 'text collate "C"',
    "country": 'text collate "C"',
    "lat": "double precision",
    "lon": "double precision",
    "points": "bigint",
    "updated_at": "timestamptz",
}
TYPES = ["int8", "text", "text", "text", "float8", "float8", "int8", "timestamptz"]


class Point(msgspec.Struct):
    id: int
    name: str
    town: str
    country: str
    lat: float
    lon: float
    points: int
    updated_at: datetime


def fetch_and_copy(url, database, start, end):
    """Copy the pages between two ids."""
    pool = urllib3.PoolManager()
    decode = msgspec.json.Decoder(list[Point]).decode
    copy_points = f"copy points ({', '.join(COLUMNS)}) from stdin (format binary)"
    with psycopg.connect(database) as connection:
        after = start - 1
        while after < end - 1:
            request = f"{url}?after={after}&limit={PAGE}"
            points = decode(pool.request("GET", request).data)
            with connection.cursor().copy(copy_points) as copy:
                copy.set_types(TYPES)
                for point in points:
                    copy.write_row(msgspec.structs.astuple(point))
            connection.commit()
            after = points[-1].id


def split(start, end, parts):
    """Yield so many parts of the ids, or fewer, of whole pages."""
    step = -(-(end - start) // (parts * PAGE)) * PAGE
    for at in range(start, end, step):
        yield at, min(at + step, end)


def share(url, database, start, end, threads):
    """Copy a share of the pages with threads of this process."""
    running = [
        threading.Thread(
            target=fetch_and_copy, args=(url, database, *part), daemon=True
        )
        for part in split(start, end, threads)
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def main():
    url, database = sys.argv[1:3]
    records, processes, threads = map(int, sys.argv[3:6])
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    with psycopg.connect(database) as connection:
        connection.execute(f"create table points ({columns})")
    running = [
        multiprocessing.Process(target=share, args=(url, database, *part, threads))
        for part in split(0, records, processes)
    ]
    for process in running:
        process.start()
    for process in running:
        process.join()
    with psycopg.connect(database, autocommit=True) as connection:
        for index in sys.argv[6:]:
            connection.execute(f"create index on points {index}")
        connection.execute("analyze points")


if __name__ == "__main__":
    main()
