"""After a database went back, nothing of the history that was lost is honoured."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.api import OF, UNHURRIED, Client, Told, serving
from tests.e2e.workshop import Workshop, wait_until
from tests.integration.restoring import (
    PromotedStandby,
    Restorable,
    RestoredFile,
    RestoredFiles,
)
from tests.proxy import Proxy

if TYPE_CHECKING:
    from tests.conftest import StartPostgres, StartStandby

# nothing is forgotten because it is old
SHARES = """\
[datasets.shares]
key = "id"
cache = "1h"
filter = ["share"]

[datasets.shares.source]
type = "csv"
files = "shares-*.csv"

[datasets.shares.fields]
id = { column = "id", type = "int" }
share = { column = "share", type = "float" }
note = { type = "text", local = true }
"""
RECORDS, CHANGES = f"{OF}/shares/records", f"{OF}/shares/changes"
ONE, LIST = f"{RECORDS}/1", f"{RECORDS}?sort=share"
TOKEN = "x-consistency-token"


@dataclass(frozen=True)
class World:
    database: Restorable
    workshop: Workshop
    # two processes that share a Redis
    clients: list[Client]


@pytest.fixture
def database(
    request: pytest.FixtureRequest, tmp_path: Path, redis_url: str
) -> Iterator[Restorable]:
    if request.param == "sqlite":
        yield RestoredFile(tmp_path, redis_url)
        return
    start: StartPostgres = request.getfixturevalue("own_postgres")
    primary = start()
    if request.param == "files":
        yield RestoredFiles(primary, redis_url)
        return
    follow: StartStandby = request.getfixturevalue("own_standby")
    with Proxy("127.0.0.1", primary.port) as line:
        yield PromotedStandby(primary, follow(primary), line, redis_url)


@pytest.fixture
def world(database: Restorable, tmp_path: Path) -> Iterator[World]:
    workshop = Workshop(tmp_path, store=database.store)
    workshop.declare(SHARES, UNHURRIED, lease="60s")
    with ExitStack() as stack:
        clients = [stack.enter_context(serving(workshop)) for _ in range(2)]
        yield World(database, workshop, clients)


def until_answered(request: Callable[[], Told]) -> Told:
    """Ask again while the database is away."""
    answers: list[Told] = []

    def is_answered() -> bool:
        answers.append(request())
        return answers[-1].status not in {500, 503, 504}

    wait_until(is_answered)
    return answers[-1]


def put(client: Client, number: int, share: float, **headers: str) -> Told:
    told = until_answered(
        lambda: client.put(f"{RECORDS}/{number}", {"share": share}, **headers)
    )
    assert told.status in {200, 201}, told.body
    return told


def shares(told: Told) -> dict[int, float]:
    return {each["id"]: each["share"] for each in told.items}


def stored(world: World) -> dict[int, float]:
    """Read what the database has, past the API."""
    found = world.database.store.ask(
        f"select id, share from {table(world)} where _deleted_at is null"
    )
    return {row["id"]: row["share"] for row in found}


def table(world: World) -> str:
    return "penstock.shares" if world.database.store.is_shared else "shares"


def until_listed(client: Client, target: str, expected: dict[int, float]) -> None:
    wait_until(lambda: shares(client.get(target)) == expected)


def keys(told: Told) -> list[Any]:
    return [each["key"][0] for each in told.items]


def kinds(*some: str) -> pytest.MarkDecorator:
    """Try some kinds of databases always, and the others when there is time."""
    every = [
        each if each in some else pytest.param(each, marks=pytest.mark.slow)
        for each in ("files", "standby", "sqlite")
    ]
    return pytest.mark.parametrize("database", every, indirect=True)


@kinds("files", "standby", "sqlite")
def test_nothing_of_a_lost_history_is_honoured(world: World):
    one = world.clients[0]
    put(one, 1, 0.5)
    early = one.get(CHANGES, {"after": 0}).json["next"]
    world.database.save()
    # what is going to be lost, as both processes and Redis have it
    written = put(one, 1, 0.111)
    put(one, 2, 0.2)
    lost = one.get(CHANGES, {"after": 0})
    token = lost.headers[TOKEN]
    held = [
        (target, client.get(target, x_consistency_token=token))
        for client in world.clients
        for target in (ONE, LIST, f"{OF}/shares")
    ]
    assert {shares(told)[1] for target, told in held if target == LIST} == {0.111}
    cursor = one.get(RECORDS, {"limit": 1}).json["page"]["next"]

    world.database.put_back()
    kept = put(one, 1, 0.222)
    put(one, 3, 0.3)

    # the same numbers, of something else
    assert one.get(f"{OF}/shares").json["change_seq"] == lost.json["after"] == 3
    assert one.get(ONE).json["share"] == 0.222
    assert shares(one.get(LIST)) == stored(world) == {1: 0.222, 3: 0.3}
    for client in world.clients:
        seen = client.get(ONE, x_consistency_token=kept.headers[TOKEN])
        assert seen.json["share"] == 0.222
        listed = client.get(LIST, x_consistency_token=kept.headers[TOKEN])
        assert shares(listed)[1] == 0.222
        until_listed(client, LIST, stored(world))
        for target, told in held:
            again = client.get(target, if_none_match=told.headers["etag"])
            assert again.status == 200
            assert again.headers["etag"] != told.headers["etag"]
        etag = written.headers["etag"]
        assert client.patch(ONE, {"share": 0.9}, if_match=etag).status == 412
        # who holds something of it is told
        for gone in (
            client.get(ONE, x_consistency_token=token),
            client.get(LIST, x_consistency_token=written.headers[TOKEN]),
            client.get(CHANGES, {"after": lost.json["next"]}),
            client.get(CHANGES, {"after": lost.json["next"], "wait": 30}),
            client.get(CHANGES, {"after": 4}),
        ):
            assert (gone.status, gone.json["code"]) == (410, "position-gone")
            assert gone.headers["cache-control"] == "no-store"
        again = client.get(LIST, x_consistency_token=gone.headers[TOKEN])
        assert shares(again) == stored(world)
        assert client.get(CHANGES, {"after": gone.json["next"]}).items == []
        # what was known before, and what holds no number, is as good as it was
        assert keys(client.get(CHANGES, {"after": early})) == [1, 3]
        assert shares(client.get(RECORDS, {"limit": 1, "cursor": cursor})) == {3: 0.3}
    assert not world.database.store.ask(
        f"select 1 as found from {table(world)} where share = 0.9"
    )


@kinds("sqlite")
def test_what_was_read_just_before_the_loss_is_not_honoured(world: World):
    """A process that has not heard of a change holds it all the same."""
    one, other = world.clients
    put(one, 1, 0.5)
    wait_until(lambda: shares(other.get(LIST)) == {1: 0.5})
    world.database.save()
    # the other process reads the change under the state that it knows from before
    put(one, 1, 0.111)
    held = [other.get(f"{LIST}&limit={limit}") for limit in range(1, 21)]

    world.database.put_back()
    assert until_answered(lambda: other.get(ONE)).status == 200
    for limit, told in enumerate(held, start=1):
        target = f"{LIST}&limit={limit}"
        until_listed(other, target, {1: 0.5})
        if shares(told) == {1: 0.111}:
            again = other.get(target, if_none_match=told.headers["etag"])
            assert again.status == 200


@kinds("files")
def test_a_restart_or_a_failover_without_a_loss_invalidates_nothing(world: World):
    one, other = world.clients
    written = put(one, 1, 0.5)
    token = written.headers[TOKEN]
    feed = one.get(CHANGES, {"after": 0}).json["next"]
    etags = {
        target: one.get(target, x_consistency_token=token).headers["etag"]
        for target in (ONE, LIST, f"{OF}/shares")
    }

    world.database.restart()

    assert until_answered(lambda: other.get(ONE)).status == 200
    with serving(world.workshop) as fresh:
        for client in (one, other, fresh):
            until_answered(partial(client.get, ONE))
            for target, etag in etags.items():
                again = client.get(
                    target, if_none_match=etag, x_consistency_token=token
                )
                assert again.status == 304, target
            assert client.get(CHANGES, {"after": feed}).json["next"] == feed
