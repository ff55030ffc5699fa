"""After a database went back, nothing of the history that was lost is honoured."""

import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.api_client import OF, UNHURRIED, ApiResponse, Client, serving
from tests.support.database_restore import (
    PromotedStandby,
    Restorable,
    RestoredFile,
    RestoredFiles,
)
from tests.support.proxy import Proxy
from tests.support.workshop import Workshop, happens, wait_until

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


def until_answered(request: Callable[[], ApiResponse]) -> ApiResponse:
    """Ask again while the database is away."""
    answers: list[ApiResponse] = []

    def is_answered() -> bool:
        answers.append(request())
        return answers[-1].status not in {500, 503, 504}

    wait_until(is_answered)
    return answers[-1]


def put(client: Client, number: int, share: float, **headers: str) -> ApiResponse:
    response = until_answered(
        lambda: client.put(f"{RECORDS}/{number}", {"share": share}, **headers)
    )
    assert response.status in {200, 201}, response.body
    return response


def shares(result: ApiResponse) -> dict[int, float]:
    return {each["id"]: each["share"] for each in result.items}


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


def keys(result: ApiResponse) -> list[Any]:
    return [each["key"][0] for each in result.items]


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
    assert {shares(result)[1] for target, result in held if target == LIST} == {0.111}
    cursor = one.get(RECORDS, {"limit": 1}).json["page"]["next"]

    world.database.put_back()
    retained = put(one, 1, 0.222)
    put(one, 3, 0.3)

    # the same numbers, of something else
    assert one.get(f"{OF}/shares").json["change_seq"] == lost.json["after"] == 3
    assert one.get(ONE).json["share"] == 0.222
    assert shares(one.get(LIST)) == stored(world) == {1: 0.222, 3: 0.3}
    for client in world.clients:
        seen = client.get(ONE, x_consistency_token=retained.headers[TOKEN])
        assert seen.json["share"] == 0.222
        listed = client.get(LIST, x_consistency_token=retained.headers[TOKEN])
        assert shares(listed)[1] == 0.222
        until_listed(client, LIST, stored(world))
        for target, result in held:
            again = client.get(target, if_none_match=result.headers["etag"])
            assert again.status == 200
            assert again.headers["etag"] != result.headers["etag"]
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
    token = put(one, 1, 0.5).headers[TOKEN]
    world.database.save()
    assert until_answered(partial(other.get, ONE, x_consistency_token=token)).json
    # the other process reads the change under the state that it knows from before
    put(one, 1, 0.111)
    held = [other.get(f"{LIST}&limit={limit}") for limit in range(1, 21)]

    world.database.put_back()
    assert until_answered(lambda: other.get(ONE)).status == 200
    for limit, result in enumerate(held, start=1):
        target = f"{LIST}&limit={limit}"
        until_listed(other, target, {1: 0.5})
        if shares(result) == {1: 0.111}:
            again = other.get(target, if_none_match=result.headers["etag"])
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


@dataclass(frozen=True)
class Held:
    """What a client was answered, and keeps."""

    target: str
    etag: str
    body: Any


