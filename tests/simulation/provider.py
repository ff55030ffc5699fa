"""A provider in pure Python: records that change while they are read."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Protocol

from typing_extensions import override

from penstock.adapters.http.pagination import PageFacts, client_bounds, next_step
from penstock.domain.dataset import Dataset
from penstock.domain.pages import Page, Position, RawRow, Redirect
from penstock.domain.sharding.axes import ListAxis
from penstock.domain.sharding.parts import Choice, Span
from penstock.domain.sharding.shard import Shard
from penstock.domain.source import Paging
from penstock.errors import (
    AccessRefused,
    PenstockError,
    RequestRefused,
    SourceUnavailable,
    Throttled,
)
from penstock.ports import KeepAlive, Source
from tests.simulation.scenario import PLACES, Scenario, Weather
from tests.simulation.world import World, microseconds

Raw = Mapping[str, object]


class Provider:
    """The provider's records, with every version that each of them ever had."""

    def __init__(self, world: World, scenario: Scenario) -> None:
        self._world = world
        self._bad = scenario.bad
        self._places = places_of(scenario.dataset)
        self.records: dict[int, Raw] = {}
        # id -> (since when, record or none), oldest first
        self.history: dict[int, list[tuple[int, Raw | None]]] = {}
        for number in world.random.sample(
            range(1, 2 * scenario.records), scenario.records
        ):
            self.put(number)

    def put(self, number: int) -> None:
        """Add a record, or change all of it but its place."""
        dice = self._world.random
        known = self.records.get(number)
        self._set(
            number,
            {
                "id": number,
                "title": f"point {number} of {dice.randrange(1000)}",
                "place": dice.choice(self._places) if known is None else known["place"],
                "count": -1 if dice.random() < self._bad else dice.randrange(9),
            },
        )

    def remove(self, number: int) -> None:
        self._set(number, None)

    def _set(self, number: int, record: Raw | None) -> None:
        if record is None:
            self.records.pop(number, None)
        else:
            self.records[number] = record
        self.history.setdefault(number, []).append((self._world.now, record))

    def versions(self, number: int, since: int, until: int) -> list[Raw | None]:
        """Return what a record was at any time between two instants."""
        current: Raw | None = None
        found: list[Raw | None] = []
        for at, record in self.history[number]:
            if at > until:
                break
            if at > since:
                found.append(current)
            current = record
        return [*found, current]

    def live(self, scenario: Scenario) -> None:
        """Change, and where the paging can stand it add and remove, records."""
        dice = self._world.random
        while True:
            self._world.sleep(microseconds(timedelta(seconds=dice.uniform(0.5, 20))))
            if self._world.elapsed > scenario.storm:
                continue
            number = dice.choice(sorted(self.history))
            action = dice.random()
            if not scenario.moving:
                if number in self.records:
                    self.put(number)
            elif action < 0.3:
                self.put(dice.randrange(1, 2 * scenario.records))
            elif action < 0.5:
                self.remove(number)
            elif number in self.records:
                self.put(number)


def places_of(dataset: Dataset) -> tuple[str, ...]:
    for axis in dataset.axes:
        if isinstance(axis, ListAxis) and isinstance(axis.values, tuple):
            return axis.values
    return PLACES


class Notice(Protocol):
    """What the witness wants to know of a request."""

    def sent(self, shard: Shard, position: Position | None) -> None: ...

    def answered(self, answer: Page | Redirect | PenstockError) -> None: ...

    def delivered(self, page: Page) -> None: ...


