"""An API for the tests of one module, on either database."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.services.databases import new_database
from tests.support.api_client import POI, SHOPS, Client, open_workshop, serving
from tests.support.api_server import Running, running_api
from tests.support.postgres import own_schema
from tests.support.stores import Kind, PostgresStore, SqliteStore, Store
from tests.support.workshop import Workshop


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def served_api(request, tmp_path_factory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("api")
    if request.param == "sqlite":
        with running_api(folder, 'database = "sqlite:///penstock.db"') as running:
            yield running
        return
    with own_schema(request.getfixturevalue("postgres_url")) as place:
        text = f'database = "{place.url}"\nschema = "{place.schema}"'
        with running_api(folder, text) as running:
            yield running


@pytest.fixture
def running(served_api: Running) -> Iterator[Running]:
    yield served_api
    served_api.cancel_all()


@pytest.fixture(scope="module", params=[Kind.SQLITE, Kind.POSTGRES])
def api_workshop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workshop]:
    """Declare datasets with every type of field, on each kind of database."""
    folder = tmp_path_factory.mktemp("workshop")
    with ExitStack() as stack:
        store: Store = SqliteStore(folder)
        if request.param is Kind.POSTGRES:
            server = request.getfixturevalue("postgres_url")
            store = PostgresStore(stack.enter_context(new_database(server)))
        workshop = open_workshop(folder, store, POI, SHOPS)
        stack.callback(workshop.clean)
        yield workshop


@pytest.fixture(scope="module")
def api_process(api_workshop: Workshop) -> Iterator[Client]:
    with serving(api_workshop) as client:
        yield client


@pytest.fixture
def api(api_process: Client) -> Client:
    """Ask an API in a process of its own, which holds no records yet."""
    api_process.empty("poi", "shops", "regions")
    return api_process
