"""PostgreSQL searches many rows in bounded time, by rules that it shares with us."""

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from penstock.adapters.postgres.database import PostgresDatabase, PostgresTransaction
from penstock.adapters.postgres.search import candidates as candidates_module
from penstock.adapters.postgres.search import geo, planner
from penstock.adapters.postgres.search.planner import AccessPath, cheapest
from penstock.adapters.postgres.search.prefilter import (
    PLAIN,
    matches_pattern,
    word_pattern,
)
from penstock.adapters.postgres.search.query import SearchLimits
from penstock.adapters.postgres.search.session import SearchSession
from penstock.adapters.postgres.search.table import PostgresSearchTable
from penstock.adapters.postgres.search.term_dictionary import DueUpdate, KnownTerms
from penstock.adapters.sqlstore.stores import build_api_stores
from penstock.adapters.sqlstore.table_protocols import FacetCounts, FoundRow
from penstock.domain.dataset import Dataset, DatasetName
from penstock.domain.jobs import Mode
from penstock.domain.pages import Record
from penstock.domain.search.search_params import read_facets
from penstock.domain.search.search_query import (
    MIN_EXACT_MATCHES,
    FacetQuery,
    SearchQuery,
)
from penstock.domain.search.tokenizer import (
    SearchTerms,
    deletion_keys,
    fold,
    is_one_edit_away,
    near_deletion_keys,
    text_tokens,
)
from penstock.errors import Misconfigured, StoreTimeout
from penstock.ports import Stores
from penstock.ports.record_access import ApiStores
from tests.contracts.search import (
    PLACES,
    SPOTS,
    facets,
    find,
    ids,
    kilometres,
    place,
    scattered,
    search,
    search_query,
    spot_of,
    store,
    suggest,
)
from tests.support.builders import batch, claim, last, plan, run
from tests.support.postgres import Place, opened, own_schema

# small enough that a few rows are too many
SMALL = SearchLimits(
    ranked=20,
    sorted=20,
    sorted_of_sample=5,
    nearest=40,
    nearest_judged=40,
    in_box=2_000,
    around=1_500,
    nearest_known=20,
    counted=50,
    counted_of_sample=50,
    enough_of_sample=10,
)


@pytest.fixture
def at(postgres_url: str) -> Iterator[Place]:
    with own_schema(postgres_url) as place:
        yield place


@pytest.fixture
def opened_at(at: Place) -> Iterator[tuple[Stores, PostgresDatabase]]:
    with opened(at) as (stores, database):
        stores.schema.migrate()
        yield stores, database


@pytest.fixture
def stores(opened_at) -> Stores:
    found: Stores = opened_at[0]
    return found


@pytest.fixture
def database(opened_at) -> PostgresDatabase:
    found: PostgresDatabase = opened_at[1]
    return found


@pytest.fixture
def served(database: PostgresDatabase):
    return build_api_stores(database)


def small(
    read: PostgresTransaction, of: Dataset, limits: SearchLimits = SMALL
) -> PostgresSearchTable:
    return replace(read.search_table(of), limits=limits)


def begun(database: PostgresDatabase, prefix: str) -> tuple[str, ...]:
    """Return all words that begin so, if they are known."""

    def read(transaction: PostgresTransaction) -> tuple[str, ...]:
        inquiry = transaction.search_table(PLACES)._builder
        return inquiry.plan(SearchTerms(prefix).terms).known.words

    return database.read(read)


