"""Full, delta and backfill imports, and rows that went missing."""

from datetime import datetime, timedelta
from typing import Any

from penstock.domain.formats import parse_instant
from tests.support.evidence import truth
from tests.support.stores import everywhere
from tests.support.workshop import Workshop

DELTA = """
[datasets.poi.delta]
send = "modifiedsince"
field = "DateLastStatusUpdate"
format = "%Y-%m-%dT%H:%M:%S"
overlap = "2m"
"""
WINDOWS = """\
window = { kind = "time", from = "2014-01-01T00:00:00Z", step = "365d", \
send = { from = "since", until = "before" }, check = "DateLastStatusUpdate" }
"""
AFTER = (
    'by = "keyset"\nsend = "after"\nfield = "ID"\n'
    'size = { send = "limit", value = 60 }\n'
)


def report(workshop: Workshop, *arguments: str) -> dict[str, Any]:
    ran = workshop.penstock("run", "poi", *arguments, "--json")
    assert ran.code == 0, ran.out + ran.err
    return ran.json


@everywhere
def test_a_delta_brings_only_what_changed_by_the_providers_clock(open_workshop):
    # if the watermark were the host's time, three days of changes would be missed
    workshop = open_workshop(records=300, clock_skew=timedelta(days=-3))
    workshop.declare(workshop.by_country(tables=DELTA))
    full = report(workshop)
    changed = min(workshop.sandbox.expected())
    workshop.sandbox.edit(changed, {"AddressInfo.Title": "Changed"})
    added = workshop.sandbox.add()
    workshop.sandbox.forget_requests()

    delta = report(workshop, "--mode", "delta")

    request = {each.query["modifiedsince"] for each in workshop.sandbox.requests}
    stored = workshop.rows()
    assert delta["import_id"] == full["import_id"] + 1
    assert delta["mode"] == "delta"
    assert delta["records"]["seen"] == 2
    assert delta["records"]["inserted"] == delta["records"]["updated"] == 1
    assert stored[changed]["title"] == "Changed"
    assert added in stored
    assert stored == truth(workshop)
    assert len(request) == 1
    result, begun = parse_instant(request.pop()), parse_instant(full["created_at"])
    assert result is not None
    assert begun is not None
    assert timedelta(minutes=-4) < result - (begun - timedelta(days=3)) < timedelta(0)


@everywhere
def test_a_delta_after_a_delta_begins_at_its_own_watermark(open_workshop):
    workshop = open_workshop(records=120)
    workshop.declare(workshop.by_country(tables=DELTA))
    report(workshop)
    before = watermark(workshop)
    report(workshop, "--mode", "delta")
    after = watermark(workshop)
    changed = max(workshop.sandbox.expected())
    workshop.sandbox.edit(changed, {"AddressInfo.Title": "Changed again"})

    last = report(workshop, "--mode", "delta")

    assert after > before
    assert last["records"]["updated"] == 1
    assert workshop.rows() == truth(workshop)


def watermark(workshop: Workshop) -> float:
    found = workshop.ask("select watermark from penstock_dataset")
    return workshop.seconds(found[0]["watermark"])


def test_a_delta_does_not_mark_what_it_did_not_see(open_workshop):
    workshop = open_workshop(records=100)
    mark = 'missing = { do = "mark", max_drop = 1.0 }'
    workshop.declare(workshop.by_country(dataset=mark, tables=DELTA))
    report(workshop)
    everything = workshop.rows()

    delta = report(workshop, "--mode", "delta")

    assert delta["records"]["deleted"] == 0
    assert workshop.rows() == everything


def windowed(workshop: Workshop, **more: str) -> str:
    return workshop.poi(
        path="/practice/window",
        pages=AFTER,
        shards=WINDOWS,
        query='compact = "true"',
        **more,
    )


def test_a_backfill_brings_exactly_its_window(open_workshop):
    workshop = open_workshop(records=800)
    workshop.declare(windowed(workshop))
    since, until = "2017-06-01T00:00:00Z", "2019-02-01T12:00:00Z"

    done = report(workshop, "--mode", "backfill", "--from", since, "--until", until)

    begin, end = datetime.fromisoformat(since), datetime.fromisoformat(until)
    expected = {
        key: row
        for key, row in truth(workshop).items()
        if begin <= row["updated_at"] < end
    }
    assert 0 < len(expected) < 800
    assert done["shards"]["total"] == 3
    assert done["records"]["seen"] == len(expected)
    assert workshop.rows() == expected
    assert workshop.penstock("audit", "poi").code == 0


