"""Files of shops, the dataset that declares them, and how its imports are judged."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.workshop import Ran, Workshop

DATASET = """\
[datasets.shops]
key = "id"
{dataset}

[datasets.shops.fields]
id = {{ type = "int" }}
name = {{ required = true }}
points = {{ type = "int", min = 0 }}

[datasets.shops.source]
type = "csv"
files = "{files}"
timeout = "500ms"
{source}
"""
HEADER = b"id,name,points\n"
# what becomes of a row; each has exactly one of these fates
FATES = (
    "inserted",
    "updated",
    "unchanged",
    "duplicates",
    "quarantined",
    "dropped",
)

Shops = dict[int, tuple[str, int | None]]


def shops(*, files: str = "*.csv", dataset: str = "", source: str = "") -> str:
    """Write the dataset; the other arguments are pieces of TOML."""
    return DATASET.format(files=files, dataset=dataset, source=source)


def some_shops(count: int, *, first: int = 1) -> Shops:
    """Make shops whose names now and then hold what has to be quoted."""
    odd = {3: 'a "good" one', 7: "two\nlines", 11: "comma, comma", 13: "Café Zoë"}
    return {
        number: (odd.get(number % 100, f"shop {number}"), number % 50)
        for number in range(first, first + count)
    }


def lines(shops: Mapping[int, tuple[str, int | None]]) -> bytes:
    return b"".join(line(key, *values) for key, values in shops.items())


def line(key: int, name: str, points: int | None) -> bytes:
    text = "" if points is None else points
    return f'{key},"{name.replace(chr(34), chr(34) * 2)}",{text}\n'.encode()


def write(path: Path, *parts: bytes) -> None:
    path.write_bytes(b"".join([HEADER, *parts]))


def stored(workshop: Workshop) -> Shops:
    live = workshop.ask("select id, name, points from shops where _deleted_at is null")
    return {row["id"]: (row["name"], row["points"]) for row in live}


def import_files(workshop: Workshop, *arguments: str) -> dict[str, Any]:
    """Run an import that has to succeed; return what became of the rows."""
    ran = workshop.penstock("run", "shops", *arguments, "--json", timeout=110)
    assert ran.code == 0, ran.out + ran.err
    counts = counts_of(ran)
    assert workshop.penstock("audit", "shops").code == 0
    return counts


def counts_of(ran: Ran) -> dict[str, Any]:
    """Return what became of the rows; none may be without a fate, or have two."""
    counts: dict[str, Any] = ran.json["records"]
    assert counts["seen"] == sum(counts[fate] for fate in FATES), counts
    return counts


def only(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts that are not zero."""
    return {name: count for name, count in counts.items() if count}


def bad_rows(workshop: Workshop) -> list[dict[str, Any]]:
    result = workshop.penstock("quarantine", "shops", "--limit", "1000", "--json")
    rows: list[dict[str, Any]] = result.json["rows"]
    return rows


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


def committed(workshop: Workshop) -> list[dict[str, Any]]:
    """Return the pages of all jobs in the order in which they were committed."""
    return workshop.ask(
        "select job_id, page_seq, seen from penstock_page order by committed_at"
    )
