"""`check --connect` compares two shards where only the provider applies filters."""

import json

import pytest

from penstock.entrypoints.cli.app import main
from tests.support.scripted_server import (
    ReceivedRequest,
    Reply,
    json_reply,
    scripted_server,
)

CONFIG = """\
[penstock]
database = "sqlite:///penstock.db"

[datasets.shops]
key = "id"
fields = {{ id = {{ type = "int" }} }}

[datasets.shops.source]
url = "{url}/shops"

[datasets.shops.shards]
country = {{ kind = "list", values = ["DE", "AT"], send = "country" }}
"""


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Return a function that checks against a provider, with its exit code."""
    monkeypatch.chdir(tmp_path)

    def check(answer) -> tuple[object, str]:
        with scripted_server() as server:
            server.answers = answer
            (tmp_path / "penstock.toml").write_text(CONFIG.format(url=server.url))
            arguments = ["penstock", "check", "--connect", "--json"]
            monkeypatch.setattr("sys.argv", arguments)
            with pytest.raises(SystemExit) as end:
                main()
        found = json.loads(capsys.readouterr().out)["connections"]
        (detail,) = (each["detail"] for each in found if "shops" in each["what"])
        return end.value.code or 0, detail

    return check


def test_a_provider_that_ignores_filters_is_reported(check):
    def answer(_request: ReceivedRequest) -> Reply:
        return json_reply([{"id": number} for number in range(30)])

    code, detail = check(answer)

    assert code == 1
    assert "30 records in the first page" in detail
    assert "seems to ignore country of axis 'country'" in detail


def test_a_provider_that_applies_filters_is_not(check):
    def answer(request: ReceivedRequest) -> Reply:
        first = {"DE": 0, "AT": 100}[request.query["country"]]
        return json_reply([{"id": first + number} for number in range(30)])

    assert check(answer) == (0, "30 records in the first page, 30 valid")
