"""A value of any type is stored as it was written, from a file and from a provider.

`PENSTOCK_SEED=7` makes `make soak` begin with that draw.
"""

import csv
import json
import os
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random, SystemRandom

import pytest

from penstock.domain.dataset import FieldType
from penstock.entrypoints.cli.app import main
from tests.support.scripted_server import Reply, scripted_server
from tests.support.written_values import WrittenRow, draw_rows

USUAL, SOAK = 4, 200
ROWS = 100
NAMES = [f"a_{kind}" for kind in FieldType]
FIELDS = "\n".join(
    f'a_{kind} = {{ %s = "a_{kind}", type = "{kind}"'
    f"{', trim = false' if kind is FieldType.TEXT else ''} }}"
    for kind in FieldType
)
SOURCES = {
    "file": ("column", 'type = "csv"\nfiles = "values.csv"\ndelimiter = ","'),
    "provider": ("path", 'url = "{url}"\npages = {{ by = "single" }}'),
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch, capsys):
    """Return a function that imports rows and returns what was stored of them."""
    monkeypatch.chdir(tmp_path)

    def store(rows: Sequence[WrittenRow], source: str, number: int) -> list[object]:
        write_file(tmp_path / "values.csv", rows)
        where, table = SOURCES[source]
        database = tmp_path / f"{number}-{source}.db"
        with scripted_server() as server:
            headers = {"Content-Type": "application/json"}
            server.answers = lambda _: Reply(body=write_body(rows), headers=headers)
            (tmp_path / "penstock.toml").write_text(
                f'[penstock]\ndatabase = "sqlite:///{database.name}"\n'
                f'[datasets.kept]\nkey = "id"\n'
                f"[datasets.kept.source]\n{table.format(url=server.url)}\n"
                f'[datasets.kept.fields]\nid = {{ {where} = "id", type = "int" }}\n'
                + FIELDS.replace("%s", where)
            )
            monkeypatch.setattr(sys, "argv", ["penstock", "run", "kept", "--json"])
            with pytest.raises(SystemExit) as end:
                main()
        printed = capsys.readouterr()
        assert end.value.code == 0, printed
        assert json.loads(printed.out)["proven"]
        with closing(sqlite3.connect(database)) as connection:
            query = f"select {', '.join(NAMES)} from kept order by id"
            stored = connection.execute(query).fetchall()
        database.unlink()
        return stored

    return store


def write_file(path: Path, rows: Sequence[WrittenRow]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *NAMES])
        for number, row in enumerate(rows):
            writer.writerow([number, *(row[kind].cell for kind in FieldType)])


def write_body(rows: Sequence[WrittenRow]) -> bytes:
    records = []
    for number, row in enumerate(rows):
        values = (f'"a_{kind}": {row[kind].body}' for kind in FieldType)
        records.append(f'{{"id": {number}, {", ".join(values)}}}')
    return f"[{', '.join(records)}]".encode()


def compare(store, source: str, seed: int) -> None:
    chance = Random(seed)
    rows = draw_rows(chance, ROWS)

    stored = store(rows, source, seed)

    assert len(stored) == ROWS
    for row, values in zip(rows, stored, strict=True):
        for kind, value in zip(FieldType, values, strict=True):
            # which tells 1 from 1.0, too
            assert repr(value) == repr(row[kind].stored), (seed, kind, row[kind])


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("seed", range(USUAL))
def test_values_of_every_type_are_stored_as_written(store, source: str, seed: int):
    compare(store, source, seed)


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_many_more_values_are_stored_as_written(store, source: str, capsys):
    first = int(os.environ.get("PENSTOCK_SEED", SystemRandom().randrange(2**32)))
    with capsys.disabled():
        sys.stdout.write(f"\nwritten values: PENSTOCK_SEED={first}\n")

    for seed in range(first, first + SOAK):
        compare(store, source, seed)
