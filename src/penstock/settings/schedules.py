"""Schedules of the file and of the API, and their rules with the datasets."""

from collections.abc import Iterable, Iterator, Mapping

from pydantic import ValidationError

from penstock.domain.dataset import Dataset
from penstock.domain.import_scope import time_axis
from penstock.domain.jobs import Mode
from penstock.domain.scheduling.schedule import AfterTrigger, Schedule
from penstock.domain.source import CsvSource
from penstock.settings.models.schedule import ScheduleTable, build_schedule
from penstock.settings.validation_errors import (
    Problem,
    TriedModels,
    did_you_mean,
    to_problems,
)


def parse_schedule(
    name: str, fields: Mapping[str, object], datasets: Mapping[str, Dataset]
) -> tuple[Schedule | None, list[Problem]]:
    """Parse a schedule, and say what is wrong; paths are relative to it.

    There is one although it does not fit the datasets: its fires are known.
    """
    tried: TriedModels = {}
    given = dict(fields)
    try:
        table = ScheduleTable.model_validate(given, context=tried)
    except ValidationError as error:
        return None, [*to_problems(error, given, at=(), tried=tried)]
    schedule = build_schedule(name, table)
    return schedule, [*schedule_rules(schedule, datasets)]


def schedule_rules(
    schedule: Schedule, datasets: Mapping[str, Dataset]
) -> Iterator[Problem]:
    """Yield what keeps a schedule from importing its dataset."""
    dataset = datasets.get(schedule.dataset)
    if dataset is None:
        yield ("dataset",), not_declared(schedule.dataset, datasets)
    else:
        yield from mode_rules(schedule, dataset)
    if isinstance(schedule.trigger, AfterTrigger):
        for number, name in enumerate(schedule.trigger.datasets):
            if name not in datasets:
                yield ("after", number), not_declared(name, datasets)


def not_declared(name: str, datasets: Iterable[str]) -> str:
    return f"dataset {name!r} is not declared; {did_you_mean(name, datasets)}"


def mode_rules(schedule: Schedule, dataset: Dataset) -> Iterator[Problem]:
    mode = schedule.mode
    if mode is None or mode is Mode.FULL:
        return
    if isinstance(dataset.source, CsvSource):
        message = "files are imported as a whole, and unchanged ones are not read again"
        yield ("mode",), f"{message}; remove it"
        return
    has_time = time_axis(dataset) is not None
    if mode is Mode.DELTA and dataset.delta is None and not has_time:
        message = f"datasets.{dataset.name} has neither a delta table nor a time axis"
        yield ("mode",), f"{message}; use full"
    if mode is Mode.BACKFILL and not has_time:
        message = f"datasets.{dataset.name} has no time axis, so a range has no end"
        yield ("mode",), f"{message}; use full or delta"


def circle_rules(schedules: Mapping[str, Schedule]) -> Iterator[Problem]:
    """Refuse schedules that would start each other for ever."""
    follows: dict[str, set[str]] = {}
    for schedule in schedules.values():
        if isinstance(schedule.trigger, AfterTrigger):
            parents = follows.setdefault(schedule.dataset, set())
            parents.update(schedule.trigger.datasets)
    for name, schedule in schedules.items():
        if not isinstance(schedule.trigger, AfterTrigger):
            continue
        reached = set[str]()
        queue: list[str] = [*schedule.trigger.datasets]
        while queue:
            parent = queue.pop()
            if parent not in reached:
                reached.add(parent)
                queue.extend(follows.get(parent, ()))
        if schedule.dataset in reached:
            message = "would start itself, through the schedules of"
            named = ", ".join(sorted(map(repr, reached)))
            yield (name, "after"), f"dataset {schedule.dataset!r} {message} {named}"
