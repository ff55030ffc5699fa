"""A PostgreSQL of our own, durable where it is measured, and databases in it."""

import contextlib
import itertools

import psycopg
from tests.services.private import PrivatePostgres

# large enough that no checkpoint comes in the middle of one measurement only
SETTINGS = {
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
}


class Server:
    def __init__(self, postgres):
        self._postgres = postgres
        self._numbers = itertools.count(1)

    @contextlib.contextmanager
    def database(self):
        """Create an empty database with nothing left to be written; drop it after."""
        name = f"bench_{next(self._numbers)}"
        self._run(f"create database {name}")
        self._run("checkpoint")
        try:
            yield self._postgres.url.removesuffix("postgres") + name
        finally:
            self._run(f"drop database {name} with (force)")

    def _run(self, statement):
        with psycopg.connect(self._postgres.url, autocommit=True) as connection:
            connection.execute(statement)


@contextlib.contextmanager
def server(*, small=False, **settings):
    """Run a PostgreSQL as in production, or one that nobody measures."""
    settings = {} if small else {**SETTINGS, **settings}
    with PrivatePostgres(fsync=not small, **settings) as postgres:
        yield Server(postgres)
