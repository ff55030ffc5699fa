"""The SQL that ships with an adapter is found by name, each once."""

import re
from importlib import resources
from pathlib import Path

import pytest

from penstock.adapters.sqlstore.sql_loader import load_statements, parse_statements

ADAPTERS = ["penstock.adapters.sqlite", "penstock.adapters.postgres"]


def test_statements_are_cut_at_their_names():
    text = "-- about\n\n-- name: one\nselect 1;\n\n-- name: two\n-- why\nselect 2;"

    assert parse_statements(text) == [
        ("one", "select 1;"),
        ("two", "-- why\nselect 2;"),
    ]


def test_a_file_without_names_holds_no_statement():
    assert parse_statements("select 1;") == []


def test_a_name_that_stands_twice_is_refused(tmp_path, monkeypatch):
    (tmp_path / "twice" / "sql").mkdir(parents=True)
    (tmp_path / "twice" / "__init__.py").touch()
    for name in ("a.sql", "b.sql"):
        (tmp_path / "twice" / "sql" / name).write_text("-- name: one\nselect 1;")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ValueError, match="'one' is defined twice"):
        load_statements("twice")


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_statements_of_an_adapter_are_loaded(adapter):
    assert {"claim_jobs", "advance_job", "get_budget"} <= set(load_statements(adapter))


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_statement_of_a_worker_is_fenced(adapter):
    statements = {
        # PostgreSQL's driver names a parameter in another way
        name: re.sub(r"%\((\w+)\)s", r":\1", text)
        for name, text in load_statements(adapter).items()
    }
    fenced = [name for name, text in statements.items() if ":fence" in text]

    assert len(fenced) >= 6
    for name in fenced:
        # what only adds or reads changes nobody's job
        if name.startswith(("add_", "find_")):
            continue
        guard = "id = :job and fence = :fence and status = 'leased'"
        assert guard in re.sub(r"\s+", " ", statements[name]), name


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_statement_is_used(adapter):
    code = "".join(
        file.read_text()
        for package in (adapter, "penstock.adapters.sqlstore")
        for file in Path(str(resources.files(package))).rglob("*.py")
    )

    unused = [name for name in load_statements(adapter) if f'"{name}"' not in code]

    assert unused == []
