"""Searches are read from parameters; every flaw is named with its remedy."""

from dataclasses import replace

import pytest

from penstock.domain.dataset import FieldType
from penstock.domain.search.filter_params import (
    MAX_NAMES_SUGGESTED,
    MAX_PARAM_ERRORS,
)
from penstock.domain.search.geo import GeoPoint
from penstock.domain.search.search_params import read_facets, read_search, read_suggest
from penstock.errors import BadRequest
from tests.support.builders import dataset, int_field, text_field, typed_field

PLACES = dataset(
    fields=(
        int_field("id", required=True),
        text_field("title"),
        int_field("points"),
        typed_field("raw", FieldType.JSON),
        typed_field("lat", FieldType.FLOAT),
        typed_field("lon", FieldType.FLOAT),
    ),
    search=("title",),
    filter=("points", "raw"),
    geo=("lat", "lon"),
)


def test_a_search_finds_the_best_few_unless_more_are_requested():
    usual, _ = read_search(PLACES, [("q", "berlin")])
    fewer, _ = read_search(PLACES, [("q", "berlin")], most=5)

    assert (usual.limit, fewer.limit) == (20, 5)


def test_a_search_is_read():
    request, cursor = read_search(
        PLACES,
        [
            *(("q", "  Berlin   Mitte "), ("near", "52.5, -13.4"), ("within", "2.5")),
            *(("points", "gt.3"), ("limit", "7"), ("fields", "id"), ("cursor", "abc")),
        ],
    )

    assert request.words is not None
    assert request.words.text == "Berlin Mitte"
    assert (request.near, request.within, request.limit) == (
        GeoPoint(52.5, -13.4),
        2.5,
        7,
    )
    assert [each.name for each in request.fields] == ["id"]
    assert request.conditions[0].value == 3
    assert (cursor, request.offset) == ("abc", 0)


def test_a_place_alone_is_enough():
    request, _ = read_search(PLACES, [("near", "-90,180"), ("within", "99999")])

    assert (request.words, request.near, request.within) == (
        None,
        GeoPoint(-90, 180),
        None,
    )


@pytest.mark.parametrize(
    ("given", "pointer", "code", "result"),
    [
        ({}, "?q", "missing", "give q, or near, or both"),
        ({"q": "a"}, "?q", "length", "2 to 100 characters"),
        ({"q": "x" * 101}, "?q", "length", "101 characters; 100 are allowed"),
        ({"q": " . "}, "?q", "no-word", "letters or digits"),
        ({"q": "a\x00b"}, "?q", "value", "no text has"),
        ({"q": "\ud800abc"}, "?q", "value", "no text has"),
        ({"near": "91,0"}, "?near", "value", "latitude,longitude"),
        ({"near": "0,181"}, "?near", "value", "latitude,longitude"),
        ({"near": "1"}, "?near", "value", "near=52.52,13.40"),
        ({"near": "1,nan"}, "?near", "value", "near=52.52,13.40"),
        ({"near": "1,2", "within": "0"}, "?within", "value", "above 0"),
        ({"near": "1,2", "within": "x"}, "?within", "value", "above 0"),
        ({"q": "ab", "within": "3"}, "?within", "needs-near", "needs near"),
        ({"q": "ab", "sort": "id"}, "?sort", "unknown-parameter", "no parameter"),
        ({"q": "ab", "title": "eq.x"}, "?title", "not-filterable", "'filter'"),
        ({"q": "ab", "limit": "201"}, "?limit", "range", "1 to 200"),
    ],
    ids=range(16),
)
def test_what_is_wrong_is_reported(given, pointer, code, result):
    with pytest.raises(BadRequest) as caught:
        read_search(PLACES, given.items())

    (flaw,) = caught.value.flaws
    assert (flaw.pointer, flaw.code) == (pointer, code)
    assert result in flaw.detail


@pytest.mark.parametrize("sign", ["東", "ก", "🔌"])
def test_one_sign_of_a_script_without_spaces_is_a_word(sign):
    request, _ = read_search(PLACES, [("q", sign)])

    assert request.words is not None
    assert request.words.folded == sign


def test_a_dataset_without_search_says_how_it_gets_one():
    bare = replace(PLACES, search=(), geo=None)

    with pytest.raises(BadRequest) as caught:
        read_search(bare, [("q", "berlin"), ("near", "1,2")])

    near, words = caught.value.flaws
    assert (near.code, words.code) == ("no-places", "not-searchable")
    assert "'geo' of datasets.poi" in near.detail
    assert "'search' of datasets.poi" in words.detail


def test_suggestions_take_a_text_and_a_limit():
    words, limit = read_suggest(PLACES, [("q", "ber"), ("limit", "3")])

    assert (words.text, limit) == ("ber", 3)
    assert read_suggest(PLACES, [("q", "ber")])[1] == 10
    for given in (
        [("q", "ber"), ("points", "eq.1")],
        [],
        [("q", "ber"), ("near", "1")],
    ):
        with pytest.raises(BadRequest):
            read_suggest(PLACES, given)


def test_facets_are_those_of_the_fields_that_are_filtered_by():
    request = read_facets(PLACES, [("points", "lt.3")])

    assert [each.name for each in request.by] == ["points"]
    assert len(request.conditions) == 1
    assert read_facets(PLACES, [("by", "points"), ("q", "ab")]).words is not None


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ([("by", "titel")], "not-counted"),
        ([("by", "raw")], "not-counted"),
        ([("by", "")], "not-counted"),
        ([("by", ",".join(f"f{n}" for n in range(11)))], "too-many"),
        ([("by", ",".join(["points"] * 11))], "too-many"),
        ([("limit", "3")], "unknown-parameter"),
    ],
    ids=range(6),
)
def test_other_facets_are_refused(given, code):
    with pytest.raises(BadRequest) as caught:
        read_facets(PLACES, given)

    assert caught.value.flaws[0].code == code


def test_a_dataset_without_filters_has_no_facets():
    with pytest.raises(BadRequest, match="'filter' of poi"):
        read_facets(replace(PLACES, filter=()), [])


@pytest.mark.parametrize("read", [read_search, read_facets, read_suggest])
def test_a_request_full_of_errors_is_soon_refused(read):
    names = [f"point{number}" for number in range(500)]
    many = [(name, "") for name in names]
    for given in (many, [("by", ",".join(names)), ("fields", ",".join(names)), *many]):
        with pytest.raises(BadRequest) as caught:
            read(PLACES, given)
        flaws = caught.value.flaws
        assert len(flaws) == MAX_PARAM_ERRORS
        suggested = [flaw for flaw in flaws if "did you mean" in flaw.detail]
        assert len(suggested) <= MAX_NAMES_SUGGESTED
