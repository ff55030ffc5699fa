"""What every store promises about bad rows of files, in whatever order they come."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import chain, permutations, product

import pytest
from typing_extensions import override

from penstock.adapters.csv.source import CsvSourceReader
from penstock.domain.dataset import Dataset, DatasetName, FieldType
from penstock.domain.jobs import Import, ImportId, Lease, Mode
from penstock.domain.mapping.mapper import Mapper
from penstock.domain.mapping.page_mapper import map_page
from penstock.domain.pages import (
    Batch,
    Counts,
    Cursor,
    Page,
    Proof,
    RawRow,
    RowLocation,
)
from penstock.domain.sharding.axes import FileAxis
from penstock.domain.sharding.parts import Slice
from penstock.domain.sharding.shard import Shard, never_outside
from penstock.domain.source import CsvSource
from penstock.flow.import_shard import build_batch
from penstock.flow.replay_quarantine import ReplayQuarantine
from penstock.ports import Replay, Stores
from penstock.ports.record_access import ApiStores, Write
from tests.support.builders import (
    A_MOMENT,
    NOON,
    SECOND,
    TIMEOUT,
    batch,
    claim,
    dataset,
    int_field,
    last,
    plan,
    record,
    rejection,
    rows,
    run,
    text_field,
    typed_field,
)

SHOPS = dataset(
    "shops",
    fields=(int_field("id"), text_field("name", required=True)),
    source=CsvSource(files=("*.csv",)),
    axes=(FileAxis(),),
)
FIELDS = (int_field("id"), text_field("name", required=True), int_field("v"))
VERSIONED = replace(SHOPS, fields=FIELDS, version="v")

# where the shards begin: two of one file, and one of another
STARTS = ((0, 0), (0, 20_000), (1, 0))
PAGE = 10_000
# what a shard may have of a key: rows that are good or bad, on one page or on two
PARTS = ("", "g", "b", "gb", "bg", "g,b", "b,g")
# the rows of a key in all three shards
EVERY = ["|".join(parts) for parts in product(PARTS, repeat=3)]
ORDERS = [*permutations(range(3))]


@dataclass(frozen=True)
class ReportedRows:
    """A row: where it stands, and whether it is good."""

    key: int
    shard: int
    offset: int
    is_good: bool

    @property
    def name(self) -> str:
        return f"shop at {self.offset} of shard {self.shard}"

    @property
    def raw(self) -> bytes:
        return f"{self.name}: {self.key}".encode()


def shard_of(number: int) -> Slice:
    file, start = STARTS[number]
    return Slice(
        number=file,
        file=f"{file}.csv",
        size=99_999,
        fingerprint="f",
        start=start,
        end=start + 2 * PAGE,
        line=1,
    )


KEYS = [Shard((FileAxis(),), (shard_of(number),)).key for number in range(3)]


def rows_on(files: Sequence[str], shard: int, page: int) -> list[ReportedRows]:
    """Return the rows of all keys on one page; a key is where its rows are told."""
    letters = [
        (key, letter)
        for key, result in enumerate(files)
        for letter in f"{result.split('|')[shard]},".split(",")[page]
    ]
    start = STARTS[shard][1] + page * PAGE
    return [
        ReportedRows(key, shard, start + at, letter == "g")
        for at, (key, letter) in enumerate(letters)
    ]


def rows_of(files: Sequence[str]) -> list[list[ReportedRows]]:
    """Return the rows of each key as they stand."""
    found: list[list[ReportedRows]] = [[] for _ in files]
    for shard, page in product(range(3), range(2)):
        for row in rows_on(files, shard, page):
            found[row.key].append(row)
    return found


def page_of(of: Dataset, files: Sequence[str], shard: int, page: int) -> Batch:
    """Return a page as a file brings it."""
    part = shard_of(shard)
    others = (None,) * (len(of.fields) - 2)
    brought = Page(
        rows=[
            RawRow(
                (row.key, row.name if row.is_good else None, *others),
                row.raw,
                position,
                place=RowLocation(line=1 + position, offset=row.offset),
            )
            for position, row in enumerate(rows_on(files, shard, page))
        ],
        rank=part.rank(part.start + page * PAGE),
        proof=Proof.END_OF_RANGE if page else None,
    )
    mapped = map_page(
        Mapper(of), brought, never_outside, lambda *_: (), shard=KEYS[shard]
    )
    return build_batch(brought, None if page else Cursor(position={}), mapped)


def leases_of(stores: Stores, of: Dataset) -> dict[int, Lease]:
    """Claim all shards; their numbers tell them apart."""
    return {KEYS.index((lease := claim(stores, of)).shard_key): lease for _ in KEYS}


def two_imports(stores: Stores, of: Dataset) -> tuple[Lease, Lease]:
    """Begin an import of the last shard, and another of the first."""
    plan(stores, of, KEYS[2])
    earlier = claim(stores, of)
    plan(stores, of, KEYS[0], mode=Mode.BACKFILL)
    return earlier, claim(stores, of)


def commit(
    stores: Stores, lease: Lease, files: Sequence[str], *, of: Dataset = SHOPS
) -> None:
    """Commit a shard of files, which the key of its job tells."""
    for page in range(2):
        brought = page_of(of, files, KEYS.index(lease.shard_key), page)
        lease, _ = stores.ledger.commit_page(of, lease, brought)


def import_files(
    stores: Stores,
    files: Sequence[str],
    order: Sequence[int],
    pass_time: Callable[[timedelta], None],
    *,
    of: Dataset = SHOPS,
) -> Import:
    """Import files whose shards are committed in some order."""
    import_id = plan(stores, of, *KEYS)
    leases = leases_of(stores, of)
    for shard in order:
        commit(stores, leases[shard], files, of=of)
        pass_time(A_MOMENT)
    return end(stores, import_id, of)


def end(stores: Stores, import_id: ImportId, of: Dataset = SHOPS) -> Import:
    ended = stores.imports.close(of, import_id, failed=None)
    assert ended is not None
    return ended


def run_before(
    stores: Stores, keys: int, pass_time: Callable[[timedelta], None]
) -> None:
    """Have an earlier import store rows of the same keys."""
    page = last(*(record(key, "before", of=SHOPS) for key in range(keys)))
    run(stores, SHOPS, replace(page, rank=shard_of(2).rank(PAGE)))
    pass_time(SECOND)


def edit(served: ApiStores, name: str) -> None:
    """Change the row of the first key, as a client does."""
    write = Write(record(0, name, of=SHOPS))
    served.edits.change(SHOPS, [(0,)], lambda _: [write])


def open_rejections(stores: Stores, of: Dataset = SHOPS) -> set[bytes]:
    found = stores.records.quarantine(of, after=0, limit=9_999)
    return {row.rejection.raw for row in found}


def replay(
    stores: Stores, files: Sequence[str], *, mended: ReportedRows | None = None
) -> Replay:
    """Try the bad rows again, of which all are good now, or one alone."""
    names = {
        row.raw: (row.key, row.name if mended in {None, row} else None)
        for row in chain(*rows_of(files))
    }

    class Mended(CsvSourceReader):
        @override
        def read(self, raw: bytes) -> RawRow:
            return RawRow(names[raw], raw, 0)

    return ReplayQuarantine(records=stores.records)(SHOPS, Mended(SHOPS))


class FileRejectionsContract:
    """Subclasses bring `stores`, `served` and `pass_time`."""

    @pytest.mark.parametrize("order", ORDERS, ids=str)
    @pytest.mark.parametrize("before", [False, True], ids=["new", "known"])
    def test_the_order_of_shards_decides_nothing(
        self, stores: Stores, pass_time, order, before
    ):
        if before:
            run_before(stores, len(EVERY), pass_time)

        counts = import_files(stores, EVERY, order, pass_time).counts

        result = rows_of(EVERY)
        good = [[row for row in each if row.is_good] for each in result]
        names = [
            (key, each[-1].name if each else "before")
            for key, each in enumerate(good)
            if each or before
        ]
        known = sum(map(bool, good))
        assert rows(stores, SHOPS) == names
        assert open_rejections(stores) == {
            row.raw
            for some, each in zip(good, result, strict=True)
            for row in each[each.index(some[-1]) + 1 if some else 0 :]
        }
        assert counts == Counts(
            pages=6,
            seen=sum(map(len, result)),
            inserted=0 if before else known,
            updated=known if before else 0,
            quarantined=sum(map(len, result)) - sum(map(len, good)),
            duplicates=sum(map(len, good)) - known,
        )

    @pytest.mark.parametrize("order", ORDERS, ids=str)
    def test_a_replay_stores_what_an_import_of_good_rows_would_have_stored(
        self, stores: Stores, pass_time, order
    ):
        import_files(stores, EVERY, order, pass_time)
        pass_time(SECOND)
        opened = stores.records.quarantine(SHOPS, after=0, limit=9_999)
        keys = {row.rejection.key for row in opened}

        result = replay(stores, EVERY)

        assert rows(stores, SHOPS) == [
            (key, each[-1].name) for key, each in enumerate(rows_of(EVERY)) if each
        ]
        assert open_rejections(stores) == set()
        # of each key the last, which is behind all good ones
        assert result == Replay(accepted=len(keys), superseded=len(opened) - len(keys))

    @pytest.mark.parametrize("order", ORDERS, ids=str)
    def test_a_replay_in_the_middle_of_an_import_decides_nothing_either(
        self, stores: Stores, pass_time, order
    ):
        files = ["b|g|b", "g|b|", "|gb|b", "b|b|b", "g,b|b|bg", "b||g"]
        import_id = plan(stores, SHOPS, *KEYS)
        leases = leases_of(stores, SHOPS)

        for shard in order:
            commit(stores, leases[shard], files)
            pass_time(A_MOMENT)
            replay(stores, files)
            pass_time(A_MOMENT)
        end(stores, import_id)

        assert rows(stores, SHOPS) == [
            (key, each[-1].name) for key, each in enumerate(rows_of(files))
        ]
        assert open_rejections(stores) == set()

    @pytest.mark.parametrize("order", ORDERS, ids=str)
    def test_rows_that_are_mended_one_after_another_stand_as_in_their_files(
        self, stores: Stores, pass_time, order
    ):
        files = ["b|b|b"]
        import_files(stores, files, order, pass_time)
        ((first, second, third),) = rows_of(files)

        for row in (second, third, first):
            pass_time(SECOND)
            replay(stores, files, mended=row)

        assert rows(stores, SHOPS) == [(0, third.name)]
        assert open_rejections(stores) == set()

    @pytest.mark.parametrize("order", ORDERS, ids=str)
    def test_a_row_that_is_stored_already_stands_where_its_last_one_does(
        self, stores: Stores, pass_time, order
    ):
        import_files(stores, ["g|b|b"], order, pass_time)
        pass_time(SECOND)
        (third,), (second,) = stores.records.latest_quarantine(SHOPS, at_once=9)
        (stored,) = rows(stores, SHOPS)
        same, other = record(*stored, of=SHOPS), record(0, "other", of=SHOPS)

        result = stores.records.replay(SHOPS, [(third, same), (second, other)])

        assert result == Replay(accepted=1, superseded=1)
        assert rows(stores, SHOPS) == [stored]

    @pytest.mark.parametrize("order", ORDERS, ids=str)
    def test_a_place_says_nothing_where_versions_decide(
        self, stores: Stores, pass_time, order
    ):
        files = ["b|g|b", "bg||"]

        import_files(stores, files, order, pass_time, of=VERSIONED)

        assert open_rejections(stores, VERSIONED) == {
            row.raw for row in chain(*rows_of(files)) if not row.is_good
        }

    @pytest.mark.parametrize("order", ORDERS, ids=str)
    def test_an_import_that_fails_leaves_what_its_shards_tell(
        self, stores: Stores, pass_time, order
    ):
        import_id = plan(stores, SHOPS, *KEYS)
        leases, files = leases_of(stores, SHOPS), ["b|g|", "g|b|", "|b|g"]
        for shard in order:
            if shard == 2:
                stores.ledger.fail(leases[shard], TIMEOUT)
            else:
                commit(stores, leases[shard], files)
            pass_time(A_MOMENT)

        end(stores, import_id)

        _, (_, behind_a_good_one), (alone, _) = rows_of(files)
        assert open_rejections(stores) == {behind_a_good_one.raw, alone.raw}

    def test_bad_rows_come_as_they_stand_the_last_first(
        self, stores: Stores, pass_time
    ):
        files = ["bb,b|bb|b,b"]
        import_files(stores, files, (2, 0, 1), pass_time)

        found = stores.records.latest_quarantine(SHOPS, at_once=2)

        results = [row.rejection.raw for some in found for row in some]
        assert results == [row.raw for row in reversed(*rows_of(files))]

    @pytest.mark.parametrize("order", ORDERS, ids=str)
    def test_what_a_client_has_written_since_stays(
        self, stores: Stores, served: ApiStores, pass_time, order
    ):
        files = ["g|b|"]
        import_files(stores, files, order, pass_time)
        pass_time(SECOND)
        edit(served, "by a client")

        result = replay(stores, files)

        assert result == Replay(superseded=1)
        assert rows(stores, SHOPS) == [(0, "by a client")]

    @pytest.mark.parametrize("order", ORDERS, ids=str)
    def test_what_a_client_has_written_after_a_replay_stays(
        self, stores: Stores, served: ApiStores, pass_time, order
    ):
        files = ["b|b|"]
        import_files(stores, files, order, pass_time)
        ((first, second),) = rows_of(files)
        pass_time(SECOND)
        replay(stores, files, mended=first)
        pass_time(SECOND)
        edit(served, "by a client")

        result = replay(stores, files, mended=second)

        assert result == Replay(superseded=1)
        assert rows(stores, SHOPS) == [(0, "by a client")]

    @pytest.mark.parametrize("late", [False, True], ids=["in order", "late"])
    @pytest.mark.parametrize("of", [SHOPS, VERSIONED], ids=["by place", "by version"])
    def test_a_later_import_settles_what_an_earlier_one_complains_of(
        self, stores: Stores, late, of
    ):
        earlier, later = two_imports(stores, of)
        steps = [(earlier, ["||b"]), (later, ["g||"])]

        for lease, files in reversed(steps) if late else steps:
            commit(stores, lease, files, of=of)
        end(stores, earlier.import_id, of)

        assert open_rejections(stores, of) == set()

    def test_no_field_hides_a_column_of_a_rejection(self, stores: Stores, pass_time):
        names = ["byte_offset", "job_id", "import_id", "key", "resolved", "stored"]
        fields = (*SHOPS.fields, *map(text_field, [*names, "bad"]))

        import_files(
            stores, ["b|g|"], (0, 1, 2), pass_time, of=replace(SHOPS, fields=fields)
        )

        assert open_rejections(stores) == set()

    @pytest.mark.parametrize("late", [False, True], ids=["in order", "late"])
    def test_an_earlier_import_settles_nothing_of_a_later_one(
        self, stores: Stores, late
    ):
        earlier, later = two_imports(stores, SHOPS)
        steps = [(earlier, ["||g"]), (later, ["b||"])]

        for lease, files in reversed(steps) if late else steps:
            commit(stores, lease, files)
        end(stores, earlier.import_id)
        end(stores, later.import_id)

        assert open_rejections(stores) == {row.raw for row in chain(*rows_of(["b||"]))}
        assert replay(stores, ["b||"]) == Replay(accepted=1)

    @pytest.mark.parametrize("late", [False, True], ids=["in order", "late"])
    def test_a_bad_row_settles_nothing(self, stores: Stores, pass_time, late):
        run_before(stores, 1, pass_time)
        earlier, later = two_imports(stores, SHOPS)
        files = ["b||b"]

        for lease in (later, earlier) if late else (earlier, later):
            commit(stores, lease, files)
        end(stores, later.import_id)
        end(stores, earlier.import_id)

        assert open_rejections(stores) == {row.raw for row in chain(*rows_of(files))}

    @pytest.mark.parametrize(
        ("kind", "key"),
        [
            (FieldType.TEXT, 'a "ü" \\'),
            (FieldType.INT, 2**62),
            (FieldType.FLOAT, 0.1),
            (FieldType.BOOL, True),
            (FieldType.DATE, date(2026, 2, 28)),
            (FieldType.TIMESTAMP, NOON + timedelta(microseconds=1)),
        ],
        ids=lambda result: result.value if isinstance(result, FieldType) else "",
    )
    def test_a_key_of_any_type_is_found_again(self, stores: Stores, kind, key):
        fields = (typed_field("a", kind), int_field("b"), text_field("name"))
        of = replace(SHOPS, name=DatasetName("pairs"), fields=fields, key=("a", "b"))
        import_id = plan(stores, of, KEYS[0])
        bad = replace(rejection(key=(key, 1)), place=RowLocation(line=1, offset=0))
        other = replace(rejection(1, key=(key, 2)), place=RowLocation(line=2, offset=9))
        pages = [
            replace(batch(rejections=[bad, other]), rank=1),
            replace(last(record(key, 1, "good", of=of)), rank=100),
        ]

        lease = claim(stores, of)
        for page in pages:
            lease, _ = stores.ledger.commit_page(of, lease, page)
        end(stores, import_id, of)

        (stored,) = stores.records.quarantine(of, after=0, limit=9)
        assert stored.rejection.position == 1

    def test_bad_rows_without_a_key_or_a_place_stay(self, stores: Stores):
        import_id = plan(stores, SHOPS, KEYS[0], "all")
        keyless = replace(rejection(), place=RowLocation(line=1, offset=0))
        placeless = rejection(key=(0,))

        for page in (last(rejections=[keyless]), last(rejections=[placeless])):
            stores.ledger.commit_page(SHOPS, claim(stores, SHOPS), page)
        end(stores, import_id)

        found = stores.records.quarantine(SHOPS, after=0, limit=9)
        assert [row.rejection for row in found] == [keyless, placeless]
