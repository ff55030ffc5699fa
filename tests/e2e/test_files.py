"""Files from end to end: shards, duplicates, snapshots, and what is stored of them."""

import gzip
from pathlib import Path
from random import Random

import pytest

from tests.support.shops import (
    Shops,
    bad_rows,
    committed,
    counts_of,
    import_files,
    line,
    lines,
    only,
    read_csv,
    shops,
    some_shops,
    stored,
    write,
)
from tests.support.stores import on_a_file_first
from tests.support.workshop import Workshop, wait_until

SMALL_SHARDS = 'shard = "64KiB"'


@on_a_file_first
def test_several_workers_share_the_shards_of_one_file(file_workshop):
    known = some_shops(20_000)
    write(file_workshop.folder / "a.csv", lines(known))
    file_workshop.declare(shops(source=SMALL_SHARDS))

    counts = import_files(file_workshop, "--workers", "2", "--threads", "3")

    jobs = file_workshop.ask(
        "select distinct lease_owner, id from penstock_job where kind = 'shard'"
    )
    assert only(counts) == {"seen": 20_000, "inserted": 20_000}
    assert stored(file_workshop) == known
    assert len(jobs) > 5
    assert sum(page["seen"] for page in committed(file_workshop)) == 20_000


@on_a_file_first
def test_the_last_row_of_a_key_wins_in_whatever_order_shards_are_worked(file_workshop):
    random = Random(1)
    first, last = some_shops(9_000), some_shops(9_000)
    repeated = random.sample(sorted(last), 300)
    # some come again on the same page, some in another shard, some in another file
    again = {key: (f"again {key}", 1) for key in repeated[:200]}
    thrice = {key: (f"thrice {key}", 2) for key in repeated[150:]}
    write(file_workshop.folder / "a.csv", lines(first), lines(again))
    write(file_workshop.folder / "b.csv", lines(thrice), line(1, "not I", 5))
    with (file_workshop.folder / "b.csv").open("ab") as file:
        file.write(line(1, "the last", 6))
    file_workshop.declare(shops(source=SMALL_SHARDS))
    assert file_workshop.penstock("plan", "shops").code == 0
    work_backwards(file_workshop)

    counts = import_files(file_workshop, "--threads", "1", "--duplicates", "lost.csv")

    order = [page["job_id"] for page in committed(file_workshop)]
    assert order == sorted(order, reverse=True)
    assert stored(file_workshop) == first | again | thrice | {1: ("the last", 6)}
    assert only(counts) == {
        "seen": 9_000 + 200 + 150 + 2,
        "inserted": 9_000,
        "duplicates": 200 + 150 + 2,
    }
    come = [("a.csv", key) for key in (*first, *again)]
    come += [("b.csv", key) for key in (*thrice, 1, 1)]
    last_at = {key: at for at, (_, key) in enumerate(come)}
    lost = read_csv(file_workshop.folder / "lost.csv")
    assert [(row["file"], int(row["key"])) for row in lost] == [
        (file, key) for at, (file, key) in enumerate(come) if at != last_at[key]
    ]


@on_a_file_first
def test_bad_rows_stay_open_and_are_replayed_by_where_they_stand(file_workshop):
    random = Random(2)
    # a negative number is bad, and good once the declaration lets it pass
    come = [
        (random.randrange(1_500), f"shop {at}", random.choice([1, 1, -1]))
        for at in range(12_000)
    ]
    write(file_workshop.folder / "a.csv", *(line(*row) for row in come[:9_000]))
    write(file_workshop.folder / "b.csv", *(line(*row) for row in come[9_000:]))
    declared = "bad = { max_ratio = 1.0 }\nmax_duplicates = 1"
    lenient = shops(dataset=declared, source=SMALL_SHARDS)
    file_workshop.declare(lenient)
    assert file_workshop.penstock("plan", "shops").code == 0
    work_backwards(file_workshop)

    counts = import_files(file_workshop, "--threads", "1")
    known = stored(file_workshop)
    opened = bad_rows(file_workshop)
    file_workshop.declare(lenient.replace(", min = 0", ""), migrate=False)
    replayed = file_workshop.penstock("quarantine", "replay", "shops", "--json").json

    good = {key: (name, points) for key, name, points in come if points > 0}
    every = {key: (name, points) for key, name, points in come}
    last_good = {key: at for at, (key, _, points) in enumerate(come) if points > 0}
    behind = [key for at, (key, *_) in enumerate(come) if at > last_good.get(key, -1)]
    assert counts["quarantined"] == sum(points < 0 for _, _, points in come)
    assert known == good
    assert sorted(row["key"][0] for row in opened) == sorted(behind)
    assert stored(file_workshop) == every
    assert replayed == {
        "accepted": len(set(behind)),
        "superseded": len(behind) - len(set(behind)),
        "still_bad": 0,
    }
    assert bad_rows(file_workshop) == []


