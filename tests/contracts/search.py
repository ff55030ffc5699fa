"""What every store promises those who look for something."""

# ruff: noqa: RUF001 (texts in many scripts look alike)

import json
import math
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.domain.dataset import Dataset, FieldType, Missing, WhenMissing
from penstock.domain.pages import Record
from penstock.domain.search.query import MAX_PAGE_BYTES
from penstock.domain.search.ranking import score_row
from penstock.domain.search.search_params import read_facets, read_search, read_suggest
from penstock.domain.search.search_query import (
    MAX_CANDIDATES,
    MAX_SAMPLED_ROWS,
    SearchQuery,
)
from penstock.domain.search.tokenizer import SearchTerms, fold
from penstock.errors import BadRequest
from penstock.ports import Stores
from penstock.ports.record_access import ApiStores, Removal, Write
from penstock.ports.search import Facets, Matches, Suggestion
from tests.support.builders import (
    NOON,
    dataset,
    int_field,
    last,
    record,
    run,
    text_field,
    typed_field,
)

FIELDS = (
    int_field("id", required=True),
    text_field("title"),
    text_field("town"),
    int_field("points"),
    typed_field("lat", FieldType.FLOAT),
    typed_field("lon", FieldType.FLOAT),
    typed_field("seen", FieldType.TIMESTAMP),
    typed_field("is_open", FieldType.BOOL),
)
PLACES = dataset(
    fields=FIELDS,
    search=("title", "town"),
    filter=("town", "points", "seen", "is_open"),
    geo=("lat", "lon"),
)


def place(
    number: int,
    title: str | None,
    town: str | None = None,
    *,
    points: int | None = 1,
    at: tuple[float | None, float | None] = (None, None),
) -> Record:
    seen = NOON + timedelta(days=number)
    return record(number, title, town, points, *at, seen, number % 2 == 0, of=PLACES)


def titled(*titles: str) -> list[Record]:
    return [place(number, title) for number, title in enumerate(titles, start=1)]


def store(stores: Stores, rows: Iterable[Record], of: Dataset = PLACES) -> None:
    run(stores, of, last(*rows))
    stores.schema.maintain(of)


def search_query(of: Dataset = PLACES, **parameters: str) -> SearchQuery:
    return read_search(of, parameters.items())[0]


def search(served: ApiStores, of: Dataset = PLACES, **parameters: str) -> Matches:
    return served.search.search(search_query(of, **parameters))


def ids(found: Matches) -> list[int]:
    return [json.loads(row.body)["id"] for row in found.rows]


def find(served: ApiStores, of: Dataset = PLACES, **parameters: str) -> list[int]:
    return ids(search(served, of, limit="200", **parameters))


def suggest(served: ApiStores, text: str, limit: int = 10) -> list[Suggestion]:
    words, _ = read_suggest(PLACES, [("q", text)])
    return [*served.search.suggest(PLACES, words, limit=limit)]


def facets(served: ApiStores, **parameters: str) -> Facets:
    return served.search.facets(read_facets(PLACES, parameters.items()))


def change(served: ApiStores, *wanted: Write | Removal) -> None:
    keys = [
        each.key if isinstance(each, Removal) else each.record.key for each in wanted
    ]
    served.edits.change(PLACES, keys, lambda _: wanted)


def kilometres(one: tuple[Any, Any], other: tuple[Any, Any]) -> float:
    """Measure by the angle between two arrows from the centre of the earth."""

    def arrow(lat: float, lon: float) -> tuple[float, float, float]:
        lat, lon = math.radians(lat), math.radians(lon)
        return (
            math.cos(lat) * math.cos(lon),
            math.cos(lat) * math.sin(lon),
            math.sin(lat),
        )

    a, b = arrow(*one), arrow(*other)
    cross = math.dist(
        (0, 0, 0),
        (
            a[1] * b[2] - a[2] * b[1],
            a[2] * b[0] - a[0] * b[2],
            a[0] * b[1] - a[1] * b[0],
        ),
    )
    return 6371.0088 * math.atan2(cross, sum(x * y for x, y in zip(a, b, strict=True)))


