"""What every store promises the clients of the API."""

import json
import operator
import re
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.domain.dataset import (
    SYSTEM_COLUMNS,
    Dataset,
    Field,
    FieldType,
    Missing,
    WhenMissing,
)
from penstock.domain.history import HistoryPosition
from penstock.domain.jobs import Mode
from penstock.domain.pages import Record
from penstock.domain.record_validation import RecordValidator
from penstock.domain.search.filter_params import read_query
from penstock.domain.search.list_cursor import CursorSigner
from penstock.domain.search.query import MAX_PAGE_BYTES, Query
from penstock.domain.search.search_params import read_facets, read_search, read_suggest
from penstock.errors import NoSuchRecord
from penstock.ports import Stores
from penstock.ports.record_access import (
    ApiStores,
    Change,
    CountKind,
    LockedRow,
    RecordPage,
    Removal,
    Write,
    observing,
)
from tests.contracts.schema import Ask
from tests.support.builders import (
    NOON,
    batch,
    claim,
    dataset,
    int_field,
    known_page,
    last,
    plan,
    record,
    repeated,
    run,
    text_field,
    typed_field,
)

PRICES = [
    "1.1",
    "10",
    "9",
    "1.10",
    "-2",
    "-1.5",
    "0.00",
    "100",
    "10.0",
    "12345678901234567890.12",
]
PRICED = dataset(
    fields=(int_field("id", required=True), typed_field("price", FieldType.DECIMAL)),
    filter=("price",),
)


def priced() -> Sequence[Record]:
    texts = [*map(Decimal, PRICES), None]
    return [record(at, price, of=PRICED) for at, price in enumerate(texts)]


SEAL = CursorSigner(b"a secret of thirty-two bytes, yes")
POINTS = dataset(
    fields=(
        int_field("id", required=True),
        text_field("town"),
        int_field("points"),
        typed_field("seen", FieldType.TIMESTAMP),
        Field(name="note", local=True),
    ),
    filter=("town", "points", "seen"),
)
ODD = "Grüße \"'\\ 世界 🔌 \u2028"
TOWNS = ["Aachen", "Bern", "Köln", "東京", None]


def rows_of(count: int) -> list[Record]:
    return [
        record(
            number,
            TOWNS[number % len(TOWNS)],
            None if number % 7 == 0 else number % 4,
            NOON + timedelta(microseconds=number),
            of=POINTS,
        )
        for number in range(1, count + 1)
    ]


def list_query(of: Dataset, **parameters: str) -> Query:
    return read_query(of, parameters.items())[0]


def bodies(listing: RecordPage) -> list[dict[str, Any]]:
    return [json.loads(row) for row in listing.rows]


def ids_of(listing: RecordPage) -> list[object]:
    return [row["id"] for row in bodies(listing)]


def walk(served: ApiStores, query: Query) -> Iterator[RecordPage]:
    """Read all pages, each by the cursor of the one before."""
    listing = served.reads.page(query)
    yield listing
    while listing.has_more:
        assert listing.last is not None
        listing = served.reads.page(SEAL.read(query, SEAL.write(query, listing.last)))
        yield listing


def ordered(rows: Sequence[Record], *, place: int, descending: bool) -> list[object]:
    """Sort as the API promises: rows without a value last, then by key."""

    def by(row: Record) -> tuple[Any, Any]:
        return row.values[place], row.values[0]

    full = [row for row in rows if row.values[place] is not None]
    empty = [row for row in rows if row.values[place] is None]
    full.sort(key=by, reverse=descending)
    empty.sort(key=lambda row: row.key, reverse=descending)
    return [row.values[0] for row in (*full, *empty)]


def change(served: ApiStores, of: Dataset, *wanted: Write | Removal) -> Any:
    keys = [
        each.key if isinstance(each, Removal) else each.record.key for each in wanted
    ]
    return served.edits.change(of, keys, lambda _: wanted)


MB = 1_000_000
ADAPTERS = Path(penstock.__file__).parent / "adapters"


