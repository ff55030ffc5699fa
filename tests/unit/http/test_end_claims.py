"""What a response says against being the last page, wherever it says it."""

import json

import pytest

from penstock.adapters.http.body_parser import split_object
from penstock.adapters.http.end_claims import ClaimPaths, EndClaims, read_end_claims


def claims(body: object, *records: str, **paths: tuple[str, ...]) -> EndClaims:
    declared = ClaimPaths(records or ("items",), **paths)
    return read_end_claims(json.dumps(body).encode(), declared, split_object)


@pytest.mark.parametrize(
    "error",
    ["backend timeout", ["one"], {"code": 7}, {"message": "x", "code": 0}, True, 500],
)
@pytest.mark.parametrize("name", ["error", "errors", "Errors"])
def test_an_error_is_found(name, error):
    assert claims({name: error, "items": []}).error == name


@pytest.mark.parametrize(
    "error", [None, "", [], {}, False, 0, {"code": 0, "message": ""}, [{}], [None]]
)
def test_an_empty_error_is_none(error):
    assert claims({"error": error, "items": []}) == EndClaims()


def test_errors_of_records_and_of_other_objects_are_none():
    body = {"items": [{"error": "x"}], "stats": {"error": "x"}, "meta": {"errors": 3}}
    assert claims(body).error is None


def test_a_declared_error_is_the_only_one():
    body = {"error": "none", "status": {"fault": "late"}, "items": []}
    assert claims(body, error=("status", "fault")).error == "status.fault"
    assert claims(body, error=("status", "other")).error is None
    assert claims(body, error=("items", "0", "x")).error is None


@pytest.mark.parametrize(
    ("body", "more"),
    [
        ({"has_more": True, "items": []}, "has_more"),
        ({"meta": {"hasMore": True}, "items": []}, "meta.hasMore"),
        ({"pageInfo": {"hasNextPage": True}, "items": []}, "pageInfo.hasNextPage"),
        ({"has_more": False, "items": []}, None),
        ({"has_more": "true", "items": [{"has_more": True}]}, None),
    ],
)
def test_more_is_found_where_it_is_said(body, more):
    assert claims(body).more == more


@pytest.mark.parametrize(
    ("body", "total"),
    [
        ({"total": 7, "items": []}, (7, "total")),
        (
            {"pagination": {"total-count": "70"}, "items": []},
            (70, "pagination.total-count"),
        ),
        ({"total": None, "meta": {"total": 3}, "items": []}, (3, "meta.total")),
        # neither a sum of money nor what only seems to be a number counts records
        ({"total": 7.5, "items": []}, None),
        ({"total": {"value": 7}, "items": []}, None),
        ({"total": True, "items": []}, None),
        ({"total": "²", "items": []}, None),
        ({"count": 7, "items": []}, None),
    ],
)
def test_a_total_is_found_where_it_is_said(body, total):
    found = claims(body)
    assert found.total == (None if total is None else total[0])
    assert total is None or found.total_name == total[1]


def test_a_declared_total_is_the_only_one():
    body = {"total": 7, "here": {"count": 3}, "items": []}
    assert claims(body, total=("here", "count")).total == 3
    assert claims(body, total=("there",)).total is None


def test_each_object_around_the_records_is_read():
    body = {"data": {"poi": {"nodes": [], "totalCount": 4}, "errors": ["x"]}}
    found = claims(body, "data", "poi", "nodes")
    assert (found.error, found.total) == ("data.errors", 4)
    assert found.total_name == "data.poi.totalCount"


@pytest.mark.parametrize("body", [[], [{"error": "x"}], {"other": {"error": "x"}}])
def test_a_response_without_the_objects_says_nothing(body):
    assert claims(body) == EndClaims()


def test_what_only_a_lenient_parser_reads_is_read_too():
    text = b'{"error": "\\ud800", "total": NaN, "items": []}'
    assert read_end_claims(text, ClaimPaths(("items",)), split_object).error == "error"
