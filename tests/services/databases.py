"""Databases of their own for tests, on a server that they share."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit


@contextmanager
def new_database(postgres_url: str) -> Iterator[str]:
    """Create an empty database, and drop it again."""
    # slow to import, and the unit tests need no driver
    import psycopg
    from psycopg import sql

    name = f"penstock_test_{uuid.uuid4().hex}"
    quoted = sql.Identifier(name)
    with psycopg.connect(postgres_url, autocommit=True) as server:
        # nobody can be connected to template0 and so be in the way; copying its files
        # takes half as long as logging them
        create = "create database {} template template0 strategy file_copy"
        server.execute(sql.SQL(create).format(quoted))
        yield urlsplit(postgres_url)._replace(path=f"/{name}").geturl()
        server.execute(sql.SQL("drop database {} with (force)").format(quoted))