def test_a_full_import_over_time_windows_is_complete(open_workshop):
    workshop = open_workshop(records=500)
    workshop.declare(windowed(workshop))

    done = report(workshop)

    assert done["shards"]["total"] >= 13
    assert done["records"]["seen"] == 500
    assert workshop.rows() == truth(workshop)
    assert workshop.penstock("audit", "poi").code == 0


@everywhere
def test_rows_that_vanished_are_marked_after_a_proven_full_import(open_workshop):
    workshop = open_workshop(records=300)
    workshop.declare(workshop.by_country(dataset='missing = { do = "mark" }'))
    report(workshop)
    vanished = sorted(workshop.sandbox.expected())[10:15]
    for point in vanished:
        workshop.sandbox.remove(point)

    done = report(workshop)

    kinds = workshop.ask(
        "select kind, key from penstock_change where import_id = ?", done["import_id"]
    )
    marked = workshop.ask(
        "select id from poi where _deleted_at is not null order by id"
    )
    exported = workshop.penstock("export", "poi").out.splitlines()
    assert done["records"]["deleted"] == 5
    assert [row["id"] for row in marked] == vanished
    assert {row["kind"] for row in kinds} == {"deleted"}
    assert workshop.rows() == truth(workshop)
    assert len(exported) == 295


@everywhere
def test_pages_that_come_again_are_read_only_where_rows_are_not_as_they_were(
    open_workshop,
):
    workshop = open_workshop(records=300, duplicates=0.05)
    workshop.declare(workshop.by_country(size=20))
    first = report(workshop)
    known = list(truth(workshop))
    workshop.tamper("delete from poi where id = ?", known[0])
    workshop.tamper(
        "update poi set _digest = ?, title = 'spoiled' where id = ?", b"x", known[150]
    )
    workshop.sandbox.edit(known[200], {"AddressInfo.Title": "Changed"})
    added = workshop.sandbox.add()

    again = report(workshop)

    seen, twice = again["records"]["seen"], again["records"]["duplicates"]
    assert again["records"]["inserted"] == 2
    assert again["records"]["updated"] == 2
    # the provider sends some records twice on one page
    assert again["records"]["unchanged"] == seen - twice - 4 > 0
    assert seen == first["records"]["seen"] + 1
    assert added in workshop.rows()
    assert workshop.rows() == truth(workshop)
    # what came as before was committed without being read
    repeated = workshop.ask(
        "select count(*) as pages from (select imprint from penstock_page "
        "where imprint is not null group by imprint having count(*) > 1) as twice"
    )
    assert repeated[0]["pages"] > 5
    assert workshop.penstock("audit", "poi", "--json").json["complete"] is True


def test_a_row_that_comes_back_is_live_again(open_workshop):
    workshop = open_workshop(records=60)
    workshop.declare(workshop.by_country(dataset='missing = { do = "mark" }'))
    report(workshop)
    workshop.tamper(
        "update poi set _deleted_at = 1 where id = (select min(id) from poi)"
    )

    done = report(workshop)

    assert done["records"]["unchanged"] == 59
    assert workshop.rows() == truth(workshop)


def test_rows_are_retained_when_too_many_of_them_vanish(open_workshop):
    workshop = open_workshop(records=100)
    rule = 'missing = { do = "mark", max_drop = 0.05 }'
    workshop.declare(workshop.by_country(dataset=rule))
    report(workshop)
    for point in sorted(workshop.sandbox.expected())[:10]:
        workshop.sandbox.remove(point)

    done = report(workshop)

    assert done["records"]["deleted"] == 0
    assert "10 missing rows were kept" in done["note"]
    assert "max_drop" in done["note"]
    assert len(workshop.rows()) == 100


def test_rows_are_retained_when_a_shard_of_the_import_failed(open_workshop):
    workshop = open_workshop(records=200)
    workshop.declare(workshop.by_country(dataset='missing = { do = "mark" }'))
    report(workshop)
    workshop.penstock("plan", "poi")
    workshop.sandbox.remove(min(workshop.sandbox.expected()))
    workshop.tamper(
        "update penstock_job set cursor = 'unreadable', page_seq = 1 where id = "
        "(select max(id) from penstock_job where status = 'pending')"
    )

    ended = workshop.penstock("run", "poi", "--json")

    assert ended.code == 1
    assert ended.json["status"] == "failed"
    assert ended.json["records"]["deleted"] == 0
    assert len(workshop.rows()) == 200
