"""What `schedules`, `check` and `status` say of schedules, and what they begin."""

import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from penstock.domain.jobs import ImportStatus
from penstock.entrypoints.cli.app import main
from penstock.entrypoints.cli.common import ignore_event, prepare, read_settings
from penstock.wiring import Container, open_container
from tests.support.workshop import BUGS, Ran

Command = Callable[..., Ran]

CONFIG = """\
[datasets.visits]
key = "id"
source = { url = "http://127.0.0.1:9/visits" }
fields = { id = { type = "int" }, seen = { type = "timestamp" } }

[datasets.visits.shards]
window = { kind = "time", from = "2026-01-01T00:00:00Z", step = "24h", \
send = { from = "a", until = "b" }, format = "%Y-%m-%dT%H:%M:%SZ", check = "seen" }

[datasets.shops]
key = "id"
fields = { id = { type = "int" } }
source = { type = "csv", files = "shops.csv" }
"""
SCHEDULES = """
[schedules.nightly]
dataset = "visits"
cron = "30 2 * * *"
timezone = "Europe/Berlin"
except = ["Sat,Sun 02:00-03:00"]

[schedules.shops]
dataset = "shops"
every = "15m"
"""
DAY = ("--from", "2026-02-01T00:00:00Z", "--until", "2026-02-02T00:00:00Z")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "penstock.toml"
    path.write_text(CONFIG + SCHEDULES, encoding="utf-8")
    (tmp_path / "shops.csv").write_text("id\n1\n", encoding="utf-8")
    return path


@pytest.fixture
def run(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run a command as its process would."""

    def penstock(*arguments: str) -> Ran:
        monkeypatch.chdir(config.parent)
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        code = end.value.code
        ran = Ran(code if isinstance(code, int) else 0, out, err)
        assert not any(word in ran.err for word in BUGS), ran.err
        return ran

    return penstock


@pytest.fixture
def stored(config: Path, run: Command) -> Command:
    """Store the declared schedules, as a scheduler does when it starts."""
    in_container(config, Container.declare_schedules)
    return run


def in_container(config: Path, work: Callable[[Container], object]) -> None:
    with open_container(read_settings(config), ignore_event) as penstock:
        prepare(penstock)
        work(penstock)


def test_declared_schedules_are_listed_before_a_scheduler_has_run(run):
    listed = run("schedules")
    as_json = run("schedules", "--json")

    assert (listed.code, as_json.code) == (0, 0)
    assert "At 02:30 every day (Europe/Berlin)" in listed.out
    assert "Every 15 minutes" in listed.out
    assert "no scheduler has run" in listed.out
    schedules = as_json.json["schedules"]
    assert [each["name"] for each in schedules] == ["nightly", "shops"]
    assert {each["status"] for each in schedules} == {"not stored yet"}


def test_nothing_is_done_with_a_schedule_that_no_scheduler_has_stored(run):
    refused = run("schedules", "pause", "nightly")
    unknown = run("schedules", "pause", "weekly")

    assert (refused.code, unknown.code) == (2, 2)
    assert "start one with: penstock worker --with-scheduler" in refused.err
    assert "there is no schedule 'weekly'; see: penstock schedules" in unknown.err


def test_schedules_are_listed_by_name_status_and_dataset(stored):
    def names(*options: str) -> list[str]:
        listed = stored("schedules", "list", "--json", *options)
        return [each["name"] for each in listed.json["schedules"]]

    assert names() == ["nightly", "shops"]
    assert names("--dataset", "shops") == ["shops"]
    assert names("--status", "paused") == []
    assert names("--limit", "1") == ["nightly"]
    assert names("--after", "nightly") == ["shops"]


def test_a_pause_has_a_note_until_it_is_resumed(stored):
    paused = stored("schedules", "pause", "nightly", "--note", "they move", "--json")
    listed = stored("schedules")
    resumed = stored("schedules", "resume", "nightly")

    assert (paused.json["status"], paused.json["note"]) == ("paused", "they move")
    assert "they move" in listed.out
    assert resumed.out == "Schedule nightly is active.\n"
    shown = stored("schedules", "show", "nightly", "--json").json
    assert (shown["status"], shown["note"]) == ("active", None)


def test_a_schedule_is_shown_with_its_next_fires_in_two_zones(stored):
    shown = stored("schedules", "show", "nightly", "--json").json

    assert len(shown["upcoming"]) == 3
    for fire in shown["upcoming"]:
        local = datetime.fromisoformat(fire["local"])
        assert (local.hour, local.minute) == (2, 30)
        assert local == datetime.fromisoformat(fire["fire_at"])
        is_weekend = local.weekday() >= 5
        assert fire["exception"] == ("Sat,Sun 02:00-03:00" if is_weekend else None)
    assert shown["fires"] == []
    assert "next fires" in stored("schedules", "show", "nightly").out


def test_a_run_is_planned_at_once_and_shown_among_the_fires(stored, config):
    begun = stored("schedules", "run", "shops", "--json")
    again = stored("schedules", "run", "shops")

    assert begun.code == 0
    assert begun.json["status"] == ImportStatus.RUNNING
    assert again.code == 1
    assert "is unfinished; let it finish, or cancel it" in again.err
    (fire,) = stored("schedules", "show", "shops", "--json").json["fires"]
    assert fire["import_id"] == begun.json["import_id"]
    assert (fire["requested"], fire["outcome"]) == (True, "started")
    assert "workers run it" in stored("schedules", "run", "nightly").out


def test_a_range_is_imported_again(stored):
    first = stored("schedules", "backfill", "nightly", *DAY, "--json").json
    stored("imports", "cancel", str(first["import_id"]))
    second = stored("schedules", "backfill", "nightly", *DAY, "--json").json

    assert (first["mode"], first["since"]) == ("backfill", DAY[1])
    assert second["import_id"] != first["import_id"]


def test_files_have_no_backfill(stored):
    refused = stored("schedules", "backfill", "shops", *DAY)

    assert refused.code == 2
    assert "files, which are imported as a whole" in refused.err


def test_fields_that_no_scheduler_has_read_yet_are_a_conflict(stored, config):
    text = config.read_text("utf-8").replace('every = "15m"', 'every = "30m"')
    config.write_text(text, encoding="utf-8")

    listed = stored("schedules", "--dataset", "shops", "--json").json["schedules"]

    assert "penstock.toml has other fields" in listed[0]["conflict"]
    assert listed[0]["fields"]["every"] == "15m"


def test_check_says_when_each_schedule_fires(run, config):
    text = config.read_text("utf-8")
    config.write_text(text.replace("30 2 * * *", "30 2 * * sun"), encoding="utf-8")

    checked = run("check")
    nightly, shops = run("check", "--json").json["schedules"]

    assert checked.code == 0
    assert f"schedule nightly: {nightly['trigger']}" in checked.out
    assert "schedule shops: Every 15 minutes" in checked.out
    assert len(shops["upcoming"]) == 3
    for fire in nightly["upcoming"]:
        assert f"{fire['local']} = {fire['fire_at']}, skipped by" in checked.out
        local = datetime.fromisoformat(fire["local"])
        assert local == datetime.fromisoformat(fire["fire_at"])


def test_status_shows_what_needs_attention_first(stored):
    stored("schedules", "pause", "shops", "--note", "the provider moves")

    seen = stored("status")
    schedules = stored("status", "--json").json["schedules"]

    assert "the provider moves" in seen.out
    assert [each["name"] for each in schedules] == ["shops", "nightly"]
    assert schedules[1]["next_run_at"] is not None


def test_status_shows_what_no_scheduler_has_stored(run):
    assert "no scheduler has run" in run("status").out
