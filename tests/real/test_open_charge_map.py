"""Real charging points, served page by page as Open Charge Map does."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.settings import STARTER
from tests.support.scripted_server import (
    ReceivedRequest,
    Reply,
    json_reply,
    scripted_server,
)


def points_of(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def ocm(points: list[dict[str, Any]]):
    """Answer keyset queries over real points, duplicates and all."""
    ordered = sorted(points, key=lambda point: point["ID"])

    def answer(request: ReceivedRequest) -> Reply:
        after = int(request.query.get("greaterthanid", 0))
        size = int(request.query["maxresults"])
        countries = {int(each) for each in request.query["countryid"].split(",")}
        found = [
            point
            for point in ordered
            if point["ID"] > after and point["AddressInfo"]["CountryID"] in countries
        ]
        return json_reply(found[:size])

    return answer


@pytest.fixture
def run(tmp_path):
    def run(url: str, points: list[dict[str, Any]]) -> dict[str, Any]:
        countries = sorted({p["AddressInfo"]["CountryID"] for p in points})
        text = STARTER.replace("https://api.openchargemap.io/v3/poi/", url)
        text = text.replace('rate    = ["10/s", "20000/day"]', 'rate = "1000/s"')
        text = text.replace("values = [87, 80]", f"values = {countries}")
        (tmp_path / "penstock.toml").write_text(text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "penstock", "run", "poi", "--json"],
            cwd=tmp_path,
            env={**os.environ, "OCM_API_KEY": "not-a-real-key"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr
        body: dict[str, Any] = json.loads(done.stdout)
        return body

    return run


def test_every_real_point_is_stored_or_in_quarantine_and_twice_is_once(real_data, run):
    points = points_of(real_data / "ocm-poi-2020-verbose.jsonl.gz")
    with scripted_server() as server:
        server.answers = ocm(points)
        first = run(server.url, points)
        second = run(server.url, points)

    distinct = len({point["ID"] for point in points})
    records = first["records"]
    assert first["proven"]
    assert records["inserted"] + records["quarantined"] == distinct
    assert records["quarantined"] <= distinct * 0.01
    assert second["records"]["unchanged"] + second["records"]["quarantined"] == distinct


def test_real_duplicates_inside_an_answer_are_stored_once(real_data, run):
    points = points_of(real_data / "ocm-poi-2025-verbose-duplicates.jsonl.gz")
    with scripted_server() as server:
        server.answers = ocm(points)
        result = run(server.url, points)

    assert result["proven"]
    assert result["records"]["seen"] == 100
    assert result["records"]["inserted"] == 93