class Drill:
    """Random clients of a database that goes back, and a judge of their answers."""

    targets = (
        *(f"{RECORDS}/{number}" for number in range(1, 7)),
        LIST,
        f"{RECORDS}?sort=-share&limit=2",
        f"{RECORDS}?share=gte.0.5",
    )

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._roll = random.Random(seed)
        self.held: list[Held] = []
        # tokens and positions in the feed, by whether the database still has them
        self.tokens: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
        self._fresh: list[tuple[str, str]] = []
        self._is_over = threading.Event()

    def write(self, most: int) -> None:
        for _ in range(self._roll.randint(0, most)):
            client = self._roll.choice(self._world.clients)
            result = until_answered(self.change(client))
            assert result.status in {200, 201, 204, 404}, result.body
            if result.status != 404:
                self._fresh.append((result.headers[TOKEN], self.position(client)))

    def change(self, client: Client) -> Callable[[], ApiResponse]:
        address = f"{RECORDS}/{self._roll.randint(1, 6)}"
        share, note = round(self._roll.random(), 3), self._roll.choice("abc")
        several = [{"id": each, "share": share} for each in (1, 2, 3)]
        return self._roll.choice(
            [
                partial(client.put, address, {"share": share, "note": note}),
                partial(client.patch, address, {"note": note}),
                partial(client.delete, address),
                partial(client.post, RECORDS, several),
            ]
        )

    def position(self, client: Client) -> str:
        """Return where the feed ends, as a client that follows it would know."""
        after = 0
        while True:
            result = until_answered(partial(client.get, CHANGES, {"after": after}))
            if not result.json["has_more"]:
                return str(result.json["next"])
            after = result.json["after"]

    def read(self, roll: random.Random) -> None:
        client, target = roll.choice(self._world.clients), roll.choice(self.targets)
        response = client.get(target)
        if response.status == 200:
            self.held.append(Held(target, response.headers["etag"], response.json))

    def read_on(self, seed: int) -> None:
        roll = random.Random(seed)
        while not self._is_over.is_set():
            with suppress(OSError, HTTPException):
                self.read(roll)

    def go_back(self) -> None:
        """Write, save, write, go back, write something else; others read meanwhile."""
        self.write(8)
        self.tokens[True] += self._fresh
        self._fresh = []
        self._world.database.save()
        for client in self._world.clients:
            # each knows just what is going to come back
            position = self.position(client)
            client.get(CHANGES, {"after": position})
        self._is_over.clear()
        with ThreadPoolExecutor(2) as readers:
            for _ in range(2):
                readers.submit(self.read_on, self._roll.getrandbits(32))
            try:
                self.write(8)
                self.tokens[False] += self._fresh
                self._fresh = []
                self._world.database.put_back()
                self.write(8)
                self.tokens[True] += self._fresh
                self._fresh = []
            finally:
                self._is_over.set()

    def judge(self) -> None:
        rows = self.rows()
        for client in self._world.clients:
            self.judge_tokens(client)
            for target in self.targets:
                until_same(client, target, expected(target, rows))
            for held in self.held:
                response = client.get(held.target, if_none_match=held.etag)
                body = held.body if response.status == 304 else response.json
                assert visible(response.status, body) == expected(held.target, rows), (
                    held,
                    response,
                )

    def judge_tokens(self, client: Client) -> None:
        seqs = self._world.database.store.ask(
            f"select seq from {self.schema}penstock_change "
            "where dataset = 'shares' order by seq"
        )
        for is_known, some in self.tokens.items():
            for token, position in some:
                wanted = {200, 404} if is_known else {410}
                read = until_answered(
                    partial(client.get, ONE, x_consistency_token=token)
                )
                assert read.status in wanted, (is_known, position, read.body)
                query = {"after": position, "limit": 1000}
                feed = client.get(CHANGES, query)
                assert feed.status == (200 if is_known else 410), (position, feed.body)
                if is_known:
                    after = int(position.partition("-")[0])
                    assert [each["seq"] for each in feed.items] == [
                        row["seq"] for row in seqs if row["seq"] > after
                    ]

    def rows(self) -> dict[int, dict[str, Any]]:
        found = self._world.database.store.ask(
            f"select id, share, note from {table(self._world)} "
            "where _deleted_at is null order by id"
        )
        return {row["id"]: dict(row) for row in found}

    @property
    def schema(self) -> str:
        return "penstock." if self._world.database.store.is_shared else ""


def expected(target: str, rows: dict[int, dict[str, Any]]) -> Any:
    """Work out from the database what an address is to be answered with."""
    number = target.rpartition("/")[2]
    if number.isdigit():
        return rows.get(int(number))
    if "gte" in target:
        return [row for row in rows.values() if (row["share"] or 0) >= 0.5]
    is_falling = "-share" in target
    ordered = sorted(
        rows.values(), key=lambda row: (row["share"], row["id"]), reverse=is_falling
    )
    return ordered[:2] if is_falling else ordered


def visible(status: int, body: Any) -> Any:
    if status == 404:
        return None
    return body.get("items", body)


def until_same(client: Client, target: str, wanted: Any) -> None:
    def is_same() -> bool:
        response = client.get(target)
        return bool(visible(response.status, response.json) == wanted)

    assert happens(is_same, within=30), (target, wanted, client.get(target).body)


@pytest.mark.slow
@pytest.mark.parametrize("database", ["files", "standby", "sqlite"], indirect=True)
def test_no_answer_is_of_a_history_that_was_lost(world: World):
    fresh = str(random.SystemRandom().getrandbits(32))
    seed = int(os.environ.get("PENSTOCK_SEED", fresh))
    sys.stdout.write(f"histories with PENSTOCK_SEED={seed}\n")
    drill = Drill(world, seed)
    # a standby takes over once
    rounds = 1 if isinstance(world.database, PromotedStandby) else 8
    put(world.clients[0], 1, 0.5)
    for _ in range(rounds):
        drill.go_back()
        drill.judge()
