"""[schedules.*] and the short form become schedules, or sentences."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.domain.jobs import Mode
from penstock.domain.scheduling.schedule import (
    CatchUp,
    CronTrigger,
    IntervalTrigger,
    OnceTrigger,
    Overlap,
)
from penstock.errors import Misconfigured
from penstock.settings import load
from penstock.settings.schedules import parse_schedule

MINIMAL = """
[datasets.poi]
key = "id"
fields = { id = { type = "int" } }
source = { url = "https://api.example.org/poi" }
[datasets.poi.shards.w]
kind = "time"
from = "2026-01-01T00:00:00Z"
step = "1h"
send = { from = "a", until = "b" }
[datasets.shops]
key = "id"
fields = { id = { column = "id" } }
source = { type = "csv", files = "*.csv" }
[datasets.regions]
key = "id"
fields = { id = { type = "int" } }
source = { url = "https://api.example.org/regions" }
"""


@pytest.fixture
def read(tmp_path):
    def read_text(text):
        path = tmp_path / "penstock.toml"
        path.write_text(text, encoding="utf-8")
        return load(path, {})

    return read_text


@pytest.fixture
def refuse(read):
    def refuse_text(text):
        with pytest.raises(Misconfigured) as caught:
            read(text)
        return str(caught.value)

    return refuse_text


def parse(settings, name):
    declared = settings.schedules[name]
    schedule, problems = parse_schedule(name, declared.fields, settings.datasets)
    assert problems == []
    return schedule


def test_a_schedule_has_all_that_is_declared(read):
    settings = read(
        MINIMAL
        + """
[schedules.poi-delta]
dataset = "poi"
mode = "backfill"
cron = "*/15 8-18 * * mon-fri"
timezone = "Europe/Berlin"
jitter = "30s"
overlap = "queue"
catch_up = "all"
catch_up_max = 5
catch_up_age = "12h"
except = "Mon-Fri 08:00-10:00"
pause_after = 3
"""
    )

    schedule = parse(settings, "poi-delta")

    assert isinstance(schedule.trigger, CronTrigger)
    assert schedule.trigger.zone.key == "Europe/Berlin"
    assert (schedule.mode, schedule.overlap) == (Mode.BACKFILL, Overlap.QUEUE)
    assert (schedule.catch_up, schedule.catch_up_max) == (CatchUp.ALL, 5)
    assert schedule.catch_up_age == timedelta(hours=12)
    assert [window.text for window in schedule.exceptions] == ["Mon-Fri 08:00-10:00"]
    assert schedule.pause_after == 3


def test_a_schedule_may_accept_rows_that_overwrite_each_other(read, refuse):
    text = """
