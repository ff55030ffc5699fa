"""A client that knows an answer of another declaration is not told that it is good."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.api_client import OF, Client
from tests.support.api_server import running_api
from tests.support.postgres import own_schema

ADDED = """
[datasets.added]
key = "id"
search = [{search}]
source = {{ url = "http://127.0.0.1:9/added" }}

[datasets.added.fields]
id = {{ path = "ID", type = "int" }}
title = "Title"
town = "Town"
{more}
"""
BEFORE = ADDED.format(search='"title"', more="")
ANOTHER_FIELD = ADDED.format(search='"title"', more='note = "Note"')
ANOTHER_SEARCH = ADDED.format(search='"title", "town"', more="")
OF_ADDED = f"{OF}/added"
RECORDS = f"{OF_ADDED}/records"


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "sqlite":
        yield 'database = "sqlite:///penstock.db"'
        return
    with own_schema(request.getfixturevalue("postgres_url")) as place:
        yield f'database = "{place.url}"\nschema = "{place.schema}"'


def etags(client: Client) -> dict[str, str]:
    paths = [OF_ADDED, RECORDS, f"{RECORDS}/1", f"{OF_ADDED}/search?q=ulm"]
    return {path: client.get(path).headers["etag"] for path in paths}


@pytest.mark.parametrize(
    ("after", "status"),
    [(BEFORE, 304), (ANOTHER_FIELD, 200), (ANOTHER_SEARCH, 200)],
    ids=["same", "another field", "another search"],
)
def test_what_is_known_is_good_for_one_declaration(
    tmp_path: Path, database: str, after: str, status: int
):
    with running_api(tmp_path, database, more=BEFORE) as running:
        row = {"title": "Market", "town": "Ulm"}
        assert running.client.put(f"{RECORDS}/1", row).status == 201
        known = etags(running.client)

    with running_api(tmp_path, database, more=after) as running:
        answers = {
            path: running.client.get(path, if_none_match=etag).status
            for path, etag in known.items()
        }
        # the version of the row is still the same
        changed = running.client.patch(
            f"{RECORDS}/1", {"town": "Bonn"}, if_match=known[f"{RECORDS}/1"]
        )

    assert answers == dict.fromkeys(known, status)
    assert changed.status == 200
