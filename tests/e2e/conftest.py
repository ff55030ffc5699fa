from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.sandbox import Sandbox, SandboxOptions
from tests.support.stores import Kind, PostgresStore, SqliteStore, Store
from tests.support.workshop import KEY, Workshop

OpenWorkshop = Callable[..., Workshop]


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Store imports in a file, unless a test names a `tests.support.stores.Kind`."""
    kind = Kind(getattr(request, "param", Kind.SQLITE))
    match kind:
        case Kind.SQLITE:
            return SqliteStore(tmp_path)
        case Kind.POSTGRES:
            return PostgresStore(request.getfixturevalue("postgres_database"))
        case Kind.POSTGRES_AND_REDIS:
            return PostgresStore(
                request.getfixturevalue("postgres_database"),
                redis=request.getfixturevalue("redis_url"),
            )


@pytest.fixture
def open_workshop(tmp_path: Path, store: Store) -> Iterator[OpenWorkshop]:
    """Start a provider with these options, and a folder to import it into."""
    with ExitStack() as stack:

        def start(*, stored_in: Store = store, **options: Any) -> Workshop:
            chosen = {"key": KEY, "records": 400, "duplicates": 0.0, **options}
            sandbox = stack.enter_context(Sandbox(SandboxOptions(**chosen)))
            workshop = Workshop(tmp_path, sandbox, stored_in)
            stack.callback(workshop.clean)
            return workshop

        yield start


@pytest.fixture
def workshop(open_workshop: OpenWorkshop) -> Workshop:
    """Declare 400 points by country, from a provider without faults."""
    opened = open_workshop()
    opened.declare(opened.by_country())
    return opened


@pytest.fixture
def imported(workshop: Workshop) -> Workshop:
    """Import all of them."""
    assert workshop.penstock("run", "poi").code == 0
    return workshop


@pytest.fixture
def file_workshop(tmp_path: Path, store: Store) -> Iterator[Workshop]:
    """Give a folder for files to be imported, and no provider."""
    opened = Workshop(tmp_path, store=store)
    yield opened
    opened.clean()
