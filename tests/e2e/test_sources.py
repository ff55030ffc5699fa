"""Each way of asking a provider, over real HTTP, to the end."""

from datetime import timedelta

import pytest

from tests.e2e.test_audit import WORLD
from tests.e2e.test_modes import AFTER
from tests.support.evidence import repeated, truth
from tests.support.workshop import COUNTRIES, FIELDS, keyset, wait_until

SIZE = 'size = { send = "limit", value = 40 }\n'
PAGINGS = {
    "keyset": ("/practice/window", AFTER, ""),
    "offset": ("/practice/offset", f'by = "offset"\nsend = "offset"\n{SIZE}', ""),
    "page": (
        "/practice/page",
        'by = "page"\nsend = "page"\nsize = { send = "size", value = 40 }\n',
        "",
    ),
    "cursor": (
        "/practice/cursor",
        f'by = "cursor"\nsend = "token"\nnext = "meta.next"\n{SIZE}',
        'records = "data"',
    ),
    "link header": ("/practice/link", f'by = "link"\n{SIZE}', 'records = "items"'),
    "link in the body": (
        "/practice/link",
        f'by = "link"\nnext = "links.next"\n{SIZE}',
        'records = "items"',
    ),
    "single": ("/practice/single", 'by = "single"\n', ""),
}
NOISE = {"500": 0.03, "reset": 0.03, "truncated": 0.03, "html": 0.03, "empty": 0.03}


@pytest.mark.parametrize("kind", PAGINGS)
def test_each_kind_of_paging_imports_everything_despite_faults(open_workshop, kind):
    path, pages, source = PAGINGS[kind]
    workshop = open_workshop(records=350, faults=NOISE, gzip=True)
    workshop.declare(
        workshop.poi(path=path, pages=pages, source=source, query='compact = "true"')
    )

    done = workshop.penstock("run", "poi", "--json")

    assert done.code == 0, done.out
    assert workshop.rows() == truth(workshop)
    assert repeated(workshop.sandbox.requests) == 0
    assert workshop.penstock("audit", "poi").code == 0


@pytest.mark.parametrize("kind", ["link header", "cursor", "offset"])
def test_an_import_stopped_in_the_middle_goes_on_by_its_cursor(open_workshop, kind):
    path, pages, source = PAGINGS[kind]
    workshop = open_workshop(records=600, latency=timedelta(milliseconds=100))
    workshop.declare(
        workshop.poi(path=path, pages=pages, source=source, query='compact = "true"')
    )
    workshop.penstock("plan", "poi")
    worker = workshop.worker(threads=1)
    wait_until(lambda: workshop.pages() >= 3)
    worker.terminate()
    workshop.output_of(worker)

    done = workshop.penstock("run", "poi", "--json")

    assert done.code == 0
    assert done.json["import_id"] == 1
    assert repeated(workshop.sandbox.requests) == 0
    assert workshop.rows() == truth(workshop)


@pytest.mark.parametrize("axis", ["tiles", "windows", "ranges"])
def test_a_shard_that_the_provider_cuts_off_is_split_until_it_is_complete(
    open_workshop, axis
):
    shards = {
        "tiles": WORLD,
        "windows": 'window = { kind = "time", from = "2014-01-01T00:00:00Z", '
        'step = "1460d", send = { from = "since", until = "before" }, '
        'smallest = "1m", check = "DateLastStatusUpdate" }',
        "ranges": 'ids = { kind = "range", from = 0, until = 4000, step = 2000 }',
    }
    path = "/practice/window" if axis == "ranges" else "/practice/capped"
    workshop = open_workshop(records=500, cap=200)
    workshop.declare(
        workshop.poi(
            path=path,
            pages=AFTER,
            shards=shards[axis],
            source="cap = 200",
            query='compact = "true"',
        )
    )

    done = workshop.penstock("run", "poi", "--json")

    assert done.code == 0, done.out
    assert done.json["shards"]["split"] > 0
    assert workshop.rows() == truth(workshop)
    assert workshop.penstock("audit", "poi").code == 0


def test_a_shard_that_cannot_be_split_fails_with_a_sentence(open_workshop):
    # a quarter of all points carry the same minute: more than the provider gives
    workshop = open_workshop(records=500, cap=40)
    workshop.declare(
        workshop.poi(
            path="/practice/capped",
            pages=AFTER,
            shards='window = { kind = "time", from = "2017-11-04T00:00:00Z", '
            'until = "2017-11-05T00:00:00Z", step = "1d", smallest = "1m", '
            'send = { from = "since", until = "before" } }',
            source="cap = 40",
            query='compact = "true"',
        )
    )

    ended = workshop.penstock("run", "poi", "--json")
    jobs = workshop.penstock("jobs", "--status", "failed", "--json").json["jobs"]

    assert ended.code == 1
    assert ended.json["proven"] is False
    assert jobs[0]["errors"][-1]["code"] == "cannot_split"
    assert "smallest" in jobs[0]["errors"][-1]["message"]