def work_backwards(workshop: Workshop) -> None:
    """Make the last shards due first."""
    second = "interval '1 second'" if workshop.store.is_shared else "1000000"
    workshop.tamper(f"update penstock_job set run_at = run_at - id * {second}")


@on_a_file_first
def test_a_folder_of_packed_files_is_imported_file_by_file(file_workshop):
    known: Shops = {}
    for number in range(6):
        part = some_shops(500, first=number * 500 + 1)
        known |= part
        packed = gzip.compress(b"id,name,points\n" + lines(part))
        folder = file_workshop.folder / "lists" / str(number % 2)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.csv.gz").write_bytes(packed)
    file_workshop.declare(shops(files="lists/**/*.csv.gz"))

    counts = import_files(file_workshop)

    assert only(counts) == {"seen": 3_000, "inserted": 3_000}
    assert stored(file_workshop) == known
    assert (
        len(file_workshop.ask("select 1 from penstock_job where kind = 'shard'")) == 6
    )


@on_a_file_first
def test_a_second_snapshot_changes_what_is_different_and_marks_what_is_gone(
    file_workshop,
):
    known = some_shops(3_000)
    write(file_workshop.folder / "a.csv", lines(known))
    file_workshop.declare(
        shops(dataset='missing = { do = "mark" }', source=SMALL_SHARDS)
    )
    first = import_files(file_workshop)
    again = import_files(file_workshop)
    changed = {key: (f"new name {key}", 3) for key in range(100, 140)}
    now = known | changed | some_shops(25, first=5_000)
    for key in range(2_000, 2_010):
        del now[key]
    write(file_workshop.folder / "a.csv", lines(now))

    second = import_files(file_workshop)

    assert only(first) == {"seen": 3_000, "inserted": 3_000}
    assert only(again) == {"seen": 3_000, "unchanged": 3_000}
    assert only(second) == {
        "seen": 3_015,
        "inserted": 25,
        "updated": 40,
        "unchanged": 2_950,
        "deleted": 10,
    }
    assert stored(file_workshop) == now


REGIONS = """
[datasets.regions]
key = "id"
fields = { id = {} }
source = { type = "csv", files = "regions.txt", timeout = "500ms" }
"""


def test_rows_that_referred_to_nothing_are_stored_once_it_is_there(file_workshop):
    (file_workshop.folder / "regions.txt").write_bytes(b"id\nnorth\n")
    write(file_workshop.folder / "a.csv", line(1, "north", 1), line(2, "south", 2))
    file_workshop.declare(
        shops().replace("required = true", 'references = "regions.id"'), REGIONS
    )
    assert file_workshop.penstock("run", "regions").code == 0
    first = import_files(file_workshop)
    (file_workshop.folder / "regions.txt").write_bytes(b"id\nnorth\nsouth\n")
    assert file_workshop.penstock("run", "regions").code == 0

    again = import_files(file_workshop)

    assert only(first) == {"seen": 2, "inserted": 1, "quarantined": 1}
    assert only(again) == {"seen": 2, "inserted": 1, "unchanged": 1}
    assert bad_rows(file_workshop) == []


def test_bad_rows_are_reported_with_their_line_and_replayed_after_a_fix(file_workshop):
    write(
        file_workshop.folder / "a.csv",
        line(1, "two\nlines", 1),
        b"2,b,many\n",
        b"\n",
        b"3,c\n",
        line(4, "d", -4),
    )
    file_workshop.declare(shops(dataset="bad = { max_ratio = 1.0 }"))

    counts = import_files(file_workshop)
    bad = {row["reason"]: row for row in bad_rows(file_workshop)}
    file_workshop.declare(
        shops(dataset="bad = { max_ratio = 1.0 }").replace(", min = 0", ""),
        migrate=False,
    )
    replayed = file_workshop.penstock("quarantine", "replay", "shops", "--json").json

    assert only(counts) == {"seen": 5, "inserted": 1, "quarantined": 3, "dropped": 1}
    assert bad.keys() == {"type", "too_few_values", "range"}
    assert bad["range"]["key"] == [4]
    assert replayed == {"accepted": 1, "superseded": 0, "still_bad": 2}
    assert stored(file_workshop)[4] == ("d", -4)