class TestFolding:
    def folded(self, at: Place, texts: Sequence[str]) -> list[tuple[str, set[str]]]:
        response = at.ask(
            "select penstock_fold(text), tsvector_to_array(penstock_words(text)) "
            "from unnest(%s::text[]) with ordinality as told (text, place) "
            "order by place",
            list(texts),
        )
        return [(text, set(tokens)) for text, tokens in response]

    @pytest.mark.parametrize("first", range(0, 0x32400, 0x4000), ids=hex)
    def test_every_character_is_folded_as_we_fold_it(self, stores, at, first):
        texts = [
            f"A{chr(code)}b {chr(code)}{chr(code)} Z"
            for code in range(first or 1, first + 0x4000)
            if not 0xD800 <= code < 0xE000
        ]

        found = self.folded(at, texts)

        wanted = [(fold(text), set(text_tokens(fold(text)))) for text in texts]
        pairs = zip(texts, found, wanted, strict=True)
        assert [text for text, one, other in pairs if one != other] == []

    def test_every_text_bears_the_traces_of_its_words(self, stores, at):
        texts = [
            text
            for code in range(1, 0x32400)
            if not 0xD800 <= code < 0xE000
            for text in (f"Ab{chr(code)}c", f"K{chr(code)}{chr(code)}{chr(code)}")
        ]
        dice = random.Random(4)
        signs = "aÄßﬁ Łø'.-_ŉŀẞÆǆ½⒜℀й 東k\u0308\u200dx1I İ"
        texts += ["".join(dice.choices(signs, k=8)) for _ in range(3_000)]
        pairs = [
            (text, word)
            for text in texts
            for word in text_tokens(fold(text))
            if PLAIN.fullmatch(word)
        ]

        results = at.ask(
            f"select {matches_pattern('text', 'trace')} "
            "from unnest(%s::text[], %s::text[]) with ordinality "
            "as told (text, trace, place) order by place",
            [text for text, _ in pairs],
            [word_pattern(word) for _, word in pairs],
        )

        found = zip(pairs, results, strict=True)
        missed = [pair for pair, (is_there,) in found if not is_there]
        assert len(pairs) > 3_000
        assert missed == []

    def test_texts_of_many_scripts_are_folded_as_we_fold_them(self, stores, at):
        dice = random.Random(3)
        signs = "aÄßﬁ Łø'.-_ςΣ я й ё ى ة َ ק ּ क्षि น้ำ 東京カﾅが한국 🔌👩‍👩 ٣ x1 \u200d\t"
        texts = [
            "".join(dice.choices(signs, k=dice.randint(0, 40))) for _ in range(3000)
        ]
        texts += ["x" * 800, f"{'y' * 300} {'z' * 300}", "東" * 900, "é" * 700]

        found = self.folded(at, texts)

        assert found == [(fold(text), set(text_tokens(fold(text)))) for text in texts]

    def test_words_that_are_a_letter_apart_have_a_shape_in_common(self, stores, at):
        dice = random.Random(5)

        def edited(word: str) -> str:
            place, letter = dice.randrange(len(word)), dice.choice("abcdeя")
            return dice.choice(
                [
                    word[:place] + letter + word[place:],
                    word[:place] + word[place + 1 :],
                    word[:place] + letter + word[place + 1 :],
                    word[:place] + word[place : place + 2][::-1] + word[place + 2 :],
                ]
            )

        words = [
            "".join(dice.choices("abcdeя", k=dice.randint(5, 12))) for _ in range(800)
        ]
        pairs = [(word, edited(word)) for word in words]
        pairs = [(one, other) for one, other in pairs if is_one_edit_away(one, other)]
        response = at.ask(
            "select penstock_shapes('d', one, length(one)) && ("
            "penstock_shapes('d', other, length(other) - 1) "
            "|| penstock_shapes('d', other, length(other)) "
            "|| penstock_shapes('d', other, length(other) + 1)) "
            "from unnest(%s::text[], %s::text[]) as pair (one, other)",
            [one for one, _ in pairs],
            [other for _, other in pairs],
        )

        assert len(pairs) > 500
        assert {is_common for (is_common,) in response} == {True}
        assert all(
            deletion_keys(one, len(one)) & near_deletion_keys(other)
            for one, other in pairs
        )

    def test_a_database_of_another_encoding_is_refused(self, postgres_url: str):
        with psycopg.connect(postgres_url, autocommit=True) as server:
            server.execute(
                "create database in_ascii template template0 encoding 'SQL_ASCII' "
                "locale 'C'"
            )
            try:
                url = postgres_url.rsplit("/", 1)[0] + "/in_ascii"
                with (
                    opened(Place(url, "penstock")) as (stores, _),
                    pytest.raises(Misconfigured, match="--encoding UTF8"),
                ):
                    stores.schema.migrate()
            finally:
                server.execute("drop database in_ascii with (force)")


