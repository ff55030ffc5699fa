"""Try what a configuration names: servers, their clocks, one request a dataset."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path

from penstock.domain.dataset import Dataset
from penstock.domain.source import CsvSource, is_address
from penstock.entrypoints.cli.shared import (
    counted,
    doubt_key,
    ignore,
    look,
    read_settings,
)
from penstock.errors import PenstockError
from penstock.flow.sample import Sampled
from penstock.ports import Fact, Facts
from penstock.settings import Settings
from penstock.wiring import Penstock, facts, opened

# clocks that differ by more are told, and by much more are a fault
NOTABLE, WRONG = timedelta(seconds=1), timedelta(seconds=30)
# of so many looks at a clock, the quickest is the most exact
LOOKS = 3
# what says nothing about whether a store can be used
MILD = frozenset({"clocks", "connections"})


def try_all(config: Path, *, threads: int) -> list[Fact]:
    """Try everything, whatever became of what was tried before."""
    settings = read_settings(config)
    found = list(try_servers(config, settings, threads=threads))
    if not all(each.is_well for each in found if each.what not in MILD):
        # who cannot count a request does not send it
        told = "not asked: its request could not be counted; mend the stores first"
        return found + [
            Fact(what=f"datasets.{name}", is_well=False, told=told)
            for name in settings.datasets
        ]
    try:
        with look(config) as penstock:
            found += [
                try_sample(penstock, dataset) for dataset in settings.datasets.values()
            ]
    except PenstockError as error:
        found.append(Fact(what="stores", is_well=False, told=str(error)))
    return found


def try_servers(config: Path, settings: Settings, *, threads: int) -> Iterator[Fact]:
    reached = []
    if settings.sqlite_path is not None:
        yield try_file(config, settings.sqlite_path)
    with ExitStack() as stack:
        for server in facts(settings, stack):
            try:
                yield from server.about(settings.datasets.values(), threads=threads)
            except PenstockError as error:
                yield Fact(what=server.server, is_well=False, told=str(error))
                continue
            reached.append(server)
            if server.server == "database":
                yield try_tables(settings)
        if reached:
            yield compared(reached)


def try_file(config: Path, path: Path) -> Fact:
    told = f"sqlite:///{path.name}"
    try:
        with look(config) as penstock:
            told = penstock.settings.place
    except PenstockError as error:
        return Fact(what="database", is_well=False, told=str(error))
    has_folder = path.parent.is_dir()
    if not has_folder:
        told += " cannot be created: there is no such folder"
    elif not path.exists():
        told += " is not there yet; run or migrate will create it"
    return Fact(what="database", is_well=has_folder, told=told)


def try_tables(settings: Settings) -> Fact:
    try:
        with opened(settings, ignore) as penstock:
            steps = pending(penstock)
    except PenstockError as error:
        return Fact(what="tables", is_well=False, told=str(error))
    if steps:
        told = f"{settings.place}: not up to date ({', '.join(steps)}); "
        return Fact(what="tables", is_well=False, told=f"{told}run: penstock migrate")
    return Fact(what="tables", is_well=True, told="up to date")


def pending(penstock: Penstock) -> list[str]:
    """Return what `penstock migrate` would do, and change nothing."""
    schema, datasets = penstock.stores.schema, penstock.settings.datasets.values()
    steps = [*schema.pending()]
    if not schema.is_there():
        return [*steps, *(f"create table {dataset.name}" for dataset in datasets)]
    for dataset in datasets:
        steps += schema.unprepared(dataset)
        steps += schema.untended(dataset)
    return steps


def compared(servers: Sequence[Facts]) -> Fact:
    """Compare the clocks of servers with each other and with this host's.

    Leases and budgets are judged by the servers alone, so no difference loses data.
    """
    try:
        ahead = {each.server: clock_ahead(each.now) for each in servers}
    except PenstockError as error:
        return Fact(what="clocks", is_well=False, told=str(error))
    spread = max(
        abs(one - other)
        for one, other in combinations([timedelta(0), *ahead.values()], 2)
    )
    told = ", ".join(f"{name} is {spelt(span)}" for name, span in ahead.items())
    if spread > NOTABLE:
        told += (
            "; synchronise them (NTP): leases and budgets go by the servers' clocks "
            "and are safe, but time windows end by the database's, and logs, --from, "
            "--until and TLS go by this host's"
        )
    return Fact(what="clocks", is_well=spread <= WRONG, told=told)


def clock_ahead(now: Callable[[], datetime]) -> timedelta:
    """Say how far a clock is ahead of this host's."""
    looks = []
    for _ in range(LOOKS):
        before = datetime.now(UTC)
        told = now()
        after = datetime.now(UTC)
        looks.append((after - before, told - (before + (after - before) / 2)))
    return min(looks)[1]


def spelt(ahead: timedelta) -> str:
    seconds = ahead.total_seconds()
    if abs(ahead) <= NOTABLE:
        return "within 1 s of this host"
    side = "ahead of" if seconds > 0 else "behind"
    return f"{abs(seconds):,.1f} s {side} this host"


def try_sample(penstock: Penstock, dataset: Dataset) -> Fact:
    """Ask for one page, and say whether it is what was declared."""
    what = f"datasets.{dataset.name}"
    try:
        found = sampled(penstock, dataset)
    except PenstockError as error:
        return Fact(what=what, is_well=False, told=str(error))
    if found.moved_to is not None:
        return Fact(what=what, is_well=True, told=f"redirects to {found.moved_to}")
    told = f"{counted(found.rows, 'record')} in the first page, {found.valid} valid"
    if found.complaint is not None:
        told += f"; the first that is not: {found.complaint}"
    if found.empty:
        told += f"; none of them has a value for {', '.join(found.empty)}"
    if found.outside:
        told += (
            f"; {found.outside} would be refused by the check of their shard: "
            f"{found.outside_reason}"
        )
    doubt = doubt_key(dataset, rows=found.valid, keys=found.keys)
    if doubt is not None:
        told += f"; {doubt}"
    worst = max(found.outside, found.rows - found.valid)
    return Fact(what=what, is_well=worst * 2 <= found.rows, told=told)


def doubt_keys(settings: Settings) -> Iterator[str]:
    """Look at the beginning of files at hand, and say which keys seem not to be any."""
    with opened(settings, ignore, scratch=True) as penstock:
        for dataset in settings.datasets.values():
            source = dataset.source
            if not isinstance(source, CsvSource) or any(map(is_address, source.files)):
                continue
            try:
                found = sampled(penstock, dataset)
            except PenstockError:
                # whether files are there and fit is tried where that is asked for
                continue
            doubt = doubt_key(dataset, rows=found.valid, keys=found.keys)
            if doubt is not None:
                yield f"datasets.{dataset.name}: {doubt}"


def sampled(penstock: Penstock, dataset: Dataset) -> Sampled:
    return penstock.sample(
        dataset,
        penstock.source(dataset),
        penstock.budget(dataset),
        longest=penstock.settings.longest_wait,
    )


def as_documents(found: Iterable[Fact], settings: Settings) -> list[dict[str, object]]:
    """Describe facts as `check --json` prints them, without what is secret."""
    return [
        {"what": each.what, "ok": each.is_well, "detail": settings.redact(each.told)}
        for each in found
    ]
