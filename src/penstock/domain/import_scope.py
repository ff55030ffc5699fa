"""The time range or files that an import covers, and the bounds of its requests."""

from dataclasses import dataclass, replace
from datetime import datetime

from penstock.domain.dataset import Dataset
from penstock.domain.formats import in_utc
from penstock.domain.jobs import Mode
from penstock.domain.sharding.axes import Bounds, TimeAxis
from penstock.domain.source import CsvSource
from penstock.domain.time_formats import format_unit, round_down
from penstock.errors import Misconfigured


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportScope:
    """The bounds of an import; an open end is the database's time at its start."""

    mode: Mode
    since: datetime | None = None
    until: datetime | None = None
    # files to read instead of the declared ones, by the names that the source uses
    files: tuple[str, ...] = ()
    # whether rows of files that no longer exist may be marked as deleted
    accept_lost_files: bool = False
    # whether more rows may lose to another row of their key than `max_duplicates`
    accept_duplicates: bool = False


def decide_scope(
    dataset: Dataset, requested: ImportScope, *, watermark: datetime | None
) -> ImportScope:
    """Return the bounds of a new import; raises `Misconfigured` for a bad request."""
    if requested.accept_lost_files:
        refuse_lost_files(dataset, requested)
    if requested.accept_duplicates and requested.mode is not Mode.FULL:
        raise Misconfigured(
            "--accept-duplicates is for full imports; the rows of others may replace "
            "each other"
        )
    if requested.files:
        return decide_files(dataset, requested)
    match requested.mode:
        case Mode.FULL:
            if requested.since is not None or requested.until is not None:
                raise Misconfigured(
                    "--from belongs to --mode delta or backfill, --until to backfill; "
                    "a full import covers what the dataset declares"
                )
            return requested
        case Mode.DELTA:
            return decide_delta(dataset, requested, watermark=watermark)
        case Mode.BACKFILL:
            return decide_backfill(dataset, requested)


def refuse_lost_files(dataset: Dataset, requested: ImportScope) -> None:
    """Reject `--accept-lost-files` for imports that it cannot apply to."""
    has_files = isinstance(dataset.source, CsvSource)
    if not has_files or requested.files or requested.mode is not Mode.FULL:
        raise Misconfigured(
            "--accept-lost-files is for full imports of the files that a dataset "
            "declares"
        )


def decide_files(dataset: Dataset, requested: ImportScope) -> ImportScope:
    """Return a backfill of some files: as no snapshot, it marks no row as missing."""
    if not isinstance(dataset.source, CsvSource):
        raise Misconfigured(
            f"--file is for datasets of files, and {dataset.name!r} comes from a "
            "provider"
        )
    if requested.mode is not Mode.FULL or requested.since or requested.until:
        raise Misconfigured("--mode, --from and --until have no meaning with --file")
    return replace(requested, mode=Mode.BACKFILL)


def decide_delta(
    dataset: Dataset, requested: ImportScope, *, watermark: datetime | None
) -> ImportScope:
    axis = time_axis(dataset)
    if dataset.delta is None and axis is None:
        raise Misconfigured(
            f"datasets.{dataset.name} has neither a delta table nor a time axis, so it "
            "cannot be asked for changes; use --mode full"
        )
    if requested.until is not None:
        raise Misconfigured("--until belongs to --mode backfill")
    since = requested.since or watermark
    if since is None:
        raise Misconfigured(
            f"there is no proven import of {dataset.name!r} to start from; run "
            f"penstock run {dataset.name} first, or say --from"
        )
    if dataset.delta is not None:
        if requested.since is None:
            since -= dataset.delta.overlap
        # the format of the request may be coarser: round down
        since = round_down(in_utc(since), format_unit(dataset.delta.format))
    elif axis is not None and requested.since is None:
        # records with late timestamps are in the last window: read it once more
        since -= axis.step
    return ImportScope(mode=requested.mode, since=since)


def decide_backfill(dataset: Dataset, requested: ImportScope) -> ImportScope:
    has_time = time_axis(dataset) is not None
    if requested.since is None:
        raise Misconfigured("--mode backfill needs --from, and --until where it ends")
    if requested.until is not None and requested.until <= requested.since:
        raise Misconfigured("--until must be later than --from")
    if not has_time and (dataset.delta is None or requested.until is not None):
        raise Misconfigured(
            f"datasets.{dataset.name} has no time axis, so requests cannot say "
            "where a backfill ends; add one to "
            f"[datasets.{dataset.name}.shards], or use --mode full"
        )
    return requested


def time_axis(dataset: Dataset) -> TimeAxis | None:
    return next((axis for axis in dataset.axes if isinstance(axis, TimeAxis)), None)


def request_lower_bound(
    dataset: Dataset, mode: Mode, since: datetime | None
) -> datetime | None:
    """Return the lower bound that every request of an import has, if any."""
    if dataset.delta is None or mode is Mode.FULL:
        return None
    if mode is Mode.BACKFILL and time_axis(dataset) is not None:
        return None
    return since


def axis_bounds(
    dataset: Dataset, mode: Mode, *, since: datetime | None, until: datetime
) -> Bounds:
    """Return the bounds of the time axes.

    The axis of a delta import starts at its lower bound only where both use the same
    field, or where the dataset has no delta table.
    """
    axis = time_axis(dataset)
    is_bound = mode is Mode.BACKFILL or (
        mode is Mode.DELTA
        and (dataset.delta is None or (axis and axis.check == dataset.delta.field))
    )
    return Bounds(since=since if is_bound else None, until=until)
