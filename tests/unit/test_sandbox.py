"""The practice provider behaves like the real one, and tells what it was asked."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import chain, pairwise
from time import monotonic
from typing import Any

import msgspec
import pytest
import urllib3

from penstock.sandbox import (
    LoggedRequest,
    Sandbox,
    SandboxOptions,
    parse_faults,
    peak_over,
)

FAST = timedelta(milliseconds=50)
GERMANY, FRANCE = 87, 80


@pytest.fixture
def http() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False, timeout=5) as pool:
        yield pool


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(SandboxOptions(records=1000, duplicates=0)) as running:
        yield running


def get(http, url, headers=None, **query):
    return http.request("GET", url, fields=query, headers=headers)


def points(http, url, **query) -> Any:
    return msgspec.json.decode(get(http, url, **query).data)


def ids(found) -> list[int]:
    return [point["ID"] for point in found]


def scan(http, url, send="greaterthanid", **query) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    last = 0
    while page := points(http, url, **query, **{send: last}):
        found += page
        last = max(ids(page))
    return found


def scan_poi(http, sandbox, **query) -> list[dict[str, Any]]:
    wanted = {"sortby": "id_asc", "maxresults": 90, "compact": "true"} | query
    return scan(http, sandbox.url, **wanted)


def by_id(found) -> dict[int, dict[str, Any]]:
    return {point["ID"]: point for point in found}


class TestData:
    def test_the_same_seed_gives_the_same_bytes_in_any_process(self):
        program = (
            "import msgspec, penstock.sandbox.catalogue as c, hashlib;"
            "from penstock.sandbox import SandboxOptions;"
            "o = c.Catalogue(SandboxOptions(records=300, seed=7));"
            "t = o.encode(o.choose(c.EVERYTHING), c.EVERYTHING);"
            "print(hashlib.sha256(t).hexdigest())"
        )

        digests = {
            subprocess.run(
                [sys.executable, "-c", program], check=True, capture_output=True
            ).stdout
            for _ in range(2)
        }

        assert len(digests) == 1

    def test_another_seed_gives_other_points(self):
        one = Sandbox(SandboxOptions(records=50, seed=1))
        other = Sandbox(SandboxOptions(records=50, seed=2))

        assert one.expected() != other.expected()

        one.stop()
        other.stop()

    def test_a_larger_world_begins_like_a_smaller_one(self):
        small = Sandbox(SandboxOptions(records=50))
        large = Sandbox(SandboxOptions(records=80))

        assert set(small.expected()) < set(large.expected())

        small.stop()
        large.stop()

    def test_ids_rise_with_gaps_over_many_countries(self, sandbox):
        truth = sandbox.expected()

        assert len(truth) == 1000
        assert list(truth) == sorted(truth)
        assert max(truth) > 1500
        countries = {point["AddressInfo"]["CountryID"] for point in truth.values()}
        assert len(countries) >= 15

    def test_a_quarter_of_the_points_share_one_minute(self, sandbox):
        dates = Counter(p["DateLastStatusUpdate"] for p in sandbox.expected().values())

        (bulk, size), *_ = dates.most_common(1)
        assert bulk == "2017-11-04T14:04:00Z"
        assert 200 < size < 300
        assert all(date.endswith(":00Z") for date in dates)

    def test_text_is_as_dirty_as_the_real_one(self, sandbox):
        addresses = [point["AddressInfo"] for point in sandbox.expected().values()]
        titles = [address["Title"] for address in addresses]
        towns = [address["Town"] for address in addresses]

        assert any(title != title.strip() for title in titles)
        assert any("\t" in title for title in titles)
        assert any("\r\n" in title for title in titles)
        assert any("Ã" in title for title in titles)
        assert None in towns
        assert "" in [address["AddressLine1"] for address in addresses]
        assert any(address["Latitude"] == 0 for address in addresses)

    def test_bad_points_are_served_and_can_be_reported(self, http):
        with Sandbox(SandboxOptions(records=400, bad=0.2, duplicates=0)) as sandbox:
            served = points(http, sandbox.url, maxresults=1000)
            flaws = sandbox.flaws()

        assert 40 < len(flaws) < 120
        kinds = {"no title", "bad latitude", "no id", "bad number"}
        assert set(flaws.values()) == kinds
        without_id = [point for point in served if "ID" not in point]
        assert len(without_id) == list(flaws.values()).count("no id")

    def test_small_points_have_only_what_a_benchmark_needs(self, http):
        with Sandbox(SandboxOptions(records=5, small=True, duplicates=0)) as sandbox:
            served = points(http, sandbox.url, sortby="id_asc")

            assert by_id(served) == sandbox.expected()

        assert set(served[0]) == {
            "ID",
            "AddressInfo",
            "NumberOfPoints",
            "DateLastStatusUpdate",
        }


class TestQuery:
    def test_the_default_is_a_hundred_points_by_descending_id(self, http, sandbox):
        found = ids(points(http, sandbox.url))

        assert found == sorted(sandbox.expected(), reverse=True)[:100]

    def test_the_path_works_without_its_slash(self, http, sandbox):
        assert points(http, sandbox.url.rstrip("/")) == points(http, sandbox.url)

    def test_a_keyset_scan_finds_every_point_once(self, http, sandbox):
        found = scan_poi(http, sandbox)

        assert by_id(found) == sandbox.expected()
        assert len(found) == 1000

    def test_a_number_that_is_none_means_a_hundred(self, http, sandbox):
        assert len(points(http, sandbox.url, maxresults="many")) == 100

    def test_there_is_no_offset(self, http, sandbox):
        assert points(http, sandbox.url, offset=50) == points(http, sandbox.url)

    def test_names_of_parameters_have_no_case(self, http, sandbox):
        assert len(points(http, sandbox.url, MaxResults=3)) == 3

    @pytest.mark.parametrize(
        "query", [{"countryid": "87,80,junk"}, {"countryid": " 80, 87"}]
    )
    def test_a_list_of_countries_skips_what_is_no_number(self, http, sandbox, query):
        found = by_id(scan_poi(http, sandbox, **query))

        assert found == sandbox.expected([GERMANY, FRANCE])

    def test_a_country_code_has_no_case(self, http, sandbox):
        found = by_id(scan_poi(http, sandbox, countrycode="de"))

        assert found == sandbox.expected([GERMANY])

    @pytest.mark.parametrize(
        "query",
        [
            {"countrycode": "UK"},
            {"countryid": "junk"},
            {"boundingbox": "1,2,3,4"},
            {"boundingbox": "(a,b),(c,d)"},
            {"modifiedsince": "yesterday"},
            {"greaterthanid": "x"},
            {"latitude": "200", "longitude": "1"},
        ],
        ids=str,
    )
    def test_a_filter_that_cannot_be_read_fails_open(self, http, sandbox, query):
        assert len(points(http, sandbox.url, maxresults=5000, **query)) == 1000

    def test_a_country_without_points_gives_none(self, http, sandbox):
        assert points(http, sandbox.url, countryid=9999) == []

    def test_a_box_includes_all_its_edges(self, http, sandbox):
        address = sandbox.expected([GERMANY]).popitem()[1]["AddressInfo"]
        spot = f"({address['Latitude']},{address['Longitude']})"

        found = points(http, sandbox.url, boundingbox=f"{spot},{spot}")

        assert [point["AddressInfo"]["ID"] for point in found] == [address["ID"]]

    def test_a_box_may_name_any_two_opposite_corners(self, http, sandbox):
        boxes = ["(55,5),(47,16)", "(47,16),(55,5)", "(47,5),(55,16)"]
        inside = {
            point_id
            for point_id, point in sandbox.expected().items()
            if 47 <= point["AddressInfo"]["Latitude"] <= 55
            and 5 <= point["AddressInfo"]["Longitude"] <= 16
        }

        for box in boxes:
            assert set(ids(scan_poi(http, sandbox, boundingbox=box))) == inside

    def test_points_near_a_place_come_by_distance(self, http, sandbox):
        berlin = {"latitude": 52.52, "longitude": 13.405}
        near = points(http, sandbox.url, distance=20, distanceunit="km", **berlin)
        nearer = points(http, sandbox.url, distance=5, distanceunit="km", **berlin)

        assert near[: len(nearer)] == nearer
        assert 0 < len(nearer) < len(near)
        assert {point["AddressInfo"]["Country"]["ISOCode"] for point in near} == {"DE"}

    def test_modified_since_includes_its_own_minute(self, http, sandbox):
        bulk = "2017-11-04T14:04:00Z"
        found = scan_poi(http, sandbox, modifiedsince="2017-11-04T14:04:00")
        later = scan_poi(http, sandbox, modifiedsince="2017-11-04T14:04:01")

        dates = {point["DateLastStatusUpdate"] for point in found}
        assert min(dates) == bulk
        assert bulk not in {point["DateLastStatusUpdate"] for point in later}
        truth = sandbox.expected().values()
        assert len(found) == sum(p["DateLastStatusUpdate"] >= bulk for p in truth)

    @pytest.mark.parametrize(
        ("sort", "field"),
        [("modified_asc", "DateLastStatusUpdate"), ("created_asc", "DateCreated")],
    )
    def test_points_are_sorted_by_date_without_a_tiebreaker(
        self, http, sandbox, sort, field
    ):
        found = points(http, sandbox.url, sortby=sort, maxresults=1000)

        assert [p[field] for p in found] == sorted(p[field] for p in found)

    def test_ties_of_a_date_are_not_in_order_of_their_ids(self, http, sandbox):
        found = points(http, sandbox.url, sortby="modified_asc", maxresults=1000)
        tied = [
            p["ID"]
            for p in found
            if p["DateLastStatusUpdate"].startswith("2017-11-04T14")
        ]

        assert tied != sorted(tied)

    def test_exact_filters_match_their_field(self, http, sandbox):
        found = points(http, sandbox.url, statustypeid="50", maxresults=1000)

        assert {point["StatusTypeID"] for point in found} == {50}

    def test_compact_leaves_out_what_the_lookup_lists_hold(self, http, sandbox):
        (full,) = points(http, sandbox.url, countryid=87, maxresults=1)
        (compact,) = points(
            http, sandbox.url, countryid=87, maxresults=1, compact="true"
        )

        assert full["AddressInfo"]["Country"]["ISOCode"] == "DE"
        assert compact["AddressInfo"]["Country"] is None
        assert full["DataProvider"]["ID"] == compact["DataProviderID"]
        assert compact["DataProvider"] is None
        assert list(full) == list(compact)

    def test_without_verbose_null_keys_are_absent(self, http, sandbox):
        found = points(http, sandbox.url, compact="true", verbose="false")

        assert all(value is not None for point in found for value in point.values())
        assert not any("Country" in point["AddressInfo"] for point in found)

    @pytest.mark.parametrize("output", ["yaml", "kml"])
    def test_an_unknown_output_is_xml_with_status_200(self, http, sandbox, output):
        response = get(http, sandbox.url, output=output)

        assert response.status == 200
        assert response.headers["Content-Type"] == "application/xml"
        assert response.data.startswith(b"<?xml")

    def test_recently_verified_flips_with_the_clock(self):
        early = Sandbox(SandboxOptions(clock_skew=timedelta(days=-365 * 3)))
        late = Sandbox(SandboxOptions(clock_skew=timedelta(days=365 * 20)))

        assert any(point["IsRecentlyVerified"] for point in early.expected().values())
        assert not any(p["IsRecentlyVerified"] for p in late.expected().values())

        early.stop()
        late.stop()

    def test_repeats_in_a_page_are_adjacent_and_eat_the_limit(self, http):
        with Sandbox(SandboxOptions(duplicates=1)) as sandbox:
            page = ids(points(http, sandbox.url, sortby="id_asc", maxresults=100))
            found = by_id(scan_poi(http, sandbox))

            assert found == sandbox.expected()

        assert len(page) == 100
        assert page == sorted(page)
        assert 80 < len(set(page)) < 100

    def test_reference_data_names_the_countries(self, http, sandbox):
        body = points(http, f"{sandbox.base_url}/v3/referencedata")

        iso_by_id = {country["ID"]: country["ISOCode"] for country in body["Countries"]}
        assert iso_by_id[GERMANY] == "DE"
        assert {"Operators", "ConnectionTypes", "StatusTypes"} < set(body)

    def test_the_status_names_the_highest_id(self, http, sandbox):
        body = points(http, f"{sandbox.base_url}/v3/system/status")

        assert body["MaxPOIId"] == max(sandbox.expected())

    def test_an_unknown_path_is_not_found(self, http, sandbox):
        assert get(http, f"{sandbox.base_url}/v4/poi").status == 404


class TestProvider:
    def test_the_date_header_follows_the_skewed_clock(self, http):
        skew = timedelta(hours=-5)
        with Sandbox(SandboxOptions(records=1, clock_skew=skew)) as sandbox:
            date = get(http, sandbox.url).headers["Date"]

        difference = parsedate_to_datetime(date) - datetime.now(UTC)
        assert abs(difference - skew) < timedelta(seconds=5)

    def test_a_key_is_requested(self, http):
        with Sandbox(SandboxOptions(records=1, key="k1")) as sandbox:
            missing = get(http, sandbox.url)
            wrong = get(http, sandbox.url, key="other")
            header = get(http, sandbox.url, headers={"X-API-Key": "k1"})
            query = get(http, sandbox.url, key="k1")
            both = get(http, sandbox.url, headers={"X-API-Key": "k1"}, key="test")
            log = sandbox.requests

        assert [r.status for r in (missing, wrong, both)] == [403, 403, 403]
        assert b"You must specify an API key" in missing.data
        assert wrong.data == b"Invalid API key."
        assert [header.status, query.status] == [200, 200]
        assert all("key" not in request.query for request in log)

    def test_robots_are_turned_away(self, http, sandbox):
        response = get(http, sandbox.url, headers={"User-Agent": "my crawler"})

        assert response.status == 503

    def test_too_many_requests_are_refused_with_a_time_to_wait(self, http):
        with Sandbox(SandboxOptions(records=1, rate=0.5, burst=3)) as sandbox:
            answers = [get(http, sandbox.url) for _ in range(5)]
            served = [r for r in sandbox.requests if r.status == 200]

        assert [a.status for a in answers] == [200, 200, 200, 429, 429]
        assert answers[3].headers["Retry-After"] in {"1", "2"}
        assert peak_over(served, 0.5) <= 3

    def test_tokens_come_back_with_time(self, http):
        with Sandbox(SandboxOptions(records=1, rate=20, burst=1)) as sandbox:
            statuses: list[int] = []
            started = monotonic()
            while statuses.count(200) < 4:
                statuses.append(get(http, sandbox.url).status)
            served = [r for r in sandbox.requests if r.status == 200]

        assert monotonic() - started >= 0.14
        assert peak_over(served, 20) <= 1.000001

    def test_latency_delays_every_answer(self, http):
        with Sandbox(SandboxOptions(records=1, latency=FAST)) as sandbox:
            started = monotonic()
            get(http, sandbox.url)

        assert monotonic() - started >= FAST.total_seconds()

    def test_answers_are_compressed_for_those_who_accept_it(self, http):
        with Sandbox(SandboxOptions(duplicates=0, gzip=True)) as sandbox:
            plain = get(http, sandbox.url)
            packed = get(http, sandbox.url, headers={"Accept-Encoding": "gzip"})

        assert packed.headers["Content-Encoding"] == "gzip"
        assert "Content-Encoding" not in plain.headers
        assert packed.data == plain.data

    def test_a_connection_is_retained_open(self, sandbox):
        with urllib3.HTTPConnectionPool(
            sandbox.base_url.split("//")[1].split(":")[0],
            int(sandbox.base_url.rsplit(":", 1)[1]),
        ) as pool:
            for _ in range(5):
                pool.request("GET", "/v3/poi/?maxresults=1")

            assert pool.num_connections == 1

    def test_a_stopped_sandbox_answers_no_more(self, http):
        sandbox = Sandbox(SandboxOptions(records=1)).start()
        get(http, sandbox.url)
        sandbox.stop()

        with pytest.raises(urllib3.exceptions.HTTPError):
            get(http, sandbox.url)


class TestChanges:
    def test_an_edit_moves_the_point_to_the_current_minute(self, http):
        with Sandbox(SandboxOptions(records=50, duplicates=0)) as sandbox:
            before = datetime.now(UTC).replace(second=0, microsecond=0)
            chosen = list(sandbox.expected())[7]
            sandbox.edit(chosen, {"AddressInfo.Title": "New", "NumberOfPoints": 99})
            found = scan_poi(http, sandbox, modifiedsince=before.isoformat()[:19])

        assert ids(found) == [chosen]
        assert found[0]["AddressInfo"]["Title"] == "New"
        assert found[0]["NumberOfPoints"] == 99
        assert found[0]["DateLastStatusUpdate"].endswith(":00Z")

    def test_an_edit_reaches_texts_that_were_served_before(self, http):
        with Sandbox(SandboxOptions(records=20, duplicates=0)) as sandbox:
            first = by_id(scan_poi(http, sandbox))
            chosen = next(iter(first))
            sandbox.edit(chosen)
            second = by_id(scan_poi(http, sandbox))

            assert second == sandbox.expected()

        assert {i for i in first if first[i] != second[i]} == {chosen}

    def test_a_point_can_move_to_another_country(self, http):
        with Sandbox(SandboxOptions(records=50, duplicates=0)) as sandbox:
            moved = next(iter(sandbox.expected([GERMANY])))
            sandbox.edit(moved, {"AddressInfo.CountryID": FRANCE})

            assert moved in by_id(scan_poi(http, sandbox, countryid=FRANCE))
            assert moved not in sandbox.expected([GERMANY])

    def test_a_removed_point_just_vanishes(self, http):
        with Sandbox(SandboxOptions(records=20, duplicates=0)) as sandbox:
            chosen = list(sandbox.expected())[3]
            sandbox.remove(chosen)
            found = by_id(scan_poi(http, sandbox))

            assert found == sandbox.expected()
            with pytest.raises(KeyError):
                sandbox.remove(chosen)

        assert chosen not in found
        assert len(found) == 19

    def test_an_added_point_has_the_highest_id_and_was_created_now(self, http):
        with Sandbox(SandboxOptions(records=20, duplicates=0)) as sandbox:
            highest = max(sandbox.expected())
            added = sandbox.add()
            (newest,) = points(http, sandbox.url, maxresults=1, compact="true")

            assert newest == sandbox.expected()[added]

        assert added > highest
        assert newest["DateCreated"] == newest["DateLastStatusUpdate"]


def faulty(name: str, **options) -> Sandbox:
    return Sandbox(
        SandboxOptions(records=60, duplicates=0, faults={name: 1}, slow=FAST, **options)
    )


class TestFaults:
    @pytest.mark.parametrize(("name", "status"), [("500", 500), ("503", 503)])
    def test_a_status_is_sent_and_logged(self, http, name, status):
        with faulty(name) as sandbox:
            response = get(http, sandbox.url)
            (request,) = sandbox.requests

        assert response.status == status
        assert (request.status, request.fault) == (status, name)
        assert response.headers.get("Retry-After") == {"503": "1"}.get(name)

    def test_a_reset_cuts_the_connection(self, http):
        with faulty("reset") as sandbox:
            with pytest.raises(urllib3.exceptions.ProtocolError, match="reset"):
                get(http, sandbox.url)
            (request,) = sandbox.requests

        assert (request.status, request.fault) == (0, "reset")

    def test_a_slow_answer_is_a_good_one(self, http):
        with faulty("slow") as sandbox:
            started = monotonic()
            found = points(http, sandbox.url)

        assert monotonic() - started >= FAST.total_seconds()
        assert len(found) == 60

    def test_a_truncated_body_is_cut_openly_or_in_secret(self, http):
        outcomes = set()
        with faulty("truncated") as sandbox:
            for _ in range(20):
                try:
                    body = get(http, sandbox.url).data
                except urllib3.exceptions.ProtocolError:
                    outcomes.add("short of its length")
                else:
                    with pytest.raises(msgspec.DecodeError):
                        msgspec.json.decode(body)
                    outcomes.add("broken JSON")

        assert outcomes == {"short of its length", "broken JSON"}

    def test_html_comes_with_status_200(self, http):
        with faulty("html") as sandbox:
            response = get(http, sandbox.url)

        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/html")

    def test_an_empty_body_comes_with_status_200(self, http):
        with faulty("empty") as sandbox:
            response = get(http, sandbox.url)

        assert (response.status, response.data) == (200, b"")

    def test_disorder_keeps_the_points_but_not_their_order(self, http):
        with faulty("disorder") as sandbox:
            page = ids(points(http, sandbox.url, sortby="id_asc", maxresults=10))
            truth = sorted(sandbox.expected())

        assert sorted(page) == truth[:10]
        assert page[-1] != max(page)

    def test_edits_during_the_scan_change_the_truth(self, http):
        with faulty("edit") as sandbox:
            before = sandbox.expected()
            get(http, sandbox.url)
            after = sandbox.expected()

        assert sum(before[i] != after[i] for i in before) == 1

    def test_removals_during_the_scan_change_the_truth(self, http):
        with faulty("remove") as sandbox:
            before = sandbox.expected()
            found = points(http, sandbox.url)
            after = sandbox.expected()

        assert len(after) == len(before) - 1
        assert set(ids(found)) == set(after)

    def test_the_same_seed_draws_the_same_faults(self, http):
        def drawn() -> list[str | None]:
            faults = {"500": 0.3, "html": 0.3}
            with Sandbox(SandboxOptions(records=1, faults=faults)) as sandbox:
                for _ in range(30):
                    get(http, sandbox.url)
                return [request.fault for request in sandbox.requests]

        first = drawn()

        assert first == drawn()
        assert set(first) == {None, "500", "html"}

    def test_a_refused_request_has_no_fault(self, http):
        with faulty("500", key="k1") as sandbox:
            response = get(http, sandbox.url)
            (request,) = sandbox.requests

        assert response.status == 403
        assert request.fault is None

    def test_a_list_of_faults_is_read(self):
        assert parse_faults("500:0.02, reset:0.01") == {"500": 0.02, "reset": 0.01}
        assert parse_faults("") == {}

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("explode:0.1", "unknown fault 'explode'; valid names are 500, 503, reset"),
            ("500", "must be a name and a probability"),
            ("500:often", "valid names are 500"),
            ("500:2", "between 0 and 1"),
            ("500:0.6,reset:0.6", "add up to at most 1"),
        ],
    )
    def test_a_wrong_list_of_faults_is_refused_with_a_reason(self, text, reason):
        with pytest.raises(ValueError, match=reason):
            parse_faults(text)

    @pytest.mark.parametrize(
        "options",
        [{"records": -1}, {"rate": 0}, {"burst": 0}, {"bad": 2}, {"faults": {"x": 1}}],
        ids=str,
    )
    def test_options_that_cannot_be_are_refused(self, options):
        with pytest.raises(ValueError, match=r"must|unknown"):
            SandboxOptions(**options)


class TestJournal:
    def test_every_request_is_logged_with_what_it_got(self, http):
        with Sandbox(SandboxOptions(records=30, duplicates=0)) as sandbox:
            found = points(http, sandbox.url, sortby="id_asc", maxresults=10)
            (request,) = sandbox.requests

        assert request.path == "/v3/poi/"
        assert request.query == {"sortby": "id_asc", "maxresults": "10"}
        assert (request.status, request.fault, request.count) == (200, None, 10)
        assert (request.first_id, request.last_id) == (ids(found)[0], ids(found)[-1])

    def test_other_processes_read_log_truth_and_counts(self, http):
        with Sandbox(SandboxOptions(records=30, rate=1000, duplicates=0)) as sandbox:
            own = f"{sandbox.base_url}/sandbox"
            for last in (0, 5, 5):
                points(http, sandbox.url, greaterthanid=last)
            log = points(http, f"{own}/requests")
            stats = points(http, f"{own}/stats")
            truth = points(http, f"{own}/expected")
            german = points(http, f"{own}/expected", countryid=GERMANY)
            expected = sandbox.expected()
            expected_german = sandbox.expected([GERMANY])

        assert [entry["query"]["greaterthanid"] for entry in log] == ["0", "5", "5"]
        assert stats["by_status"] == {"200": 3}
        assert stats["wasted"] == 1
        assert 1 <= stats["peak_burst"] <= 3
        assert by_id(truth) == expected
        assert by_id(german) == expected_german

    def test_asking_again_after_a_spoiled_answer_is_no_waste(self, http):
        with faulty("html") as sandbox:
            for _ in range(3):
                get(http, sandbox.url)
            stats = points(http, f"{sandbox.base_url}/sandbox/stats")

        assert stats["by_fault"] == {"html": 3}
        assert stats["wasted"] == 0

    def test_own_routes_need_no_key_take_no_token_and_leave_no_trace(self, http):
        options = SandboxOptions(records=1, key="k1", rate=0.01, burst=1)
        with Sandbox(options) as sandbox:
            own = f"{sandbox.base_url}/sandbox"
            statuses = [get(http, f"{own}/stats").status for _ in range(3)]
            log = sandbox.requests

        assert statuses == [200, 200, 200]
        assert log == []

    def test_a_reset_forgets_the_log(self, http):
        with Sandbox(SandboxOptions(records=1)) as sandbox:
            get(http, sandbox.url)
            response = http.request("POST", f"{sandbox.base_url}/sandbox/reset")
            log = sandbox.requests

        assert response.status == 200
        assert log == []

    def test_other_processes_change_the_world(self, http):
        with Sandbox(SandboxOptions(records=5)) as sandbox:
            own = f"{sandbox.base_url}/sandbox"
            first, second, *_ = sandbox.expected()
            added = http.request("POST", f"{own}/add").json()["id"]
            http.request("POST", f"{own}/edit?id={first}")
            http.request("POST", f"{own}/remove?id={second}")
            unknown = http.request("POST", f"{own}/remove?id={second}")
            truth = sandbox.expected()

        assert added in truth
        assert "(edited)" in truth[first]["AddressInfo"]["Title"]
        assert second not in truth
        assert unknown.status == 404

    @pytest.mark.parametrize(
        ("times", "rate", "peak"),
        [
            ([], 1, 0),
            ([5.0], 1, 1),
            ([0.0, 0.0, 0.0], 1, 3),
            ([0.0, 1.0, 2.0], 1, 1),
            ([0.0, 0.5, 1.0], 1, 2),
            ([0.0, 100.0, 100.0, 100.5], 2, 2),
            ([2.0, 0.0, 1.0], 1, 1),
        ],
    )
    def test_the_peak_is_the_burst_that_was_needed(self, times, rate, peak):
        requests = [
            LoggedRequest(
                at=at,
                method="GET",
                path="/",
                query={},
                status=200,
                fault=None,
                first_id=None,
                last_id=None,
                count=0,
            )
            for at in times
        ]

        assert peak_over(requests, rate) == pytest.approx(peak)
        assert peak_over(times, rate) == pytest.approx(peak)


class TestPractice:
    def test_offset(self, http, sandbox):
        url = f"{sandbox.base_url}/practice/offset"
        pages = [points(http, url, offset=o, limit=300) for o in range(0, 1500, 300)]

        assert [len(page) for page in pages] == [300, 300, 300, 100, 0]
        assert by_id(chain(*pages)) == sandbox.expected()

    def test_page(self, http, sandbox):
        url = f"{sandbox.base_url}/practice/page"
        pages = [points(http, url, page=number, size=250) for number in range(1, 6)]

        assert [len(page) for page in pages] == [250, 250, 250, 250, 0]
        assert by_id(chain(*pages)) == sandbox.expected()

    def test_cursor(self, http, sandbox):
        url = f"{sandbox.base_url}/practice/cursor"
        token: str | None = ""
        found = []
        while token is not None:
            body = points(http, url, token=token, limit=250)
            found += body["data"]
            token = body["meta"]["next"]

        assert by_id(found) == sandbox.expected()
        assert len(found) == 1000
        assert get(http, url, token="junk").status == 400

    def test_link(self, http, sandbox):
        url, found, seen = f"{sandbox.base_url}/practice/link?limit=300", [], 0
        while url:
            response = http.request("GET", url)
            body = response.json()
            found += body["items"]
            url = body["links"]["next"]
            seen += 1
            link = f'<{url}>; rel="next"' if url else None
            assert response.headers.get("Link") == link

        assert seen == 4
        assert by_id(found) == sandbox.expected()

    def test_single(self, http, sandbox):
        found = points(http, f"{sandbox.base_url}/practice/single")

        assert by_id(found) == sandbox.expected()

    def test_search_by_post(self, http, sandbox):
        url, found, after = f"{sandbox.base_url}/practice/search", [], 0
        while page := http.request(
            "POST", url, json={"after": after, "limit": 400}
        ).json():
            found += page
            after = page[-1]["ID"]

        assert by_id(found) == sandbox.expected()
        assert sandbox.requests[-1].query == {"after": str(after), "limit": "400"}

    def test_windows_are_half_open_and_fit_together(self, http, sandbox):
        url = f"{sandbox.base_url}/practice/window"
        edges = [
            "2014-01-01",
            "2017-11-04T14:04:00Z",
            "2017-11-04T14:05:00Z",
            "2027-01-01",
        ]
        parts = [
            scan(http, url, send="after", since=since, before=before)
            for since, before in pairwise(edges)
        ]

        assert by_id(chain(*parts)) == sandbox.expected()
        assert sum(map(len, parts)) == 1000
        assert {p["DateLastStatusUpdate"] for p in parts[1]} == {edges[1]}

    def test_capped_never_gives_more_than_its_cap(self, http, sandbox):
        url = f"{sandbox.base_url}/practice/capped"
        world = scan(http, url, send="after", limit=90)
        box = "(52,13),(53,14)"
        berlin = scan(http, url, send="after", limit=90, boundingbox=box)

        assert ids(world) == sorted(sandbox.expected())[:200]
        assert 0 < len(berlin) < 200

    def test_regions_have_their_own_points(self, http, sandbox):
        regions = points(http, f"{sandbox.base_url}/practice/regions")
        found = {
            region["country_id"]: by_id(
                scan(
                    http,
                    f"{sandbox.base_url}/practice/regions/{region['id']}/points",
                    send="after",
                )
            )
            for region in regions
        }

        assert found[GERMANY] == sandbox.expected([GERMANY])
        assert sum(map(len, found.values())) == 1000
        unknown = get(http, f"{sandbox.base_url}/practice/regions/XX/points")
        assert unknown.status == 404

    def test_practice_routes_share_key_limit_faults_and_log(self, http):
        options = SandboxOptions(
            records=5, key="k1", rate=0.1, burst=1, faults={"500": 1}
        )
        with Sandbox(options) as sandbox:
            url = f"{sandbox.base_url}/practice/offset"
            statuses = [
                get(http, url).status,
                get(http, url, key="k1").status,
                get(http, url, key="k1").status,
            ]
            log = sandbox.requests

        assert statuses == [403, 500, 429]
        assert [request.path for request in log] == ["/practice/offset"] * 3

    def test_a_bearer_token_is_issued_accepted_and_expires(self, http):
        options = SandboxOptions(records=5, oauth=True, token_life=2 * FAST)
        credentials = {"grant_type": "client_credentials", "client_id": "practice"}
        with Sandbox(options) as sandbox:
            url = f"{sandbox.base_url}/practice/single"
            before = get(http, url)
            grant = http.request(
                "POST",
                f"{sandbox.base_url}/practice/token",
                fields=credentials | {"client_secret": "practice-secret"},
                encode_multipart=False,
            ).json()
            bearer = {"Authorization": f"Bearer {grant['access_token']}"}
            good = get(http, url, headers=bearer)
            while get(http, url, headers=bearer).status == 200:
                pass
            late = get(http, url, headers=bearer)
            issued = sandbox.tokens_issued

        assert [before.status, good.status, late.status] == [401, 200, 401]
        assert "Bearer" in before.headers["WWW-Authenticate"]
        assert grant["token_type"] == "Bearer"
        assert issued == 1

    @pytest.mark.parametrize(
        ("form", "headers", "status"),
        [
            ({"grant_type": "client_credentials"}, {}, 401),
            ({"grant_type": "password"}, {}, 400),
            (
                {"grant_type": "client_credentials"},
                urllib3.make_headers(basic_auth="practice:practice-secret"),
                200,
            ),
            ({"grant_type": "client_credentials"}, {"Authorization": "Basic !"}, 401),
        ],
        ids=["nobody", "another grant", "basic", "broken basic"],
    )
    def test_tokens_are_for_known_clients(self, http, sandbox, form, headers, status):
        response = http.request(
            "POST",
            f"{sandbox.base_url}/practice/token",
            fields=form,
            headers=headers,
            encode_multipart=False,
        )

        assert response.status == status