def scattered(count: int, *, seed: int = 1) -> list[Record]:
    """Return places all over the globe, many at the poles and the date line."""
    dice = random.Random(seed)
    rows = []
    for number in range(1, count + 1):
        lat = dice.choice([dice.uniform(-90, 90), dice.choice([-1, 1]) * 89.5])
        lon = dice.choice([dice.uniform(-180, 180), dice.choice([-1, 1]) * 179.8])
        near = (lat + dice.uniform(-0.5, 0.5), lon + dice.uniform(-0.2, 0.2))
        at = (max(-90.0, min(90.0, near[0])), max(-180.0, min(180.0, near[1])))
        rows.append(place(number, f"place {number % 7}", points=number % 5, at=at))
    return rows


def value(row: Record, place: int) -> Any:
    return row.values[place]


def spot_of(row: Record) -> tuple[Any, Any]:
    return value(row, 4), value(row, 5)


SPOTS = [
    (0.0, 0.0),
    (52.5, 13.4),
    (89.9, 10.0),
    (-90.0, 0.0),
    (10.0, 179.95),
    (-10.0, -180.0),
    (60.0, -179.9),
]


class SearchContract:
    """Subclasses bring `stores` and `served`, of the same database."""

    def test_all_words_must_be_there_in_any_order(
        self, stores: Stores, served: ApiStores
    ):
        store(
            stores,
            [
                place(1, "Charging park north", "Berlin"),
                place(2, "Park and ride", "Bern"),
                place(3, "Charging station", "Berlin"),
            ],
        )

        assert find(served, q="berlin charging") == [3, 1]
        assert find(served, q="charging berlin") == [3, 1]
        assert find(served, q="PARK berlin") == [1]
        assert find(served, q="park nowhere") == []

    def test_the_last_word_may_be_unfinished(self, stores: Stores, served: ApiStores):
        store(stores, titled("Charging station", "Charge here", "Discharge"))

        assert find(served, q="char") == [2, 1]
        assert find(served, q="charging st") == [1]
        assert find(served, q="char station") == []

    @pytest.mark.parametrize(
        ("text", "query"),
        [
            ("München", "munchen"),
            ("Munchen", "MÜNCHEN"),
            ("Straße", "strasse"),
            ("Łódź", "lodz"),
            ("Ærøskøbing", "aeroskobing"),
            ("İstanbul", "istanbul"),
            ("ﬁne ﬀ", "fine"),
            ("Ｆｕｌｌ ｗｉｄｔｈ", "full width"),
        ],
        ids=["umlaut", "marked", "sharp", "stroke", "joined", "dot", "form", "wide"],
    )
    def test_accents_and_case_do_not_matter(
        self, stores: Stores, served: ApiStores, text, query
    ):
        store(stores, titled(text, "something else"))

        assert find(served, q=query) == [1]

    @pytest.mark.parametrize(
        ("text", "queries"),
        [
            ("Πλατεία Συντάγματος", ["συνταγματος", "ΠΛΑΤΕΙΑ", "συντ"]),
            ("Санкт-Петербург, Ёлка", ["петербург", "САНКТ", "елка", "пет"]),
            ("مَحَطَّة القاهرة", ["محطة", "القاهره", "القا"]),
            ("יְרוּשָׁלַיִם תחנה", ["ירושלים", "תחנה", "ירוש"]),
            ("दिल्ली चार्जिंग स्टेशन", ["दिल्ली", "स्टेशन", "चार्"]),
            ("สถานีกรุงเทพ", ["กรุงเทพ", "สถานี", "กรุง", "ก"]),
            ("上海充电站", ["充电站", "上海", "充电", "站"]),
            ("東京駅 カフェ・コーヒー", ["東京", "駅", "カフェ", "ｶﾌｪ", "コーヒー"]),
            ("서울특별시 충전소", ["충전소", "서울"]),
            ("Plug 🔌 here 👩‍👩‍👧", ["🔌", "plug here", "👩"]),
            ("የአዲስ አበባ ጣቢያ", ["አበባ", "የአዲስ"]),
            ("ქართული სადგური", ["სადგური", "ქარ"]),
        ],
        ids=[
            *("greek", "cyrillic", "arabic", "hebrew", "hindi", "thai", "chinese"),
            *("japanese", "korean", "emoji", "amharic", "georgian"),
        ],
    )
    def test_words_are_found_in_every_script(
        self, stores: Stores, served: ApiStores, text, queries
    ):
        store(stores, titled(text, "other 其他 อื่น"))

        assert {query: find(served, q=query) for query in queries} == {
            query: [1] for query in queries
        }
        assert find(served, q="zzz") == []

    def test_signs_of_a_run_must_stand_together_to_come_first(
        self, stores: Stores, served: ApiStores
    ):
        store(stores, titled("京東都", "東京都", "東京と京都"))

        assert find(served, q="東京都")[0] == 2
        assert find(served, q="京都") == [2, 3]

    @pytest.mark.parametrize(
        "typed",
        [
            *("hauptbahnhov", "hauptbanhof", "hauptbahnnhof", "haputbahnhof"),
            *("gauptbahnhof", "auptbahnhof", "hauptbahnhofs", "hauptbahnho"),
            "hauptbahnohf",
        ],
    )
    def test_one_letter_may_be_wrong(self, stores: Stores, served: ApiStores, typed):
        store(stores, titled("Hauptbahnhof Bern", "Hauptmarkt Bern"))

        found = search(served, q=f"{typed} bern")

        assert ids(found) == [1]

    @pytest.mark.parametrize(
        ("typed", "is_found"),
        [
            *(("pairs", True), ("pris", False), ("paris", True), ("parsi", True)),
            *(("xaris", True), ("pariss", True), ("xarisx", False), ("prias", False)),
        ],
    )
    def test_it_is_one_letter_and_in_words_of_five(
        self, stores: Stores, served: ApiStores, typed, is_found
    ):
        store(stores, titled("Paris", "London"))

        assert find(served, q=f"{typed} ") == ([1] if is_found else [])

    def test_numbers_are_taken_as_they_are(self, stores: Stores, served: ApiStores):
        store(stores, titled("Code 123456"))

        assert find(served, q="123457") == []
        assert find(served, q="123456") == [1]

    def test_what_was_forgiven_is_reported(self, stores: Stores, served: ApiStores):
        store(stores, titled("Station", "Stations", "Nation"))

        found = search(served, q="statoin here")
        meant = search(served, q="statoin")

        assert ids(found) == []
        assert meant.forgiven == {"statoin": ("station",)}
        assert ids(meant) == [1]

    def test_what_many_rows_have_is_no_typo(self, stores: Stores, served: ApiStores):
        rows = [*titled(*["Merlin"] * 12), place(13, "Berlin", points=7)]
        store(stores, rows)

        assert find(served, q="berlin") == [13, *range(1, 13)]
        assert 13 not in find(served, q="merlin")
        # also where none of them is told
        assert find(served, q="merlin", points="eq.7") == []

    @pytest.mark.parametrize(
        "query",
        [
            *('"berlin park"', "berlin*", "berlin & park", "berlin | x park"),
            *("!berlin park", "berlin:* park", "(berlin) (park", "berlin <-> park"),
            *("berlin AND park", "NEAR(berlin park)", "berlin OR park", "title:berlin"),
            *("-berlin ^park", "berlin\\ park", "berlin' park", "park%", "NOT"),
            *("ber_lin", "{berlin park}", "berlin:1A", "; drop table poi; --", "* *a"),
        ],
        ids=lambda query: query.encode("ascii", "ignore").hex(),
    )
    def test_signs_of_query_languages_are_plain_text(
        self, stores: Stores, served: ApiStores, query
    ):
        store(stores, [place(1, "Berlin park"), place(2, "and near or not title x")])
        words = set(fold(query).split())

        found = find(served, q=query)

        assert (1 in found) == (words <= {"berlin", "park"})
        assert find(served, q="berlin park") == [1]

    def test_rows_that_fit_better_come_first(self, stores: Stores, served: ApiStores):
        store(
            stores,
            [
                place(1, "Opposite the station", "Ulm"),
                place(2, "Stationary shop", "Ulm"),
                place(3, "Station", "Ulm"),
                place(4, "Something else", "Station"),
                place(5, "Station square", "Ulm"),
            ],
        )

        found = search(served, q="station")

        assert ids(found) == [3, 5, 1, 2, 4]
        scores = [row.score for row in found.rows]
        assert scores == sorted(scores, reverse=True)

    def test_rows_are_ranked_by_the_numbers_of_the_domain(
        self, stores: Stores, served: ApiStores
    ):
        dice = random.Random(4)
        names = ["café", "Berlin", "berlinale", "nord", "東京", "b", "Berliner Straße"]
        rows = [
            place(
                number,
                " ".join(dice.choices(names, k=dice.randint(0, 4))) or None,
                " ".join(dice.choices(names, k=dice.randint(0, 2))) or None,
            )
            for number in range(1, 200)
        ]
        store(stores, rows)

        for query in ["berlin", "cafe nord berl", "東京", "nord b", "berlin cafe"]:
            wanted = search_query(q=query, limit="200")
            assert wanted.words is not None
            found = served.search.search(wanted)
            assert found.rows
            texts = {
                row.key[0]: [fold(t or "") for t in (value(row, 1), value(row, 2))]
                for row in rows
            }
            results = [
                (number, row.score)
                for number, row in zip(ids(found), found.rows, strict=True)
            ]
            ranked = [
                (
                    number,
                    score_row(wanted.words.terms, wanted.words.folded, texts[number]),
                )
                for number, _ in results
            ]
            ranked.sort(key=lambda it: (-it[1], len(texts[it[0]][0]), it[0]))
            assert [number for number, _ in results] == [number for number, _ in ranked]
            assert [s for _, s in results] == pytest.approx([s for _, s in ranked])

    def test_deleted_rows_are_never_found(self, stores: Stores, served: ApiStores):
        of = replace(PLACES, missing=Missing(do=WhenMissing.MARK, max_drop=1.0))
        rows = titled("Berlin one", "Berlin two", "Berlin three")
        store(stores, rows, of)
        change(served, Removal((1,)))
        assert find(served, q="berlin") == [2, 3]

        run(stores, of, last(rows[2]))

        assert find(served, q="berlin") == [3]
        assert [each.text for each in suggest(served, "tw")] == []
        assert facets(served, q="berlin").rows == 1

    def test_changed_rows_are_found_by_their_new_words_only(
        self, stores: Stores, served: ApiStores
    ):
        rows = titled("Berlin", "Bern")
        store(stores, rows)
        change(served, Write(place(1, "Hamburg")), Write(place(9, "Hannover")))

        assert find(served, q="hamburg") == [1]
        assert find(served, q="hannover") == [9]
        assert find(served, q="berlin") == []

        run(stores, PLACES, last(place(2, "Zürich"), rows[0]))
        stores.schema.maintain(PLACES)
        assert find(served, q="zurich") == [2]
        assert find(served, q="zuricch") == [2]
        assert find(served, q="hamburg") == []
        assert find(served, q="berlin") == [1]

    def test_a_row_comes_back_by_an_import(self, stores: Stores, served: ApiStores):
        store(stores, titled("Berlin"))
        change(served, Removal((1,)))
        assert find(served, q="berlin") == []

        store(stores, titled("Berlin"))

        assert find(served, q="berlin") == [1]

    def test_conditions_hold_beside_the_words(self, stores: Stores, served: ApiStores):
        rows = [
            place(number, "Station", ["Ulm", "Bern"][number % 2], points=number % 5)
            for number in range(1, 41)
        ]
        store(stores, rows)

        found = find(served, q="station", town="eq.Bern", points="gte.3")

        assert found == [
            row.key[0] for row in rows if value(row, 2) == "Bern" and value(row, 3) >= 3
        ]
        assert find(served, q="station", points="in.7") == []

    def test_only_the_chosen_fields_are_reported(
        self, stores: Stores, served: ApiStores
    ):
        store(stores, titled("Station"))

        (row,) = search(served, q="station", fields="seen,id").rows

        assert json.loads(row.body) == {"seen": "2026-03-02T12:00:00Z", "id": 1}
        assert row.km is None

    def test_a_walk_meets_every_candidate_once(self, stores: Stores, served: ApiStores):
        store(stores, titled(*(f"Station {n % 9}" for n in range(50))))
        found: list[int] = []
        query = search_query(q="station", limit="7")

        while True:
            page = served.search.search(query)
            found += ids(page)
            if not page.has_more:
                break
            query = replace(query, offset=query.offset + query.limit)

        assert len(found) == 50
        assert set(found) == set(range(1, 51))
        assert found == find(served, q="station")

    def test_too_many_rows_are_cut_off_and_that_is_reported(
        self, stores: Stores, served: ApiStores
    ):
        many = [place(number, "Stationary") for number in range(1, 1300)]
        rows = [*many, place(5000, "A station"), place(5001, "Rare")]
        store(stores, rows)

        page = search(served, q="station", limit="3")
        deep = served.search.search(
            replace(search_query(q="station", limit="200"), offset=MAX_CANDIDATES - 50)
        )

        assert page.is_capped
        assert page.has_more
        # what has the word as it was typed is never cut off for what only begins so
        assert ids(page)[0] == 5000
        assert len(deep.rows) == 50
        assert not deep.has_more
        assert not search(served, q="rare").is_capped

    def test_texts_of_any_length_are_stored(self, stores: Stores, served: ApiStores):
        long = "".join(random.Random(1).choices("abcdefgh", k=50_000))
        rows = titled(long, "word " * 30_000, "東京" * 20_000, "start " + "x" * 5_000)
        store(stores, rows)

        assert find(served, q="word") == [2]
        assert find(served, q="京東") == [3]
        assert find(served, q="start xxx") == [4]

    def test_empty_texts_are_no_matter(self, stores: Stores, served: ApiStores):
        rows = [place(1, None), place(2, "", "Ulm"), place(3, "...", None)]
        store(stores, rows)

        assert find(served, q="ulm") == [2]

    def test_nothing_is_found_where_nothing_is_stored(
        self, stores: Stores, served: ApiStores
    ):
        stores.schema.ensure_table(PLACES)
        stores.schema.maintain(PLACES)

        assert find(served, q="berlin") == []
        assert find(served, near="0,0") == []
        assert suggest(served, "be") == []
        assert facets(served).rows == 0

    def test_keys_of_any_kind_lead_to_their_rows(
        self, stores: Stores, served: ApiStores
    ):
        of = replace(
            dataset(
                "days",
                fields=(
                    text_field("region", required=True),
                    typed_field("day", FieldType.DATE, required=True),
                    typed_field("at", FieldType.TIMESTAMP, required=True),
                    typed_field("open", FieldType.BOOL, required=True),
                    text_field("title"),
                ),
            ),
            key=("region", "day", "at", "open"),
            search=("title",),
        )
        rows = [
            record(region, date(2026, 1, n), NOON, n > 1, f"Title {n}", of=of)
            for region in ("a", "ä", "b'")
            for n in (1, 2)
        ]
        store(stores, rows, of)

        found = search(served, of, q="title 2")

        assert [
            (each["region"], each["day"])
            for each in (json.loads(row.body) for row in found.rows)
        ] == [("a", "2026-01-02"), ("b'", "2026-01-02"), ("ä", "2026-01-02")]

    def test_names_of_ours_are_no_names_of_theirs(
        self, stores: Stores, served: ApiStores
    ):
        names = ("word", "rows", "value", "place", "pool", "created", "key", "text")
        for name in ("every", "sampled", "known", "told", "page", "near"):
            of = replace(
                dataset(
                    name,
                    fields=(
                        int_field("id", required=True),
                        *(text_field(each) for each in names),
                        typed_field("lat", FieldType.FLOAT),
                        typed_field("lon", FieldType.FLOAT),
                    ),
                ),
                search=names[:3],
                filter=names,
                geo=("lat", "lon"),
            )
            rows = [record(n, *["Berlin"] * 8, 1.0, 2.0, of=of) for n in (1, 2)]
            store(stores, rows, of)
            run(stores, of, last(record(3, *["Berlin"] * 8, 1.0, 2.0, of=of), *rows))
            stores.schema.maintain(of)

            assert find(served, of, q="berlin", near="1,2") == [1, 2, 3]
            assert find(served, of, q="berlni", word="eq.Berlin") == [1, 2, 3]
            (result,) = served.search.suggest(of, SearchTerms("be"), limit=9)
            assert (result.text, result.rows) == ("Berlin", 3)
            counted = served.search.facets(read_facets(of, [("by", "rows,value")]))
            assert [each.values[0].rows for each in counted.facets] == [3, 3]

    @pytest.mark.parametrize("spot", SPOTS, ids=str)
    @pytest.mark.parametrize("within", [None, 60.0, 900.0, 15_000.0])
    def test_the_nearest_rows_come_first_wherever_one_stands(
        self, stores: Stores, served: ApiStores, spot, within
    ):
        rows = [
            *scattered(500),
            place(900, "no place"),
            place(901, "half", at=(1, None)),
        ]
        store(stores, rows)
        parameters = {"near": f"{spot[0]},{spot[1]}", "limit": "40"}
        if within is not None:
            parameters["within"] = str(within)

        found = search(served, PLACES, **parameters)

        far = sorted(
            (kilometres(spot, spot_of(row)), row.key[0])
            for row in rows
            if None not in spot_of(row)
        )
        wanted = [each for each in far if within is None or each[0] <= within]
        assert [row.km for row in found.rows] == pytest.approx(
            [km for km, _ in wanted[:40]], abs=1e-6
        )
        assert Counter(ids(found)) == Counter(number for _, number in wanted[:40])
        assert found.has_more == (len(wanted) > 40)

    @pytest.mark.parametrize("spot", SPOTS[1:5], ids=str)
    def test_words_and_conditions_hold_near_a_place(
        self, stores: Stores, served: ApiStores, spot
    ):
        rows = scattered(1500, seed=3)
        store(stores, rows)
        near = f"{spot[0]},{spot[1]}"

        # each more than can be ranked, so that they are looked for outwards
        few = search(served, near=near, q="place 3", limit="30")
        many = search(served, near=near, q="place", limit="30")
        some = search(served, near=near, points="gte.1", limit="30")

        def nearest(rows: Iterable[Record]) -> list[float]:
            return sorted(kilometres(spot, spot_of(row)) for row in rows)[:30]

        assert [row.km for row in few.rows] == pytest.approx(
            nearest(row for row in rows if value(row, 1) == "place 3"), abs=1e-6
        )
        assert [row.km for row in many.rows] == pytest.approx(nearest(rows), abs=1e-6)
        assert [row.km for row in some.rows] == pytest.approx(
            nearest(row for row in rows if value(row, 3) >= 1), abs=1e-6
        )
        assert many.rows[0].score > 0

    def test_what_is_far_away_is_found_behind_many_that_do_not_fit(
        self, stores: Stores, served: ApiStores
    ):
        dice = random.Random(2)

        def around(lat: float, lon: float) -> tuple[float, float]:
            return lat + dice.uniform(-0.1, 0.1), lon + dice.uniform(-0.1, 0.1)

        close = [place(n, "Shop", at=around(50, 10)) for n in range(1, 4500)]
        away = [place(n, "Station", at=around(-30, 100)) for n in range(5000, 6100)]
        store(stores, [*close, *away])

        found = search(served, near="50,10", q="station", limit="10")

        assert len(found.rows) == 10
        assert {number >= 5000 for number in ids(found)} == {True}

    def test_a_walk_outwards_meets_every_row_once(
        self, stores: Stores, served: ApiStores
    ):
        rows = scattered(120, seed=5)
        store(stores, rows)
        found: list[int] = []
        query = search_query(near="10,179.95", limit="25")

        while True:
            page = served.search.search(query)
            found += ids(page)
            if not page.has_more:
                break
            query = replace(query, offset=query.offset + query.limit)

        assert sorted(found) == [row.key[0] for row in rows]

    def test_fewer_rows_are_found_at_once_where_they_are_large(
        self, stores: Stores, served: ApiStores
    ):
        fields = (*FIELDS, text_field("note"))
        of = replace(PLACES, fields=fields)
        sizes = [3_000_000] * 3 + [9_000_000, 10]
        rows = [
            record(n, f"Berlin {n}", None, 1, n, n, NOON, n % 2 == 0, "x" * size, of=of)
            for n, size in enumerate(sizes)
        ]
        store(stores, rows, of)

        for parameters in ({"q": "berlin"}, {"near": "0,0"}):
            query, found = search_query(of, **parameters, limit="50"), []
            while True:
                page = served.search.search(query)
                size = sum(len(row.body) for row in page.rows)
                assert len(page.rows) == 1 or size <= MAX_PAGE_BYTES
                found += ids(page)
                if not page.has_more:
                    break
                query = replace(query, offset=query.offset + len(page.rows))
            assert sorted(found) == [*range(len(sizes))]

    def test_words_are_completed_the_frequent_ones_first(
        self, stores: Stores, served: ApiStores
    ):
        store(
            stores,
            titled("Stadt", "Station", "Station Süd", "Straße", "Strand", "STRASSE 7"),
        )

        assert [each.text for each in suggest(served, "sta")] == ["Station", "Stadt"]
        assert suggest(served, "station")[0].rows == 2
        found = {fold(each.text) for each in suggest(served, "str")}
        assert found == {"strasse", "strand"}
        assert [each.text for each in suggest(served, "SÜ")] == ["Süd"]
        assert len(suggest(served, "st", limit=2)) == 2
        assert suggest(served, "zz") == []

    def test_the_last_word_is_completed_in_company_of_the_others(
        self, stores: Stores, served: ApiStores
    ):
        store(
            stores,
            [
                place(1, "Park Nord", "Berlin"),
                place(2, "Park Nordost", "Bern"),
                place(3, "Markt Nordwest", "Berlin"),
            ],
        )

        results = [each.text for each in suggest(served, "berlin park nor")]

        assert results == ["berlin park Nord"]

    @pytest.mark.parametrize(
        ("typed", "result"),
        [
            ("Saint-Ger", "Saint-Germain"),
            (" saint   ger", "saint Germain"),
            ("l'Éta", "l'Étang"),
            ("Bahnhof(ger", "Bahnhof(Germain"),
            ("abc東", "abc東京"),
        ],
    )
    def test_what_was_typed_before_the_last_word_stays(
        self, stores: Stores, served: ApiStores, typed: str, result: str
    ):
        store(
            stores,
            titled("Saint-Germain", "l'Étang", "Bahnhof Germain", "abc 東京"),
        )

        assert result in [each.text for each in suggest(served, typed)]

    def test_whatever_is_typed_is_searched_for_and_completed(
        self, stores: Stores, served: ApiStores
    ):
        store(stores, titled("Ankara", "22nd Street", "ⓑⓔta！an", "¼ mile", "²²"))

        @given(typed=st.text(min_size=1, max_size=12))
        @example("²²")
        @example("ⓑⓔ")
        @example("¼")
        @example("ªn")
        @example("an ！")
        @example("an be an")
        @example("1")
        @example("1\x08")
        @settings(max_examples=20, deadline=None)
        def try_out(typed: str) -> None:
            try:
                words, _ = read_suggest(PLACES, [("q", typed)])
            except BadRequest:
                return
            search(served, q=typed)
            for found in suggest(served, typed):
                *before, completed = fold(found.text).split()
                assert before == words.folded.split()[:-1]
                assert completed.startswith(words.folded.split()[-1])

        try_out()

    def test_runs_without_spaces_are_completed_too(
        self, stores: Stores, served: ApiStores
    ):
        store(stores, titled("東京駅", "東京駅", "東京都庁", "大阪"))

        result = suggest(served, "東京")

        assert [each.text for each in result] == ["東京駅", "東京都庁"]
        assert result[0].rows == 2

    def test_what_a_client_has_just_written_is_suggested(
        self, stores: Stores, served: ApiStores
    ):
        store(stores, titled("Berlin"))
        change(served, Write(place(2, "Xylophon")))

        assert [each.text for each in suggest(served, "xyl")] == ["Xylophon"]

    def test_words_of_rows_that_are_gone_are_not_suggested(
        self, stores: Stores, served: ApiStores
    ):
        store(stores, titled("Berlin", "Bern"))
        change(served, Removal((1,)))

        assert [each.text for each in suggest(served, "ber")] == ["Bern"]

    @pytest.mark.parametrize(
        "parameters",
        [{}, {"points": "gte.2"}, {"q": "place 3"}, {"q": "place", "points": "lt.2"}],
        ids=["all", "condition", "words", "both"],
    )
    def test_facets_count_what_is_there(
        self, stores: Stores, served: ApiStores, parameters
    ):
        rows = [
            place(
                number,
                f"place {number % 7}",
                [None, "Ulm", "Bern", "Köln"][number * number % 4],
                points=None if number % 11 == 0 else number % 4,
            )
            for number in range(1, 300)
        ]
        store(stores, rows)

        found = facets(served, by="town,points,is_open,seen", **parameters)

        def fits(row: Record) -> bool:
            title, points = value(row, 1), value(row, 3)
            words = parameters.get("q", "").split()
            return (
                all(word in title.split() for word in words)
                and {
                    None: True,
                    "gte.2": points is not None and points >= 2,
                    "lt.2": points is not None and points < 2,
                }[parameters.get("points")]
            )

        stored = [row for row in rows if fits(row)]
        assert (found.rows, found.is_sampled) == (len(stored), False)
        town, points, is_open, seen = found.facets
        for facet, at in ((town, 2), (points, 3), (is_open, 7)):
            counted = Counter(value(row, at) for row in stored)
            assert facet.missing == counted.pop(None, 0)
            assert {each.value: each.rows for each in facet.values} == counted
            assert facet.others == 0
            results = [each.rows for each in facet.values]
            assert results == sorted(results, reverse=True)
        assert sum(each.rows for each in seen.ranges or seen.values) == len(stored)

    def test_facets_of_numbers_and_times_are_ranges(
        self, stores: Stores, served: ApiStores
    ):
        rows = [place(number, "x", points=number * 3 - 50) for number in range(1, 400)]
        store(stores, rows)

        points, seen = facets(served, by="points,seen").facets

        assert [(each.start, each.end) for each in points.ranges][:2] == [
            (-200, 0),
            (0, 200),
        ]
        for each in points.ranges:
            inside = [
                row
                for row in rows
                if float(each.start) <= float(value(row, 3)) < float(each.end)
            ]
            assert each.rows == len(inside)
        assert [each.start for each in seen.ranges][:2] == [
            "2026-01-01T00:00:00Z",
            "2026-04-01T00:00:00Z",
        ]
        assert sum(each.rows for each in seen.ranges) == 399

    def test_facets_tell_the_most_frequent_values_and_how_many_are_left(
        self, stores: Stores, served: ApiStores
    ):
        towns = [f"Town {n % 40 if n > 100 else 0}" for n in range(1, 300)]
        store(stores, [place(n, "x", town) for n, town in enumerate(towns, start=1)])

        (town,) = facets(served, by="town").facets

        assert len(town.values) == 20
        assert town.values[0].value == "Town 0"
        assert town.others == 299 - sum(each.rows for each in town.values)

    def test_facets_of_too_many_rows_are_those_of_a_sample(
        self, stores: Stores, served: ApiStores
    ):
        rows = [
            place(n, "Station", points=n % 3) for n in range(1, MAX_SAMPLED_ROWS + 600)
        ]
        store(stores, rows)

        for found in (
            facets(served, by="points"),
            facets(served, by="points", q="station"),
            facets(served, by="points", points="gte.0"),
        ):
            assert found.is_sampled
            assert found.rows == MAX_SAMPLED_ROWS
            (points,) = found.facets
            assert sum(each.rows for each in points.values) == MAX_SAMPLED_ROWS
        assert not facets(served, by="points", points="eq.1").is_sampled

    def test_what_a_search_forgives_counts_in_facets_too(
        self, stores: Stores, served: ApiStores
    ):
        store(stores, titled("Hauptbahnhof"))

        assert facets(served, q="hauptbahnhov").rows == 1
