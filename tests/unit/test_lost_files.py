"""Which missing rows may only be missing because their file is."""

from dataclasses import replace

import pytest

from penstock.domain.lost_files import (
    FilesNotRead,
    RowOrigin,
    find_lost_rows,
    stable_file_name,
)
from penstock.domain.sharding.axes import FileAxis
from penstock.domain.source import CsvSource
from tests.support.builders import dataset

SHOPS = dataset(
    "shops", source=CsvSource(files=("*.csv",), folder="/data"), axes=(FileAxis(),)
)
FETCHED = replace(
    SHOPS, source=replace(SHOPS.csv, files=("https://a.example/shops.csv",))
)


def test_without_lost_files_all_that_is_missing_may_be_marked():
    missing = {RowOrigin(1, 0): 5, RowOrigin(1, None): 2, RowOrigin(9, 3): 4}

    assert (
        find_lost_rows(missing, {1: {0: "a"}, 9: {}}, read={0: "b", 1: "a"})
        == FilesNotRead()
    )


def test_rows_that_do_not_tell_their_file_may_be_of_any():
    missing = {RowOrigin(1, None): 2, RowOrigin(1, 0): 5}

    lost = find_lost_rows(missing, {1: {0: "a", 1: "b"}}, read={0: "a"})

    assert (lost.rows, lost.files) == (2, ("b",))
    assert lost.origins == (RowOrigin(1, None),)


def test_rows_of_an_import_that_is_forgotten_stood_in_a_file_of_it():
    missing = {RowOrigin(1, 0): 5, RowOrigin(0, None): 2}

    lost = find_lost_rows(missing, {1: None, 0: None}, read={0: "a"})

    assert (lost.rows, lost.files) == (7, ("a file of import 1",))
    assert (
        find_lost_rows({RowOrigin(0, None): 2}, {0: None}, read={0: "a"})
        == FilesNotRead()
    )


def test_of_two_fetched_files_with_one_name_either_may_be_lost():
    missing = {RowOrigin(1, 0): 5, RowOrigin(1, 1): 3}

    lost = find_lost_rows(missing, {1: {0: "list", 1: "list"}}, read={0: "list"})

    assert lost.rows == 8


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("a.csv", "a.csv"),
        ("./a.csv", "a.csv"),
        ("/data/sub/../a.csv", "a.csv"),
        ("/lists/a.csv", "../lists/a.csv"),
        (
            "/data/spool/shops/0123456789abcdef-a.csv",
            "spool/shops/0123456789abcdef-a.csv",
        ),
    ],
)
def test_a_file_has_one_name_however_it_was_found(file, name):
    assert stable_file_name(file, SHOPS) == name


def test_a_fetched_file_is_the_same_whatever_is_in_it():
    first, second = (
        stable_file_name(f"/data/spool/shops/{digest}-shops.csv", FETCHED)
        for digest in ("0123456789abcdef", "fedcba9876543210")
    )

    assert first == second == "shops.csv"


def test_a_note_names_some_of_many_files():
    files = tuple(f"{number}.csv" for number in range(1, 8))

    note = FilesNotRead(rows=3, files=files).note(SHOPS)

    assert note is not None
    assert "in 1.csv, 2.csv, 3.csv, 4.csv, 5.csv and 2 more files, which" in note
    assert "penstock run shops --accept-lost-files" in note
