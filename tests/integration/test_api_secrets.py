"""A secret is found nowhere: in no answer, no error, no log, no metric, no document."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from tests.support.api_client import (
    OF,
    POI,
    RECORDS,
    UNHURRIED,
    ApiResponse,
    Client,
    serving,
)
from tests.support.stores import PostgresStore, SqliteStore, Store
from tests.support.workshop import Workshop

CANARY = "canary-9d41c7e2b05f"
# a provider that is not there, whose every address and header holds the secret
FEED = """\
[datasets.feed]
key = "id"
fields = { id = { path = "ID", type = "int" }, title = "Title" }

[datasets.feed.source]
url = "http://127.0.0.1:9/${CANARY}/feed"
query = { key = "${CANARY}" }
headers = { X-API-Key = "${CANARY}" }
auth = { type = "basic", username = "ann", password = "${CANARY}" }
budget = "practice"
timeout = "1s"
"""
SIGNED = """\
[auth]
issuer = "https://id.example.org/${CANARY}"
audience = "penstock"
secret = "${CANARY}${CANARY}"
"""


class SecretPlace(SqliteStore):
    """A file whose very name is a secret, and stands in every error of it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / f"{CANARY}.db"

    @override
    def declaration(self) -> str:
        return 'database = "sqlite:///${CANARY}.db"'


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "sqlite":
        return SecretPlace(tmp_path)
    return PostgresStore(request.getfixturevalue("postgres_database"))


@pytest.fixture
def workshop(tmp_path: Path, store: Store) -> Iterator[Workshop]:
    """Know the secret by the environment alone, and look for it everywhere at last."""
    opened = Workshop(tmp_path, store=store)
    opened.environ["CANARY"] = CANARY
    store.secrets = (*store.secrets, CANARY)
    yield opened
    opened.clean()


def everything(api: Client, token: str) -> Iterator[ApiResponse]:
    """Ask for all that can be read, and for much that cannot."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    yield from (api.get(path) for path in ("/docs", "/metrics", "/nowhere"))
    document = api.get("/openapi.json")
    yield document
    for path, operations in document.json["paths"].items():
        for number in ("1", "x", "%00"):
            address = re.sub(r"\{\w+\}", number, path)
            for method in operations:
                # it would not end before there is news
                if not address.endswith("/events"):
                    yield api.ask(method.upper(), address, headers=headers)
            yield api.ask("GET", address, query={"no": "x"}, headers=headers)


def leaks(result: ApiResponse, secrets: tuple[str, ...]) -> bool:
    text = result.body.decode("utf-8", "replace") + repr(result.headers)
    return any(each in text for each in secrets)


@pytest.mark.parametrize("auth", ["", SIGNED], ids=["open", "signed"])
def test_a_secret_is_found_nowhere(workshop: Workshop, auth: str):
    workshop.declare(POI, FEED, UNHURRIED, auth, lease="60s", attempts=2)
    token = workshop.penstock("token", "--scope", "operate").out.strip() if auth else ""
    secrets = (*workshop.secrets, *([token] if token else []))
    workshop.store.secrets = secrets
    # an import whose errors name the provider
    workshop.penstock("run", "feed")
    with serving(workshop) as api:
        results = [*everything(api, token)]
        assert {each.status for each in results} >= {200, 400, 404}

        # what an error of the database says stays in the log, and there without secrets
        workshop.tamper("drop view poi_live")
        workshop.tamper("drop table poi")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        broken = api.ask("GET", RECORDS, query={"limit": "9"}, headers=headers)
        assert broken.status >= 500
        assert broken.json["code"] in {"internal", "unavailable"}
        results += [broken, *everything(api, token)]
        assert api.process is not None
        events = {each["event"] for each in workshop.log_of(api.process)}

    assert not [each for each in results if leaks(each, secrets)]
    assert "request_failed" in events


def test_the_document_tells_nothing_of_sources(workshop: Workshop):
    workshop.declare(POI, FEED, UNHURRIED, lease="60s")
    with serving(workshop) as api:
        text = api.get("/openapi.json").body.decode()
        assert f'"{OF}/feed/records"' in text
        for word in ("127.0.0.1", "X-API-Key", "practice", "sqlite", "postgres"):
            assert word not in text