def test_plainly_the_wrong_file_is_stopped_early(file_workshop):
    wrong = b"".join(b"x%d,some name,none\n" % number for number in range(60_000))
    write(file_workshop.folder / "a.csv", wrong)
    file_workshop.declare(shops(source=SMALL_SHARDS))

    ran = file_workshop.penstock("run", "shops", "--json")

    counts = counts_of(ran)
    assert ran.code == 1
    assert ran.json["status"] == "failed"
    assert "rows are bad (100.0%), more than bad.max_ratio = 0.5" in ran.json["note"]
    assert counts["quarantined"] < 20_000
    assert stored(file_workshop) == {}


@pytest.mark.parametrize("change", ["longer", "shorter", "as long"])
def test_a_file_that_changes_in_the_middle_of_its_import_is_refused(
    file_workshop, change
):
    known = some_shops(60_000)
    path = file_workshop.folder / "a.csv"
    write(path, lines(known))
    file_workshop.declare(shops())
    file_workshop.penstock("plan", "shops")
    worker = file_workshop.worker("--until-idle", threads=1)
    wait_until(lambda: file_workshop.pages() >= 3)

    rewrite(path, change)
    assert file_workshop.output_of(worker).code in {0, 1}

    (job,) = file_workshop.ask(
        "select status, errors from penstock_job where kind = 'shard'"
    )
    result = file_workshop.store.document(job["errors"])[-1]["message"]
    assert job["status"] == "failed"
    assert "a.csv" in result
    assert "planned" in result
    assert file_workshop.status() == "failed"


@on_a_file_first
def test_a_file_replaced_by_another_of_its_size_after_the_plan_is_refused(
    file_workshop,
):
    path = file_workshop.folder / "a.csv"
    write(path, lines(some_shops(20_000)))
    file_workshop.declare(shops(source=SMALL_SHARDS))
    file_workshop.penstock("plan", "shops")
    rewrite(path, "as long")

    refused = file_workshop.penstock("run", "shops", "--json")

    assert refused.code == 1
    assert "a.csv has changed since it was planned" in refused.json["error"]
    assert refused.json["records"]["seen"] == 0
    assert stored(file_workshop) == {}
    assert only(import_files(file_workshop)) == {"seen": 20_000, "inserted": 20_000}


def rewrite(path: Path, change: str) -> None:
    raw = path.read_bytes()
    changed = {
        "longer": raw + line(99_999, "one more", 1),
        "shorter": raw[:-100],
        "as long": raw.replace(b"shop", b"SHOP"),
    }
    path.write_bytes(changed[change])


def test_a_file_that_is_gone_in_the_middle_of_its_import_is_named(file_workshop):
    write(file_workshop.folder / "a.csv", lines(some_shops(60_000)))
    file_workshop.declare(shops(), attempts=1)
    file_workshop.penstock("plan", "shops")
    worker = file_workshop.worker("--until-idle", threads=1)
    wait_until(lambda: file_workshop.pages() >= 3)

    (file_workshop.folder / "a.csv").unlink()
    file_workshop.output_of(worker)

    (job,) = file_workshop.ask(
        "select status, errors from penstock_job where kind = 'shard'"
    )
    result = file_workshop.store.document(job["errors"])[-1]
    assert job["status"] == "failed"
    assert result["code"] == "source_unavailable"
    assert "a.csv cannot be read: No such file or directory" in result["message"]


@on_a_file_first
def test_named_files_add_to_what_is_stored_and_nothing_is_missing(file_workshop):
    known = some_shops(3_000)
    write(file_workshop.folder / "a.csv", lines(known))
    file_workshop.declare(
        shops(dataset='missing = { do = "mark" }', source=SMALL_SHARDS)
    )
    import_files(file_workshop)
    more = file_workshop.folder / "more"
    more.mkdir()
    write(more / "b[1].txt", line(1, "changed", 1), line(5_000, "new", 2))
    write(more / "c.txt", line(5_000, "newer", 3))
    named = ("--file", "more/b[1].txt", "--file", "more/c.txt")

    planned = file_workshop.penstock(
        "plan", "shops", *named, "--dry-run", "--json"
    ).json
    counts = import_files(file_workshop, *named, "--workers", "2")
    again = import_files(file_workshop, *named)
    full = import_files(file_workshop)

    assert planned["mode"] == "backfill"
    assert ["/more/" in each["shard_key"] for each in planned["first"]] == [True, True]
    assert only(counts) == {
        "seen": 3,
        "updated": 1,
        "inserted": 1,
        "duplicates": 1,
    }
    assert only(again) == {"seen": 3, "unchanged": 2, "duplicates": 1}
    # the declared files are still the snapshot
    assert only(full) == {"seen": 3_000, "updated": 1, "unchanged": 2_999, "deleted": 1}
    assert stored(file_workshop) == known


