"""How near the import loop comes to a bare script that does none of its work."""

import json
import sqlite3
import time
import urllib.parse
from pathlib import Path

import msgspec
import urllib3

from bench.stage import PAGE, folder, provider, run, verdict

FULL, SMALL = 200_000, 2_000
LEAST_RECORDS_A_SECOND = 30_000
LEAST_OF_BARE = 0.3


class Address(msgspec.Struct):
    Title: str | None = None
    Town: str | None = None
    CountryID: int | None = None
    Latitude: float | None = None
    Longitude: float | None = None


class Point(msgspec.Struct):
    ID: int
    AddressInfo: Address
    NumberOfPoints: int | None = None


def bare(url: str, path: Path) -> float:
    """Fetch the same pages and insert them: no ledger, no checks, no proof."""
    started = time.monotonic()
    connection = sqlite3.connect(path / "bare.db")
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
    connection.execute(
        "create table poi (id integer primary key, title, town, country, lat, lon, n)"
    )
    decode = msgspec.json.Decoder(list[Point]).decode
    pool = urllib3.PoolManager()
    after = 0
    while True:
        query = urllib.parse.urlencode(
            {
                "output": "json",
                "compact": "true",
                "sortby": "id_asc",
                "maxresults": PAGE,
                "greaterthanid": after,
            }
        )
        points = decode(pool.request("GET", f"{url}?{query}").data)
        if not points:
            break
        with connection:
            connection.executemany(
                "insert or replace into poi values (?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        p.ID,
                        p.AddressInfo.Title,
                        p.AddressInfo.Town,
                        p.AddressInfo.CountryID,
                        p.AddressInfo.Latitude,
                        p.AddressInfo.Longitude,
                        p.NumberOfPoints,
                    )
                    for p in points
                ],
            )
        after = points[-1].ID
    connection.close()
    return time.monotonic() - started


def measure(*, small: bool = False) -> bool:
    records = SMALL if small else FULL
    # ids have gaps: about three for every point
    last_id = records * 4
    with provider("--small", "--records", str(records)) as url:
        # the provider makes its points when they are first asked for
        urllib3.PoolManager().request("GET", f"{url}?maxresults={records}")
        with folder(url, until=last_id, step=last_id // 8) as path:
            limit = bare(url, path)
            first = run(path, "--threads", "1")
            again = run(path, "--threads", "1")
    seen = first["records"]["seen"]
    rate = seen / first["seconds"]
    rate_again = seen / again["seconds"]
    bare_rate = records / limit
    print(json.dumps({"first": first["records"], "again": again["records"]}))
    return verdict(
        "throughput",
        holds=rate >= LEAST_RECORDS_A_SECOND and rate >= LEAST_OF_BARE * bare_rate,
        message=f"{rate:,.0f} records/s a process, {rate / bare_rate:.2f} of a bare "
        f"one ({bare_rate:,.0f}/s); unchanged again {rate_again:,.0f}/s, "
        f"{rate_again / rate:.2f} times the first",
    )