REGIONS = """
[datasets.regions]
key = "id"

[datasets.regions.fields]
id = "id"
country_id = { path = "country_id", type = "int" }
name = "name"

[datasets.regions.source]
url = "%s/practice/regions"
headers = { X-API-Key = "${PRACTICE_KEY}" }
budget = "practice"
timeout = "1s"
pages = { by = "single" }
"""


def test_the_values_of_an_axis_come_from_another_dataset(open_workshop):
    workshop = open_workshop(records=300)
    workshop.declare(
        REGIONS % workshop.sandbox.base_url,
        workshop.poi(
            path="/practice/regions/{region}/points",
            pages=AFTER,
            shards='region = { kind = "list", '
            'values = { dataset = "regions", field = "id" } }',
            query='compact = "true"',
        ),
    )

    too_early = workshop.penstock("run", "poi", "--json")
    regions = workshop.penstock("run", "regions", "--json")
    done = workshop.penstock("run", "poi", "--json")
    audited = workshop.penstock("audit", "poi")

    assert too_early.code == 2
    assert "penstock run regions" in too_early.json["error"]["message"]
    assert regions.code == 0
    assert done.code == 0
    assert done.json["shards"]["total"] == regions.json["records"]["inserted"]
    assert workshop.rows() == truth(workshop)
    assert audited.code == 0


def test_oauth2_tokens_are_fetched_once_for_all_threads(open_workshop):
    workshop = open_workshop(
        records=300, oauth=True, client_secret="client-secret-5e8d"
    )
    token_url = f"{workshop.sandbox.base_url}/practice/token"
    auth = (
        f'auth = {{ type = "oauth2", token_url = "{token_url}", '
        'client_id = "practice", client_secret = "${CLIENT_SECRET}" }'
    )
    workshop.declare(workshop.by_country(source=auth))

    done = workshop.penstock("run", "poi", "--json", CLIENT_SECRET="client-secret-5e8d")

    assert done.code == 0
    assert workshop.sandbox.tokens_issued == 1
    assert workshop.rows() == truth(workshop)
    assert "client-secret-5e8d" not in done.out
    assert b"client-secret-5e8d" not in (workshop.folder / "penstock.db").read_bytes()


def test_an_expired_oauth2_token_is_refreshed_on_the_way(open_workshop):
    workshop = open_workshop(
        records=300,
        oauth=True,
        token_life=timedelta(seconds=1),
        latency=timedelta(milliseconds=150),
    )
    token_url = f"{workshop.sandbox.base_url}/practice/token"
    auth = (
        f'auth = {{ type = "oauth2", token_url = "{token_url}", '
        'client_id = "practice", client_secret = "practice-secret" }'
    )
    workshop.declare(workshop.by_country(source=auth, size=10))

    done = workshop.penstock("run", "poi", "--json")

    assert done.code == 0, done.out
    assert workshop.sandbox.tokens_issued > 1
    assert workshop.rows() == truth(workshop)


def test_a_provider_is_searched_by_post(open_workshop):
    workshop = open_workshop(records=250)
    workshop.declare(
        workshop.poi(
            path="/practice/search",
            pages=AFTER,
            source='method = "POST"\nbody = { compact = "true" }',
            shards=COUNTRIES % [87, 80],
            query="",
        )
    )

    done = workshop.penstock("run", "poi", "--json")

    expected = {
        key: row
        for key, row in truth(workshop).items()
        if row["country_id"] in {87, 80}
    }
    assert done.code == 0
    assert {request.method for request in workshop.sandbox.requests} == {"POST"}
    assert workshop.rows() == expected


def test_a_transform_beside_the_configuration_changes_and_drops_records(open_workshop):
    workshop = open_workshop(records=200)
    (workshop.folder / "cleaning.py").write_text(
        "def clean(record):\n"
        "    if record['ID'] % 2:\n"
        "        return None\n"
        "    record['AddressInfo']['Title'] = 'cleaned'\n"
        "    return record\n"
    )
    workshop.declare(workshop.by_country(dataset='transform = "cleaning:clean"'))

    one = workshop.penstock("run", "poi", "--json")
    two = workshop.penstock("run", "poi", "--workers", "2", "--json")

    expected = {
        key: row | {"title": "cleaned"}
        for key, row in truth(workshop).items()
        if key % 2 == 0
    }
    assert one.code == two.code == 0
    assert one.json["records"]["dropped"] == 200 - len(expected)
    assert two.json["records"]["unchanged"] == len(expected)
    assert workshop.rows() == expected


