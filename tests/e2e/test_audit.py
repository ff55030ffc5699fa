"""Plant a gap in the ledger; the audit must find it."""

import shutil
from pathlib import Path

import pytest

from penstock.sandbox import Sandbox, SandboxOptions
from tests.e2e.conftest import OpenWorkshop
from tests.support.stores import Kind, on
from tests.support.workshop import KEY, Workshop

WORLD = """\
tile = { kind = "bbox", area = [-90, -180, 90, 180], step = 90.0, smallest = 0.01, \
send = "boundingbox", format = "({south},{west}),({north},{east})", \
check = ["AddressInfo.Latitude", "AddressInfo.Longitude"] }
"""
FULL_JOB = "(select job_id from penstock_page group by 1 having count(*) > 2 limit 1)"


def test_an_untouched_import_is_complete(imported):
    found = imported.penstock("audit", "poi", "--json")
    shown = imported.penstock("audit", "poi")

    assert found.code == shown.code == 0
    assert found.json["complete"] is True
    assert found.json["findings"] == []
    assert "no gap, no overlap, every end proven" in shown.out


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Import once; each test copies the folder and spoils its copy."""
    folder = tmp_path_factory.mktemp("finished")
    with Sandbox(SandboxOptions(records=200, key=KEY)) as sandbox:
        workshop = Workshop(folder, sandbox)
        workshop.declare(workshop.by_country(size=10))
        assert workshop.penstock("run", "poi").code == 0
    return folder


@pytest.mark.parametrize(
    ("statement", "flaw"),
    [
        ("delete from penstock_job where id = 2", "gap"),
        ("delete from penstock_page where page_seq = 1", "gap"),
        (
            f"delete from penstock_page where page_seq = 2 and job_id = {FULL_JOB}",
            "gap",
        ),
        ("delete from penstock_page where job_id = 2", "broken_chain"),
        ("update penstock_job set proof = null where id = 3", "unproven"),
        ("update penstock_job set status = 'pending' where id = 3", "unfinished"),
        ("update penstock_job set seen = seen + 1 where id = 2", "miscount"),
        (
            "update penstock_job set page_seq = page_seq + 1 where id = 2",
            "broken_chain",
        ),
        ("update penstock_import set seen = seen - 1", "miscount"),
        ("update penstock_import set pages = pages + 1", "miscount"),
        ("update penstock_import set proven = 0", "unproven"),
        (
            "update penstock_page set cursor_before = 'x' where page_seq = 2",
            "broken_chain",
        ),
        ("update penstock_job set shard_key = 'country:9999' where id = 2", "overlap"),
    ],
)
def test_an_audit_finds_a_planted_flaw(
    finished: Path, tmp_path: Path, statement: str, flaw: str
):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    # an audit asks nobody but the ledger, so the provider may be gone
    workshop = Workshop(tmp_path)

    workshop.tamper(statement)
    found = workshop.penstock("audit", "poi", "--json")

    assert found.code == 1
    assert found.json["complete"] is False
    assert flaw in {finding["flaw"] for finding in found.json["findings"]}


@on(Kind.POSTGRES)
def test_an_audit_finds_flaws_on_a_server_too(imported):
    planted = {
        "gap": "delete from penstock_page where page_seq = 1 and job_id = 2",
        "unproven": "update penstock_job set proof = null where id = 3",
        "miscount": "update penstock_import_count set seen = seen + 1",
        "overlap": "update penstock_job set shard_key = 'country:9999' where id = 2",
    }
    found = set()
    for flaw, statement in planted.items():
        imported.tamper(statement)
        audit = imported.penstock("audit", "poi", "--json")
        assert audit.code == 1
        found = {finding["flaw"] for finding in audit.json["findings"]}
        assert flaw in found

    assert set(planted) <= found


@pytest.fixture
def divided(open_workshop: OpenWorkshop) -> Workshop:
    """Import over tiles that the provider cuts off."""
    workshop = open_workshop(records=300, cap=100)
    workshop.declare(
        workshop.poi(
            path="/practice/capped",
            shards=WORLD,
            source="cap = 100",
            query='compact = "true"',
            pages='by = "keyset"\nsend = "after"\nfield = "ID"\n'
            'size = { send = "limit", value = 100 }\n',
        )
    )
    assert workshop.penstock("run", "poi").code == 0
    return workshop


def test_an_audit_finds_the_lost_child_of_a_split(divided):
    divided.tamper(
        "delete from penstock_job where id = "
        "(select max(id) from penstock_job where parent is not null)"
    )

    found = divided.penstock("audit", "poi", "--json")

    lost = [each for each in found.json["findings"] if each["flaw"] == "gap"]
    assert found.code == 1
    assert len(lost) == 1
    assert "split" in lost[0]["detail"]


def test_an_audit_of_an_unfinished_import_names_what_is_open(workshop):
    workshop.penstock("plan", "poi")

    found = workshop.penstock("audit", "poi", "--json")

    flaws = {finding["flaw"] for finding in found.json["findings"]}
    assert found.code == 1
    assert flaws == {"unfinished"}
