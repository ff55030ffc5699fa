"""Which versions a client means."""

import pytest
from starlette.requests import Request

from penstock.entrypoints.api.resources.records import read_precondition
from penstock.errors import VersionChanged


def request_with(*lines: str) -> Request:
    headers = [(b"if-match", each.encode()) for each in lines]
    return Request({"type": "http", "method": "PATCH", "path": "/", "headers": headers})


@pytest.mark.parametrize(
    ("lines", "versions"),
    [
        (['"a"'], {"a"}),
        (['"a" '], {"a"}),
        (['"a",'], {"a"}),
        ([',"a"'], {"a"}),
        ([', ,"a"'], {"a"}),
        (['"a"\t,"b"'], {"a", "b"}),
        (['"a" ,\t"b"'], {"a", "b"}),
        (['"a"', '"b"'], {"a", "b"}),
        (['W/"a", "b"'], {"b"}),
        (["*"], {"*"}),
        (['"a.title+town"'], {"a"}),
    ],
    ids=range(11),
)
def test_every_way_to_write_a_list_of_versions_is_read(lines, versions):
    assert read_precondition(request_with(*lines)).match == versions


@pytest.mark.parametrize("line", ["", ",", "a", '"a" "b"', '"a"b', "*, *", '*,"a"'])
def test_what_names_no_version_is_reported(line):
    with pytest.raises(VersionChanged, match="contains no valid version"):
        read_precondition(request_with(line))


def test_without_a_word_any_version_is_meant():
    assert read_precondition(request_with()).match is None
