"""Databases of earlier versions: migrated, served, and their imports finished."""

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.services.private import free_port
from tests.support.stores import PostgresStore, SqliteStore, Store
from tests.support.workshop import Workshop
from tests.upgrades.world import (
    CONFIG,
    FOLDER,
    SECOND_EDITION,
    environment,
    expected_shops,
    provider,
    write_shops,
)
from tests.upgrades.write import request, wait_for

VERSIONS = sorted(path.name.removesuffix(".json") for path in FOLDER.glob("*.json"))
COUNTRIES = {44, 80, 87, 159}
BAD_POINTS, BAD_SHOPS = 6, 18


@dataclass(frozen=True)
class Upgraded:
    """A restored database, the commands on it, and what clients hold of it."""

    workshop: Workshop
    given: dict[str, Any]

    def states(self) -> dict[str, list[str]]:
        """Return the states of the imports of each dataset, in their order."""
        found: dict[str, list[str]] = {}
        for row in self.workshop.ask(
            "select dataset, status from penstock_import order by id"
        ):
            found.setdefault(row["dataset"], []).append(row["status"])
        return found

    def command(self, *arguments: str) -> None:
        ran = self.workshop.penstock(*arguments)
        assert ran.code == 0, ran.out + ran.err

    def count(self, rows: str) -> int:
        return int(self.workshop.ask(f"select count(*) as n from {rows}")[0]["n"])


Restore = Callable[[str], Upgraded]


@pytest.fixture(params=["sqlite", "postgres"])
def restore(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Restore]:
    is_sqlite = request.param == "sqlite"
    url = None if is_sqlite else request.getfixturevalue("postgres_database")
    with provider() as sandbox:
        opened: list[Workshop] = []

        def restored(version: str) -> Upgraded:
            store, database = (
                restore_file(tmp_path, version)
                if url is None
                else restore_dump(url, version)
            )
            workshop = Workshop(tmp_path, sandbox, store)
            opened.append(workshop)
            workshop.environ.update(environment(sandbox, database, moved=False))
            workshop.config.write_bytes(CONFIG.read_bytes())
            write_shops(tmp_path, SECOND_EDITION)
            given = json.loads((FOLDER / f"{version}.json").read_text("utf-8"))
            upgraded = Upgraded(workshop, given[request.param])
            upgraded.command("migrate")
            return upgraded

        yield restored
        for workshop in opened:
            workshop.clean()


def restore_file(folder: Path, version: str) -> tuple[Store, str]:
    packed = (FOLDER / f"{version}.db.gz").read_bytes()
    (folder / "penstock.db").write_bytes(gzip.decompress(packed))
    return SqliteStore(folder), "sqlite:///penstock.db"


def restore_dump(url: str, version: str) -> tuple[Store, str]:
    # slow to import, and only one of the two needs a driver
    import psycopg

    statements = gzip.decompress((FOLDER / f"{version}.sql.gz").read_bytes())
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute(statements)
    return PostgresStore(url), url


def is_good(point: dict[str, Any]) -> bool:
    """Judge a point of the provider by what the declaration demands."""
    address, number = point["AddressInfo"], point.get("NumberOfPoints")
    return (
        address["CountryID"] in COUNTRIES
        and "ID" in point
        and address["Title"] is not None
        and abs(address["Latitude"]) <= 90
        and (number is None or isinstance(number, int))
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_imports_of_an_earlier_version_are_finished(version: str, restore: Restore):
    upgraded = restore(version)
    assert upgraded.states() == {
        "poi": ["done", "running"],
        "shops": ["done", "running"],
        "failed": ["failed"],
        "planning": ["planning"],
    }

    upgraded.command("jobs", "retry", "--failed")
    upgraded.command("run", "planning")
    upgraded.command("worker", "--until-idle")

    # those that were unfinished went on; none began anew
    assert upgraded.states() == {
        "poi": ["done", "done"],
        "shops": ["done", "done"],
        "failed": ["done"],
        "planning": ["done"],
    }
    assert upgraded.count("penstock_import where proven = true") == 6
    for name in ("poi", "shops", "planning", "failed"):
        upgraded.command("audit", name)
    assert_rows_are_those_of_the_source(upgraded)


def assert_rows_are_those_of_the_source(upgraded: Upgraded) -> None:
    workshop = upgraded.workshop
    shops = workshop.ask("select id, name from shops where _deleted_at is null")
    assert {row["id"]: row["name"] for row in shops} == expected_shops(SECOND_EDITION)
    provided = workshop.sandbox.expected().values()
    titles = {
        each["ID"]: each["AddressInfo"]["Title"].strip()
        for each in provided
        if is_good(each)
    }
    assert {key: row["title"] for key, row in workshop.rows().items()} == titles
    open_rows = "penstock_quarantine where resolved is null and dataset ="
    assert upgraded.count(f"{open_rows} 'poi'") == BAD_POINTS
    assert upgraded.count(f"{open_rows} 'shops'") == BAD_SHOPS
    noted = workshop.ask("select note from poi where id = ?", upgraded.given["noted"])
    assert noted == [{"note": "seen"}]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_clients_hold_of_an_earlier_version_is_understood(
    version: str, restore: Restore
):
    upgraded, port = restore(version), free_port()
    upgraded.workshop.start("serve", "--port", str(port))
    wait_for(f"http://127.0.0.1:{port}/api/ready")
    base, given = f"http://127.0.0.1:{port}/api/v1/datasets/poi", upgraded.given

    _, listed = request(f"{base}/records?limit=10&sort=id")
    _, following = request(f"{base}/records?limit=10&sort=id&cursor={given['cursor']}")
    _, changes = request(f"{base}/changes?after={given['changes_next']}&limit=500")

    assert [row["id"] for row in listed["items"]] == given["list"]
    assert following["items"][0]["id"] > given["list"][-1]
    seqs = [each["seq"] for each in changes["items"]]
    assert seqs == list(range(given["changes_next"] + 1, seqs[-1] + 1))