def test_an_unfinished_import_of_named_files_is_taken_up_by_these_files_only(
    file_workshop,
):
    for name, first in {"a": 1, "b": 11}.items():
        rows = lines(some_shops(10, first=first))
        write(file_workshop.folder / f"{name}.txt", rows)
    file_workshop.declare(shops())
    both = ("--file", "a.txt", "--file", "b.txt")
    assert file_workshop.penstock("plan", "shops", *both).code == 0

    other = file_workshop.penstock("run", "shops", "--file", "a.txt")
    same = file_workshop.penstock("run", "shops", *both)

    assert other.code == 2
    assert "import 1 is unfinished and reads a.txt, b.txt" in other.err
    assert same.code == 0
    assert "Resuming import 1." in same.err


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        (["--file", "none.csv"], "--file none.csv: there is no such file"),
        (["--file", "."], "--file .: there is no such file"),
        (["--file", "a.csv", "--mode", "delta"], "no meaning with --file"),
        (
            ["--file", "a.csv", "--from", "2026-01-01T00:00:00Z"],
            "no meaning with --file",
        ),
    ],
    ids=["missing", "folder", "mode", "from"],
)
def test_files_that_cannot_be_imported_are_refused(file_workshop, arguments, result):
    write(file_workshop.folder / "a.csv", line(1, "a", 1))
    file_workshop.declare(shops())

    refused = file_workshop.penstock("run", "shops", *arguments)

    assert refused.code == 2
    assert result in refused.err


def test_a_dataset_of_a_provider_takes_no_files(workshop):
    refused = workshop.penstock("run", "poi", "--file", "penstock.toml")

    assert refused.code == 2
    assert "--file is for datasets of files" in refused.err


def test_a_dry_run_of_files_tells_what_there_is_to_read(file_workshop):
    write(file_workshop.folder / "a.csv", line(1, "a", 1))
    file_workshop.declare(shops())

    shown = file_workshop.penstock("plan", "shops", "--dry-run")

    size = (file_workshop.folder / "a.csv").stat().st_size
    assert shown.code == 0, shown.err
    assert shown.out.endswith(f"1 shard, {size} bytes in 1 file. Nothing was stored.\n")


def test_a_reference_to_a_dataset_without_rows_is_reported_at_the_start(file_workshop):
    (file_workshop.folder / "regions.txt").write_bytes(b"id\nnorth\n")
    write(file_workshop.folder / "a.csv", line(1, "north", 1))
    file_workshop.declare(
        shops().replace("required = true", 'references = "regions.id"'), REGIONS
    )

    early = file_workshop.penstock("run", "shops")
    file_workshop.penstock("run", "regions")
    late = file_workshop.penstock("run", "shops")

    text = "regions, which field name references, has no rows: penstock run regions"
    assert text in early.err
    assert "has no rows" not in late.err


def test_of_ten_files_that_are_named_none_may_be_missing(file_workshop):
    names = [f"{number}.csv" for number in range(10)]
    for number, name in enumerate(names):
        known = lines(some_shops(10, first=number * 10))
        write(file_workshop.folder / name, known)
    marking = 'missing = { do = "mark", max_drop = 1.0 }'
    listed = shops(dataset=marking).replace('"*.csv"', f"{names}")
    file_workshop.declare(listed)
    import_files(file_workshop)
    (file_workshop.folder / "3.csv").rename(file_workshop.folder / "3.moved")

    ran = file_workshop.penstock("run", "shops")

    assert ran.code == 2
    assert "shops.source.files: 3.csv does not exist in " in ran.err
    assert file_workshop.ask("select count(*) as n from penstock_import") == [{"n": 1}]
    assert len(stored(file_workshop)) == 100


@on_a_file_first
def test_rows_of_a_file_that_rotated_away_are_marked_when_that_is_accepted(
    file_workshop,
):
    write(file_workshop.folder / "2026-11-17.csv", lines(some_shops(20)))
    file_workshop.declare(shops(dataset='missing = { do = "mark", max_drop = 1.0 }'))
    import_files(file_workshop)
    (file_workshop.folder / "2026-11-17.csv").unlink()
    write(file_workshop.folder / "2026-11-18.csv", lines(some_shops(15)))

    ran = file_workshop.penstock("run", "shops")
    assert ran.code == 0, ran.err
    assert "5 missing rows were kept: they were last seen in 2026-11-17.csv" in ran.out
    assert stored(file_workshop) == some_shops(20)

    # workers end what was planned, and nobody tells them
    write(file_workshop.folder / "2026-11-18.csv", lines(some_shops(16)))
    planned = file_workshop.penstock("plan", "shops", "--accept-lost-files")
    assert planned.code == 0, planned.err
    assert file_workshop.penstock("worker", "--until-idle").code == 0
    assert stored(file_workshop) == some_shops(16)
