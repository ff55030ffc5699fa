"""What the API asks and what its processes share."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

from penstock.adapters.sql.serving import served_by
from penstock.ports.answers import SharedAnswers
from penstock.ports.limits import SharedRates
from penstock.ports.serving import Served
from penstock.settings import Settings

# how long a client may wait for the database
LONGEST_ANSWER = timedelta(seconds=5)


@contextmanager
def served(settings: Settings, *, threads: int) -> Iterator[Served]:
    """Open what clients of the API may ask, with connections of its own."""
    with ExitStack() as stack:
        if settings.sqlite_path is not None:
            from penstock.adapters.sqlite.database import Database

            file = Database(settings.sqlite_path, busy=LONGEST_ANSWER)
            stack.callback(file.close)
            yield served_by(file)
            return
        yield postgres_served(settings, stack, threads=threads)


def postgres_served(settings: Settings, stack: ExitStack, *, threads: int) -> Served:
    from penstock.adapters.postgres.connections import (
        FOR_CLIENTS,
        FOR_CLIENTS_OF_A_REPLICA,
        Manner,
    )
    from penstock.adapters.postgres.database import Database
    from penstock.adapters.postgres.replicas import Replica, Replicated

    def opened(url: str, place: str, manner: Manner) -> Database:
        database = Database(
            url,
            place=place,
            schema=settings.schema,
            limit=LONGEST_ANSWER,
            most_connections=threads,
            manner=manner,
        )
        stack.callback(database.close)
        return database

    primary = opened(settings.postgres_url or "", settings.place, FOR_CLIENTS)
    if not settings.replicas:
        return served_by(primary)
    replicas = [
        Replica(opened(url, f"penstock.replicas[{at}]", FOR_CLIENTS_OF_A_REPLICA))
        for at, url in enumerate(settings.replicas)
    ]
    database = Replicated(primary, replicas)
    return served_by(
        database,
        primary=primary,
        on_news=database.rise,
        on_lost=database.doubt,
        trouble=database.trouble,
    )


@contextmanager
def shared_answers(settings: Settings) -> Iterator[SharedAnswers | None]:
    """Open what the processes of the API share, if the settings name a Redis."""
    if settings.redis is None:
        yield None
        return
    from penstock.adapters.redis.answers import RedisAnswers, connect_for_answers

    client = connect_for_answers(settings.redis)
    try:
        yield RedisAnswers(client, namespace=settings.schema)
    finally:
        client.close()


@contextmanager
def shared_rates(settings: Settings) -> Iterator[SharedRates | None]:
    """Open what counts how often clients ask all processes of the API together."""
    if settings.redis is None:
        yield None
        return
    from penstock.adapters.redis.answers import connect_for_answers
    from penstock.adapters.redis.limits import RedisRates

    client = connect_for_answers(settings.redis)
    try:
        yield RedisRates(client, namespace=settings.schema)
    finally:
        client.close()
