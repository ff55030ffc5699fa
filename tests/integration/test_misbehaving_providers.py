"""Whatever a provider does: an import is complete, or it says that it is not.

`PENSTOCK_SEED=7` makes `make soak` begin with that draw.
"""

import json
import os
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import SystemRandom

import pytest

from penstock.entrypoints.cli.app import main
from tests.support.misbehaving_provider import Fault, MisbehavingProvider
from tests.support.scripted_server import (
    ReceivedRequest,
    Reply,
    ScriptedServer,
    scripted_server,
)

# one attempt: a fault of these providers does not pass
CONFIG = """\
[penstock]
database = "sqlite:///{number}.db"
attempts = 1

[datasets.shops]
key = "id"
fields = {{ id = {{ type = "int" }}, at = {{ type = "timestamp" }} }}

[datasets.shops.source]
url = "{url}/shops"
records = "items"

[datasets.shops.source.pages]
{pages}
{shards}
"""
USUAL, SOAK = 16, 300


@pytest.fixture
def server():
    with scripted_server() as running:
        yield running


@pytest.fixture
def run(server: ScriptedServer, tmp_path: Path, monkeypatch, capsys):
    """Return a function that imports from a provider: what it stored, if proven."""
    monkeypatch.chdir(tmp_path)

    def run(provider: MisbehavingProvider) -> list[int] | None:
        number = len([*tmp_path.glob("*.db")])
        server.answers = provider.answer
        config = CONFIG.format(
            number=number, url=server.url, pages=provider.pages, shards=provider.shards
        )
        (tmp_path / "penstock.toml").write_text(config)
        arguments = ["penstock", "run", "shops", "--json", "--threads", "1"]
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        result = json.loads(printed.out)
        assert bool(end.value.code) is not result["proven"], (provider, printed)
        if not result["proven"]:
            return None
        with closing(sqlite3.connect(tmp_path / f"{number}.db")) as database:
            return [
                each for (each,) in database.execute("select id from shops order by id")
            ]

    return run


def test_records_that_share_a_time_are_all_imported(run):
    times = [f"2026-03-01T12:00:{each // 5:02}Z" for each in range(100)]
    provider = MisbehavingProvider(
        seed=0,
        kind="tied keyset",
        faults=frozenset(),
        size=10,
        cap=10,
        records=[{"id": 100 - each, "at": at} for each, at in enumerate(times)],
    )

    assert run(provider) == provider.ids
    # more than a page of them cannot be requested
    assert run(replace(provider, size=5)) is None


RECORDS = [{"id": each, "at": f"2026-03-01T12:{each:02}:00Z"} for each in range(1, 60)]


def failing(kind: str, fault: Fault) -> MisbehavingProvider:
    """Make a provider that fails at its fourth page."""
    return MisbehavingProvider(
        seed=0,
        kind=kind,
        faults=frozenset({fault}),
        size=10,
        cap=10,
        fails_at=4,
        records=RECORDS,
    )


@pytest.mark.parametrize("kind", ["keyset", "offset", "page", "cursor", "link"])
@pytest.mark.parametrize(
    "fault", [Fault.ERROR_BODY, Fault.EMPTY_WITH_MORE, Fault.EMPTY_WITH_TOTAL]
)
def test_an_empty_page_that_says_that_it_is_not_the_end_is_none(run, kind, fault):
    provider = failing(kind, fault)

    assert run(provider) is None
    assert len(provider.requests) == 4


@pytest.mark.parametrize("kind", ["cursor", "link"])
def test_more_without_a_next_page_is_no_end(run, kind):
    assert run(failing(kind, Fault.MORE_WITHOUT_NEXT)) is None


SHARDS = """
[datasets.shops.shards]
town = { kind = "list", send = "town", values = ["Bonn", "Ulm"] }
"""


