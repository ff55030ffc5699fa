"""A walk over a list sees every record that nobody touches once, whatever others do."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.api_client import RECORDS, ApiResponse, Client, serving
from tests.support.workshop import Workshop, wait_until

TOWNS = ["Aachen", "Bern", "Köln", "東京", None]
# half of them stay as they are, the other half is never at rest
UNTOUCHED = range(0, 200, 2)
TOUCHED = range(1, 200, 2)
WRITERS = 3
# changes during the walks
ENOUGH = 60
FILTER = {"points": "gte.3", "id": "lt.190"}


def place(number: int, chance: random.Random) -> dict[str, Any]:
    """Give a record a random place in every list."""
    second = chance.randrange(60)
    return {
        "id": number,
        "title": f"Point {number}",
        "town": chance.choice(TOWNS),
        # many alike, so that only the key tells them apart
        "points": chance.randrange(8),
        "seen": chance.choice([None, f"2026-01-01T00:00:{second:02}Z"]),
    }


class Writers:
    """Others, who insert, change and delete."""

    def __init__(self, api: Client) -> None:
        self._api = api
        self._stop = threading.Event()
        self.done = 0
        self.errors: list[ApiResponse] = []

    def write(self, seed: int) -> None:
        chance = random.Random(seed)
        while not self._stop.is_set():
            result = self._change(chance)
            # another was faster where there is nothing to change any more
            if result.status not in {200, 201, 204, 404}:
                self.errors.append(result)
            self.done += 1

    def _change(self, chance: random.Random) -> ApiResponse:
        number = chance.choice(TOUCHED)
        path = f"{RECORDS}/{number}"
        match chance.randrange(4):
            case 0:
                return self._api.put(path, place(number, chance))
            case 1:
                return self._api.delete(path)
            case 2:
                changed = place(number, chance)
                del changed["id"]
                return self._api.patch(path, changed)
            case _:
                some = chance.sample(TOUCHED, 5)
                return self._api.post(RECORDS, [place(each, chance) for each in some])

    @contextmanager
    def at_work(self) -> Iterator[None]:
        threads = [
            threading.Thread(target=self.write, args=(seed,)) for seed in range(WRITERS)
        ]
        for each in threads:
            each.start()
        try:
            yield
        finally:
            self._stop.set()
            for each in threads:
                each.join()


def ordered(rows: list[dict[str, Any]], field: str, *, down: bool) -> list[int]:
    full = [row for row in rows if row[field] is not None]
    full.sort(key=lambda row: (row[field], row["id"]), reverse=down)
    empty = [row["id"] for row in rows if row[field] is None]
    return [row["id"] for row in full] + sorted(empty, reverse=down)


@pytest.mark.parametrize("sort", ["id", "-points", "town", "-town", "seen", "-seen"])
def test_a_walk_sees_every_untouched_record_once(
    api: Client, api_workshop: Workshop, sort: str
):
    chance = random.Random(sort)
    rows = [place(number, chance) for number in UNTOUCHED]
    api.store(*rows, *(place(number, chance) for number in TOUCHED))
    fitting = [row for row in rows if row["points"] >= 3 and row["id"] < 190]
    wanted = ordered(fitting, sort.strip("-"), down=sort.startswith("-"))
    query = {**FILTER, "sort": sort, "limit": 7, "fields": "id"}

    with serving(api_workshop) as another:
        writers = Writers(another)
        with writers.at_work():
            wait_until(lambda: writers.done > WRITERS)
            while writers.done < ENOUGH:
                assert walk(api, query) == wanted
                assert walk_back(api, query) == wanted
    assert writers.errors == []


def walk(api: Client, query: dict[str, Any]) -> list[int]:
    return untouched(api.walk(query))


def walk_back(api: Client, query: dict[str, Any]) -> list[int]:
    """Go to the end, and from there to the beginning."""
    response = api.get(RECORDS, query)
    while cursor := response.json["page"]["next"]:
        following = api.get(RECORDS, {**query, "cursor": cursor})
        # others may have emptied the last page since it was announced: no way back
        if not following.items:
            break
        response = following
    pages = [response.items]
    while cursor := response.json["page"]["prev"]:
        response = api.get(RECORDS, {**query, "cursor": cursor})
        pages.insert(0, response.items)
    return untouched(record for page in pages for record in page)


def untouched(records: Iterator[Any]) -> list[int]:
    return [each["id"] for each in records if each["id"] % 2 == 0]
