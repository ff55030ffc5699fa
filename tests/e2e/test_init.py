"""`penstock init --from FILE` as a user meets it."""

import tomllib

import pytest

from tests.support.workshop import Workshop


@pytest.fixture
def bench(tmp_path):
    """Stand in a folder with a file of shops, and without a provider."""
    (tmp_path / "shops.csv").write_text("uid;name\n1;Ann's\n2;Ben's\n", "utf-8")
    return Workshop(tmp_path)


def test_a_dataset_is_drafted_from_a_file(bench):
    written = bench.penstock("init", "--from", "shops.csv", "--json")

    declared = tomllib.loads(bench.config.read_text("utf-8"))["datasets"]["shops"]
    assert written.code == 0
    assert written.json == {
        "written": "penstock.toml",
        "dataset": "shops",
        "doubts": [],
    }
    assert declared["key"] == "uid"
    assert declared["source"]["files"] == "shops.csv"
    assert declared["source"]["delimiter"] == ";"
    assert declared["fields"]["uid"] == {
        "column": "uid",
        "type": "int",
        "exact": True,
        "required": True,
    }


def test_a_configuration_is_not_overwritten_unasked(bench):
    bench.config.write_text("# mine")

    refused = bench.penstock("init", "--from", "shops.csv")
    stored = bench.config.read_text()
    forced = bench.penstock("init", "--from", "shops.csv", "--force")

    assert refused.code == 2
    assert "--force" in refused.err
    assert stored == "# mine"
    assert forced.code == 0
    assert "[datasets.shops]" in bench.config.read_text()


def test_a_file_that_is_no_table_is_reported_and_nothing_is_written(bench):
    (bench.folder / "empty.csv").touch()

    result = bench.penstock("init", "--from", "empty.csv", "--json")

    assert result.code == 2
    assert result.json["error"]["message"] == "empty.csv: is empty"
    assert not bench.config.exists()


def test_the_next_step_names_the_file_that_was_written(bench):
    usual = bench.penstock("init", "--from", "shops.csv")
    other = bench.penstock("init", "--from", "shops.csv", "--config", "my other.toml")

    assert usual.out == "Wrote penstock.toml. Edit it, then: penstock check\n"
    assert other.out.endswith("then: penstock check --config 'my other.toml'\n")