@pytest.mark.parametrize("size", [5, 20])
def test_a_filter_that_is_ignored_is_named(run, size: int):
    provider = replace(failing("keyset", Fault.CAPPED), size=size, cap=size)
    provider = replace(provider, shards=SHARDS)

    # shards may share few records
    assert run(provider) == (None if size > 10 else provider.ids)
    with closing(sqlite3.connect("0.db")) as database:
        ((note,),) = database.execute("select note from penstock_import")
    named = "the provider seems to ignore town of axis 'town': shards"
    assert (named in (note or "")) is (size > 10)


@pytest.mark.parametrize("kind", ["keyset", "offset", "page"])
def test_a_page_that_the_provider_cuts_short_is_no_end(run, kind):
    provider = MisbehavingProvider(
        seed=0,
        kind=kind,
        faults=frozenset({Fault.CAPPED}),
        size=100,
        cap=10,
        is_short_end=True,
        records=RECORDS,
    )

    assert run(provider) == provider.ids


@pytest.mark.parametrize("seed", range(USUAL))
def test_an_import_is_complete_or_says_that_it_is_not(run, seed: int):
    provider = MisbehavingProvider.draw(seed)

    assert provider.is_beyond_proof or run(provider) in (None, provider.ids), provider


@pytest.mark.slow
def test_many_more_imports_are_complete_or_say_that_they_are_not(run, capsys):
    first = int(os.environ.get("PENSTOCK_SEED", SystemRandom().randrange(2**32)))
    with capsys.disabled():
        sys.stdout.write(f"\nmisbehaving providers: PENSTOCK_SEED={first}\n")

    complete = 0
    for seed in range(first, first + SOAK):
        provider = MisbehavingProvider.draw(seed)
        if provider.is_beyond_proof:
            continue
        stored = run(provider)
        assert stored in (None, provider.ids), provider
        complete += stored is not None

    assert complete > SOAK / 4


# 40 numbers between two neighbouring floats, some of which round up and some down
RANKS = [f"0.1000000000000000{each:04}7" for each in range(40)]
BY_RANK = """\
[penstock]
database = "sqlite:///ranks.db"
attempts = 1

[datasets.shops]
key = "{key}"
fields = {{ id = {{ type = "int" }}{rank} }}

[datasets.shops.source]
url = "{url}"
method = "{method}"
pages = {{ by = "keyset", send = "after", field = "rank", size = {{ value = 3 }} }}
"""


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("key", "rank"),
    [
        ("rank", ', rank = { type = "decimal" }'),
        ("id", ', rank = { type = "float" }'),
        ("id", ""),
    ],
)
def test_pages_continue_from_a_number_that_no_float_has(
    server: ScriptedServer, tmp_path: Path, monkeypatch, capsys, method, key, rank
):
    def answer(request: ReceivedRequest) -> Reply:
        sent = json.loads(request.body, parse_float=Decimal) if request.body else {}
        bound = Decimal(request.query.get("after", sent.get("after", 0)))
        found = [
            f'{{"id": {at}, "rank": {each}}}'
            for at, each in enumerate(RANKS)
            if Decimal(each) > bound
        ]
        served.extend(found[:3])
        body = f"[{', '.join(found[:3])}]".encode()
        return Reply(body=body, headers={"Content-Type": "application/json"})

    served: list[str] = []
    server.answers = answer
    monkeypatch.chdir(tmp_path)
    config = BY_RANK.format(url=server.url, method=method, key=key, rank=rank)
    (tmp_path / "penstock.toml").write_text(config)
    monkeypatch.setattr(sys, "argv", ["penstock", "run", "shops", "--json"])
    with pytest.raises(SystemExit) as end:
        main()

    result = json.loads(capsys.readouterr().out)
    assert (end.value.code, result["proven"]) == (0, True)
    with closing(sqlite3.connect("ranks.db")) as database:
        stored = database.execute("select id from shops order by id").fetchall()
    assert [each for (each,) in stored] == [*range(len(RANKS))]
    # others are read again where they may share their number
    assert len(served) == len(RANKS) or key != "rank"
