"""What a seed decides before anything happens: the dataset, the limits, the storm."""

import random
from dataclasses import dataclass
from datetime import timedelta

from penstock.domain.budget import Budget, Limit
from penstock.domain.dataset import (
    Dataset,
    DatasetName,
    Field,
    FieldType,
    Missing,
    WhenMissing,
)
from penstock.domain.sharding.axes import Axis, ListAxis, RangeAxis
from penstock.domain.source import End, HttpSource, Pagination, Paging
from penstock.flow.import_shard import Timeouts

PLACES = ("a", "b", "c", "d", "e")


@dataclass(frozen=True, kw_only=True)
class Weather:
    """How likely each fault is where it can happen."""

    # at every step of an actor
    crash: float
    pause: float
    terminate: float
    # at every call of a store
    unavailable: float
    lost_reply: float
    torn: float
    replay: float
    # at every request
    source_down: float
    cut_off: float
    throttled: float
    stopped: float
    refused: float
    moved: float
    slow: float
    # at every round of an operator
    cancel: float


CALM = Weather(
    crash=0,
    pause=0,
    terminate=0,
    unavailable=0,
    lost_reply=0,
    torn=0,
    replay=0,
    source_down=0,
    cut_off=0,
    throttled=0,
    stopped=0,
    refused=0,
    moved=0,
    slow=0,
    cancel=0,
)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    dataset: Dataset
    budget: Budget
    patience: Timeouts
    weather: Weather
    workers: int
    records: int
    # the share of records that their fields refuse
    bad: float
    # how many imports have to be done
    imports: int
    # how long the storm lasts
    storm: timedelta
    # may records appear and vanish during a scan? Offsets cannot stand that, and a
    # cap that the provider counts from its own first record hides what is behind
    moving: bool
    # how long the world goes on after its work is done, so that sleepers wake up
    linger: timedelta


def draw_scenario(dice: random.Random) -> Scenario:
    lease = timedelta(seconds=dice.choice([30, 60]))
    patience = Timeouts(
        lease=lease, longest_wait=lease / 6, request=lease / 2, commit=lease / 6
    )
    pages = draw_pages(dice)
    is_capped = pages.by in {Paging.OFFSET, Paging.CURSOR} and dice.random() < 0.5
    records = dice.randint(8, 40)
    axes = draw_axes(dice, is_capped=is_capped, last=2 * records)
    missing = Missing(
        do=dice.choice([WhenMissing.KEEP, WhenMissing.MARK]), max_drop=1.0
    )
    dataset = Dataset(
        name=DatasetName("points"),
        fields=(
            Field(name="id", path=("id",), type=FieldType.INT, required=True),
            Field(name="title", path=("title",), required=True),
            Field(name="place", path=("place",)),
            Field(name="count", path=("count",), type=FieldType.INT, min=0),
        ),
        key=("id",),
        source=HttpSource(
            url="https://provider.example/points",
            pages=pages,
            budget="provider",
            timeout=patience.request,
            cap=dice.randint(pages.size or 4, 12) if is_capped else None,
        ),
        axes=axes,
        missing=missing,
        # rows change while they are read, and pages overlap
        max_duplicates=1,
    )
    return Scenario(
        dataset=dataset,
        budget=draw_budget(dice),
        patience=patience,
        weather=draw_weather(dice),
        workers=dice.randint(2, 5),
        records=records,
        bad=dice.choice([0.0, 0.0, 0.1]),
        imports=dice.choice([1, 1, 2]),
        storm=timedelta(seconds=dice.randint(30, 400)),
        moving=not is_capped and pages.by in {Paging.KEYSET, Paging.CURSOR},
        linger=dice.choice([0, 0, 3]) * lease,
    )


def draw_pages(dice: random.Random) -> Pagination:
    size = dice.randint(2, 5)
    by = dice.choice([Paging.KEYSET, Paging.KEYSET, Paging.OFFSET, Paging.CURSOR])
    if by is Paging.CURSOR:
        return Pagination(by=by, send="token", next=("next",), size=size)
    return Pagination(
        by=by,
        send="at",
        field=("id",) if by is Paging.KEYSET else None,
        size=size,
        end=dice.choice([End.EMPTY, End.SHORT]),
    )


def draw_axes(dice: random.Random, *, is_capped: bool, last: int) -> tuple[Axis, ...]:
    most = 2 if is_capped else len(PLACES)
    places = ListAxis(
        name="place",
        values=PLACES[: dice.randint(1, most)],
        send="place",
        check=("place",),
    )
    if not is_capped:
        return dice.choice([(), (places,), (places,), (places,)])
    ids = RangeAxis(
        name="ids",
        start=0,
        until=2 * last,
        step=dice.choice([last, 2 * last]),
        send_from="from",
        send_until="until",
        check=("id",),
    )
    return dice.choice([(ids,), (places, ids)])


def draw_budget(dice: random.Random) -> Budget:
    limits = [Limit(requests=dice.choice([2, 5, 20]), period=timedelta(seconds=1))]
    if dice.random() < 0.2:
        limits = [Limit(requests=dice.choice([60, 120]), period=timedelta(minutes=1))]
    if dice.random() < 0.1:
        limits.append(Limit(requests=40, period=timedelta(hours=1)))
    return Budget(name="provider", limits=tuple(limits), burst=dice.randint(1, 5))


def draw_weather(dice: random.Random) -> Weather:
    """Make each fault absent, rare or frequent, so that no seed is like another."""

    def rate(usual: float) -> float:
        return usual * dice.choice([0, 0, 0.3, 1, 1, 3])

    return Weather(
        crash=rate(0.002),
        pause=rate(0.003),
        terminate=rate(0.001),
        unavailable=rate(0.01),
        lost_reply=rate(0.01),
        torn=rate(0.02),
        replay=rate(0.02),
        source_down=rate(0.03),
        cut_off=rate(0.02),
        throttled=rate(0.02),
        stopped=rate(0.01),
        refused=rate(0.005),
        moved=rate(0.06),
        slow=rate(0.1),
        cancel=rate(0.03),
    )
