"""The timeline of an import: a row for each worker, a bar for each claim."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from penstock.domain.jobs import Claim, ClaimOutcome, ImportId, JobId, WorkerId
from penstock.entrypoints.dashboard.rendering import span, visible
from penstock.ports.claims import ClaimBundle, ClaimLog, ClaimWindow

# the last claims that are drawn at once: the cost of an import of any size
MAX_CLAIMS = 20_000
# with more, a bar stands for all claims that a worker began in a part of the time
MAX_BARS = 1_000
MAX_BUNDLES = 2_000
MAX_BUCKETS = 100
MAX_WORKERS = 40
LISTED_CLAIMS = 50
MAX_LANES = 12
# pixels
LANE, GAP, THIN = 10, 3, 4
# of the width, in percent: a claim of a moment is still seen
MIN_WIDTH = 0.25
# nearer to the edge, a time would be cut off
EDGE = 4
MAX_TICKS = 5
TICKS = tuple(
    timedelta(seconds=seconds)
    for seconds in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200,
                    10_800, 21_600, 43_200, 86_400)
)  # fmt: skip
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# the state that a bar shows for an outcome, and its words, the worst first
OUTCOMES: Mapping[ClaimOutcome | None, tuple[str, str]] = {
    ClaimOutcome.FAILED: ("failed", "failed"),
    ClaimOutcome.LOST: ("lost", "lost"),
    ClaimOutcome.ERROR: ("error", "error, tried again"),
    ClaimOutcome.WAITING: ("waiting", "given back to wait"),
    ClaimOutcome.RELEASED: ("released", "given back"),
    ClaimOutcome.CANCELLED: ("idle", "cancelled"),
    ClaimOutcome.SPLIT: ("split", "split"),
    None: ("running", "running"),
    ClaimOutcome.DONE: ("done", "done"),
}
ORDER = [*OUTCOMES]
# thin bars, as they neither brought a shard forward nor failed
THIN_STATES = {"waiting", "released", "idle", "split"}


class Bar(NamedTuple):
    """A claim, or a part of a bundle of claims; across in percent, down in pixels."""

    state: str
    x: float
    width: float
    y: float
    height: float
    title: str
    # None: of several claims
    job: JobId | None = None


class Row(NamedTuple):
    """A worker with its claims."""

    owner: WorkerId
    height: int
    bars: Sequence[Bar]
    counts: Mapping[ClaimOutcome | None, int]
    busy: timedelta

    @property
    def claims(self) -> int:
        return sum(self.counts.values())


class Tick(NamedTuple):
    x: float
    at: datetime


class Timeline(NamedTuple):
    """What is drawn, and the same in words."""

    began_at: datetime
    ended_at: datetime
    rows: Sequence[Row]
    hidden_workers: int
    ticks: Sequence[Tick]
    tick_unit: str
    counts: Mapping[ClaimOutcome | None, int]
    is_bundled: bool
    # None: nothing is before it
    earlier: datetime | None
    # the last claims one by one; none if they are bundled
    listed: Sequence[Claim]

    @property
    def claims(self) -> int:
        return sum(self.counts.values())


class Axis(NamedTuple):
    """The time that a timeline shows."""

    began_at: datetime
    ended_at: datetime

    def place(self, at: datetime) -> float:
        """Return where a time is, in percent of the width."""
        length = max(self.ended_at - self.began_at, timedelta(milliseconds=1))
        return min(max((at - self.began_at) / length, 0.0), 1.0) * 100

    def stretch(self, since: datetime, until: datetime) -> tuple[float, float]:
        """Return place and width of a bar, which is never too thin to be seen."""
        x = min(self.place(since), 100 - MIN_WIDTH)
        width = max(self.place(until) - x, MIN_WIDTH)
        return round(x, 3), round(width, 3)


def read_timeline(
    log: ClaimLog, import_id: ImportId, now: datetime, *, before: datetime | None
) -> Timeline | None:
    """Read the last claims that began before a time, and draw them."""
    window = log.window(import_id, before=before, most=MAX_CLAIMS)
    if window is None:
        return None
    ended_at = end_of(window, now, before)
    axis = Axis(window.began_at, ended_at)
    # claims that begin at this moment are in the next picture
    until = ended_at if before is not None else ended_at + timedelta(microseconds=1)
    is_bundled = window.ended + window.running > MAX_BARS
    listed: Sequence[Claim] = ()
    if is_bundled:
        rows_drawn = min(window.workers, MAX_WORKERS)
        buckets = min(MAX_BUNDLES // rows_drawn, MAX_BUCKETS)
        bundles = log.bundles(
            import_id, began_at=axis.began_at, before=until, buckets=buckets
        )
        rows = draw_bundles(bundles, axis, now)
    else:
        listed = log.within(
            import_id, began_at=axis.began_at, before=until, limit=MAX_BARS
        )
        rows = draw_claims(listed, axis, now)
    shown = sorted(rows, key=lambda row: -row.claims)[:MAX_WORKERS]
    step = choose_step(axis)
    return Timeline(
        began_at=axis.began_at,
        ended_at=axis.ended_at,
        rows=sorted(shown, key=lambda row: row.owner),
        hidden_workers=len(rows) - len(shown),
        ticks=draw_ticks(axis, step),
        tick_unit=unit_of(step),
        counts=add_up(row.counts for row in rows),
        is_bundled=is_bundled,
        earlier=window.began_at if window.ended >= MAX_CLAIMS else None,
        listed=[*reversed(listed)][:LISTED_CLAIMS],
    )


def end_of(window: ClaimWindow, now: datetime, before: datetime | None) -> datetime:
    if before is not None:
        return before
    if window.running or window.ended_at is None:
        return now
    return window.ended_at


def draw_claims(claims: Sequence[Claim], axis: Axis, now: datetime) -> list[Row]:
    """Draw a bar for each claim; those of a worker that overlap are in lanes."""
    by_owner: dict[WorkerId, list[Claim]] = {}
    for claim in claims:
        by_owner.setdefault(claim.owner, []).append(claim)
    return [draw_row(owner, found, axis, now) for owner, found in by_owner.items()]


def draw_row(
    owner: WorkerId, claims: Sequence[Claim], axis: Axis, now: datetime
) -> Row:
    # when each lane is free again
    lanes: list[datetime] = []
    bars = []
    busy = timedelta()
    for claim in claims:
        until = max(claim.ended_at or now, claim.claimed_at)
        busy += until - claim.claimed_at
        lane = choose_lane(lanes, claim.claimed_at)
        lanes[lane] = max(lanes[lane], until)
        x, width = axis.stretch(claim.claimed_at, until)
        state, words = OUTCOMES[claim.outcome]
        height = THIN if state in THIN_STATES else LANE
        bars.append(
            Bar(
                state=state,
                x=x,
                width=width,
                y=GAP + lane * (LANE + GAP) + (LANE - height) / 2,
                height=height,
                title=f"{visible(claim.shard_key)}: {words}, "
                f"{span(until - claim.claimed_at)}",
                job=claim.job,
            )
        )
    counts = Counter(claim.outcome for claim in claims)
    return Row(owner, GAP + len(lanes) * (LANE + GAP), bars, counts, busy)


def choose_lane(lanes: list[datetime], at: datetime) -> int:
    """Return the first lane that is free, or a new one; the last takes all others."""
    for lane, free_at in enumerate(lanes):
        if free_at <= at:
            return lane
    if len(lanes) < MAX_LANES:
        lanes.append(at)
    return len(lanes) - 1


def draw_bundles(
    bundles: Sequence[ClaimBundle], axis: Axis, now: datetime
) -> list[Row]:
    """Draw a bar for all claims of a worker in a bucket, filled in proportion."""
    by_owner: dict[WorkerId, dict[int, list[ClaimBundle]]] = {}
    for bundle in bundles:
        by_owner.setdefault(bundle.owner, {}).setdefault(bundle.bucket, []).append(
            bundle
        )
    return [
        draw_bundled_row(owner, buckets, axis, now)
        for owner, buckets in by_owner.items()
    ]


def draw_bundled_row(
    owner: WorkerId,
    buckets: Mapping[int, Sequence[ClaimBundle]],
    axis: Axis,
    now: datetime,
) -> Row:
    height = 2 * LANE
    begins = [
        min(part.first_claimed_at for part in parts) for parts in buckets.values()
    ]
    bars: list[Bar] = []
    # a bar ends where the next begins, although its last claim may not
    limits = [*begins[1:], axis.ended_at]
    for parts, begin, limit in zip(buckets.values(), begins, limits, strict=True):
        end = min(max(part.last_ended_at or now for part in parts), limit)
        x, width = axis.stretch(begin, end)
        bars += stack(parts, x, width, height)
    counts = add_up({part.outcome: part.claims} for part in all_parts(buckets))
    busy = sum((part.busy for part in all_parts(buckets)), timedelta())
    return Row(owner, height + 2 * GAP, bars, counts, busy)


def all_parts(
    buckets: Mapping[int, Sequence[ClaimBundle]],
) -> Iterable[ClaimBundle]:
    return (part for parts in buckets.values() for part in parts)


def stack(
    parts: Sequence[ClaimBundle], x: float, width: float, height: int
) -> list[Bar]:
    """Return the outcomes of a bundle above each other, the worst at the bottom."""
    total = sum(part.claims for part in parts)
    ordered = sorted(parts, key=lambda part: ORDER.index(part.outcome))
    words = ", ".join(f"{part.claims} {OUTCOMES[part.outcome][1]}" for part in ordered)
    bars: list[Bar] = []
    bottom = float(GAP + height)
    for part in ordered:
        share = height * part.claims / total
        bottom -= share
        state = OUTCOMES[part.outcome][0]
        title = f"{total} claims: {words}" if total > 1 else words
        bars.append(Bar(state, x, width, round(bottom, 2), round(share, 2), title))
    return bars


def add_up(
    counts: Iterable[Mapping[ClaimOutcome | None, int]],
) -> Mapping[ClaimOutcome | None, int]:
    """Return the sums in the order of the legend, the best first."""
    total: Counter[ClaimOutcome | None] = Counter()
    for each in counts:
        total.update(each)
    return {outcome: total[outcome] for outcome in reversed(ORDER) if total[outcome]}


def choose_step(axis: Axis) -> timedelta:
    """Return a round distance of the times below a picture: at most `MAX_TICKS`."""
    length = axis.ended_at - axis.began_at
    for step in TICKS:
        if length / step <= MAX_TICKS:
            return step
    return TICKS[-1] * math.ceil(length / TICKS[-1] / MAX_TICKS)


def draw_ticks(axis: Axis, step: timedelta) -> list[Tick]:
    at = axis.began_at - (axis.began_at - EPOCH) % step + step
    ticks = []
    while at < axis.ended_at:
        x = axis.place(at)
        if EDGE <= x <= 100 - EDGE:
            ticks.append(Tick(round(x, 2), at))
        at += step
    return ticks


def unit_of(step: timedelta) -> str:
    if step >= timedelta(days=1):
        return "day"
    return "minute" if step >= timedelta(minutes=1) else "second"