def names_in_sql() -> list[str]:
    """Find all aliases of the SQL, and the columns of our own tables.

    Some are words of comments, which are fields as good as others.
    """
    texts = [
        path.read_text()
        for folder in ("postgres", "sqlite", "sqlstore")
        for path in sorted((ADAPTERS / folder).rglob("*"))
        if path.suffix in {".py", ".sql"}
    ]
    aliases = r"\bas (?:materialized )?([a-z]\w*)"
    columns = r"^    ([a-z]\w*) (?:text|json|bigint|integer|bytea|blob|timestamptz)"
    found = {"shown", "rowid", "key", "keys", "value", "position", "ordinality"}
    for text in texts:
        found.update(re.findall(aliases, text))
        found.update(re.findall(columns, text, re.MULTILINE))
    return sorted(found - SYSTEM_COLUMNS)


NAMES_IN_SQL = names_in_sql()
KINDS = {
    "keys": FieldType.INT,
    "seq": FieldType.INT,
    "rows": FieldType.FLOAT,
    "line": FieldType.FLOAT,
}
LOCAL = ("incoming", "note")
NAMED = dataset(
    fields=(
        *(
            typed_field(name, KINDS.get(name, FieldType.TEXT))
            for name in NAMES_IN_SQL
            if name not in LOCAL
        ),
        *(Field(name=name, local=True) for name in LOCAL),
    ),
    key=("keys", "word"),
    version="seq",
    filter=("stored", "value", "position"),
    search=("created", "updated", "tag", "at", "dataset", "last_seq", "text"),
    geo=("rows", "line"),
)


def named_row(keys: int, text: str) -> Record:
    given = {"keys": keys, "word": "w", "seq": 1, "rows": keys / 10, "line": 7.0}
    values = [given.get(field.name, text) for field in NAMED.columns]
    return record(*values, of=NAMED)


def batched(rows: Sequence[Record], size: int) -> Iterator[Sequence[Record]]:
    return (rows[at : at + size] for at in range(0, len(rows), size))