class ProviderSource(Source):
    """The provider as workers see it, with a way there, a way back, and faults."""

    def __init__(
        self,
        world: World,
        scenario: Scenario,
        provider: Provider,
        *,
        step: Callable[[], None],
        risky_step: Callable[[], None],
        weather: Callable[[], Weather],
        notice: Notice,
    ) -> None:
        self._world = world
        self._dataset: Dataset = scenario.dataset
        self._timeout = microseconds(scenario.patience.request)
        self._provider = provider
        self._step = step
        self._risky_step = risky_step
        self._weather = weather
        self._notice = notice

    @override
    def get_ready(
        self, shard: Shard, position: Position | None, still_here: KeepAlive
    ) -> None:
        """Nothing: this provider wants no signature."""

    @override
    def fetch(
        self,
        shard: Shard,
        position: Position | None,
        *,
        since: datetime | None,
        moved: Redirect | None = None,
    ) -> Page | Redirect:
        self._step()
        self._notice.sent(shard, position)
        answer = self._answer(shard, position)
        self._notice.answered(answer)
        self._world.sleep(self._duration(answer))
        # a page in hand, and not yet in the ledger: where a pause hurts most
        self._risky_step()
        if isinstance(answer, PenstockError):
            self._world.note(f"answer {answer.code}")
            raise answer
        if isinstance(answer, Page):
            self._notice.delivered(answer)
        self._world.note(f"answer {describe(answer)}")
        return answer

    def _duration(self, answer: Page | Redirect | PenstockError) -> int:
        dice = self._world.random
        if isinstance(answer, SourceUnavailable) and dice.random() < 0.3:
            return self._timeout
        if isinstance(answer, Redirect) and dice.random() < 0.5:
            return dice.randrange(self._timeout // 2, self._timeout)
        if dice.random() < self._weather().slow:
            return dice.randrange(self._timeout)
        return dice.randrange(1_000, 300_000)

    def _answer(
        self, shard: Shard, position: Position | None
    ) -> Page | Redirect | PenstockError:
        dice, weather = self._world.random, self._weather()
        draw = dice.random()
        for rate, fault in (
            (weather.source_down, source_down),
            (weather.cut_off, cut_off),
            (weather.throttled, throttled),
            (weather.stopped, stopped),
            (weather.refused, refused),
            (weather.moved, moved_elsewhere),
        ):
            if draw < rate:
                return fault(dice)
            draw -= rate
        return self._page(shard, position)

    def _page(self, shard: Shard, position: Position | None) -> Page:
        pages, size = self._dataset.http.pages, self._dataset.http.pages.size or 1
        found = sorted(self._matching(shard))[: self._dataset.source.cap]
        token: object = None
        if pages.by is Paging.OFFSET:
            offset = int(str(position["offset"])) if position else 0
            wanted = found[offset : offset + size]
        else:
            name = "token" if pages.by is Paging.CURSOR else "after"
            after = int(str(position[name])) if position else -1
            wanted = [number for number in found if number > after][:size]
            if wanted and wanted[-1] != found[-1]:
                token = wanted[-1]
        rows = [self._row(number, index) for index, number in enumerate(wanted)]
        seen = PageFacts(rows=len(rows), keys=wanted, next=token)
        step = next_step(pages, position, seen, client_bounds(shard))
        return Page(
            rows=rows,
            next=step.next,
            proof=step.proof,
            provider_time=self._world.clock().replace(microsecond=0),
        )

    def _matching(self, shard: Shard) -> Iterator[int]:
        for number, record in self._provider.records.items():
            for _, part in shard:
                if isinstance(part, Choice) and record["place"] != part.value:
                    break
                if isinstance(part, Span) and not part.start <= number < part.end:
                    break
            else:
                yield number

    def _row(self, number: int, index: int) -> RawRow:
        record = self._provider.records[number]
        return row_of(self._dataset, record, index)

    @override
    def preview(self, shard: Shard, *, since: datetime | None) -> str:
        return shard.key

    @override
    def read(self, raw: bytes) -> RawRow:
        return row_of(self._dataset, json.loads(raw), 0)


def row_of(dataset: Dataset, record: Raw, index: int) -> RawRow:
    values = tuple(record.get(path[0]) for path in dataset.paths)
    return RawRow(values, json.dumps(record).encode(), index)


def source_down(dice: random.Random) -> PenstockError:
    after = dice.choice([None, None, timedelta(seconds=dice.randint(0, 20))])
    return SourceUnavailable("the provider answered 503", retry_after=after)


def cut_off(dice: random.Random) -> PenstockError:
    return SourceUnavailable(f"the answer ends after {dice.randrange(999)} bytes")


def throttled(dice: random.Random) -> PenstockError:
    after = dice.choice([None, timedelta(seconds=dice.randint(0, 60))])
    return Throttled("429", retry_after=after)


def stopped(dice: random.Random) -> PenstockError:
    return AccessRefused(dice.choice([401, 403]), body="")


def refused(dice: random.Random) -> PenstockError:
    return RequestRefused(f"the provider answered {dice.choice([400, 404])}")


def moved_elsewhere(dice: random.Random) -> Redirect:
    return Redirect(url=f"https://provider.example/{dice.randrange(9)}")


def describe(answer: Page | Redirect) -> str:
    if isinstance(answer, Redirect):
        return "moved"
    return f"{len(answer.rows)} rows {answer.proof or answer.next}"
