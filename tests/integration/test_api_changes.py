"""Who hears of a change never keeps what was before it, on each kind of database."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from penstock.entrypoints.api.app import build_api
from tests.support.api_client import OF, ApiResponse, Client
from tests.support.api_server import Running, listening
from tests.support.builders import batch, claim, last, plan, record, run
from tests.support.workshop import wait_until

RECORDS, CHANGES = f"{OF}/poi/records", f"{OF}/poi/changes"
# more than may wait for the threads that ask the database
MANY = 300


class Import:
    """An import that is under way, page by page."""

    def __init__(self, running: Running) -> None:
        self._stores = running.stores
        self._of = running.api.dataset("poi")
        self.id = plan(self._stores, self._of)
        self._lease = claim(self._stores, self._of)

    def bring(self, *records: tuple[int, str]) -> None:
        page = batch(*(record(*each, of=self._of) for each in records))
        self._lease, _ = self._stores.ledger.commit_page(self._of, self._lease, page)


@pytest.fixture
def bringing(running: Running) -> Iterator[Import]:
    begun = Import(running)
    yield begun
    running.stores.imports.cancel(begun.id, reason="the test is over")


@contextmanager
def another(running: Running) -> Iterator[Client]:
    """Serve the same by an API that knows and keeps its own."""
    api = build_api(running.api.penstock, running.api.served, threads=4)
    with listening(api) as url:
        yield Client(url)


def end_of_feed(client: Client) -> int:
    return int(client.get(f"{OF}/poi").json["change_seq"])


def heard(client: Client, after: int) -> ApiResponse:
    response = client.get(CHANGES, {"after": after})
    assert response.items, response.json
    return response


def test_a_record_is_as_new_as_the_change_that_was_heard_of(
    running: Running, bringing: Import
):
    client = running.client
    bringing.bring((5, "0"))
    after = end_of_feed(client)
    for number in range(1, 11):
        client.get(f"{RECORDS}/5")
        bringing.bring((5, f"{number}"))
        result = heard(client, after)
        after = result.json["after"]

        assert [each["key"] for each in result.items] == [[5]]
        assert client.get(f"{RECORDS}/5").json["title"] == f"{number}"


def test_a_record_that_is_new_is_there_for_who_heard_of_it(
    running: Running, bringing: Import
):
    client, after = running.client, end_of_feed(running.client)
    for number in range(100, 110):
        assert client.get(f"{RECORDS}/{number}").status == 404
        bringing.bring((number, "new"))
        after = heard(client, after).json["after"]

        assert client.get(f"{RECORDS}/{number}").status == 200


def test_the_token_of_a_change_is_good_in_any_process_and_for_lists(
    running: Running, bringing: Import
):
    bringing.bring((5, "0"))
    after = end_of_feed(running.client)
    with another(running) as other:
        for number in range(1, 11):
            other.get(f"{RECORDS}/5")
            other.get(RECORDS, {"id": "eq.5"})
            bringing.bring((5, f"{number}"))
            result = heard(running.client, after)
            after = result.json["after"]
            token = result.headers["x-consistency-token"]

            seen = other.get(f"{RECORDS}/5", x_consistency_token=token)
            assert seen.json["title"] == f"{number}"
            listed = other.get(RECORDS, {"id": "eq.5"}, x_consistency_token=token)
            assert [each["title"] for each in listed.items] == [f"{number}"]


def test_a_list_is_retained_while_an_import_runs_for_who_knows_of_nothing(
    running: Running, bringing: Import
):
    client = running.client
    bringing.bring((5, "before"))
    api = running.api
    # the end of an earlier import has published something, too
    published = api.served.reads.dataset_versions()["poi"].published
    wait_until(lambda: api.dataset_versions.cached("poi").published == published)
    client.get(RECORDS, {"id": "eq.5"})
    tally = running.api.response_cache.stats
    for number in range(3):
        bringing.bring((5, f"{number}"))
        misses = tally.misses
        client.get(RECORDS, {"id": "eq.5"})

        assert tally.misses == misses


def test_what_was_read_after_a_refusal_is_the_version_to_change(
    running: Running, bringing: Import
):
    client = running.client
    bringing.bring((5, "0"))
    with another(running) as other:
        for number in range(1, 11):
            etags = [
                each.get(f"{RECORDS}/5").headers["etag"] for each in (client, other)
            ]
            bringing.bring((5, f"{number}"))
            refused = client.patch(f"{RECORDS}/5", {"title": "x"}, if_match=etags[0])
            assert refused.status == 412
            token = refused.headers["x-consistency-token"]

            here = client.get(f"{RECORDS}/5")
            there = other.get(f"{RECORDS}/5", x_consistency_token=token)
            assert here.headers["etag"] == there.headers["etag"] not in etags
            new = here.headers["etag"]
            changed = other.patch(f"{RECORDS}/5", {"title": "mine"}, if_match=new)
            assert changed.status == 200


def test_a_token_of_a_change_that_never_was_asks_for_nothing(running: Running):
    """The database may have been put back to an older state."""
    client, api = running.client, running.api
    run_once(running)
    token = api.records.cursor_signer.write_number("poi", 10**12)
    client.get(RECORDS, {"id": "gt.1"}, x_consistency_token=token)
    misses = api.response_cache.stats.misses

    again = client.get(RECORDS, {"id": "gt.1"}, x_consistency_token=token)
    assert again.status == 200
    assert api.response_cache.stats.misses == misses


def run_once(running: Running) -> None:
    of = running.api.dataset("poi")
    run(running.stores, of, last(record(1, "x", of=of)))


def test_a_change_wakes_all_who_wait_and_nobody_is_refused(
    running: Running, bringing: Import
):
    client = running.client
    bringing.bring((7, "old"))
    after = end_of_feed(client)
    target = f"{CHANGES}?after={after}&wait=20"

    async def follow() -> Any:
        reader, writer = await asyncio.open_connection(client.host, client.port)
        request = (
            f"GET {target} HTTP/1.1\r\nHost: {client.host}\r\nConnection: close\r\n"
        )
        writer.write(f"{request}\r\n".encode())
        result = await reader.read()
        writer.close()
        head, _, body = result.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)

    async def all_follow() -> list[Any]:
        waiting = [asyncio.ensure_future(follow()) for _ in range(MANY)]
        everybody = partial(wait_until, lambda: running.api.lanes.feeds == MANY)
        await asyncio.to_thread(everybody)
        began = time.monotonic()
        await asyncio.to_thread(bringing.bring, (7, "new"))
        found = await asyncio.gather(*waiting)
        assert time.monotonic() - began < 60
        return found

    found = asyncio.run(all_follow())

    assert {status for status, _ in found} == {200}
    assert {len(result["items"]) for _, result in found} == {1}


def test_who_waits_for_changes_leaves_nothing_behind(running: Running):
    after = end_of_feed(running.client)
    waiting = threading.Thread(
        target=running.client.get, args=(CHANGES, {"after": after, "wait": 1})
    )
    waiting.start()
    waiting.join(10)

    assert not any(running.api.dataset_versions._followers.values())
    assert not running.api.feeds._in_flight._flights


def test_who_follows_a_dropped_dataset_has_to_begin_again(running: Running):
    client, poi = running.client, running.api.dataset("poi")
    run(running.stores, poi, last(record(5, "five", of=poi)))
    end = client.get(CHANGES, {"after": 0}).json
    listed = client.get(RECORDS)
    sum(running.stores.schema.datasets.drop("poi"))
    running.stores.schema.ensure_table(poi)

    # also before anything was stored again, once the process has heard of it
    wait_until(lambda: client.get(CHANGES, {"after": end["next"]}).status == 410)
    run(running.stores, poi, last(record(5, "five", of=poi)))

    for position in (end["after"], end["next"]):
        assert client.get(CHANGES, {"after": position}).status == 410
    tag = listed.headers["etag"]
    assert client.get(RECORDS, if_none_match=tag).status == 200
