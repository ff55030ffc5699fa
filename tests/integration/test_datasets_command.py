"""Datasets as a whole, by the commands that list, drop and convert them."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.entrypoints.cli.app import main
from tests.support.shops import lines, shops, some_shops, write
from tests.support.workshop import BUGS, Ran

WRONG = shops().replace("name = { required = true }", 'name = { type = "int" }')
FLOATS = shops().replace('type = "int", min = 0', 'type = "float"')
OTHERS = shops().replace("datasets.shops", "datasets.others")

Penstock = Callable[..., Ran]


@pytest.fixture
def penstock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Penstock:
    """Run a command as its process would, beside a file of 20 shops."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.csv", lines(some_shops(20)))

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        code = end.value.code
        assert not any(word in err for word in BUGS), err
        return Ran(code if isinstance(code, int) else 0, out, err)

    return run


@pytest.fixture(params=["sqlite", "postgres"])
def declare(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], None]:
    database = (
        "sqlite:///penstock.db"
        if request.param == "sqlite"
        else request.getfixturevalue("postgres_database")
    )

    def write_settings(datasets: str) -> None:
        head = f'[penstock]\ndatabase = "{database}"\n\n'
        (tmp_path / "penstock.toml").write_text(head + datasets)

    return write_settings


def imported(penstock: Penstock) -> dict[str, Any]:
    ran = penstock("run", "shops", "--threads", "1", "--json")
    counts: dict[str, Any] = ran.json["records"]
    return counts


def test_a_wrong_type_is_corrected_after_an_import_that_stored_nothing(
    penstock: Penstock, declare
):
    declare(WRONG)
    penstock("migrate")
    assert imported(penstock)["quarantined"] == 20

    declare(shops())
    migrated = penstock("migrate", "--json")

    assert migrated.json["applied"] == ["create table shops anew: it has no rows"]
    assert imported(penstock)["inserted"] == 20


def test_a_dataset_that_is_no_longer_declared_is_dropped_when_reported_to(
    penstock: Penstock, declare, tmp_path: Path
):
    declare(shops())
    penstock("migrate")
    imported(penstock)
    declare(OTHERS)
    penstock("migrate")
    spooled = tmp_path / "spool" / "shops" / f"{'0' * 16}-a.csv"
    spooled.parent.mkdir(parents=True)
    spooled.touch()

    request = penstock("datasets", "drop", "shops")
    shown = penstock("datasets")
    listed = penstock("datasets", "--json").json["datasets"]
    dropped = penstock("datasets", "drop", "shops", "--yes", "--json")
    again = penstock("datasets", "drop", "shops", "--yes")

    assert (request.code, "add --yes" in request.err) == (2, True)
    assert "Remove dataset shops with 20 rows" in request.err
    assert "shops_live" in shown.out
    found = {each["name"]: each for each in listed}
    assert (found["shops"]["declared"], found["shops"]["rows"]) == (False, 20)
    assert found["shops"]["last_import"]["status"] == "done"
    assert (found["others"]["declared"], found["others"]["rows"]) == (True, 0)
    assert dropped.code == 0, dropped.err
    assert (dropped.json["dropped"], dropped.json["rows"]) == ("shops", 20)
    assert not spooled.parent.exists()
    assert (again.code, "nothing is stored of dataset" in again.err) == (2, True)


def test_what_is_not_stored_cannot_be_dropped(penstock: Penstock, declare):
    declare(shops())

    penstock("migrate")
    misspelt = penstock("datasets", "drop", "shop", "--yes")
    penstock("datasets", "drop", "shops", "--yes")
    declared = penstock("datasets", "drop", "shops", "--yes")

    assert declared.code == misspelt.code == 2
    assert "nothing is stored of dataset 'shops'" in declared.err
    assert "none is declared" not in declared.err
    assert "did you mean 'shops'?" in misspelt.err


def test_stored_values_are_converted_or_listed(penstock: Penstock, declare):
    declare(shops())
    penstock("migrate")
    imported(penstock)

    declare(WRONG)
    refused = penstock("migrate")
    lossy = penstock("datasets", "retype", "shops", "--yes", "--json")
    shown = penstock("datasets", "retype", "shops", "--yes")
    declare(FLOATS)
    request = penstock("datasets", "retype", "shops")
    done = penstock("datasets", "retype", "shops", "--yes")

    assert "penstock datasets retype shops" in refused.err
    assert (lossy.code, lossy.json["lost"], len(lossy.json["losses"])) == (1, 20, 20)
    assert "20 values of shops would be lost; nothing was changed" in shown.out
    assert (request.code, "add --yes" in request.err) == (2, True)
    assert done.code == 0, done.err
    assert "Converted points from int to float in 20 rows of shops." in done.out
    assert imported(penstock)["unchanged"] == 20


def test_an_import_is_cancelled_though_its_table_has_other_types(
    penstock: Penstock, declare, tmp_path: Path
):
    declare(shops())
    penstock("migrate")
    imported(penstock)
    write(tmp_path / "a.csv", lines(some_shops(21)))
    planned = penstock("plan", "shops", "--mode", "full", "--json")
    declare(FLOATS)

    refused = penstock("datasets", "retype", "shops", "--yes")
    penstock("imports", "cancel", str(planned.json["import_id"]))
    done = penstock("datasets", "retype", "shops", "--yes")

    assert (refused.code, "is unfinished" in refused.err) == (1, True)
    assert done.code == 0, done.err