[schedules.often]
dataset = "poi"
every = "1h"
accept_duplicates = true
"""

    assert parse(read(MINIMAL + text), "often").accept_duplicates
    found = refuse(f'{MINIMAL}{text}mode = "delta"')
    assert 'schedules.often.accept_duplicates: has no meaning with mode = "d' in found


def test_a_trigger_in_a_dataset_is_a_schedule_of_its_name(read):
    settings = read(MINIMAL.replace("[datasets.shops]", '[datasets.shops]\nevery="1h"'))

    schedule = parse(settings, "shops")

    assert schedule.dataset == "shops"
    assert schedule.trigger == IntervalTrigger(interval=timedelta(hours=1))


@pytest.mark.parametrize(
    ("at", "zone", "instant"),
    [
        ('"2026-12-24T18:00:00"', 'timezone = "Europe/Berlin"', 17),
        ("2026-12-24T18:00:00", 'timezone = "Europe/Berlin"', 17),
        ("2026-12-24T18:00:00+02:00", "", 16),
        ("2026-12-24T18:00:00", "", 18),
    ],
)
def test_a_date_is_read_in_its_zone(read, at, zone, instant):
    settings = read(f'{MINIMAL}[schedules.x]\ndataset = "poi"\nat = {at}\n{zone}')

    assert parse(settings, "x").trigger == OnceTrigger(
        at=datetime(2026, 12, 24, instant, tzinfo=UTC)
    )


REFUSED = {
    "no trigger": ("", "schedules.x: nothing says when it fires"),
    "two triggers": (
        'every = "1h"\ncron = "@daily"',
        "schedules.x.every: a schedule has one trigger, and cron is given",
    ),
    "zone": (
        'cron = "@daily"\ntimezone = "Europe/Berlinn"',
        "schedules.x.timezone: 'Europe/Berlinn' is no time zone; did you mean 'Europe/",
    ),
    "never": ('cron = "0 0 30 2 *"', "schedules.x.cron: bad day-of-month"),
    "short": ('every = "500ms"', "schedules.x.every: '500ms' is shorter than a second"),
    "jitter": (
        'every = "1m"\njitter = "31s"',
        "schedules.x.jitter: is longer than half of what is between fires, 30s",
    ),
    "jitter of cron": (
        'cron = "0,5 8 * * *"\njitter = "3m"',
        "schedules.x.jitter: is longer than half of what is between fires, 150s",
    ),
    "zone of an interval": (
        'every = "1m"\ntimezone = "Europe/Berlin"',
        "schedules.x.timezone: has no meaning with every",
    ),
    "all": (
        'every = "1m"\ncatch_up = "all"',
        'schedules.x.catch_up: is for mode = "backfill"',
    ),
    "lost ranges": (
        'every = "1m"\ncatch_up = "all"\nmode = "backfill"',
        'schedules.x.overlap: must be "queue"',
    ),
    "window": (
        'every = "1m"\nexcept = ["always"]',
        "schedules.x.except[0]: 'always' is not a window such as",
    ),
    "unknown key": (
        'every = "1m"\ncatchup = "all"',
        "schedules.x.catchup: unknown key; did you mean 'catch_up'?",
    ),
    "after": (
        'after = "region"',
        "schedules.x.after[0]: dataset 'region' is not declared; did you mean",
    ),
    "circle": ('after = "poi"', "schedules.x.after: dataset 'poi' would start itself"),
}


@pytest.mark.parametrize(("fields", "message"), REFUSED.values(), ids=list(REFUSED))
def test_a_bad_schedule_is_refused_with_its_place(refuse, fields, message):
    assert message in refuse(f'{MINIMAL}[schedules.x]\ndataset = "poi"\n{fields}')


@pytest.mark.parametrize(
    ("dataset", "mode", "message"),
    [
        ("shops", "backfill", "schedules.x.mode: files are imported as a whole"),
        ("regions", "backfill", "schedules.x.mode: datasets.regions has no time axis"),
        ("regions", "delta", "schedules.x.mode: datasets.regions has neither a delta"),
        ("regio", "full", "schedules.x.dataset: dataset 'regio' is not declared"),
    ],
)
def test_a_mode_must_suit_its_dataset(refuse, dataset, mode, message):
    text = f'[schedules.x]\ndataset = "{dataset}"\nevery = "1h"\nmode = "{mode}"'

    assert message in refuse(MINIMAL + text)


def test_a_circle_of_several_schedules_is_refused(refuse):
    message = refuse(
        MINIMAL
        + '[schedules.a]\ndataset = "poi"\nafter = ["regions"]\n'
        + '[schedules.b]\ndataset = "regions"\nafter = ["poi"]\n'
    )

    assert "schedules.a.after: dataset 'poi' would start itself" in message


def test_two_schedules_of_one_name_are_refused(refuse):
    text = MINIMAL.replace("[datasets.shops]", '[datasets.shops]\nevery = "1h"')

    message = refuse(text + '[schedules.shops]\ndataset = "shops"\nevery = "2h"')

    assert "datasets.shops.every: [schedules.shops] has the same name" in message