class TestLimits:
    """The same questions, where a few rows are more than may be looked at."""

    def test_a_sample_stands_for_what_too_many_rows_have(self, stores, database, at):
        rows = [place(n, "Station", f"Town {n % 3}") for n in range(1, 4001)]
        store(stores, rows)

        found = matches(database, search_query(q="station", limit="200"))

        assert found.is_capped
        assert len(found.rows) == found.candidates == 20
        body = at.ask(
            "select count(*) from poi where id = any(%s) "
            "and hashint8extended(id, 0) & 63 = 0",
            [json.loads(row.body)["id"] for row in found.rows],
        )
        assert body == [(20,)]

    def test_rare_rows_are_found_beside_frequent_words(self, stores, database):
        rows = [place(n, "Station park", points=n % 900) for n in range(1, 4001)]
        store(stores, [*rows, place(9000, "Station park rare"), place(9001, "Rare")])

        def found(**parameters: str) -> tuple[int, bool]:
            result = matches(database, search_query(PLACES, limit="200", **parameters))
            return result.candidates, result.is_capped

        assert found(q="rare") == (2, False)
        assert found(q="rare station") == (1, False)
        assert found(q="rare stat") == (1, False)
        assert found(q="station par", points="eq.7") == (5, False)

    def test_facets_of_a_sample_say_so(self, stores, database):
        store(stores, [place(n, "Station", points=n % 2) for n in range(1, 4001)])

        for parameters in (
            {"q": "station", "by": "points"},
            {"by": "points"},
            {"by": "points", "points": "gte.0"},
        ):
            found = tallies(database, read_facets(PLACES, parameters.items()))
            assert found.is_sampled
            assert 10 <= found.rows <= 50
            assert found.fields[0].filled == found.rows

    def test_some_pages_stand_for_a_beginning_that_most_rows_have(
        self, stores, database, at, monkeypatch
    ):
        store(stores, [place(n, f"Station{n % 7} {n}") for n in range(1, 10_001)])
        # so that everything but to judge some rows takes too long
        monkeypatch.setattr(planner, "MAX_COST", 1_000)
        monkeypatch.setattr(planner, "PREFILTERED_CHECK_COST", 1e-9)

        query = search_query(q="stat", limit="200")
        first, again = (
            matches(database, query, replace(SMALL, ranked=200)) for _ in range(2)
        )

        assert first.is_capped
        assert first.candidates == 200
        assert first.rows == again.rows
        body = at.ask(
            "select count(*) from poi where id = any(%s) "
            "and hashint8extended(id, 0) & 63 = 0",
            [json.loads(row.body)["id"] for row in first.rows],
        )
        assert body < [(100,)]

    def test_pages_are_not_drawn_for_a_finished_word(
        self, stores, database, at, monkeypatch
    ):
        """How many rows begin so says nothing of those that have the very word."""
        titles = {0: "Stat"}
        store(
            stores,
            [place(n, titles.get(n % 5, f"Station{n}")) for n in range(1, 10_001)],
        )
        monkeypatch.setattr(planner, "MAX_COST", 0)
        monkeypatch.setattr(planner, "PREFILTERED_CHECK_COST", 1e-9)

        query = search_query(q="stat", limit="200")
        found = matches(database, query, replace(SMALL, ranked=200))

        body = at.ask(
            "select count(*) from poi where id = any(%s) and title = 'Stat' "
            "and hashint8extended(id, 0) & 63 = 0",
            [json.loads(row.body)["id"] for row in found.rows],
        )
        assert found.candidates > 10
        assert body == [(found.candidates,)]

    @pytest.mark.parametrize("begun", [0.0, 1e12], ids=["unknown", "too many"])
    def test_no_more_rows_have_a_beginning_than_there_are(
        self, stores, database, begun
    ):
        store(stores, [place(n, f"Station {n}") for n in range(1, 501)])

        def read(transaction: PostgresTransaction) -> planner.SearchPlan:
            of = transaction.table(PLACES).of
            ask = SearchSession(transaction.connection)
            known = planner.PrefixStats(begun)
            return planner.plan_search(
                ask, of, SearchTerms("stat").terms, (), begun=known
            )

        found = database.read(read)

        assert found.rows_with_words is not None
        assert 0 < found.rows_with_words <= found.fitting
        assert found.share <= 1

    def test_conditions_that_many_rows_fit_are_looked_at_in_a_sample(
        self, stores, database, monkeypatch
    ):
        rows = [place(n, "Station", points=n % 4) for n in range(1, 8001)]
        store(stores, rows)
        monkeypatch.setattr(planner, "MAX_COST", 0)

        found = matches(
            database, search_query(PLACES, q="station", points="gte.2", limit="200")
        )

        assert found.is_capped
        assert found.candidates == 20
        assert {json.loads(row.body)["points"] for row in found.rows} == {2, 3}

    def test_rows_that_stand_last_are_found_in_a_sample_as_well(
        self, stores, database, monkeypatch
    ):
        rows = [place(n, "Station", points=n // 7500) for n in range(1, 8001)]
        store(stores, rows)
        monkeypatch.setattr(planner, "MAX_COST", 0)
        monkeypatch.setattr(candidates_module, "MAX_SAMPLE_ROWS", 20)

        query = search_query(PLACES, q="station", points="gte.1", limit="200")
        found = matches(database, query)

        assert found.is_capped
        assert found.candidates > 0

    @pytest.mark.parametrize("judging", [1e-9, 1e9], ids=["judged", "listed"])
    def test_the_nearest_rows_are_found_behind_many_at_one_spot(
        self, stores, database, monkeypatch, judging
    ):
        monkeypatch.setattr(planner, "PREFILTERED_CHECK_COST", judging)
        near = [
            place(n, "Wanted station", at=(5 + n / 50_000, 5)) for n in range(1, 61)
        ]
        others = [place(n, "Station", at=(5, 5)) for n in range(100, 700)]
        far = [place(n, "Wanted station", at=(9, n / 50)) for n in range(1000, 3000)]
        store(stores, [*near, *others, *far])

        found = matches(database, search_query(near="5,5", q="wanted", limit="12"))

        assert [json.loads(row.body)["id"] for row in found.rows] == [*range(1, 13)]

    @pytest.mark.parametrize("judging", [1e-9, 1e9], ids=["judged", "listed"])
    @pytest.mark.parametrize("spot", SPOTS, ids=str)
    @pytest.mark.parametrize(
        "parameters",
        [
            {"q": "place"},
            {"q": "place 3"},
            {"points": "eq.2"},
            {"q": "place", "points": "gte.1", "within": "5000"},
        ],
        ids=["words", "fewer", "condition", "all"],
    )
    def test_the_nearest_rows_are_found_though_all_are_too_many(
        self, stores, database, monkeypatch, spot, parameters, judging
    ):
        monkeypatch.setattr(planner, "PREFILTERED_CHECK_COST", judging)
        rows = scattered(1500, seed=9)
        store(stores, rows)
        near = f"{spot[0]},{spot[1]}"
        query = search_query(PLACES, near=near, limit="12", **parameters)

        found = matches(database, query)

        wanted = sorted(
            kilometres(spot, spot_of(row))
            for row in rows
            if fits(row, parameters, spot)
        )
        assert [row.km for row in found.rows] == pytest.approx(wanted[:12], abs=1e-6)

    def test_a_near_row_is_found_by_a_word_that_is_not_known_yet(
        self, stores, database, monkeypatch
    ):
        monkeypatch.setattr(planner, "PREFILTERED_CHECK_COST", 1e9)
        query = search_query(PLACES, near="5,5", q="place", limit="12")
        store(stores, scattered(1500, seed=9))
        assert begun(database, "place") == ("place",)

        run(stores, PLACES, last(place(9000, "Placement", at=(5, 5))))
        found = matches(database, query)

        assert begun(database, "place") == ()
        assert json.loads(found.rows[0].body)["id"] == 9000

        stores.schema.maintain(PLACES)
        assert begun(database, "place") == ("place", "placement")
        # by a ring, and the lists of both words
        few = replace(SMALL, nearest_judged=12)
        assert matches(database, query, few).rows == found.rows

    def test_words_that_are_elsewhere_are_sorted_after_all(
        self, stores, database, monkeypatch
    ):
        monkeypatch.setattr(geo, "SORT_COST", 1e9)
        here = [place(n, "Station", at=(5 + n / 999, 5)) for n in range(1, 999)]
        far = [place(n, "Harbour", at=(60, n / 20)) for n in range(1001, 1301)]
        store(stores, [*here, *far])
        limits = replace(SMALL, sorted=500, sorted_of_sample=500, in_box=900)

        query = search_query(PLACES, near="5,5", q="harbour", limit="12")
        found = matches(database, query, limits)

        wanted = sorted(kilometres((5, 5), spot_of(row)) for row in far)
        assert [row.km for row in found.rows] == pytest.approx(wanted[:12], abs=1e-6)
        assert not found.is_capped

    @pytest.mark.parametrize("judging", [1e-9, 1e9], ids=["judged", "listed"])
    def test_a_few_of_many_at_one_spot_are_not_all(
        self, stores, database, monkeypatch, judging
    ):
        monkeypatch.setattr(planner, "PREFILTERED_CHECK_COST", judging)
        spot = [
            place(n, "Wanted" if n < 9 else "Station", at=(5, 5)) for n in range(1, 601)
        ]
        dice = random.Random(4)
        around = [
            place(
                n,
                "Station" if n % 7 else "Wanted",
                at=(5 + dice.uniform(-1, 1), 5 + dice.uniform(-1, 1)),
            )
            for n in range(1000, 2500)
        ]
        store(stores, [*spot, *around])
        limits = replace(SMALL, nearest=1_000, in_box=50_000)

        query = search_query(PLACES, near="5,5", q="wanted", limit="12")
        found = matches(database, query, limits)

        wanted = sorted(
            kilometres((5, 5), spot_of(row))
            for row in (*spot, *around)
            if "Wanted" in row.values
        )
        assert [row.km for row in found.rows] == pytest.approx(wanted[:12], abs=1e-6)

    def test_nothing_is_looked_for_beyond_what_is_requested(
        self, stores, database, monkeypatch
    ):
        monkeypatch.setattr(geo, "SORT_COST", 1e9)
        here = [
            place(n, "Wanted" if n % 10 == 0 else "Station", at=(5 + n / 50_000, 5))
            for n in range(1, 81)
        ]
        far = [place(n, "Wanted", at=(6, n / 400)) for n in range(1000, 3000)]
        store(stores, [*here, *far])

        query = search_query(PLACES, near="5,5", within="1", q="wanted", limit="12")
        found = matches(database, query, replace(SMALL, in_box=400_000))

        assert [json.loads(row.body)["id"] for row in found.rows] == [
            *range(10, 81, 10)
        ]
        assert not found.is_capped

    def test_so_few_are_never_looked_for_that_a_word_seems_mistyped(
        self, stores, database
    ):
        store(stores, scattered(1500, seed=9))

        found = matches(database, search_query(PLACES, near="5,5", q="plac", limit="2"))

        assert len(found.rows) == 2
        assert found.candidates >= MIN_EXACT_MATCHES

    @pytest.mark.parametrize("prefix", ["12", "p", "q"])
    def test_of_numbers_and_of_many_words_nobody_knows_all(
        self, stores, database, prefix
    ):
        words = " ".join(f"p{n} q{n % 9}" for n in range(20))
        store(stores, [place(1, f"12 123 {words}")])

        known = tuple(f"q{n}" for n in range(9))
        assert begun(database, prefix) == (known if prefix == "q" else ())

    def test_what_is_cut_off_around_a_place_is_reported(self, stores, database):
        store(stores, [place(n, "Station", at=(5, 5)) for n in range(1, 1700)])

        found = matches(database, search_query(near="5,5", q="station", limit="12"))

        assert len(found.rows) == 12
        assert found.is_capped

    def test_partitions_take_part_in_a_sample_alike(self, stores, database):
        of = replace(PLACES, partition="town")
        of = replace(
            of,
            fields=tuple(
                replace(each, required=each.name in {"id", "town"})
                for each in of.fields
            ),
        )
        rows = [place(n, "Station", "abcd"[n % 4]) for n in range(1, 6001)]
        store(stores, rows, of)

        found = matches(database, search_query(of, q="station", limit="200"))

        assert found.is_capped
        assert found.candidates > 20
        assert search(build_api_stores(database), of, q="station 7").rows == []


def matches(
    database: PostgresDatabase, query: SearchQuery, limits: SearchLimits = SMALL
) -> FoundRow:
    terms = () if query.words is None else query.words.terms
    return database.read(
        lambda read: small(read, query.dataset, limits).matches(query, terms)
    )


def tallies(database: PostgresDatabase, query: FacetQuery) -> FacetCounts:
    terms = () if query.words is None else query.words.terms
    return database.read(
        lambda read: small(read, query.dataset).count_facets(query, terms)
    )


def fits(row: Record, parameters: dict[str, str], spot: tuple[Any, Any]) -> bool:
    words = parameters.get("q", "").split()
    title, points = str(row.values[1]), int(str(row.values[3]))
    within = float(parameters.get("within", "50000"))
    return (
        all(word in title.split() for word in words)
        and {None: True, "eq.2": points == 2, "gte.1": points >= 1}[
            parameters.get("points")
        ]
        and kilometres(spot, spot_of(row)) <= within
    )


class TestIndexes:
    def test_the_index_of_trigrams_that_was_before_is_dropped(self, stores, at):
        run(stores, PLACES, last(place(1, "Berlin")))
        at.ask('create index "penstock:poi::search" on poi (title)')

        stores.schema.maintain(PLACES)

        names = {
            name
            for (name,) in at.ask(
                "select indexname from pg_indexes where tablename = 'poi'"
            )
        }
        assert {"penstock:poi::words", "penstock:poi::sample"} <= names
        assert "penstock:poi::search" not in names

    def test_many_rows_are_not_searched_before_there_is_an_index(
        self, stores, served, at
    ):
        stores.schema.ensure_table(PLACES)
        at.ask(
            "insert into poi (id, title, lat, lon, _digest, _import, _created_at, "
            "_updated_at) select n, 'Station', 1, 1, '', 0, now(), now() "
            "from generate_series(1, 20001) as n"
        )

        with pytest.raises(StoreTimeout, match="cannot be searched yet"):
            search(served, q="station")
        with pytest.raises(StoreTimeout, match="cannot be searched yet"):
            search(served, near="1,1")

        stores.schema.maintain(PLACES)
        assert search(served, q="station").is_capped
        assert len(search(served, near="1,1").rows) == 20

    def test_no_question_reads_the_whole_table(self, stores, at):
        rows = [
            place(n, f"Station {n % 50}", f"Town {n % 9}", points=n % 7, at=(n % 80, 5))
            for n in range(1, 3000)
        ]
        store(stores, rows)
        before = scans(at)

        with opened(at) as (_, database):
            served = build_api_stores(database)
            for parameters in (
                {"q": "station"},
                {"q": "station 7"},
                {"q": "statoin 7"},
                {"q": "st"},
                {"q": "station", "points": "eq.3"},
                {"q": "station", "points": "gte.0"},
                {"near": "5,5"},
                {"near": "5,5", "within": "900"},
                {"near": "5,5", "q": "station 3"},
                {"near": "5,5", "points": "eq.3"},
            ):
                assert search(served, PLACES, **parameters).rows
            assert suggest(served, "sta")
            assert suggest(served, "station 1")
            assert facets(served, by="points", q="station 7").rows
            assert facets(served, by="points", points="eq.3").rows
        # told when the connection is gone
        deadline = time.monotonic() + 10
        while (after := scans(at))["idx_scan"] == before["idx_scan"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)

        assert after["seq_scan"] == before["seq_scan"]

    def test_an_import_that_is_at_work_hides_nothing(self, stores, served):
        store(stores, [place(1, "Berlin")])
        plan(stores, PLACES, mode=Mode.DELTA)
        lease = claim(stores, PLACES)
        stores.ledger.commit_page(PLACES, lease, batch(place(2, "Berlin two")))

        assert find(served, q="berlin") == [1, 2]


def scans(at: Place) -> dict[str, int]:
    response = at.ask(
        "select seq_scan, idx_scan from pg_stat_user_tables "
        "where schemaname = current_schema() and relname = 'poi'"
    )
    return dict(zip(("seq_scan", "idx_scan"), response[0], strict=True))


class TestVocabulary:
    def words(self, at: Place) -> dict[str, int]:
        return dict(at.ask("select word, rows from penstock_word order by word"))

    def test_words_are_counted_and_later_added(self, stores, at):
        store(stores, [place(1, "Berlin Park 7"), place(2, "Berlin 東京")])
        assert self.words(at) == {"berlin": 2, "park": 1}

        run(stores, PLACES, last(place(1, "Bern Park"), place(3, "Bern 55b")))
        stores.schema.maintain(PLACES)

        # those of rows that are gone stay until all are counted again
        assert self.words(at) == {"55b": 1, "berlin": 2, "bern": 2, "park": 2}

    def test_all_are_counted_anew_when_much_has_changed(self, stores, at):
        store(stores, [place(1, "Berlin")])
        rows = [place(n, f"Bern {n % 3}x") for n in range(1, 4000)]
        run(stores, PLACES, last(*rows))

        stores.schema.maintain(PLACES)

        assert self.words(at) == {"0x": 1333, "1x": 1333, "2x": 1333, "bern": 3999}

    @pytest.mark.parametrize("partition", [None, "points"])
    def test_what_is_much_is_judged_by_all_rows(self, stores, database, partition):
        of = replace(PLACES, partition=partition)
        store(stores, [place(n, "Berlin", points=n % 2) for n in range(1, 51)], of)

        known = database.read(lambda read: read.one("vocabulary", dataset=of.name))

        assert known["rows"] == 50

    def test_other_fields_are_other_words(self, stores, at):
        store(stores, [place(1, "Berlin", "Bern")])
        store(stores, [place(1, "Berlin", "Bern")], replace(PLACES, search=("town",)))

        assert self.words(at) == {"bern": 1}

    def test_each_dataset_has_its_own(self, stores, at, served):
        other = replace(PLACES, name=DatasetName("shops"))
        store(stores, [place(1, "Berlin")])
        store(stores, [place(1, "Bern")], other)

        assert [each.text for each in suggest(served, "be")] == ["Berlin"]
        assert search(served, other, q="berlin").rows == []
        assert ids(search(served, other, q="bernn")) == [1]

    @pytest.mark.parametrize(
        ("known", "due"),
        [
            ({"fields": None, "known_seq": None, "counted_seq": None}, DueUpdate.COUNT),
            ({"fields": "title"}, DueUpdate.COUNT),
            ({}, DueUpdate.NOTHING),
            ({"latest_seq": 1_000_100}, DueUpdate.ADD),
            ({"latest_seq": 1_000_100, "is_at_rest": False}, DueUpdate.ADD),
            ({"latest_seq": 1_900_000}, DueUpdate.COUNT),
            ({"latest_seq": 1_900_000, "is_at_rest": False}, DueUpdate.NOTHING),
            ({"known_seq": 2_100_000, "latest_seq": 2_100_000}, DueUpdate.COUNT),
        ],
        ids=range(8),
    )
    def test_what_is_less_work_is_due(self, known, due):
        state = {
            "fields": "title,town",
            "known_seq": 1_000_000,
            "counted_seq": 1_000_000,
            "latest_seq": 1_000_000,
            "rows": 1_000_000.0,
            "is_at_rest": True,
        }

        assert KnownTerms(**{**state, **known}).due("title,town") is due


def test_the_cheapest_way_is_taken_if_it_is_cheap_enough():
    assert (
        cheapest({AccessPath.LISTS: 5.0, AccessPath.CONDITIONS: 4.0})
        is AccessPath.CONDITIONS
    )
    assert (
        cheapest({AccessPath.LISTS: 5e5, AccessPath.CONDITIONS: float("inf")})
        is AccessPath.NONE
    )


def test_words_of_a_query_are_those_of_its_text():
    assert [each.word for each in SearchTerms("Café  CAFÉ nord").terms] == [
        "cafe",
        "nord",
    ]


def test_every_question_has_a_plan_of_its_own(
    stores: Stores, served: ApiStores, database: PostgresDatabase
):
    """A common one, as is made of what is asked often, would be good for none."""
    store(stores, [place(number, f"Stop {number}") for number in range(50)])

    # a server that would choose it, as it does when tables are large
    database.read(
        lambda read: read.connection.execute("set plan_cache_mode = force_generic_plan")
    )
    for number in range(20):
        assert find(served, q=f"stop {number}")

    found: Any = database.read(
        lambda read: read.connection.execute(
            "select custom_plans as own, generic_plans as common "
            "from pg_prepared_statements where statement like '%_candidates%'"
        ).fetchall()
    )
    assert sum(each["own"] for each in found) >= 10
    assert sum(each["common"] for each in found) == 0
