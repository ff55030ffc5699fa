"""What part of time an import covers, and which bound the provider is told."""

from dataclasses import dataclass, replace
from datetime import datetime

from penstock.domain.axes import Bounds, TimeAxis
from penstock.domain.dataset import Dataset
from penstock.domain.job import Mode
from penstock.domain.source import CsvSource
from penstock.domain.text import in_utc
from penstock.domain.time_formats import format_unit, round_down
from penstock.errors import Misconfigured


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The bounds of an import; an open end is the database's time when it begins."""

    mode: Mode
    since: datetime | None = None
    until: datetime | None = None
    # these instead of the declared ones, by the names under which a source finds them
    files: tuple[str, ...] = ()
    # whether rows of files that are gone may be marked as deleted
    accept_lost_files: bool = False


def decide_scope(
    dataset: Dataset, asked: Scope, *, watermark: datetime | None
) -> Scope:
    """Return the bounds of a new import, or say why there can be none."""
    if asked.accept_lost_files:
        refuse_lost_files(dataset, asked)
    if asked.files:
        return decide_files(dataset, asked)
    match asked.mode:
        case Mode.FULL:
            if asked.since is not None or asked.until is not None:
                raise Misconfigured(
                    "--from belongs to --mode delta or backfill, --until to backfill; "
                    "a full import covers what the dataset declares"
                )
            return asked
        case Mode.DELTA:
            return decide_delta(dataset, asked, watermark=watermark)
        case Mode.BACKFILL:
            return decide_backfill(dataset, asked)


def refuse_lost_files(dataset: Dataset, asked: Scope) -> None:
    """Refuse an answer to a question that an import cannot ask."""
    is_read = isinstance(dataset.source, CsvSource)
    if not is_read or asked.files or asked.mode is not Mode.FULL:
        raise Misconfigured(
            "--accept-lost-files is for full imports of the files that a dataset "
            "declares"
        )


def decide_files(dataset: Dataset, asked: Scope) -> Scope:
    """Let some files add to what is stored: they are no snapshot, so nothing is missing
    from them.
    """  # noqa: D205 (one sentence that needs two lines)
    if not isinstance(dataset.source, CsvSource):
        raise Misconfigured(
            f"--file is for datasets of files, and {dataset.name!r} comes from a "
            "provider"
        )
    if asked.mode is not Mode.FULL or asked.since or asked.until:
        raise Misconfigured("--mode, --from and --until have no meaning with --file")
    return replace(asked, mode=Mode.BACKFILL)


def decide_delta(
    dataset: Dataset, asked: Scope, *, watermark: datetime | None
) -> Scope:
    axis = time_axis(dataset)
    if dataset.delta is None and axis is None:
        raise Misconfigured(
            f"datasets.{dataset.name} has neither a delta table nor a time axis, so it "
            "cannot be asked for changes; use --mode full"
        )
    if asked.until is not None:
        raise Misconfigured("--until belongs to --mode backfill")
    since = asked.since or watermark
    if since is None:
        raise Misconfigured(
            f"there is no proven import of {dataset.name!r} to start from; run "
            f"penstock run {dataset.name} first, or say --from"
        )
    if dataset.delta is not None:
        if asked.since is None:
            since -= dataset.delta.overlap
        # the provider is told no more than its format can say: round down
        since = round_down(in_utc(since), format_unit(dataset.delta.format))
    elif axis is not None and asked.since is None:
        # what was stamped late lies in the last window: read that once more
        since -= axis.step
    return Scope(mode=asked.mode, since=since)


def decide_backfill(dataset: Dataset, asked: Scope) -> Scope:
    has_time = time_axis(dataset) is not None
    if asked.since is None:
        raise Misconfigured("--mode backfill needs --from, and --until where it ends")
    if asked.until is not None and asked.until <= asked.since:
        raise Misconfigured("--until must be later than --from")
    if not has_time and (dataset.delta is None or asked.until is not None):
        raise Misconfigured(
            f"datasets.{dataset.name} has no time axis, so the provider cannot be told "
            "where a backfill ends; add one to "
            f"[datasets.{dataset.name}.shards], or use --mode full"
        )
    return asked


def time_axis(dataset: Dataset) -> TimeAxis | None:
    """Return the first time axis."""
    return next((axis for axis in dataset.axes if isinstance(axis, TimeAxis)), None)


def told_since(dataset: Dataset, mode: Mode, since: datetime | None) -> datetime | None:
    """Return the lower bound that goes into every request of an import, if one does."""
    if dataset.delta is None or mode is Mode.FULL:
        return None
    if mode is Mode.BACKFILL and time_axis(dataset) is not None:
        return None
    return since


def axis_bounds(
    dataset: Dataset, mode: Mode, *, since: datetime | None, until: datetime
) -> Bounds:
    """Return the bounds of the time axes.

    The axis of a delta import starts at its lower bound only where both speak of the
    same field, or where the axis is all there is.
    """
    axis = time_axis(dataset)
    is_bound = mode is Mode.BACKFILL or (
        mode is Mode.DELTA
        and (dataset.delta is None or (axis and axis.check == dataset.delta.field))
    )
    return Bounds(since=since if is_bound else None, until=until)