def test_a_transform_that_fails_puts_its_row_in_quarantine(open_workshop):
    workshop = open_workshop(records=60)
    (workshop.folder / "cleaning.py").write_text(
        "def clean(record):\n    return record if record['ID'] % 3 else 1 / 0\n"
    )
    workshop.declare(workshop.by_country(dataset='transform = "cleaning:clean"'))

    done = workshop.penstock("run", "poi", "--json")
    listed = workshop.penstock("quarantine", "poi", "--json").json["rows"]

    bad = [key for key in truth(workshop) if key % 3 == 0]
    assert done.code == 0
    assert done.json["records"]["quarantined"] == len(bad)
    assert {row["detail"] for row in listed} == {
        "transform raised ZeroDivisionError: division by zero"
    }


@pytest.mark.parametrize("module", ["missing:clean", "broken:clean", "cleaning:nosuch"])
def test_a_transform_that_cannot_be_loaded_is_reported_in_a_sentence(
    open_workshop, module
):
    workshop = open_workshop(records=10)
    (workshop.folder / "broken.py").write_text("import nosuchmodule\n")
    (workshop.folder / "cleaning.py").write_text("def clean(record): return record\n")
    workshop.declare(workshop.by_country(dataset=f'transform = "{module}"'))

    alone = workshop.penstock("run", "poi")
    pool = workshop.penstock("run", "poi", "--workers", "2")

    assert alone.code in {1, 2}
    assert pool.code in {1, 2}
    assert "datasets.poi.transform" in alone.err
    assert "datasets.poi.transform" in pool.err


def test_a_local_field_is_never_touched_by_an_import(open_workshop):
    workshop = open_workshop(records=80)
    fields = f"{FIELDS}note = {{ local = true }}\n"
    workshop.declare(workshop.by_country(fields=fields))
    workshop.penstock("run", "poi")
    changed, same, *_ = sorted(workshop.sandbox.expected())
    workshop.tamper("update poi set note = 'ours' where id in (?, ?)", changed, same)
    workshop.sandbox.edit(changed, {"AddressInfo.Title": "Changed"})

    done = workshop.penstock("run", "poi", "--json")

    notes = workshop.ask("select id, note, title from poi where note is not null")
    assert done.json["records"]["updated"] == 1
    assert {row["id"]: row["note"] for row in notes} == {changed: "ours", same: "ours"}
    assert workshop.rows()[changed]["title"] == "Changed"


def test_a_provider_that_ignores_the_filter_fails_that_shard(open_workshop):
    # an unknown code drops the filter: the whole world comes back
    workshop = open_workshop(records=300)
    workshop.declare(
        workshop.poi(
            shards='country = { kind = "list", send = "countrycode", '
            'values = ["DE", "ZZ"], check = "AddressInfo.Country.ISOCode" }',
            query='output = "json", compact = false',
        )
    )

    ended = workshop.penstock("run", "poi", "--json")
    jobs = workshop.penstock("jobs", "--json").json["jobs"]

    by_shard = {job["shard_key"]: job for job in jobs}
    failed = by_shard["country:ZZ"]
    assert ended.code == 1
    assert by_shard["country:DE"]["status"] == "done"
    assert failed["status"] == "failed"
    assert failed["page_seq"] == 0
    assert failed["errors"][-1]["code"] == "filter_ignored"
    assert "ignore the filter" in failed["errors"][-1]["message"]
    assert {row["country_id"] for row in workshop.rows().values()} == {87}
    assert workshop.penstock("audit", "poi").code == 1


def test_a_provider_that_ignores_the_offset_is_an_error_and_no_loop(open_workshop):
    workshop = open_workshop(records=300)
    workshop.declare(
        workshop.poi(
            pages='by = "offset"\nsend = "offset"\n'
            'size = { send = "maxresults", value = 50 }\n'
        )
    )

    ended = workshop.penstock("run", "poi", "--json")
    job = workshop.penstock("jobs", "2", "--json").json

    assert ended.code == 1
    assert len(workshop.sandbox.requests) == 2
    assert job["status"] == "failed"
    assert job["errors"][-1]["code"] == "page_repeats"


def test_edits_and_removals_during_a_scan_leave_no_row_behind(open_workshop):
    workshop = open_workshop(records=400, faults={"edit": 0.3, "remove": 0.1})
    mark = 'missing = { do = "mark", max_drop = 0.5 }'
    workshop.declare(workshop.by_country(size=20, dataset=mark))
    first = workshop.penstock("run", "poi", "--json")
    during = truth(workshop)

    # the world has moved on under the scan; what was stored is no older than its start
    stored = workshop.rows()
    assert first.code == 0
    assert set(during) <= set(stored)
    assert workshop.penstock("audit", "poi").code == 0


def test_duplicates_in_a_page_are_stored_once(open_workshop):
    workshop = open_workshop(records=300, duplicates=1.0)
    workshop.declare(workshop.poi(pages=keyset(30)))

    done = workshop.penstock("run", "poi", "--json")

    assert done.code == 0
    assert done.json["records"]["seen"] > 300
    assert done.json["records"]["inserted"] == 300
    assert workshop.rows() == truth(workshop)
