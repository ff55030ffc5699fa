"""Real files: two snapshots of one list, lists without a key, blanks, and oddities."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.shops import counts_of, only
from tests.support.workshop import Workshop

NHS = 27
SNAP_KEY = ["Store_Name", "Address", "Zip5"]
ODD = (
    "comma_in_quotes",
    "empty",
    "empty_crlf",
    "escaped_quotes",
    "json",
    "newlines",
    "newlines_crlf",
    "quotes_and_newlines",
    "simple",
    "simple_crlf",
    "utf8",
)


@pytest.fixture
def workshop(tmp_path: Path):
    opened = Workshop(tmp_path)
    yield opened
    opened.clean()


def declare(
    workshop: Workshop, columns: list[str], *, key: list[str], source: str = ""
) -> None:
    """Declare every column of list.csv as a text that is kept as it is."""
    names = {column: f"c{at}" for at, column in enumerate(columns)}
    fields = "\n".join(
        f"{name} = {{ column = {json.dumps(column)}, trim = false }}"
        for column, name in names.items()
    )
    workshop.config.write_text(
        f"[datasets.list]\nkey = {json.dumps([names[each] for each in key])}\n"
        f"[datasets.list.fields]\n{fields}\n"
        f'[datasets.list.source]\ntype = "csv"\nfiles = "list.csv"\n{source}\n',
        encoding="utf-8",
    )


def import_file(workshop: Workshop, path: Path) -> dict[str, Any]:
    """Import a file where it is, and return the counts that are not zero."""
    link = workshop.folder / "list.csv"
    link.unlink(missing_ok=True)
    link.symlink_to(path)
    ran = workshop.penstock("run", "list", "--json")
    assert ran.code == 0, ran.err
    assert workshop.penstock("audit", "list").code == 0
    return only(counts_of(ran))


def stored(workshop: Workshop, width: int) -> list[tuple[str, ...]]:
    names = [f"c{at}" for at in range(width)]
    rows = workshop.ask(f"select {', '.join(names)} from list")
    return sorted(tuple(row[name] or "" for name in names) for row in rows)


def rows_of(path: Path) -> list[tuple[str, ...]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return [tuple(row) for row in csv.reader(file)]


def test_a_second_snapshot_brings_exactly_what_is_different(real_data, workshop):
    columns = [str(at) for at in range(NHS)]
    text = f"header = false\ncolumns = {json.dumps(columns)}"
    declare(workshop, columns, key=["0"], source=text)
    before = real_data / "nhs-epraccur-2019-10.csv.gz"
    after = real_data / "nhs-epraccur-2019-12.csv.gz"

    assert import_file(workshop, before) == {"seen": 14_303, "inserted": 14_303}
    assert stored(workshop, NHS) == sorted(rows_of(before))
    assert import_file(workshop, before) == {"seen": 14_303, "unchanged": 14_303}
    assert import_file(workshop, after) == {
        "seen": 14_357,
        "inserted": 54,
        "updated": 623,
        "unchanged": 13_680,
    }
    assert stored(workshop, NHS) == sorted(rows_of(after))


@pytest.mark.parametrize(
    ("name", "key"),
    [("snap-retailers-MA", SNAP_KEY), ("ourairports-runways", ["id"])],
)
def test_every_row_of_a_real_list_is_stored_as_it_is(real_data, workshop, name, key):
    path = real_data / f"{name}.csv.gz"
    header, *rows = rows_of(path)
    declare(workshop, list(header), key=key)

    counts = import_file(workshop, path)

    assert counts == {"seen": len(rows), "inserted": len(rows)}
    assert stored(workshop, len(header)) == sorted(rows)


@pytest.mark.parametrize("name", ODD)
def test_an_odd_file_is_read_as_everybody_agrees(real_data, workshop, name):
    folder = real_data / "csv-spectrum"
    expected = json.loads((folder / "json" / f"{name}.json").read_text("utf-8"))
    columns = list(expected[0])
    declare(workshop, columns, key=columns[:1])

    import_file(workshop, folder / "csvs" / f"{name}.csv")

    assert stored(workshop, len(columns)) == sorted(
        tuple(row.values()) for row in expected
    )


def test_quotes_within_a_plain_value_are_read_as_they_stand(real_data, workshop):
    folder = real_data / "csv-spectrum"
    body = (folder / "json" / "location_coordinates.json").read_text("utf-8")
    # the pair disagrees about the first column, a phone number
    columns, expected = [*json.loads(body)], [*json.loads(body).values()]
    declare(workshop, columns, key=columns[:1])

    import_file(workshop, folder / "csvs" / "location_coordinates.csv")

    (row,) = stored(workshop, len(columns))
    assert list(row[1:]) == expected[1:]
