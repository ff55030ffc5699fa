"""Clients follow an import until it ends."""

import threading
import time
from contextlib import ExitStack, closing

import pytest

from penstock.domain.jobs import ImportId, ImportStatus, WorkerId
from penstock.domain.pages import Proof
from penstock.entrypoints.api.resources import import_events
from penstock.errors import StoreUnavailable
from tests.support.api_client import OF
from tests.support.api_server import Running, Stream, running_api
from tests.support.builders import batch
from tests.support.workshop import wait_until

IMPORTS = "/api/v1/imports"


@pytest.fixture
def import_id(running: Running) -> int:
    """Start an import of three shards."""
    response = running.client.post(f"{OF}/poi/imports", {})
    running.wait_for(response.json["import_id"], ImportStatus.RUNNING)
    return int(response.json["import_id"])


def follow(running: Running, import_id: int, **headers: str) -> closing[Stream]:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    path = f"{IMPORTS}/{import_id}/events"
    return closing(Stream(running.client, path, named))


def work_one(running: Running) -> None:
    """Work the next job to its end, and the import with the last."""
    poi = running.api.dataset("poi")
    declarations = running.api.penstock.declarations(["poi"])
    ledger = running.stores.ledger
    (lease,) = ledger.claim(WorkerId("ann"), declarations=declarations, region=None)
    ledger.commit_page(poi, lease, batch(proof=Proof.EMPTY_PAGE))
    running.api.penstock.finish(poi, lease.import_id)


def open_streams(running: Running) -> int:
    return running.api.background._taken["streams of events"]


def test_progress_is_reported_whenever_it_changes_and_then_the_end(
    running: Running, import_id: int
):
    with follow(running, import_id) as stream:
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        assert stream.response.headers["cache-control"] == "no-store"
        results = []
        for event in stream.events():
            results.append(event)
            if event.kind == "progress":
                work_one(running)

    assert [each.kind for each in results[:-1]] == ["progress"] * (len(results) - 1)
    done = [each.data["progress"]["done"] for each in results]
    assert done == sorted(set(done))
    assert (results[0].data["status"], done[0]) == ("running", 0)
    assert results[-1].kind == "end"
    assert results[-1].data["status"] == "done"
    end = running.client.get(f"{IMPORTS}/{import_id}").json
    assert results[-1].data == end


def test_nothing_is_reported_twice_and_at_most_once_a_second(
    running: Running, import_id: int
):
    with follow(running, import_id) as stream:
        coming = stream.events()
        first = next(coming)
        began = time.monotonic()
        work_one(running)
        second = next(coming)
        work_one(running)
        third = next(coming)

        # two looks lie a second apart, and a busy machine only makes it longer
        assert time.monotonic() - began > 1.0
        assert len({first.id, second.id, third.id}) == 3


def test_one_that_comes_back_hears_only_what_is_new(running: Running, import_id: int):
    with follow(running, import_id) as stream:
        first = next(stream.events())
    with follow(running, import_id, Last_Event_ID=first.id) as stream:
        work_one(running)

        again = next(stream.events())

    assert again.id != first.id
    assert again.data["progress"]["done"] == 1


def test_whoever_has_heard_of_the_end_need_not_come_back(
    running: Running, import_id: int
):
    for _ in range(3):
        work_one(running)
    with follow(running, import_id) as stream:
        (end,) = stream.events()
    assert end.kind == "end"

    with follow(running, import_id, Last_Event_ID=end.id) as stream:
        assert stream.response.status == 204
    with follow(running, import_id, Last_Event_ID="what's this") as stream:
        assert [each.kind for each in stream.events()] == ["end"]


def test_one_that_was_cancelled_ends_too(running: Running, import_id: int):
    with follow(running, import_id) as stream:
        coming = stream.events()
        next(coming)

        running.stores.imports.cancel(ImportId(import_id), reason="enough")

        (end,) = coming
    assert (end.kind, end.data["status"]) == ("end", "cancelled")


def test_a_sign_of_life_is_given_when_nothing_happens(
    running: Running, import_id: int, monkeypatch
):
    monkeypatch.setattr(import_events, "HEARTBEAT_INTERVAL", 0.5)
    with follow(running, import_id) as stream:
        coming = stream.events()

        assert next(coming).kind == "progress"
        assert next(coming).kind == ""


def test_a_store_that_is_away_for_a_while_ends_nothing(
    running: Running, import_id: int, monkeypatch
):
    looked = threading.Event()

    def away(wanted: ImportId):
        looked.set()
        raise StoreUnavailable("away")

    with follow(running, import_id) as stream:
        coming = stream.events()
        next(coming)
        with monkeypatch.context() as patch:
            patch.setattr(running.api.progress_tracker, "document_with_progress", away)
            looked.wait(10)
        work_one(running)

        assert next(coming).data["progress"]["done"] == 1


def test_more_streams_than_there_is_room_for_are_sent_away(
    running: Running, import_id: int, monkeypatch
):
    wait_until(lambda: open_streams(running) == 0)
    monkeypatch.setattr(import_events, "MAX_STREAMS", 2)
    with follow(running, import_id) as one, follow(running, import_id) as two:
        assert (one.response.status, two.response.status) == (200, 200)

        response = running.client.get(f"{IMPORTS}/{import_id}/events")

        assert response.status == 503
        assert response.headers["retry-after"] == "1"
    # those who have left make room
    wait_until(lambda: open_streams(running) == 0)


def test_many_who_follow_one_import_cost_one_look(
    running: Running, import_id: int, monkeypatch
):
    polls = []
    read = running.api.progress_tracker.document_with_progress

    def counted(wanted: ImportId):
        polls.append(time.monotonic())
        return read(wanted)

    monkeypatch.setattr(running.api.progress_tracker, "document_with_progress", counted)
    began = time.monotonic()
    with ExitStack() as stack:
        for _ in range(10):
            stream = stack.enter_context(follow(running, import_id))
            assert next(stream.events()).kind == "progress"
        took = time.monotonic() - began

    # about one a second, not one for each of them
    assert len(polls) <= took + 2


def test_a_server_that_stops_ends_all_streams(tmp_path):
    with running_api(tmp_path, 'database = "sqlite:///penstock.db"') as running:
        response = running.client.post(f"{OF}/poi/imports", {})
        running.wait_for(response.json["import_id"], ImportStatus.RUNNING)
        with follow(running, response.json["import_id"]) as stream:
            coming = stream.events()
            next(coming)
            began = time.monotonic()

            running.api.close()

            assert [*coming] == []
            assert time.monotonic() - began < 60


def test_a_check_at_the_head_does_not_follow(running: Running, import_id: int):
    response = running.client.ask("HEAD", f"{IMPORTS}/{import_id}/events")

    assert response.status == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert running.client.get(f"{IMPORTS}/{import_id}/events", {"x": 1}).status == 400
