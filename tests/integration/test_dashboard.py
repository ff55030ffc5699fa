"""The dashboard as a browser gets it: whole pages, their content, and their files."""

import re
from datetime import timedelta

import pytest

from penstock.domain.jobs import ImportStatus
from penstock.entrypoints.dashboard.rendering import duration, number, visible
from penstock.ports.schedules import ScheduleStatus
from tests.support.api_client import OF
from tests.support.api_server import Running
from tests.support.workshop import wait_until

FILES = ("dashboard.css", "dashboard.js", "favicon.svg")


def page(running: Running, path: str = "/") -> str:
    response = running.client.get(path)
    assert response.status == 200
    return response.body.decode()


def wait_for(running: Running, text: str) -> str:
    """Return a page that shows a text; all watchers share one for a second."""
    wait_until(lambda: text in page(running), within=20)
    return page(running)


def test_a_page_is_whole_and_runs_nothing_foreign(running: Running):
    response = running.client.get("/")

    html = response.body.decode()
    assert response.headers["content-type"].startswith("text/html")
    policy = response.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert re.findall(r"<script(?! type=\"module\" src=\"/)|<style| on\w+=", html) == []
    assert re.findall(r"(?:href|src)=\"(?!/|#)[^\"]*", html) == []


@pytest.mark.parametrize("name", FILES)
def test_its_files_are_served_and_known_again(running: Running, name: str):
    first = running.client.get(f"/assets/{name}")
    again = running.client.get(f"/assets/{name}", if_none_match=first.headers["etag"])

    assert (first.status, again.status) == (200, 304)
    assert running.client.get("/assets/../overview.py").status == 404


def test_a_page_asks_for_its_content_only(running: Running):
    content = running.client.get("/", x_penstock_fragment="1")

    html = content.body.decode()
    assert "<html" not in html
    assert "<h1>Overview</h1>" in html
    assert content.headers["vary"] == "x-penstock-fragment"
    assert "<html" in page(running)


def test_the_overview_shows_imports_and_what_they_wait_for(running: Running):
    started = running.client.post(f"{OF}/poi/imports", {})
    running.wait_for(started.json["import_id"], ImportStatus.RUNNING)

    html = wait_for(running, f"full import {started.json['import_id']}")

    assert "no worker" in html


def test_what_is_broken_needs_attention(running: Running):
    name = running.api.penstock.budget(running.api.dataset("poi")).name
    running.stores.budgets.stop(name, reason="<script>alert(1)</script>")
    try:
        html = wait_for(running, f"budget {name} is stopped")
    finally:
        running.stores.budgets.open(name)

    assert "&lt;script&gt;" in html
    assert "<script>alert" not in html


def test_paused_schedules_need_attention(running: Running):
    created = running.client.post(
        "/api/v1/schedules", {"name": "hourly", "dataset": "poi", "every": "1h"}
    )
    assert created.status == 201
    running.stores.schedules.set_status(
        "hourly", ScheduleStatus.PAUSED, note="while they move"
    )

    wait_for(running, "schedule hourly is paused: while they move")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(seconds=0.4), "0 s"),
        (timedelta(seconds=61), "1 min 1 s"),
        (timedelta(hours=2), "2 h"),
        (timedelta(days=2, seconds=5), "2 d"),
        (3_725, "1 h 2 min"),
        (None, "\N{EN DASH}"),
    ],
)
def test_durations_are_written_in_two_units(value, text):
    assert duration(value).replace("\xa0", " ") == text


def test_numbers_have_groups_and_control_characters_are_seen():
    assert number(1_234_567).replace("\u202f", " ") == "1 234 567"
    assert number(2.25) == "2.2"
    assert visible("a\x00b\u202ec") == "a␀b␚c"
