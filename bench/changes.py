"""How long an import takes that changes rows, beside the first one of the same rows.

One dataset, from an API and from a file, into PostgreSQL and SQLite, with and without
indexes: its first import, the same again, and then a tenth, most and all of its rows
changed. Everything counts from starting `penstock run` until it has ended.
"""

import contextlib
import csv
import json
import subprocess
import tempfile
import time
from pathlib import Path

from bench.pages import PAGE, record
from bench.server import server
from bench.stage import PENSTOCK, served, verdict

# many enough that starting the command is little of the shortest import
ROWS = 400_000
# of a hundred rows, how many are changed by each import after the second
SHARES = (10, 80, 100)
MOST_CHANGED = 2.5
MOST_UNCHANGED = 0.25
INDEXES = {
    "no indexes": "",
    "filter": 'filter = ["country", "points"]',
    "filter and search": 'filter = ["country", "points"]\nsearch = ["name", "town"]',
}

CONFIG = """\
[penstock]
database = "{database}"

[datasets.points]
key = "id"
{indexes}

[datasets.points.fields]
id = {{ type = "int" }}
name = {{ required = true, max_length = 200 }}
town = {{}}
country = {{}}
lat = {{ type = "float", min = -90, max = 90 }}
lon = {{ type = "float", min = -180, max = 180 }}
points = {{ type = "int" }}
updated_at = {{ type = "timestamp" }}

[datasets.points.source]
{source}
"""
HTTP = """\
type = "http"
url = "{url}"

[datasets.points.source.pages]
by = "keyset"
send = "after"
field = "id"
size = {{ send = "limit", value = {page} }}

[datasets.points.shards]
ids = {{ kind = "range", from = 0, until = {rows}, step = {step} }}
"""
CSV = """\
type = "csv"
files = "{file}"
delimiter = ","
encoding = "utf-8"
"""


def run(folder, text):
    """Import what a configuration declares; return the seconds, and the counts."""
    Path(folder, "penstock.toml").write_text(text, encoding="utf-8")
    subprocess.run([*PENSTOCK, "migrate"], cwd=folder, check=True)
    began = time.monotonic()
    done = subprocess.run(
        [*PENSTOCK, "run", "points", "--json"],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds = time.monotonic() - began
    document = json.loads(done.stdout)
    assert document["proven"], document
    return seconds, document["records"]


def measure_shares(database, source_of, indexes):
    """Return the seconds of the first import, of the same again, and of changes."""
    found: list[float] = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        for share in (0, 0, *SHARES):
            text = CONFIG.format(
                database=database, indexes=indexes, source=source_of(share)
            )
            seconds, records = run(folder, text)
            expected = share * ROWS // 100 if found else ROWS
            changed = records["updated" if found else "inserted"]
            assert changed == expected, (share, records)
            found.append(seconds)
    return found


def compare(database, source_of, name, indexes):
    first, again, *changed = measure_shares(database, source_of, indexes)
    shares = ", ".join(
        f"{share} % changed {seconds / first:.2f}"
        for share, seconds in zip(SHARES, changed, strict=True)
    )
    return verdict(
        name,
        holds=max(changed) <= MOST_CHANGED * first and again <= MOST_UNCHANGED * first,
        message=f"first {ROWS / first:,.0f} rows/s; of its time, "
        f"unchanged {again / first:.2f}, {shares}",
    )


def write_file(path, share):
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(record(0))
        rows.writerows(record(at, share).values() for at in range(ROWS))


@contextlib.contextmanager
def sources():
    """Yield how each source is declared whose rows are changed by a share."""
    shares = map(str, SHARES)
    with (
        served("bench.pages", str(ROWS), *shares) as url,
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
    ):
        for share in (0, *SHARES):
            write_file(Path(folder, f"{share}.csv"), share)

        def of_api(share):
            return HTTP.format(
                url=f"{url}/{share}", page=PAGE, rows=ROWS, step=ROWS // 20
            )

        def of_file(share):
            return CSV.format(file=Path(folder, f"{share}.csv"))

        yield {"API": of_api, "file": of_file}


def measure():
    with server() as postgres, sources() as known:
        # a server that was just made gets its memory and its files for the first time
        with postgres.database() as database:
            measure_shares(database, known["API"], "")
        held = []
        for kind, source_of in known.items():
            for named, indexes in INDEXES.items():
                with postgres.database() as database:
                    name = f"changed rows, {kind} into PostgreSQL, {named}"
                    held.append(compare(database, source_of, name, indexes))
                name = f"changed rows, {kind} into SQLite, {named}"
                held.append(compare("sqlite:///bench.db", source_of, name, indexes))
    return all(held)