class ServingContract:
    """Subclasses bring `stores`, `served` and `ask`, of the same database."""

    # removes the entries of changes up to a number
    remove_changes: str

    def test_a_page_has_fewer_rows_where_they_are_large(
        self, stores: Stores, served: ApiStores
    ):
        sizes = [3 * MB, 3 * MB, 3 * MB, 9 * MB, 10, 3 * MB, 10]
        rows = [
            record(number, "é" * (size // 2), number % 2 or None, NOON, of=POINTS)
            for number, size in enumerate(sizes, start=1)
        ]
        run(stores, POINTS, last(*rows))

        for sort, place in {"id": 0, "-id": 0, "points": 2}.items():
            query = list_query(POINTS, sort=sort, limit="50")
            pages = [*walk(served, query)]
            found = [number for page in pages for number in ids_of(page)]
            assert found == ordered(rows, place=place, descending=sort[0] == "-")
            assert len(pages) > 2
            for page in pages:
                size = sum(map(len, page.rows))
                assert len(page.rows) == 1 or size <= MAX_PAGE_BYTES
            # and the other way round
            listing, back = pages[-1], [*ids_of(pages[-1])]
            while listing.first is not None and back[0] != found[0]:
                towards = SEAL.write(query, listing.first, backward=True)
                listing = served.reads.page(SEAL.read(query, towards))
                back = [*ids_of(listing), *back]
            assert back == found

    def test_no_more_of_large_rows_is_read_than_is_reported(
        self, stores: Stores, served: ApiStores
    ):
        text = "x" * (3 * MB)
        run(
            stores,
            POINTS,
            last(*(record(n, text, 1, NOON, of=POINTS) for n in range(14))),
        )
        tracemalloc.start()
        try:
            listing = served.reads.page(list_query(POINTS, limit="50"))
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert len(listing.rows) == 2
        assert listing.has_more
        # of 42 MB; each row is there as it came, as text and as bytes
        assert most < 30 * MB

    def test_no_name_of_a_field_hides_one_of_the_sql(
        self, stores: Stores, served: ApiStores
    ):
        def search(**parameters: str) -> list[int]:
            query, _ = read_search(NAMED, parameters.items())
            found = served.search.search(query)
            return [json.loads(row.body)["keys"] for row in found.rows]

        known = known_page(named_row(1, "Ulm"), named_row(2, "Rome"))
        run(stores, NAMED, known, last())
        stores.schema.maintain(NAMED)
        import_id = plan(stores, NAMED)
        repeat = repeated(stores, claim(stores, NAMED), of=NAMED)
        assert repeat is not None
        stores.ledger.commit_page(NAMED, repeat.lease, last())
        stores.imports.close(NAMED, import_id, failed=None)
        # rows that are changed, new and missing
        of = replace(NAMED, missing=Missing(do=WhenMissing.MARK, max_drop=1))
        run(stores, of, last(named_row(2, "Bern"), named_row(3, "Oslo")))
        stores.schema.maintain(NAMED)
        change(served, NAMED, Write(named_row(3, "Bonn"), {"incoming": "ours"}))
        removed, *new = map(named_row, (2, 4, 5), ("Bern", "Bonn", "Bern"))
        written = change(served, NAMED, Removal(removed.key), *map(Write, new))
        stores.schema.maintain(NAMED)

        page = served.reads.page(list_query(NAMED, sort="-stored", limit="2"))
        counted = served.reads.count(
            list_query(NAMED, stored="eq.Bonn"), CountKind.EXACT
        )
        one = served.reads.one(NAMED, (3, "w"), NAMED.fields)
        changes = served.reads.changes(NAMED, after=0, limit=50)
        facets = served.search.facets(read_facets(NAMED, [("by", "stored")]))
        words, _ = read_suggest(NAMED, [("q", "bo")])
        assert [row["keys"] for row in bodies(page)] == [4, 3]
        assert bodies(page)[0].keys() == {field.name for field in NAMED.fields}
        assert counted.value == 2
        assert one is not None
        assert json.loads(one.body)["incoming"] == "ours"
        assert (written.created, written.deleted, len(written.versions)) == (2, 1, 2)
        assert [(each.kind, each.key[0]) for each in changes] == [
            *(("created", 1), ("created", 2)),
            *(("created", 3), ("updated", 2), ("deleted", 1)),
            *(("updated", 3), ("created", 4), ("created", 5), ("deleted", 2)),
        ]
        assert search(q="bonn") == [3, 4]
        assert search(q="bon") == [3, 4]
        assert search(near="0.5,7") == [5, 4, 3]
        assert search(q="bonn", near="0.5,7", within="100", stored="eq.Bonn") == [4, 3]
        assert [(each.value, each.rows) for each in facets.facets[0].values] == [
            ("Bonn", 2),
            ("Bern", 1),
        ]
        assert [each.text for each in served.search.suggest(NAMED, words, limit=5)] == [
            "Bonn"
        ]
        places = [field.name for field in NAMED.fields].index("keys")
        assert [row[places] for row in stores.records.rows(NAMED)] == [3, 4, 5]

    @pytest.mark.parametrize("local", [False, True])
    def test_many_large_rows_are_changed_without_being_read(
        self, stores: Stores, served: ApiStores, local
    ):
        numbers, text = range(200), "x" * MB
        large = [
            record(number, None if local else text, 1, NOON, of=POINTS)
            for number in numbers
        ]
        for some in batched(large, 10):
            run(stores, POINTS, last(*some))
            if local:
                change(served, POINTS, *(Write(row, {"note": text}) for row in some))
        change(served, POINTS, Removal((7,)))
        small = [record(number, "Ulm", 2, NOON, of=POINTS) for number in numbers]
        before = served.reads.dataset_versions()["poi"]

        tracemalloc.start()
        try:
            written = change(served, POINTS, *map(Write, small))
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        # of 200 MB; local values are part of a version, and are read one by one
        assert most < 10 * MB
        assert (written.created, written.updated) == (1, 199)
        after = served.reads.changes(POINTS, after=before.change_seq, limit=300)
        kinds = {each.key[0]: each.kind for each in after}
        assert kinds == {n: "created" if n == 7 else "updated" for n in numbers}
        for number in (0, 7, 199):
            one = served.reads.one(POINTS, (number,), POINTS.fields)
            assert one is not None
            assert one.version == written.versions[number,]
            assert json.loads(one.body)["town"] == "Ulm"

    @pytest.mark.parametrize("limit", ["1", "3", "50"])
    @pytest.mark.parametrize("sort", ["points", "-points", "town", "-seen"])
    def test_a_walk_meets_every_row_once_in_order(
        self, stores: Stores, served: ApiStores, sort, limit
    ):
        rows = rows_of(40)
        run(stores, POINTS, last(*rows))
        place = [field.name for field in POINTS.fields].index(sort.lstrip("-"))

        pages = [*walk(served, list_query(POINTS, sort=sort, limit=limit))]

        found = [each for page in pages for each in ids_of(page)]
        assert found == ordered(rows, place=place, descending=sort.startswith("-"))
        assert {len(page.rows) for page in pages[:-1]} <= {int(limit)}

    @pytest.mark.parametrize("sort", ["points", "-points", "id", "-id"])
    def test_a_walk_back_meets_the_same_rows(
        self, stores: Stores, served: ApiStores, sort
    ):
        run(stores, POINTS, last(*rows_of(25)))
        query = list_query(POINTS, sort=sort, limit="4")
        pages = [*walk(served, query)]

        back = [pages[-1]]
        while True:
            first = back[-1].first
            assert first is not None
            text = SEAL.write(query, first, backward=True)
            page = served.reads.page(SEAL.read(query, text))
            if page.rows:
                back.append(page)
            if not page.has_more:
                break

        there = [each for page in pages for each in ids_of(page)]
        assert [each for page in reversed(back) for each in ids_of(page)] == there

    @pytest.mark.parametrize(
        ("parameters", "fits"),
        [
            ({"points": "eq.2"}, lambda row: row[2] == 2),
            ({"points": "ne.2"}, lambda row: row[2] != 2),
            ({"points": "lt.2"}, lambda row: row[2] is not None and row[2] < 2),
            ({"points": "gte.2"}, lambda row: row[2] is not None and row[2] >= 2),
            ({"points": "in.0,3"}, lambda row: row[2] in {0, 3}),
            ({"points": "isnull.true"}, lambda row: row[2] is None),
            ({"points": "isnull.false"}, lambda row: row[2] is not None),
            ({"town": "prefix.K"}, lambda row: row[1] == "Köln"),
            ({"town": "prefix.東"}, lambda row: row[1] == "東京"),
            ({"town": 'in."Köln",Bern'}, lambda row: row[1] in {"Köln", "Bern"}),
            ({"town": "eq.'; drop table poi; --"}, lambda row: False),
            (
                {"seen": "lte.2026-03-01T12:00:00.000009Z"},
                lambda row: row[3] <= NOON + timedelta(microseconds=9),
            ),
            ({"id": "gt.5", "points": "eq.1"}, lambda row: row[0] > 5 and row[2] == 1),
        ],
        ids=range(13),
    )
    def test_conditions_hold_for_every_row_and_leave_out_no_other(
        self, stores: Stores, served: ApiStores, parameters, fits
    ):
        rows = rows_of(40)
        run(stores, POINTS, last(*rows))
        query = list_query(POINTS, **parameters, limit="100")

        found = ids_of(served.reads.page(query))

        assert found == [row.values[0] for row in rows if fits(row.values)]
        counted = served.reads.count(query, CountKind.EXACT)
        assert (counted.value, counted.kind) == (len(found), CountKind.EXACT)

    def test_an_estimate_says_that_it_is_one_or_is_right(
        self, stores: Stores, served: ApiStores
    ):
        run(stores, POINTS, last(*rows_of(40)))

        found = served.reads.count(list_query(POINTS), CountKind.PLANNED)

        assert found.kind is not CountKind.EXACT or found.value == 40

    @pytest.mark.parametrize(
        ("kind", "value", "result"),
        [
            (
                FieldType.TEXT,
                "Grüße \"'\\ 世界 🔌 \u2028",
                "Grüße \"'\\ 世界 🔌 \u2028",
            ),
            (FieldType.INT, 2**63 - 1, 2**63 - 1),
            (FieldType.FLOAT, 0.1, 0.1),
            (FieldType.FLOAT, 1e300, 1e300),
            (FieldType.DECIMAL, Decimal("1.50"), 1.5),
            (FieldType.BOOL, False, False),
            (FieldType.DATE, date(2026, 2, 28), "2026-02-28"),
            (FieldType.TIMESTAMP, NOON, "2026-03-01T12:00:00Z"),
            (
                FieldType.TIMESTAMP,
                datetime(2026, 3, 1, 12, 0, 0, 120_000, tzinfo=UTC),
                "2026-03-01T12:00:00.120000Z",
            ),
            (FieldType.JSON, '{"a":[1,null]}', {"a": [1, None]}),
        ],
        ids=range(10),
    )
    def test_values_are_reported_as_json_has_them(
        self, stores: Stores, served: ApiStores, kind, value, result
    ):
        of = dataset(fields=(int_field("id", required=True), typed_field("v", kind)))
        run(stores, of, last(record(1, value, of=of), record(2, None, of=of)))

        assert bodies(served.reads.page(list_query(of))) == [
            {"id": 1, "v": result},
            {"id": 2, "v": None},
        ]

    def test_only_the_chosen_fields_are_reported(
        self, stores: Stores, served: ApiStores
    ):
        run(stores, POINTS, last(*rows_of(1)))

        page = served.reads.page(list_query(POINTS, fields="town,id"))
        one = served.reads.one(POINTS, (1,), POINTS.fields[:2])

        assert bodies(page) == [{"town": "Bern", "id": 1}]
        assert one is not None
        assert json.loads(one.body) == {"id": 1, "town": "Bern"}

    def test_what_a_client_writes_is_there_with_its_event(
        self, stores: Stores, served: ApiStores
    ):
        run(stores, POINTS, last(*rows_of(2)))
        before = served.reads.dataset_versions()["poi"]
        new = record(9, "Ulm", 1, NOON, of=POINTS)

        written = change(served, POINTS, Write(new, {"note": "ours"}), Removal((2,)))

        assert (written.created, written.updated, written.deleted) == (1, 0, 1)
        one = served.reads.one(POINTS, (9,), POINTS.fields)
        assert one is not None
        assert json.loads(one.body)["note"] == "ours"
        assert one.version == written.versions[9,]
        assert served.reads.one(POINTS, (2,), POINTS.fields) is None
        after = served.reads.dataset_versions()["poi"]
        assert after.generation == before.generation + 1 == written.state.generation
        changes = served.reads.changes(POINTS, after=before.change_seq, limit=10)
        assert [(each.kind, [*each.key]) for each in changes] == [
            ("created", [9]),
            ("deleted", [2]),
        ]
        assert changes[-1].seq == after.change_seq

    def test_a_decimal_is_reported_with_its_digits(
        self, stores: Stores, served: ApiStores
    ):
        written = {1: "1.10", 2: "-0.00000001", 3: "9" * 250 + ".0", 4: "1000"}
        found = [record(at, Decimal(text), of=PRICED) for at, text in written.items()]
        run(stores, PRICED, last(*found))

        assert [
            re.search(rb'"price": ?([^,}]+)', row)[1].decode()  # type: ignore[index]
            for row in served.reads.page(list_query(PRICED, sort="id")).rows
        ] == [*written.values()]

    @pytest.mark.parametrize("op", ["eq", "ne", "lt", "lte", "gt", "gte"])
    @pytest.mark.parametrize(
        "bound", ["1.1", "1.10", "-2", "10.000", "12345678901234567890.1"]
    )
    def test_decimals_are_filtered_as_numbers(
        self, stores: Stores, served: ApiStores, op: str, bound: str
    ):
        run(stores, PRICED, last(*priced()))
        compare = getattr(operator, {"lte": "le", "gte": "ge"}.get(op, op))
        filled = [row.values for row in priced() if row.values[1] is not None]

        found = served.reads.page(list_query(PRICED, price=f"{op}.{bound}", limit="99"))

        wanted = {at for at, price in filled if compare(price, Decimal(bound))}
        others = {len(PRICES)} if op == "ne" else set()
        assert {*ids_of(found)} == wanted | others

    def test_one_of_some_decimals_is_found_in_any_form(
        self, stores: Stores, served: ApiStores
    ):
        run(stores, PRICED, last(*priced()))

        found = served.reads.page(list_query(PRICED, price="in.1.100,10,7"))

        wanted = {Decimal("1.1"), Decimal(10)}
        assert {*ids_of(found)} == {
            at for at, text in enumerate(PRICES) if Decimal(text) in wanted
        }

    @pytest.mark.parametrize("sign", ["", "-"])
    def test_decimals_are_sorted_as_numbers_from_page_to_page(
        self, stores: Stores, served: ApiStores, sign: str
    ):
        run(stores, PRICED, last(*priced()))
        query = list_query(PRICED, sort=f"{sign}price", limit="2")

        pages = [*walk(served, query)]

        found = [at for page in pages for at in ids_of(page)]
        by_price = sorted(range(len(PRICES)), key=lambda at: (Decimal(PRICES[at]), at))
        empty = len(PRICES)
        assert found == [*by_price, empty][:: -1 if sign else 1] or found == [
            *by_price[:: -1 if sign else 1],
            empty,
        ]

    def test_equal_decimals_are_one_key(self, stores: Stores, served: ApiStores):
        of = replace(PRICED, key=("price",), filter=("id",))
        of = replace(
            of,
            fields=(
                of.fields[0],
                replace(of.fields[1], required=True, is_normalized=True),
            ),
        )
        run(stores, of, last(record(1, Decimal("1.1"), of=of)))
        validator = RecordValidator(of)
        for text in ("1.1", "1.10", "+01.100"):
            key = validator.read_key([text])

            assert served.reads.one(of, key, of.fields) is not None
            draft = validator.validate_full({"id": 1}, key=key)
            assert [str(part) for part in draft.record.key] == ["1.1"]
        (change,) = served.reads.changes(of, after=0, limit=9)
        assert [*change.key] == [Decimal("1.1")]

    def test_a_refusal_changes_nothing(self, stores: Stores, served: ApiStores):
        run(stores, POINTS, last(*rows_of(2)))
        before = served.reads.dataset_versions()["poi"]

        def refuse(current: object) -> Any:
            raise NoSuchRecord("no")

        with pytest.raises(NoSuchRecord):
            served.edits.change(POINTS, [(1,)], refuse)

        assert served.reads.dataset_versions()["poi"] == before

    def test_a_decision_sees_the_rows_as_they_are(
        self, stores: Stores, served: ApiStores
    ):
        run(stores, POINTS, last(*rows_of(3)))
        change(served, POINTS, Removal((3,)))
        seen: dict[Any, LockedRow] = {}

        def read(current: Any) -> Any:
            seen.update(current)
            return []

        served.edits.change(POINTS, [(1,), (3,), (4,)], read)

        assert seen.keys() == {(1,)}
        assert seen[1,].values == (1, "Bern", 1, NOON + timedelta(microseconds=1), None)

    def test_every_change_gives_a_version_that_never_was(
        self, stores: Stores, served: ApiStores
    ):
        run(stores, POINTS, last(*rows_of(1)))
        row = rows_of(1)[0]

        versions = [
            change(served, POINTS, Write(row, {"note": note})).versions[1,]
            for note in ("a", "b", "a", "b")
        ]

        assert len(set(versions)) == 4

    def test_a_deleted_row_can_be_written_again(
        self, stores: Stores, served: ApiStores
    ):
        run(stores, POINTS, last(*rows_of(1)))
        change(served, POINTS, Removal((1,)))

        written = change(served, POINTS, Write(rows_of(1)[0]))

        assert written.created == 1
        assert ids_of(served.reads.page(list_query(POINTS))) == [1]

    def test_the_next_import_takes_back_what_is_the_providers_and_keeps_ours(
        self, stores: Stores, served: ApiStores
    ):
        rows = rows_of(2)
        run(stores, POINTS, last(*rows))
        mine = record(1, "Mine", 9, NOON, of=POINTS)
        change(served, POINTS, Write(mine, {"note": "keep"}))

        ended = run(stores, POINTS, last(*rows))

        assert ended.counts.updated == 1
        (first, _) = bodies(served.reads.page(list_query(POINTS)))
        assert (first["town"], first["note"]) == ("Bern", "keep")

    def test_an_import_raises_the_generation_once_when_it_ends(
        self, stores: Stores, served: ApiStores
    ):
        run(stores, POINTS, last(*rows_of(1)))
        before = served.reads.dataset_versions()["poi"]
        rows = rows_of(30)

        run(stores, POINTS, batch(*rows[:10]), batch(*rows[10:20]), last(*rows[20:]))

        after = served.reads.dataset_versions()["poi"]
        assert after.generation == before.generation + 1
        assert after.change_seq == before.change_seq + 29

    def test_changes_come_in_chunks_without_gap_or_repeat(
        self, stores: Stores, served: ApiStores
    ):
        run(stores, POINTS, last(*rows_of(25)))
        change(served, POINTS, Removal((3,)), Write(rows_of(4)[3]))
        found: list[Change] = []
        after = 0
        while some := served.reads.changes(POINTS, after=after, limit=4):
            assert len(some) <= 4
            found += some
            after = some[-1].seq

        assert [each.seq for each in found] == [*range(1, 28)]
        assert found[-1].kind == "deleted"

    def test_a_secret_is_made_once_and_shared(self, stores: Stores, served: ApiStores):
        first = served.reads.secret("cursor")

        assert len(first) == 32
        assert served.reads.secret("cursor") == first
        assert served.reads.secret("other") != first

    def test_keys_of_several_fields_are_placed_and_found(
        self, stores: Stores, served: ApiStores
    ):
        of = replace(
            dataset(
                fields=(
                    text_field("region", required=True),
                    typed_field("day", FieldType.DATE, required=True),
                    int_field("n"),
                )
            ),
            key=("region", "day"),
            filter=("n", "day"),
        )
        rows = [
            record(region, date(2026, 1, day), day % 2, of=of)
            for region in ("a", "ä", "b'")
            for day in range(1, 6)
        ]
        run(stores, of, last(*rows))

        for sort in ("region", "-region,-day", "n", "-day"):
            pages = [*walk(served, list_query(of, sort=sort, limit="2"))]
            keys = [(r["region"], r["day"]) for page in pages for r in bodies(page)]
            assert len(keys) == len(set(keys)) == 15
        one = served.reads.one(of, ("b'", date(2026, 1, 5)), of.fields)
        assert one is not None
        assert json.loads(one.body) == {"region": "b'", "day": "2026-01-05", "n": 1}

    # a history that can be told from another one

    def test_every_change_is_known_by_its_number_and_its_tag(
        self, stores: Stores, served: ApiStores
    ):
        run(stores, POINTS, batch(*rows_of(5)), last(*rows_of(9)))
        change(served, POINTS, Write(rows_of(1)[0]), Removal((2,)))
        result = served.reads.changes(POINTS, after=0, limit=50)

        positions = [each.position for each in result]
        assert [each.seq for each in positions] == [*range(1, len(result) + 1)]
        for each in positions:
            assert served.reads.knows("poi", [each])
            assert not served.reads.knows("poi", [HistoryPosition(each.seq, 1)])
            assert not served.reads.knows("other", [each])
        assert served.reads.knows("poi", positions)
        assert not served.reads.knows(
            "poi", [*positions, HistoryPosition(len(result) + 1, 1)]
        )
        assert served.reads.dataset_versions()["poi"].position == positions[-1]

    def test_a_change_without_its_entry_is_known_by_the_next_one(
        self, stores: Stores, served: ApiStores, ask: Ask
    ):
        of = replace(POINTS, missing=Missing(do=WhenMissing.MARK, max_drop=1))

        def position() -> HistoryPosition:
            return served.reads.dataset_versions()["poi"].position

        run(stores, of, last(*rows_of(4)))
        ends = [position()]
        # a page of new rows, one of others too, rows that are missing, and a client
        run(stores, of, last(*rows_of(8)[4:]), mode=Mode.DELTA)
        ends.append(position())
        changed = record(1, "Ulm", 1, NOON, of=POINTS)
        run(stores, of, last(changed, *rows_of(9)[8:]), mode=Mode.DELTA)
        ends.append(position())
        run(stores, of, last(*rows_of(1)))
        ends.append(position())
        change(served, of, Write(rows_of(3)[-1]))
        for each in ends:
            ask(self.remove_changes.format(each.seq))

            assert served.reads.knows("poi", [each])
            assert not served.reads.knows("poi", [HistoryPosition(each.seq, 1)])
            result = served.reads.changes(of, after=0, limit=1)
            assert result[0].seq == each.seq + 1
            assert not served.reads.knows(
                "poi", [HistoryPosition(each.seq, result[0].tag)]
            )

    def test_every_transaction_has_a_tag_of_its_own(
        self, stores: Stores, served: ApiStores
    ):
        run(stores, POINTS, batch(*rows_of(2)), last(*rows_of(4)))
        seen = [served.reads.dataset_versions()["poi"]]
        for number in (1, 3, 1):
            written = change(served, POINTS, Write(rows_of(number)[-1]))
            seen.append(served.reads.dataset_versions()["poi"])
            assert written.state.position == seen[-1].position
            assert written.state.published == seen[-1].published
        result = served.reads.changes(POINTS, after=0, limit=50)

        # two pages and three writes, of which each has one
        assert len({each.tag for each in result}) == 5
        assert len({each.published for each in seen}) == len(seen)

    def test_an_import_without_a_change_is_another_generation_of_the_same_history(
        self, stores: Stores, served: ApiStores
    ):
        run(stores, POINTS, last(*rows_of(4)))
        before = served.reads.dataset_versions()["poi"]
        run(stores, POINTS, last(*rows_of(4)))
        after = served.reads.dataset_versions()["poi"]

        assert after.position == before.position
        assert after.generation > before.generation
        assert after.generation_tag != before.generation_tag

    def test_rows_that_are_missing_have_the_tag_of_the_end_of_their_import(
        self, stores: Stores, served: ApiStores
    ):
        of = replace(POINTS, missing=Missing(do=WhenMissing.MARK, max_drop=1))
        run(stores, of, last(*rows_of(4)))
        run(stores, of, last(*rows_of(1)))
        gone = [
            each
            for each in served.reads.changes(of, after=0, limit=50)
            if each.kind == "deleted"
        ]

        assert len(gone) == 3
        assert {each.tag for each in gone} == {
            served.reads.dataset_versions()["poi"].change_tag
        }

    def test_who_reads_learns_how_far_the_dataset_is_after_it(
        self, stores: Stores, served: ApiStores
    ):
        run(stores, POINTS, last(*rows_of(4)))
        position = served.reads.dataset_versions()["poi"].position
        with observing() as observed:
            served.reads.page(list_query(POINTS))
            served.reads.one(POINTS, (1,), POINTS.fields)
            served.reads.one(POINTS, (99,), POINTS.fields)
            served.reads.count(list_query(POINTS), CountKind.EXACT)

        assert [each.position for each in observed] == [position] * 4
